"""The nodes on which a job may run: their names and slots, whether they answer, and how a launcher is told to use them.

Nodes are {name: slots}, in the order in which ranks are placed; a slot is a place for one rank.
"""

import os
import platform
import re
import shlex
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from gridgrad.experiments.launching.start_ranks import is_open_mpi
from gridgrad.nn.files import limits

SECONDS = 20.0  # in which a node has to answer
SSH = "ssh -o BatchMode=yes -o ConnectTimeout=10 -- {node} true"
SRUN = "srun --overlap --nodes=1 --ntasks=1 --nodelist={node} true"
NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"  # of a node: never an option of a program, and nothing to a shell
LINE = re.compile(rf"({NAME})(?:(?::|\s+slots\s*=\s*)([0-9]{{1,6}}))?(?:\s.*)?")


def nodes_in(path):
    """The nodes of a file with a line `NAME`, `NAME:SLOTS` or `NAME slots=SLOTS` for each, as launchers read them.

    Text behind # is a comment. A name that stands there several times has as many slots more. OSError if the file can not be
    read; ValueError if it is another one.
    """
    found = {}
    text = limits.read_limited(path, limits.longest_text()).decode(errors="replace")
    for number, line in enumerate(text.splitlines(), 1):
        if words := line.partition("#")[0].strip():
            match = LINE.fullmatch(words)
            if match is None:
                raise ValueError(f"{path}, line {number}: '{words}' is no node: write NAME, NAME:SLOTS or NAME slots=SLOTS")
            name, slots = match.groups()
            found[name] = found.get(name, 0) + int(slots or 1)
    if not sum(found.values()):
        raise ValueError(f"{path} has no nodes: write a line with NAME:SLOTS for each")
    return found


def nodes_of_allocation(environ=os.environ):
    """The nodes of the Slurm allocation in which this process is, with Slurm's tasks as slots; {} outside of one.

    OSError or ValueError if Slurm does not say which they are.
    """
    names, tasks = environ.get("SLURM_JOB_NODELIST"), environ.get("SLURM_TASKS_PER_NODE")
    if not names or not tasks:
        return {}
    found = subprocess.run(["scontrol", "show", "hostnames", names], capture_output=True, text=True, timeout=60)
    if found.returncode:
        raise ValueError(f"scontrol does not know the nodes {names}: {found.stderr.strip()}")
    slots = []
    for part in tasks.split(","):  # such as 16(x3),8
        if match := re.fullmatch(r"([0-9]{1,6})(?:\(x([0-9]{1,6})\))?", part):
            slots += [int(match[1])] * int(match[2] or 1)
    hosts = found.stdout.split()
    if len(hosts) != len(slots) or not all(re.fullmatch(NAME, host) for host in hosts):
        raise ValueError(f"the nodes {names} and SLURM_TASKS_PER_NODE={tasks} do not belong together: name them with --nodes")
    return dict(zip(hosts, slots, strict=True))


def answering(nodes, ask):
    """Those of some nodes that answer. ask: a command with {node} in it that succeeds if the node does.

    All are asked at once, and have SECONDS to answer. This machine answers itself.
    """
    here = {"localhost", platform.node(), platform.node().partition(".")[0]}
    asked = {
        name: subprocess.Popen(
            [word.replace("{node}", name) for word in shlex.split(ask)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )
        for name in nodes if name not in here
    }  # fmt: skip
    deadline = time.monotonic() + SECONDS
    for process in asked.values():
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
        if process.returncode is None:
            process.kill()
            process.wait()
    return {name: slots for name, slots in nodes.items() if name in here or asked[name].returncode == 0}


def launcher_options(launcher, nodes, ranks):
    """The options that make a launcher place so many ranks on nodes, one node after another.

    launcher: the path of MPICH's or Open MPI's mpiexec or of srun.
    """
    used, left = {}, ranks
    for name, slots in nodes.items():
        if left > 0 and slots:
            used[name] = min(slots, left)
            left -= slots
    if Path(launcher).name == "srun":
        return [f"--nodes={len(used)}", f"--nodelist={','.join(used)}", "--distribution=block"]
    placed = ",".join(f"{name}:{slots}" for name, slots in used.items())
    return ["--host" if is_open_mpi(launcher) else "-hosts", placed]
