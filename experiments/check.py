"""Check whether this machine is set up to run jobs of several ranks: prints what it finds, and one line for each problem.

mpiexec -n 4 python -m experiments.check
"""

import os
import time

import mpi4py
import numpy as np
from mpi4py import MPI

from experiments.common import report
from experiments.common.options import Parser, whole
from parallel.job.launch import cores
from parallel.job.run import UserError, check_size, library_name, promised_ranks, run

RING_BYTES = 1 << 20
THREAD_LEVELS = {
    MPI.THREAD_SINGLE: "single",
    MPI.THREAD_FUNNELED: "funneled",
    MPI.THREAD_SERIALIZED: "serialized",
    MPI.THREAD_MULTIPLE: "multiple",
}


def ring(comm):
    """Seconds for 1 MB to go once round two or more ranks, each adding its rank; UserError if the sum is wrong."""
    message = np.zeros(RING_BYTES // 8, np.int64)
    comm.Barrier()
    start = time.perf_counter()
    if comm.rank == 0:
        comm.Send(message, dest=1)
        comm.Recv(message, source=comm.size - 1)
    else:
        comm.Recv(message, source=comm.rank - 1)
        message += comm.rank
        comm.Send(message, dest=(comm.rank + 1) % comm.size)
    if comm.rank == 0 and not (message == comm.size * (comm.size - 1) // 2).all():
        raise UserError("a message passed round all ranks came back changed: the MPI library or its transport is broken")
    return time.perf_counter() - start


def all_reduce(comm):
    """Seconds of the fastest of some all-reduces of 1 MB; UserError if a sum is wrong."""
    seconds = []
    for _ in range(5):
        array = np.full(RING_BYTES // 4, comm.rank + 1, np.float32)
        comm.Barrier()
        start = time.perf_counter()
        comm.Allreduce(MPI.IN_PLACE, array, MPI.SUM)
        seconds.append(time.perf_counter() - start)
        if not (array == comm.size * (comm.size + 1) // 2).all():
            raise UserError("an all-reduce gave a wrong sum: the MPI library or its transport is broken")
    return min(seconds)


def problems(asked, found, hosts, threads, environ=os.environ):
    """What is wrong, a line each, the worst first.

    asked: ranks of --ranks or None. found: what MPI sees. hosts: {name: (ranks there, cores there)}.
    threads: of BLAS, a rank. environ: where the launcher says how many ranks it started.
    """
    wrong = []
    promised = promised_ranks(environ)[0]
    if found < promised and found == 1:
        wrong.append(
            f"N singletons: the launcher started {promised} ranks but each sees itself alone, so each would train the whole "
            "network; use the mpiexec that belongs to this MPI library, or point MPI4PY_LIBMPI at the launcher's library"
        )
    elif found < promised:
        try:
            check_size(found, environ)
        except UserError as error:
            wrong.append(str(error))
    elif asked is not None and asked != found:
        wrong.append(f"{asked} ranks were asked for but {found} started")
    for host, (ranks, available) in hosts.items():
        if threads > 1 and ranks * threads > available:
            wrong.append(
                f"{ranks} ranks x {threads} BLAS threads on the {available} cores of {host}: BLAS threads spin, and steps "
                "become many times slower; set OMP_NUM_THREADS=1"
            )
    return wrong


def main():
    parser = Parser(prog="check", description="Check that MPI, BLAS and the launcher fit together.")
    parser.add_argument(
        "--ranks", type=whole(1), help="the number of ranks that should be found; default: what the launcher says"
    )
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    promised, name = promised_ranks()
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    # A launcher may bind each rank to a core of its own: the node's cores are those of all its ranks together.
    available = len(set().union(*node.allgather(cores())))
    here = (MPI.Get_processor_name(), node.size, available, report.blas_threads()) if node.rank == 0 else None
    everywhere = [entry for entry in comm.allgather(here) if entry]
    node.Free()
    hosts = {f"{host} (node {i})" if len(everywhere) > 1 else host: (n, c) for i, (host, n, c, _) in enumerate(everywhere)}
    threads = max(entry[3] for entry in everywhere)
    wrong = problems(args.ranks, comm.size, hosts, threads)
    standard, level = ".".join(map(str, MPI.Get_version())), THREAD_LEVELS[MPI.Query_thread()]
    launcher = f"{name}={promised}" if name else "no launcher"
    lines = [
        ("MPI library", f"{library_name()}, MPI {standard}, threads {level}, mpi4py {mpi4py.__version__}"),
        ("ranks", f"{comm.size} found, {args.ranks or promised} asked for ({launcher})"),
        ("BLAS", f"{report.blas()}, threads a rank: {threads}"),
    ]
    for host, (ranks, available) in hosts.items():
        over = ": oversubscribed, timings mean nothing here" if ranks * threads > available else ""
        lines.append(("host", f"{host}: {ranks} ranks on {available} cores{over}"))
    if comm.size > 1:
        lines.append(("ring", f"1 MB round {comm.size} ranks in {ring(comm) * 1e3:.2f} ms, came back right"))
        lines.append(("all-reduce", f"1 MB over {comm.size} ranks in {all_reduce(comm) * 1e3:.2f} ms, sum right"))
    if comm.rank == 0 and not (wrong and promised > comm.size == 1):
        for label, text in lines:
            print(f"{label:12} {text}")
        if not wrong:
            print("ok", flush=True)
    if wrong:
        raise UserError(wrong[0])


if __name__ == "__main__":
    run(main, check=lambda size: None)  # main says more about a wrong launch than a refusal would
