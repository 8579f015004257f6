"""Automated against manual parallelism, the hypothesis of Grabaskas 2018: its pairs of runs, and what was measured here.

The same parallelism, by hand and through `parallelize`, took turns in November 2026. `sweep automation.toml` measures most of
it again.
"""

from dataclasses import dataclass
from pathlib import Path

from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.papers.claims import found, undecided
from gridgrad.experiments.papers.grabaskas2018.derived import as_manual, twins
from gridgrad.experiments.papers.items import KEPT, Item, ItemRow
from gridgrad.experiments.papers.other_results import kept

RESULTS = Path("results/automation.json")
COMMAND = "sweep automation.toml"
VERSIONS = {"the same": "the same algorithms", "chosen": "what `parallelize` chooses"}  # of the study
OF_THE_THESIS = "mlp3", "mnist-cnn", "cifar-cnn"  # its networks among those of the study
TINY = "airfoil"
LOSS = 1.02  # a case loses where the lower quartile of its ratios is above it, so that most of its rounds lose
FOUR = f"2-D parallelism (`by_hand_2d`) needs four ranks: `gridgrad {COMMAND}` times it."
OURS = "The cases of the study are not in the thesis; those whose ranks share cores decide nothing."


@dataclass(frozen=True)
class ComparedCase:
    """A case of the study. ratios: {version: {"median", "lower", "upper"} of its seconds over those of the version by hand}."""

    label: str
    net: str
    grid: str
    ratios: dict
    oversubscribed: bool
    processor: str

    def loses(self, version):
        return self.ratios[version]["lower"] > LOSS

    def in_words(self, version):
        """The quartiles of a version."""
        ratio = self.ratios[version]
        return f"quartiles {ratio['lower']:.3g} to {ratio['upper']:.3g}" + (", a loss" if self.loses(version) else "")


def measured():
    """([ComparedCase], ""), or ([], why there are none). Those of several processors are refused: their times differ."""
    cases, why = kept(RESULTS, lambda reports: [case_of(report, row) for report in reports for row in report["rows"]])
    processors = sorted({case.processor for case in cases or ()})
    if len(processors) > 1:
        return [], f"{RESULTS} is of several processors, {' and '.join(processors)}: measure all of it on one"
    if not cases:
        return [], f"{why or f'{RESULTS} is empty'}: `gridgrad {COMMAND}` times the same parallelism by hand beside it"
    return cases, ""


def case_of(report, row):
    """The ComparedCase of a row of a report."""
    where = f" on {report['hosts']} emulated hosts" if report["hosts"] > 1 else ""
    crowded = f", {report['ranks']} ranks on {report['cores']} cores" if report["oversubscribed"] else ""
    label = f"{row['net']}, {row['grid']}, batch {row['batch_size']}{where}{crowded}"
    ratios = {
        version: {name: float(row["ratio"][version][name]) for name in ("median", "lower", "upper")} for version in VERSIONS
    }
    return ComparedCase(label, row["net"], row["grid"], ratios, report["oversubscribed"], report["versions"]["processor"])


def of_thesis(cases):
    """The cases with networks of the thesis, where each rank had a core."""
    return [case for case in cases if case.net in OF_THE_THESIS and not case.oversubscribed]


def item():
    """The hypothesis as an item: seconds of the automated version over those of the manual one."""
    rows = [
        ItemRow(
            f"{auto.ref} and {manual.ref}, {auto.dataset} {auto.method}, {auto.nodes} nodes, n {auto.n}",
            as_manual(auto, manual),
        )
        for auto, manual in twins()
    ]
    cases, why = measured()
    for case in cases:
        for version, words in VERSIONS.items():
            rows.append(ItemRow(f"{case.label}: {words}", None, case.ratios[version]["median"], remark=case.in_words(version)))
    two_d = any("," in case.grid for case in cases)
    return Item(
        "Hypothesis of section 1.3", "seconds of the automated version over those of the manual one",
        "Appendix C, pages 92, 93",
        tuple(rows),
        "The thesis has one run of each. Here both take turns in one job, on the same minibatches, from the same weights. "
        f"A case loses where the lower quartile of the ratios of its rounds is above {LOSS:g}.{losses_of(cases)}",
        str(RESULTS), command=COMMAND, processor=cases[0].processor if cases else "",
        reason=" ".join(filter(None, (why and f"{why[0].upper()}{why[1:]}.", cases and OURS, "" if two_d else FOUR))),
    )  # fmt: skip


def losses_of(cases):
    """Which cases lose, in sentences; empty without cases."""
    thesis, tiny = of_thesis(cases), [case for case in cases if case.net == TINY and not case.oversubscribed]
    found = ""
    for version, words in VERSIONS.items() if thesis else ():
        losing = [
            f"{case.label} ({case.ratios[version]['median']:.3g} times as long)" for case in thesis if case.loses(version)
        ]
        found += f" With {words} {len(losing)} of {len(thesis)} cases of the thesis' networks lose"
        found += f": {'; '.join(losing)}." if losing else "."
        if tiny:
            lost = sum(case.loses(version) for case in tiny)
            found += f" Of those of a tiny network, {TINY}, which is not the thesis', {lost} of {len(tiny)} do."
    return found


def verdict(cases, why):
    """The Finding of a claim that automation loses nothing: it holds if neither version loses in any case.

    cases: those that decide it. why: there are none in the file.
    """
    if not cases:
        return undecided(why or f"{RESULTS} has no case of it with a core for each rank")
    (same, losing), (chosen, own) = (of_version(cases, version) for version in VERSIONS)
    return found(
        not losing + own,
        f"with the algorithms of the version by hand {same} times as long ({losing} of {counted(len(cases), 'case')} lose), "
        f"with those that `parallelize` chooses {chosen} times ({own} lose)",
        f"a case loses where at least three quarters of its rounds take more than {LOSS:g} times as long ({RESULTS}, "
        f"{cases[0].processor})",
        KEPT,
    )


def of_version(cases, version):
    """(the range of the medians of a version in words, how many cases it loses)."""
    medians = [case.ratios[version]["median"] for case in cases]
    return f"{min(medians):.2f} to {max(medians):.2f}", sum(case.loses(version) for case in cases)
