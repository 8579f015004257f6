"""python -m tests.fuzz: read fuzzed inputs and say what became of them; exit status 1 if any was not read or refused well.

python -m tests.fuzz --examples 10000 --seed 1                       all targets; inputs that failed go to --out
python -m tests.fuzz --target "table csv" --input FILE               what one input does, in this process
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import mpi4py

mpi4py.rc.initialize = False
os.environ.setdefault("OMP_NUM_THREADS", "1")  # child processes are copies of this one, which must have no threads


def main():
    parser = argparse.ArgumentParser(prog="fuzz", description="Read fuzzed inputs and say what became of them.")
    parser.add_argument("--examples", type=int, default=10_000, help="inputs, of all targets together (default: 10000)")
    parser.add_argument("--seed", type=int, default=1, help="of the inputs")
    parser.add_argument("--target", action="append", metavar="NAME", help="only this target; may be given several times")
    parser.add_argument("--input", type=Path, metavar="FILE", help="read this one input, in this process")
    parser.add_argument("--seconds", type=float, default=10.0, help="the most that one input may compute")
    parser.add_argument("--memory", type=float, default=1.0, metavar="GIB", help="the most for one input")
    parser.add_argument("--out", default="fuzz-failures", metavar="DIR", help="folder for the inputs that failed")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        os.environ |= {"GRIDGRAD_CACHE": folder, "GRIDGRAD_KERNELS": "plain"}  # before anything is imported that looks there
        from tests.fuzz.bounded import WRONG, Bounds
        from tests.fuzz.target import Result, every_target, judged, run

        known = every_target()
        if unknown := set(args.target or ()) - known.keys():
            parser.error(f"no target {min(unknown)}: there are {', '.join(known)}")
        targets = [known[name] for name in args.target or known]
        if args.input:
            outcomes = [judged(target, args.input.read_bytes(), folder) for target in targets]
            print(*outcomes, sep="\n")
            sys.exit(any(outcome == WRONG for outcome, _ in outcomes))
        share = args.examples / sum(target.weight for target in targets)
        every, bounds = Result(), Bounds(args.seconds, memory=int(args.memory * 2**30))
        for target in targets:
            result = run(target, round(share * target.weight), args.seed, folder, bounds)
            every.counts += result.counts
            say(target.name, result)
            for place, (count, words, content) in enumerate(result.failures.values()):
                saved = Path(args.out) / f"{target.name.replace(' ', '-')}-{place}"
                saved.parent.mkdir(parents=True, exist_ok=True)
                saved.write_bytes(content)
                print(f"  {count} x {words}\n    python -m tests.fuzz --target '{target.name}' --input {saved}", flush=True)
        say("all", every)
        sys.exit(every.counts[WRONG] > 0)


def say(name, result):
    """Print a line about the inputs of a target."""
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(result.counts.items()))
    print(f"{name}: {result.inputs} inputs, {counts}", flush=True)


if __name__ == "__main__":
    main()
