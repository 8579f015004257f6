"""Automated against manual parallelism, the hypothesis of Grabaskas 2018: its own pairs of runs, and the study `automation`.

The study times the same parallelism by hand and through `parallelize` in turns; its reports are kept beside the others.
"""

import json
from pathlib import Path
from statistics import median

from gridgrad.experiments.papers.claims import found, undecided
from gridgrad.experiments.papers.grabaskas2018_derived import as_manual, twins
from gridgrad.experiments.papers.items import KEPT, Item, Row

RESULTS = Path("results/automation.json")
COMMAND = "study automation"
SAME, CHOSEN = "the same", "chosen"  # versions of the study
OF_THE_THESIS = "mlp3", "mnist-cnn", "cifar-cnn"  # its networks among those of the study
NOTHING = 1.05  # up to this ratio of seconds nothing counts as lost: what the rounds of one case differ by
MISSING = f"the same parallelism by hand was not timed beside it yet: `gridgrad {COMMAND}` writes `{RESULTS}`"


def reports():
    """The reports of the study, a list; empty where there is no file. ValueError if they are of several processors."""
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    if len(processors(found)) > 1:
        raise ValueError(f"{RESULTS}: its reports are of several processors: measure all of them on one")
    return found


def processors(reports):
    return sorted({report["versions"]["processor"] for report in reports})


def cases(reports):
    """(report, row) of all cases."""
    return [(report, row) for report in reports for row in report["rows"]]


def of_thesis(reports):
    """The cases with networks of the thesis."""
    return [(report, row) for report, row in cases(reports) if row["net"] in OF_THE_THESIS]


def label(report, row):
    """What identifies a case."""
    where = f" on {report['hosts']} emulated hosts" if report["hosts"] > 1 else ""
    crowded = f", {report['ranks']} ranks on {report['cores']} cores" if report["oversubscribed"] else ""
    return f"{row['net']}, {row['grid']}, batch {row['batch_size']}{where}{crowded}"


def spread(ratio):
    """A ratio over the rounds in words."""
    return f"quartiles {ratio['lower']:.3g} to {ratio['upper']:.3g}"


def item():
    """The hypothesis as an item: seconds of the automated version over those of the manual one."""
    rows = [
        Row(
            f"{auto.ref} and {manual.ref}, {auto.dataset} {auto.method}, {auto.nodes} nodes, n {auto.n}",
            as_manual(auto, manual),
        )
        for auto, manual in twins()
    ]
    known = reports()
    for report, row in cases(known):
        for version, words in ((SAME, "the same algorithms"), (CHOSEN, "what `parallelize` chooses")):
            ratio = row["ratio"][version]
            rows.append(Row(f"{label(report, row)}: {words}", None, ratio["median"], remark=spread(ratio)))
    return Item(
        "Hypothesis of section 1.3", "seconds of the automated version over those of the manual one", "Appendix C, page 92",
        tuple(rows),
        "The thesis has one run of each. Here both take turns in one job, on the same minibatches, from the same weights.",
        str(RESULTS), command=COMMAND, processor=", ".join(processors(known)),
        reason="" if known else MISSING[0].upper() + MISSING[1:],
    )  # fmt: skip


def verdict(chosen):
    """The Finding of a claim that automation loses nothing, by some cases: it holds if it does in each of them.

    chosen: (report, row) of cases.
    """
    if not chosen:
        return undecided(MISSING)
    medians = [row["ratio"][SAME]["median"] for _, row in chosen]
    losing = [
        f"{label(report, row)}: {row['ratio'][SAME]['median']:.3g} ({spread(row['ratio'][SAME])})"
        for report, row in chosen
        if row["ratio"][SAME]["median"] > NOTHING
    ]
    own = [row["ratio"][CHOSEN]["median"] for _, row in chosen]
    numbers = (
        f"{median(medians):.3g} times the seconds of the version by hand with the same algorithms, median of {len(medians)} "
        f"cases ({min(medians):.3g} to {max(medians):.3g}); {median(own):.3g} with what `parallelize` chooses "
        f"({min(own):.3g} to {max(own):.3g})"
    )
    if losing:
        numbers += f"; above {NOTHING:g}: {'; '.join(losing)}"
    processor = ", ".join(processors([report for report, _ in chosen]))
    return found(
        not losing, f"{numbers} (`{RESULTS}`, {processor})", "measured in turns; in the thesis each was run once", KEPT
    )
