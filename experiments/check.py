"""Check whether this machine is set up to run jobs of several ranks: prints what it finds, and one line for each problem.

    mpiexec -n 4 gridgrad check

Slurm and mpiexec bind ranks to cores, or leave them free to move. A launcher that binds two ranks to the same core, or a rank
with four BLAS threads to one core, makes steps many times slower without any error.
"""

import os
import time
from pathlib import Path
from typing import NamedTuple

import mpi4py
import numpy as np
from mpi4py import MPI

from gridgrad.experiments.common import report
from gridgrad.experiments.common.machine_load import load_of_job, seen_asleep
from gridgrad.experiments.common.options import Parser, whole
from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.launching.start_ranks import cores
from gridgrad.parallel.job.run import UserError, check_size, in_short, library_name, promised_ranks, run, start_line

RING_BYTES = 1 << 20
LEVELS = "SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE"  # of threads in MPI
SHOWN = 8  # ranks of a node whose cores are printed one by one
BIND = "srun --cpu-bind=cores, mpiexec -bind-to core (MPICH) or mpiexec --bind-to core (Open MPI)"


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


class BoundRank(NamedTuple):
    rank: int
    cores: frozenset  # that it may use
    threads: int  # of BLAS
    asked: int | None = None  # threads, by OMP_NUM_THREADS


def problems(asked, found, nodes, environ=os.environ):
    """What is wrong, a line each, the worst first. asked: ranks of --ranks or None. found: what MPI sees. nodes: {name: (its
    ranks as BoundRank, its {core: physical core})}. environ: where the launcher says how many ranks it started."""
    wrong, promised = [], promised_ranks(environ)[0]
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
        wrong.append(f"{asked} ranks were asked for but {found} started: {start_line(asked)}")
    return wrong + [line for host, (ranks, core_of) in nodes.items() for line in binding_problems(host, ranks, core_of)]


def physical(cores):
    """{logical core: the first of those that are threads of the same physical core}; itself where the system does not say."""
    found = {}
    for core in cores:
        path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
        text = path.read_text() if path.exists() else ""
        found[core] = int(text.replace("-", ",").split(",")[0]) if text.strip() else core
    return found


def binding(ranks):
    """Where the ranks of one node may run, and with how many threads, as lines of text. ranks: BoundRank."""
    everywhere = frozenset().union(*(rank.cores for rank in ranks))
    if len(ranks) > 1 and all(rank.cores == everywhere for rank in ranks):
        return [f"ranks {in_short(r.rank for r in ranks)} are not bound: each may use cores {in_short(everywhere)}"]
    found = [f"rank {rank.rank}: cores {in_short(rank.cores)}, BLAS threads: {rank.threads}" for rank in ranks[:SHOWN]]
    return found + [f".. and {len(ranks) - SHOWN} more ranks"] * (len(ranks) > SHOWN)


def binding_problems(host, ranks, core_of):
    """Yield what is wrong with the ranks of one node, the worst first. core_of: the node's {core: its physical core}. Ranks
    that are not bound are no problem as long as all their threads have cores. Nor are more ranks than cores, which are a way to
    try grids, as long as each rank has one thread."""
    most = max(rank.threads for rank in ranks)
    if most > 1 and sum(rank.threads for rank in ranks) > len(core_of):
        yield (f"{len(ranks)} ranks x {most} BLAS threads on the {len(core_of)} cores of {host}: BLAS threads spin, and steps "
               "become many times slower; set OMP_NUM_THREADS=1")  # fmt: skip
        return
    if starved := next((rank for rank in ranks if (rank.asked or 1) > len(rank.cores)), None):
        asked, own = starved.asked, len(starved.cores)
        yield (f"rank {starved.rank} on {host} has OMP_NUM_THREADS={asked} but may use only {own} of the cores (cores "
               f"{in_short(starved.cores)}): give each rank {asked}, with srun --cpus-per-task={asked} and SRUN_CPUS_PER_TASK="
               f"{asked}, mpiexec -bind-to core:{asked} (MPICH) or mpiexec --map-by slot:pe={asked} (Open MPI); or set "
               f"OMP_NUM_THREADS={own}")  # fmt: skip
    total, owner = len(set(core_of.values())), {}
    for rank in ranks if len(ranks) <= total else ():
        own = {core_of[core] for core in rank.cores}
        for core in sorted(own) if len(own) < total else ():  # of all cores it may take the one that is free
            if core in owner:
                other = owner[core]
                which = "to the same core" if rank.cores & other.cores else "to two threads of one core"
                yield (f"ranks {other.rank} and {rank.rank} on {host} are bound {which} (cores {in_short(other.cores)} and "
                       f"{in_short(rank.cores)}): bind each to cores of its own, with {BIND}")  # fmt: skip
                return
            owner[core] = rank


def advice(ranks, machine):
    """What could be better on one node though it is not wrong, or None. machine: the number of cores that the machine has."""
    everywhere = frozenset().union(*(rank.cores for rank in ranks))
    if len(ranks) > len(everywhere) < machine:
        return (f"{len(ranks)} ranks may use only {len(everywhere)} of the {machine} cores: ask for more, such as with sbatch "
                "--ntasks-per-node and --cpus-per-task, or start fewer ranks")  # fmt: skip
    if len(ranks) == 1 or len(ranks) > len(everywhere):
        return None
    if all(rank.cores == everywhere for rank in ranks):
        return f"ranks that are not bound may move from core to core: for steady timings bind them, with {BIND}"
    idle = (f"rank {rank.rank} has {len(rank.cores)} cores but {rank.threads} BLAS threads: set OMP_NUM_THREADS="
            f"{len(rank.cores)}, or start more ranks" for rank in ranks if len(rank.cores) > rank.threads)  # fmt: skip
    return next(idle, None)


def gather_nodes(comm):
    """{name: (its ranks as BoundRank, its {core: physical core})} of all nodes of a job. Collective."""
    own, words = cores(), os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    placed = BoundRank(comm.rank, frozenset(own), report.blas_threads(), int(words) if words.isdecimal() else None)
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    # A launcher may bind each rank to a core of its own: the node's cores are those of all its ranks together.
    here = node.allgather((placed, physical(own)))
    found = [one for one in comm.allgather((MPI.Get_processor_name(), here) if node.rank == 0 else None) if one]
    node.Free()
    names = [f"{host} (node {i})" if len(found) > 1 else host for i, (host, _) in enumerate(found)]
    return {name: ([rank for rank, _ in here], {core: first for _, of in here for core, first in of.items()})
            for name, (_, here) in zip(names, found)}  # fmt: skip


def options():
    parser = Parser(prog="check", description="Check that MPI, BLAS and the launcher fit together.")
    parser.add_argument("--ranks", type=whole(1), help="ranks that should be found (default: what the launcher says)")
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
    standard = ".".join(map(str, MPI.Get_version()))
    level = next(word.lower() for word in LEVELS if getattr(MPI, f"THREAD_{word}") == MPI.Query_thread())
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
        lines += [("binding", text) for text in binding(ranks)]
        if (better := advice(ranks, os.cpu_count() or 1)) and not wrong:
            lines.append(("advice", better))
    if comm.size > 1:
        lines.append(("ring", f"1 MB round {comm.size} ranks in {ring(comm) * 1e3:.2f} ms, came back right"))
        lines.append(("all-reduce", f"1 MB over {comm.size} ranks in {all_reduce(comm) * 1e3:.2f} ms, sum right"))
    load = load_of_job(comm, seen_asleep())  # this program does nothing meanwhile
    busy = ": wait until it is quiet before you measure" if load and load.verdict else ""
    lines.append(("load", load.words + busy if load else "how busy this machine is is not known"))
    if comm.rank == 0 and not (wrong and promised > comm.size == 1):
        for label, text in lines:
            print(f"{label:12} {text}")
        if not wrong:
            print("ok", flush=True)
    if wrong:
        raise UserError(wrong[0])


if __name__ == "__main__":
    run(main, check=lambda size: None)  # main says more about a wrong launch than a refusal would
