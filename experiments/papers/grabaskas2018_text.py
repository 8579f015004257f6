"""Claims of Grabaskas 2018 that its own numbers, its own code, or counting decide: {name of the claim: Finding}."""

import json
from statistics import mean, median

from gridgrad.experiments.papers import grabaskas2018 as paper
from gridgrad.experiments.papers import grabaskas2018_usability as usability
from gridgrad.experiments.papers.cited import published
from gridgrad.experiments.papers.claims import FOLLOWS, found, undecided
from gridgrad.experiments.papers.grabaskas2018_derived import (
    EFFICIENCY,
    FEWER,
    LOSS,
    MEAN,
    OVERHEAD,
    SPEEDUP,
    as_manual,
    lost,
    overhead,
    twins,
)
from gridgrad.experiments.papers.grabaskas2018_runs import PAPER, lines
from gridgrad.experiments.papers.items import PREDICTED
from gridgrad.nn import network_names
from gridgrad.parallel.grid.grid_description import GridDescription
from gridgrad.parallel.performance.cost import Cost
from gridgrad.parallel.performance.machine import read

NEAR = 10  # percentage points up to which a number is "approximately" another
ROUNDING = 0.0051  # of numbers with two decimals
CHANCE = 10  # percent of ten classes
VGG16 = 25_088, 4_096, 4_096, 1_000
NOT_COUNTED = f"our programs were not counted yet: `gridgrad {usability.COMMAND}` writes `{usability.RESULTS}`"
OURS = "ours: counted in Python"


def findings():
    """All of them."""
    return usability_claims() | efficiency_claims() | data_claims() | model_claims()


def cited(ref, column):
    """A number of a line of the appendices."""
    return lines()[ref].cited(column)


def value(name):
    """A number of the text."""
    return published(PAPER).values[name].value


def follows(holds, numbers, reason=""):
    return found(holds, numbers, reason, FOLLOWS)


# ----- usability


def usability_claims():
    """Effort and lines of code."""
    known = published(PAPER).tables
    effort = {row["program"]: known["4.13"].cited("effort", row["program"]) for row in known["4.13"].lines()}
    code = {row["program"]: known["4.20"].cited("lines", row["program"]) for row in known["4.20"].lines()}
    ways = "Backward()", "SGD Train()"
    saved = [FEWER.value(effort[f"Manual {way}"], effort[f"Automated {way}"]) for way in ways]
    gpus = [FEWER.value(effort[f"Manual {way}"], effort[f"GPU {way}"]) for way in ways]
    gpus.append(FEWER.value(code["Manual Model Parallel SGD Train()"], code["GPU SGD Train()"]))
    fewer = FEWER.value(code["GPU SGD Train()"], code["Auto Model Parallel SGD Train()"])
    totals = usability.effort_of_totals("Manual SGD Train()").value
    return counted_claims(saved) | {
        "gpu_fewer": follows(
            abs(mean(gpus[:2]) - value("gpu_fewer")) <= NEAR,
            f"{gpus[0]:.1f} and {gpus[1]:.1f} % less effort by Table 4.13, {gpus[2]:.1f} % fewer lines by Table 4.20",
            f"the mean of both efforts is {mean(gpus[:2]):.1f} %, though none of them is near it",
        ),
        "easier_than_gpu": follows(
            all(effort[f"Automated {way}"].value < effort[f"GPU {way}"].value for way in ways)
            and round(fewer) == value("fewer_than_gpu"),
            f"effort {effort['Automated Backward()'].value:,} against {effort['GPU Backward()'].value:,} and "
            f"{effort['GPU SGD Train()'].value:,}; 4 lines against 6 are {fewer:.0f} % fewer",
            "these are the thesis' own counts",
        ),
        "effort_sgd": follows(
            abs(totals / effort["Manual SGD Train()"].value - 1) < 0.01,
            f"the totals of Table 4.11 give {totals:,.0f}",
            "Tables 4.9, 4.10 and 4.12 give what Table 4.13 prints for them",
        ),
        "by_hand": undecided(
            "nobody's hours were measured here",
            f"Tables 4.9, 4.11 and 4.20 have {len(known['4.9'].rows)}, {len(known['4.11'].rows)} and "
            f"{code['Manual Model Parallel SGD Train()'].value} lines by hand, not {value('lines_by_hand')}",
        ),
        "applicable": follows(
            False,
            "3 kinds of Torch's components have a parallel version: Reshape, Linear and Tanh",
            "Appendix A refuses a Linear whose inputs the nodes do not divide, convolutions are computed by every node, and "
            "samples that the nodes do not divide are dropped (section 3.2.1)",
        ),
    }


def counted_claims(saved):
    """What our own programs decide. saved: percent of effort by Table 4.13."""
    if not paper.USABILITY.exists():
        return dict.fromkeys(("complexity", "times_easier", "lines", "goals"), undecided(NOT_COUNTED))
    ours = json.loads(paper.USABILITY.read_text())["programs"]
    mine = {name: FEWER.value(ours[f"by_hand_{name}"]["effort"], ours[name]["effort"]) for name in ("data", "model")}
    fewer = {name: FEWER.value(ours[f"by_hand_{name}"]["lines"], ours[name]["lines"]) for name in ("data", "model")}
    times = ours["by_hand_data"]["effort"] / ours["data"]["effort"]
    counts = f"{ours['data']['effort']:,.0f} against {ours['by_hand_data']['effort']:,.0f}"
    least = min(value("gpu_fewer"), value("fewer"))
    return {
        "complexity": follows(
            mine["data"] > value("fewer"),
            f"{OURS}, {mine['data']:.1f} % less effort ({counts}); by Table 4.13 {saved[0]:.1f} and {saved[1]:.1f} %",
        ),
        "times_easier": follows(
            times >= max(value("times_custom"), value("times_sgd")),
            f"{OURS}, {times:.0f} times less effort ({counts})",
            "that is the training loop with samples divided by hand; the 22.5 rest on an effort that does not follow from "
            "Table 4.11",
        ),
        "lines": follows(
            fewer["model"] >= value("fewer_lines"),
            f"{OURS}, {fewer['model']:.1f} % fewer lines ({ours['model']['lines']} and not "
            f"{ours['by_hand_model']['lines']}), and {mine['model']:.1f} % less effort",
            "by hand it takes few lines where layers are classes of Python",
        ),
        "goals": follows(
            min(mine["data"], mine["model"], fewer["model"]) >= least,
            f"{OURS}, data parallelism {mine['data']:.1f} % less effort, model parallelism {mine['model']:.1f} %, and "
            f"{fewer['model']:.1f} % fewer lines",
        ),
    }


# ----- efficiency and equations


def efficiency_claims():
    """Equations 3.2 to 3.4, and means of efficiencies."""
    several = [line for line in lines().values() if line.nodes > 1 and isinstance(line.single.seconds, float)]
    deviations = []
    for line in several:
        seconds = line.single.cited("seconds"), line.cited("seconds")
        deviations.append(abs(EFFICIENCY.value(*seconds, line.nodes) - line.cited("efficiency").value))
        if line.method != "model":
            deviations.append(abs(SPEEDUP.value(*seconds) - line.cited("speedup").value))
    losses = [
        (LOSS.value(line.single.cited("accuracy"), line.cited("accuracy")), line.cited("accuracy loss").value)
        for line in several
        if line.cited("accuracy loss")
    ]
    average = MEAN.value(*(cited(ref, "efficiency") for ref in paper.TABLES["4.14"] if cited(ref, "efficiency")))
    ratios = [as_manual(auto, manual).value for auto, manual in twins()]
    return {
        "speedups": follows(
            max(deviations) <= ROUNDING,
            f"{len(deviations)} printed numbers differ by {max(deviations):.3f} at most, which is rounding",
        ),
        "loss_sign": follows(
            all(abs(ours - theirs) <= ROUNDING for ours, theirs in losses),
            f"{sum(abs(ours + theirs) <= ROUNDING for ours, theirs in losses)} of {len(losses)} printed losses have the other "
            "sign",
            "a loss of accuracy is printed as a negative number",
        ),
        "mean_efficiency": follows(
            round(average, 2) == value("mnist_efficiency"), f"the mean of the printed efficiencies is {average:.2f} %"
        ),
        "as_manual": follows(
            median(ratios) <= 1,
            f"{sum(ratio > 1 for ratio in ratios)} of {len(ratios)} automated lines of Appendix C took longer than their "
            f"manual twins; median {median(ratios):.3f} times as long ({min(ratios):.2f} to {max(ratios):.2f})",
            "each was run once, so that the scatter is not known",
        ),
    }


# ----- data parallelism


def data_claims():
    """Synchronisation, accuracy and pre-processing."""
    of = lambda **wanted: [  # noqa: E731
        line for line in lines().values() if all(getattr(line, name) == one for name, one in wanted.items())
    ]
    accuracies = {
        nodes: {line.cited("accuracy").value for line in of(dataset="mnist", method="Train()", nodes=nodes)} for nodes in (2, 4)
    }
    sizes = sorted({line.n for line in of(dataset="mnist", method="Train()", nodes=2)})
    custom = [line.cited("accuracy").value for line in of(dataset="cifar10", method="Backward()")]
    train, backward = overhead(lines()["C.6"]).value, overhead(lines()["C.23"]).value
    alone = [cited(ref, "accuracy").value for ref in ("C.53", "C.54", "C.55")]
    minor = [cited(ref, "accuracy").value for ref in ("C.9", "C.10", "C.11")]
    manual = of(dataset="cifar10", method="Train()", version="manual")
    speedups = [line.cited("speedup of pre-processing").value for line in manual]
    share = value("cifar_samples") // 2
    return {
        "synchronised": follows(
            any(len(found) > 1 for found in accuracies.values()),
            f"on MNIST `Train()` has {', '.join(map(str, accuracies[2]))} % on 2 nodes and "
            f"{', '.join(map(str, accuracies[4]))} % on 4 for every n from {sizes[0]} to {sizes[-1]:,}, automated and manual",
            "however often the nodes synchronise, nothing changes: Torch's accUpdateGradParameters changes the weights, and "
            "what `synchronizeGradients` sums is neither written nor read",
        ),
        "cifar_backward": follows(
            max(custom) > 2 * CHANCE,
            f"all {len(custom)} lines have {min(custom)} to {max(custom)} %, on one node too; chance is {CHANCE} %",
            "nothing was learnt, so that nothing could be lost",
        ),
        "synchronisation_cost": follows(
            train < 2 * backward,
            f"on CIFAR-10, 2 nodes and n = 100 `Train()` loses {train:.2f} s at each synchronisation, `Backward()` "
            f"{backward:.3f} s: {train / backward:.0f} times as fast, with the same bytes; on MNIST "
            f"{overhead(lines()['C.37']).value:.2f} s and nothing ({1000 * overhead(lines()['C.56']).value:.0f} ms)",
            "so most of what `Train()` loses is not the communication; the thesis explains neither",
        ),
        "one_iteration": follows(
            cited("C.3", "seconds").value < 2 * value("cifar_iteration"),
            f"C.3 takes {cited('C.3', 'seconds').value:.2f} s in Table 4.16 and, with five iterations, in Table 4.15; one "
            f"takes {value('cifar_iteration')} s (section 4.2.2)",
            "they are of five",
        ),
        "synchronisations": follows(
            share // 100 == value("synchronisations"),
            f"{share // 100} on 2 nodes and {share // 200} on 4",
            "each node has its part of the samples, and counts its own (section 3.2.1, Appendix A)",
        ),
        "batch_accuracy": follows(
            max(alone) - min(alone) <= NEAR,
            f"from {minor[0]} to {minor[-1]} % (`Train()`, CIFAR-10), but from {alone[0]} to {alone[-1]} % (`Backward()`, "
            "MNIST, one node, n from 100 to 1,000)",
            "in `Train()` n changes nothing, since nothing is synchronised",
        ),
        "preprocessing_manual": follows(
            max(speedups) < 1.1,
            f"the manual `Train()` on CIFAR-10 speeds it up {min(speedups)} to {max(speedups)} times (C.12 to C.17)",
            "only the manual `Backward()` has no speedup",
        ),
    }  # fmt: skip


# ----- model parallelism


def model_claims():
    """Overheads, memory and what the algorithm sends."""
    overheads = [lost(lines()[ref]).value for ref in ("D.72", "D.75", "D.78", "D.81", "D.83")]
    per_sample = [1000 * OVERHEAD.value(line.cited("seconds"), line.single.cited("seconds"), 2, line.samples)
                  for line in (lines()["D.72"], lines()["D.85"])]  # fmt: skip
    return {
        "constant_overhead": follows(
            max(overheads) < 1.1 * overheads[0],
            f"on 2 CPUs it rises with the layers: {', '.join(f'{one:.0f}' for one in overheads)} s beyond half the time of one",
            "outputs and their gradients are sent, and larger layers have more of them",
        ),
        "same_overhead": follows(
            abs(cited("D.72", "seconds").value / value("estimated_total") - 1) < 0.05,
            f"Table 4.21 prints {cited('D.72', 'seconds').value} s; a sample costs {per_sample[0]:.1f} ms more on two CPUs and "
            f" {per_sample[1]:.1f} ms on two GPUs",
            f"the {value('overhead')} s are of a fifth of the samples and of smaller layers",
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
    }  # fmt: skip


def model_accuracy():
    """How the accuracies on several nodes differ from those on one in the thesis."""
    several = [line for line in lines().values() if line.method == "model" and line.nodes > 1 and line.single.cited("accuracy")]
    changes = [line.cited("accuracy").value - line.single.cited("accuracy").value for line in several]
    return follows(
        max(map(abs, changes)) < 1,
        f"{min(changes):.1f} to {max(changes):+.1f} points on several nodes (Appendix D)",
        "the layers compute another function: the bias counts once for each node, and gradients of different inputs are "
        "summed; here every grid trains the serial network",
    )


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
    alone, half = (cost_of(lines()["D.93"], nodes).memory / 2**20 for nodes in (1, 2))
    return found(
        half < 0.6 * alone,
        f"MLP3 with 8192 and 8192 needs {alone:,.0f} MiB on one node, {half:,.0f} MiB on each of two (parameters, gradients, "
        "momentum and activations)",
        "each node holds a half of every layer; in the thesis one node had no room for it (D.92), here it has",
        PREDICTED,
    )


def vgg16():
    """Whether the classifier of VGG16 fits a TX1: the thesis ran nothing."""
    parameters = sum(a * b + b for a, b in zip(VGG16, VGG16[1:]))
    return undecided(
        "nothing of it was run in the thesis, and no TX1 is here",
        f"its {parameters / 1e6:.0f} million parameters and their gradients are {8 * parameters / 1e9:.2f} GB, of 4 GB of the "
        "board and 2 GB of LuaJIT",
    )


def growing_gpu():
    """Efficiencies that are predicted for this library on the thesis' network."""
    refs = "D.85", "D.87", "D.89"
    predicted = [100 * line.single.seconds / paper.predicted(line) / 2 for line in (lines()[ref] for ref in refs)]
    return found(
        predicted == sorted(predicted),
        f"predicted for this library on its GPUs and its network: {', '.join(f'{one:.0f}' for one in predicted)} %",
        "weights grow with the product of two widths, messages with one",
        PREDICTED,
    )
