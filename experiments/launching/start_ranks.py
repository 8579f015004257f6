"""Starting jobs with mpiexec and ending them.

A job has a time limit. When it ends, for whatever reason, none of its processes and none of its shared-memory files remain.
"""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gridgrad.experiments.launching import leftovers
from gridgrad.parallel.job import own_process
from gridgrad.parallel.job.own_process import MARK, end_with_parent

FALSE_START = "The PMIx server's listener thread failed to start"  # an error that Open MPI's mpiexec has now and then
STARTS = 3  # how often such a job is started before giving up


@dataclass
class Finished:
    """How a job ended, and what it printed.

    status: the exit status of mpiexec, or None if the job was ended because it reached its time limit.
    stdout, stderr: the text that all ranks printed.
    """

    status: int | None
    stdout: str
    stderr: str


def find_mpiexec():
    """The command that launches jobs, as a list of words.

    It is the environment variable MPIEXEC if that is set, otherwise the mpiexec in the folder of this Python (where the MPI
    wheels install it), otherwise the mpiexec on the PATH. Raises OSError, with advice, if there is none.
    """
    beside = Path(sys.executable).parent / "mpiexec"
    try:
        words = shlex.split(os.environ.get("MPIEXEC", ""))
    except ValueError:
        raise OSError(f"MPIEXEC={os.environ['MPIEXEC']} has a quotation mark that is not closed: close it") from None
    words = words or [str(beside) if beside.exists() else "mpiexec"]
    program = shutil.which(words[0])
    if program is None:
        raise OSError(f"no launcher '{words[0]}': install the wheel 'mpich', or set MPIEXEC to your system's launcher")
    return [program, *words[1:]]


@lru_cache
def is_open_mpi(mpiexec):
    """Whether the launcher at this path is Open MPI's."""
    version = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, timeout=60).stdout
    return "Open MPI" in version or "OpenRTE" in version or "PRRTE" in version


def go_on():
    """Ignore the signals that a terminal or a batch system may send to all processes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)


def cores():
    """The set of cores that this process may use."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def slots():
    """How many ranks can have a core of their own: the tasks of Slurm or PBS inside an allocation, else the cores here."""
    tasks, nodes = os.environ.get("SLURM_NTASKS", ""), os.environ.get("PBS_NODEFILE", "")
    if tasks.isdecimal():
        return int(tasks)
    if nodes and Path(nodes).is_file():
        return len(Path(nodes).read_text().split())  # a line for each rank
    return len(cores())


def nodes():
    """How many nodes the ranks that `slots` counts are on."""
    count, listed = os.environ.get("SLURM_NNODES", ""), os.environ.get("PBS_NODEFILE", "")
    if count.isdecimal():
        return int(count)
    if listed and Path(listed).is_file():
        return len(set(Path(listed).read_text().split()))
    return 1


def environment(ranks, mpiexec):
    """The environment variables of a job of `ranks` ranks that `mpiexec` (a path) starts.

    Beside this process's own variables, which always win, they give each rank one BLAS thread, make ranks that wait yield
    their core where there are more ranks than cores, and set what Open MPI needs on such machines.
    """
    env = dict(os.environ)
    env.setdefault("OMP_NUM_THREADS", "1")
    crowded = ranks > slots()
    defaults = {}
    if not is_open_mpi(mpiexec):
        if crowded:  # without it a barrier of 8 ranks on 2 cores takes 10 times as long
            defaults["MPIR_CVAR_ENABLE_HEAVY_YIELD"] = "1"
    else:
        if crowded:  # the first two are Open MPI 5's, the others Open MPI 4's
            defaults |= {
                "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
                "PRTE_MCA_hwloc_default_binding_policy": "none",
                "OMPI_MCA_rmaps_base_oversubscribe": "1",
                "OMPI_MCA_hwloc_base_binding_policy": "none",
            }
        if os.getuid() == 0:
            defaults |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        if Path(mpiexec).parent == Path(sys.executable).parent:  # the wheel has no drivers of cluster networks
            defaults |= {"OMPI_MCA_btl": "self,sm,tcp", "OMPI_MCA_mtl": "^ofi", "OMPI_MCA_osc": "^ucx"}
    for name, value in defaults.items():
        env.setdefault(name, value)
    return env


def mpiexec(ranks, arguments, timeout, env=None, launcher=None):
    """Run `python ARGUMENTS` on `ranks` ranks, wait for the end, and return a Finished.

    timeout: seconds after which the job is killed. env: environment variables that are set in addition. launcher: the words of
    the command that launches it, by default what `find_mpiexec` finds.
    However the job ends (by itself, killed, hung, or by an exception here such as Ctrl-C), none of its processes and none
    of its shared-memory files remain. A launcher that fails before it has started any rank is started again.
    """
    for _ in range(STARTS):
        finished = _job(ranks, arguments, timeout, env, launcher or find_mpiexec())
        if finished.status == 0 or FALSE_START not in finished.stderr:
            break
    return finished


def _job(ranks, arguments, timeout, env, launcher):
    """Start mpiexec once and wait until it ends."""
    process, caretaker = launch(launcher, ranks, [sys.executable, *arguments], env, text=True, errors="replace")
    deadline, clean = time.monotonic() + timeout, False
    try:
        # In short waits: a signal that the system hands to another thread is noticed here only when a wait ends.
        while time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                stdout, stderr = process.communicate(timeout=min(1, timeout))
                clean = process.returncode == 0
                return Finished(process.returncode, stdout, stderr)
        care_no_more(caretaker, clean)
        stdout, stderr = process.communicate()
        return Finished(None, stdout, stderr + f"\nended by the watchdog after {timeout} s")
    finally:
        care_no_more(caretaker, clean)
        process.wait()


def launch(launcher, ranks, command, env=None, options=(), **how):
    """Start the words of a command on so many ranks; returns (the launcher's process, the caretaker of the job).

    launcher: the words of mpiexec. env, options: variables and options of the launcher, in addition. how: as for Popen.
    The caretaker cleans up when `care_no_more` is called and when this process dies: see `experiments/launching/leftovers.py`.
    """
    mark = uuid.uuid4().hex
    caretaker = subprocess.Popen(
        [sys.executable, "-I", "-S", leftovers.__file__, own_process.__file__, mark],
        env={name: value for name, value in os.environ.items() if name != MARK},  # of a job that this one is part of
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
        start_new_session=True, preexec_fn=go_on, bufsize=0,
    )  # fmt: skip
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    try:
        process = subprocess.Popen(
            [*launcher, *options, "-n", str(ranks), *command],
            env=environment(ranks, launcher[0]) | {MARK: mark} | (env or {}),
            start_new_session=True, preexec_fn=end_with_parent, **pipes | how,
        )  # fmt: skip
    except BaseException:
        care_no_more(caretaker, clean=True)
        raise
    with contextlib.suppress(BrokenPipeError):
        caretaker.stdin.write(str(process.pid).encode())
    return process, caretaker


def care_no_more(caretaker, clean):
    """End the caretaker of a job. Unless the job has ended well, first none of its processes and files remain."""
    if clean:
        caretaker.kill()
    caretaker.stdin.close()
    if caretaker.wait() and not clean:  # somebody has killed it
        leftovers.clean_up(caretaker.args[-1], 0, {})
