"""Where a prediction is wrong: the terms of measured steps beside those of their predictions.

A term is computing, a kind of collective (sums of gradients apart from the others), or waiting for ranks that come later, in
seconds of a step, mean over the ranks. A prediction of the cost model has no waiting of its own; what ranks wait for each other
on average is in its collectives.
"""

from collections import defaultdict
from statistics import median

from gridgrad.experiments.scaling.records import key_of
from gridgrad.experiments.scaling.summary import origin_of

COMPUTE, WAIT = "compute", "wait"


def of_collective(layer, kind):
    """The term that a collective belongs to. layer, kind: as in a report."""
    return f"{kind} of gradients" if layer == "gradients" else kind


def measured(row):
    """{term: seconds} of a measured Row, medians over its runs; empty where they do not say."""
    if not row.parts:
        return {}
    found = defaultdict(list)
    for run in row.runs:
        rows = ((one["layer"], one["kind"], one.get("seconds") or 0.0) for one in run.get("communication") or ())
        for term, seconds in by_term(rows).items():
            found[term].append(seconds)
    own = {COMPUTE: row.parts["compute"] + row.parts["read"], WAIT: row.parts["wait"]}
    return own | {term: median(seconds) for term, seconds in found.items()}


def predicted(cost):
    """{term: seconds} of a Cost."""
    sums = by_term((work.layer, work.name, cost.seconds_of(work)) for work in cost.works if work.group is not None)
    return {COMPUTE: cost.parts["compute"] + cost.parts["update"]} | sums


def by_term(collectives):
    """{term: seconds} of (layer, kind, seconds) triples."""
    found = defaultdict(float)
    for layer, kind, seconds in collectives:
        found[of_collective(layer, kind)] += seconds
    return dict(found)


def errors(rows):
    """Table rows of all terms of measured points that are predicted too, worst first: by their part of the measured step.

    Each point is there once, whichever series share it, and those with more ranks than cores are not: no model knows how long
    ranks wait for cores.
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
        ours = measured(row)
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
