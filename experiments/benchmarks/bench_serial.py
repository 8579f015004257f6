"""Serial training steps against PyTorch eager, one thread each, interleaved: prints JSON, for `bench`."""

import contextlib
import json
from dataclasses import dataclass
from functools import partial

from experiments.benchmarks.rounds import add_comparison, compared
from experiments.common.made_up_data import minibatch
from experiments.common.options import Parser
from nn import LOSSES, SGD, Context, Dropout, network_names
from parallel.job.run import UserError, run_launcher

ROUND_SECONDS = 0.3  # of each side in a round


@dataclass
class Case:
    """A comparison of training steps. net, shape, outputs: what `nn.network_names.build` takes.

    bound: the ratio to stay under; best_bound: the one where PyTorch is at its best. None where nothing is promised.
    """

    name: str
    net: str
    shape: int | tuple
    outputs: int
    batch_size: int
    loss: str
    bound: float | None = None
    best_bound: float | None = None


SERIAL = [
    Case("784-512-512-10 relu, batch 128", "mlp:512,512,relu", 784, 10, 128, "cross-entropy", 0.95),
    Case("1024-2048-1024-10 tanh, batch 1000", "mlp:2048,1024,tanh", 1024, 10, 1000, "cross-entropy", 0.95),
    Case("16-1024-1024-1024-2 tanh, batch 100", "mlp:1024,1024,1024,tanh", 16, 2, 100, "mse", 0.95),
    Case("16-1024-1024-1024-2 tanh, batch 1000", "mlp:1024,1024,1024,tanh", 16, 2, 1000, "mse", 0.95),
    Case("1024-2048-1024-10 tanh, batch 100", "mlp:2048,1024,tanh", 1024, 10, 100, "cross-entropy", 1.0),
    Case("16-32-32-2 tanh, batch 100", "mlp:32,32,tanh", 16, 2, 100, "mse", 0.25),
    Case("mnist-cnn, batch 64", "mnist-cnn", (28, 28, 1), 10, 64, "cross-entropy", 0.6, 0.65),
    Case("mnist-cnn, batch 128", "mnist-cnn", (28, 28, 1), 10, 128, "cross-entropy", 0.6, 0.65),
    Case("cifar-cnn, batch 64", "cifar-cnn", (32, 32, 3), 10, 64, "cross-entropy", 0.9, 1.0),
    Case("cifar-cnn, batch 128", "cifar-cnn", (32, 32, 3), 10, 128, "cross-entropy", 0.9, 1.0),
    Case("marques-50-500, batch 64", "marques-50-500", (32, 32, 3), 10, 64, "cross-entropy", 1.0, 1.0),
]


def serial_steps(case, best=False):
    """(ours, theirs, ..): functions that do one training step each, of the same network on the same data.

    best: two of theirs where there are images, with channels first and with channels last.
    """
    import torch

    from experiments.benchmarks import torch_peer  # here, so that naming the cases needs no PyTorch

    net = network_names.build(case.net, case.shape, case.outputs)
    x, y = minibatch(net.input_shape, case.outputs, case.batch_size, case.loss)
    formats = [torch.contiguous_format, torch.channels_last] if best and x.ndim == 4 else [torch.contiguous_format]
    models = [torch_peer.network(net) for _ in formats]
    ours = our_step(net, x, y, case.loss)
    theirs = [torch_peer.step(model, x, y, case.loss, memory_format) for model, memory_format in zip(models, formats)]
    with without_dropout(net, models):
        for _ in range(5):  # all warm up, and are seen to do the same thing
            a = ours()
            for b in [step() for step in theirs]:
                if not abs(a - b) <= 1e-3 * max(abs(b), 1):
                    raise UserError(f"{case.name}: our loss is {a}, PyTorch's {b}: they do not train the same network")
    for step in (ours, *theirs):
        step()  # now with dropout, which allocates its arrays
    return ours, *theirs


def our_step(net, x, y, loss_name):
    """A function that does one step of SGD with momentum and returns the loss."""
    optimizer, loss, context = SGD(net, 0.01, 0.9), LOSSES[loss_name](), Context()

    def one():
        value = loss.forward(net.forward(x, context), y, context)
        net.backward(loss.backward(context), context)
        optimizer.step()
        net.step += 1
        return value

    return one


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
    parser = Parser(prog="bench_serial", description="Compare serial training steps with PyTorch's.")
    add_comparison(parser)
    parser.add_argument("--best", action="store_true", help="compare with the faster of PyTorch's two layouts of images")
    args = parser.parse_args()
    print(json.dumps(compared(SERIAL, partial(serial_steps, best=args.best), ROUND_SECONDS, args, "networks")))


if __name__ == "__main__":
    run_launcher(main)
