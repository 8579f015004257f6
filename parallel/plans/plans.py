"""The plans by their words: how layers with weights are placed along an axis of the grid."""

from typing import Any

from gridgrad.parallel.grid.process_grid import LAYER_AXES, MODEL
from gridgrad.parallel.placement.moves import elements_sent
from gridgrad.parallel.placement.partition import Partition, Split
from gridgrad.parallel.placement.placements import PIXELS, C, H, Invariant, N, Partial, Replicate, Shard, W
from gridgrad.parallel.placement.plan import INPUTS, OUTPUTS, Plan, output_columns
from gridgrad.parallel.placement.redistribute import Redistribute
from gridgrad.parallel.plans.hypergraph import PartitionOfNetwork
from gridgrad.parallel.plans.marques import MasterAndSlaves


class ShardOutputs(Plan):
    """Every rank has the whole input and computes some outputs, columns of the weight: those it owns, or its share."""

    word, use, is_candidate = "out", "split the weights", True
    input, weight = Replicate(), OUTPUTS
    output: Any = C

    def divide(self, placer, axis, layer):
        columns = output_columns(placer, axis, layer)
        return {"weight": Shard(-1, columns), "bias": Shard(0, columns)}, Shard(C, columns)


class ShardInputs(Plan):
    """A rank has some inputs, rows of the weight, and partial sums of all outputs. The first rank with inputs adds the bias."""

    word, use, is_candidate = "in", "split the weights", True
    input, output, weight = C, Partial(), INPUTS

    def divide(self, placer, axis, layer):
        rows = placer.at[axis].partition
        adds_bias = next((rank for rank in range(rows.ranks) if rows.size(rank)), 0)
        return {"weight": Shard(-2, rows), "bias": Shard(0, Partition.at_rank(layer.outputs, rows.ranks, adds_bias))}, Partial()


class ShardHiddenUnits(Plan):
    """For a TiedAutoencoder: each rank has the whole input, computes some hidden units, and from them a partial sum of the
    output. The first rank with hidden units adds the bias of the decoder."""

    word, use, kinds, is_candidate = "hidden", "split the weights", ("autoencoder",), True
    input, output, weight = Replicate(), Partial(), OUTPUTS
    refusal = "has no hidden units: hidden is for autoencoders"

    def divide(self, placer, axis, layer):
        units = output_columns(placer, axis, layer)
        first = next(rank for rank in range(units.ranks) if units.size(rank))
        decoder_bias = Shard(0, Partition.at_rank(layer.inputs, units.ranks, first))
        return {"weight": Shard(-1, units), "bias": Shard(-1, units), "decoder_bias": decoder_bias}, Partial()


class ReplicateWeights(Plan):
    """Every rank holds the whole weight and computes its part of the samples, as on the axis batch."""

    word, use = "replicate", "split the samples and hold whole weights, as on the axis batch"

    def takes(self, kind):
        return True

    def is_tried(self, kinds, sizes, shape):
        return True


class ComputeRedundantly(Plan):
    """Every rank computes the whole layer for all samples, so no gradient of the weights is summed. It pays for small layers
    and minibatches of one sample; Grabaskas 2018 does so with layers that are not split."""

    word, use = "redundant", "hold whole weights, and all compute the same"
    input = output = Invariant()
    shares_work = False

    def divide(self, placer, axis, layer):
        return {"weight": Invariant(), "bias": Invariant()}, Invariant()


class ShardPixels(Plan):
    """Each rank computes its part of every image, for convolutions only. Example: ShardPixels("height", H, "rows")."""

    kinds = ("conv",)

    def __init__(self, word, dim, plural):
        self.word, self.use = word, f"split the {plural} of each image"
        self.input = self.output = dim
        self.axes = tuple(axis for axis in LAYER_AXES if axis != word)
        self.refusal = f"has no {word} to split: use conv={word},linear=.."

    def is_tried(self, kinds, sizes, shape):
        """More ranks than rows are possible, but ranks without a row only add collectives."""
        return self.input == H and kinds == {"conv"} and self.fits(sizes) and sizes[MODEL] <= shape[0]

    def check(self, text, grid):
        if grid.sizes.get(self.word, 1) > 1:
            raise ValueError(
                f"plan '{text}': the axis {self.word} splits the images already: leave {self.word} out of one of the two"
            )


HEIGHT, WIDTH = ShardPixels("height", H, "rows"), ShardPixels("width", W, "columns")


class GatherEveryLayer(ShardOutputs):
    """Laugier et al. 2018, Algorithms 2 and 3: "out" with an all-gather behind each layer, for comparison. A rank sends
    3 (P-1)/P of a layer's activations; all-gather and reduce-scatter would send 2 (P-1)/P."""

    word, is_candidate, mixes = "laugier", False, False
    output = Invariant()

    def behind(self, placer, axis, layer):
        shape = layer.output_shape(placer.shape)
        placer.append(Redistribute(placer.grid.group(axis), placer.at[axis], Invariant(), shape), layer.name)
        placer.at[axis] = Invariant()


PLANS: dict[str, Plan] = {  # of those that are equally fast the planner takes the first
    plan.word: plan
    for plan in (
        ShardOutputs(), ShardInputs(), ShardHiddenUnits(), ReplicateWeights(), ComputeRedundantly(), HEIGHT, WIDTH,
        GatherEveryLayer(), MasterAndSlaves(), PartitionOfNetwork(),
    )
}  # fmt: skip
FEWEST_BYTES = "fewest-bytes"
USE = "fewest-bytes, laugier, marques, hypergraph, out, in, replicate, redundant, height or width"


def candidates(kind):
    """The words of the plans among which "fewest-bytes" chooses for a kind of layer."""
    return tuple(word for word, plan in PLANS.items() if plan.is_candidate and plan.takes(kind)) or ("replicate",)


def plans_of(words):
    """The Plans that words name, without those that FEWEST_BYTES will choose."""
    return [PLANS[word] for word in dict.fromkeys(words) if word in PLANS]


def by_axis(layers, words):
    """{axis: {layer: Plan}} for all axes. words: of the layers' plans along the axis `MODEL`."""
    found = {axis: {layer: only_plan(axis, layer) for layer in layers} for axis in LAYER_AXES}
    return found | {MODEL: {layer: PLANS[word] for layer, word in zip(layers, words, strict=True)}}


def only_plan(axis, layer):
    """The Plan of a layer along another axis than `MODEL`: the plan named like the axis, such as "height", or "replicate"."""
    divides_images = axis in PLANS and PLANS[axis].takes(layer.kind)
    return PLANS[axis if divides_images else "replicate"]


def words_of(text, layers):
    """The word of each layer with weights, from a text as in `parallelize` or a list; ValueError if it does not fit."""
    words = text.split(",") if isinstance(text, str) else list(text)
    if all("=" in word for word in words):
        kinds = dict(word.split("=", 1) for word in words)
        known = {"conv", "linear"}.union(*(plan.kinds for plan in PLANS.values()), {layer.kind for layer in layers})
        if len(kinds) < len(words) or not {"conv", "linear"} <= kinds.keys() <= known:
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
        if not PLANS[word].takes(layer.kind):
            others = " or ".join(other for other, plan in PLANS.items() if plan.takes(layer.kind))
            why = PLANS[word].refusal or f"takes {others}, not {word}"
            raise ValueError(f"plan '{text}': layer {layer.name} {layer!r} {why}")
    for plan in plans_of(words):
        if not plan.mixes and len(set(words)) > 1:
            raise ValueError(f"plan '{text}': {plan} is a whole algorithm and does not mix with other choices")
    return words


def fewest_bytes(sizes, ranks, allowed=None):
    """The word for each layer with which all layers together send the fewest bytes: a shortest path over the layers, without
    halos, branches one after another. sizes: (features in, out) of a sample at each. allowed: their words."""
    # With 3 or more ranks that is at most 2/3 of what "laugier" sends; with 2 ranks too, if the network has several layers and
    # the last one at most 1.5 times as many outputs as inputs.
    allowed = allowed or [candidates("linear")] * len(sizes)
    if all(len(words) == 1 for words in allowed):
        return [word for (word,) in allowed]

    def placement(kind, features):
        if kind == C:
            return Shard(C, Partition.even(features, ranks))
        # Parts of images are flattened into shards of the samples.
        return Shard(N, Split(ranks)) if kind in (N, *PIXELS) else kind

    def cost(source, target, features):
        samples = ranks  # one for each rank, so that an all-to-all is even
        there_and_back = (source, target), (target.adjoint, source.adjoint)
        return sum(elements_sent(a, b, samples, (features,), ranks) for a, b in there_and_back)

    def between(choice, kind, leaving, entering):
        """Elements sent between a layer and the next. Partial sums are reduced where there are `leaving` features; all else
        moves just before the next layer, where there are `entering` features (fewer after pooling)."""
        target = placement(kind, entering)
        left = PLANS[choice].output
        if left != Partial():
            return cost(placement(left, entering), target, entering)
        if target.dim is not None:
            return cost(Partial(), placement(kind, leaving), leaving)
        return cost(Partial(), placement(C, leaving), leaving) + cost(placement(C, entering), target, entering)

    best = {choice: (0, [choice]) for choice in allowed[0]}  # reading the input sends no bytes
    for (_, leaving), (entering, _), words in zip(sizes, sizes[1:], allowed[1:], strict=False):
        best = {
            choice: min(
                (total + between(p[-1], PLANS[choice].input, leaving, entering), [*p, choice]) for total, p in best.values()
            )
            for choice in words
        }
    features = sizes[-1][1]

    def to_loss(choice):
        return 0 if PLANS[choice].output == Invariant() else between(choice, N, features, features)

    return min((total + to_loss(p[-1]), p) for total, p in best.values())[1]
