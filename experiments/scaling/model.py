"""What the points of a sweep say beside its table, in Markdown: what `plot speedup --model` prints, and a page shows.

Serial fractions of Amdahl and of Karp and Flatt; the terms of each step that was predicted too (`sweep --machine`), the worst
first; and the points on more ranks than some, predicted with intervals by a machine that is fitted to the points on at most so
many (`fit.py`). Points that such a machine does not describe are left out and named with the reason.
"""

from statistics import median

from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.scaling import fit, laws, terms

MOST = 20  # terms that are shown


def tables(rows, up_to):
    """[(title, a sentence or "", table rows)] of some Rows. up_to: the ranks to which a machine is fitted. ValueError without
    any."""
    parts = []
    if serial := laws.fractions(rows):
        parts.append(("Serial fractions of strong scaling", "", serial))
    if wrong := terms.errors(rows):
        parts.append((f"Terms of predicted steps, the {min(MOST, len(wrong))} worst of {len(wrong)}", "", wrong[:MOST]))
    for words, of_machine in fit.machines(rows).items():
        parts += fitted(of_machine, up_to, words and f": {words}")
    if not parts:
        raise ValueError("nothing can be said of these points: measure several numbers of ranks")
    return parts


def fitted(rows, up_to, words):
    """The parts about a fitted machine: its constants, its predictions, and which points are left out and why."""
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
            errors, inside = [abs(line["error %"]) for line in predicted], sum(line["within"] for line in predicted)
            said = (f"{counted(len(predicted), 'point')} on more ranks: median error {median(errors):.1f} %, worst "
                    f"{max(errors):.1f} %; {inside} within their interval.")  # fmt: skip
            parts.append((f"Predicted from at most {up_to} ranks{words}", said, predicted))
    lines = [{"points": len(of_reason), "networks": "; ".join(dict.fromkeys(row.network for row in of_reason)),
              "series": "; ".join(dict.fromkeys(row.series for row in of_reason)),
              "ranks": ", ".join(map(str, sorted({row.ranks for row in of_reason}))), "why": reason}
             for reason, of_reason in left_out.items()]  # fmt: skip
    return parts + [(f"Left out of the fit{words}", "", lines)] * bool(lines)
