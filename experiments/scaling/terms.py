"""Where a prediction is wrong: the terms of measured steps beside those of their predictions.

A term is what a rank computes, a kind of collective, sums of gradients apart from others, or waiting for ranks that come later,
in seconds of a step, mean over the ranks. A prediction of the cost model has no waiting of its own: what ranks wait for each
other on average is in its collectives.
"""

from collections import defaultdict
from statistics import median

COMPUTE, WAIT = "compute", "wait"


def of_collective(layer, kind):
    """The term that a collective belongs to. layer, kind: as in a report."""
    return f"{kind} of gradients" if layer == "gradients" else kind


def measured(row):
    """{term: seconds} of a measured Row, medians over its runs; empty where they do not say."""
    if not row.parts:
        return {}
    found = {COMPUTE: row.parts["compute"] + row.parts["read"], WAIT: row.parts["wait"]}
    runs = [run["communication"] for run in row.runs if run.get("communication") is not None]
    for terms in (by_term(((one["layer"], one["kind"]), one["seconds"]) for one in run) for run in runs):
        for name in terms:
            found.setdefault(name, []).append(terms[name])
    return {name: median(value) if isinstance(value, list) else value for name, value in found.items()}


def predicted(cost):
    """{term: seconds} of a Cost."""
    sums = by_term(((work.layer, work.name), cost.seconds_of(work)) for work in cost.works if work.group is not None)
    return {COMPUTE: cost.parts["compute"] + cost.parts["update"]} | sums


def by_term(collectives):
    """{term: seconds} of ((layer, kind), seconds) pairs."""
    found = defaultdict(float)
    for (layer, kind), seconds in collectives:
        found[of_collective(layer, kind)] += seconds
    return dict(found)


def errors(rows):
    """Table rows of all terms of measured points that are predicted too, worst first: by their part of the measured step."""
    predictions = {(row.curve, row.ranks): row.runs[0].get("terms") for row in rows if row.is_predicted and row.runs}
    found = []
    for row in rows:
        known = None if row.is_predicted or not row.seconds else predictions.get((row.curve, row.ranks))
        ours = measured(row) if known else {}
        for term in dict.fromkeys([*ours, *(known or {})]) if ours else ():
            one, other = ours.get(term, 0.0), known.get(term, 0.0)
            share = (other - one) / row.seconds.value
            found.append((abs(share), {
                "network": row.network, "series": row.series, "ranks": row.ranks, "batch": row.batch, "term": term,
                "ms measured": 1e3 * one, "ms predicted": 1e3 * other, "error, % of the step": f"{100 * share:+.1f}",
            }))  # fmt: skip
    return [cells for _, cells in sorted(found, key=lambda pair: -pair[0])]
