"""Write a digest of the results of many random trainings, to tell whether another version of the code computes the same bits:

python -m tests.random_networks.digests before.txt
python -m tests.random_networks.digests after.txt
diff before.txt after.txt

Each line has the kind of run, its seed and number of ranks, a digest of losses, parameters, buffers and outputs, and one of the
calls, bytes and messages of all ranks by layer and collective. Both versions must draw the same cases.
"""

import argparse
import hashlib
import json
import os
import random
import tempfile
from dataclasses import replace

import mpi4py

mpi4py.rc.initialize = False

import numpy as np  # noqa: E402

from tests.jobs import jobs  # noqa: E402
from tests.mpi import mpi  # noqa: E402

RANKS = 1, 2, 3, 4, 5, 6, 7, 8
RUNS = {"training": 100, "resuming": 16, "protocols": 16}  # on each number of ranks; a third of that from 5 ranks on
LIMIT = 1200  # seconds for all runs of a kind on one number of ranks


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.random_networks.digests", description=__doc__.splitlines()[0])
    parser.add_argument("file", help="text file to write")
    parser.add_argument("--every", type=int, default=1, help="take each so-manieth run only (default: 1, all of them)")
    options = parser.parse_args()
    os.environ.setdefault("GRIDGRAD_CACHE", tempfile.mkdtemp(prefix="gridgrad-test-"))
    with tempfile.TemporaryDirectory() as folder, open(options.file, "w") as out:
        for ranks in RANKS:
            for kind, number in RUNS.items():
                seeds = list(range(0, number if ranks < 5 else number // 3, options.every))
                path = os.path.join(folder, "lines")
                failure = jobs.run(ranks, f"{__name__ if __name__ != '__main__' else 'tests.random_networks.digests'}:on_ranks",
                                   LIMIT, {"kind": kind, "seeds": seeds, "path": path})  # fmt: skip
                if failure:
                    raise SystemExit(failure)
                with open(path) as found:
                    out.write(found.read())
                out.flush()
    jobs.end()


def write_lines(comm, order):
    """Write a line for each run to a file, on the first rank. Collective."""
    from tests.random_networks.case import random_case
    from tests.random_networks.tables import table_of

    lines = []
    for seed in order["seeds"]:
        case = random_case(seed, comm.size)
        with table_of(case):
            try:
                line = RUN[order["kind"]](case, comm)
            except ValueError as error:  # of a refusal, which must stay the same
                line = digest(str(error).encode())
        lines.append(f"{order['kind']} {seed} {comm.size} {line}\n")
    if comm.rank == 0:
        with open(order["path"], "w") as file:
            file.writelines(lines)


def trained(case, comm):
    from tests.random_networks.checks import grid_of, parallel

    with grid_of(case, comm) as grid:
        losses, state, outputs = parallel(case, grid)
        return f"{of_arrays(losses, state, outputs)} {counts(grid, comm)}"


def resumed(case, comm):
    """Save on the grid of a Case, resume on another one."""
    from gridgrad.parallel.checkpoint.restore import newest
    from tests.parallel.checkpoint.training import folder
    from tests.random_networks.case import random_case
    from tests.random_networks.checks import grid_of, outputs_of
    from tests.random_networks.resuming import ALIKE, SAVED, Training

    case = replace(case, micro_batches=1)
    other = random_case(case.seed, comm.size)
    other = replace(other, micro_batches=1, **{name: getattr(case, name) for name in ALIKE})
    if other.pipeline and other.plan == "hypergraph" and not case.has_chain:
        other = replace(other, pipeline=None)
    with folder(comm) as directory:
        with grid_of(case, comm) as grid:
            training = Training(case, grid)
            training.train(0, SAVED)
            training.save(directory)
        with grid_of(other, comm) as grid:
            training = Training(other, grid)
            newest(comm, directory).restore(training.net, training.participants)
            losses = training.train(SAVED, len(case.batch_sizes))
            state = training.net.state_dict(everywhere=True)
            return f"{of_arrays(losses, state, outputs_of(training.net, case))} {counts(grid, comm)}"


def by_protocol(case, comm):
    from tests.random_networks import protocols

    rng = random.Random(case.seed)
    case = replace(case, layers=protocols.without(case.layers, protocols.APART), start="used", samples="normal")
    case = replace(case, loss="cross-entropy", shares={axis: n for axis, n in (case.shares or {}).items() if axis != "batch"})
    count, batch_size = rng.choice((3, 7, 11)), rng.choice((1, 2, 3, 5))
    data = case.batch(np.random.default_rng(case.seed), count)
    asynchronous = "server:asp", "server:ssp:1", "downpour:2:3"  # whose results depend on time
    text = rng.choice([one for one in (*protocols.SERIAL, *protocols.SAME, *protocols.ANY) if one not in asynchronous])
    state = protocols.trained(case, comm, text, data, batch_size)
    return f"{of_arrays([], state, np.zeros(0))} {text}"


RUN = {"training": trained, "resuming": resumed, "protocols": by_protocol}


def of_arrays(losses, state, outputs):
    parts = [np.asarray(losses, np.float64).tobytes(), np.ascontiguousarray(outputs).tobytes()]
    for name, value in sorted(state.items()):
        parts += [name.encode(), str(value.shape).encode(), np.ascontiguousarray(value).tobytes()]
    return digest(b"".join(parts))


def counts(grid, comm):
    """A digest of what all ranks have sent. Collective."""
    mine = sorted((*key, one.calls, one.bytes, one.messages) for key, one in grid.tally.records.items())
    return digest(json.dumps(comm.allgather(mine)).encode())


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


on_ranks = mpi()(write_lines)

if __name__ == "__main__":
    main()
