"""Time products of samples with a matrix on one core and on two, to see when the cache of a second core makes them faster.

    gridgrad study threads

A matrix of n x n that does not fit the cache of a core may fit those of two. Then two threads may be more than twice as fast as
one. Four ways to compute a product take turns: one thread; two threads; one thread with half of the matrix; and two processes
on two cores, each with half of the matrix. Rounds go through all sizes, and ratios are of times in the same round. The results
are in results/hegde2016/threads.json, and `gridgrad reproduce` shows what they decide about Figure 4 of Hegde and Usmani 2016.
"""

import json
import os
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

from gridgrad.experiments.common import report
from gridgrad.experiments.common.options import Parser, check_writable, number, user_input, whole, whole_list
from gridgrad.experiments.common.programs import as_module
from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.common.tables import table
from gridgrad.experiments.launching.start_ranks import cores
from gridgrad.experiments.papers.hegde2016.threads import WAYS, decision, summary
from gridgrad.parallel.job.own_process import end_with_parent
from gridgrad.parallel.job.run import UserError, run_launcher

SIZES = (
    256, 320, 384, 448, 512, 576, 640, 704, 768, 832, 896, 960, 1024, 1152, 1280, 1408, 1536, 1792, 2048,
)  # fmt: skip
PAUSE = 0.04  # seconds after two threads have computed: the library's second thread looks for work so long
CACHES = "/sys/devices/system/cpu/cpu{}/cache"


class ProductProcess:
    """A process that times products when it is told to, see `papers/hegde2016/threads_job.py`.

    threads: of its BLAS library. where: the cores that it may use. UserError if it does not start, or has other threads.
    """

    def __init__(self, threads, where):
        def prepare():
            end_with_parent()
            os.sched_setaffinity(0, where)

        self.process = subprocess.Popen(
            [sys.executable, *as_module("papers.hegde2016.threads_job")],
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=prepare,
        )  # fmt: skip
        self.versions = self.answer()["versions"]
        if self.versions["threads"] != threads:
            raise UserError(
                f"BLAS has {self.versions['threads']} threads where {threads} were asked for: unset what fixes them"
            )

    def tell(self, **asked):
        """Let it begin."""
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()

    def answer(self):
        """What it answers. UserError if it has ended."""
        line = self.process.stdout.readline()
        if not line:
            raise UserError("papers.hegde2016.threads_job has ended, see above")
        return json.loads(line)

    def end(self):
        """End it."""
        self.process.stdin.close()
        self.process.wait()


def seconds_of(sides, **asked):
    """The seconds of the slowest of some sides that compute at the same time."""
    for side in sides:
        side.tell(**asked)
    return max(side.answer() for side in sides)


def measure(one, other, two, sizes, samples, rounds, seconds):
    """The rows of the result. one, other: ProductProcesss of one thread on two cores; two: a ProductProcess of two threads."""
    rows = {
        (n, way, b): {"way": way, "samples": b, "n": n, "one": [], "half": [], "pair": [], "two": []}
        for n, way, b in product(sizes, WAYS, samples)
    }
    for n, way, b in rows:  # matrices and samples are made before anything is timed
        for side in (one, other, two):
            for columns in (n, n // 2):
                seconds_of([side], rows=n, columns=columns, samples=b, way=way, seconds=0)
    for _ in progress(range(rounds), "rounds"):
        for n in sizes:
            cases = [{"rows": n, "samples": b, "way": way, "seconds": seconds} for way, b in product(WAYS, samples)]
            for case in cases:
                row = rows[n, case["way"], case["samples"]]
                row["one"].append(seconds_of([one], columns=n, **case))
                row["half"].append(seconds_of([one], columns=n // 2, **case))
                row["pair"].append(seconds_of([one, other], columns=n // 2, **case))
            for case in cases:
                rows[n, case["way"], case["samples"]]["two"].append(seconds_of([two], columns=n, **case))
            time.sleep(PAUSE)
    return list(rows.values())


def caches(core, folder=CACHES):
    """The caches of a core as the system describes them: level, type, bytes, and how many cores share each."""
    found = []
    for path in sorted(Path(folder.format(core)).glob("index*")):
        read = {name: (path / name).read_text().strip() for name in ("level", "type", "size", "shared_cpu_list")}
        units = {"K": 1024, "M": 1024**2}
        size = int(read["size"].rstrip("KM")) * units.get(read["size"][-1], 1)
        sharing = listed(read["shared_cpu_list"])
        found.append({"level": int(read["level"]), "type": read["type"], "bytes": size, "cores": sharing})
    return found


def listed(text):
    """How many cores a list such as "0-1,4" names."""
    ends = [tuple(map(int, part.split("-"))) for part in text.split(",")]
    return sum(end[-1] - end[0] + 1 for end in ends)


def options():
    parser = Parser(prog="study threads", description="When are two threads more than twice as fast as one, and is it a cache?")
    add = parser.add_argument
    add(
        "--sizes", type=whole_list, default=list(SIZES), metavar="N,N,..", help="rows and columns of the matrices, even numbers"
    )
    add("--samples", type=whole_list, default=[1, 64], metavar="B,B,..", help="samples that are multiplied at once")
    add("--rounds", type=whole(2), default=20, help="rounds, in each of which everything is timed once")
    add("--milliseconds", type=number(above=0), default=15.0, metavar="MS", help="length of a timing")
    add("--out", default="results/hegde2016/threads.json", metavar="FILE.json", help="the results")
    return parser


def main():
    args = options().parse_args()
    with user_input():
        check_writable(args.out)
        if odd := [n for n in args.sizes if n % 2]:
            raise ValueError(f"--sizes {odd[0]}: an odd number of columns has no half")
        if len(cores()) < 2 or not hasattr(os, "sched_setaffinity"):
            raise ValueError("this needs two cores, and a system that binds processes to them")
    first, second = sorted(cores())[:2]
    busy = report.busy_cores()
    sides = []
    try:
        for threads, where in ((1, {first}), (1, {second}), (2, {first, second})):
            sides.append(ProductProcess(threads, where))
        rows = measure(*sides, args.sizes, args.samples, args.rounds, args.milliseconds / 1e3)
        versions = sides[0].versions | {"kernels of two threads": sides[2].versions["kernels"]}
    finally:
        for side in sides:
            side.end()
    result = {
        "versions": versions, "cores": [first, second], "caches": caches(first), "busy_cores": busy, "rounds": args.rounds,
        "milliseconds": args.milliseconds, "rows": rows,
    }  # fmt: skip
    report.write_json(args.out, result)
    found = summary(result)
    print(table(found))
    print(f"{decision(found)}\nresults written to {args.out}")


if __name__ == "__main__":
    run_launcher(main)
