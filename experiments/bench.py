"""The peer comparison: our training steps against PyTorch's, side by side in one run.

    make bench

Serial steps against PyTorch eager, one thread each, interleaved in one process. Two ranks of one thread against one
rank and against PyTorch DistributedDataParallel with gloo, jobs in turn. Every figure is a ratio of times taken next
to each other, as the median and the spread over the rounds. Writes DIR/bench.json and DIR/bench.md.
"""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import mpi4py

mpi4py.rc.initialize = False  # this process starts jobs and is no rank of one

import numpy as np  # noqa: E402
from tqdm import tqdm  # noqa: E402

from datasets.files import written_whole  # noqa: E402
from experiments import report  # noqa: E402
from experiments.options import Parser, check_writable, user_input, whole  # noqa: E402
from nn import LOSSES, SGD, specs  # noqa: E402
from parallel.job import UserError, run_launcher  # noqa: E402
from parallel.launch import mpiexec  # noqa: E402

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
TWO_RANKS = Case("1024-2048-1024-10 tanh, batch 1024", "mlp:2048,1024,tanh", 1024, 10, 1024, "cross-entropy", 1 / 1.8)


def serial_steps(case):
    """(ours, theirs): functions that do one training step each, of the same network on the same data."""
    from experiments import torch_peer

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


def two_rank_ratios(case, rounds, steps):
    """Round by round: (our 2 ranks over our 1, our 2 ranks over DistributedDataParallel on 2)."""
    options = {
        "net": case.net,
        "features": case.features,
        "outputs": case.outputs,
        "batch-size": case.batch_size,
        "steps": steps,
    }
    shape = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    over_one, over_peer = [], []
    for _ in tqdm(range(rounds), unit=" rounds", delay=2, disable=None):
        one = _job(1, ["-m", "experiments.step_time", *shape])
        two = _job(2, ["-m", "experiments.step_time", *shape])
        # mpiexec only places the two processes; they talk through gloo.
        peer = _job(2, ["-m", "experiments.torch_peer", *shape])
        over_one.append(two / one)
        over_peer.append(two / peer)
    return over_one, over_peer


def _job(ranks, arguments):
    """The seconds a step that a job prints as JSON."""
    finished = mpiexec(ranks, arguments, timeout=300)
    if finished.status != 0:
        raise UserError(f"{' '.join(arguments)} ended with status {finished.status}: {finished.stderr.strip()[-300:]}")
    return json.loads(finished.stdout.strip().splitlines()[-1])["seconds"]


def row(ratios, bound):
    return {"median": median(ratios), "min": min(ratios), "max": max(ratios), "bound": bound}


def table(results):
    """The results as Markdown."""
    lines = [
        "# Training steps against PyTorch",
        "",
        "Written by `make bench`. Ratios of time, below 1 is faster; median and spread over the rounds; one thread a rank.",
        f"{results['versions']['processor']}, {results['versions']['places']} cores, NumPy {results['versions']['numpy']} "
        f"({results['versions']['blas']}), PyTorch {results['torch']}, {results['versions']['mpi']}.",
        idleness(results["busy_cores"]),
        "",
        "| what | median | min | max | bound | |",
        "|---|---|---|---|---|---|",
    ]
    for name, r in results["ratios"].items():
        kept = "within" if r["median"] <= r["bound"] else "**above**"
        lines.append(f"| {name} | {r['median']:.3f} | {r['min']:.3f} | {r['max']:.3f} | {r['bound']:.3f} | {kept} |")
    return "\n".join(lines) + "\n"


def idleness(busy):
    if busy is None:
        return "Whether the machine was idle before the run is not known."
    return f"Before the run {busy:.2f} cores were busy: the machine was {'idle' if busy < 0.1 else '**not idle**'}."


def main():
    parser = Parser(prog="bench", description="Compare training steps with PyTorch's.")
    parser.add_argument("--rounds", type=whole(1), default=11, help="pairs of times of each comparison")
    parser.add_argument("--out", default="results", metavar="DIR", help="folder for bench.json and bench.md")
    args = parser.parse_args()
    with user_input():
        check_writable(Path(args.out) / "bench.json")
    try:
        import torch
    except ImportError:
        raise UserError("PyTorch is not installed here: run `make bench`, which installs it") from None
    busy = report.busy_cores()
    ratios = {}
    for case in SERIAL:
        ratios[f"serial step / PyTorch: {case.name}"] = row(serial_ratios(case, args.rounds), case.bound)
        print(f"{case.name}: {ratios[f'serial step / PyTorch: {case.name}']['median']:.3f}", file=sys.stderr)
    over_one, over_peer = two_rank_ratios(TWO_RANKS, args.rounds, steps=15)
    ratios[f"2 ranks / 1 rank: {TWO_RANKS.name}"] = row(over_one, TWO_RANKS.bound)
    ratios[f"2 ranks / PyTorch DDP gloo on 2: {TWO_RANKS.name}"] = row(over_peer, 1.0)
    results = {"versions": report.versions(), "torch": torch.__version__, "busy_cores": busy, "ratios": ratios}
    report.write_json(Path(args.out) / "bench.json", results)
    with written_whole(Path(args.out) / "bench.md") as beside:
        beside.write_text(table(results))
    print(table(results))


if __name__ == "__main__":
    run_launcher(main)
