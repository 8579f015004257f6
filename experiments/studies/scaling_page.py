"""The page of a scaling study, from what `sweep` wrote: one HTML file that opens anywhere.

    gridgrad study scaling-page results/sweep.jsonl --out results/sweep.html

Reads only the file: figures, tables that can be sorted, what failed and why, on what it was measured, what the planner would
have chosen where the file has predictions (`sweep --machine`), and the commands that repeat it.
"""

from pathlib import Path

from gridgrad.experiments.common.options import Parser, check_writable, user_input
from gridgrad.experiments.common.report import write_text
from gridgrad.experiments.scaling import page, records
from gridgrad.parallel.job.run import run_launcher


def options():
    parser = Parser(prog="study scaling-page", description="What did a scaling study find, on one page that opens anywhere?")
    parser.add_argument("reports", metavar="FILE.jsonl", nargs="+", help="what sweep wrote")
    parser.add_argument("--out", metavar="FILE.html", help="the page (default: beside the first file, as .html)")
    parser.add_argument("--title", help="of the page (default: the name of the first file)")
    return parser


def main():
    args = options().parse_args()
    first = Path(args.reports[0])
    out = args.out or str(first.with_suffix(".html"))
    with user_input():
        found = records.gather(args.reports)
        check_writable(out)
        write_text(out, page.render(found, args.title or f"Scaling study {first.stem}"))
    print(f"{out} written")


if __name__ == "__main__":
    run_launcher(main)
