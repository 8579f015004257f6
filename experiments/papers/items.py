"""What the page of all papers shows: an item for each table or figure, with cited, measured and predicted numbers.

`paper.py` makes the items of a paper from its file and its tables. They are made twice, from what was measured now and
from the results that are kept in `results`. Neither takes the place of the other: `paired` puts both side by side, since they
may be of different processors, and of different numbers of rounds.
"""

from dataclasses import dataclass, replace

from gridgrad.experiments.papers.cited import Cited

MEASURED, KEPT, PREDICTED = "measured", "measured earlier", "predicted"
OURS = {MEASURED: "measured now", KEPT: KEPT, PREDICTED: PREDICTED}  # kinds of our own numbers, in words
BESIDE, ALONE = "measured beside a number of the paper", "measured, nothing printed to compare with"
FORESEEN, MISSING = "predicted only", "not reproducible"
STATUSES = BESIDE, ALONE, FORESEEN, MISSING


@dataclass(frozen=True)
class ItemRow:
    """One quantity: numbers, or words that hold them; None where there is none. cited: what the paper says, a Cited. measured:
    now; kept: earlier, by results that are kept. remark, kept_remark: a word on how each of these was measured."""

    label: str
    cited: Cited | None = None
    measured: float | str | None = None
    predicted: float | str | None = None
    remark: str = ""
    kept: float | str | None = None
    kept_remark: str = ""

    @property
    def values(self):
        """{kind: value} of those that are there."""
        found = {self.cited.kind: self.cited.value} if self.cited else {}
        ours = {MEASURED: self.measured, KEPT: self.kept, PREDICTED: self.predicted}
        return found | {kind: value for kind, value in ours.items() if value is not None}

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
    that is drawn of the rows. reason: why numbers of the paper or measured ones are missing, empty if none is; an item with
    nothing but a reason is not reproducible. processor: that of `results`, where these are not of the paper's own measurement.
    compares: whether ratios of our numbers to those of the paper say anything; they do not where devices differ.
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
    processor: str = ""
    compares: bool = True

    @property
    def elsewhere(self):
        """Whether its numbers are measured by another program than `reproduce`, whose results are kept."""
        return not self.command.startswith("reproduce")

    @property
    def status(self):
        """One of STATUSES: what was done, and whether a number of the paper stands beside it."""
        measured = [row for row in self.rows if row.measured is not None or row.kept is not None]
        if any(row.cited for row in measured):
            return BESIDE
        return ALONE if measured else FORESEEN if any(row.predicted is not None for row in self.rows) else MISSING

    @property
    def kinds(self):
        """The kinds of numbers that its rows have."""
        return {kind for row in self.rows for kind in row.values}


def paired(now, before):
    """The items of `before`, whose measured values are kept ones, with those of `now` beside them; rows go by their labels.
    Predictions are those of `before`, where it has them, since some follow from what was measured. now: may be empty."""
    found = []
    for new_item, item in zip(now or before, before, strict=True):
        fresh = {row.label: row for row in new_item.rows} if now and not item.elsewhere else {}
        rows = []
        for old in item.rows:
            new = fresh.pop(old.label, ItemRow(old.label))
            predicted = new.predicted if old.predicted is None else old.predicted
            ours = {"measured": new.measured, "remark": new.remark, "kept": old.measured, "kept_remark": old.remark}
            rows.append(replace(old, predicted=predicted, **ours))
        found.append(replace(item, rows=(*rows, *fresh.values())))
    return found


def is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)
