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
from tests.random_networks import protocols  # noqa: E402
from tests.random_networks.case import random_case  # noqa: E402
from tests.random_networks.checks import grid_of, parallel  # noqa: E402
from tests.random_networks.resuming import resumed  # noqa: E402
from tests.random_networks.tables import table_of  # noqa: E402

RANKS = 1, 2, 3, 4, 5, 6, 7, 8
RUNS = {"training": 100, "resuming": 16, "protocols": 16}  # on each number of ranks; a third of that from 5 ranks on
ASYNCHRONOUS = "server:asp", "server:ssp:1", "downpour:2:3"  # protocols whose results depend on time
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
                order = {"kind": kind, "seeds": seeds, "path": path}
                if failure := jobs.run(ranks, "tests.random_networks.digests:on_ranks", LIMIT, order):
                    raise SystemExit(failure)
                with open(path) as found:
                    out.write(found.read())
                out.flush()
    jobs.end()


def write_lines(comm, order):
    """Write a line for each run to a file, on the first rank. Collective."""
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
    with grid_of(case, comm) as grid:
        found = parallel(case, grid)
        return f"{of_arrays(*found)} {counts(grid.tally.records, comm)}"


def saved_and_resumed(case, comm):
    found, records = resumed(replace(case, micro_batches=1), comm)
    return f"{of_arrays(*found)} {counts(records, comm)}"


def by_protocol(case, comm):
    rng, case = random.Random(case.seed), protocols.for_workers(case)
    count, batch_size = rng.choice((3, 7, 11)), rng.choice((1, 2, 3, 5))
    data = case.batch(np.random.default_rng(case.seed), count)
    text = rng.choice([one for one in (*protocols.SERIAL, *protocols.SAME, *protocols.ANY) if one not in ASYNCHRONOUS])
    return f"{of_arrays([], protocols.trained(case, comm, text, data, batch_size), np.zeros(0))} {text}"


RUN = {"training": trained, "resuming": saved_and_resumed, "protocols": by_protocol}


def of_arrays(losses, state, outputs):
    parts = [np.asarray(losses, np.float64).tobytes(), np.ascontiguousarray(outputs).tobytes()]
    for name, value in sorted(state.items()):
        parts += [name.encode(), str(value.shape).encode(), np.ascontiguousarray(value).tobytes()]
    return digest(b"".join(parts))


def counts(records, comm):
    """A digest of what all ranks have sent, from the records of each one's tally. Collective."""
    mine = sorted((*key, one.calls, one.bytes, one.messages) for key, one in records.items())
    return digest(json.dumps(comm.allgather(mine)).encode())


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


on_ranks = mpi()(write_lines)

if __name__ == "__main__":
    main()
