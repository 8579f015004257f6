"""All plans by their words, and the plan of each layer that a text such as the value of `--plan` names."""

from gridgrad.parallel.grid.process_grid import LAYER_AXES, MODEL
from gridgrad.parallel.placement.plan import Plan
from gridgrad.parallel.plans.hidden import ShardHiddenUnits
from gridgrad.parallel.plans.hypergraph import PartitionOfNetwork
from gridgrad.parallel.plans.inputs import ShardInputs
from gridgrad.parallel.plans.laugier import GatherEveryLayer
from gridgrad.parallel.plans.marques import MasterAndSlaves
from gridgrad.parallel.plans.outputs import ShardOutputs
from gridgrad.parallel.plans.pixels import HEIGHT, WIDTH
from gridgrad.parallel.plans.redundant import ComputeRedundantly
from gridgrad.parallel.plans.replicate import ReplicateWeights

PLANS: dict[str, Plan] = {  # of those that are equally fast the planner takes the first
    plan.word: plan
    for plan in (
        ShardOutputs(), ShardInputs(), ShardHiddenUnits(), ReplicateWeights(), ComputeRedundantly(), HEIGHT, WIDTH,
        GatherEveryLayer(), MasterAndSlaves(), PartitionOfNetwork(),
    )
}  # fmt: skip
FEWEST_BYTES = "fewest-bytes"
FIXED = {  # axes with one possible plan: they divide the samples or, of convolutions, the images
    axis: f"conv={axis},linear=replicate,autoencoder=replicate" if axis in PLANS else "replicate"
    for axis in LAYER_AXES
    if axis != MODEL
}
USE = "fewest-bytes, laugier, marques, hypergraph, out, in, replicate, redundant, height or width"


def candidates(kind):
    """The words of the plans among which "fewest-bytes" chooses for a kind of layer."""
    return tuple(word for word, plan in PLANS.items() if plan.is_candidate and kind in plan.kinds)


def plans_of(words):
    """The Plans that words name, without those that FEWEST_BYTES will choose."""
    return [PLANS[word] for word in dict.fromkeys(words) if word in PLANS]


def by_axis(layers, words):
    """{axis: {layer: Plan}} for all axes. words: for each of these layers, its plan along the axis `MODEL`."""
    found = {axis: words_of(text, layers) for axis, text in FIXED.items()} | {MODEL: words}
    return {axis: {layer: PLANS[word] for layer, word in zip(layers, of, strict=True)} for axis, of in found.items()}


def words_of(text, layers):
    """The words of a plan, one for each layer with weights. ValueError if they do not fit.

    text: see `parallelize`; the words themselves are also taken.
    """
    words = text.split(",") if isinstance(text, str) else list(text)
    if all("=" in word for word in words):
        kinds = dict(word.split("=", 1) for word in words)
        if len(kinds) < len(words) or not {"conv", "linear"} <= kinds.keys() <= {"conv", "linear", "autoencoder"}:
            raise ValueError(f"plan '{text}': by kind it names conv and linear, such as conv=width,linear=out: use {USE}")
        words = [kinds.get(layer.kind, FEWEST_BYTES) for layer in layers]
    elif len(words) == 1:
        words *= len(layers)
    if len(words) != len(layers):
        raise ValueError(f"plan '{text}' has {len(words)} choices but the net has {len(layers)} layers with "
                         "weights: give one for each of them, or one for all")  # fmt: skip
    for word, layer in zip(words, layers, strict=True):
        if word == FEWEST_BYTES:
            continue
        if word not in PLANS:
            raise ValueError(f"plan '{text}': unknown choice '{word}': use {USE}")
        if refusal := PLANS[word].refusal(layer):
            raise ValueError(f"plan '{text}': layer {layer.name} {layer!r} {refusal}")
    for plan in plans_of(words):
        if not plan.mixes and len(set(words)) > 1:
            raise ValueError(f"plan '{text}': {plan} is a whole algorithm and does not mix with other choices")
    return words
