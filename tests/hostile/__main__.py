"""python -m tests.hostile: judge all cases, or some, and print a line about each kind of them; status 1 if one is wrong.

python -m tests.hostile --only npz             those of which the kind or the name has this word
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import mpi4py

mpi4py.rc.initialize = False
os.environ |= {"OMP_NUM_THREADS": "1", "GRIDGRAD_KERNELS": "plain", "MPLBACKEND": "agg"}  # children are copies: no threads


def main():
    parser = argparse.ArgumentParser(prog="hostile", description="Judge hostile files, odd data and accidents of checkpoints.")
    parser.add_argument("--only", action="append", metavar="WORD", help="those of which the kind or the name has this word")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="of these, each N-th one")
    args = parser.parse_args()
    from tests.fuzz.bounded import WRONG
    from tests.fuzz.targets_training import checkpoints
    from tests.hostile import accidents, case, malicious, odd

    kinds = defaultdict(list)
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
            kinds[one.kind].append(verdict)
            if verdict[0] == WRONG:
                print(f"{one.kind}: {ascii(one.name)}: {verdict[1]}", file=sys.stderr, flush=True)
    for kind, verdicts in kinds.items():
        seconds, held = (max(verdict[place] for verdict in verdicts) for place in (2, 3))
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(Counter(one[0] for one in verdicts).items()))
        print(f"{kind}: {counts}; at most {held >> 20} MiB and {seconds:.1f} s")
    sys.exit(any(verdict[0] == WRONG for verdicts in kinds.values() for verdict in verdicts))


if __name__ == "__main__":
    main()
