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

VICTIM, STEP = 1, 3


def begins():
    """Tell the watchdogs of all ranks that the fault begins."""
    Path(os.environ["FAULT"]).touch()


def in_a_layer(action):
    """Let the first layer of the victim do `action(layer)` before its forward pass of that step."""
    honest, calls = Linear.forward, []

    def forward(layer, x, context):
        if layer.name == "0" and context.training:
            calls.append(layer)
            if len(calls) == STEP:
                begins()
                action(layer)
        return honest(layer, x, context)

    Linear.forward = forward


def in_a_sum(action):
    """Let the victim do `action(sum, bucket)` instead of the sum of gradients of that step."""
    honest, calls = Bucket.reduce, []

    def reduce(bucket):
        calls.append(bucket)
        if len(calls) == STEP:
            begins()
            action(honest, bucket)
        else:
            honest(bucket)

    Bucket.reduce = reduce


def fail(layer):
    raise ZeroDivisionError("in a layer")


def flip(layer):
    layer.parameters[0].value.view(np.uint32)[0, 0] ^= 1


def spoil(layer):
    layer.parameters[0].value[0, 0] = np.nan


WAYS = {
    "raises": lambda: in_a_layer(fail),
    "killed": lambda: in_a_layer(lambda layer: os.kill(os.getpid(), signal.SIGKILL)),
    "stopped": lambda: in_a_layer(lambda layer: os.kill(os.getpid(), signal.SIGSTOP)),
    "sleeps": lambda: in_a_layer(lambda layer: time.sleep(1000)),
    "flips": lambda: in_a_layer(flip),
    "spoils": lambda: in_a_layer(spoil),
    "skips": lambda: in_a_sum(lambda honest, bucket: None),
    "well": lambda: None,
}


def main():
    way, fault, start = sys.argv.pop(1), Path(os.environ["FAULT"]), time.monotonic()
    watchdog.time = SimpleNamespace(monotonic=lambda: time.monotonic() if fault.exists() else start, sleep=time.sleep)
    if way != "stopped":
        watchdog.SILENT = 300.0
    if MPI.COMM_WORLD.rank == VICTIM:
        WAYS[way]()
    train.main()


if __name__ == "__main__":
    run(main)
