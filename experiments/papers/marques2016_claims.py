"""What Marques 2016 claims, and what is found of it here: what measured training steps decide.

What follows from the text, from counting and from the model of section 5.4 is in `marques2016_claims_text.py`.
"""

import json
from pathlib import Path
from statistics import median

from gridgrad.experiments.papers import marques2016_claims_text as text
from gridgrad.experiments.papers import marques2016_unequal as laptops
from gridgrad.experiments.papers.claims import found, judged, undecided
from gridgrad.experiments.papers.items import KEPT, MEASURED, PREDICTED
from gridgrad.experiments.papers.marques2016_runs import BATCH_SIZES, BY_SAMPLES, NETWORKS, PARTS, WITH_MASTER
from gridgrad.experiments.papers.marques2016_scaling import KNOWN, SUMMED, derived, of_rates, said
from gridgrad.experiments.plots.marques2016 import rounds_of

SMALL, *MIDDLE, LARGE = NETWORKS
ALIKE = 0.25  # numbers that differ by less, relative, count as about equal
STEADY = 0.1  # so much of a step may a part change that is said to stay as it is
SAME = 1.0  # percent of the images by which accuracies may differ that count as the same
ROUNDED = 0.05  # to tens of percent
UNEQUAL = Path("results/unequal.json")
TRAINED = Path("results/marques2016/trained_1.json"), Path("results/marques2016/trained_2.json")
TRAIN = "gridgrad launch P train --net marques-50-500 --dataset cifar10 --steps 200 --grid model=P --plan marques --report FILE"
NOTHING = "no such steps were measured: `gridgrad reproduce marques2016` does it"
ONE_SIZE = "it takes all batch sizes, which were not measured: `gridgrad reproduce marques2016` does it"
NO_LAPTOPS = f"it takes two unequal ranks at 5 MB/s, which were not measured: `gridgrad {laptops.COMMAND}` does it"


def claims(tables):
    """All Claims of the paper, contrary ones first. tables: of `marques2016.tables`."""
    lines = laptops.rows(laptops.read())
    findings = of_steps(tables) | of_batch_sizes(tables["split"]) | of_laptops(tables["split"], lines) | of_reports()
    return judged(KNOWN, findings | text.findings())


def select(rows, **values):
    """The rows that have these values."""
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def span(values, unit=""):
    """The least and the most of some numbers, in words."""
    return f"{min(values):.2f} to {max(values):.2f}{unit}"


def kind_of(row):
    return MEASURED if row["how"] == "measured" else PREDICTED


def laptop_speeds():
    """The speeds of the laptops of the thesis that its text implies; the first one has 1."""
    return derived(SUMMED)["CPUs, largest network"].speeds


def of_steps(tables):
    """Claims about steps on one rank and on two."""
    rows = tables["split"]
    alone, two = select(rows, ranks=1), select(rows, ranks=2, form=WITH_MASTER)
    names = "always a speedup", "constant computation", "equation 5.1", "convolutions take the time"
    if not two:
        return dict.fromkeys((*names, "computation becomes the bottleneck"), undecided(NOTHING)) | of_best(tables)
    speedups, where = [row["speedup"] for row in two], f"{len(two)} cases on two equal cores, {rounds_of(two)}"
    one = {(row["network"], row["batch"]): row["computation, s"] for row in alone}
    changes = [row["computation, s"] / one[row["network"], row["batch"]] for row in two]
    off = [abs(row["MiB"] - row["equation 5.1, MiB"]) * 2**20 for row in two]
    shares = [row["convolution, s"] / row["step, s"] for row in alone]
    decided = (
        found(min(speedups) > 1, f"{span(speedups)} in {where}", "messages go through memory; what a slow network does is "
              "another claim, on communication"),
        found(1 / (1 + ALIKE) < median(changes) < 1 + ALIKE,
              f"on two ranks {span(changes)} times the seconds on one, median {median(changes):.2f}, in {where}"),
        found(max(off) <= 100, f"counted bytes of {where} are at most {max(off):.0f} off the equation for both passes",
              "16 bytes are those of the loss"),
        found(min(shares) >= 0.6 - ROUNDED and max(shares) < 0.9 + ROUNDED,
              f"{100 * min(shares):.0f} % to {100 * max(shares):.0f} % of a step on one core, {len(alone)} cases"),
    )  # fmt: skip
    return dict(zip(names, decided)) | of_best(tables) | bottleneck(alone)


def bottleneck(alone):
    """How much of a step of the largest network at batch 64 the other layers take. alone: rows on one rank."""
    name = "computation becomes the bottleneck"
    rows = select(alone, network=LARGE, batch=64)
    if not rows:
        return {name: undecided(NOTHING)}
    share, theirs = rows[0]["computation, s"] / rows[0]["step, s"], said("computation of CPUs", "percent", 64, 1).value / 100
    words = f"{100 * share:.0f} % of a step on one core, so that {1 / share:.1f} times as fast would be the most"
    return {name: found(abs(share / theirs - 1) < ALIKE, words, "the other layers are fast here, beside convolutions")}


def of_best(tables):
    """Claims about the best speedups over all batch sizes."""
    best = {}
    for line in tables["5.1"]:
        value = line[f"{WITH_MASTER}, measured"] or line[f"{WITH_MASTER}, predicted"]
        how = MEASURED if line[f"{WITH_MASTER}, measured"] else PREDICTED
        best[line["network"], line["CPUs"]] = value, how, line[f"{WITH_MASTER}, best at"]
    names = "best on CPUs", "more kernels, more speedup", "more CPUs help"
    if None in [value for value, _, _ in best.values()]:
        return dict.fromkeys(names, undecided(ONE_SIZE))
    value, how, at = best[LARGE, 4]
    theirs = said("5.1", "speedup", LARGE, 4).value
    two = [best[network, 2][0] for network in NETWORKS]
    all_rising = [[best[network, cpus][0] for cpus in (2, 3, 4)] for network in NETWORKS]
    words = "; ".join(f"{net} " + ", ".join(f"{one:.2f}" for one in values) for net, values in zip(NETWORKS, all_rising))
    further = {best[network, cpus][1] for network in NETWORKS for cpus in (3, 4)}
    decided = (
        found(value > 0.9 * theirs, f"{value:.2f} on 4 equal cores, {at}", "further cores are as fast as the first one here, "
              f"while the thesis' laptops are up to {max(laptop_speeds()):.1f} times as fast, as its speedups imply", how),
        found(two == sorted(two), ", ".join(f"{one:.2f}" for one in two) + " on two equal cores, the best of all batch sizes",
              "convolutions take most of the time of the smallest network already", MEASURED),
        found(all(values == sorted(values) for values in all_rising), f"on 2, 3 and 4 equal cores {words}",
              "messages go through memory", PREDICTED if PREDICTED in further else MEASURED),
    )  # fmt: skip
    return dict(zip(names, decided))


def of_batch_sizes(rows):
    """Claims about the batch size."""
    small, middle, parts, largest = (
        "batch size and the smallest network", "batch size and the next networks", "batch size and the parts of a step",
        "batch size and the largest network",
    )  # fmt: skip
    two = {network: select(rows, network=network, ranks=2, form=WITH_MASTER) for network in NETWORKS}
    if not all({row["batch"] for row in mine} >= set(BATCH_SIZES) for mine in two.values()):
        return dict.fromkeys((small, middle, parts, largest), undecided(ONE_SIZE))
    speedups = {network: [row["speedup"] for row in mine] for network, mine in two.items()}
    alike = {network: max(mine) / min(mine) < 1 + ALIKE for network, mine in speedups.items()}
    where = f"on two equal cores, {rounds_of(two[SMALL])}"
    changes = []
    for network in MIDDLE:
        for part in PARTS:
            shares = [row[f"{part}, s"] / row["step, s"] for row in two[network]]
            changes.append(max(shares) - min(shares))
    alone = {row["batch"]: row["computation, s"] / row["step, s"] for row in select(rows, network=LARGE, ranks=1)}
    first, last = alone[BATCH_SIZES[0]], alone[BATCH_SIZES[-1]]
    once = "large batches have one round, so that a slow moment counts in full"
    return {
        small: found(alike[SMALL], f"{span(speedups[SMALL])} {where}", once),
        middle: found(
            all(alike[network] for network in MIDDLE),
            "; ".join(f"{network} {span(speedups[network])}" for network in MIDDLE) + f", {where}", once,
        ),
        parts: found(max(changes) < STEADY, f"parts change by up to {100 * max(changes):.0f} % of a step, {where}", once),
        largest: found(
            first / last > 1 + ALIKE, f"{100 * first:.1f} % of a step at batch 64, {100 * last:.1f} % at batch 1024, one core",
            "the other layers take as long for each image at any batch size",
        ),
    }  # fmt: skip


def of_laptops(rows, lines):
    """Claims about unequal CPUs and a slow network. rows: of the table "split". lines: of `marques2016_unequal.rows`."""
    slow = {line["network"]: line for line in laptops.of_setting(lines, "slow")}
    memory = {line["network"]: line for line in laptops.of_setting(lines, "memory")}
    samples = {line["network"]: line for line in laptops.of_setting(lines, "samples")}
    findings = {
        "not bound by communication": undecided(NO_LAPTOPS), "best technique for unequal devices": undecided(NO_LAPTOPS),
        "smallest network is bound by communication": of_four(rows, SMALL),
        "communication falls with kernels": falling(rows, slow),
        "a faster network helps": faster(slow, memory), "even shares wait": even_shares(),
    }  # fmt: skip
    if LARGE in slow:
        share, speedup = slow[LARGE]["communication, %"], slow[LARGE]["speedup"]
        findings["not bound by communication"] = found(
            share < 50, f"communication is {share:.0f} % of a step on two CPUs at batch 64, which are {speedup:.2f} times as "
            "fast as the slower one alone", "a core of today computes so much faster than those laptops that 5 MB/s are too "
            "little; " + in_proportion(lines), KEPT,
        )  # fmt: skip
    if SMALL in slow:
        line = slow[SMALL]
        convolution = line["convolution, s"]
        ratio = line["communication, %"] / 100 * line["step, s"] / convolution
        findings["smallest network is bound by communication"] = found(
            line["communication, %"] > 0.9 * said("communication of CPUs", "percent", SMALL, 64, 4).value,
            f"{line['communication, %']:.0f} % of a step, {ratio:.3g} times the convolutions, on two CPUs at 5 MB/s",
            "even more so, as a core of today computes faster", KEPT,
        )  # fmt: skip
    if slow and samples.keys() >= slow.keys():
        pairs = [(slow[network]["speedup"], samples[network]["speedup"]) for network in slow]
        findings["best technique for unequal devices"] = found(
            all(mine >= other for mine, other in pairs),
            "at 5 MB/s, batch 64, " + "; ".join(f"{network} {mine:.3g} times with a master, {other:.3g} times with data "
            "parallelism" for network, (mine, other) in zip(slow, pairs)) + ", over the slower CPU alone",
            f"with {BY_SAMPLES.replace('parallel', 'parallelism')} the samples are shared by speed as well, and gradients are "
            "sent in place of inputs, kernels and outputs", KEPT,
        )  # fmt: skip
    return findings


def in_proportion(lines):
    """What the setting in the thesis' own proportion has shown, in words."""
    mine = laptops.of_setting(lines, "proportion")
    if not mine:
        return "the thesis' own proportion of computing and sending was not measured"
    theirs = {line["network"]: said("speedups of CPUs", "speedup", line["network"], laptops.BATCH, 2).value for line in mine}
    words = ", ".join(f"{line['network']} {line['speedup']:.2f} (printed {theirs[line['network']]:.2f})" for line in mine)
    return f"where cores are slowed down to the thesis' proportion of computing and sending, speedups are {words}"


def of_four(rows, network):
    """How much of a step on 4 ranks communication is, where no slow network was measured."""
    four = select(rows, network=network, ranks=4, form=WITH_MASTER, batch=64)
    if not four:
        return undecided(NO_LAPTOPS)
    (row,), theirs = four, said("communication of CPUs", "percent", network, 64, 4).value
    share, ratio = 100 * row["communication, s"] / row["step, s"], row["communication, s"] / row["convolution, s"]
    words = f"{share:.0f} % of a step, {ratio:.2f} times the convolutions, on 4 equal cores"
    return found(share > 0.9 * theirs, words, "messages go through memory here; at 5 MB/s nothing was measured", kind_of(row))


def falling(rows, slow):
    """Whether communication is a smaller part of a step with more kernels: at 5 MB/s, or in memory on 4 ranks."""
    if slow.keys() >= set(NETWORKS):
        shares, where, kind = [slow[network]["communication, %"] for network in NETWORKS], "two CPUs at 5 MB/s", KEPT
    else:
        four = [row for network in NETWORKS for row in select(rows, network=network, ranks=4, form=WITH_MASTER, batch=64)]
        if len(four) < len(NETWORKS):
            return undecided(NOTHING)
        shares = [100 * row["communication, s"] / row["step, s"] for row in four]
        where, kind = "4 equal cores, in memory", kind_of(four[0])
    words = ", ".join(f"{share:.1f} %" for share in shares) + f" of a step on {where}"
    return found(shares == sorted(shares, reverse=True), words, "", kind)


def faster(slow, memory):
    """Whether speedups are higher with a faster network."""
    both = slow.keys() & memory.keys()
    if both:
        pairs = [(network, slow[network]["speedup"], memory[network]["speedup"]) for network in NETWORKS if network in both]
        words = "; ".join(f"{network} {low:.3g} times at 5 MB/s, {high:.3g} times in memory" for network, low, high in pairs)
        return found(all(high > low for _, low, high in pairs), f"{words}, on two unequal CPUs", "", KEPT)
    by_rate, _ = of_rates()["5.13a low and mid range CPUs"]
    low, high = by_rate[5].speedup(4), by_rate[125].speedup(4)
    return found(high > low, f"{low:.2f} at 5 MiB/s and {high:.2f} at 125 MiB/s on 4 CPUs", "by equation 5.1", PREDICTED)


def even_shares():
    """Whether shares by speed are faster than even ones on unequal ranks, by the study `unequal`."""
    results = json.loads(UNEQUAL.read_text()) if UNEQUAL.exists() else []
    mine = [one for one in results if one["net"].startswith("marques")]
    if not mine:
        return undecided("the study `unequal` has no results of these networks")
    ratios = [median(row["even"] / row["constant"] for row in one["rounds"]) for one in mine]
    words = "; ".join(
        f"{one['net']} with {one['grid']}: {ratio:.2f} times as fast as with even shares" for one, ratio in zip(mine, ratios)
    )
    processors = {one["versions"]["processor"] for one in mine}
    if len(processors) > 1:
        return undecided(f"{UNEQUAL} has results of {' and of '.join(sorted(processors))}")
    return found(min(ratios) > 1, words, f"two ranks, one of which is slowed down 2 times ({UNEQUAL}, {min(processors)})", KEPT)


def of_reports():
    """Claims that results of other programs decide."""
    name = "no loss of accuracy"
    if not all(path.exists() for path in TRAINED):
        why = f"the thesis prints no accuracy; here one and two ranks would have to train with `{TRAIN}`"
        return {name: undecided(why)}
    one, two = (json.loads(path.read_text()) for path in TRAINED)
    if (first := one["versions"]["processor"]) != two["versions"]["processor"]:
        return {name: undecided(f"{TRAINED[0]} and {TRAINED[1]} are of two processors")}
    words = f"{one['test_accuracy']:.2f} % of the test images on one rank, {two['test_accuracy']:.2f} % as master and slave, "
    words += "50:500 after 200 steps on CIFAR-10"
    same = abs(one["test_accuracy"] - two["test_accuracy"]) <= SAME
    why = f"both compute the same but for rounding ({TRAINED[0]}, {TRAINED[1]}, {first}); the thesis itself prints no accuracy"
    return {name: found(same, words, why, KEPT)}
