"""Claims of Grabaskas 2018 that its own numbers, its own code, or counting decide: {name of the claim: Finding}.

Those of model parallelism are in `text_model.py`.
"""

from statistics import mean, median

from gridgrad.experiments.papers.cited import RATIO, published
from gridgrad.experiments.papers.claims import FOLLOWS, contradictory, found, undecided
from gridgrad.experiments.papers.grabaskas2018 import experiments as paper
from gridgrad.experiments.papers.grabaskas2018 import usability
from gridgrad.experiments.papers.grabaskas2018.derived import (
    EFFICIENCY,
    FEWER,
    LOSS,
    MEAN,
    SPEEDUP,
    as_manual,
    overhead,
    twins,
    value,
)
from gridgrad.experiments.papers.grabaskas2018.runs import PAPER, lines
from gridgrad.experiments.papers.items import KEPT
from gridgrad.experiments.papers.other_results import kept

APPROXIMATELY = 10  # percentage points up to which a number is "approximately" another
MINOR = 3  # percentage points up to which changes of the accuracy are minor
NO_DIFFERENCE = 0.1  # up to which a speedup differs from 1 where there is no difference
ROUNDING = 0.0051  # of numbers with two decimals
CHANCE = 10  # percent of ten classes
BY_COUNTING = "complexity", "times_easier", "lines", "goals"  # claims that the study `usability` decides
OURS = f"counted in Python ({usability.RESULTS})"


def findings():
    """All of them."""
    return usability_claims() | efficiency_claims() | data_claims()


def cited(ref, column):
    """A number of a line of the appendices."""
    return lines()[ref].cited(column)


def numbers_of(refs, column):
    """Numbers that the thesis prints of some lines."""
    return [cited(ref, column).value for ref in refs]


def follows(holds, numbers, reason=""):
    """The Finding of what the thesis prints, or of what was counted in it."""
    return found(holds, numbers, reason, FOLLOWS)


def agreeing(agree, numbers, reason=""):
    """The Finding of two passages of the thesis, which agree or contradict each other."""
    return follows(True, numbers, reason) if agree else contradictory(numbers, reason)


def signed(numbers):
    return ", ".join(f"{one:+.1f}" for one in numbers)


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
    totals, printed = usability.effort_of_totals("Manual SGD Train()").value, effort["Manual SGD Train()"].value
    return counted_claims(saved) | {
        "gpu_fewer": follows(
            all(abs(one - value("gpu_fewer")) <= APPROXIMATELY for one in gpus),
            f"{gpus[0]:.1f} and {gpus[1]:.1f} % less effort by Table 4.13, {gpus[2]:.1f} % fewer lines by Table 4.20",
            f"up to {APPROXIMATELY} points off would count as approximately; only the mean of both efforts, "
            f"{mean(gpus[:2]):.1f} %, is so near",
        ),
        "easier_than_gpu": follows(
            all(effort[f"Automated {way}"].value < effort[f"GPU {way}"].value for way in ways)
            and round(fewer) == value("fewer_than_gpu"),
            f"effort {effort['Automated Backward()'].value:,} against {effort['GPU Backward()'].value:,} and "
            f"{effort['GPU SGD Train()'].value:,}; 4 lines against 6 are {fewer:.0f} % fewer",
            "these are the thesis' own counts",
        ),
        "effort_sgd": agreeing(
            abs(totals / printed - 1) < 0.01,
            f"the totals of Table 4.11 give {totals:,.0f}, Table 4.13 has {printed:,}",
            "less than 1 % would be rounding; Tables 4.9, 4.10 and 4.12 give what Table 4.13 prints for them",
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
    """What our own programs decide, as the study `usability` counts them. saved: percent of effort by Table 4.13."""
    decided, why = kept(paper.USABILITY, lambda content: by_counting(paper.programs_of(content), saved))
    return decided or dict.fromkeys(BY_COUNTING, undecided(f"{why}; `gridgrad {usability.COMMAND}` counts our programs"))


def by_counting(ours, saved):
    """The findings of BY_COUNTING. ours: of `grabaskas2018.programs_of`; KeyError if a program is missing."""
    mine = {name: FEWER.value(ours[f"by_hand_{name}"]["effort"], ours[name]["effort"]) for name in ("data", "model")}
    fewer = FEWER.value(ours["by_hand_model"]["lines"], ours["model"]["lines"])
    times = ours["by_hand_data"]["effort"] / ours["data"]["effort"]
    counts = f"({ours['data']['effort']:,.0f} against {ours['by_hand_data']['effort']:,.0f})"
    least, goal = max(value("times_custom"), value("times_sgd")), value("gpu_fewer")
    return {
        "complexity": found(
            mine["data"] > value("fewer"),
            f"{mine['data']:.1f} % less effort {counts}; by Table 4.13 {saved[0]:.1f} and {saved[1]:.1f} %",
            OURS, KEPT,
        ),
        "times_easier": found(
            times >= least,
            f"{times:.0f} times less effort {counts}, where {least} are needed",
            f"{OURS}; the {least} do not follow from Table 4.11", KEPT,
        ),
        "lines": found(
            fewer >= value("fewer_lines"),
            f"{fewer:.1f} % fewer lines ({ours['model']['lines']} and not {ours['by_hand_model']['lines']}), "
            f"{mine['model']:.1f} % less effort",
            f"{OURS}, where layers take few lines by hand", KEPT,
        ),
        "goals": found(
            min(*mine.values(), fewer) >= goal,
            f"data parallelism {mine['data']:.1f} % less effort, model parallelism {mine['model']:.1f} %, and {fewer:.1f} % "
            "fewer lines",
            f"{OURS}; each has to be {goal} % at least", KEPT,
        ),
    }  # fmt: skip


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
            f"{len(deviations)} printed numbers differ by {max(deviations):.3f} at most",
            "half of the last decimal is rounding",
        ),
        "loss_sign": agreeing(
            all(abs(ours - theirs) <= ROUNDING for ours, theirs in losses),
            f"{sum(abs(ours + theirs) <= ROUNDING for ours, theirs in losses)} of {len(losses)} printed losses have the other "
            "sign",
            "a loss of accuracy is printed as a negative number",
        ),
        "mean_efficiency": agreeing(
            round(average, 2) == value("mnist_efficiency"),
            f"the mean of the printed efficiencies is {average:.2f} %, section 4.2.2 has {value('mnist_efficiency')} %",
        ),
        "as_manual": follows(
            median(ratios) <= 1,
            f"{sum(ratio > 1 for ratio in ratios)} of {len(ratios)} automated lines of Appendix C took longer than their "
            f"manual twins; median {median(ratios):.3f} times as long ({min(ratios):.2f} to {max(ratios):.2f})",
            "the median must not exceed 1; each was run once, so that the scatter is not known",
        ),
    }


# ----- data parallelism


def lines_of(**wanted):
    """The lines with these attributes."""
    return [line for line in lines().values() if all(getattr(line, name) == one for name, one in wanted.items())]


def data_claims():
    """Synchronisation, accuracy and pre-processing."""
    accuracies = {
        nodes: {line.cited("accuracy").value for line in lines_of(dataset="mnist", method="Train()", nodes=nodes)}
        for nodes in (2, 4)
    }
    sizes = sorted({line.n for line in lines_of(dataset="mnist", method="Train()", nodes=2)})
    custom = [line.cited("accuracy").value for line in lines_of(dataset="cifar10", method="Backward()")]
    train, backward = overhead(lines()["C.6"]).value, overhead(lines()["C.23"]).value
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
            f"up to {2 * CHANCE} % counts as having learnt nothing, so that there is no accuracy to lose",
        ),
        "synchronisation_cost": follows(
            train < 2 * backward,
            f"on CIFAR-10, 2 nodes and n = 100 `Train()` loses {train:.2f} s at each synchronisation, "
            f"{train / backward:.0f} times the {backward:.3f} s of `Backward()`, which sends the same bytes; on MNIST "
            f"{overhead(lines()['C.37']).value:.2f} s and nothing ({1000 * overhead(lines()['C.56']).value:.0f} ms)",
            "up to twice as long would count as the same; so most of what `Train()` loses is not the communication; the thesis "
            "explains neither",
        ),
        "one_iteration": agreeing(
            cited("C.3", "seconds").value < 2 * value("cifar_iteration"),
            f"C.3 takes {cited('C.3', 'seconds').value:.2f} s in both tables; one iteration takes {value('cifar_iteration')} s "
            "(section 4.2.2)",
            "five times that is what both print; up to twice that would be of one",
        ),
        "synchronisations": follows(
            share // 100 == value("synchronisations"),
            f"{share // 100} on 2 nodes and {share // 200} on 4",
            "each node has its part of the samples, and counts its own (section 3.2.1, Appendix A)",
        ),
        "batch_accuracy": batch_accuracy(),
        "preprocessing_times": preprocessing_times(),
        "preprocessing_manual": preprocessing_manual(),
    }


def batch_accuracy():
    """How far the accuracy on several nodes is from that of the single node of the same n, by n.

    The thesis prints it as a loss of accuracy, with the other sign than Equation 3.4 has.
    """
    groups = {  # lines on 2 and on 4 nodes
        "`Backward()` on MNIST": (("C.56", "C.57", "C.58"), ("C.59", "C.60", "C.61")),
        "`Train()` on CIFAR-10": (("C.6", "C.7", "C.8"), ("C.9", "C.10", "C.11")),
    }
    changes = {name: [numbers_of(refs, "accuracy loss") for refs in both] for name, both in groups.items()}
    return follows(
        all(max(some) - min(some) <= MINOR for both in changes.values() for some in both),
        "points above the single node of the same n, for n = 100, 500 and 1,000: "
        + "; ".join(f"{name} {signed(two)} on 2 nodes, {signed(four)} on 4" for name, (two, four) in changes.items()),
        f"differences between these n of up to {MINOR} points would be minor; in `Train()` n changes nothing, since nothing is "
        "synchronised",
    )


def preprocessing_times():
    """How many times the pre-processing of MNIST that of CIFAR-10 takes, before both ways to train."""
    custom, train = (
        RATIO.value(cited(cifar, "pre-processing"), cited(mnist, "pre-processing"))
        for cifar, mnist in (("C.18", "C.53"), ("C.1", "C.33"))
    )
    return follows(
        round(custom) == value("preprocessing_times"),
        f"{custom:.1f} times before `Backward()` (C.18 and C.53), but {train:.1f} times before `Train()` (C.1 and C.33)",
        "rounded, the first is the printed one: section 4.2.4 is about custom training",
    )


def preprocessing_manual():
    """The speedups of pre-processing that manual lines have."""
    speedups = {
        (data, method): [
            line.cited("speedup of pre-processing").value for line in lines_of(dataset=data, method=method, version="manual")
        ]
        for data in ("cifar10", "mnist") for method in ("Backward()", "Train()")
    }  # fmt: skip
    wanted = ("cifar10", "Backward()"), ("mnist", "Backward()"), ("cifar10", "Train()")
    custom, mnist, train = (f"{min(speedups[key])} to {max(speedups[key])}" for key in wanted)
    return follows(
        all(abs(one - 1) <= NO_DIFFERENCE for (_, method), some in speedups.items() if method == "Backward()" for one in some),
        f"the manual `Backward()` has speedups of {custom} on CIFAR-10 (C.27 to C.32) and {mnist} on MNIST (C.62 to C.67); the "
        f"manual `Train()` has {train} on CIFAR-10 (C.12 to C.17), of which the section does not speak",
        f"up to {NO_DIFFERENCE:.0%} counts as no difference".replace("%", " %"),
    )
