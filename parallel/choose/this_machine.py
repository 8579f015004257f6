"""The Machine that this job runs on, which `gridgrad calibrate` measures in minutes, and else a probe in less than three
seconds. Either is stored as a machine file in the cache folder, one for each number of ranks and of ranks on a node, so that
the planner gives the same answer when a run is repeated. A calibration takes the place of a probe."""

import json
import os
import platform
import sys
import zlib

from mpi4py import MPI

from gridgrad.nn.files import whole_files
from gridgrad.nn.files.documents import content_of
from gridgrad.nn.files.limits import read_limited
from gridgrad.parallel.calibration import measure, probe
from gridgrad.parallel.calibration.core_speed import NormalisedTimer, on_machine
from gridgrad.parallel.calibration.turns import TimeLimit
from gridgrad.parallel.choose.reductions import transport
from gridgrad.parallel.grid.process_grid import ProcessGrid
from gridgrad.parallel.job.own_process import LINK
from gridgrad.parallel.prediction import machine

TABLES_SHARE = 0.8  # the share of a time limit within which the tables have to be complete


def machine_of_job(comm):
    """The Machine of these ranks, stored or probed now. Collective. ValueError if its file is damaged."""
    path = machine_file(comm)
    content = comm.bcast(stored_text(path) if comm.rank == 0 else None)
    if content is None:
        if comm.rank == 0:
            print(f"measuring this machine once, for {probe.SECONDS:g} seconds: products, memory, all-reduces; thoroughly, in "
                  f"minutes: mpiexec -n {comm.size} gridgrad calibrate", file=sys.stderr, flush=True)  # fmt: skip
        content = comm.bcast(json.dumps(measure_quickly(comm)))
        if comm.rank == 0:
            whole_files.write_or_warn(path, content, "the next run measures again, and may choose another grid")
    return machine_of_text(path, content)


def machine_of_text(path, text):
    """The Machine in the text of a stored file; ValueError, which names the file, if the text is damaged."""
    try:
        return machine.checked(content_of(text))
    except ValueError:
        raise ValueError(f"{path} is not a machine file: delete it, and the machine will be measured again") from None


def stored_text(path):
    """The text of a file, or None."""
    try:
        return read_limited(path).decode()
    except (OSError, ValueError):
        return None


def machine_file(comm):
    """The path of the machine file for jobs like this one, which may not exist. Collective."""
    ranks_per_node = ranks_of_node(comm)
    what = [comm.size, ranks_per_node, *MPI.get_vendor(), platform.machine(), os.cpu_count()]
    what += [os.environ.get("OMP_NUM_THREADS"), *transport()]
    digest = zlib.crc32(repr(what).encode())
    return whole_files.cache_path(f"machine-{comm.size}-ranks-{ranks_per_node}-a-node-{digest:08x}.json")


def ranks_of_node(comm):
    """The largest number of ranks on one node. Collective."""
    with ProcessGrid(comm, batch=comm.size) as grid:
        return comm.allreduce(grid.node.size, MPI.MAX)


def measure_quickly(comm):
    """The content of a machine file of constants alone, measured in `probe.SECONDS`. Collective."""
    core, curve = probe.probed(comm, TimeLimit(comm, probe.SECONDS))
    return machine_content(comm, core, measure.link(curve, comm.size, core), "measured quickly")


def measure_thoroughly(comm, progress=iter, limit=None):
    """The content of a machine file with tables, measured in minutes or until a TimeLimit. Collective."""
    timer, limit = NormalisedTimer(comm), limit or TimeLimit(comm)
    tables, (done, sizes) = measure.tables(timer, progress, limit.share(TABLES_SHARE))
    curves = measure.collectives(timer, progress, limit)
    core = measure.core(timer) | {"calm": timer.unloaded, "crowd": timer.crowd}
    link = measure.link(curves["all-reduce"][str(comm.size)] if curves else [], comm.size, core)
    content = machine_content(comm, core, link, "measured", tables, curves)
    if done < sizes:
        content["source"] += f"; only {done} of {sizes} sizes of operations were measured: predictions may be far off"
    return content


def machine_content(comm, core, link, how, tables=None, curves=None):
    """The content of a machine file. Collective. link: of every entry of "links". curves: the entry "collectives"."""
    ranks = ranks_of_node(comm)
    memory = memory_of_machine() * ranks / max(on_machine(comm))
    return {
        "name": f"{comm.size} rank{'s' * (comm.size > 1)}, {ranks} a node, {os.environ.get(LINK, platform.machine())}",
        "source": f"{how} on {comm.size} ranks; {' '.join(map(str, MPI.get_vendor()))}",
        "core": core,
        "node": {"ranks": ranks, "bandwidth": core["bandwidth"] * ranks, "memory": memory},
        "links": {"node": link, "network": link},
        "tables": tables or {},
        "collectives": curves or {},
    }


def memory_of_rank(comm):
    """This rank's part of the bytes of memory of its machine. Collective."""
    return memory_of_machine() / on_machine(comm)[comm.rank]


def memory_of_machine():
    """The bytes of memory of this rank's machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
