"""Repeat the experiments of a paper.

    python -m experiments.reproduce laugier2018

Writes tables (Markdown and JSON) and figures under results/PAPER. `--tables-only` leaves out all that needs a run.
"""

import json
from pathlib import Path

from datasets.files import written_whole
from experiments import laugier2018
from experiments.options import Parser, check_writable, user_input, whole_list
from parallel.job import UserError, run_launcher

PAPERS = {"laugier2018": laugier2018}


def main():
    parser = Parser(prog="reproduce", description="Repeat the experiments of a paper.")
    parser.add_argument("paper", choices=PAPERS, help="which paper")
    parser.add_argument("--tables-only", action="store_true", help="only what follows from formulas; starts no job")
    parser.add_argument("--json", metavar="FILE", help="also write the tables there")
    parser.add_argument("--out", metavar="DIR", help="folder for tables and figures; default results/PAPER")
    parser.add_argument("--data-dir", metavar="DIR", help="as of train")
    parser.add_argument("--ranks", type=whole_list, default=[1, 2, 4], metavar="P,P,..", help="numbers of ranks to run on")
    args = parser.parse_args()
    if 1 not in args.ranks:
        raise UserError("--ranks must hold 1: speedups are over the run on one rank")
    out = Path(args.out or f"results/{args.paper}")
    with user_input():
        for path in filter(None, (args.json, out / "tables.md")):
            check_writable(path)
    paper = PAPERS[args.paper]
    tables = paper.tables()
    if not args.tables_only:
        tables |= paper.experiments(out, args.ranks, args.data_dir)
    text = paper.as_markdown(tables)
    print(text)
    for path, content in ((args.json, json.dumps(tables, indent=1) + "\n"), (out / "tables.md", text)):
        if path and not (args.tables_only and path == out / "tables.md"):
            with written_whole(path) as beside:
                beside.write_text(content)


if __name__ == "__main__":
    run_launcher(main)
