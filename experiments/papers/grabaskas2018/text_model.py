"""Claims of Grabaskas 2018 on model parallelism that its own numbers, counting or the cost model decide: {name: Finding}."""

from gridgrad.experiments.papers.claims import found, undecided
from gridgrad.experiments.papers.grabaskas2018 import experiments as paper
from gridgrad.experiments.papers.grabaskas2018.derived import OVERHEAD, lost, value
from gridgrad.experiments.papers.grabaskas2018.runs import lines
from gridgrad.experiments.papers.grabaskas2018.text import cited, follows
from gridgrad.experiments.papers.items import PREDICTED
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.grid.process_grid import GridDescription
from gridgrad.parallel.prediction.cost import Cost
from gridgrad.parallel.prediction.machine import read

VGG16 = 25_088, 4_096, 4_096, 1_000
RISE = 1.1  # the least factor by which an overhead rises
HALF = 0.6  # up to this part counts as a half
NEAR_ESTIMATE = 5  # percent by which a time may differ from what was estimated


def findings():
    """All of them."""
    overheads = [lost(lines()[ref]).value for ref in ("D.72", "D.75", "D.78", "D.81", "D.83")]
    per_sample = [1000 * OVERHEAD.value(line.cited("seconds"), line.single.cited("seconds"), 2, line.samples)
                  for line in (lines()["D.72"], lines()["D.85"])]  # fmt: skip
    return {
        "constant_overhead": follows(
            max(overheads) < RISE * overheads[0],
            f"on 2 CPUs it rises with the layers: {', '.join(f'{one:.0f}' for one in overheads)} s beyond half the time of one",
            f"larger layers have more outputs and gradients of them to send; {RISE:g} times as much counts as a rise",
        ),
        "same_overhead": follows(
            abs(cited("D.72", "seconds").value / value("estimated_total") - 1) < NEAR_ESTIMATE / 100,
            f"Table 4.21 prints {cited('D.72', 'seconds').value} s; a sample costs {per_sample[0]:.1f} ms more on two CPUs and "
            f"{per_sample[1]:.1f} ms on two GPUs",
            f"it may be {NEAR_ESTIMATE} % off; the {value('overhead')} s are of a fifth of the samples and of smaller layers",
        ),
        "all_reduces": all_reduces(),
        "convolutions": follows(
            False,
            "7 words of a plan place a convolution here: its kernels (out), its channels (in), rows, columns, samples, all of "
            "it (redundant), or any filters (hypergraph)",
            "what halves of an image need of each other is exchanged as a halo; all equal the serial network, see "
            "`tests/parallel/training/test_images.py`",
        ),
        "half_convolution": follows(
            convolved(16) < convolved(32) / 2, f"{convolved(32)} of 32 rows remain, and {convolved(16)} of 16",
            "unless the halves get a halo of each other",
        ),
        "above_half": above_half(),
        "larger_models": larger_models(),
        "vgg16": vgg16(),
        "growing_gpu": growing_gpu(),
        "cnn": cnn(),
    }  # fmt: skip


def changes_of_accuracy():
    """The percentage points by which the accuracies on several nodes differ in the thesis from those on one."""
    several = [line for line in lines().values() if line.method == "model" and line.nodes > 1 and line.single.cited("accuracy")]
    return [line.cited("accuracy").value - line.single.cited("accuracy").value for line in several]


def convolved(rows, kernel=5):
    """The rows that a convolution leaves."""
    return rows - kernel + 1


def cost_of(line, nodes):
    """The Cost of a step of a line on so many nodes of the thesis' cluster."""
    machine = read(paper.MACHINE)
    net = network_names.build(line.net, (32, 32, 1), 10)
    return Cost(net, GridDescription({"model": nodes}, ranks_per_node=1), line.plan, 1, machine)


def all_reduces():
    """How many collectives MLP2 needs on two nodes, in units of an all-reduce."""
    kinds = [work.name for work in cost_of(lines()["D.95"], 2).works if work.group is not None and work.layer != "loss"]
    halves = sum(kind in ("reduce-scatter", "all-gather") for kind in kinds)
    needed = (len(kinds) - halves) + halves / 2
    return follows(
        needed >= value("all_reduces"),
        f"{halves} halves of an all-reduce (reduce-scatters and all-gathers) are enough: the bytes of {needed:g}",
        "a layer that is split takes its part of the sums, and nobody needs the gradient of the network's input",
    )


def above_half():
    """The efficiency of the largest networks, if a single GPU took as long in proportion to the parameters."""
    known = lines()["D.88"]
    size = lambda line: network_names.build(line.net, (32, 32, 1), 10).size  # noqa: E731
    rate = known.seconds / size(known)
    efficiencies = [100 * rate * size(lines()[ref]) / lines()[ref].seconds / 2 for ref in ("D.91", "D.93")]
    return follows(
        min(efficiencies) > value("half_efficiency"),
        f"{efficiencies[0]:.0f} and {efficiencies[1]:.0f} % for D.91 and D.93, if a single GPU takes as long a parameter as "
        "for D.88",
        "there is no time of a single GPU: these networks did not fit it",
    )


def larger_models():
    """What a rank needs of the largest network, alone and as one of two."""
    alone, half = (cost_of(lines()["D.93"], nodes).prediction.memory / 2**20 for nodes in (1, 2))
    return found(
        half < HALF * alone,
        f"MLP3 with 8192 and 8192 needs {alone:,.0f} MiB on one node, {half:,.0f} MiB on each of two",
        f"less than {HALF:g} of it counts as a half; parameters, gradients, momentum and activations",
        PREDICTED,
    )


def vgg16():
    """Whether the classifier of VGG16 fits a TX1: the thesis ran nothing."""
    parameters = sum(a * b + b for a, b in zip(VGG16, VGG16[1:]))
    return undecided(
        "nothing of it was run in the thesis, and no TX1 is here",
        f"its {parameters / 1e6:.0f} million parameters and their gradients are {8 * parameters / 1e9:.2f} GB; the board has "
        "4 GB, LuaJIT can address 2",
    )


def growing_gpu():
    """Efficiencies that are predicted for this library on the thesis' network."""
    refs = "D.85", "D.87", "D.89"
    predicted = [100 * line.single.seconds / paper.predicted(line) / 2 for line in (lines()[ref] for ref in refs)]
    return found(
        predicted == sorted(predicted),
        f"predicted for this library on its GPUs and its network: {', '.join(f'{one:.0f}' for one in predicted)} %",
        "none may be below the one before; weights grow with the product of two widths, messages with one",
        PREDICTED,
    )


def cnn():
    """The CNN against all forms of MLP3, on one node and on two, by what Table 4.22 prints."""
    others = {"D.106": ("D.97",), "D.107": ("D.98", "D.101", "D.104")}
    better = [
        cited(ref, "seconds").value < cited(one, "seconds").value
        and cited(ref, "accuracy").value > cited(one, "accuracy").value
        for ref, many in others.items()
        for one in many
    ]
    return follows(
        all(better),
        f"on 2 GPUs the CNN takes {lines()['D.107'].seconds} s, MLP3-first {lines()['D.104'].seconds} s",
        "it has the higher accuracy, and on one GPU and against the other forms of MLP3 it takes less time",
    )
