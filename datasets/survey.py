"""What must be known of all samples before any rank takes some: their moments, that they are numbers, and whether labels.

Samples pass by in blocks, since they may not fit the memory.
"""

import numpy as np

LEAST, MOST = 1e-30, 1e30  # of a deviation and of a number, so that float32 can hold them and their quotients
CLOSE = 16  # deviations below so many roundings of the mean are lost
MOST_CLASSES = 10_000
KINDS = "labels", "values"


class Moments:
    """Mean and standard deviation of each column (Chan, Golub and LeVeque 1983: moments of blocks are combined)."""

    def __init__(self, columns):
        self.count, self.mean, self.squares = 0, np.zeros(columns), np.zeros(columns)
        self.least, self.most = np.full(columns, np.inf), np.full(columns, -np.inf)

    def add(self, values):
        """values: (n, columns) of float64."""
        if not len(values):
            return
        count, mean = len(values), values.mean(axis=0)
        total, apart = self.count + count, mean - self.mean
        self.squares += ((values - mean) ** 2).sum(axis=0) + apart**2 * (self.count * count / total)
        self.mean += apart * (count / total)
        self.count = total
        self.least, self.most = np.minimum(self.least, values.min(axis=0)), np.maximum(self.most, values.max(axis=0))

    def result(self):
        """(mean, deviation), the latter 1 where a column is constant: float64."""
        return self.mean, np.where(self.least < self.most, np.sqrt(self.squares / max(self.count, 1)), 1.0)


def check_numbers(values, columns, row):
    """ValueError, which names row and column, if a number is not finite, or so large that float32 could not hold it.

    values: (n, columns), of the Columns `columns`. row: the number of the first row.
    """
    good = np.abs(values) < MOST  # NaN is not
    if not good.all():
        i, j = np.argwhere(~good)[0]
        what = f"{values[i, j]:g}, too large a number" if np.isfinite(values[i, j]) else "a NaN or an infinite value"
        raise ValueError(f"{columns.in_words(j)}: row {row + i} holds {what}; remove or mend that row (the first one is row 0)")


def check_deviations(mean, std, dtype, columns):
    """ValueError for numbers of the Columns `columns` that lie so close together that a type could not tell them apart."""
    near = (std < np.maximum(LEAST, CLOSE * np.finfo(dtype).eps * np.abs(mean))) & (std != 1)  # which is that of a constant
    if near.any():
        raise ValueError(
            f"{columns.where}: the numbers of a column deviate by {std[near][0]:.3g} from their mean {mean[near][0]:.6g}, too "
            f"little for {dtype}; subtract an offset or scale them"
        )


class WholeNumbers:
    """Which whole numbers the targets are, as long as all of them are whole, and few enough to be labels."""

    def __init__(self):
        self.found, self.has_fractions, self.why_not = np.empty(0), False, None

    def add(self, values):
        """values: (n,) of float64."""
        fractions = values[values != np.floor(values)]
        if not self.why_not:
            self.found = np.union1d(self.found, values)
            if len(self.found) > MOST_CLASSES:
                self.why_not = f"there are more than {MOST_CLASSES} different numbers"
        if len(fractions):
            self.has_fractions, self.why_not = True, f"{fractions[0]:g} is no whole number"

    def classes(self, kind, targets, samples):
        """The number of classes, or 0 if the targets are values.

        kind: "labels" or "values", as the user says, or None. targets: their Columns. samples: how many there are. ValueError
        if labels are said and the targets are not 0 to K-1, and if nothing is said and the targets are whole numbers, but not
        such labels, each of two samples or more on average.
        """
        count, where = len(self.found), targets.in_words()
        if len(targets.chosen) > 1 and kind == "labels":
            raise ValueError(f"{where}: labels are one column; choose it with target=")
        if len(targets.chosen) > 1 or kind == "values" or kind is None and self.has_fractions:
            return 0
        if not self.why_not and count > 1 and np.array_equal(self.found, np.arange(count)) and (kind or 2 * count <= samples):
            return count
        reason = self.why_not or f"there are {count} different ones from {self.found[0]:g} to {self.found[-1]:g}"
        if kind == "labels":
            raise ValueError(
                f"{where}: labels are the numbers 0 to K-1, all of which occur, but {reason}; number the classes so"
            )
        raise ValueError(
            f"{where}: whole numbers that are no labels 0 to K-1 with several samples each: {reason}; say kind=values for a "
            "regression, or number the classes from 0 and say kind=labels"
        )

    def check_below(self, classes, targets):
        """ValueError if there are other numbers than the labels of so many classes. targets: their Columns."""
        others = np.setdiff1d(self.found, np.arange(classes))
        if len(others):
            raise ValueError(f"{targets.in_words()}: {others[0]:g} is none of the labels 0 to {classes - 1} to train on")
