"""python -m tests.hostile: judge all cases, or some, and print a table of what became of them; status 1 if one is wrong."""

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
PAGE = Path(__file__).parents[2] / "results/hostile.md"
WORDS = """# Hostile files, odd data and accidents of checkpoints

`python -m tests.hostile --write` tries {count} of them, each in a process of its own, and writes this page. *Malicious files*
are made to do harm: to run code, to fill the memory or the disk, to take for ever, to reach other files, to write into a
terminal. *Odd data* are what people have, each with the numbers that are right. *Accidents* happen to checkpoints, beside which
lie files of the user. A case is good if it is read right, or refused in one line (with exit status 2 from a program), and if
meanwhile no file of anybody else is changed or deleted, no code in a file is executed, at most {memory} MiB of memory are
touched besides the program's own, and at most {seconds} s of a processor are used.

"""


def main():
    parser = argparse.ArgumentParser(prog="hostile", description="Judge hostile files, odd data and accidents of checkpoints.")
    parser.add_argument("--only", action="append", metavar="WORD", help="those of which the kind or the name has this word")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="of these, each N-th one")
    parser.add_argument("--write", action="store_true", help=f"also write {PAGE.name}")
    args = parser.parse_args()
    from tests.fuzz.targets_checkpoint import checkpoints
    from tests.hostile import accidents, case, malicious, odd

    began, every, text = time.monotonic(), [], ""
    with tempfile.TemporaryDirectory(prefix="hostile-") as scratch:
        os.chmod(scratch, 0o755)
        for title, module in (("Malicious files", malicious), ("Odd data", odd), ("Accidents of checkpoints", accidents)):
            found = defaultdict(list)
            chosen = [
                one for one in module.cases() if not args.only or any(word in f"{one.kind}: {one.name}" for word in args.only)
            ]
            for one in chosen[:: args.every]:
                if "checkpoint" in one.kind:
                    checkpoints()  # made once, for all children
                root = Path(scratch) / "case"
                shutil.rmtree(root, ignore_errors=True)
                root.mkdir()
                verdict = case.judged(one, root)
                found[one.kind].append(verdict)
                if verdict[0] == case.WRONG:
                    print(f"{one.kind}: {ascii(one.name)}: {verdict[1]}", file=sys.stderr, flush=True)
            text += table(title, found, case)
            every += sum(found.values(), [])
    text += table("All", {"all": every}, case) + f"All took {(time.monotonic() - began) / 60:.1f} minutes."
    print(text, flush=True)
    if args.write:
        from tests.mutants.report import machine

        words = WORDS.format(count=len(every), memory=case.ALLOWED >> 20, seconds=case.SECONDS)
        PAGE.write_text(f"{words}{text} {machine()}\n", encoding="utf-8")
    sys.exit(any(verdict[0] == case.WRONG for verdict in every))


def table(title, kinds, case):
    """A table with a row for each kind."""
    outcomes = case.REFUSED, case.READ, case.WRONG
    head = f"| kind | tried | {' | '.join(outcomes)} | most memory, MiB | most seconds |"
    lines = [f"## {title}", "", head, "|---" * 7 + "|"]
    for kind, verdicts in kinds.items():
        counts = [sum(verdict[0] == outcome for verdict in verdicts) for outcome in outcomes]
        seconds, held = (max((verdict[place] for verdict in verdicts), default=0) for place in (2, 3))
        lines.append(f"| {' | '.join(map(str, (kind, len(verdicts), *counts, held >> 20, f'{seconds:.1f}')))} |")
    return "\n".join([*lines, "", ""])


if __name__ == "__main__":
    main()
