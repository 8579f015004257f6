"""Check whether this machine is set up to run jobs of several ranks: prints what it finds, and one line for each problem.

mpiexec -n 4 gridgrad check
"""

import os
import time

import mpi4py
import numpy as np
from mpi4py import MPI

from gridgrad.experiments.common import report
from gridgrad.experiments.common.machine_load import load_of_job, seen_asleep
from gridgrad.experiments.common.options import Parser, whole
from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.launching.start_ranks import cores
from gridgrad.experiments.parts import check_binding
from gridgrad.parallel.job.run import UserError, check_size, library_name, promised_ranks, run

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


def problems(asked, found, nodes, environ=os.environ):
    """What is wrong, a line each, the worst first.

    asked: ranks of --ranks or None. found: what MPI sees. nodes: {name: (its ranks as BoundRank, its {core: physical core})}.
    environ: where the launcher says how many ranks it started.
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
    for host, (ranks, core_of) in nodes.items():
        wrong += check_binding.problems(host, ranks, core_of)
    return wrong


def gather_nodes(comm):
    """{name: (its ranks as BoundRank, its {core: physical core})} of all nodes of a job. Collective."""
    own, words = cores(), os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    asked = int(words) if words.isdecimal() else None
    placed = check_binding.BoundRank(comm.rank, frozenset(own), report.blas_threads(), asked)
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    # A launcher may bind each rank to a core of its own: the node's cores are those of all its ranks together.
    here = node.allgather((placed, check_binding.physical(own)))
    first = (MPI.Get_processor_name(), here) if node.rank == 0 else None
    node.Free()
    found = [entry for entry in comm.allgather(first) if entry]
    return {
        f"{host} (node {i})" if len(found) > 1 else host: (
            [p for p, _ in here],
            {c: p for _, of in here for c, p in of.items()},
        )
        for i, (host, here) in enumerate(found)
    }


def load_line(load):
    """How busy the machine is, for people. load: its MachineLoad while this program did nothing, or None."""
    if load is None:
        return "how busy this machine is is not known"
    return load.words + (": wait until it is quiet before you measure" if load.verdict else "")


def options():
    parser = Parser(prog="check", description="Check that MPI, BLAS and the launcher fit together.")
    parser.add_argument(
        "--ranks", type=whole(1), help="the number of ranks that should be found; default: what the launcher says"
    )
    return parser


def check_job(args, ranks):
    """Raise ValueError if a job of so many ranks is not what these options want: see `programs.check_job`."""
    if args.ranks not in (None, ranks):
        raise ValueError(f"--ranks {args.ranks} is not the number of ranks of the job, {ranks}: leave it out")


def main():
    args = options().parse_args()
    comm = MPI.COMM_WORLD
    promised, name = promised_ranks()
    nodes = gather_nodes(comm)
    wrong = problems(args.ranks, comm.size, nodes)
    threads = max(rank.threads for ranks, _ in nodes.values() for rank in ranks)
    standard, level = ".".join(map(str, MPI.Get_version())), THREAD_LEVELS[MPI.Query_thread()]
    launcher = f"{name}={promised}" if name else "no launcher"
    lines = [
        ("MPI library", f"{library_name()}, MPI {standard}, threads {level}, mpi4py {mpi4py.__version__}"),
        ("ranks", f"{comm.size} found, {args.ranks or promised} asked for ({launcher})"),
        ("BLAS", f"{report.blas()}, threads a rank: {threads}"),
    ]
    for host, (ranks, core_of) in nodes.items():
        crowded = sum(rank.threads for rank in ranks) > len(core_of)
        over = ": oversubscribed, timings mean nothing here" if crowded else ""
        lines.append(("host", f"{host}: {counted(len(ranks), 'rank')} on {counted(len(core_of), 'core')}{over}"))
        lines += [("binding", text) for text in check_binding.lines(ranks)]
        if (better := check_binding.advice(ranks, os.cpu_count() or 1)) and not wrong:
            lines.append(("advice", better))
    if comm.size > 1:
        lines.append(("ring", f"1 MB round {comm.size} ranks in {ring(comm) * 1e3:.2f} ms, came back right"))
        lines.append(("all-reduce", f"1 MB over {comm.size} ranks in {all_reduce(comm) * 1e3:.2f} ms, sum right"))
    lines.append(("load", load_line(load_of_job(comm, seen_asleep()))))
    if comm.rank == 0 and not (wrong and promised > comm.size == 1):
        for label, text in lines:
            print(f"{label:12} {text}")
        if not wrong:
            print("ok", flush=True)
    if wrong:
        raise UserError(wrong[0])


if __name__ == "__main__":
    run(main, check=lambda size: None)  # main says more about a wrong launch than a refusal would
