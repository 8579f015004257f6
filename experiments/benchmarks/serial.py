"""Comparisons of one thread with PyTorch's, in a process of its own: a line of JSON for each case, for `bench`.

    python -m gridgrad.experiments.benchmarks.serial steps "lenet5, batch 64"

| what                    | prints {case: ..}                                                                              |
|-------------------------|------------------------------------------------------------------------------------------------|
| `steps`, `best`         | ratios of training steps and inference; `best`: the faster of PyTorch's two layouts of images  |
| `convolutions`          | ratios of forward and backward of single convolutions, PyTorch with the faster layout          |
| `memory`, `peer-memory` | bytes of two training steps of ours, of PyTorch at the peak, above what the process held before |
| `limits`                | the BLAS of both sides, their rates of large products, and the rate of copying; without cases  |
"""

import contextlib
import gc
import json
import time
from functools import partial

import numpy as np

from gridgrad.experiments.benchmarks.cases import MEMORY, SERIAL, SHAPES, StepCase, named
from gridgrad.experiments.benchmarks.rounds import in_minutes, ratios, shares
from gridgrad.experiments.common import report
from gridgrad.experiments.common.core_limits import copy_bandwidth, gemm_peak
from gridgrad.experiments.common.options import Parser, number, user_input, whole
from gridgrad.experiments.common.problems import minibatch
from gridgrad.experiments.common.progress import progress
from gridgrad.nn import LOSSES, SGD, Adam, Context, Conv2d, Dropout, Sequential
from gridgrad.parallel.job.run import UserError, run_launcher

ROUND_SECONDS = 0.15  # of each side in a round
WARM_UP_STEPS, WARM_UP_SECONDS = 5, 0.5  # warming up ends at the first of the two, after at least two steps
STEP_TOLERANCE = 1e-3  # of the loss or of the largest output, or of 1 if these are smaller
CONV_TOLERANCE = 1e-4  # of the largest element
SECONDS = 0.5  # of measuring each limit
FIRST_LAYER = 3  # with at most this number of input channels a convolution needs no gradient of its input
MEMORY_STEPS = 2  # the second has the gradients and the momentum of the first
CASES = {"steps": SERIAL, "best": SERIAL, "convolutions": SHAPES, "memory": MEMORY, "peer-memory": MEMORY}
WARM_UP_NET = StepCase("warm-up", "lenet5", (28, 28, 1), 10, 1)  # loads what the libraries keep for themselves


def serial_steps(case, best=False):
    """(ours, theirs, ..): functions that do the work of a StepCase once each, on equal networks and data, after a check. best:
    two of theirs where there are images, with channels first and with channels last."""
    import torch

    from gridgrad.experiments.benchmarks import torch_peer

    net = case.network()
    x, y = minibatch(net.input_shape, case.outputs, case.batch_size, case.loss)
    formats = [torch.contiguous_format, torch.channels_last] if best and x.ndim == 4 else [torch.contiguous_format]
    models = [torch_peer.network(net) for _ in formats]
    ours, work = WORK[case.work](net, x, y, case.loss), torch_peer.WORK[case.work]
    theirs = [work(model, x, y, case.loss, memory_format) for model, memory_format in zip(models, formats)]
    with without_dropout(net, models):
        end = time.monotonic() + WARM_UP_SECONDS
        for number in range(WARM_UP_STEPS):  # all warm up, and are seen to do the same thing
            a = ours()
            for b in [step() for step in theirs]:
                error = np.max(np.abs(a - b)) / max(np.max(np.abs(b)), 1)
                if not error <= STEP_TOLERANCE:
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


# Our side of the `work` of a StepCase; `torch_peer.WORK` is PyTorch's.
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


def conv_steps(shape):
    """(ours, theirs, theirs): functions that go forward and backward through a Shape, on the same images, after a check. Each
    returns its output, the gradients of weight and bias and, unless it is a first layer, that of the input."""
    import torch

    from gridgrad.experiments.benchmarks import torch_peer

    layer = Conv2d(shape.inputs, shape.outputs, shape.kernel, shape.stride, shape.padding)
    net = Sequential([layer], input_shape=(shape.size, shape.size, shape.inputs))
    is_first, context = shape.inputs <= FIRST_LAYER, Context()
    rng = np.random.default_rng(0)
    x = rng.standard_normal((shape.batch_size, *net.input_shape), np.float32)
    dy = rng.standard_normal((shape.batch_size, *net.output_shape(net.input_shape)), np.float32)

    def ours():
        y = net.forward(x, context)
        dx = net.backward(dy, context, input_gradient=not is_first)  # a convolution leaves dy as it is
        return y, layer.weight.grad, layer.bias.grad, *([] if is_first else [dx])

    def peer(memory_format):
        model = torch_peer.network(net).to(memory_format=memory_format)
        images, gradient = (torch_peer.layout(array, memory_format) for array in (x, dy))
        wanted = [*model.parameters(), *([] if is_first else [images.requires_grad_()])]

        def theirs():
            y = model(images)
            return y, *torch.autograd.grad(y, wanted, gradient)

        return theirs

    theirs = [peer(torch.contiguous_format), peer(torch.channels_last)]
    y, dw, db, *dx = ours()
    found = [torch_peer.layout(y), torch.from_numpy(dw.transpose(layer.weight.torch_axes)), torch.from_numpy(db)]
    names = "output", "gradient of the weight", "gradient of the bias", "gradient of the input"
    for step in theirs:
        for name, a, b in zip(names, [*found, *map(torch_peer.layout, dx)], step()):
            error = ((a - b).abs().max() / b.abs().max()).item()
            if not error <= CONV_TOLERANCE:
                raise UserError(f"{shape.name}: the {name} is not PyTorch's: they differ by {error:.1e} of the largest element")
    return ours, *theirs


def memory(case, by_pytorch):
    """The bytes that training steps of a StepCase take at the peak, above those held before, after a warm-up."""
    for one in (WARM_UP_NET, case):
        before, net = held("VmRSS"), one.network()
        data = *minibatch(net.input_shape, one.outputs, one.batch_size), one.loss
        if by_pytorch:
            from gridgrad.experiments.benchmarks import torch_peer

            step = torch_peer.step(torch_peer.chain(net.layers), *data)  # with weights of its own: ours take no memory yet
        else:
            step = our_step(net, *data)
        for _ in range(MEMORY_STEPS):
            step()
        del net, data, step
    return held("VmHWM") - before


def held(field):
    """The bytes that this process holds ("VmRSS") or has held at the most ("VmHWM"), as Linux counts them. `resource.getrusage`
    may count the program that started this one; it is for other systems."""
    try:
        with open("/proc/self/status") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith(f"{field}:"))
    except OSError:
        return report.peak_memory()


def main():
    parser = Parser(prog="serial", description="Compare one thread with PyTorch's.")
    add = parser.add_argument
    add("what", choices=["limits", *CASES])
    add("names", nargs="*", metavar="CASE", help="the comparisons")
    add("--rounds", type=whole(1), default=9, help="rounds of each comparison, in each of which every side is timed")
    add("--minutes", type=number(least=0), default=15.0, metavar="M", help="stop after about so many minutes")
    args = parser.parse_args()
    with user_input():
        cases = [named(CASES[args.what], name) for name in args.names]
    if args.what == "limits":  # of one thread
        from gridgrad.experiments.benchmarks import torch_peer

        ours = {"blas": str(report.blas()), "flops": gemm_peak(SECONDS)}
        peer = {"blas": torch_peer.blas(), "flops": torch_peer.gemm_peak(SECONDS)}
        print(json.dumps({"ours": ours, "peer": peer, "copy": copy_bandwidth(SECONDS)}))
    elif args.what in ("memory", "peer-memory"):
        print(json.dumps({case.name: memory(case, args.what == "peer-memory") for case in cases}))
    else:
        sides = conv_steps if args.what == "convolutions" else partial(serial_steps, best=args.what == "best")
        for case, end in zip(progress(cases, "comparisons"), shares(in_minutes(args.minutes), [1] * len(cases))):
            steps = sides(case)
            print(json.dumps({case.name: ratios(steps, args.rounds, ROUND_SECONDS, end)}), flush=True)
            del steps
            gc.collect()  # layers and networks refer to each other, and the next case needs their memory


if __name__ == "__main__":
    run_launcher(main)
