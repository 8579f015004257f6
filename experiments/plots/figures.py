"""What the figures share: reading the reports of sweeps, checking that they can be compared, colours, titles, error bars."""

import textwrap
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from gridgrad.nn.files.json_forms import PLAIN, SECONDS, TEXT, TRUTH, WHOLE, Optional, check
from gridgrad.nn.files.json_text import contents_of_lines
from gridgrad.nn.files.whole_files import written_whole
from gridgrad.parallel.grid.process_grid import check_places, parse_grid

SAME = {  # what all runs of one figure must have in common: its name, and where it stands in a report
    "data set": ("dataset",),
    "global batch size": ("settings", "batch_size"),
    "threads a rank": ("versions", "threads"),
    "type of numbers": ("settings", "dtype"),
    "plan": ("settings", "plan"),
    "reduction": ("settings", "reduction"),
    "machine": ("versions", "processor"),
    "MPI library": ("versions", "mpi"),
    "number of cores": ("slots",),
}
VERSIONS = {"processor": TEXT, "mpi": TEXT, "threads": WHOLE}  # what `measured_on` needs
RUN = {
    "net": TEXT, "grid": TEXT, "P": WHOLE, "dataset": TEXT, "synthetic": Optional(TRUTH), "slots": WHOLE,
    "oversubscribed": TRUTH, "simulated": Optional(TRUTH), "seconds_per_step": {"median": SECONDS}, "versions": VERSIONS,
    "settings": {"batch_size": WHOLE, "dtype": PLAIN, "plan": Optional(PLAIN), "reduction": Optional(PLAIN)},
}  # fmt: skip


def read(path, may_differ=()):
    """The reports of a sweep; ValueError if a line is not one, or if runs differ in what SAME names, `may_differ` apart."""
    reports = []
    for number, report in contents_of_lines(path):
        try:
            check(report, RUN)
            report["axes"] = sizes_of(report)
            report["settings"].setdefault("reduction", "plain")  # of reports from before there was a choice
        except ValueError as error:
            raise ValueError(f"{path}: line {number} is not a report of sweep ({error}); run sweep again") from None
        if report.get("simulated"):
            raise ValueError(f"{path}: line {number} is of a simulation: it was not measured")
        reports.append(report)
    if not reports:
        raise ValueError(f"{path}: no reports; run sweep first")
    for what, place in SAME.items():
        found = sorted({str(_at(report, place)) for report in reports})
        if len(found) > 1 and what not in may_differ:
            raise ValueError(f"{path}: runs differ in {what} ({', '.join(found)}) and do not compare; draw them apart")
    return reports


def sizes_of(report):
    """The sizes of the axes of a report's grid. ValueError if they are not those of its ranks."""
    sizes = parse_grid(report["grid"])
    check_places(report["grid"], sizes, report["P"])
    return sizes


def _at(report, place):
    for key in place:
        report = report[key]
    return report


def crowded(reports):
    """The numbers of ranks that exceed the number of cores. Their times say little about speed, and are drawn hollow."""
    return {report["P"] for report in reports if report["oversubscribed"]}


def starred(ranks, reports):
    return f"{ranks}{'*' if ranks in crowded(reports) else ''}"


def entitle(figure, reports, what, how):
    """Say above a figure what it shows, on which data, how, and where it was measured."""
    r = reports[0]
    data = r["dataset"] if "synthetic" in r["dataset"] or not r.get("synthetic") else f"{r['dataset']} (synthetic)"
    note = f"\n* oversubscribed: more ranks than the {r['slots']} cores" if crowded(reports) else ""
    letters = int(13 * figure.get_figwidth())  # of a line
    figure.suptitle(textwrap.fill(f"{what} on {data}, {how}, {measured_on(r['versions'])}", letters) + note, fontsize=10)


def measured_on(versions):
    """Where a report was measured, in words. versions: its entry."""
    return f"{versions['processor']}, {versions['mpi']}, {versions['threads']} BLAS thread a rank"


def colours_of(names):
    """{name: a colour of its own}, from dark to light."""
    return dict(zip(names, plt.cm.viridis([i / max(len(names) - 0.6, 1) for i in range(len(names))])))


def draw_ranges(panel, x, middle, least, most, **style):
    """Points at (x, middle) with error bars from `least` to `most`: four sequences. style: what `errorbar` takes."""
    below, above = ([abs(m - end) for m, end in zip(middle, ends)] for ends in (least, most))
    panel.errorbar(x, middle, [below, above], **style)


def save(figure, out):
    """Write a figure in the format that the name ends with."""
    with written_whole(out) as beside:
        figure.savefig(beside, dpi=110, format=Path(out).suffix.lstrip(".") or "png")
    plt.close(figure)
