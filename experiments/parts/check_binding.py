"""Which cores each rank may use, whether ranks of a node share cores, and whether BLAS threads and cores fit together.

Slurm and mpiexec bind ranks to cores, or leave them free to move. A launcher that binds two ranks to the same core, or a rank
with four BLAS threads to one core, makes steps many times slower without any error.
"""

from dataclasses import dataclass
from pathlib import Path

from gridgrad.parallel.job.run import in_short

SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
SHOWN = 8  # ranks of a node whose cores are printed one by one
BIND = "srun --cpu-bind=cores, mpiexec -bind-to core (MPICH) or mpiexec --bind-to core (Open MPI)"


@dataclass(frozen=True)
class BoundRank:
    """One rank: its number, the cores it may use, the BLAS threads it runs, and those that OMP_NUM_THREADS asked for."""

    rank: int
    cores: frozenset
    threads: int
    asked: int | None = None


def physical(cores, siblings=SIBLINGS):
    """{logical core: the first of those that are threads of the same physical core}; itself where the system does not say."""
    found = {}
    for core in cores:
        path = Path(siblings.format(core))
        text = path.read_text() if path.exists() else ""
        found[core] = int(text.replace("-", ",").split(",")[0]) if text.strip() else core
    return found


def lines(ranks):
    """Where the ranks of one node may run, and with how many threads, as lines of text. ranks: BoundRank."""
    everywhere = frozenset().union(*(rank.cores for rank in ranks))
    if len(ranks) > 1 and all(rank.cores == everywhere for rank in ranks):
        return [f"ranks {in_short(r.rank for r in ranks)} are not bound: each may use cores {in_short(everywhere)}"]
    found = [f"rank {rank.rank}: cores {in_short(rank.cores)}, BLAS threads: {rank.threads}" for rank in ranks[:SHOWN]]
    return found + [f".. and {len(ranks) - SHOWN} more ranks"] * (len(ranks) > SHOWN)


def problems(host, ranks, core_of):
    """What is wrong with the ranks of one node, a line each, the worst first. core_of: the node's {core: its physical core}.

    Ranks that are not bound are no problem as long as all their threads have cores. Nor are more ranks than cores, which are
    a way to try grids, as long as each rank has one thread.
    """
    most = max(rank.threads for rank in ranks)
    if most > 1 and sum(rank.threads for rank in ranks) > len(core_of):
        return [
            f"{len(ranks)} ranks x {most} BLAS threads on the {len(core_of)} cores of {host}: BLAS threads spin, and steps "
            "become many times slower; set OMP_NUM_THREADS=1"
        ]
    return [words for words in (_starved(host, ranks), _shared(host, ranks, core_of)) if words]


def _starved(host, ranks):
    """What is wrong with the first rank that has fewer cores than threads were asked for, or None."""
    for rank in ranks:
        asked, own = rank.asked or 1, len(rank.cores)
        if asked > own:
            return (
                f"rank {rank.rank} on {host} has OMP_NUM_THREADS={asked} but may use only {own} of the cores (cores "
                f"{in_short(rank.cores)}): give each rank {asked}, with srun --cpus-per-task={asked} and SRUN_CPUS_PER_TASK="
                f"{asked}, mpiexec -bind-to core:{asked} (MPICH) or mpiexec --map-by slot:pe={asked} (Open MPI); or set "
                f"OMP_NUM_THREADS={own}"
            )
    return None


def _shared(host, ranks, core_of):
    """What is wrong with the first two ranks that are bound to one physical core while there are enough cores, or None."""
    total, owner = len(set(core_of.values())), {}
    if len(ranks) > total:
        return None
    for rank in ranks:
        own = {core_of[core] for core in rank.cores}
        for core in sorted(own) if len(own) < total else ():  # of all cores it may take the one that is free
            if core in owner:
                other = owner[core]
                which = "to the same core" if rank.cores & other.cores else "to two threads of one core"
                return (
                    f"ranks {other.rank} and {rank.rank} on {host} are bound {which} (cores {in_short(other.cores)} and "
                    f"{in_short(rank.cores)}): bind each to cores of its own, with {BIND}"
                )
            owner[core] = rank
    return None


def advice(ranks, machine):
    """What could be better on one node though it is not wrong, or None. machine: the number of cores that the machine has."""
    everywhere = frozenset().union(*(rank.cores for rank in ranks))
    if len(ranks) > len(everywhere) < machine:
        return (
            f"{len(ranks)} ranks may use only {len(everywhere)} of the {machine} cores: ask for more, such as with sbatch "
            "--ntasks-per-node and --cpus-per-task, or start fewer ranks"
        )
    if len(ranks) == 1 or len(ranks) > len(everywhere):
        return None
    if all(rank.cores == everywhere for rank in ranks):
        return f"ranks that are not bound may move from core to core: for steady timings bind them, with {BIND}"
    for rank in ranks:
        if len(rank.cores) > rank.threads:
            return (
                f"rank {rank.rank} has {len(rank.cores)} cores but {rank.threads} BLAS threads: set OMP_NUM_THREADS="
                f"{len(rank.cores)}, or start more ranks"
            )
    return None
