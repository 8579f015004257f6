"""What simple laws say of measured speedups: the serial fraction of Amdahl, and that of Karp and Flatt at each number of ranks.

If every rank does a share f of the step of one rank whole, and the ranks split the rest evenly, the speedup on P ranks is
1 / (f + (1 - f) / P) (Amdahl 1967). Solved for f at one measured point this is the experimentally determined serial fraction
(Karp and Flatt 1990). Where it grows with P, time is lost to what grows with P, such as communication; where it stays the same,
to work that every rank does.
"""

from collections import defaultdict

import numpy as np

from gridgrad.experiments.scaling.summary import is_busy_alone


def karp_flatt(speedup, ranks):
    """The serial fraction at one point; None on one rank. It is below 0 where the speedup is above the number of ranks."""
    return (1 / speedup - 1 / ranks) / (1 - 1 / ranks) if ranks > 1 else None


def amdahl(points):
    """The serial fraction that fits several points best, by least squares of the time over that of one rank; None without any.

    points: (ranks, speedup) pairs.
    """
    several = np.array([(ranks, speedup) for ranks, speedup in points if ranks > 1], np.float64).reshape(-1, 2)
    if not len(several):
        return None
    ranks, speedup = several.T
    factor, rest = 1 - 1 / ranks, 1 / speedup - 1 / ranks
    return float(factor @ rest / (factor @ factor))


def fractions(rows):
    """Table rows: for each measured curve of strong scaling the fraction of Amdahl, and those of Karp and Flatt by ranks.

    Points with more ranks than cores, and those measured on a busy machine, are left out.
    """
    curves = defaultdict(list)
    for row in rows:
        if row.speedup and row.scaling == "strong" and not row.is_predicted and not (row.oversubscribed or is_busy_alone(row)):
            curves[row.curve].append((row.ranks, row.speedup.value))
    return [
        {"network": curve.network, "series": curve.series,
         "Amdahl: serial %": refusal(serial, "the law does not fit: ") or 100 * serial,
         "Karp-Flatt, serial % on P ranks": ", ".join(
             f"{ranks}: {refusal(one) or f'{100 * one:.1f}'}" for ranks, speedup in points
             if (one := karp_flatt(speedup, ranks)) is not None)}
        for curve, points in curves.items() if (serial := amdahl(points)) is not None
    ]  # fmt: skip


def refusal(serial, words=""):
    """Words for a number that can be no serial fraction, behind others; empty for one that can."""
    if 0 <= serial <= 1:
        return ""
    return f"{words}{'slower than 1 rank' if serial > 1 else 'more than P times as fast'}"
