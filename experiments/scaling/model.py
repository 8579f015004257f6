"""What the points of a sweep say beside its table: what `plot speedup --model` prints, and a page shows.

**Serial fractions.** If every rank does a share f of the step of one rank whole, and the ranks split the rest evenly, the
speedup on P ranks is 1 / (f + (1 - f) / P) (Amdahl 1967). Solved for f at one measured point this is the experimentally
determined serial fraction (Karp and Flatt 1990): where it grows with P, so does what takes the time, such as communication.

**Terms of predicted steps.** A term is computing, a kind of collective (sums of gradients apart from the others), or waiting
for ranks that come later, in seconds of a step, mean over the ranks. A prediction has no waiting of its own; what ranks wait
for each other on average is in its collectives.

**A fitted machine** (`fit.py`) predicts the points on more ranks than some from the others, with intervals.
"""

from collections import defaultdict
from statistics import median

import numpy as np

from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.scaling.records import key_of
from gridgrad.experiments.scaling.summary import is_busy_alone, origin_of

COMPUTE, WAIT = "compute", "wait"
MOST = 20  # terms that are shown


def tables(rows, up_to):
    """[(title, a sentence or "", table rows)] of some Rows. up_to: the ranks to which a machine is fitted. ValueError without
    any."""
    from gridgrad.experiments.scaling import fit  # which takes long to import

    parts = []
    if serial := fractions(rows):
        parts.append(("Serial fractions of strong scaling", "", serial))
    if wrong := errors(rows):
        parts.append((f"Terms of predicted steps, the {min(MOST, len(wrong))} worst of {len(wrong)}", "", wrong[:MOST]))
    for words, of_machine in fit.machines(rows).items():
        parts += fitted(fit, of_machine, up_to, words and f": {words}")
    if not parts:
        raise ValueError("nothing can be said of these points: measure several numbers of ranks")
    return parts


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


# ----- terms of steps


def terms_of_row(row):
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


def fitted(fit, rows, up_to, words):
    """The parts about a machine fitted by the module `fit`: constants, predictions, and which points are left out and why."""
    known, further, left_out = fit.sorted_out(rows, up_to)
    title = f"A machine fitted to the points on at most {up_to} ranks{words}"
    try:
        found = fit.fit(known)
    except ValueError as error:
        parts = [(title, f"No machine was fitted: {error}.", [])]
    else:
        used = zip(fit.TERMS, found.constants, fit.UNITS)
        parts = [(title, "", [{"term": term, "constant": f"{value:.3g} {unit}"} for term, value, unit in used if value])]
        if predicted := fit.forecast(found, further):
            wrong, inside = [abs(line["error %"]) for line in predicted], sum(line["within"] for line in predicted)
            said = (f"{counted(len(predicted), 'point')} on more ranks: median error {median(wrong):.1f} %, worst "
                    f"{max(wrong):.1f} %; {inside} within their interval.")  # fmt: skip
            parts.append((f"Predicted from at most {up_to} ranks{words}", said, predicted))
    lines = [{"points": len(of_reason), "networks": "; ".join(dict.fromkeys(row.network for row in of_reason)),
              "series": "; ".join(dict.fromkeys(row.series for row in of_reason)),
              "ranks": ", ".join(map(str, sorted({row.ranks for row in of_reason}))), "why": reason}
             for reason, of_reason in left_out.items()]  # fmt: skip
    return parts + [(f"Left out of the fit{words}", "", lines)] * bool(lines)
