"""What the points of a sweep say: serial fractions, where predictions are wrong, and more ranks predicted from few.

    gridgrad study scaling-model results/sweep.jsonl --up-to 2 --out results/scaling_model.md

Three tables: the serial fractions of Amdahl and of Karp and Flatt; the terms of each step that was predicted too (`sweep
--machine`), worst first; and the points on more than `--up-to` ranks, predicted by a machine that is fitted to the points on at
most so many (`experiments/scaling/fit.py`), with intervals. Points that such a machine does not describe, such as those on more
ranks than cores, are left out and named with the reason.
"""

from statistics import median

from gridgrad.experiments.common.options import Parser, check_writable, user_input, whole
from gridgrad.experiments.common.report import write_text
from gridgrad.experiments.common.tables import counted, lines, terminal
from gridgrad.experiments.scaling import fit, laws, records, terms
from gridgrad.experiments.scaling.reported import checked
from gridgrad.experiments.scaling.summary import rows as rows_of
from gridgrad.parallel.job.run import run_launcher


def options():
    parser = Parser(
        prog="study scaling-model",
        description="What do the points of a sweep say of serial fractions, of predictions, and of more ranks?",
    )
    add = parser.add_argument
    add("reports", metavar="FILE.jsonl", nargs="+", help="what sweep wrote")
    add("--up-to", type=whole(1), default=2, metavar="P", help="the machine is fitted to the points on at most P ranks")
    add("--most", type=whole(1), default=20, metavar="N", help="terms of predictions to print, worst first")
    add("--out", metavar="FILE.md", help="also write the tables to this file, in Markdown")
    return parser


def document(rows, up_to, most):
    """The three tables in Markdown, those that there are. ValueError without any."""
    parts = ["# What the points of a sweep say"]
    if serial := laws.fractions(rows):
        parts += ["## Serial fractions of strong scaling", lines(serial)]
    if wrong := terms.errors(rows):
        parts += [f"## Terms of predicted steps, the {min(most, len(wrong))} worst of {len(wrong)}", lines(wrong[:most])]
    parts += fitted(rows, up_to)
    if len(parts) == 1:
        raise ValueError("nothing can be said of these points: measure several numbers of ranks")
    return "\n\n".join(parts) + "\n"


def fitted(rows, up_to):
    """The parts about the fitted machines: of each its constants and predictions, and which points are left out and why."""
    parts = []
    for words, of_machine in fit.machines(rows).items():
        known, further, left_out = fit.sorted_out(of_machine, up_to)
        parts.append(f"## A machine fitted to the points on at most {up_to} ranks{words and f': {words}'}")
        try:
            parts += of_fit(fit.fit(known), further)
        except ValueError as error:
            parts.append(f"No machine was fitted: {error}.")
        if left_out:
            parts += ["Points that are left out:", lines([left_out_line(*item) for item in left_out.items()])]
    return parts


def of_fit(found, further):
    """The parts about a Fit. further: the Counted points that it predicts."""
    used = zip(fit.TERMS, found.constants, fit.UNITS)
    parts = [lines([{"term": term, "constant": f"{value:.3g} {unit}"} for term, value, unit in used if value])]
    if further:
        predicted = fit.forecast(found, further)
        errors, inside = [abs(line["error %"]) for line in predicted], sum(line["within"] for line in predicted)
        parts += [lines(predicted), f"{counted(len(predicted), 'point')} on more ranks: median error {median(errors):.1f} %, "
                  f"worst {max(errors):.1f} %; {inside} within their interval."]  # fmt: skip
    return parts


def left_out_line(reason, rows):
    """A table row about the Rows that are left out for one reason."""
    return {
        "points": len(rows), "networks": "; ".join(dict.fromkeys(row.network for row in rows)),
        "series": "; ".join(dict.fromkeys(row.series for row in rows)),
        "ranks": ", ".join(map(str, sorted({row.ranks for row in rows}))), "why": reason,
    }  # fmt: skip


def main():
    args = options().parse_args()
    with user_input():
        rows = rows_of(checked(records.gather(args.reports)))
        text = document(rows, args.up_to, args.most)
        if args.out:
            check_writable(args.out)
            write_text(args.out, text)
    print(terminal(text))


if __name__ == "__main__":
    run_launcher(main)
