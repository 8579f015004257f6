"""Serial training steps against PyTorch eager, one thread each, interleaved: prints JSON, for `bench`."""

import json
import time
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from experiments.options import Parser, whole
from nn import LOSSES, SGD, specs
from parallel.job import UserError, run_launcher

ROUND_SECONDS = 0.3  # of each side in a round of the serial comparison


@dataclass
class Case:
    """A serial comparison: net, features and outputs as of `nn.specs.build`; bound: the ratio to stay under."""

    name: str
    net: str
    features: int
    outputs: int
    batch_size: int
    loss: str
    bound: float


SERIAL = [
    Case("784-512-512-10 relu, batch 128", "mlp:512,512,relu", 784, 10, 128, "cross-entropy", 0.95),
    Case("1024-2048-1024-10 tanh, batch 1000", "mlp:2048,1024,tanh", 1024, 10, 1000, "cross-entropy", 0.95),
    Case("16-1024-1024-1024-2 tanh, batch 100", "mlp:1024,1024,1024,tanh", 16, 2, 100, "mse", 0.95),
    Case("16-1024-1024-1024-2 tanh, batch 1000", "mlp:1024,1024,1024,tanh", 16, 2, 1000, "mse", 0.95),
    Case("1024-2048-1024-10 tanh, batch 100", "mlp:2048,1024,tanh", 1024, 10, 100, "cross-entropy", 1.0),
    Case("16-32-32-2 tanh, batch 100", "mlp:32,32,tanh", 16, 2, 100, "mse", 0.25),
]


def serial_steps(case):
    """(ours, theirs): functions that do one training step each, of the same network on the same data."""
    from experiments import torch_peer  # here, so that naming the cases needs no PyTorch

    rng = np.random.default_rng(0)
    x = rng.standard_normal((case.batch_size, case.features), np.float32)
    if case.loss == "mse":
        y = rng.standard_normal((case.batch_size, case.outputs), np.float32)
    else:
        y = rng.integers(0, case.outputs, case.batch_size)
    net = specs.build(case.net, case.features, case.outputs)
    optimizer, loss = SGD(net, 0.01, 0.9), LOSSES[case.loss]()

    def ours():
        value = loss.forward(net.forward(x, training=True), y, case.batch_size)
        net.backward(loss.backward())
        optimizer.step()
        net.step += 1
        return value

    theirs = torch_peer.step(torch_peer.network(net), x, y, case.loss)
    for _ in range(5):  # both warm up, and are seen to do the same thing
        a, b = ours(), theirs()
        if abs(a - b) > 1e-3 * max(abs(b), 1):
            raise UserError(f"{case.name}: our loss is {a}, PyTorch's {b}: they do not train the same network")
    return ours, theirs


def serial_ratios(case, rounds):
    """Our time over theirs, round by round, each some steps of ours and then of theirs."""
    ours, theirs = serial_steps(case)
    start = time.perf_counter()
    theirs()
    steps = max(3, int(ROUND_SECONDS / (time.perf_counter() - start)))
    return [_seconds(ours, steps) / _seconds(theirs, steps) for _ in range(rounds)]


def _seconds(step, steps):
    start = time.perf_counter()
    for _ in range(steps):
        step()
    return time.perf_counter() - start


def main():
    parser = Parser(prog="bench_serial", description="Compare serial training steps with PyTorch's.")
    parser.add_argument("--rounds", type=whole(1), default=11, help="pairs of times of each comparison")
    args = parser.parse_args()
    cases = tqdm(SERIAL, unit=" networks", delay=2, disable=None)
    print(json.dumps({case.name: serial_ratios(case, args.rounds) for case in cases}))


if __name__ == "__main__":
    run_launcher(main)
