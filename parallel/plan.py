"""Plans: for each Linear layer, how its weights are placed along the model axis.

| choice      | weight W (inputs, outputs) | input of the layer | output                |
|-------------|----------------------------|--------------------|-----------------------|
| "out"       | `Shard(outputs)`           | `Replicate`        | `Shard(C)`            |
| "in"        | `Shard(inputs)`            | `Shard(C)`         | `Partial`             |
| "replicate" | `Replicate`                | `Shard(N)`         | `Shard(N)`            |
| "laugier"   | `Shard(outputs)`           | `Replicate`        | all-gathered at once  |

With "replicate" the ranks of the model axis take more of the batch instead. "laugier" is the algorithm of
Laugier et al. 2018 (Algorithms 2 and 3): activations are computed on every rank, backward slices the gradient
of the output and all-reduces that of the input. It is kept beside the others to be compared with.
"""

from parallel.placements import C, N, Partial, Replicate, Shard
from parallel.volume import redistribution

INPUT = {"out": Replicate(), "in": Shard(C), "replicate": Shard(N), "laugier": Replicate()}
OUTPUT = {"out": Shard(C), "in": Partial(), "replicate": Shard(N), "laugier": Replicate()}
HELP = "fewest-bytes, laugier, or out, in or replicate (one for all Linear layers, or one a layer, comma-separated)"


def route(source, target):
    """The redistributions that bring activations from one layer's output to the next one's input.

    An elementwise layer between the two can not work on addends, so `Partial` is reduced and split first.
    """
    if source == Partial() and target not in (Shard(C), Shard(N)):
        return [(Partial(), Shard(C)), (Shard(C), target)]
    return [(source, target)]


def fewest_bytes(widths, ranks):
    """Of the plans that shard every weight, the one that moves the fewest bytes on a model axis of `ranks` in a step.

    widths: d_0 (the inputs) to d_L (the outputs). The shortest path over the layers: "out" or "in" for each, an edge
    weighted with what both directions move for one sample. From 3 ranks on it moves at most 2/3 of what "laugier"
    does, at 2 ranks if there are at most 1.5 times as many outputs as inputs of the last of several layers.
    """

    def cost(source, target, width):
        samples = ranks  # enough of them that an all-to-all is counted with its share
        return sum(
            redistribution(a, b, samples, width, ranks) + redistribution(b.adjoint, a.adjoint, samples, width, ranks)
            for a, b in route(source, target)
        )

    best = {"out": (0, ["out"]), "in": (0, ["in"])}  # the input's own split is read as it is needed: no bytes
    for width in widths[1:-1]:
        best = {
            choice: min((total + cost(OUTPUT[p[-1]], INPUT[choice], width), [*p, choice]) for total, p in best.values())
            for choice in ("out", "in")
        }
    return min((total + cost(OUTPUT[p[-1]], Shard(N), widths[-1]), p) for total, p in best.values())[1]


def parse_plan(text, widths, ranks):
    """The choices, one for each Linear layer, behind the text of `--plan`; ValueError if it does not fit.

    widths, ranks: as of `fewest_bytes`.
    """
    count = len(widths) - 1
    if text == "fewest-bytes":
        return fewest_bytes(widths, ranks)
    words = text.split(",")
    for word in words:
        if word not in INPUT:
            raise ValueError(f"plan '{text}': unknown choice '{word}': use {HELP}")
    if len(words) == 1:
        words *= count
    if len(words) != count:
        raise ValueError(f"plan '{text}' has {len(words)} choices but the net has {count} Linear layers")
    if "laugier" in words and len(set(words)) > 1:
        raise ValueError(f"plan '{text}': laugier is a whole algorithm and does not mix with other choices")
    return words
