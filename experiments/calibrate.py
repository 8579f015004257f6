"""Measure what this machine takes for the parts of a training step, and write it to a machine file for predictions.

    mpiexec -n 2 python -m experiments.calibrate --out machine.json

On as many ranks as will be trained on, placed alike: they share caches, memory and the network. Without --out the file goes
where `--grid auto` and `parallelize(net)` look for the machine they run on. The contents: `parallel/performance/machine.py`.
"""

from mpi4py import MPI
from tqdm import tqdm

from experiments.common.options import Parser, check_writable
from experiments.common.report import write_json
from parallel.auto import this_machine
from parallel.performance import machine
from parallel.calibration import step_overhead
from parallel.job.run import on_root, run
from parallel.calibration.core_speed import Paced


def options():
    parser = Parser(prog="calibrate", description="Measure what this machine takes for the parts of a training step.")
    parser.add_argument("--out", metavar="FILE.json", help="the machine file (default: where --grid auto looks for it)")
    parser.add_argument("--quick", action="store_true", help="a few seconds instead of minutes: no tables, constants alone")
    return parser


def whole(comm, progress):
    """The content of a whole machine file. Collective."""
    content = comm.bcast(this_machine.thorough(comm, progress))
    described = machine.checked(content)
    content["core"] |= step_overhead.beyond(Paced(comm, described.core["calm"]), described)
    return content


def main():
    args, comm = options().parse_args(), MPI.COMM_WORLD
    path = this_machine.place(comm) if args.out is None else args.out
    on_root(comm, lambda: check_writable(path) if args.out is not None else path.parent.mkdir(parents=True, exist_ok=True))
    progress = lambda things: tqdm(things, delay=2, disable=None if comm.rank == 0 else True)  # noqa: E731
    content = this_machine.quick(comm) if args.quick else whole(comm, progress)
    on_root(comm, lambda: write_json(path, content, indent=None))
    if comm.rank == 0:
        core, link = content["core"], content["links"]["network"]
        print(f"{content['name']}: {core['flops'] / 1e9:.1f} GFLOP/s, {core['bandwidth'] / 1e9:.1f} GB/s a rank, "
              f"alpha {link['alpha'] * 1e6:.1f} us, beta {link['beta'] * 1e9:.3f} ns a byte; written to {path}")  # fmt: skip


if __name__ == "__main__":
    run(main)
