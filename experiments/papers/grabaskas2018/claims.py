"""The claims of Grabaskas 2018: what measured lines find of them, and what its own numbers do (`text.py`, `text_model.py`)."""

from statistics import mean

from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.papers.cited import published
from gridgrad.experiments.papers.claims import found, judged, undecided
from gridgrad.experiments.papers.grabaskas2018 import automated, text, text_model
from gridgrad.experiments.papers.grabaskas2018 import experiments as paper
from gridgrad.experiments.papers.grabaskas2018.derived import value
from gridgrad.experiments.papers.grabaskas2018.runs import PAPER, lines
from gridgrad.experiments.papers.items import MEASURED, PREDICTED

EQUAL = 5  # percentage points up to which two efficiencies are equal
SCATTER = 20  # percentage points by which efficiencies of one short run differ between measurements: D.72 had 55 and 77 %
CLOSE = 1  # percentage points up to which a change of the accuracy is that of the thesis, or none
ALIKE = 3  # percentage points up to which two trainings have the same accuracy
NOT_RUN = "these lines were not run yet: `gridgrad reproduce grabaskas2018`"
NO_ACCURACY = "these lines were not run whole yet: `gridgrad reproduce grabaskas2018 --full`"
NO_GPU = "there is no GPU of that kind and no cluster of them here"
PREDICTION = "predicted for its GPUs and its network"


def claims(tables):
    """The claims, contrary results first. tables: of `grabaskas2018.tables`."""
    rows = {row["ref"]: row for appendix in ("Appendix C", "Appendix D") for row in tables[appendix]}
    runs = tables.get("runs", {})
    cases, why = automated.measured()
    cases = automated.of_thesis(cases)
    findings = text.findings() | text_model.findings() | data(rows, runs) | preprocessing(rows) | model(rows, runs)
    findings |= {
        "no_loss": automated.verdict(cases, why),
        "model_as_manual": automated.verdict([case for case in cases if "model" in case.grid], why),
        "wave2d": undecided("neither the program nor the two clusters are here"),
    }
    return judged(published(PAPER), findings)


def percent(numbers):
    return ", ".join(f"{one:.1f}" for one in numbers)


def known(rows, refs, column):
    """[(reference, number)] of those lines that have one."""
    return [(ref, rows[ref][column]) for ref in refs if rows[ref].get(column) is not None]


def printed(*refs, column):
    """Numbers that the thesis prints of some lines, in words."""
    return ", ".join(f"{one:.2f}" for one in text.numbers_of(refs, column))


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


def trainings(table):
    """{a line of a table on several nodes: all lines of its run}, each run once: "auto" and "manual" are one training here."""
    found = {}
    for ref in paper.TABLES[table]:
        if lines()[ref].nodes > 1:
            found.setdefault(lines()[ref].run(whole=True), []).append(ref)
    return {refs[0]: refs for refs in found.values()}


def in_words(numbers, every, digits):
    """Numbers of trainings in words, by all of their lines. every: of `trainings`."""
    return "; ".join(f"{', '.join(every[ref])}: {one:.{digits}f}" for ref, one in numbers)


def mnist_efficiency(rows):
    """Cores that share a memory can reach what boards do; that they do not says nothing about boards."""
    every = trainings("4.14")
    measured = known(rows, every, "efficiency, measured")
    if not measured:
        return undecided(NOT_RUN)
    average = mean(one for _, one in measured)
    numbers = f"{average:.1f} %, mean of {in_words(measured, every, 1)}"
    if abs(average - value("mnist_efficiency")) <= EQUAL:
        return found(True, numbers, f"up to {EQUAL} points apart counts as equal; the nodes are cores of one processor")
    return undecided(
        f"lines differ by up to {SCATTER} points from run to run, and cores here share a memory", numbers, MEASURED
    )


def cifar_efficiency(rows):
    measured = known(rows, paper.TABLES["4.15"], "efficiency, measured")
    foreseen = mean(one for _, one in known(rows, paper.TABLES["4.15"], "efficiency, predicted"))
    numbers = f"{mean(one for _, one in measured):.1f} % on CPU cores here; " if measured else ""
    return undecided(NO_GPU, f"{numbers}{foreseen:.1f} % {PREDICTION}", MEASURED if measured else PREDICTED)


def loss(rows, table, name):
    """The mean loss of accuracy of a table, that of a single node less that of several, once all trainings were measured."""
    losses, every = [], trainings(table)
    for ref in every:
        pair = rows[lines()[ref].single.ref]["accuracy, measured"], rows[ref]["accuracy, measured"]
        if None not in pair:
            losses.append((ref, pair[0] - pair[1]))
    if not losses:
        return undecided(NO_ACCURACY)
    average = mean(one for _, one in losses)
    # which the thesis prints with the other sign
    theirs = -mean(text.numbers_of([same for ref, _ in losses for same in every[ref]], "accuracy loss"))
    numbers = f"{average:.2f} points, mean of {in_words(losses, every, 2)}; printed for these lines {theirs:.2f}, for all "
    numbers += f"{value(name)}"
    reason = "here the nodes train one network, in `Train()` of the thesis each trains its own"
    if len(losses) < len(every):
        return undecided(f"{len(losses)} of {len(every)} trainings of this table were run; {reason}", numbers, MEASURED)
    return found(
        abs(average - value(name)) <= CLOSE, numbers,
        f"up to {CLOSE} point apart counts as equal; {reason}, and on CIFAR-10 `Backward()` learns nothing there",
    )  # fmt: skip


def hidden(rows):
    foreseen = {table: mean(one for _, one in known(rows, paper.TABLES[table], "efficiency, predicted"))
                for table in ("4.14", "4.15")}  # fmt: skip
    gap, theirs = foreseen["4.14"] - foreseen["4.15"], value("mnist_efficiency") - value("cifar_efficiency")
    return found(
        gap >= theirs / 2,
        f"{PREDICTION}: {foreseen['4.14']:.1f} % for the lines of Table 4.14, {foreseen['4.15']:.1f} % for those of Table 4.15",
        f"half of the printed difference, {theirs / 2:.1f} points, would be enough; a synchronisation sends less than a "
        "megabyte, which takes some milliseconds of the seconds between two of them",
        PREDICTED,
    )


def batch_time(rows):
    refs = "C.6", "C.7", "C.8"
    measured, foreseen = (dict(known(rows, refs, f"efficiency, {kind}")) for kind in ("measured", "predicted"))
    numbers = f"{PREDICTION}: {percent(foreseen.values())} % on 2 nodes for n = 100, 500 and 1,000, printed: "
    numbers += f"{printed(*refs, column='efficiency')} %"
    if len(measured) < len(refs):
        return undecided(f"{NO_GPU}; {NOT_RUN}", numbers, PREDICTED)
    return undecided(
        f"{NO_GPU}; the nodes here are cores, which average their weights in one memory",
        f"{percent(measured.values())} % on 2 CPU cores; {numbers}", MEASURED,
    )  # fmt: skip


def part_of_data(rows):
    refs = "C.3", "C.4", "C.7"
    measured = dict(known(rows, refs, "accuracy, measured"))
    if len(measured) < len(refs):
        return undecided(NO_ACCURACY)
    return found(
        abs(measured["C.7"] - measured["C.4"]) <= ALIKE,
        f"{measured['C.7']:.1f} % on 2 nodes, n = 500; on one node {measured['C.4']:.1f} % with half of the data and "
        f"{measured['C.3']:.1f} % with all (printed: {printed('C.7', 'C.4', 'C.3', column='accuracy')} %)",
        f"up to {ALIKE} points apart counts as the same; here the weights are averaged, in the thesis nothing was, so that the "
        "module is the limit and not the data",
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
        f"all of them have to be; in the thesis {', '.join(longer)} on 2 nodes take longer than one",
    )


# ----- pre-processing


def preprocessing(rows):
    """Tables 4.18 and 4.19: reading the data and standardising it, which is a part of what the thesis times."""
    reason = "the thesis times everything before training, up to a minute; here it is reading and standardising alone"
    found = {}
    for name, (one, two) in {"preprocessing": ("C.18", "C.21"), "preprocessing_mnist": ("C.53", "C.56")}.items():
        alone, both = (rows[ref]["pre-processing, measured"] for ref in (one, two))
        if None in (alone, both):
            found[name] = undecided(f"{reason}; {NOT_RUN}")
        else:
            numbers = f"{alone / both:.2f} times as fast on 2 nodes ({alone:.3f} and {both:.3f} s; printed: "
            numbers += f"{printed(one, two, column='pre-processing')} s)"
            found[name] = undecided(reason, numbers, MEASURED)
    return found


# ----- model parallelism


def model(rows, runs):
    """Tables 4.21 and 4.22 and Figure 4.2."""
    return {"growing": growing(rows), "gpu_nodes": gpu_nodes(rows, runs), "model_accuracy": accuracy(rows)}


def accuracy(rows):
    """How the accuracies on several nodes differ from those on one: here, and in the thesis, whose layers compute otherwise."""
    theirs = text_model.changes_of_accuracy()
    words = f"in the thesis {min(theirs):.1f} to {max(theirs):+.1f} points"
    its_own = "the thesis' synchronisation was not correct: the bias counts once for each node, and gradients of different "
    its_own += "inputs are summed"
    changes = []
    for ref, line in lines().items():
        pair = rows[ref].get("accuracy, measured"), rows[line.single.ref].get("accuracy, measured")
        if line.method == "model" and line.nodes > 1 and None not in pair:
            changes.append(abs(pair[0] - pair[1]))
    if not changes:
        return undecided(f"{NO_ACCURACY}; {its_own}", words)
    return found(
        max(changes) <= CLOSE,
        f"here {max(changes):.2f} points at most in {counted(len(changes), 'line')}; {words}",
        f"up to {CLOSE} point counts as none; here every grid trains the serial network, {its_own}",
    )


def growing(rows):
    """All lines of MLP3 on 2 CPUs, in the order of their sizes: so many are hardly in order by chance."""
    refs = "D.69", "D.72", "D.75", "D.78", "D.81", "D.83"
    measured = [one for _, one in known(rows, refs, "efficiency, measured")]
    if len(measured) < len(refs):
        return undecided(NOT_RUN)
    rises = all(small < large for small, large in zip(measured, measured[1:]))
    numbers = f"{percent(measured)} % on 2 nodes, by size ({', '.join(refs)})"
    if rises or measured[-1] < measured[0] - SCATTER:
        return found(rises, numbers, "each has to be above the one before; weights grow with two widths, messages with one")
    return undecided(
        f"neither does each rise, nor is the last one more than {SCATTER} points below the first, which is how much a line "
        "differs from run to run", numbers, MEASURED,
    )  # fmt: skip


def gpu_nodes(rows, runs):
    """Figure 4.2, whose lines are those of MLP3."""
    times = paper.pair(lines()["D.98"], runs)
    foreseen = [rows[ref]["s, predicted"] for ref in ("D.98", "D.99")]
    predicted = f"predicted on 2, 4 of its GPUs: {foreseen[0]:.1f}, {foreseen[1]:.1f} s"
    if not times:
        return undecided(f"{NO_GPU}; {NOT_RUN}", predicted, PREDICTED)
    change = "rises" if times[0] > times[1] else "falls"
    return undecided(NO_GPU, f"it {change} here: {times[1]:.1f}, {times[0]:.1f} s on 1, 2 CPU cores; {predicted}", MEASURED)
