"""python -m tests.hostile: judge all cases, or some, and print a table of what became of them; status 1 if one is wrong.

python -m tests.hostile --only npz             those of which the kind or the name has this word
python -m tests.hostile --write                also write results/hostile.md
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import mpi4py

mpi4py.rc.initialize = False
os.environ |= {"OMP_NUM_THREADS": "1", "GRIDGRAD_KERNELS": "plain", "MPLBACKEND": "agg"}  # children are copies: no threads
HEAD = """# Hostile files, odd data and accidents of checkpoints

`python -m tests.hostile --write` tries {count} of them, each in a process of its own, and writes this page. A case is good if
it is read right, or refused in one line (with exit status 2 from a program), and if meanwhile no file of anybody else is
changed or deleted, no code in a file is executed, at most {memory} MiB of memory are touched besides the program's own, and at
most {seconds} s of a processor are used. All took {minutes:.1f} minutes. {machine}

| kind | tried | {outcomes} | most memory, MiB | most seconds |
|---|---|---|---|---|---|---|
"""


def main():
    parser = argparse.ArgumentParser(prog="hostile", description="Judge hostile files, odd data and accidents of checkpoints.")
    parser.add_argument("--only", action="append", metavar="WORD", help="those of which the kind or the name has this word")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="of these, each N-th one")
    parser.add_argument("--write", action="store_true", help="also write results/hostile.md")
    args = parser.parse_args()
    from tests.fuzz.bounded import READ, REFUSED, ROOT, WRONG
    from tests.fuzz.targets_training import checkpoints
    from tests.hostile import accidents, case, malicious, odd
    from tests.mutants.report import machine

    began, kinds = time.monotonic(), defaultdict(list)
    every = [one for module in (malicious, odd, accidents) for one in module.cases()]
    chosen = [one for one in every if not args.only or any(word in f"{one.kind}: {one.name}" for word in args.only)]
    with tempfile.TemporaryDirectory(prefix="hostile-") as scratch:
        for one in chosen[:: args.every]:
            if "checkpoint" in one.kind:
                checkpoints()  # made once, for all children
            root = Path(scratch) / "case"
            shutil.rmtree(root, ignore_errors=True)
            root.mkdir()
            verdict = case.judged(one, root)
            for kind in (one.kind, "all"):
                kinds[kind].append(verdict)
            if verdict[0] == WRONG:
                print(f"{one.kind}: {ascii(one.name)}: {verdict[1]}", file=sys.stderr, flush=True)
    outcomes = REFUSED, READ, WRONG
    text = HEAD.format(
        count=len(kinds["all"]),
        memory=case.ALLOWED >> 20,
        seconds=case.BOUNDS.seconds,
        minutes=(time.monotonic() - began) / 60,
        machine=machine(),
        outcomes=" | ".join(outcomes),
    )
    for kind, verdicts in sorted(kinds.items(), key=lambda item: len(item[1])):
        counts = [sum(verdict[0] == outcome for verdict in verdicts) for outcome in outcomes]
        seconds, held = (max(verdict[place] for verdict in verdicts) for place in (2, 3))
        text += f"| {' | '.join(map(str, (kind, len(verdicts), *counts, held >> 20, f'{seconds:.1f}')))} |\n"
    print(text, flush=True)
    if args.write:
        (ROOT / "results/hostile.md").write_text(text, encoding="utf-8")
    sys.exit(any(verdict[0] == WRONG for verdict in kinds["all"]))


if __name__ == "__main__":
    main()
