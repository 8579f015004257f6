"""Repeat the experiments of a paper.

    python -m experiments.reproduce laugier2018
    python -m experiments.reproduce grabaskas2018
    python -m experiments.reproduce hegde2016
    python -m experiments.reproduce marques2016
    python -m experiments.reproduce eserol2019

Writes tables (Markdown and JSON) and figures under results/PAPER. `--tables-only` starts no job: it takes the measurements that
an earlier run left in tables.json, and computes everything else again. Only sweeps draw the figures of laugier2018.
"""

import json
from pathlib import Path

from experiments.common.options import Parser, check_writable, user_input, whole_list
from experiments.common.report import write_text
from experiments.papers import eserol2019, grabaskas2018, hegde2016, laugier2018, marques2016
from parallel.job.run import UserError, run_launcher

PAPERS = {
    "laugier2018": laugier2018, "grabaskas2018": grabaskas2018, "hegde2016": hegde2016, "marques2016": marques2016,
    "eserol2019": eserol2019,
}  # fmt: skip
FULL = "grabaskas2018: run every line in full, which takes hours; marques2016: more rounds"


def main():
    parser = Parser(prog="reproduce", description="Repeat the experiments of a paper.")
    parser.add_argument("paper", choices=PAPERS, help="the paper")
    parser.add_argument(
        "--tables-only",
        action="store_true",
        help="start no job: write the tables from formulas and the results of an earlier run",
    )
    parser.add_argument("--json", metavar="FILE", help="also write the tables to this file")
    parser.add_argument("--out", metavar="DIR", help="folder for tables and figures; default results/PAPER")
    parser.add_argument("--data-dir", metavar="DIR", help="see train --help")
    parser.add_argument(
        "--ranks",
        type=whole_list,
        default=[1, 2, 4],
        metavar="P,P,..",
        help="numbers of ranks to run on; hegde2016 and eserol2019 have none",
    )
    parser.add_argument("--full", action="store_true", help=FULL)
    args = parser.parse_args()
    if 1 not in args.ranks:
        raise UserError("--ranks must hold 1: speedups are over the run on one rank")
    out = Path(f"results/{args.paper}" if args.out is None else args.out)
    paper, kept = PAPERS[args.paper], out / "tables.json"
    with user_input():
        for path in (out / "tables.md", *([] if args.json is None else [args.json])):
            check_writable(path)
        earlier = json.loads(kept.read_text()) if args.tables_only and kept.exists() else {}
    measured = earlier if args.tables_only else paper.experiments(out, args.ranks, args.data_dir, args.full)
    tables = paper.tables(measured)
    text, content = paper.as_markdown(tables), json.dumps(tables, indent=1) + "\n"
    print(text)
    results = [(out / "tables.md", text), (kept, content)] if measured else []
    for path, written in [*results, *([] if args.json is None else [(args.json, content)])]:
        write_text(path, written)
    if measured and hasattr(paper, "draw"):
        paper.draw(tables, out)  # last, so that a figure that fails costs no measurement


if __name__ == "__main__":
    run_launcher(main)
