"""What Marques 2016 claims, and what is found of it here: what measured training steps decide.

The thesis is about unequal laptops at 5 MB/s. What equal cores that share a memory do decides only what is said of any ranks;
the rest takes what `unequal.py` reads. What follows from the text, from counting and from the model of section 5.4 is in
`claims_text.py`.
"""

from pathlib import Path
from statistics import median

from gridgrad.experiments.papers.claims import found, judged, undecided
from gridgrad.experiments.papers.items import KEPT, MEASURED, PREDICTED
from gridgrad.experiments.papers.marques2016 import claims_text as text
from gridgrad.experiments.papers.marques2016 import unequal as laptops
from gridgrad.experiments.papers.marques2016.figures import rounds_of
from gridgrad.experiments.papers.marques2016.runs import BATCH_SIZES, NETWORKS, PARTS, WITH_MASTER, MarquesRun, parts
from gridgrad.experiments.papers.marques2016.scaling import KNOWN, said
from gridgrad.experiments.papers.other_results import kept

SMALL, *MIDDLE, LARGE = NETWORKS
ALIKE = 0.25  # numbers that differ by less, relative, count as about equal
STEADY = 0.1  # so much of a step may a part change that is said to stay as it is
SAME = 1.0  # percent of the images by which accuracies may differ that count as the same
ROUNDED = 0.05  # to tens of percent
REPEATED = 3  # rounds, without which a batch size does not count among those whose speedups are compared
UNEQUAL = Path("results/unequal.json")
# Of P = 1, 2: gridgrad launch P train --net marques-50-500 --dataset cifar10 --steps 200 --grid model=P --plan marques
TRAINED = Path("results/marques2016/trained_1.json"), Path("results/marques2016/trained_2.json")
NOTHING = "no such steps were measured: `gridgrad reproduce marques2016` does it"
SEVERAL = f"it takes several batch sizes of {REPEATED} rounds each: `gridgrad reproduce marques2016` measures them"
ALIKE_WORDS = f"up to a factor of {1 + ALIKE:g} counts as the same"
APART = "a difference counts where all rounds of one are above all rounds of the other"
FAR = f"{APART}, by more than a factor of {1 + ALIKE:g}, as there are few"
IN_MEMORY = "equal cores in memory"


def claims(tables):
    """All Claims of the paper, contrary ones first. tables: of `marques2016.tables`."""
    report, why = laptops.kept()
    measured = Laptops(laptops.rows(report), why, laptops.source(report))
    findings = of_steps(tables, measured) | of_best(tables["split"], measured) | of_batch_sizes(tables)
    return judged(KNOWN, findings | of_laptops(tables["split"], measured) | even_shares() | accuracy() | text.findings())


class Laptops:
    """What was measured of unequal ranks: for each setting {network: its line}.

    lines: of `unequal.rows`. why: there are none. source: the file and the processor.
    """

    def __init__(self, lines, why, source):
        by_setting = ({line["network"]: line for line in laptops.of_setting(lines, name)} for name in laptops.SETTINGS)
        self.memory, self.slow, self.samples, self.proportion = by_setting
        self.source, self.missing = source, "no unequal CPUs at 5 MB/s were measured" + (f": {why}" if why else "")

    @property
    def whole(self):
        """Whether all networks were measured at 5 MB/s."""
        return self.slow.keys() >= set(NETWORKS)


def decided(holds, numbers, reason="", kind=MEASURED):
    """The Finding of a claim that holds, or does not, or, where `holds` is None, can not be decided."""
    return undecided(reason, numbers, kind) if holds is None else found(holds, numbers, reason, kind)


def select(rows, **values):
    """The rows that have these values."""
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def span(values):
    """The least and the most of some numbers, in words."""
    return f"{min(values):.3g} to {max(values):.3g}"


def listed(values):
    return ", ".join(f"{value:.3g}" for value in values)


def kind_of(row):
    return MEASURED if row["how"] == "measured" else PREDICTED


def above(one, other, by=1.0):
    """Whether a number is greater than another, by more than a factor: True or False, None where neither is.

    one, other: their ranges, (least, most).
    """
    return True if one[0] > by * other[1] else False if by * one[1] < other[0] else None


def every(answers):
    """Whether all of some answers are True: False where one is, None where one is unknown."""
    answers = list(answers)
    return False if False in answers else None if None in answers else True


def rising(ranges, by=1.0):
    """Whether numbers rise, see `above`, by their ranges: True, False or None."""
    return every(above(later, earlier, by) for earlier, later in zip(ranges, ranges[1:]))


def alike(ranges, apart, most):
    """Whether numbers of several cases are about the same: True, False, or None where the rounds of one case differ as much.

    ranges: (least, most) of each. apart: a function of the greater and the smaller number; most: what it may be.
    """
    if apart(max(high for _, high in ranges), min(low for low, _ in ranges)) < most:
        return True
    return False if any(a[0] > b[1] and apart(a[0], b[1]) >= most for a in ranges for b in ranges) else None


def of_speedup(line):
    """The range of the speedup of a line, of the table "split" or of `unequal.rows`."""
    names = ("speedup, least", "speedup, most") if "speedup, least" in line else ("least", "most")
    return tuple(line[name] for name in names)


def of_part(runs, part, *run):
    """The range by rounds of the share of a step that a part takes. runs: of the tables. run: the entries of a MarquesRun."""
    seconds = [parts([result]) for result in runs[MarquesRun(*run).key]]
    shares = [one[part][0] / one["step"][0] for one in seconds]
    return min(shares), max(shares)


def repeated(rows):
    """The rows of the networks and batch sizes that were measured in REPEATED rounds or more."""
    few = {(row["network"], row["batch"]) for row in rows if row["how"] == "measured" and row["rounds"] < REPEATED}
    return [row for row in rows if (row["network"], row["batch"]) not in few]


def of_steps(tables, measured):
    """Claims about steps on one rank and on two. measured: the Laptops."""
    rows = tables["split"]
    alone, two = select(rows, ranks=1), select(rows, ranks=2, form=WITH_MASTER)
    names = "constant computation", "equation 5.1", "convolutions take the time", "computation becomes the bottleneck"
    if not two:
        return dict.fromkeys(("always a speedup", *names), undecided(NOTHING))
    where = f"{len(two)} cases on two equal cores, {rounds_of(two)}"
    one = {(row["network"], row["batch"]): row["computation, s"] for row in alone}
    changes = [row["computation, s"] / one[row["network"], row["batch"]] for row in two]
    off = [abs(row["MiB"] - row["equation 5.1, MiB"]) * 2**20 for row in two]
    shares = [row["convolution, s"] / row["step, s"] for row in alone]
    least, most = 0.6 - ROUNDED, 0.9 + ROUNDED
    decisions = (
        found(1 / (1 + ALIKE) < median(changes) < 1 + ALIKE,
              f"on two ranks {span(changes)} times the seconds on one, median {median(changes):.2f}, in {where}",
              f"of the median {ALIKE_WORDS}"),
        found(max(off) <= 100, f"counted bytes of {where} are at most {max(off):.0f} off the equation for both passes",
              "16 bytes are those of the loss; up to 100 bytes off count as exact"),
        found(min(shares) >= least and max(shares) < most,
              f"{100 * min(shares):.0f} % to {100 * max(shares):.0f} % of a step on one core, {len(alone)} cases",
              f"rounded to tens of percent, so that {100 * least:.0f} % to {100 * most:.0f} % count as 60 % to 90 %"),
        bottleneck(tables),
    )  # fmt: skip
    return {"always a speedup": always(two, measured)} | dict(zip(names, decisions, strict=True))


def always(two, measured):
    """Whether there is a speedup on 2 CPUs in each case. two: rows on two ranks with a master."""
    numbers = f"{span([row['speedup'] for row in two])} on two {IN_MEMORY}, {rounds_of(two)}"
    in_memory = every(above(of_speedup(row), (1, 1)) for row in two)
    slow = [line["speedup"] for line in measured.slow.values()]
    if not slow:
        return decided(in_memory, numbers, "a slow network was not measured; it counts where all rounds are on one side of 1")
    if any(above(of_speedup(line), (1, 1)) is not True for line in measured.slow.values()):
        in_memory = in_memory and None  # it depends on the network
    scaled = [line["speedup"] for line in measured.proportion.values()]
    more = f", in the thesis' proportion {span(scaled)}" if scaled else ""
    return decided(in_memory, numbers, f"at 5 MB/s {span(slow)}{more}; see the item `Figure 5.1, as written`")


def bottleneck(tables):
    """How much of a step of the largest network at batch 64 the other layers take."""
    rows = select(tables["split"], network=LARGE, batch=64, ranks=1)
    if not rows:
        return undecided(NOTHING)
    share, theirs = rows[0]["computation, s"] / rows[0]["step, s"], said("computation of CPUs", "percent", 64, 1).value / 100
    both = of_part(tables["runs"], "computation", LARGE, 64), (theirs, theirs)
    return decided(
        alike(both, lambda a, b: a / b - 1, ALIKE),
        f"{100 * share:.0f} % of a step on one core, so that {1 / share:.1f} times as fast would be the most",
        f"the other layers are fast here, beside convolutions; {ALIKE_WORDS}",
    )


def of_best(rows, measured):
    """Claims about the best speedups. rows: of the table "split". measured: the Laptops."""
    best = {}
    for row in sorted(select(repeated(rows), form=WITH_MASTER), key=lambda row: row["speedup"]):
        best[row["network"], row["ranks"]] = row
    four = further = two = ""
    if whole := all((network, ranks) in best for network in NETWORKS for ranks in (2, 3, 4)):
        speedups = {network: listed(best[network, ranks]["speedup"] for ranks in (2, 3, 4)) for network in NETWORKS}
        four = f"{best[LARGE, 4]['speedup']:.2f} on 4 {IN_MEMORY}, batch {best[LARGE, 4]['batch']}"
        further = f"on 2, 3 and 4 {IN_MEMORY} " + "; ".join(f"{net} {values}" for net, values in speedups.items())
        two = f"{listed(best[network, 2]['speedup'] for network in NETWORKS)} on two {IN_MEMORY}"
    kinds = {kind_of(best[network, ranks]) for network in NETWORKS for ranks in (3, 4)} if whole else {MEASURED}
    kind = PREDICTED if PREDICTED in kinds else MEASURED
    sizes = f"the best of batch sizes with {REPEATED} rounds or more"
    found_ = {
        "best on CPUs": undecided("four unequal CPUs at 5 MB/s were not measured", four, kind),
        "more CPUs help": undecided(
            "three and four unequal CPUs at 5 MB/s were not measured" + (f"; these are {sizes}" if whole else ""), further, kind
        ),
        "more kernels, more speedup": undecided(measured.missing, two, MEASURED),
    }
    if not measured.whole:
        return found_
    lines = [measured.slow[network] for network in NETWORKS]
    why = f"medians of {lines[0]['rounds']} rounds; {FAR}"
    if all(line["speedup"] < 1 for line in lines):
        why += "; all are below 1, as a core of today waits for such a network"
    found_["more kernels, more speedup"] = decided(
        rising([of_speedup(line) for line in lines], 1 + ALIKE),
        f"{listed(line['speedup'] for line in lines)} on two unequal CPUs at 5 MB/s, batch 64",
        why + (f"; {two} are {sizes}" if two else "") + f" ({measured.source})",
        KEPT,
    )
    return found_


def of_batch_sizes(tables):
    """Claims about the batch size, of those batch sizes that were measured in several rounds."""
    small, middle, steady, largest = (
        "batch size and the smallest network", "batch size and the next networks", "batch size and the parts of a step",
        "batch size and the largest network",
    )  # fmt: skip
    rows = repeated(tables["split"])
    two = {network: select(rows, network=network, ranks=2, form=WITH_MASTER) for network in NETWORKS}
    if not all(len(mine) > 1 for mine in two.values()):
        return dict.fromkeys((small, middle, steady), undecided(SEVERAL)) | {largest: falls_with_batch(tables)}
    sizes = [row["batch"] for row in two[SMALL]]
    where = f", on two equal cores at batch {', '.join(map(str, sizes))}, {rounds_of(two[SMALL])}"
    ranges = {network: list(map(of_speedup, mine)) for network, mine in two.items()}
    words = {
        network: f"{network} {listed(row['speedup'] for row in mine)}, in single rounds {span(sum(ranges[network], ()))}"
        for network, mine in two.items()
    }
    same = {network: alike(mine, lambda a, b: a / b - 1, ALIKE) for network, mine in ranges.items()}
    shares = [
        [of_part(tables["runs"], part, network, size, 2, WITH_MASTER) for size in sizes]
        for network in MIDDLE for part in PARTS
    ]  # fmt: skip
    change = max(max(sum(mine, ())) - min(sum(mine, ())) for mine in shares)
    stays = every(alike(mine, lambda a, b: a - b, STEADY) for mine in shares)
    of_middle = every(same[network] for network in MIDDLE)
    return {
        small: decided(same[SMALL], words[SMALL] + where, ALIKE_WORDS + overlap(same[SMALL])),
        middle: decided(of_middle, "; ".join(words[name] for name in MIDDLE) + where, ALIKE_WORDS + overlap(of_middle)),
        steady: decided(
            stays, f"parts are up to {100 * change:.0f} % of a step apart, between rounds or batch sizes{where}",
            f"a change of up to {100 * STEADY:.0f} % of a step counts as none" + overlap(stays),
        ),
        largest: falls_with_batch(tables),
    }  # fmt: skip


def overlap(answer):
    """Why an answer is unknown, in words."""
    return "; the rounds of one batch size differ by more" if answer is None else ""


def falls_with_batch(tables):
    """Whether the computation of the largest network on one core is a smaller part of a step of the largest batch."""
    alone = select(tables["split"], network=LARGE, ranks=1)
    if not {row["batch"] for row in alone} >= {BATCH_SIZES[0], BATCH_SIZES[-1]}:
        return undecided(SEVERAL)
    first, last = (of_part(tables["runs"], "computation", LARGE, size) for size in (BATCH_SIZES[0], BATCH_SIZES[-1]))
    falls = True if first[0] / last[1] > 1 + ALIKE else False if first[1] / last[0] < 1 + ALIKE else None
    shares = ", ".join(f"{100 * row['computation, s'] / row['step, s']:.1f}" for row in alone)
    return decided(
        falls, f"{shares} % of a step on one core at batch {', '.join(str(row['batch']) for row in alone)}",
        f"the other layers take as long for each image; {ALIKE_WORDS}" + overlap(falls),
    )  # fmt: skip


def of_laptops(rows, measured):
    """Claims about unequal CPUs and a slow network. rows: of the table "split". measured: the Laptops."""
    return {
        "not bound by communication": not_bound(measured), "best technique for unequal devices": best_technique(measured),
        "smallest network is bound by communication": bound(rows, measured),
        "communication falls with kernels": falling(rows, measured), "a faster network helps": faster(measured),
    }  # fmt: skip


def not_bound(measured):
    """How much of a step communication is in both settings that were measured; neither is that of the thesis."""
    if LARGE not in measured.slow:
        return undecided(measured.missing)
    others = ", ".join(f"{network} {line['communication, %']:.0f} %" for network, line in measured.proportion.items())
    numbers = f"at 5 MB/s {measured.slow[LARGE]['communication, %']:.0f} % of a step"
    return undecided(
        "a core of today computes so much faster than those laptops that 5 MB/s are too little in any case, and too little is "
        f"printed of {LARGE} to set the thesis' proportion of computing and sending ({measured.source})",
        numbers + (f"; in the thesis' proportion {others}" if others else ""), KEPT,
    )  # fmt: skip


def best_technique(measured):
    """How fast a master and data parallelism by speed are on unequal CPUs at 5 MB/s, which is not the thesis' proportion."""
    slow, samples = measured.slow, measured.samples
    if not slow or not samples.keys() >= slow.keys():
        return undecided(measured.missing)
    each = "; ".join(f"{name} {line['speedup']:.3g} against {samples[name]['speedup']:.3g}" for name, line in slow.items())
    return undecided(
        "a core of today waits for a network of 5 MB/s with either technique, and data parallelism was not measured in the "
        f"thesis' proportion of computing and sending; {each}, over the slower CPU alone, at batch 64; data parallelism shares "
        f"the samples by speed as well, and sends gradients in place of inputs, kernels and outputs ({measured.source})",
        f"at 5 MB/s {span([line['speedup'] for line in slow.values()])} times as fast as one CPU, data parallel "
        f"{span([samples[network]['speedup'] for network in slow])}", KEPT,
    )  # fmt: skip


def bound(rows, measured):
    """How much of a step of the smallest network communication takes; no setting that was measured is that of the thesis."""
    if SMALL in measured.slow:
        settings = ("at 5 MB/s", measured.slow), ("in the thesis' proportion", measured.proportion)
        words = (
            f"{line['communication, %']:.0f} % of a step {name}, {ratio:.3g} times the convolutions"
            for name, lines in settings if SMALL in lines for line in [lines[SMALL]]
            for ratio in [line["communication, %"] / 100 * line["step, s"] / line["convolution, s"]]
        )  # fmt: skip
        return undecided(
            "at 5 MB/s a core of today waits in any case, the proportion is made of the 47 % themselves, and four CPUs were "
            f"not measured ({measured.source})", "; ".join(words) + ", on two unequal CPUs", KEPT,
        )  # fmt: skip
    for row in select(rows, network=SMALL, ranks=4, form=WITH_MASTER, batch=64):
        share, ratio = 100 * row["communication, s"] / row["step, s"], row["communication, s"] / row["convolution, s"]
        words = f"{share:.0f} % of a step, {ratio:.2f} times the convolutions, on 4 {IN_MEMORY}"
        return undecided(measured.missing, words, kind_of(row))
    return undecided(measured.missing)


def falling(rows, measured):
    """Whether communication is a smaller part of a step with more kernels, on unequal CPUs at 5 MB/s."""
    if measured.whole:
        lines = [measured.slow[network] for network in NETWORKS]
        words = f"{listed(line['communication, %'] for line in lines)} % of a step on two unequal CPUs at 5 MB/s"
        ranges = [(line["communication, least"], line["communication, most"]) for line in reversed(lines)]
        return decided(rising(ranges), words, f"{APART} ({measured.source})", KEPT)
    four = [row for network in NETWORKS for row in select(rows, network=network, ranks=4, form=WITH_MASTER, batch=64)]
    if len(four) < len(NETWORKS):
        return undecided(measured.missing)
    words = f"{listed(100 * row['communication, s'] / row['step, s'] for row in four)} % of a step on 4 {IN_MEMORY}"
    return undecided(measured.missing, words, kind_of(four[0]))


def faster(measured):
    """Whether speedups are higher with a faster network."""
    slow, memory = measured.slow, measured.memory
    if both := [network for network in NETWORKS if network in slow and network in memory]:
        words = "; ".join(
            f"{network} {slow[network]['speedup']:.3g} times at 5 MB/s, {memory[network]['speedup']:.3g} times in memory"
            for network in both
        )
        holds = every(above(of_speedup(memory[network]), of_speedup(slow[network]), 1 + ALIKE) for network in both)
        return decided(holds, f"{words}, on two unequal CPUs", f"{FAR} ({measured.source})", KEPT)

    def by_rate(figures):
        low, high = (figures["5.13a low and mid range CPUs"][rate].speedup(4) for rate in (5, 125))
        return high > low, f"{low:.2f} at 5 MiB/s and {high:.2f} at 125 MiB/s on 4 CPUs"

    return text.by_both(by_rate)


def even_shares():
    """Whether shares by speed are faster than even ones on unequal ranks, by the study `unequal`."""
    results, why = kept(UNEQUAL, by_shares)
    if not results:
        return {"even shares wait": undecided(why or "the study `unequal` has no results of these networks")}
    names, middles, ranges, processors = zip(*results)
    if len(set(processors)) > 1:
        return {"even shares wait": undecided(f"{UNEQUAL} has results of {' and of '.join(sorted(set(processors)))}")}
    words = "; ".join(f"{name}: {middle:.2f} times as fast as with even shares" for name, middle in zip(names, middles))
    holds = every(above(mine, (1, 1)) for mine in ranges)
    why = "two ranks, one of which is slowed down 2 times; it counts where all rounds are on one side of 1"
    return {"even shares wait": decided(holds, words, f"{why} ({UNEQUAL}, {processors[0]})", KEPT)}


def by_shares(results):
    """[(network and grid, median and range of the speed with shares by speed, processor)] of the study `unequal`."""
    found_ = []
    for one in results:
        if one["net"].startswith("marques"):
            ratios = [row["even"] / row["constant"] for row in one["rounds"]]
            name, processor = f"{one['net']} with {one['grid']}", one["versions"]["processor"]
            found_.append((name, median(ratios), (min(ratios), max(ratios)), processor))
    return found_


def accuracy():
    """Whether the network is as accurate after training with a slave: the reports of `train` in TRAINED."""
    (one, no_one), (two, no_two) = (
        kept(path, lambda report: (float(report["test_accuracy"]), report["versions"]["processor"])) for path in TRAINED
    )
    name = "no loss of accuracy"
    if why := no_one or no_two:
        return {name: undecided(f"no accuracy is printed, none measured: {why}")}
    if one[1] != two[1]:
        return {name: undecided(f"{TRAINED[0]} and {TRAINED[1]} are of two processors")}
    words = f"{one[0]:.2f} % of the test images on one rank, {two[0]:.2f} % as master and slave"
    why = (
        f"50:500 after 200 steps on CIFAR-10; up to {SAME:g} % of the images count as the same; both compute the same but for "
        f"rounding ({TRAINED[0]}, {TRAINED[1]}, {one[1]}); the thesis itself prints no accuracy"
    )
    return {name: found(abs(one[0] - two[0]) <= SAME, words, why, KEPT)}
