"""Repeat the experiments of a paper, or of several or all of them, and put all numbers on one page.

    gridgrad reproduce all
    gridgrad reproduce hegde2016 marques2016
    gridgrad reproduce all --full
    gridgrad reproduce laugier2018

One paper: tables (JSON), figures and a summary go to results/PAPER. `--tables-only` starts no job: it takes the measurements
that an earlier run left in tables.json, and computes everything else again.

Several: a part of each is measured again, in less than 12 minutes, or with `--full` all of it, in hours. One page has what the
papers claim and print, and what was measured and predicted: index.html, summary.md and items.json in results/reproduce. What is
kept in results/PAPER stands beside it. The folder `state` beside the page keeps each part that is done, so that a run that was
interrupted goes on; remove it to measure everything anew. If a part fails, the others go on, and the exit status is 2.

Where CuPy finds GPUs, hegde2016 and marques2016 measure them beside the CPUs.
"""

import json
import sys
import time
from pathlib import Path

from gridgrad.experiments.common.options import Parser, check_writable, number, user_input, whole_list
from gridgrad.experiments.common.programs import check_enough
from gridgrad.experiments.common.report import fitting, write_text
from gridgrad.experiments.common.tables import counted, table
from gridgrad.experiments.papers import page, page_text
from gridgrad.experiments.papers.claims import VERDICTS
from gridgrad.experiments.papers.items import STATUSES
from gridgrad.experiments.papers.paper import NAMES, paper_of
from gridgrad.experiments.papers.parts import LONG, SHORT, USUAL, Found, run_resumable
from gridgrad.nn.files.documents import content_of_file
from gridgrad.parallel.job.run import UserError, one_line, run_launcher

ALL = "all"
WITHOUT_RANKS = "hegde2016", "eserol2019"
KEPT, SUMMARY = "tables.json", "summary.md"  # of one paper
FULL = "measure everything, which takes hours: all papers in full; of one paper every line of grabaskas2018, "
FULL += "and more rounds of marques2016"
MINUTES, RESERVE = 11.0, 0.5  # of a short form; of these, to write the page


def main(words=None):
    """words: those of the command line, if not this program's own."""
    args = options().parse_args(words)
    with user_input():
        check(args)
    if len(papers(args)) == 1:
        one_paper(args)
    else:
        everything(args)


def options():
    parser = Parser(prog="reproduce", description="Repeat the experiments of a paper, or of several or all on one page.")
    add = parser.add_argument
    add("paper", nargs="+", choices=[*NAMES, ALL], help="the paper, several, or all of them")
    words = "start no job: write the tables, or the page, from formulas and the results of an earlier run"
    add("--tables-only", action="store_true", help=words)
    add("--json", metavar="FILE", help="also write the tables, or what is on the page, to this file")
    words = "folder for tables and figures; default results/PAPER, for several or all results/reproduce"
    add("--out", metavar="DIR", help=words)
    add("--data-dir", metavar="DIR", help="see train --help")
    words = f"numbers of ranks to run on (default: 1,2,4); {' and '.join(WITHOUT_RANKS)} have none"
    add("--ranks", type=whole_list, metavar="P,P,..", help=words)
    add("--full", action="store_true", help=FULL)
    words = f"several papers: minutes it may take; parts that do not fit are left out; default {MINUTES:g}, none with --full"
    add("--minutes", type=number(above=0), metavar="M", help=words)
    return parser


def papers(args):
    """The names of the papers, in the order of the page."""
    return [name for name in NAMES if name in args.paper or ALL in args.paper]


def check(args):
    """Set --ranks to its default if it was left out. Raise ValueError for options that do not go together."""
    if args.ranks is None:
        args.ranks = [1, 2, 4]
    elif {*papers(args)} <= {*WITHOUT_RANKS}:
        raise ValueError(f"--ranks: the experiments of {' and '.join(papers(args))} have no number of ranks: leave it out")
    if 1 not in args.ranks:
        raise ValueError("--ranks must hold 1: speedups are over the run on one rank")
    if len(papers(args)) == 1 and args.minutes:
        raise ValueError(f"--minutes goes with several papers, or with {ALL}")


def check_job(args, ranks):
    """Raise ValueError for options that do not suit a job of so many ranks: see `programs.check_job`."""
    check(args)
    if not args.tables_only and not {*papers(args)} <= {*WITHOUT_RANKS}:
        check_enough(max(args.ranks), ranks, "the largest run (see --ranks)")


def one_paper(args):
    """Measure one paper, or take what was measured; write its tables, its figures and a summary."""
    [name] = papers(args)
    out = Path(f"results/{name}" if args.out is None else args.out)
    with user_input():
        paper = paper_of(name)
        check_files(args, out / SUMMARY)
        if args.tables_only:
            if not (out / KEPT).exists():
                print(f"There is no {out / KEPT}: nothing was measured, and what is predicted is shown alone", file=sys.stderr)
            measured = content_of_file(out / KEPT) if (out / KEPT).exists() else {}
            with fitting(f"{out / KEPT} holds no tables of an earlier run: remove it, or leave out --tables-only"):
                tables = paper.module.tables(measured)
    if not args.tables_only:
        size = LONG if args.full else USUAL
        found = run_resumable({name: paper.module.to_measure(size, args.ranks, args.data_dir)}, out / "state" / size)[name]
        if found.failures:
            failed = counted(len(found.failures), "part")
            raise UserError(f"{failed} failed, the first: {found.failures[0]}. What is done is kept")
        measured = paper.module.gathered(found.results, out)
        tables = paper.module.tables(measured)
    content = json.dumps(tables, indent=1) + "\n"
    text = page_text.markdown(page.of_one(name, tables, "kept" if args.tables_only else LONG))
    print(text)
    results = [(out / SUMMARY, text), (out / KEPT, content)] if measured else []
    for path, written in [*results, *([] if args.json is None else [(args.json, content)])]:
        write_text(path, written)
    if measured:
        paper.draw(tables, out)  # last, so that a figure that fails costs no measurement


def check_files(args, path):
    """Raise an error if a file, or that of --json, can not be written."""
    for one in (path, *([] if args.json is None else [args.json])):
        check_writable(one)


def everything(args):
    """Measure several papers, what was not measured before, and write the page. UserError if anything failed."""
    out = Path("results/reproduce" if args.out is None else args.out)
    with user_input():
        check_files(args, out / "index.html")
    found, form = {}, "kept"
    if not args.tables_only:
        form = LONG if args.full else SHORT
        minutes = args.minutes or (None if args.full else MINUTES)
        found = measured(form, args, out / "state" / form, minutes and 60 * max(0.0, minutes - RESERVE))
    written = page.made(papers(args), found, out, form)
    page.write(written, out)
    if args.json is not None:
        write_text(args.json, (out / "items.json").read_text())
    rows = [
        {"paper": section.paper, "failed": len(section.failures), "parts without time": section.left_out}
        | {status: sum(item.status == status for item in section.items) for status in STATUSES}
        | {f"claims: {one}": sum(claim.verdict == one for claim in section.claims) for one in VERDICTS}
        for section in written.sections
    ]  # fmt: skip
    print(table(rows))
    print(f"page written to {out / 'index.html'}, its summary to {out / 'summary.md'}")
    failures = [(section.paper, line) for section in written.sections for line in section.failures]
    if failures:
        raise UserError(
            f"{', '.join(dict.fromkeys(paper for paper, _ in failures))}: {len(failures)} failed, as the page says; the first: "
            f"{failures[0][1]}. Start it again when that is mended: what is done is kept"
        )


def measured(form, args, state, seconds):
    """{paper: Found} of the parts of these papers; a paper whose data are not there, so that it has no parts, has failed."""
    parts, failures, start = {}, {}, time.monotonic()
    for name in papers(args):  # which also prepares their data
        try:
            parts[name] = paper_of(name).module.to_measure(form, args.ranks, args.data_dir)
        except Exception as error:  # whatever it is, other papers can go on
            parts[name], failures[name] = [], one_line(error)
    found = run_resumable(parts, state, seconds and seconds - (time.monotonic() - start))
    for name, line in failures.items():
        found[name] = Found(failures=[line])
    return found


if __name__ == "__main__":
    run_launcher(main)
