"""How much work a part of a partition may have."""

import numpy as np


def limits_of(weights, k, epsilon, speeds=None):
    """(the most work of each of k parts, float (k,); the part that a vertex must be in, or -1, int64 (V,)).

    weights: of the vertices. The most is 1 + epsilon times a part's share of all work. speeds: the shares are as these numbers,
    one above 0 for each part; None if they are equal. A vertex that is larger than any of these limits gets a part for
    itself, the largest vertex that with the largest share, and its weight is the limit there. ValueError for bad arguments.
    """
    speeds = np.ones(k) if speeds is None else np.asarray(speeds, float)
    if speeds.shape != (k,) or not (np.isfinite(speeds) & (speeds > 0)).all():
        raise ValueError(f"speeds must be {k} numbers above 0, one for each part")
    if not 0 <= epsilon < np.inf:
        raise ValueError(f"epsilon, the part of its share by which a part may be too large, must be at least 0, not {epsilon}")
    limits = (1 + epsilon) * weights.sum() * speeds / speeds.sum()
    fixed = np.full(len(weights), -1)
    heavy = np.flatnonzero(weights > limits.max())
    heavy, alone = heavy[np.argsort(-weights[heavy], kind="stable")], np.argsort(-limits, kind="stable")[: len(heavy)]
    fixed[heavy], limits[alone] = alone, weights[heavy]
    return limits, fixed
