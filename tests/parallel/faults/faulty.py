"""`train` with a fault on rank 1: `python -m tests.parallel.faults.faulty WAY OPTIONS OF TRAIN`, run by test_faults.py.

The fault comes in step 3: the third call of the first layer's forward pass, or the third sum of gradients. For watchdogs no
time passes before it, and where all processes run, none of them is silent for having no core.
"""

import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from mpi4py import MPI

from gridgrad.experiments import train
from gridgrad.nn.layers.linear import Linear
from gridgrad.parallel.faults import watchdog
from gridgrad.parallel.job.run import run
from gridgrad.parallel.sync.reduction import Bucket

VICTIM, STEP, FAULT = 1, 3, Path(os.environ["FAULT"])  # the file FAULT tells the watchdogs of all ranks that the fault begins


def in_step(owner, method, action, counts=lambda *arguments: True):
    """Let a method do `action(its object)` in that step, and itself then unless it is the action that returns "instead"."""
    honest, calls = getattr(owner, method), []

    def spoilt(thing, *arguments):
        if counts(thing, *arguments):
            calls.append(thing)
            if len(calls) == STEP:
                FAULT.touch()
                if action(thing) == "instead":
                    return None
        return honest(thing, *arguments)

    setattr(owner, method, spoilt)


def in_a_layer(action):
    """The first layer of the victim does `action(layer)` before its forward pass of that step."""
    in_step(Linear, "forward", action, lambda layer, x, context: layer.name == "0" and context.training)


def flip(layer):
    layer.parameters[0].value.view(np.uint32)[0, 0] ^= 1


def spoil(layer):
    layer.parameters[0].value[0, 0] = np.nan


WAYS = {
    "killed": lambda: in_a_layer(lambda layer: os.kill(os.getpid(), signal.SIGKILL)),
    "stopped": lambda: in_a_layer(lambda layer: os.kill(os.getpid(), signal.SIGSTOP)),
    "sleeps": lambda: in_a_layer(lambda layer: time.sleep(1000)),
    "flips": lambda: in_a_layer(flip),
    "spoils": lambda: in_a_layer(spoil),
    "skips": lambda: in_step(Bucket, "reduce", lambda bucket: "instead"),  # a sum of gradients
    "well": lambda: None,
}


def main():
    way, start = sys.argv.pop(1), time.monotonic()
    watchdog.time = SimpleNamespace(monotonic=lambda: time.monotonic() if FAULT.exists() else start, sleep=time.sleep)
    if way != "stopped":
        watchdog.SILENT = 300.0
    if MPI.COMM_WORLD.rank == VICTIM:
        WAYS[way]()
    train.main()


if __name__ == "__main__":
    run(main)
