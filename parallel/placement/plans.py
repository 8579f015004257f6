"""Plans: for each layer with weights, how they are placed along the model axis.

| choice      | weight W (.., inputs, outputs) | input of the layer | output                |
|-------------|--------------------------------|--------------------|-----------------------|
| "out"       | `Shard(outputs)`               | `Replicate`        | `Shard(C)`            |
| "in"        | `Shard(inputs)`                | `Shard(C)`         | `Partial`             |
| "replicate" | `Replicate`                    | `Shard(N)`         | `Shard(N)`            |
| "height"    | `Replicate`                    | `Shard(H)`         | `Shard(H)`            |
| "laugier"   | `Shard(outputs)`               | `Replicate`        | all-gathered at once  |

With "replicate" the ranks of the model axis take more of the batch instead, with "height" a strip of each image (only
convolutions can). "laugier" is the algorithm of Laugier et al. 2018 (Algorithms 2 and 3): activations are computed on
every rank, backward slices the gradient of the output and all-reduces that of the input. It is kept beside the others
to be compared with.

Along the axis `height` convolutions are "height" and Linear layers "replicate", always.
"""

from math import prod

from nn import Conv2d, Linear
from nn.sequence import leaves, shapes
from parallel.placement.placements import C, H, N, Partial, Replicate, Shard
from parallel.placement.volume import redistribution

INPUT = {"out": Replicate(), "in": Shard(C), "replicate": Shard(N), "height": Shard(H), "laugier": Replicate()}
OUTPUT = {"out": Shard(C), "in": Partial(), "replicate": Shard(N), "height": Shard(H), "laugier": Replicate()}
FEWEST = ("out", "in")  # what "fewest-bytes" chooses from
HELP = (
    "fewest-bytes, laugier, or out, in, replicate or height: one word for all layers with weights, or one a layer, "
    "comma-separated, or by kind, such as conv=height,linear=fewest-bytes"
)


def weighted(net):
    """The layers of a network that a plan has a choice for, in the order in which they run."""
    return weighted_in(net.layers)


def weighted_in(layers):
    """The same of a list of layers."""
    return [leaf for leaf in leaves(layers) if isinstance(leaf, Conv2d | Linear)]


def along_height(layers):
    """The choices along the axis `height`."""
    return ["height" if isinstance(layer, Conv2d) else "replicate" for layer in layers]


def route(source, target):
    """The redistributions that bring activations from one layer's output to the next one's input.

    An elementwise layer between the two can not work on addends, so `Partial` is reduced and split first.
    """
    if source == Partial() and not isinstance(target, Shard):
        return [(Partial(), Shard(C)), (Shard(C), target)]
    return [(source, target)]


def fewest_bytes(sizes, ranks, allowed=None):
    """The plan that moves the fewest bytes on a model axis of `ranks` in a step: the shortest path over the layers.

    sizes: (features in, features out) of each layer, of one sample. allowed: the choices to take from, one tuple a layer,
    by default `FEWEST`: all weights are sharded. An edge is weighted with what both directions move for one sample; halos
    are small beside it and left out; the layers of branches count as if they followed one another. From 3 ranks on it
    moves at most 2/3 of what "laugier" does, at 2 ranks if there are at most 1.5 times as many outputs as inputs of the
    last of several layers.
    """
    allowed = allowed or [FEWEST] * len(sizes)

    def cost(source, target, leaving, entering):
        samples = ranks  # enough of them that an all-to-all is counted with its share
        total = 0
        for a, b in route(source, target):
            shape = (leaving if a == Partial() else entering,)  # addends are reduced at once, the rest moves when needed
            a, b = (Shard(N) if placement == Shard(H) else placement for placement in (a, b))  # as which strips are flattened
            total += redistribution(a, b, samples, shape, ranks) + redistribution(b.adjoint, a.adjoint, samples, shape, ranks)
        return total

    best = {choice: (0, [choice]) for choice in allowed[0]}  # the input's own split is read as it is needed: no bytes
    for (_, leaving), (entering, _), choices in zip(sizes, sizes[1:], allowed[1:]):
        best = {
            choice: min(
                (total + cost(OUTPUT[p[-1]], INPUT[choice], leaving, entering), [*p, choice]) for total, p in best.values()
            )
            for choice in choices
        }
    return min((total + cost(OUTPUT[p[-1]], Shard(N), sizes[-1][1], sizes[-1][1]), p) for total, p in best.values())[1]


def feature_sizes(net, shape):
    """(features in, features out) of one sample for each layer with weights. ValueError if the layers do not fit."""
    sizes = {layer: (prod(before), prod(after)) for layer, before, after in shapes(net.layers, shape)}
    return [sizes[layer] for layer in weighted(net)]


def parse_plan(text, layers, sizes, ranks):
    """The choices, one for each layer with weights, behind the text of `--plan`; ValueError if it does not fit.

    layers: as of `weighted`. sizes, ranks: as of `fewest_bytes`.
    """
    words = text.split(",")
    if all("=" in word for word in words):
        kinds = dict(word.split("=", 1) for word in words)
        if sorted(word.split("=")[0] for word in words) != ["conv", "linear"]:
            raise ValueError(f"plan '{text}': by kind it names conv and linear: use {HELP}")
        words = [kinds["conv" if isinstance(layer, Conv2d) else "linear"] for layer in layers]
    elif len(words) == 1:
        words *= len(layers)
    if len(words) != len(layers):
        raise ValueError(f"plan '{text}' has {len(words)} choices but the net has {len(layers)} layers with weights")
    for word, layer in zip(words, layers):
        if word not in INPUT and word != "fewest-bytes":
            raise ValueError(f"plan '{text}': unknown choice '{word}': use {HELP}")
        if word == "height" and not isinstance(layer, Conv2d):
            raise ValueError(f"plan '{text}': layer {layer.name} {layer!r} has no height to split: use conv=height,linear=..")
    if "laugier" in words and len(set(words)) > 1:
        raise ValueError(f"plan '{text}': laugier is a whole algorithm and does not mix with other choices")
    return fewest_bytes(sizes, ranks, [FEWEST if word == "fewest-bytes" else (word,) for word in words])
