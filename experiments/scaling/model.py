"""What the points of a sweep say beside its table: what `plot speedup --model` prints, and a page shows.

Serial fractions: with a share f of the step that every rank does whole the speedup on P ranks is 1 / (f + (1 - f) / P) (Amdahl
1967); solved for f at one point it is that of Karp and Flatt (1990), which grows with P where communication does. Terms of a
predicted step: computing, a kind of collective, or waiting, in seconds, mean over the ranks; a prediction has its waiting in
the collectives.

A machine fitted to the points on few ranks predicts those on more. The seconds of a step are a sum of TERMS, each a count of
the rank with most work (`parallel/prediction/workload.py`) times a constant. The constants fit best by the relative error and
are not negative (Lawson and Hanson 1974). The interval is that of fits to resampled points and runs (Efron 1979), widened by
the errors with which each point is predicted from all others; it holds 95 of 100 steps of machines that the terms describe.
More ranks than cores are left out; on emulated hosts what ranks compute counts as often as there are ranks to a core.
"""

from collections import defaultdict
from dataclasses import dataclass
from math import prod
from statistics import median

import numpy as np

from gridgrad.experiments.common.problems import published
from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.scaling.records import key_of, seconds_of
from gridgrad.experiments.scaling.summary import difference, is_busy_alone, origin_of, steady
from gridgrad.nn.files.documents import is_number
from gridgrad.parallel.grid.collectives import COLLECTIVES
from gridgrad.parallel.grid.process_grid import STAGE, parse_grid
from gridgrad.parallel.plans.place_network import place
from gridgrad.parallel.prediction.cost import local_shape, slowest_rank
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from gridgrad.parallel.prediction.workload import Workload
from gridgrad.parallel.protocols.protocol_names import SYNC

COMPUTE, WAIT = "compute", "wait"
MOST = 20  # terms that are shown
TERMS = ("calls", "arithmetic", "memory traffic", "rounds in a node", "bytes in a node", "rounds between nodes",
         "bytes between nodes")  # fmt: skip
UNITS = "s a call", "s an operation", "s a byte", "s a round", "s a byte", "s a round", "s a byte"
FEWEST = 3  # points of a fit
SAMPLES = 200  # of the bootstrap
CROWDED = "more ranks than cores"


def tables(rows, up_to):
    """[(title, a sentence or "", table rows)] of some Rows; ValueError without any. up_to: ranks that are fitted."""
    parts = []
    serial = fractions(rows)
    busy = [row for row in rows if of_strong(row) and is_disturbed(row)]
    if serial or busy:
        named = "; ".join(f"{row.network}, {row.series} on {counted(row.ranks, 'rank')}" for row in busy)
        words = f"Left out, as other programs disturbed their runs or those on 1 rank: {named}." if busy else ""
        parts.append(("Serial fractions of strong scaling", words, serial))
    if wrong := errors(rows):
        parts.append((f"Terms of predicted steps, the {min(MOST, len(wrong))} worst of {len(wrong)}", "", wrong[:MOST]))
    for words, of_machine in machines(rows).items():
        known, further, left_out = sorted_out(of_machine, up_to)
        name = f"at most {up_to} ranks{words and ': '}{words}"
        constants, refused, predicted = [], "", []
        try:
            found = fit(known)
        except ValueError as error:
            refused = f"No machine was fitted: {error}."
        else:
            used = zip(TERMS, found.constants, UNITS)
            constants = [{"term": term, "constant": f"{value:.3g} {unit}"} for term, value, unit in used if value]
            predicted = forecast(found, further)
        parts.append((f"A machine fitted to the points on {name}", refused, constants))
        if predicted:
            error, inside = median(abs(line["error %"]) for line in predicted), sum(line["within"] for line in predicted)
            words = f"Median error {error:.1f} %, {inside} of {len(predicted)} within their interval."
            parts.append((f"Predicted from {name}", words, predicted))
        if left_out:
            parts.append((f"Left out of the fit to {name}", "", [
                {"points": len(of), "networks": "; ".join(dict.fromkeys(row.network for row in of)),
                 "series": "; ".join(dict.fromkeys(row.series for row in of)),
                 "ranks": ", ".join(map(str, sorted({row.ranks for row in of}))), "why": why} for why, of in left_out.items()
            ]))  # fmt: skip
    if not parts:
        raise ValueError("nothing can be said of these points: measure several numbers of ranks")
    return parts


def karp_flatt(speedup, ranks):
    """The serial fraction at one point; None on one rank. It is below 0 for a speedup above the ranks."""
    return (1 / speedup - 1 / ranks) / (1 - 1 / ranks) if ranks > 1 else None


def amdahl(points):
    """The serial fraction that fits (ranks, speedup) pairs best, by least squares of the time over that of one rank."""
    several = [(1 - 1 / ranks, 1 / speedup - 1 / ranks) for ranks, speedup in points if ranks > 1]
    return sum(f * rest for f, rest in several) / sum(f * f for f, _ in several) if several else None


def of_strong(row):
    """Whether a Row is a measured point of strong scaling on no more ranks than cores."""
    return row.scaling == "strong" and not row.is_predicted and not row.oversubscribed and row.ranks > 1


def is_disturbed(row):
    """Whether a Row has no speedup that says anything, as other programs ran beside it, or beside the run on one rank."""
    return row.unlike or is_busy_alone(row)


def fractions(rows):
    """Table rows: for each measured curve of strong scaling the fraction of Amdahl, and those of Karp and Flatt by ranks.

    Points with more ranks than cores, and those on a busy machine, are left out.
    """
    curves = defaultdict(list)
    for row in rows:
        if row.speedup and of_strong(row) and not is_disturbed(row):
            curves[row.curve].append((row.ranks, row.speedup.value))
    return [
        {"network": curve.network, "series": curve.series,
         "Amdahl: serial %": 100 * serial if 0 <= serial <= 1 else "the law does not fit",
         "Karp-Flatt, serial % on P ranks": ", ".join(
             f"{ranks}: {100 * karp_flatt(speedup, ranks):.1f}" for ranks, speedup in points)}
        for curve, points in curves.items() if (serial := amdahl(points)) is not None
    ]  # fmt: skip


# ----- terms of steps


def terms_of_row(row):
    """{term: seconds} of a measured Row, medians over its runs; empty where they do not say."""
    if not row.parts:
        return {}
    found = defaultdict(list)
    for run in row.runs:
        factor = steady(run)
        rows = ((one["layer"], one["kind"], factor * (one.get("seconds") or 0.0)) for one in run.get("communication") or ())
        for term, seconds in by_term(rows).items():
            found[term].append(seconds)
    own = {COMPUTE: row.parts["compute"] + row.parts["read"], WAIT: row.parts["wait"]}
    return own | {term: median(seconds) for term, seconds in found.items()}


def terms_of_cost(cost):
    """{term: seconds} of a Cost."""
    sums = by_term((work.layer, work.name, cost.seconds_of(work)) for work in cost.works if work.group is not None)
    return {COMPUTE: cost.parts["compute"] + cost.parts["update"]} | sums


def by_term(collectives):
    """{term: seconds} of (layer, kind, seconds) triples."""
    found = defaultdict(float)
    for layer, kind, seconds in collectives:
        found[f"{kind} of gradients" if layer == "gradients" else kind] += seconds
    return dict(found)


def errors(rows):
    """Table rows of all terms of measured points that are predicted too, worst first by their part of the step.

    Points with more ranks than cores are left out: no model knows how long ranks wait for cores.
    """
    predictions = defaultdict(dict)  # {key of a point: {machine: {term: seconds}}}
    for row in rows:
        if row.is_predicted and row.runs and row.runs[0].get("terms"):
            predictions[key_of(row.runs[0])][origin_of(row.runs[0]).name] = row.runs[0]["terms"]
    points = {}
    for row in rows:
        if row.seconds and not row.is_predicted and not row.oversubscribed:
            points.setdefault((key_of(row.runs[0]), origin_of(row.runs[0])), row)
    found = []
    for (point, _), row in points.items():
        ours = terms_of_row(row)
        for machine, known in predictions[point].items() if ours else ():
            for term in dict.fromkeys([*ours, *known]):
                one, other = ours.get(term, 0.0), known.get(term, 0.0)
                share = (other - one) / row.seconds.value
                found.append((abs(share), {
                    "network": row.network, "series": row.series, "ranks": row.ranks, "batch": row.batch, "machine": machine,
                    "term": term, "ms measured": 1e3 * one, "ms predicted": 1e3 * other,
                    "error, % of the step": f"{100 * share:+.1f}",
                }))  # fmt: skip
    return [cells for _, cells in sorted(found, key=lambda pair: -pair[0])]


# ----- a fitted machine


@dataclass(frozen=True, eq=False)
class Fit:
    """constants: one a term, in UNITS. samples: those of resampled points, a row each. spread: of the logarithms of the ratios
    with which each point is predicted from all others, the root of the mean square.
    """

    constants: np.ndarray
    samples: np.ndarray
    spread: float

    def seconds(self, counts):
        """(seconds of a step, low, high) of the counts of its terms."""
        low, high = np.percentile(self.samples @ counts, [2.5, 97.5])
        wide = np.exp(1.96 * self.spread)
        return float(self.constants @ counts), float(low / wide), float(high * wide)


def machines(rows):
    """{words that tell it apart: measured Rows with times, each point once} of each machine, number of threads and dtype."""
    found, environments, words = defaultdict(dict), {}, defaultdict(list)
    for row in rows:
        if row.seconds and not row.is_predicted:
            place = origin_of(row.runs[0]), row.settings.get("threads"), row.settings.get("dtype") or "float32"
            environments[place] = row.environment | ({"threads": place[1]} if place[1] else {})
            found[place].setdefault(key_of(row.runs[0]), row)
    several = len({dtype for *_, dtype in found}) > 1
    for place, points in found.items():
        parts = difference(environments[place], environments), several and f"dtype {place[2]}"
        words[", ".join(filter(None, parts))] += points.values()
    return dict(words)


def sorted_out(rows, up_to):
    """([(Row, counts)] on at most `up_to` ranks, those on more, {reason: Rows that are left out}) of a machine."""
    known, further, left_out = [], [], defaultdict(list)
    for row in sorted(rows, key=lambda row: row.ranks > up_to):
        try:
            counts = counts_of(row)
            seen = sum(of for _, of in known) if known and row.ranks > up_to else counts
            if new := [term for term, here, there in zip(TERMS, counts, seen) if here and not there]:
                raise ValueError(f"the fitted points, on at most {up_to} ranks, have no {' and no '.join(new)}")
        except ValueError as error:
            left_out[str(error)].append(row)
        else:
            (known if row.ranks <= up_to else further).append((row, counts))
    return known, further if known else [], dict(left_out)


def counts_of(row):
    """The counts of the terms of a step of a measured Row; ValueError, with the reason, for what they do not describe."""
    sizes, settings = parse_grid(row.grid), row.settings
    check_described(row, sizes)
    net = network_of(row, row.runs[0])
    if net is None:
        raise ValueError("the report does not say enough to build the network")
    plan, hosts = settings.get("plan") or "fewest-bytes", settings.get("hosts") or 1
    if not isinstance(plan, str):
        raise ValueError(f"there is no plan {plan}")
    if not is_number(hosts) or hosts < 1:
        raise ValueError(f"there is no job on {hosts} hosts")
    on_node = -(-row.ranks // int(hosts))
    crowd = max(1.0, row.ranks / row.slots) if hosts > 1 and row.slots else 1.0
    grid = slowest_rank(net, PlacementSpec(sizes, plan), on_node, crowd)
    placed = place(net, grid, plan, None, None)
    workload = Workload(local_shape(placed.input, row.batch, grid), row.batch, net.dtype.itemsize)
    workload.step(placed.layers, grid)
    found = np.zeros(len(TERMS))
    for work in workload.works:
        if work.group is None:
            found[:3] += crowd, crowd * work.flops, crowd * work.nbytes
        elif work.group.size > 1:
            near = work.group.size <= work.group.on_node
            sent = max(work.nbytes, work.most) * (1 if near else min(on_node, row.ranks) / work.group.on_node)
            found[3 if near else 5] += COLLECTIVES[work.name].rounds(work.group.size)
            found[4 if near else 6] += sent
    return found


def network_of(row, run):
    """The serial network of a Row, which takes no memory until it is used; None where the report does not say enough: with a
    number of features alone, it must be that of the published shape.
    """
    features, outputs, shape = run.get("features"), run.get("outputs"), run.get("shape")
    if not outputs or not (shape or features):
        return None
    asked = shape or ([features] if row.net.startswith("mlp:") else None)
    try:
        net = published(row.net, asked, outputs, row.settings.get("dtype") or "float32")
    except ValueError:
        return None
    return net if asked or prod(net.input_shape) == features else None


def check_described(row, sizes):
    """Raise ValueError, with the reason, for a step that has more than the terms. sizes: of its grid."""
    reasons = {
        CROWDED: row.oversubscribed and not row.settings.get("hosts"),
        "pipelines have idle times that are no term": sizes.get(STAGE, 1) > 1,
        "ranks that are not synchronous wait in other ways": row.settings.get("protocol", SYNC) != SYNC,
        "the ranks have unequal shares or speeds": any(map(row.settings.get, ("shares", "rebalance", "handicap"))),
    }
    for reason in (reason for reason, is_so in reasons.items() if is_so):
        raise ValueError(reason)


def fit(known):
    """The Fit of (Row, counts) pairs; ValueError for fewer than FEWEST."""
    if len(known) < FEWEST:
        raise ValueError(f"{len(known)} points are too few to fit a machine: at least {FEWEST} are needed")
    runs = [[value for run in row.runs if (value := seconds_of(run))] for row, _ in known]
    return fit_of(np.array([counts for _, counts in known]), np.array([row.seconds.value for row, _ in known]), runs)


def fit_of(counts, seconds, runs, seed=0):
    """The Fit of points. counts: a row of terms a point. seconds: the median of each. runs: the seconds of its runs."""
    rng = np.random.default_rng(seed)
    samples = []
    for _ in range(SAMPLES):
        chosen = rng.integers(len(counts), size=len(counts))
        samples.append(constants(counts[chosen], np.array([rng.choice(runs[i]) for i in chosen])))
    errors = []
    for left_out in range(len(counts)):
        others = np.arange(len(counts)) != left_out
        predicted = constants(counts[others], seconds[others]) @ counts[left_out]
        errors.append(np.log(max(predicted, 1e-12) / seconds[left_out]))
    return Fit(constants(counts, seconds), np.array(samples), float(np.sqrt(np.mean(np.square(errors)))))


def constants(counts, seconds):
    """The constants with which the terms fit the seconds best, by the relative error."""
    from scipy.optimize import nnls  # which takes long to import

    scaled = counts / seconds[:, None]
    sizes = np.maximum(np.abs(scaled).max(axis=0), 1e-300)  # so that all columns are alike
    return nnls(scaled / sizes, np.ones(len(seconds)))[0] / sizes


def forecast(found, further):
    """Table rows: (Row, counts) pairs beside what a Fit predicts for them."""
    lines = []
    for row, counts in further:
        middle, low, high = found.seconds(counts)
        lines.append({
            "network": row.network, "series": row.series, "scaling": row.scaling, "ranks": row.ranks, "batch": row.batch,
            "ms measured": 1e3 * row.seconds.value, "ms predicted": 1e3 * middle, "from": 1e3 * low, "to": 1e3 * high,
            "error %": 100 * (middle / row.seconds.value - 1), "within": low <= row.seconds.value <= high,
        })  # fmt: skip
    return lines
