"""Serial training steps and inference against PyTorch eager, one thread each, interleaved: prints JSON, for `bench`."""

import contextlib
import time
from functools import partial

import numpy as np

from gridgrad.experiments.benchmarks.cases import SERIAL
from gridgrad.experiments.benchmarks.rounds import add_comparison, compared
from gridgrad.experiments.common.made_up_data import minibatch
from gridgrad.experiments.common.options import Parser
from gridgrad.nn import LOSSES, SGD, Adam, Context, Dropout
from gridgrad.parallel.job.run import UserError, run_launcher

ROUND_SECONDS = 0.15  # of each side in a round
WARM_UP_STEPS, WARM_UP_SECONDS = 5, 0.5  # warming up ends at the first of the two, after at least two steps
TOLERANCE = 1e-3  # of the loss or of the largest output, or of 1 if these are smaller


def serial_steps(case, best=False):
    """(ours, theirs, ..): functions that do the work of a case once each, with the same network on the same data.

    best: two of theirs where there are images, with channels first and with channels last.
    """
    import torch

    from gridgrad.experiments.benchmarks import torch_peer  # here, so that naming the cases needs no PyTorch

    net = case.network()
    x, y = minibatch(net.input_shape, case.outputs, case.batch_size, case.loss)
    formats = [torch.contiguous_format, torch.channels_last] if best and x.ndim == 4 else [torch.contiguous_format]
    models = [torch_peer.network(net) for _ in formats]
    ours = WORK[case.work](net, x, y, case.loss)
    work = torch_peer.WORK[case.work]
    theirs = [work(model, x, y, case.loss, memory_format) for model, memory_format in zip(models, formats)]
    with without_dropout(net, models):
        end = time.monotonic() + WARM_UP_SECONDS
        for number in range(WARM_UP_STEPS):  # all warm up, and are seen to do the same thing
            a = ours()
            for b in [step() for step in theirs]:
                error = np.max(np.abs(a - b)) / max(np.max(np.abs(b)), 1)
                if not error <= TOLERANCE:
                    raise UserError(f"{case.name}: ours and PyTorch's differ by {error:.1e}: they are not the same network")
            if number and time.monotonic() > end:
                break
    return ours, *theirs


def our_step(net, x, y, loss_name, optimizer=lambda net: SGD(net, 0.01, 0.9)):
    """A function that does one training step and returns the loss. optimizer: a function that makes the optimizer of a net."""
    optimizer, loss, context = optimizer(net), LOSSES[loss_name](), Context()

    def one():
        value = loss.forward(net.forward(x, context), y, context)
        net.backward(loss.backward(context), context)
        optimizer.step()
        net.step += 1
        return value

    return one


# What Case.work names: functions of a network, samples, labels and the name of a loss. `torch_peer.WORK` is PyTorch's side.
WORK = {
    "sgd": our_step,
    "adam": partial(our_step, optimizer=Adam),
    "inference": lambda net, x, y, loss_name: partial(net.predict, x),
}


@contextlib.contextmanager
def without_dropout(net, models):
    """Without dropout in our network and PyTorch's models, since each of them draws masks of its own."""
    layers = [layer for layer in net.leaves() if isinstance(layer, Dropout)]
    layers += [module for model in models for module in model.modules() if type(module).__name__ == "Dropout"]
    kept = [layer.p for layer in layers]
    for layer in layers:
        layer.p = 0.0
    yield
    for layer, p in zip(layers, kept):
        layer.p = p


def main():
    parser = Parser(prog="bench_serial", description="Compare serial training steps and inference with PyTorch's.")
    add_comparison(parser)
    parser.add_argument("--best", action="store_true", help="compare with the faster of PyTorch's two layouts of images")
    args = parser.parse_args()
    compared(SERIAL, partial(serial_steps, best=args.best), ROUND_SECONDS, args, "networks")


if __name__ == "__main__":
    run_launcher(main)
