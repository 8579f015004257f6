"""What three workers had after each of ten steps with each protocol, stored, so that a change of meaning is seen.

The file holds some parameters of each worker after each of its steps, and of all workers at the end. It is written anew by
`python -m tests.parallel.protocols.history`, which is right only where a protocol is meant to compute something else.
"""

import json
from pathlib import Path

import numpy as np

from gridgrad.nn.device import to_host
from tests.parallel.protocols.training import dense, samples, simulated

FILE = Path(__file__).with_suffix(".json")
WORKERS, STEPS, COUNT = 3, 10, 29
CHOSEN = slice(None, None, 15)  # of the parameters
TEXTS = (
    "local:3", "post-local:4:3", "slowmo:3:0.5", "diloco:3", "diloco:4:fragments=2", "easgd:2:0.1", "admm:2", "admm:2:rho=0.3",
    "sgp", "parallel-sgd", "parallel-sgd:epoch",
    "server:bsp", "server:asp", "server:ssp:1", "downpour:2:3",
)  # fmt: skip


def history(text):
    """[[[parameter, ..] after each step of a worker, ..] of each worker, ..]: the last ones are those at the end."""
    machine = {"latency": 0.2, "straggler": {1: 1.5}}  # where workers are not in step, this says who comes first
    found, _ = simulated(
        WORKERS, dense, text, samples(dense(), COUNT), STEPS, machine=machine, momentum=0.5, seconds=1.0
    )  # fmt: skip
    return [
        [np.round(to_host(params[CHOSEN]), 13).tolist() for params in (*steps.values(), protocol.net.params)]
        for protocol, steps in found
    ]


def write():
    """Write the file anew."""
    lines = [f"{json.dumps(text)}: {json.dumps(history(text))}" for text in TEXTS]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    write()
