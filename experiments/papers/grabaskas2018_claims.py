"""The claims of Grabaskas 2018, each with what is found of it: from measured lines here, from its own numbers in `_text.py`."""

from dataclasses import replace
from statistics import mean

from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.papers import grabaskas2018 as paper
from gridgrad.experiments.papers import grabaskas2018_automated as automated
from gridgrad.experiments.papers import grabaskas2018_text as text
from gridgrad.experiments.papers.cited import RATIO, published
from gridgrad.experiments.papers.claims import FOLLOWS, found, judged, undecided
from gridgrad.experiments.papers.grabaskas2018_runs import PAPER, lines
from gridgrad.experiments.papers.items import PREDICTED

NEAR = 5  # percentage points by which an efficiency may differ
CLOSE = 1  # percentage points by which a mean loss of accuracy may differ
ALIKE = 3  # percentage points up to which two accuracies are the same
STRONG = 1.2  # the least by which an effect is strong
WITHIN = 1.25  # factor by which ratios of times may differ
NOT_RUN = "these lines were not run yet: `gridgrad reproduce grabaskas2018`"
NO_ACCURACY = "these lines were not run whole yet: `gridgrad reproduce grabaskas2018 --full`"
CORES = "the nodes here are cores of one processor, which share its memory"


def claims(tables):
    """The claims, contrary results first. tables: of `grabaskas2018.tables`."""
    rows = {row["ref"]: row for appendix in ("Appendix C", "Appendix D") for row in tables[appendix]}
    reports = automated.reports()
    cases = automated.of_thesis(reports)
    findings = text.findings() | data(rows, tables.get("runs", {})) | preprocessing(rows) | model(rows, tables.get("runs", {}))
    findings |= {
        "no_loss": automated.verdict(cases),
        "model_as_manual": automated.verdict([(report, row) for report, row in cases if "model" in row["grid"]]),
        "wave2d": undecided("neither the program nor the two clusters are here"),
    }
    return judged(published(PAPER), findings)


def percent(numbers):
    return ", ".join(f"{one:.1f}" for one in numbers)


def known(rows, refs, column):
    """[(reference, number)] of those lines that have one."""
    return [(ref, rows[ref][column]) for ref in refs if rows[ref].get(column) is not None]


def value(name):
    return published(PAPER).values[name].value


def printed(*refs, column):
    """Numbers that the thesis prints of some lines, in words."""
    return ", ".join(f"{lines()[ref].cited(column).value:.2f}" for ref in refs)


# ----- data parallelism


def data(rows, runs):
    """Efficiencies and accuracies of Tables 4.14 to 4.17."""
    return {
        "mnist_efficiency": mnist_efficiency(rows),
        "cifar_efficiency": cifar_efficiency(rows),
        "mnist_loss": loss(rows, "4.14", "mnist_loss"),
        "cifar_loss": loss(rows, "4.15", "cifar_loss"),
        "hidden": hidden(rows),
        "batch_time": batch_time(rows),
        "part_of_data": part_of_data(rows),
        "shorter": shorter(runs),
    }


def mnist_efficiency(rows):
    measured = known(rows, paper.TABLES["4.14"], "efficiency, measured")
    if not measured:
        return undecided(NOT_RUN)
    average = mean(one for _, one in measured)
    return found(
        abs(average - value("mnist_efficiency")) <= NEAR,
        f"{average:.1f} %, mean of {', '.join(f'{ref} {one:.1f}' for ref, one in measured)}",
        f"{CORES}; automated and manual lines share a run",
    )


def cifar_efficiency(rows):
    measured = known(rows, paper.TABLES["4.15"], "efficiency, measured")
    foreseen = mean(one for _, one in known(rows, paper.TABLES["4.15"], "efficiency, predicted"))
    numbers = f"{mean(one for _, one in measured):.1f} % on CPU cores here; " if measured else ""
    return undecided(
        "there is no GPU of that kind and no cluster of them here",
        f"{numbers}{foreseen:.1f} % predicted for this library on its GPUs and its network",
        PREDICTED,
    )


def loss(rows, table, name):
    """The mean loss of accuracy of a table: that of a single node less that of several."""
    pairs = [(ref, rows[ref]["accuracy, measured"], rows[lines()[ref].single.ref]["accuracy, measured"])
             for ref in paper.TABLES[table] if lines()[ref].nodes > 1]  # fmt: skip
    losses = [(ref, alone - ours) for ref, ours, alone in pairs if None not in (ours, alone)]
    if not losses:
        return undecided(NO_ACCURACY)
    average = mean(one for _, one in losses)
    return found(
        abs(average - value(name)) <= CLOSE,
        f"{average:.2f} points, mean of {', '.join(f'{ref} {one:.2f}' for ref, one in losses)}",
        "here the nodes train one network; in `Train()` of the thesis each trains its own, and on CIFAR-10 `Backward()` "
        "learns nothing there",
    )


def hidden(rows):
    foreseen = {table: mean(one for _, one in known(rows, paper.TABLES[table], "efficiency, predicted"))
                for table in ("4.14", "4.15")}  # fmt: skip
    gap, printed = foreseen["4.14"] - foreseen["4.15"], value("mnist_efficiency") - value("cifar_efficiency")
    return found(
        gap >= printed / 2,
        f"predicted for this library on its nodes and its network: {foreseen['4.14']:.1f} % for the lines of Table 4.14, "
        f"{foreseen['4.15']:.1f} % for those of Table 4.15",
        "a synchronisation sends less than a megabyte, which takes some milliseconds of the seconds between two of them",
        PREDICTED,
    )


def batch_time(rows):
    measured = dict(known(rows, ("C.6", "C.7", "C.8"), "efficiency, measured"))
    if len(measured) < 3:
        return undecided(NOT_RUN)
    foreseen = [one for _, one in known(rows, ("C.6", "C.7", "C.8"), "efficiency, predicted")]
    return found(
        measured["C.8"] >= STRONG * measured["C.6"],
        f"{percent(measured.values())} % on 2 nodes for n = 100, 500 and 1,000 (printed: "
        f"{printed(*measured, column='efficiency')} %; predicted for its network: {percent(foreseen)} %)",
        "averages are so few that they take no time worth mentioning, here or, as predicted, on its network",
    )


def part_of_data(rows):
    refs = "C.3", "C.4", "C.7"
    measured = dict(known(rows, refs, "accuracy, measured"))
    if len(measured) < len(refs):
        return undecided(NO_ACCURACY)
    return found(
        abs(measured["C.7"] - measured["C.4"]) <= ALIKE,
        f"{measured['C.7']:.1f} % on 2 nodes, n = 500; on one node {measured['C.4']:.1f} % with half of the data and "
        f"{measured['C.3']:.1f} % with all (printed: {printed('C.7', 'C.4', 'C.3', column='accuracy')} %)",
        "here the weights are averaged; in the thesis nothing was, so that the module is the limit and not the data",
    )


def shorter(runs):
    two = [line for line in lines().values() if line.method != "model" and line.nodes == 2]
    times = {line.run(whole=True): paper.pair(line, runs) for line in two}
    speedups = [pair[1] / pair[0] for pair in times.values() if pair]
    if not speedups:
        return undecided(NOT_RUN)
    longer = [line.ref for line in two if line.cited("speedup").value < 1]
    return found(
        min(speedups) > 1,
        f"{sum(one > 1 for one in speedups)} of {len(speedups)} trainings on 2 nodes are faster than on one: "
        f"{min(speedups):.2f} to {max(speedups):.2f} times as fast",
        f"in the thesis {', '.join(longer)} on 2 nodes take longer than one",
    )


# ----- pre-processing


def preprocessing(rows):
    """Tables 4.18 and 4.19: reading the data and standardising it."""
    seconds = {ref: rows[ref]["pre-processing, measured"] for ref in ("C.18", "C.21", "C.53", "C.56")}
    if None in seconds.values():
        return dict.fromkeys(("preprocessing", "preprocessing_mnist", "preprocessing_times"), undecided(NOT_RUN))
    cifar, mnist = seconds["C.18"] / seconds["C.21"], seconds["C.53"] / seconds["C.56"]
    times = seconds["C.18"] / seconds["C.53"]
    gain = lines()["C.21"].cited("speedup of pre-processing").value - 1
    theirs = [
        RATIO.value(*(lines()[ref].cited("pre-processing") for ref in pair)) for pair in (("C.18", "C.53"), ("C.1", "C.33"))
    ]
    once = "CIFAR-10 is converted once here, and each rank maps its part; MNIST is unzipped whole by each"
    return {
        "preprocessing": found(
            cifar - 1 >= gain / 2,
            f"{cifar:.2f} times as fast on 2 nodes ({seconds['C.18']:.3f} and {seconds['C.21']:.3f} s)",
            f"it counts as gained where half of the printed gain is reached; {once}",
        ),
        "preprocessing_mnist": found(
            mnist < 1, f"{mnist:.2f} times as fast on 2 nodes ({seconds['C.53']:.3f} and {seconds['C.56']:.3f} s)", once
        ),
        "preprocessing_times": found(
            1 / WITHIN <= times / value("preprocessing_times") <= WITHIN,
            f"{times:.2g} times; in Appendix C {theirs[0]:.1f} times before `Backward()`, but {theirs[1]:.1f} times before "
            "`Train()` (C.1 and C.33)",
            once,
        ),
    }


# ----- model parallelism


def model(rows, runs):
    """Tables 4.21 and 4.22 and Figure 4.2."""
    return {"growing": growing(rows), "gpu_nodes": gpu_nodes(rows, runs), "cnn": cnn(rows), "model_accuracy": accuracy(rows)}


def accuracy(rows):
    """What the thesis' own accuracies say, with ours beside."""
    known = text.model_accuracy()
    changes = {}
    for ref, line in lines().items():
        pair = rows[ref].get("accuracy, measured"), rows[line.single.ref].get("accuracy, measured")
        if line.method == "model" and line.nodes > 1 and None not in pair:
            changes[ref] = abs(pair[0] - pair[1])
    if not changes:
        return known
    ours = f"here {max(changes.values()):.2f} points at most in {counted(len(changes), 'line')}"
    return replace(known, numbers=f"{known.numbers}; {ours}")


def growing(rows):
    measured = [one for _, one in known(rows, ("D.72", "D.75", "D.78"), "efficiency, measured")]
    if len(measured) < 3:
        return undecided(NOT_RUN)
    return found(
        measured == sorted(measured),
        f"{percent(measured)} % on 2 nodes",
        f"weights grow with the product of two widths, messages with one; {CORES}",
    )


def gpu_nodes(rows, runs):
    """Figure 4.2, whose lines are those of MLP3."""
    times = paper.pair(lines()["D.98"], runs)
    foreseen = [rows[ref]["s, predicted"] for ref in ("D.98", "D.99")]
    predicted = f"predicted for this library on its GPUs and network: {foreseen[0]:.1f} s on 2 nodes, {foreseen[1]:.1f} on 4"
    if not times:
        return undecided(NOT_RUN, predicted, PREDICTED)
    return found(
        times[0] > times[1],
        f"MLP3 takes {times[1]:.1f} s on one node and {times[0]:.1f} s on 2, on CPU cores; {predicted}",
        "each sample is sent alone, so that the network decides; there is no GPU like theirs here",
    )


def cnn(rows):
    """The CNN against all forms of MLP3, on one node and on two."""
    others = {"D.106": ("D.97",), "D.107": ("D.98", "D.101", "D.104")}
    printed = f"printed on 2 GPUs: the CNN {lines()['D.107'].seconds} s, MLP3-first {lines()['D.104'].seconds} s, which is less"
    refs = [*others, *(ref for many in others.values() for ref in many)]
    seconds, accuracy = (dict(known(rows, refs, column)) for column in ("s, measured", "accuracy, measured"))
    if len(seconds) < len(refs) or len(accuracy) < len(refs):
        holds = all(lines()[ref].seconds < lines()[one].seconds for ref, many in others.items() for one in many)
        return found(holds, printed, "the thesis' own numbers contradict it", FOLLOWS)
    better = [seconds[ref] < seconds[one] and accuracy[ref] > accuracy[one] for ref, many in others.items() for one in many]
    return found(
        all(better),
        f"on one node {seconds['D.106']:.1f} s and {accuracy['D.106']:.1f} %, MLP3 {seconds['D.97']:.1f} s and "
        f"{accuracy['D.97']:.1f} %; on 2 nodes {seconds['D.107']:.1f} s and {accuracy['D.107']:.1f} %, the forms of MLP3 "
        f"{percent(seconds[one] for one in others['D.107'])} s and {percent(accuracy[one] for one in others['D.107'])} %; "
        f"{printed}",
        "on CPU cores",
    )
