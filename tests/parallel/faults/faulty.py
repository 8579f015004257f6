"""`train` with a fault on rank 1: `python -m tests.parallel.faults.faulty WAY OPTIONS OF TRAIN`, run by test_faults.py.

The fault comes in step 3, before the forward pass of the first layer. For watchdogs no time passes before it, and where all
processes run, none of them is silent for having no core.
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

VICTIM, STEP, FAULT = 1, 3, Path(os.environ["FAULT"])  # the file FAULT tells the watchdogs of all ranks that the fault begins


def in_a_layer(action):
    """The first layer of the victim does `action(layer)` before its forward pass of that step."""
    honest, calls = Linear.forward, []

    def spoilt(layer, x, context):
        if layer.name == "0" and context.training:
            calls.append(layer)
            if len(calls) == STEP:
                FAULT.touch()
                action(layer)
        return honest(layer, x, context)

    Linear.forward = spoilt


def flip(layer):
    layer.parameters[0].value.view(np.uint32)[0, 0] ^= 1


WAYS = {
    "killed": lambda: in_a_layer(lambda layer: os.kill(os.getpid(), signal.SIGKILL)),
    "stopped": lambda: in_a_layer(lambda layer: os.kill(os.getpid(), signal.SIGSTOP)),
    "sleeps": lambda: in_a_layer(lambda layer: time.sleep(1000)),
    "flips": lambda: in_a_layer(flip),
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
