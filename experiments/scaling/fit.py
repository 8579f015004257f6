"""A machine fitted to a study's own points on few ranks, which predicts those on more ranks, with an interval.

No calibration is needed. The seconds of a step are taken as a sum of terms, each a count that follows from the network, the
grid and the plan (`parallel/prediction/workload.py`) times a constant of the machine:

| term                     | count in a step of the rank with the most work                           | constant          |
|--------------------------|--------------------------------------------------------------------------|-------------------|
| calls                    | operations                                                               | seconds of a call |
| arithmetic               | floating-point operations                                                | 1 / rate          |
| memory traffic           | bytes                                                                    | 1 / bandwidth     |
| rounds in a node/between | messages that follow one another in all collectives (Thakur et al. 2005) | latency alpha     |
| bytes in a node/between  | bytes sent; between nodes those of all ranks of a node together          | beta              |

The constants are not negative and fit best by the relative error (non-negative least squares, Lawson and Hanson 1974). The
interval of a prediction is that of fits to resampled points and runs (bootstrap, Efron 1979), widened by the spread of the
errors with which each point is predicted from all others.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from gridgrad.experiments.common.published_networks import published
from gridgrad.experiments.scaling.order import seconds_of
from gridgrad.parallel.grid.collectives import COLLECTIVES
from gridgrad.parallel.grid.process_grid import STAGE, parse_grid
from gridgrad.parallel.placement.plan import weighted
from gridgrad.parallel.plans.all_plans import words_of
from gridgrad.parallel.plans.place_network import place
from gridgrad.parallel.prediction.cost import busiest, local_shape
from gridgrad.parallel.prediction.workload import Workload
from gridgrad.parallel.protocols.protocol_names import SYNC

TERMS = ("calls", "arithmetic", "memory traffic", "rounds in a node", "bytes in a node", "rounds between nodes",
         "bytes between nodes")  # fmt: skip
UNITS = "s a call", "s an operation", "s a byte", "s a round", "s a byte", "s a round", "s a byte"
SAMPLES = 200  # of the bootstrap


@dataclass(frozen=True)
class Fit:
    """constants: one a term of TERMS, in the seconds of UNITS. samples: those of resampled points, a row each. spread: standard
    deviation of the logarithm of the ratio with which a point is predicted from all others."""

    constants: np.ndarray
    samples: np.ndarray
    spread: float

    def seconds(self, counts):
        """(predicted seconds of a step, low, high) of the counts of its terms; the interval is one of about 95 %."""
        low, high = np.percentile(self.samples @ counts, [2.5, 97.5])
        wide = np.exp(1.96 * self.spread)
        return float(self.constants @ counts), float(low / wide), float(high * wide)


def can_be_fitted(row):
    """Whether a Row is of what the terms describe: measured, synchronous, without stages, on a grid that is known."""
    settings = row.settings
    return bool(
        row.seconds and not row.is_predicted and settings.get("protocol", SYNC) == SYNC
        and parse_grid(row.grid).get(STAGE, 1) == 1 and row.runs[0].get("features")
    )  # fmt: skip


def counts_of(row):
    """The counts of the terms of a step of a Row, an array; see the table above."""
    run, sizes = row.runs[0], parse_grid(row.grid)
    shape = tuple(run["shape"]) if run.get("shape") else (run["features"],)
    net = published(row.net, shape, run["outputs"], row.settings.get("dtype") or "float32")
    plan = row.settings.get("plan") or "fewest-bytes"
    nodes = row.settings.get("hosts") or 1
    on_node = -(-row.ranks // int(nodes))
    grid = busiest(sizes, words_of(plan, weighted(net)), on_node)
    placed = place(net, grid, plan, None, None)
    workload = Workload(local_shape(placed.input, row.batch, grid), row.batch, net.dtype.itemsize)
    workload.step(placed.layers, grid)
    found = np.zeros(len(TERMS))
    for work in workload.works:
        if work.group is None:
            found[:3] += 1, work.flops, work.nbytes
        elif work.group.size > 1:
            near = work.group.size <= work.group.on_node
            sent = max(work.nbytes, work.most) * (1 if near else min(on_node, row.ranks) / work.group.on_node)
            found[3 if near else 5] += COLLECTIVES[work.name].rounds(work.group.size)
            found[4 if near else 6] += sent
    found[:3] *= max(1, row.ranks / (row.slots or row.ranks))  # ranks that share a core compute one after another
    return found


def fit(rows, seed=0):
    """The Fit of measured Rows. ValueError for fewer than three."""
    if len(rows) < 3:
        raise ValueError(f"{len(rows)} points are too few to fit a machine: at least 3 are needed")
    counts = np.array([counts_of(row) for row in rows])
    seconds = np.array([row.seconds.value for row in rows])
    rng = np.random.default_rng(seed)
    samples = []
    for _ in range(SAMPLES):
        chosen = rng.integers(len(rows), size=len(rows))
        drawn = [rng.choice([value for run in rows[i].runs if (value := seconds_of(run))]) for i in chosen]
        samples.append(constants(counts[chosen], np.array(drawn)))
    errors = []
    for left_out in range(len(rows)):
        others = np.arange(len(rows)) != left_out
        predicted = constants(counts[others], seconds[others]) @ counts[left_out]
        errors.append(np.log(max(predicted, 1e-12) / seconds[left_out]))
    return Fit(constants(counts, seconds), np.array(samples), float(np.sqrt(np.mean(np.square(errors)))))


def constants(counts, seconds):
    """The constants with which the terms fit the seconds best, by the relative error. counts: a row a point."""
    scaled = counts / seconds[:, None]
    sizes = np.maximum(np.abs(scaled).max(axis=0), 1e-300)  # so that all columns are alike
    return nnls(scaled / sizes, np.ones(len(seconds)))[0] / sizes


def forecast(rows, up_to):
    """(Fit, table rows) of the points on more than `up_to` ranks, predicted from those on at most so many."""
    usable = [row for row in unique(rows) if can_be_fitted(row)]
    known, further = ([row for row in usable if (row.ranks <= up_to) is few] for few in (True, False))
    found = fit(known)
    lines = []
    for row in further:
        middle, low, high = found.seconds(counts_of(row))
        lines.append({
            "network": row.network, "series": row.series, "scaling": row.scaling, "ranks": row.ranks, "batch": row.batch,
            "ms measured": 1e3 * row.seconds.value, "ms predicted": 1e3 * middle, "from": 1e3 * low, "to": 1e3 * high,
            "error %": 100 * (middle / row.seconds.value - 1), "within": low <= row.seconds.value <= high,
        })  # fmt: skip
    return found, lines


def unique(rows):
    """The rows, each point once, though it may belong to several curves."""
    seen = defaultdict(list)
    for row in rows:
        seen[row.is_predicted, row.net, row.grid, row.batch, str(sorted(row.settings.items(), key=str))].append(row)
    return [same[0] for same in seen.values()]
