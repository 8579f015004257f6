"""What the figures share: colours, error bars, words about where something was measured, and how they are written."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from gridgrad.nn.files.documents import TEXT, WHOLE
from gridgrad.nn.files.whole_files import written_whole

VERSIONS = {"processor": TEXT, "mpi": TEXT, "threads": WHOLE}  # what `measured_on` needs


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


def save(figure, out, dpi=110):
    """Write a figure in the format that the name ends with. dpi: pixels an inch."""
    with written_whole(out) as beside:
        figure.savefig(beside, dpi=dpi, format=Path(out).suffix.lstrip(".") or "png")
    plt.close(figure)
