"""PyTorch's side of `bench`: the same network and the same step, written as a PyTorch user would.

Run as a program under mpiexec it times DistributedDataParallel with gloo, one thread a rank, and prints JSON as `ranks.py`.
"""

import argparse
import json
import math
import os
import re
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median

import torch
from torch.nn.functional import pad

from gridgrad.experiments.common import core_limits

torch.set_num_threads(1)

LOSSES = {"cross-entropy": torch.nn.CrossEntropyLoss, "mse": torch.nn.MSELoss}


class Residual(torch.nn.Module):
    def __init__(self, branch, shortcut):
        super().__init__()
        self.branch, self.shortcut = chain(branch), chain(shortcut)

    def forward(self, x):
        return self.branch(x) + self.shortcut(x)


class Concat(torch.nn.Module):
    def __init__(self, branches):
        super().__init__()
        self.branches = torch.nn.ModuleList(chain(branch) for branch in branches)

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], 1)


class OrFeatures:
    """A mixin for modules of images that lets them take features as well, as images of one pixel."""

    def forward(self, x):
        return super().forward(x) if x.ndim == 4 else super().forward(x[..., None, None]).flatten(1)


BatchNorm = type("BatchNorm", (OrFeatures, torch.nn.BatchNorm2d), {})
LocalResponseNorm = type("LocalResponseNorm", (OrFeatures, torch.nn.LocalResponseNorm), {})


def windowed(make, layer, outside=0.0):
    """The module with the window of one of our layers. PyTorch pads both sides by the same; else its input is padded before."""
    window = layer.window
    (top, bottom), (left, right) = window.padding
    if (top, left) == (bottom, right):
        return make(window.kernel, window.stride, (top, left))
    module = make(window.kernel, window.stride, 0)
    module.register_forward_pre_hook(lambda _, inputs: pad(inputs[0], (left, right, top, bottom), value=outside))
    return module


MODULES = {
    "Linear": lambda layer: torch.nn.Linear(layer.inputs, layer.outputs, bias=layer.has_bias),
    "Conv2d": lambda layer: windowed(partial(torch.nn.Conv2d, layer.inputs, layer.outputs, bias=layer.has_bias), layer),
    "MaxPool2d": lambda layer: windowed(torch.nn.MaxPool2d, layer, -math.inf),
    "AvgPool2d": lambda layer: windowed(torch.nn.AvgPool2d, layer),
    "BatchNorm": lambda layer: BatchNorm(layer.channels, layer.eps, layer.momentum),
    "LocalResponseNorm": lambda layer: LocalResponseNorm(layer.size, layer.alpha, layer.beta, layer.k),
    "Flatten": lambda layer: torch.nn.Flatten(),
    "Dropout": lambda layer: torch.nn.Dropout(layer.p),
    "ReLU": lambda layer: torch.nn.ReLU(),
    "GELU": lambda layer: torch.nn.GELU(approximate="tanh"),
    "LeakyReLU": lambda layer: torch.nn.LeakyReLU(layer.negative_slope),
    "Tanh": lambda layer: torch.nn.Tanh(),
    "Sigmoid": lambda layer: torch.nn.Sigmoid(),
    "Residual": lambda layer: Residual(*layer.children),
    "Concat": lambda layer: Concat(layer.children),
}


def chain(layers):
    """The torch.nn.Sequential of a list of our layers, in the order in which the network names them."""
    layers = sorted(layers, key=lambda layer: int(layer.name.rpartition(".")[2]))
    return torch.nn.Sequential(*(MODULES[type(layer).__name__](layer) for layer in layers))


def network(net):
    """The torch.nn.Sequential equal to one of ours, with its weights."""
    model = chain(net.layers).to(getattr(torch, net.dtype.name))
    model.load_state_dict({name: torch.from_numpy(value) for name, value in net.state_dict().items()})
    return model


def layout(array, memory_format=torch.contiguous_format):
    """One of our arrays as PyTorch has it: images are (samples, channels, height, width), in memory as memory_format says."""
    if array.ndim != 4:
        return torch.from_numpy(array)
    return torch.from_numpy(array.transpose(0, 3, 1, 2).copy()).contiguous(memory_format=memory_format)


SGD = partial(torch.optim.SGD, lr=0.01, momentum=0.9)


def step(model, x, y, loss_name, memory_format=torch.contiguous_format, optimizer=SGD, place="cpu"):
    """A function that does one training step on NumPy arrays x and y, by a device of PyTorch's, and returns the loss."""
    model = model.to(place, memory_format=memory_format)
    optimizer = optimizer(model.parameters())
    loss_function = LOSSES[loss_name]()
    x, y = layout(x, memory_format).to(place), torch.from_numpy(y).to(place)

    def one():
        optimizer.zero_grad()
        loss = loss_function(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return one


def inference(model, x, y, loss_name, memory_format=torch.contiguous_format):
    """A function that returns the outputs for x in evaluation mode, as a NumPy array."""
    model, x = model.to(memory_format=memory_format).eval(), layout(x, memory_format)

    def one():
        with torch.inference_mode():
            return model(x).numpy()

    return one


# PyTorch's side of the `work` of a StepCase.
WORK = {"sgd": step, "adam": partial(step, optimizer=torch.optim.Adam), "inference": inference}


def blas():
    """The libraries in which PyTorch computes and the instructions it uses, such as "MKL 2024.2, oneDNN 3.12.0, AVX512"."""
    has_mkl = torch.backends.mkl.is_available()
    patterns = {"MKL": r"Math Kernel Library Version ([\d.]+)"} if has_mkl else {"BLAS": r"BLAS_INFO=(\w+)"}
    patterns["oneDNN"] = r"MKL-DNN v([\d.]+)"
    found = {name: re.search(pattern, torch.__config__.show()) for name, pattern in patterns.items()}
    return ", ".join(
        [*(f"{name} {match[1]}" for name, match in found.items() if match), torch.backends.cpu.get_cpu_capability()]
    )


def gemm_peak(seconds):
    """As `core_limits.gemm_peak`, by PyTorch."""
    factor = torch.full((core_limits.SIDE, core_limits.SIDE), 0.5)
    product = torch.empty_like(factor)
    return 2 * core_limits.SIDE**3 / core_limits.least_seconds(lambda: torch.matmul(factor, factor, out=product), seconds)


def main():
    from gridgrad.experiments.benchmarks.cases import step_case
    from gridgrad.experiments.common.problems import minibatch
    from gridgrad.parallel.job.own_process import MARK
    from gridgrad.parallel.job.run import launched_rank, promised_ranks

    parser = argparse.ArgumentParser()
    parser.add_argument("--case", type=step_case, required=True)
    parser.add_argument("--times", type=int, default=10)
    args = parser.parse_args()
    case = args.case
    rank, size = launched_rank(), promised_ranks(os.environ)[0]
    # All ranks share one machine, so a file of the job's own name serves as the meeting place.
    meeting = Path(tempfile.gettempdir()) / f"gloo-{os.environ[MARK]}"
    torch.distributed.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=size)
    net = case.network()
    model = torch.nn.parallel.DistributedDataParallel(network(net))
    x, y = (a[rank::size].copy() for a in minibatch(net.input_shape, case.outputs, case.batch_size))
    one = step(model, x, y, case.loss)
    seconds = []
    for _ in range(args.times + 3):
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
