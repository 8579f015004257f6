"""The median of repeated measurements, or their mean, and how far it can be trusted.

Between the k-th smallest and the k-th largest of n independent values lies the median of what they are drawn from with the
probability 1 - 2 P(B < k), where B counts heads in n throws of a coin (David and Nagaraja, Order Statistics, 2003, section
7.1; for measurements of parallel programs Hoefler and Belli 2015, section 3.1.3). So few values say little: even the whole
range of 5 holds the median in 93.75 of 100 cases only, that of 6 in 96.9.
"""

from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, median

CONFIDENCE = 0.95
FEWEST = 6  # values whose range is an interval of this confidence
OF_TRAINING = "accuracy", "loss"  # metrics of a whole training, of which the mean counts


@dataclass(frozen=True)
class Median:
    """A median, or mean, and its interval.

    value, low, high: in one unit. count: how many values it is of. confidence: the probability that the interval holds what is
    measured; it is CONFIDENCE or more if there are enough values, and below that of their whole range.
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
        """How far the interval reaches to that side on which it reaches further, relative to the value."""
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


def interval_of(values, metric="seconds"):
    """The Median of at least one value; of a metric of whole trainings the mean, with the interval of Student's t."""
    ordered, count = sorted(values), len(values)
    if metric not in OF_TRAINING:
        rank, confidence = _ends(count)
        return Median(median(ordered), ordered[rank - 1], ordered[-rank], count, confidence)
    from scipy.stats import ttest_1samp  # which takes long to import

    mean = fmean(ordered)
    alike = ordered[0] == ordered[-1]
    low, high = (mean, mean) if alike else map(float, ttest_1samp(ordered, mean).confidence_interval(CONFIDENCE))
    return Median(mean, low, high, count, CONFIDENCE if count > 1 else 0.0)


@lru_cache
def _ends(count):
    """(k, its probability) of the narrowest interval of a median of `count` values with CONFIDENCE; of few the widest."""
    from scipy.stats import binom

    rank = max(1, int(binom.ppf((1 - CONFIDENCE) / 2, count, 0.5)))
    return rank, 1 - 2 * float(binom.cdf(rank - 1, count, 0.5)) if count > 1 else 0.0
