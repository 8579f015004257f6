"""What the page of all papers shows: an item for each table or figure, with published, measured and predicted numbers.

The modules `PAPER_items.py` make the items of one paper from its tables. They are made twice, from what was measured now and
from the results that are kept in `results`, and `merged` takes each number from the former where it is there.
"""

from dataclasses import dataclass, replace
from statistics import median

PUBLISHED, MEASURED, KEPT, PREDICTED = "published", "measured", "kept", "predicted"
NEVER = "-"  # what tables print where the paper has no number


@dataclass(frozen=True)
class Row:
    """One quantity: numbers, or words that hold them; None where there is none.

    remark: a word on how it was measured. kept: the measured value is not of this run, but of the results that are kept.
    """

    label: str
    published: float | str | None = None
    measured: float | str | None = None
    predicted: float | str | None = None
    remark: str = ""
    kept: bool = False

    @property
    def mark(self):
        """That of the measured value."""
        return KEPT if self.kept else MEASURED

    @property
    def quantity(self):
        """What is measured: what stands behind the last colon of the label."""
        return self.label.rpartition(": ")[2] if ": " in self.label else ""


@dataclass(frozen=True)
class Item:
    """A table or a figure of a paper.

    name: as in the paper, such as "Table 5.1". title: what it shows, and in which unit. source: where in the paper it stands.
    rows: its numbers. why: what explains the deviation, in one line. results: the file with what was measured. model: what
    predicts. command: the words behind `gridgrad` that measure it. figures: names of PNG files, beside `results`; plot: of one
    that is drawn of the rows. reason: why the published or the measured numbers are missing, empty if none is; an item with
    nothing but a reason is not reproducible. whole: its numbers sum up a whole measurement. processor: that of `results`, where
    these are not of the paper's own measurement.
    """

    name: str
    title: str
    source: str
    rows: tuple = ()
    why: str = ""
    results: str = ""
    model: str = ""
    command: str = ""
    figures: tuple = ()
    plot: str = ""
    reason: str = ""
    whole: bool = False
    processor: str = ""

    @property
    def elsewhere(self):
        """Whether its numbers are measured by another program than `reproduce`, whose results are kept."""
        return not self.command.startswith("reproduce")

    @property
    def reproduced(self):
        """Whether anything here was measured or predicted."""
        return any(row.measured is not None or row.predicted is not None for row in self.rows)

    @property
    def marks(self):
        """Which of the marks its rows have."""
        found = {row.mark for row in self.rows if row.measured is not None}
        return found | {name for name in (PUBLISHED, PREDICTED) if any(getattr(row, name) is not None for row in self.rows)}


def rows_of(table, label, quantities, remark=None):
    """Rows for each line of a table, a list of dicts, and each quantity of it that has a value.

    label: a function of a line that names it. quantities: {words: (column published, measured, predicted)}, None for a column
    that is not there. remark: a function of a line.
    """
    found = []
    for line in table:
        for words, columns in quantities.items():
            values = [None if name is None else value_of(line.get(name)) for name in columns]
            if any(value is not None for value in values):
                text = f"{label(line)}: {words}" if words else label(line)
                found.append(Row(text, *values, remark=remark(line) if remark and values[1] is not None else ""))
    return tuple(found)


def value_of(value):
    """A value of a table as that of a Row."""
    return None if value is None or value == NEVER else value


def merged(now, before, everything):
    """The items of `before`, with the rows of `now` that were measured in their place, found by their labels.

    What `now` has not measured is marked as kept. Both have the same items. everything: whether `now` was measured as a whole;
    if not, items that sum up a whole measurement are those of `before`, if that has measured them. now: may be empty.
    """
    return [_merged(new, old, everything) for new, old in zip(now or before, before, strict=True)]


def _merged(now, before, everything):
    kept = any(row.measured is not None for row in before.rows)
    old = now is before or before.elsewhere or (before.whole and kept and not everything)
    mine = {} if old else {row.label: row for row in now.rows}
    rows = []
    for row in before.rows:
        new = mine.pop(row.label, None)
        if new is not None and new.measured is not None:
            rows.append(new)
        elif row.measured is not None:
            rows.append(replace(row, kept=True))
        else:
            rows.append(new if row.predicted is None and new is not None else row)
    return replace(before, rows=(*rows, *mine.values()))


def deviation(item):
    """The ratios of the measured and the predicted numbers to the published ones, in one line; empty if none compare."""
    found = []
    for quantity in dict.fromkeys(row.quantity for row in item.rows):
        words = []
        for name in (MEASURED, PREDICTED):
            pairs = [(getattr(row, name), row.published) for row in item.rows if row.quantity == quantity]
            ratios = [ours / theirs for ours, theirs in pairs if is_number(ours) and is_number(theirs) and theirs]
            if ratios:
                middle, low, high = (f"{value:.3g}" for value in (median(ratios), min(ratios), max(ratios)))
                spread = middle if low == high else f"{middle} ({low} to {high})"
                words.append(f"{name} {spread}")
        if words:
            found.append(f"{quantity + ' ' if quantity else ''}{', '.join(words)}")
    return f"Ratio to the published numbers, median (least to greatest): {'; '.join(found)}" if found else ""


def is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)
