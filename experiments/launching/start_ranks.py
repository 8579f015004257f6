"""Starting jobs with mpiexec and ending them, in the background with a time limit or in the foreground, and on which nodes.

When a job ends, for whatever reason, none of its processes and none of its shared-memory files remain. Nodes are {name: slots},
in the order in which ranks are placed; a slot is a place for one rank.
"""

import contextlib
import json
import os
import platform
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from gridgrad.experiments.launching import leftovers
from gridgrad.nn.files import limits
from gridgrad.parallel.job import own_process
from gridgrad.parallel.job.own_process import MARK, end_with_parent
from gridgrad.parallel.job.run import UserError

FALSE_START = "The PMIx server's listener thread failed to start"  # an error that Open MPI's mpiexec has now and then
STARTS = 3  # how often such a job is started before giving up
SHOWN = 300  # characters of what a job said last, where its errors are
WORDS = 5.0  # seconds in which the last words of a job arrive, where something that it started holds its output open
PASSED_ON = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1
SECONDS = 20.0  # in which a node has to answer
SSH = "ssh -o BatchMode=yes -o ConnectTimeout=10 -- {node} true"
SRUN = "srun --overlap --nodes=1 --ntasks=1 --nodelist={node} true"
NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"  # of a node: never an option of a program, and nothing to a shell
LINE = re.compile(rf"({NAME})(?:(?::|\s+slots\s*=\s*)([0-9]{{1,6}}))?(?:\s.*)?")


class Finished(NamedTuple):
    """How a job ended, and what it printed. status: that of mpiexec, or None if the job has reached its time limit."""

    status: int | None
    stdout: str
    stderr: str


def find_mpiexec():
    """The words of the command that launches jobs: MPIEXEC if that is set, else the mpiexec in the folder of this Python, where
    the MPI wheels install it, else that on the PATH. OSError, with advice, if there is none."""
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
    return _allocated("SLURM_NTASKS", list) or len(cores())


def nodes():
    """How many nodes the ranks that `slots` counts are on."""
    return _allocated("SLURM_NNODES", set) or 1


def _allocated(variable, kind):
    """The number in a variable of Slurm, or that of the lines of the file of PBS, one a rank; None outside of both."""
    count, names = os.environ.get(variable, ""), Path(os.environ.get("PBS_NODEFILE") or os.devnull)
    return int(count) if count.isdecimal() else len(kind(names.read_text().split())) if names.is_file() else None


def environment(ranks, mpiexec):
    """The environment variables of a job of `ranks` ranks that `mpiexec` (a path) starts: this process's own, which always win,
    one BLAS thread a rank, yielding while waiting where there are more ranks than cores, and what Open MPI needs here."""
    env = dict(os.environ)
    env.setdefault("OMP_NUM_THREADS", "1")
    is_crowded, defaults = ranks > slots(), {}
    if not is_open_mpi(mpiexec):
        if is_crowded:  # without it a barrier of 8 ranks on 2 cores takes 10 times as long
            defaults["MPIR_CVAR_ENABLE_HEAVY_YIELD"] = "1"
        return defaults | env
    if is_crowded:
        defaults |= {
            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "PRTE_MCA_hwloc_default_binding_policy": "none",
            "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
        }  # fmt: skip # of Open MPI 5 and of Open MPI 4
    if os.getuid() == 0:
        defaults |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if Path(mpiexec).parent == Path(sys.executable).parent:  # the wheel has no drivers of cluster networks
        defaults |= {"OMPI_MCA_btl": "self,sm,tcp", "OMPI_MCA_mtl": "^ofi", "OMPI_MCA_osc": "^ucx"}
    return defaults | env


def mpiexec(ranks, arguments, timeout, env=None, launcher=None):
    """Run `python ARGUMENTS` on `ranks` ranks, wait for the end, and return a Finished. timeout: seconds after which the job is
    killed. env: variables in addition. launcher: its words, by default those of `find_mpiexec`. A launcher that fails before it
    has started any rank is started again."""
    command = [sys.executable, *arguments]
    for _ in range(STARTS):
        process, caretaker = launch(launcher or find_mpiexec(), ranks, command, env, text=True, errors="replace")
        finished, deadline = None, time.monotonic() + timeout
        try:
            # In short waits: a signal that the system hands to another thread is noticed here only when a wait ends.
            while finished is None and time.monotonic() < deadline:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    stdout, stderr = process.communicate(timeout=min(1, timeout))
                    finished = Finished(process.returncode, stdout, stderr)
        finally:
            care_no_more(caretaker, clean=finished is not None and finished.status == 0)
            process.wait()
        if finished is None:
            stdout, stderr = process.communicate()
            finished = Finished(None, stdout, stderr + f"\nended by the watchdog after {timeout} s")
        if finished.status == 0 or FALSE_START not in finished.stderr:
            break
    return finished


def check_ended(job, what):
    """Raise UserError with the last words of a Finished unless it ended well. what: the words for what was run."""
    if job.status != 0:
        raise UserError(f"{what} ended with status {job.status}: {job.stderr.strip()[-SHOWN:]}")


def printed_json(job, what):
    """The content of the JSON in the last line that a Finished has printed. what, UserError: as for `check_ended`."""
    check_ended(job, what)
    return json.loads(job.stdout.strip().splitlines()[-1])


def launch(launcher, ranks, command, env=None, options=(), **how):
    """Start the words of a command on so many ranks; returns (the launcher's process, the caretaker of the job). launcher: the
    words of mpiexec. env, options: variables and options of the launcher, in addition. how: as for Popen. The caretaker
    (`experiments/launching/leftovers.py`) cleans up at `care_no_more`, and when this process dies."""
    mark = uuid.uuid4().hex
    without_mark = {name: value for name, value in os.environ.items() if name != MARK}  # of a job that this one is part of
    caretaker = subprocess.Popen([sys.executable, "-I", "-S", leftovers.__file__, own_process.__file__, mark], env=without_mark,
                                 stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
                                 start_new_session=True, preexec_fn=go_on, bufsize=0)  # fmt: skip
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    try:
        env = environment(ranks, launcher[0]) | {MARK: mark} | (env or {})
        process = subprocess.Popen([*launcher, *options, "-n", str(ranks), *command], env=env, start_new_session=True,
                                   preexec_fn=end_with_parent, **pipes | how)  # fmt: skip
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


# ----- jobs in the foreground


class Foreground:
    """Starts jobs, one after another. From when it is made, signals to this process are passed on to the job that runs.
    signalled: the number of the first such signal, None so far. After it no other job is started."""

    def __init__(self):
        self.signalled = self._process = self._launcher = self._full = None
        for number in PASSED_ON:
            signal.signal(number, self._hear)

    def _hear(self, number, frame):
        again, self.signalled = self.signalled is not None, self.signalled or number
        if self._process:
            # MPICH's mpiexec passes all of them on. At SIGTERM Open MPI's mpiexec and Slurm's srun kill the ranks, and pass
            # SIGUSR1 on, which means the same to a training.
            kills = Path(self._launcher).name == "srun" or is_open_mpi(self._launcher)
            self._process.send_signal(signal.SIGUSR1 if number == signal.SIGTERM and kills and not again else number)

    def run(self, ranks, command, options=()):
        """Run the words of a command on `ranks` ranks without input; returns the status to exit with, after a signal that came
        before that of a process that the signal ended. options: of the launcher, in addition. UserError after a job that went
        well, but whose output could not be written."""
        launcher = find_mpiexec()
        self._launcher = launcher[0]
        is_open_mpi(launcher[0])  # asks the launcher, which is not to be done while a signal is handled
        if self.signalled:
            return 128 + self.signalled
        process, caretaker = launch(launcher, ranks, command, options=options)  # in a session: Ctrl-C comes once, from here
        outputs = (process.stdout, 1), (process.stderr, 2)
        said = [threading.Thread(target=self._pass_on, args=output, daemon=True) for output in outputs]
        for thread in said:
            thread.start()
        self._process = process
        if self.signalled:  # while it was being started
            process.terminate()
        status = process.wait()
        self._process = None
        care_no_more(caretaker, clean=not status)
        for thread in said:
            thread.join(WORDS)
        if self.signalled == signal.SIGINT:  # of which launchers make statuses of their own
            return 128 + signal.SIGINT
        if self._full and not status:
            raise UserError(f"can not write the output: {self._full.strerror}")
        return 128 - status if status < 0 else status

    def _pass_on(self, pipe, descriptor):
        """Pass on what a job prints, but nothing that it and its launcher say after Ctrl-C, or that nobody reads any more."""
        with pipe:
            while said := os.read(pipe.fileno(), 1 << 16):
                while said and self.signalled != signal.SIGINT:
                    try:
                        said = said[os.write(descriptor, said) :]
                    except BlockingIOError:  # another program has made the stream one that does not wait
                        select.select([], [descriptor], [])
                    except OSError as error:
                        said = b""
                        if descriptor == 1 and not isinstance(error, BrokenPipeError):
                            self._full = error

    def pause(self, seconds):
        """Wait so long, or until a signal comes."""
        deadline = time.monotonic() + seconds
        while self.signalled is None and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))


# ----- nodes


def nodes_in(path):
    """The nodes of a file with a line `NAME`, `NAME:SLOTS` or `NAME slots=SLOTS` for each, as launchers read them; comments
    begin with #. A name that stands there several times has as many slots more. OSError if the file can not be read;
    ValueError if it is another one."""
    found = {}
    text = limits.read_limited(path, limits.longest_text()).decode(errors="replace")
    for number, line in enumerate(text.splitlines(), 1):
        if words := line.partition("#")[0].strip():
            if (match := LINE.fullmatch(words)) is None:
                raise ValueError(f"{path}, line {number}: '{words}' is no node: write NAME, NAME:SLOTS or NAME slots=SLOTS")
            found[match[1]] = found.get(match[1], 0) + int(match[2] or 1)
    if not sum(found.values()):
        raise ValueError(f"{path} has no nodes: write a line with NAME:SLOTS for each")
    return found


def nodes_of_allocation(environ=os.environ):
    """The nodes of the Slurm allocation in which this process is, with Slurm's tasks as slots; {} outside of one. OSError or
    ValueError if Slurm does not say which they are."""
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
    """Those of some nodes that answer. ask: a command with {node} in it that succeeds if the node does. All are asked at once,
    and have SECONDS to answer. This machine answers itself."""
    here = {"localhost", platform.node(), platform.node().partition(".")[0]}
    nothing = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    asked = {name: subprocess.Popen(shlex.split(ask.replace("{node}", name)), start_new_session=True, **nothing)
             for name in nodes if name not in here}  # fmt: skip
    deadline = time.monotonic() + SECONDS
    for process in asked.values():
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
        process.kill()  # nothing where it has ended
        process.wait()
    return {name: slots for name, slots in nodes.items() if name in here or asked[name].returncode == 0}


def launcher_options(launcher, nodes, ranks):
    """The options that make a launcher place so many ranks on nodes, one node after another. launcher: the path of MPICH's or
    Open MPI's mpiexec or of srun."""
    used, left = {}, ranks
    for name, slots in nodes.items():
        if left > 0 and slots:
            used[name] = min(slots, left)
            left -= slots
    if Path(launcher).name == "srun":
        return [f"--nodes={len(used)}", f"--nodelist={','.join(used)}", "--distribution=block"]
    placed = ",".join(f"{name}:{slots}" for name, slots in used.items())
    return ["--host" if is_open_mpi(launcher) else "-hosts", placed]
