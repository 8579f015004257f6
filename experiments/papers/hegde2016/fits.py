"""Least squares through measured times."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class FittedLine:
    """y = slope x + intercept. r2: the share of the variance of y that the line explains, R^2."""

    slope: float
    intercept: float
    r2: float

    def __call__(self, x):
        return self.slope * np.asarray(x) + self.intercept


@dataclass(frozen=True)
class Power:
    """y = factor x^exponent. r2: R^2 of the straight line through the logarithms."""

    factor: float
    exponent: float
    r2: float

    def __call__(self, x):
        return self.factor * np.asarray(x, float) ** self.exponent


def line(x, y):
    """The Line of least squares. Needs two different x."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    slope, intercept = np.polyfit(x, y, 1)
    residual, total = ((y - slope * x - intercept) ** 2).sum(), ((y - y.mean()) ** 2).sum()
    return FittedLine(float(slope), float(intercept), float(1 - residual / total) if total else 1.0)


def power(x, y):
    """The Power whose logarithm is the line of least squares through those of x and y, which are above 0."""
    logarithms = line(np.log(x), np.log(y))
    return Power(float(np.exp(logarithms.intercept)), logarithms.slope, logarithms.r2)


def power_of(exponent, x, y):
    """The factor of y = factor x^exponent, by least squares through the logarithms."""
    return float(np.exp(np.mean(np.log(y) - exponent * np.log(x))))
