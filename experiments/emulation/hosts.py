"""An MPI job on several hosts that this Linux machine emulates, joined by a network of a chosen rate and delay.

Each host has a network, a name and a /dev/shm of its own, so ranks of different hosts talk TCP; they share the cores, the
memory and the disk. `gridgrad launch --hosts 4` runs jobs so.

This program waits, and passes the status on. Process 1 of a namespace sets everything up, and then is the switch between the
hosts (`experiments/emulation/shaper.py`). On each host a process sleeps that keeps its namespaces. mpiexec has a port of the
switch too, and starts its proxies on the hosts through a stand-in for ssh. The hosts are Linux namespaces without names, each
of which exists as long as a process runs in it. So nothing of a job has a name or a file outside, and all of it ends with
process 1.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from gridgrad.experiments.emulation import shaper
from gridgrad.experiments.launching.start_ranks import cores, environment, find_mpiexec, is_open_mpi
from gridgrad.parallel.job.own_process import LINK, end_with_parent
from gridgrad.parallel.job.run import one_line

NETWORK, NAME, MEMORY, MOUNTS, PROCESSES = 0x40000000, 0x04000000, 0x08000000, 0x00020000, 0x20000000  # linux/sched.h
RECURSIVE, PRIVATE = 0x4000, 0x40000  # linux/mount.h
ADDRESS = "10.77.0.{}"  # of host i: i + 1
LAUNCHER = 254  # where mpiexec is
SHARED_MEMORY = Path("/dev/shm")  # a file system of each host's own
SSH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done  # its options
process=$(cat "${0%/*}/$1"); shift
exec nsenter --target "$process" --net --uts --ipc --mount sh -c 'cd "$1" && eval "$2"' sh "$PWD" "$*"
"""


@dataclass(frozen=True)
class EmulatedJob:
    """A job on emulated hosts."""

    hosts: int
    ranks: int  # in blocks over the hosts
    command: tuple[str, ...]  # the words of the program that each rank runs
    rate: float = 1000.0  # Mbit/s of a host's cable; 0 for no limit
    delay: float = 50.0  # microseconds from host to host, one way


def check():
    """Raise OSError that says what is missing here."""
    if sys.platform != "linux":
        raise OSError("only Linux can play several hosts, with its namespaces")
    if os.geteuid() != 0:
        raise OSError("only root can make networks: start it with sudo")
    for tool, package in {"ip": "iproute2", "nsenter": "util-linux"}.items():
        if shutil.which(tool) is None:
            raise OSError(f"there is no program '{tool}': install {package}")
    try:
        os.close(os.open(shaper.DEVICE, os.O_RDWR))
    except OSError as error:
        raise OSError(f"{shaper.DEVICE}: {error.strerror}; networks in user space need it: try `modprobe tun`") from None


def play(job):
    """As process 1: set the hosts up, run the job, and carry its packets; returns the status of mpiexec."""
    leave(MOUNTS)
    mount("proc", "/proc")
    ports, processes = {}, {}
    for i in range(job.hosts):
        ports[i + 1] = become(f"host{i}", i + 1)
        process = os.fork()  # one that does nothing, and keeps the host
        while process == 0:
            signal.pause()
        processes[ADDRESS.format(i + 1)] = process
    ports[LAUNCHER] = become("launcher", LAUNCHER)
    for address, process in processes.items():
        (SHARED_MEMORY / address).write_text(str(process))
    ssh = SHARED_MEMORY / "ssh"
    ssh.write_text(SSH)
    ssh.chmod(0o700)
    process = subprocess.Popen(**launch(job, ssh), stdin=subprocess.DEVNULL, start_new_session=True)
    with contextlib.suppress(OSError):  # no rank that computes makes a packet late
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    rate = job.rate * 1e6 / 8 if job.rate else float("inf")
    shaper.Switch(ports, rate, job.delay * 1e-6).run(stop=os.pidfd_open(process.pid))
    status = process.wait()
    return status if status >= 0 else 128 - status


def become(name, last_byte):
    """Make this process one on a new host, its address ending so; returns the other end of the network's interface."""
    leave(NETWORK, NAME, MEMORY, MOUNTS)
    socket.sethostname(name)
    mount("tmpfs", str(SHARED_MEMORY))
    end = shaper.interface("eth0")
    commands = f"link set lo up\naddress add {ADDRESS.format(last_byte)}/24 dev eth0\nlink set eth0 up txqueuelen 10000\n"
    done = subprocess.run(["ip", "-batch", "-"], input=commands, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"the network of {name} can not be set up: ip says {done.stderr.strip()}")
    return end


def launch(job, ssh):
    """mpiexec's command line and environment, by keyword: ranks in blocks, TCP between hosts."""
    mpiexec, *options = find_mpiexec()
    a_host = -(-job.ranks // job.hosts)
    used = [ADDRESS.format(i + 1) for i in range(-(-job.ranks // a_host))]
    if is_open_mpi(mpiexec):
        options += ["--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none"]
        options += ["--host", ",".join(f"{host}:{a_host}" for host in used)]
        defaults = {
            "PRTE_MCA_plm_ssh_agent": str(ssh), "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
            "PRTE_MCA_prte_if_include": "eth0", "PRTE_MCA_prte_tmpdir_base": str(SHARED_MEMORY),
            "OMPI_MCA_btl_tcp_if_include": "eth0",
        }  # fmt: skip
        if job.ranks > len(cores()):  # which the hosts do not know of one another
            defaults["OMPI_MCA_mpi_yield_when_idle"] = "1"
    else:
        options += ["-launcher", "ssh", "-launcher-exec", str(ssh), "-iface", "eth0", "-disable-hostname-propagation"]
        options += ["-ppn", str(a_host), "-hosts", ",".join(used)]
        defaults = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0"}
    rate = f"{job.rate:g} Mbit/s" if job.rate else "no limit of the rate"
    defaults[LINK] = f"{job.hosts} hosts played on {len(cores())} cores, {rate}, {job.delay:g} us"
    command = [mpiexec, *options, "-n", str(job.ranks), *job.command]
    return {"args": command, "env": defaults | environment(job.ranks, mpiexec)}


def leave(*kinds):
    """Move this process into new namespaces of these kinds; with PROCESSES it is the next child that moves, as process 1."""
    _call("unshare", sum(kinds))
    if MOUNTS in kinds:
        _call("mount", b"none", b"/", None, RECURSIVE | PRIVATE, None)  # what is mounted from now on stays inside


def mount(kind, folder):
    """Mount a file system that needs no device, "proc" or "tmpfs", over `folder`."""
    _call("mount", kind.encode(), folder.encode(), kind.encode(), 0, None)


def _call(function, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, function)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")


def contained(body):
    """The exit status of `body()`, run as process 1 of a namespace of its own; 128 + the number of a signal that ended it. The
    kernel ends all processes of a namespace with its process 1, and process 1 with its parent: none remains."""
    sys.stdout.flush()
    leave(PROCESSES)
    child = os.fork()
    if child == 0:
        end_with_parent()
        sys.exit(body())
    status = None
    try:
        status = os.waitpid(child, 0)[1]
    finally:
        if status is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def run(job):
    """Run a job on emulated hosts; returns its status. job: an EmulatedJob. OSError that says what is missing here."""
    find_mpiexec()
    check()
    try:
        return contained(lambda: play(job))
    except PermissionError as error:
        raise OSError(f"{one_line(error)}: this root may not make networks; a container must be privileged") from None
