"""Trainings whose ranks are killed at random, again and again, end as if nothing had happened.

    python -m tests.kills --kills 200 --seed 1

Each training runs under `gridgrad supervise` on a small network, with checkpoints so often that kills hit while they are
written. Afterwards:

- the training has the loss of every step, and the digest of the parameters, of a training that nobody disturbed, bit by bit;
- no checkpoint was ever passed over as damaged, and all that are left are whole;
- no process and no shared-memory file is left.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gridgrad.experiments.launching.start_ranks import mpiexec
from gridgrad.parallel.checkpoint.manifest import found_in
from tests.killer import half_written_in, processes_with, segments_of, whole_in

TRAINING = "GRIDGRAD_KILLS"  # the environment variable with the mark of one supervised training
RANKS = "PMI_RANK", "OMPI_COMM_WORLD_RANK"  # environment variables of ranks
MOMENTS = {"starting": (0.45, 3.0), "writing": (0.35, 0.012), "later": (0.2, 1.0)}  # (the chance of it, most seconds behind it)
PATIENCE = 60.0  # seconds for what a kill waits for
MOST = 12  # kills of one training
LIMIT = 600  # seconds for one training, kills included
SETTINGS = ["--net", "mlp:24,24,tanh", "--batch-size", "48", "--lr", "0.05", "--quiet"]


@dataclass(frozen=True)
class Case:
    """A training. ranks: of its grid. options: of train. steps: how many; there is a checkpoint every third one."""

    grid: str
    ranks: int = 2
    options: tuple = ()
    steps: int = 400

    @property
    def words(self):
        return [*SETTINGS, "--steps", str(self.steps), *self.options]


CASES = [
    Case("batch=2"),
    Case("batch=2", 2, ("--protocol", "local:3")),
    Case("batch=2,model=2", 4, ("--optimizer", "adam"), 200),
    Case("stage=2", 2, ("--micro-batches", "3", "--update", "sharded")),
    Case("batch=3", 3, ("--update", "sharded", "--momentum", "0.9"), 200),
]


class Killer:
    """Kills ranks of the training with a mark. folder: of its checkpoints.

    kills: {moment: how many}. half_written: when their job was gone. segments: the shared-memory files that the ranks had.
    """

    def __init__(self, mark, folder, random):
        self.mark, self.folder, self.random = f"{TRAINING}={mark}", folder, random
        self.kills, self.half_written, self.segments = Counter(), set(), set()

    def kill_one(self, goes_on):
        """Wait for a random moment and kill a process, with which its job ends. goes_on: whether the training does."""
        moment = self.random.choices(list(MOMENTS), [chance for chance, _ in MOMENTS.values()])[0]
        before = whole_in(self.folder)
        conditions = {
            "starting": self.ranks,
            "writing": lambda: self.ranks() and half_written_in(self.folder) - self.half_written,
            "later": lambda: self.ranks() and whole_in(self.folder) - before,
        }
        if not wait(conditions[moment], goes_on):
            return
        time.sleep(self.random.uniform(0, MOMENTS[moment][1]))
        ranks = sorted(self.ranks())
        self.segments |= {path for rank in ranks for path in segments_of(rank)}
        if not ranks or not goes_on():
            return
        with suppress(ProcessLookupError):
            os.kill(self.random.choice(ranks), signal.SIGKILL)
            self.kills[moment] += 1
        wait(lambda: not processes_with(self.mark).keys() & set(ranks), lambda: True)
        self.half_written |= half_written_in(self.folder)

    def ranks(self):
        """The ids of the ranks."""
        return {pid for pid, environment in processes_with(self.mark).items()
                if any(variable.partition("=")[0] in RANKS for variable in environment)}  # fmt: skip


def wait(condition, goes_on):
    """Whether a condition comes true while the training goes on."""
    deadline = time.monotonic() + PATIENCE
    while goes_on() and time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.001)
    return False


def undisturbed(case, folder):
    """(losses, digest) of a training that nobody disturbs, without checkpoints."""
    report = folder / "undisturbed.json"
    words = ["-m", "gridgrad", "train", *case.words, "--grid", case.grid, "--report", str(report)]
    finished = mpiexec(case.ranks, words, LIMIT)
    assert finished.status == 0, finished.stderr
    return results(report)


def results(report):
    content = json.loads(report.read_text())
    return content["loss"], content["params_digest"]


def disturbed(case, folder, kills, random, undisturbed):
    """Run a training and kill its ranks so often, or until it ends; returns (its Killer, what went wrong, in words)."""
    mark, checkpoints, report = uuid.uuid4().hex, folder / "checkpoints", folder / "report.json"
    words = [sys.executable, "-m", "gridgrad", "supervise", "--grid", case.grid, "--retries", str(MOST), "--wait", "0.05", "--"]
    words += ["train", *case.words, "--checkpoint", str(checkpoints), "--checkpoint-steps", "3", "--report", str(report)]
    killer, deadline, environment = Killer(mark, checkpoints, random), time.monotonic() + LIMIT, os.environ | {TRAINING: mark}
    with open(folder / "output", "w+") as output:
        process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            while killer.kills.total() < kills and process.poll() is None and time.monotonic() < deadline:
                killer.kill_one(lambda: process.poll() is None and time.monotonic() < deadline)
            status = process.wait(max(1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            status = f"none after {LIMIT} s"
        finally:
            process.kill()  # if it still runs: its ranks end with it, whatever they wait for
            process.wait()
        output.seek(0)
        text = output.read()
    wrong = ["a checkpoint was damaged"] if "passed over" in text else []
    if status != 0 or results(report) != undisturbed:
        wrong.append(f"status {status}, or another result")
    manifests, passed_over = found_in(checkpoints)
    wrong += [*passed_over.values()] + [words for one in manifests for entry in one.files if (words := one.damage(entry))]
    wrong += [f"process {process} is left" for process in processes_with(killer.mark)]
    wrong += [f"{path} is left" for path in killer.segments if path.exists()]
    return killer, [f"{case}: {words}\n{text[-3000:]}" for words in wrong]


def main():
    parser = argparse.ArgumentParser(prog="kills", description="Kill ranks of trainings, and compare what they reach.")
    parser.add_argument("--kills", type=int, default=200, metavar="N", help="how many kills in all (default: 200)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments and the victims (default: 1)")
    args = parser.parse_args()
    chance, counts, wrong, half_written, trainings, references = random.Random(args.seed), Counter(), 0, 0, 0, {}
    while counts.total() < args.kills:
        case = CASES[trainings % len(CASES)]
        with tempfile.TemporaryDirectory(prefix="gridgrad-kills-") as name:
            if case not in references:
                references[case] = undisturbed(case, Path(name))
            kills = min(chance.randint(1, MOST), args.kills - counts.total())
            killer, found = disturbed(case, Path(name), kills, chance, references[case])
            if found:
                kept = Path(tempfile.mkdtemp(prefix="gridgrad-failed-"))
                shutil.copytree(name, kept, dirs_exist_ok=True)
                print("\n".join(found), f"\nits files are in {kept}", flush=True)
        counts += killer.kills
        trainings, half_written, wrong = trainings + 1, half_written + len(killer.half_written), wrong + bool(found)
        print(
            f"{trainings} trainings, {wrong} wrong; kills: {dict(counts)}; half-written checkpoints: {half_written}", flush=True
        )
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
