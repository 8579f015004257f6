"""Check fresh random cases for as long as it is given, and make those that fail small:

python -m tests.random_networks --seed 7 --minutes 30
python -m tests.random_networks --check training --ranks 2,3 --cases 1000
"""

import argparse
import os
import sys
import tempfile
import time
from itertools import count

import mpi4py

mpi4py.rc.initialize = False

from tests.jobs import jobs  # noqa: E402
from tests.random_networks.every import CHECKS, MISSING, ON_ONE_RANK, drawn  # noqa: E402
from tests.random_networks.shrink import shrunk  # noqa: E402

TOGETHER = 40  # cases that are checked in one go
LIMIT, LIMIT_OF_ONE = 600, 30  # seconds
SEEDS = 10**6  # of one --seed


def main():
    options = parsed()
    os.environ.setdefault("GRIDGRAD_CACHE", tempfile.mkdtemp(prefix="gridgrad-test-"))
    end, done, failed = time.monotonic() + 60 * options.minutes, 0, []
    for chunk in count():
        name, ranks = options.check[chunk % len(options.check)], options.ranks[chunk // len(options.check) % len(options.ranks)]
        if time.monotonic() > end or done >= options.cases:
            break
        start = options.seed * SEEDS + chunk * TOGETHER
        seeds = list(range(start, start + min(TOGETHER, options.cases - done)))
        done += len(seeds)
        ranks = 1 if name in ON_ONE_RANK else ranks
        if run(ranks, {"check": name, "seeds": seeds}, LIMIT):
            failed += [one for one in (smallest(name, seed, ranks) for seed in seeds) if one]
        print(f"\r{done} cases, {len(failed)} failed", end="", file=sys.stderr, flush=True)
    jobs.end()
    print(f"\r{done} cases, {len(failed)} failed")
    for words in failed:
        print(f"\n{words}")
    sys.exit(bool(failed))


def run(ranks, order, limit):
    """None if the checks of an order pass on so many ranks, else what to tell about the failure."""
    return jobs.run(ranks, "tests.random_networks.every:on_ranks", limit, order)


def smallest(name, seed, ranks):
    """None if the case of a seed passes, else what to tell about the smallest one that was found."""
    limit = LIMIT if ranks == 1 else LIMIT_OF_ONE  # one rank waits for nobody
    if not run(ranks, {"check": name, "seeds": [seed]}, limit):
        return None
    fails = lambda case: run(case.ranks, {"check": name, "case": repr(case)}, limit)  # noqa: E731
    case = drawn(name, seed, ranks)
    print(f"\r{name}, seed {seed} on {ranks} ranks fails: making it smaller", file=sys.stderr, flush=True)
    if not fails(case):  # what fails follows from the seed in another way
        return f"{name}, seed {seed} on {ranks} ranks: {case!r}"
    case = shrunk(case, fails)
    return f"{name}, seed {seed} on {ranks} ranks:\n    {case!r}\n{fails(case)}"


def parsed():
    numbers = lambda text: [int(word) for word in text.split(",")]  # noqa: E731
    parser = argparse.ArgumentParser(prog="python -m tests.random_networks", description="Check fresh random cases.")
    parser.add_argument("--seed", type=int, default=1, help="which ones: each seed has a million of its own (default: 1)")
    parser.add_argument("--minutes", type=float, default=10.0, help="for so many minutes (default: 10)")
    parser.add_argument("--cases", type=int, default=10**9, help="at most so many cases (default: no limit)")
    parser.add_argument("--ranks", type=numbers, default=[2, 3, 4, 5, 2, 3, 4, 8], help="by turns (default: 2,3,4,5,2,3,4,8)")
    parser.add_argument("--check", type=lambda text: text.split(","), default=[name for name in CHECKS if name not in MISSING],
                        help=f"of {', '.join(CHECKS)} (default: all that are possible here)")  # fmt: skip
    options = parser.parse_args()
    if unknown := set(options.check) - CHECKS.keys():
        parser.error(f"there is no check {', '.join(sorted(unknown))}: use {', '.join(CHECKS)}")
    if set(options.check) & MISSING.keys():
        parser.error("; ".join(MISSING[name] for name in MISSING if name in options.check))
    return options


if __name__ == "__main__":
    main()
