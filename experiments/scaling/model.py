"""What the points of a sweep say beside its table: what `plot speedup --model` prints, and a page shows.

Serial fractions: with a share f of the step that every rank does whole the speedup on P ranks is 1 / (f + (1 - f) / P) (Amdahl
1967); solved for f at one point it is that of Karp and Flatt (1990), which grows with P where communication does. Terms of a
predicted step: computing, a kind of collective, or waiting, in seconds, mean over the ranks; a prediction has its waiting in
the collectives.
"""

from collections import defaultdict
from statistics import median

from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.scaling.records import key_of
from gridgrad.experiments.scaling.summary import is_busy_alone, steady

COMPUTE, WAIT = "compute", "wait"
MOST = 20  # terms that are shown


def tables(rows):
    """[(title, a sentence or "", table rows)] of some Rows; ValueError without any."""
    busy, quiet = [], []  # points of strong scaling: with more ranks than cores they say nothing of the program
    for row in rows:
        if row.scaling == "strong" and not row.is_predicted and not row.oversubscribed and row.ranks > 1:
            (busy if row.unlike or is_busy_alone(row) else quiet).append(row)
    serial, wrong, parts = fractions(quiet), errors(rows), []
    if serial or busy:
        named = "; ".join(f"{row.network}, {row.series} on {counted(row.ranks, 'rank')}" for row in busy)
        words = f"Left out, as other programs disturbed their runs or those on 1 rank: {named}." if busy else ""
        parts.append(("Serial fractions of strong scaling", words, serial))
    if wrong:
        parts.append((f"Terms of predicted steps, the {min(MOST, len(wrong))} worst of {len(wrong)}", "", wrong[:MOST]))
    if not parts:
        raise ValueError("nothing can be said of these points: measure several numbers of ranks")
    return parts


def karp_flatt(speedup, ranks):
    """The serial fraction at one point of several ranks. It is below 0 for a speedup above the ranks."""
    return (1 / speedup - 1 / ranks) / (1 - 1 / ranks)


def amdahl(points):
    """The serial fraction that fits (ranks, speedup) pairs best, by least squares of the time over that of one rank."""
    pairs = [(1 - 1 / ranks, 1 / speedup - 1 / ranks) for ranks, speedup in points]
    return sum(f * rest for f, rest in pairs) / sum(f * f for f, _ in pairs)


def fractions(rows):
    """Table rows: for each curve of some Rows the fraction of Amdahl, and those of Karp and Flatt by ranks."""
    curves, found = defaultdict(list), []
    for row in rows:
        if row.speedup:
            curves[row.curve].append((row.ranks, row.speedup.value))
    for curve, points in curves.items():
        serial = amdahl(points)
        found.append({
            "network": curve.network, "series": curve.series,
            "Amdahl: serial %": 100 * serial if 0 <= serial <= 1 else "the law does not fit",
            "Karp-Flatt, serial % on P ranks": ", ".join(f"{p}: {100 * karp_flatt(speedup, p):.1f}" for p, speedup in points),
        })  # fmt: skip
    return found


# ----- terms of steps


def terms_of_row(row):
    """{term: seconds} of a measured Row, which has parts: medians over its runs."""
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
    """Table rows of all terms of measured points that are predicted too, worst first by their part of the step. Points with
    more ranks than cores are left out: no model knows how long ranks wait for cores."""
    predictions = defaultdict(dict)  # {key of a point: {machine: {term: seconds}}}
    for row in rows:
        if row.is_predicted and row.runs and row.runs[0].get("terms"):
            predictions[key_of(row.runs[0])][row.origin.name] = row.runs[0]["terms"]
    points, found = {}, []
    for row in rows:
        if row.seconds and row.parts and not row.is_predicted and not row.oversubscribed:
            points.setdefault((key_of(row.runs[0]), row.origin), row)
    for (point, _), row in points.items():
        ours = terms_of_row(row)
        for machine, known in predictions[point].items():
            for term in dict.fromkeys([*ours, *known]):
                one, other = ours.get(term, 0.0), known.get(term, 0.0)
                share = (other - one) / row.seconds.value
                cells = {"network": row.network, "series": row.series, "ranks": row.ranks, "batch": row.batch,
                         "machine": machine, "term": term, "ms measured": 1e3 * one, "ms predicted": 1e3 * other,
                         "error, % of the step": f"{100 * share:+.1f}"}  # fmt: skip
                found.append((abs(share), cells))
    return [cells for _, cells in sorted(found, key=lambda pair: -pair[0])]
