"""`train` with a fault on rank 1: `python -m tests.parallel.faults.faulty WAY OPTIONS OF TRAIN`, run by test_faults.py.

The fault comes in step 3: the third call of the first layer's forward pass, or the third sum of gradients.
"""

import os
import signal
import sys
import time

import numpy as np
from mpi4py import MPI

from experiments import train
from nn.linear import Linear
from parallel.job.run import run
from parallel.sync.buckets import AllReduceBucket

VICTIM, STEP = 1, 3


def in_a_layer(action):
    """Let the first layer of the victim do `action(layer)` before its forward pass of that step."""
    honest, calls = Linear.forward, []

    def forward(layer, x, context):
        if layer.name == "0" and context.training:
            calls.append(layer)
            if len(calls) == STEP:
                action(layer)
        return honest(layer, x, context)

    Linear.forward = forward


def in_a_sum(action):
    """Let the victim do `action(sum, bucket)` instead of the sum of gradients of that step."""
    honest, calls = AllReduceBucket.reduce, []

    def reduce(bucket):
        calls.append(bucket)
        (action if len(calls) == STEP else lambda honest, bucket: honest(bucket))(honest, bucket)

    AllReduceBucket.reduce = reduce


def shorten(honest, bucket):
    bucket.grads = bucket.grads[:-1]
    honest(bucket)


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
    "shorter": lambda: in_a_sum(shorten),
    "well": lambda: None,
}


def main():
    way = sys.argv.pop(1)
    if MPI.COMM_WORLD.rank == VICTIM:
        WAYS[way]()
    train.main()


if __name__ == "__main__":
    run(main)
