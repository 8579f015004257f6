"""Time the two ways in which Laugier et al. distribute a minibatch from rank 0: scatter, and scatter then broadcast.

    mpiexec -n 4 python -m gridgrad.experiments.papers.laugier2018_scatter --grid batch=2,model=2

See section 7 of Laugier et al. 2018, and `experiments/common/scatter_readers.py`.
"""

from functools import partial

import numpy as np
from mpi4py import MPI

from gridgrad.datasets import Part
from gridgrad.experiments.common import report
from gridgrad.experiments.common.options import Parser, add_grid, check_writable, process_grid_of, user_input, whole
from gridgrad.experiments.common.scatter_readers import READERS
from gridgrad.experiments.common.tables import table
from gridgrad.nn import Linear, Sequential
from gridgrad.nn.measured import timed
from gridgrad.parallel import parallelize
from gridgrad.parallel.calibration.timing import slowest_in_turns
from gridgrad.parallel.job.run import on_root, run

FEATURES = 256  # of a sample: 1 KB in float32
BLOCKS = [1, 4, 16, 64, 256, 1024]  # samples of a batch block


def measure(grid, repeats):
    """Rows of (bytes of a batch block, seconds by method, bytes sent by method), the methods interleaved."""
    net = parallelize(Sequential([Linear(FEATURES, 1)]), grid, "out", "plain")
    samples = max(BLOCKS) * grid.sizes["batch"]
    x = np.zeros((samples, FEATURES), np.float32)
    part = Part(x, np.zeros(samples, np.int64), np.float32(0), np.float32(1))
    rows = []
    for block in BLOCKS:
        indices = np.arange(block * grid.sizes["batch"])
        row = {"block_bytes": block * FEATURES * 4}
        for name in ("scatter", "scatter-broadcast"):
            load = partial(READERS[name](net, part).load, indices)
            grid.tally.clear()
            turns = slowest_in_turns(grid.comm, [timed(load)], most=repeats + 1)
            row[f"{name} seconds"] = float(np.median(turns[1:, 0]))  # in the first turn memory is touched for the first time
            sent = sum(record.bytes for record in grid.tally.records.values()) / (repeats + 1)  # with the one that is not timed
            row[f"{name} bytes"] = round(grid.comm.allreduce(sent))
        rows.append(row)
    return rows


def cells(row):
    """The row of the table that is printed."""
    found = {"block, kB": row["block_bytes"] / 1e3}
    for name in ("scatter", "scatter-broadcast"):
        found |= {f"{name}, us": 1e6 * row[f"{name} seconds"], f"{name}, kB": row[f"{name} bytes"] / 1e3}
    return found


def options():
    words = "Which of two ways brings a minibatch faster from one rank to all?"
    parser = Parser(prog="papers.laugier2018_scatter", description=words)
    add_grid(parser)
    parser.add_argument("--repeats", type=whole(1), default=30, help="minibatches of each size")
    parser.add_argument("--report", metavar="FILE.json", help="also write the table to this file")
    return parser


def main():
    args = options().parse_args()
    comm = MPI.COMM_WORLD
    with user_input():
        grid = process_grid_of(args, comm)
    on_root(comm, lambda: check_writable(args.report) if args.report else None)
    rows = measure(grid, args.repeats)
    if comm.rank == 0:
        print(f"grid {grid}, {report.library_name()}; a block is what one rank needs, bytes are sent by all ranks together")
        print(table(list(map(cells, rows))))
    if args.report:
        on_root(comm, lambda: report.write_json(args.report, {"grid": str(grid), "versions": report.versions(), "rows": rows}))
    grid.free()


if __name__ == "__main__":
    run(main)
