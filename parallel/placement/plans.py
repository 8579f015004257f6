"""Plans: for each layer with weights, how they are placed along the model axis.

| choice      | weight W (.., inputs, outputs) | input of the layer | output                |
|-------------|--------------------------------|--------------------|-----------------------|
| "out"       | `Shard(outputs)`               | `Replicate`        | `Shard(C)`            |
| "in"        | `Shard(inputs)`                | `Shard(C)`         | `Partial`             |
| "replicate" | `Replicate`                    | `Shard(N)`         | `Shard(N)`            |
| "height"    | `Replicate`                    | `Shard(H)`         | `Shard(H)`            |
| "width"     | `Replicate`                    | `Shard(W)`         | `Shard(W)`            |
| "laugier"   | `Shard(outputs)`               | `Replicate`        | all-gathered at once  |

With "replicate" the ranks of the model axis take more of the batch instead, with "height" or "width" they share the rows or
the columns of each image (only convolutions can). "laugier" is the algorithm of Laugier et al. 2018 (Algorithms 2 and 3):
activations are computed on every rank, backward slices the gradient of the output and all-reduces that of the input. It is
kept beside the others to be compared with.

Along the axis `height` convolutions are "height" and Linear layers "replicate", always.
"""

from math import prod

from nn.sequence import leaves, shapes
from parallel.placement.moves import elements_sent
from parallel.placement.partition import Partition, Split
from parallel.placement.placements import PIXELS, C, H, N, Partial, Replicate, Shard, W

# What each choice means: a placement, or the dimension that is sharded.
INPUT = {"out": Replicate(), "in": C, "replicate": N, "height": H, "width": W, "laugier": Replicate()}
OUTPUT = {"out": C, "in": Partial(), "replicate": N, "height": H, "width": W, "laugier": Replicate()}
FIXED = {"batch": "replicate", "height": "conv=height,linear=replicate"}  # the plans of the axes that leave no choice
CHOSEN = "model"  # the axis whose plan is the user's or the planner's
FEWEST = ("out", "in")  # what "fewest-bytes" chooses from
HELP = (
    "fewest-bytes, laugier, or out, in, replicate, height or width: one word for all layers with weights, or one for each "
    "layer, comma-separated, or by kind, such as conv=height,linear=fewest-bytes"
)


def weighted(net):
    """The layers of a network that a plan has a choice for, in the order in which they run."""
    return weighted_in(net.layers)


def weighted_in(layers):
    """The same for a list of layers."""
    return [leaf for leaf in leaves(layers) if leaf.kind]


def choices(layers, words):
    """{axis: {layer: choice}} of all axes, where `words` are the choices for these layers along the axis that has a choice."""
    fixed = {axis: dict(zip(layers, words_of(text, layers), strict=True)) for axis, text in FIXED.items()}
    return fixed | {CHOSEN: dict(zip(layers, words, strict=True))}


def fewest_bytes(sizes, ranks, allowed=None):
    """The plan that moves the fewest bytes on an axis of `ranks` ranks in a step: the shortest path over the layers.

    sizes: (features in, features out) of each layer, for one sample. allowed: the choices to take from, one tuple for each
    layer, by default `FEWEST`: all weights are sharded. An edge has the weight that both directions move for one sample; halos
    are small beside it and left out; the layers of branches count as if they followed one another. From 3 ranks on it
    moves at most 2/3 of what "laugier" does, at 2 ranks if there are at most 1.5 times as many outputs as inputs of the
    last of several layers.
    """
    allowed = allowed or [FEWEST] * len(sizes)
    if all(len(words) == 1 for words in allowed):
        return [word for (word,) in allowed]

    def placement(kind, features):
        if kind == C:
            return Shard(C, Partition.even(features, ranks))
        # Parts of images are flattened into shards of the samples.
        return Shard(N, Split(ranks)) if kind in (N, *PIXELS) else kind

    def cost(source, target, features):
        samples = ranks  # enough of them that an all-to-all is counted with its share
        there_and_back = (source, target), (target.adjoint, source.adjoint)
        return sum(elements_sent(a, b, samples, (features,), ranks) for a, b in there_and_back)

    def between(choice, kind, leaving, entering):
        """What moves from the output of a layer to the input of the next: partial sums are reduced at once, where the layer
        has `leaving` features, the rest is moved when it is needed, where `entering` are left."""
        target = placement(kind, entering)
        if OUTPUT[choice] != Partial():
            return cost(placement(OUTPUT[choice], entering), target, entering)
        if target.dim is not None:
            return cost(Partial(), placement(kind, leaving), leaving)
        return cost(Partial(), placement(C, leaving), leaving) + cost(placement(C, entering), target, entering)

    best = {choice: (0, [choice]) for choice in allowed[0]}  # the input's own split is read as it is needed: no bytes
    for (_, leaving), (entering, _), words in zip(sizes, sizes[1:], allowed[1:], strict=False):
        best = {
            choice: min((total + between(p[-1], INPUT[choice], leaving, entering), [*p, choice]) for total, p in best.values())
            for choice in words
        }
    features = sizes[-1][1]
    return min((total + between(p[-1], N, features, features), p) for total, p in best.values())[1]


def feature_sizes(net, shape):
    """(features in, features out) of one sample for each layer with weights. ValueError if the layers do not fit."""
    sizes = {layer: (prod(before), prod(after)) for layer, before, after in shapes(net.layers, shape)}
    return [sizes[layer] for layer in weighted(net)]


def words_of(text, layers):
    """The word of a plan's text for each layer with weights; ValueError if they do not fit."""
    words = text.split(",")
    if all("=" in word for word in words):
        kinds = dict(word.split("=", 1) for word in words)
        if sorted(word.split("=")[0] for word in words) != ["conv", "linear"]:
            raise ValueError(f"plan '{text}': by kind it names conv and linear: use {HELP}")
        words = [kinds[layer.kind] for layer in layers]
    elif len(words) == 1:
        words *= len(layers)
    if len(words) != len(layers):
        raise ValueError(f"plan '{text}' has {len(words)} choices but the net has {len(layers)} layers with weights")
    for word, layer in zip(words, layers, strict=True):
        if word not in INPUT and word != "fewest-bytes":
            raise ValueError(f"plan '{text}': unknown choice '{word}': use {HELP}")
        if INPUT.get(word) in PIXELS and layer.kind != "conv":
            raise ValueError(f"plan '{text}': layer {layer.name} {layer!r} has no {word} to split: use conv={word},linear=..")
    return words


def parse_plan(text, layers, sizes, ranks):
    """The choices, one for each layer with weights, behind the text of `--plan`; ValueError if it does not fit.

    layers: see `weighted`. sizes, ranks: see `fewest_bytes`.
    """
    words = words_of(text, layers)
    if "laugier" in words and len(set(words)) > 1:
        raise ValueError(f"plan '{text}': laugier is a whole algorithm and does not mix with other choices")
    return fewest_bytes(sizes, ranks, [FEWEST if word == "fewest-bytes" else (word,) for word in words])
