"""The median of repeated measurements, or their mean, and how far it can be trusted.

The median of what n values are drawn from lies between the k-th smallest and the k-th largest of them with the probability
1 - 2 P(B < k), where B counts heads in n throws of a coin (David and Nagaraja 2003, section 7.1; Hoefler and Belli 2015).
"""

from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, median

CONFIDENCE = 0.95
FEWEST = 6  # values whose range is an interval of this confidence
OF_TRAINING = "accuracy", "loss"  # metrics of a whole training, of which the mean counts


@dataclass(frozen=True)
class Median:
    """A median, or mean, with its interval; confidence: that of the interval, below CONFIDENCE where there are few values."""

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
        """How far the interval reaches to its wider side, relative to the value."""
        reach = max(self.high - self.value, self.value - self.low)
        return reach / self.value if reach else 0.0

    def over(self, other):
        """The ratio to another, independent one; its interval is between the extreme ratios."""
        confidence = max(0.0, self.confidence + other.confidence - 1)
        count = min(self.count, other.count)
        return Median(self.value / other.value, self.low / other.high, self.high / other.low, count, confidence)

    def times(self, factor):
        """This median in another unit."""
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
