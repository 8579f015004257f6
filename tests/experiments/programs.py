"""Starting programs as a user would, but for their imports, which take longer than most of what the tests let them do.

A process that has imported what the programs share forks one process for each program that runs alone. Programs that refuse
bad input on several ranks do so one after another in one job. tests/test_docs.py starts every program without all this.
"""

import json
import multiprocessing
import os
import runpy
import sys
import tempfile
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired

from gridgrad.experiments.common import command
from gridgrad.experiments.launching.start_ranks import Finished, mpiexec

SHARED = [f"gridgrad.experiments.{name}" for name in ("common.report", "common.train_setup", "plots.style")] + [
    "scipy.optimize"
]
TIME_LIMIT = 300  # seconds

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(SHARED)


def program(*arguments):
    """A program or a module, run alone: `program("plot", "speedup", path)`. Returns a CompletedProcess."""
    words = [str(word) for word in arguments]
    with tempfile.TemporaryDirectory(prefix="gridgrad-program-") as folder:
        outputs = [Path(folder) / name for name in ("stdout", "stderr")]
        process = processes.Process(target=_run, args=(words, outputs, dict(os.environ), os.getcwd()))
        process.start()
        process.join(TIME_LIMIT)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise TimeoutExpired(words, TIME_LIMIT)
        return CompletedProcess(words, process.exitcode, *(path.read_text() for path in outputs))


def _run(words, outputs, environment, folder):
    """Be the program, in a process of its own."""
    os.environ.clear()
    os.environ.update({"OMP_NUM_THREADS": "1"} | environment)  # the variable that `experiments` has set before the fork
    os.chdir(folder)
    for number, path in enumerate(outputs, 1):
        file = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    sys.argv = words
    if is_ours(words[0]):
        sys.argv = words if words[0] == "gridgrad" else ["gridgrad", *words]
        command.main()
    else:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)


def job(ranks, *arguments, timeout=120):
    """A program on so many ranks: `job(4, "train", "--grid", "model=4")`. Returns a Finished."""
    if ranks == 1:
        alone = program(*arguments)
        return Finished(alone.returncode, alone.stdout, alone.stderr)
    words = [str(word) for word in arguments]
    return mpiexec(ranks, ["-m", "gridgrad", *words] if is_ours(words[0]) else ["-m", *words], timeout)


def is_ours(name):
    """Whether this is what may stand behind `gridgrad`, and not a module."""
    return "." not in name


def assert_refused(ranks, name, cases, options=()):
    """Each rank refuses these command lines of a program with the same UserError, and prints nothing.

    cases: (arguments, words that stand in the message). options: arguments in front of those of every case. One job refuses
    them all, one after another. How a job ends after a UserError is tested in tests/parallel/job/test_job.py.
    """
    with tempfile.TemporaryDirectory(prefix="gridgrad-refusals-") as folder:
        path = Path(folder) / "refusals"
        path.write_text(json.dumps([[str(word) for word in (*options, *arguments)] for arguments, _ in cases]))
        finished = mpiexec(ranks, ["-m", "tests.experiments.refuse", name, str(path)], 120)
        assert (finished.status, finished.stdout, finished.stderr) == (0, "", "")
        messages = json.loads(path.read_text())
    assert [(words, message) for (_, words), message in zip(cases, messages, strict=True) if words not in message] == []
