"""python -m tests.hostile: judge all cases, or some, and print a table of what became of them; status 1 if one is wrong."""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

import mpi4py

mpi4py.rc.initialize = False
os.environ |= {"OMP_NUM_THREADS": "1", "GRIDGRAD_KERNELS": "plain"}  # child processes are copies of this one: no threads


def main():
    parser = argparse.ArgumentParser(prog="hostile", description="Judge hostile files, odd data and accidents of checkpoints.")
    parser.add_argument("--only", action="append", metavar="WORD", help="those of which the kind or the name has this word")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="of these, each N-th one")
    parser.add_argument("--out", metavar="FILE", help="also write the table into this file")
    args = parser.parse_args()
    from tests.hostile.case import READ, REFUSED, WRONG, emptied, judged
    from tests.hostile.tables import TABLES

    began, pages, wrong = time.monotonic(), [], []
    with tempfile.TemporaryDirectory(prefix="hostile-") as scratch:
        for title, cases in TABLES.items():
            counts, names = defaultdict(Counter), defaultdict(list)
            chosen = [one for one in cases() if not args.only or any(w in f"{one.kind}: {one.name}" for w in args.only)]
            for case in chosen[:: args.every]:
                emptied(Path(scratch) / "case")
                verdict, words = judged(case, Path(scratch) / "case")
                counts[case.kind][verdict] += 1
                if verdict == WRONG:
                    wrong.append(case)
                    names[case.kind].append(case.name)
                    print(f"{case.kind}: {ascii(case.name)}: {words}", file=sys.stderr, flush=True)
            pages.append(page(title, counts, names, (READ, REFUSED, WRONG)))
    text = "\n".join(pages)
    print(f"{text}\n{time.monotonic() - began:.0f} seconds", flush=True)
    if args.out:
        Path(args.out).write_text("# Hostile files, odd data and accidents of checkpoints\n\n`python -m tests.hostile --out "
                                  f"{args.out}` tries them and writes this table.\n\n{text}", encoding="utf-8")  # fmt: skip
    sys.exit(bool(wrong))


def page(title, counts, names, verdicts):
    """A table with a row for each kind, and one for all of them."""
    total = sum(counts.values(), Counter())
    rows = [*((kind, found, names[kind]) for kind, found in counts.items()), ("all", total, [])]
    lines = [f"## {title}", "", f"| kind | tried | {' | '.join(verdicts)} | which are wrong |", "|---|---|---|---|---|---|"]
    for kind, found, bad in rows:
        numbers = " | ".join(str(found[verdict]) for verdict in verdicts)
        lines.append(f"| {kind} | {found.total()} | {numbers} | {', '.join(map(ascii, bad))} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
