"""The best partition of a chain of layers over few ranks, with a proof that there is none better.

The counts of `chains.py` are the integers of a linear program: y says whether a rank owns any filter of a layer, and z
how many maps of the layer before stay where they are, which is at most the rank's count of that layer, and none without y. What
a layer sends is then linear. SciPy's solver, HiGHS, proves the optimum of VGG16 for 2 and 4 ranks within a second, and for 8
within minutes; `chains.py` finds the same partitions in seconds, without a proof, and goes on to any number of ranks.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from gridgrad.parallel.partitioning.chains import capacities

PROVED = 0  # status of `milp`


@dataclass(frozen=True, eq=False)
class Exact:
    """counts: the best partition that was found. volume: what it sends. bound: what every partition sends at least. proved:
    whether the volume equals the bound, up to rounding, so that no partition sends less."""

    counts: np.ndarray
    volume: float
    bound: float
    proved: bool


def solve(chain, speeds, epsilon=0.1, seconds=None):
    """The partition of least volume in which no rank has more work than `capacities` says, an `Exact`.

    speeds: the relative speed of each rank. seconds: how long to look for it; without it, as long as it takes.
    Raises ValueError if there is no such partition, or none was found within this time.
    """
    most = capacities(chain, speeds, epsilon)
    layers, ranks = len(chain.filters), len(most)
    x, y, z = (np.arange(layers * ranks).reshape(layers, ranks) + kind * layers * ranks for kind in range(3))
    program = Program(3 * layers * ranks)
    for layer, filters in enumerate(chain.filters):
        program.add([(x[layer], 1)], filters, filters)
        for r in range(ranks):
            program.add([(x[layer, r], 1), (y[layer, r], -filters)], -np.inf, 0)
            if layer:
                program.add([(z[layer, r], 1), (x[layer - 1, r], -1)], -np.inf, 0)
                program.add([(z[layer, r], 1), (y[layer, r], -chain.filters[layer - 1])], -np.inf, 0)
    for r in range(ranks):
        program.add([(x[:, r], chain.works)], -np.inf, most[r])
    equal = np.flatnonzero(most[1:] == most[:-1])
    for r in equal:  # of partitions that differ in the names of equal ranks alone, one is enough
        program.add([(x[:, r], chain.works), (x[:, r + 1], -chain.works)], 0, np.inf)
    objective = np.zeros(3 * layers * ranks)
    objective[y[1:]] = (chain.costs * chain.filters)[:-1, None]
    objective[z[1:]] = -chain.costs[:-1, None]
    high = np.concatenate([np.repeat(chain.filters, ranks), np.ones(layers * ranks), np.full(layers * ranks, np.inf)])
    whole = np.concatenate([np.ones(2 * layers * ranks), np.zeros(layers * ranks)])
    options = {"mip_rel_gap": 0} | ({} if seconds is None else {"time_limit": seconds})
    result = milp(objective, integrality=whole, bounds=Bounds(0, high), constraints=program.constraints(), options=options)
    if result.x is None:
        raise ValueError(f"no partition of {layers} layers over {ranks} ranks: {result.message}")
    counts = chain.check(np.rint(result.x[x]).astype(int))
    return Exact(counts, chain.volume(counts), float(result.mip_dual_bound), result.status == PROVED)


class Program:
    """The constraints of a linear program, row by row."""

    def __init__(self, variables):
        self.variables, self.entries, self.low, self.high = variables, [], [], []

    def add(self, terms, low, high):
        """low <= the sum of the terms <= high. terms: (variables, coefficients), numbers or arrays."""
        for variables, coefficients in terms:
            variables = np.atleast_1d(variables)
            self.entries.append(
                (np.full(len(variables), len(self.low)), variables, np.broadcast_to(coefficients, variables.shape))
            )
        self.low.append(low)
        self.high.append(high)

    def constraints(self):
        rows, columns, values = (np.concatenate(parts) for parts in zip(*self.entries))
        matrix = coo_array((values.astype(float), (rows, columns)), shape=(len(self.low), self.variables))
        return LinearConstraint(matrix.tocsr(), self.low, self.high)
