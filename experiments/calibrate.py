"""Measure how long this machine takes for the parts of a training step, and write a machine file for predictions.

    mpiexec -n 2 gridgrad calibrate --out machine.json

Run it on as many ranks as you will train on, placed on cores and nodes in the same way, because ranks share caches, memory and
the network. Without --out the file is written where `--grid auto` and `parallelize(net)` look for the machine they run on.
Sizes for which --minutes are too few are extrapolated from the nearest measured ones, and operations that were not measured at
all follow from the flops and the bandwidth of the machine; the output says so, and how much the time of a step varied. On a
machine on which others compute nothing is written (`experiments/common/machine_load.py`), unless --busy says that it should.
"""

import time

import numpy as np
from mpi4py import MPI

from gridgrad.experiments.common.machine_load import Watch, load_of_job, seen_asleep
from gridgrad.experiments.common.options import Parser, check_writable, number
from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.common.report import write_json
from gridgrad.parallel.calibration import measure, this_machine
from gridgrad.parallel.calibration.timing import NormalisedTimer, TimeLimit
from gridgrad.parallel.grid.devices import calibrate_kernels
from gridgrad.parallel.job.run import UserError, on_root, run
from gridgrad.parallel.prediction import machine

PARTS = 0.7  # the share of the time after which the single operations have to be measured; the rest is for whole steps


def options():
    parser = Parser(prog="calibrate", description="Measure how long this machine takes for the parts of a training step.")
    add = parser.add_argument
    add("--out", metavar="FILE.json", help="the machine file (default: where --grid auto looks for it)")
    add("--quick", action="store_true", help=f"take {this_machine.PROBE_SECONDS:g} seconds instead of minutes: the constants "
        "alone, as where nobody has calibrated")  # fmt: skip
    add("--minutes", type=number(above=0), default=10.0, metavar="M", help="stop after about so many minutes")
    add("--busy", action="store_true", help="measure the machine although others compute on it; the file says how busy it was")
    return parser


def refuse_busy(load):
    """Raise UserError if a machine was busy. load: its MachineLoad, or None."""
    if load and load.verdict:
        remedy = "Run it again while nothing else runs, or with --busy"
        raise UserError(f"this machine is busy, no file was written: {load.words}. {remedy}")


def whole(comm, limit):
    """The content of a machine file with tables. Collective."""
    shown = lambda what: lambda things: progress(things, what, comm.rank == 0, limit.end)  # noqa: E731
    calibrate_kernels(comm)
    content = comm.bcast(this_machine.measure_thoroughly(comm, shown("calibrate: operations"), limit.share(PARTS)))
    described = machine.checked(content)
    passes = measure.measured_steps(NormalisedTimer(comm, described.core["calm"]), shown("calibrate: training steps"), limit)
    content["core"] |= measure.fitted(passes, described, comm.size)
    if len(passes) < 2:
        varied = "there was no time to measure how much training steps vary"
    else:  # steady load does not show in it
        slow, fast = np.percentile(passes, [90, 10], axis=0)
        typical, worst = f"{np.median(slow / fast):.2f} times", f"{max(slow / fast):.2f} times"
        varied = f"the same training step took {typical} as long at slow moments as at fast ones (at worst {worst})"
    content["source"] += f"; {varied}"
    return content


def main():
    args, comm = options().parse_args(), MPI.COMM_WORLD
    path = this_machine.machine_file(comm) if args.out is None else args.out
    on_root(comm, lambda: check_writable(path))
    say = print if comm.rank == 0 else lambda *_, **__: None
    if not args.busy:
        refuse_busy(load_of_job(comm, seen_asleep()))
    start, watch = time.monotonic(), Watch()
    if args.quick:
        content = this_machine.measure_quickly(comm)
    else:
        say(f"measuring for at most about {args.minutes:g} minutes; leave the machine alone meanwhile", flush=True)
        content = whole(comm, TimeLimit(comm, 60 * args.minutes))
    load = load_of_job(comm, watch.seen())
    if not args.busy:
        refuse_busy(load)
    how = f"busy, {load.words}" if load and load.verdict else load.words if load else "how busy the machine was is not known"
    content["source"] += f"; {how}"
    on_root(comm, lambda: write_json(path, content, indent=None))
    core, link = content["core"], content["links"]["network"]
    say(f"{content['name']}: {core['flops'] / 1e9:.1f} GFLOP/s, {core['bandwidth'] / 1e9:.1f} GB/s a rank, "
        f"alpha {link['alpha'] * 1e6:.1f} us, beta {link['beta'] * 1e9:.3f} ns a byte; "
        f"written to {path} after {(time.monotonic() - start) / 60:.1f} minutes")  # fmt: skip
    say(content["source"])


if __name__ == "__main__":
    run(main)
