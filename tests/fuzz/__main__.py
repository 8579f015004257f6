"""python -m tests.fuzz: read fuzzed inputs and say what became of them; exit status 1 if any was not read or refused well."""

import argparse
import faulthandler
import os
import sys
import tempfile
import time
from pathlib import Path

import mpi4py

mpi4py.rc.initialize = False
os.environ.setdefault("OMP_NUM_THREADS", "1")  # child processes are copies of this one, which must have no threads


def main():
    parser = argparse.ArgumentParser(prog="fuzz", description="Read fuzzed inputs and say what became of them.")
    parser.add_argument("--examples", type=int, default=10_000, help="inputs, of all targets together (default: 10000)")
    parser.add_argument("--seed", type=int, default=1, help="of the inputs")
    parser.add_argument("--target", action="append", metavar="NAME", help="only this target; may be given several times")
    parser.add_argument("--input", metavar="FILE", help="read this one input, in this process")
    parser.add_argument("--seconds", type=float, default=10.0, help="the most that one input may compute")
    parser.add_argument("--memory", type=float, default=1.0, metavar="GIB", help="the most for one input")
    parser.add_argument("--out", default="fuzz-failures", metavar="DIR", help="folder for the inputs that failed")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        os.environ |= {"GRIDGRAD_CACHE": folder, "GRIDGRAD_KERNELS": "plain"}  # before anything is imported that looks there
        from tests.fuzz.table import TARGETS

        unknown = set(args.target or ()) - {target.name for target in TARGETS}
        if unknown:
            parser.error(f"no target {sorted(unknown)[0]}: there are {', '.join(target.name for target in TARGETS)}")
        targets = [target for target in TARGETS if not args.target or target.name in args.target]
        if args.input:
            sys.exit(one(targets, args.input, folder))
        sys.exit(many(targets, args, folder))


def one(targets, path, folder):
    """Read one input as each of the targets. Returns the exit status."""
    from tests.fuzz.target import judged

    faulthandler.enable()
    found = [(target.name, *judged(target, Path(path).read_bytes(), folder)) for target in targets]
    for name, kind, words in found:
        print(f"{name}: {kind} {words}")
    return int(any(kind == "failed" for _, kind, _ in found))


def many(targets, args, folder):
    """Read so many inputs, print a line for each target, save what failed. Returns the exit status."""
    from tests.fuzz import bounded

    share = args.examples / sum(target.weight for target in targets)
    bounds = bounded.Bounds(args.seconds, memory=int(args.memory * 2**30))
    totals, began = bounded.Counter(), time.monotonic()
    print(f"{'target':28}{'inputs':>8}{'refused':>9}{'read':>7}{'failed':>8}{'seconds':>9}", flush=True)
    for number, target in enumerate(targets):
        start = time.monotonic()
        rest = args.examples - totals["inputs"]
        wanted = rest if number == len(targets) - 1 else round(share * target.weight)
        result = bounded.run(target, wanted, args.seed, folder, bounds)
        print(f"{target.name:28}{result.inputs:8}{result.counts['refused']:9}{result.counts['read']:7}{result.counts['failed']:8}"
              f"{time.monotonic() - start:9.1f}", flush=True)  # fmt: skip
        totals.update(result.counts)
        totals["inputs"] += result.inputs
        for place, (count, words, content) in enumerate(result.failures.values()):
            saved = Path(args.out) / f"{target.name.replace(' ', '-')}-{place}"
            saved.parent.mkdir(parents=True, exist_ok=True)
            saved.write_bytes(content)
            print(f"  {count} x {words}\n    python -m tests.fuzz --target '{target.name}' --input {saved}", flush=True)
    print(f"{'all':28}{totals['inputs']:8}{totals['refused']:9}{totals['read']:7}{totals['failed']:8}"
          f"{time.monotonic() - began:9.1f}", flush=True)  # fmt: skip
    return int(totals["failed"] > 0)


if __name__ == "__main__":
    main()
