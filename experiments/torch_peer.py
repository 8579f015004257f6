"""PyTorch's side of `bench`: the same network and the same step, written as a PyTorch user would.

Run as a program under mpiexec it times DistributedDataParallel with gloo, one thread a rank, and prints JSON as
`experiments.step_time` does.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from statistics import median

import torch

torch.set_num_threads(1)

ACTIVATIONS = {"ReLU": torch.nn.ReLU, "Tanh": torch.nn.Tanh, "Sigmoid": torch.nn.Sigmoid, "LeakyReLU": torch.nn.LeakyReLU}
LOSSES = {"cross-entropy": torch.nn.CrossEntropyLoss, "mse": torch.nn.MSELoss}


def network(net):
    """The torch.nn.Sequential equal to one of ours, with its weights."""
    modules = []
    for layer in net.layers:
        kind = type(layer).__name__
        modules.append(torch.nn.Linear(layer.inputs, layer.outputs) if kind == "Linear" else ACTIVATIONS[kind]())
    model = torch.nn.Sequential(*modules).to(torch.from_numpy(net.params).dtype)
    model.load_state_dict({name: torch.from_numpy(value) for name, value in net.state_dict().items()})
    return model


def step(model, x, y, loss_name):
    """A function that does one step of SGD with momentum on NumPy arrays x and y and returns the loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_function = LOSSES[loss_name]()
    x, y = torch.from_numpy(x), torch.from_numpy(y)

    def one():
        optimizer.zero_grad()
        loss = loss_function(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return one


def main():
    import numpy as np

    from nn import specs
    from parallel.job import launched_rank, promised_ranks

    parser = argparse.ArgumentParser()
    for name in ("features", "outputs", "batch-size", "steps"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--net")
    args = parser.parse_args()
    rank, size = launched_rank(), promised_ranks(os.environ)[0]
    # All ranks share one machine, so a file of the job's own name serves as the meeting place.
    meeting = Path(tempfile.gettempdir()) / f"gloo-{os.environ['GRIDGRAD_JOB']}"
    torch.distributed.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=size)
    model = torch.nn.parallel.DistributedDataParallel(network(specs.build(args.net, args.features, args.outputs)))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((args.batch_size, args.features), np.float32)[rank::size].copy()
    y = rng.integers(0, args.outputs, args.batch_size)[rank::size].copy()
    one = step(model, x, y, "cross-entropy")
    seconds = []
    for _ in range(args.steps + 3):
        torch.distributed.barrier()
        start = time.perf_counter()
        one()
        seconds.append(time.perf_counter() - start)
    slowest = torch.tensor(seconds[3:])
    torch.distributed.all_reduce(slowest, torch.distributed.ReduceOp.MAX)
    if rank == 0:
        print(json.dumps({"seconds": median(slowest.tolist())}), flush=True)
        meeting.unlink(missing_ok=True)
    torch.distributed.barrier()
    os._exit(0)  # at an ordinary exit gloo's threads sometimes abort the process


if __name__ == "__main__":
    main()
