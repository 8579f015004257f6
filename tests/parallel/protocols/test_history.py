"""What three workers had after each of ten steps with each protocol, stored, so that a change of meaning is seen.

The file holds some parameters of each worker after each of its steps, and the state of all workers at the end. It is written
anew by `python -m tests.parallel.protocols.test_history`, which is right only where a protocol is meant to compute something
else.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from gridgrad.nn import BatchNorm, Dropout, Linear, Sequential, Tanh
from tests.parallel.protocols.training import samples, simulated

FILE = Path(__file__).with_name("history.json")
WORKERS, STEPS, COUNT = 3, 10, 29  # the last of the four minibatches of an epoch has 5 samples: shares differ
CHOSEN = slice(None, None, 7)  # of the parameters
TEXTS = (
    "local:3", "post-local:4:3", "slowmo:3:0.5", "slowmo:2:0.6:rate=0.7", "diloco:3", "diloco:2:lr=0.5:momentum=0.3",
    "diloco:4:fragments=2", "diloco:3:fragments=3", "easgd:2:0.1", "admm:2", "admm:2:rho=0.3", "sgp", "parallel-sgd",
    "parallel-sgd:epoch", "parallel-sgd:shuffle:exchange",
    "server:bsp", "server:bsp:round-robin", "server:asp", "server:ssp:1", "downpour:2:3",
)  # fmt: skip


def network():
    """Its running statistics are averaged, and each worker drops activations of its own."""
    layers = [Linear(3, 5), BatchNorm(5), Dropout(0.2), Tanh(), Linear(5, 4)]
    return Sequential(layers, seed=1, dtype=np.float64, input_shape=(3,))


def falling(step):
    """A learning rate that differs from step to step, and is 0 in some."""
    return 0.1 * (step % 4 > 0) / (1 + 0.1 * step)


def history(text):
    """[[[number, ..] after each step of a worker, ..] of each worker, ..]: the last ones are those at the end."""
    machine = {"latency": 0.2, "straggler": {1: 1.5}}  # where workers are not in step, this says who comes first
    found, states = simulated(
        WORKERS, network, text, samples(network(), COUNT), STEPS, machine=machine, lr=falling, momentum=0.5, seconds=1.0
    )
    ends = [np.concatenate([array.ravel() for array in state.values()]) for state in states]
    return [
        [np.round(numbers, 13).tolist() for numbers in (*(params[CHOSEN] for params in steps.values()), end)]
        for (_, steps), end in zip(found, ends, strict=True)
    ]


@pytest.mark.parametrize("text", TEXTS)
def test_a_protocol_does_what_it_did(text):
    for now, before in zip(history(text), json.loads(FILE.read_text())[text], strict=True):
        for numbers, stored in zip(now, before, strict=True):
            assert abs(np.array(numbers) - np.array(stored)).max() < 1e-10


def write():
    """Write the file anew."""
    lines = [f"{json.dumps(text)}: {json.dumps(history(text))}" for text in TEXTS]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    write()
