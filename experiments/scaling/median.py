"""The median of repeated measurements, and how far it can be trusted without knowing how they are distributed.

Between the k-th smallest and the k-th largest of n independent values lies the median of what they are drawn from with the
probability 1 - 2 P(B < k), where B counts heads in n throws of a coin (David and Nagaraja, Order Statistics, 2003, section
7.1; for measurements of parallel programs Hoefler and Belli 2015, section 3.1.3). So few values say little: even the whole
range of 5 holds the median in 93.75 of 100 cases only, that of 6 in 96.9.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import comb
from statistics import median

from gridgrad.experiments.scaling.settings import OF_TRAINING

CONFIDENCE = 0.95
FEWEST = 6  # values whose range is an interval of this confidence


@dataclass(frozen=True)
class Median:
    """A median and its interval.

    value, low, high: in one unit. count: how many values it is of. confidence: the probability that the interval holds the
    median of what is measured; it is CONFIDENCE or more from FEWEST values on, and below them that of the whole range.
    """

    value: float
    low: float
    high: float
    count: int
    confidence: float

    @property
    def sure(self):
        """Whether there are enough values for an interval of CONFIDENCE."""
        return self.confidence >= CONFIDENCE

    @property
    def half_width(self):
        """How far the interval reaches to that side of the median on which it reaches further, relative to the median."""
        reach = max(self.high - self.value, self.value - self.low)
        return reach / self.value if reach else 0.0

    def over(self, other):
        """This median divided by another one, an independent one; the interval is between the extreme ratios."""
        confidence = max(0.0, self.confidence + other.confidence - 1)
        count = min(self.count, other.count)
        return Median(self.value / other.value, self.low / other.high, self.high / other.low, count, confidence)

    def times(self, factor):
        """This median in another unit: `factor` above 0."""
        return Median(self.value * factor, self.low * factor, self.high * factor, self.count, self.confidence)


def interval_of(values, metric):
    """The Median of values of a metric; of a metric of whole trainings the mean, with the interval of Student's t."""
    return mean_of(tuple(values)) if metric in OF_TRAINING else median_of(values)


@lru_cache
def mean_of(values):
    """The mean of some values, as a Median."""
    if len(values) == 1:
        return Median(values[0], values[0], values[0], 1, 0.0)
    from scipy.stats import ttest_1samp  # which takes long to import

    mean = sum(values) / len(values)
    low, high = ttest_1samp(values, mean).confidence_interval(CONFIDENCE) if min(values) < max(values) else (mean, mean)
    return Median(mean, float(low), float(high), len(values), CONFIDENCE)


def median_of(values):
    """The Median of at least one value."""
    ordered = sorted(values)
    count = len(ordered)
    rank = max((k for k in range(1, (count + 1) // 2 + 1) if covers(count, k) >= CONFIDENCE), default=1)
    return Median(median(ordered), ordered[rank - 1], ordered[-rank], count, covers(count, rank))


def covers(count, rank):
    """The probability that the median lies between the `rank`-th smallest and the `rank`-th largest of so many values."""
    return 1 - 2 * sum(comb(count, heads) for heads in range(rank)) / 2**count if count > 1 else 0.0
