"""Trainings whose ranks are killed at random, again and again, end as if nothing had happened.

    python -m tests.kills --kills 200 --seed 1

Each training runs under `gridgrad supervise` on a small network, with checkpoints so often that kills hit while they are
written. Some kills wait for a job that starts, some for a checkpoint that is being written: see `tests/killer.py`. Afterwards:

- the training has the loss of every step, and the digest of the parameters, of a training that nobody disturbed, bit by bit;
- no checkpoint was ever passed over as damaged, and all that are left are whole;
- no process and no shared-memory file is left.
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from gridgrad.experiments.launching.start_ranks import mpiexec
from gridgrad.parallel.checkpoint.manifest import found_in
from tests.killer import TRAINING, Killer

MOST = 12  # kills of one training
LIMIT = 600  # seconds for one training, kills included
SETTINGS = ["--net", "mlp:24,24,tanh", "--batch-size", "48", "--lr", "0.05", "--quiet"]


@dataclass(frozen=True)
class Case:
    """A training. grid: its grid. options: of train. steps: how many, and between two checkpoints."""

    grid: str
    options: tuple = ()
    steps: tuple = (400, 3)

    @property
    def ranks(self):
        found = 1
        for size in re.findall(r"\d+", self.grid):
            found *= int(size)
        return found

    @property
    def words(self):
        return [*SETTINGS, "--steps", str(self.steps[0]), *self.options]


CASES = [
    Case("batch=2"),
    Case("batch=2", ("--protocol", "local:3")),
    Case("batch=2,model=2", ("--optimizer", "adam"), (200, 3)),
    Case("stage=2", ("--micro-batches", "3", "--update", "sharded")),
    Case("model=2", ("--validation", "0.2", "--momentum", "0.9")),
    Case("batch=2,model=2", ("--protocol", "local:4"), (200, 3)),
    Case("batch=3", ("--update", "sharded", "--momentum", "0.9"), (200, 3)),
]


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
    words += ["train", *case.words, "--checkpoint", str(checkpoints), "--checkpoint-steps", str(case.steps[1])]
    killer, deadline = Killer(mark, checkpoints, random), time.monotonic() + LIMIT
    with open(folder / "output", "w+") as output:
        process = subprocess.Popen(
            [*words, "--report", str(report)], env=os.environ | {TRAINING: mark}, stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            goes_on = lambda: process.poll() is None and time.monotonic() < deadline  # noqa: E731
            while sum(killer.kills.values()) < kills and goes_on():
                killer.kill_one(goes_on)
            status = process.wait(max(1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            status = f"none after {LIMIT} s"
        finally:
            process.kill()  # if it still runs: its ranks end with it, whatever they wait for
            process.wait()
        output.seek(0)
        text = output.read()
    wrong = []
    if status != 0:
        wrong.append(f"status {status}")
    elif results(report) != undisturbed:
        wrong.append("another result")
    if "passed over" in text:
        wrong.append("a checkpoint was damaged")
    manifests, passed_over = found_in(checkpoints)
    wrong += [*passed_over.values()] + [words for one in manifests for entry in one.files if (words := one.damage(entry))]
    processes, segments = killer.remains()
    wrong += [f"process {process} is left" for process in processes] + [f"{path} is left" for path in segments]
    return killer, [f"{case}: {words}\n{text[-3000:]}" for words in wrong]


def main():
    parser = argparse.ArgumentParser(prog="kills", description="Kill ranks of trainings, and compare what they reach.")
    parser.add_argument("--kills", type=int, default=200, metavar="N", help="how many kills in all (default: 200)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments and the victims (default: 1)")
    args = parser.parse_args()
    chance, counts, wrong, left, trainings, start = random.Random(args.seed), {}, [], 0, 0, time.monotonic()
    references = {}
    while (done := sum(sum(kills.values()) for kills in counts.values())) < args.kills:
        case = CASES[trainings % len(CASES)]
        with tempfile.TemporaryDirectory(prefix="gridgrad-kills-") as name:
            if case not in references:
                references[case] = undisturbed(case, Path(name))
            kills = min(chance.randint(1, MOST), args.kills - done)
            killer, found = disturbed(case, Path(name), kills, chance, references[case])
            if found:
                kept = Path(tempfile.mkdtemp(prefix="gridgrad-failed-"))
                shutil.copytree(name, kept, dirs_exist_ok=True)
                print("\n".join(found), f"\nits files are in {kept}", flush=True)
        trainings, left, wrong = trainings + 1, left + killer.left, wrong + found
        of_case = counts.setdefault(f"{case.grid} {' '.join(case.options)}".strip(), {})
        for doing, number in killer.kills.items():
            of_case[doing] = of_case.get(doing, 0) + number
        print(f"{trainings} trainings, {done + sum(killer.kills.values())} kills, {len(wrong)} wrong, "
              f"{time.monotonic() - start:.0f} s", flush=True)  # fmt: skip
    for name, of_case in counts.items():
        print(f"{name}: {sum(of_case.values())} kills")
        for doing, number in sorted(of_case.items()):
            print(f"    {number:4d} {doing}")
    print(f"{left} checkpoints were half written when their job was gone; {len(wrong)} of {trainings} trainings went wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
