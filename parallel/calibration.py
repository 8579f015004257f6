"""Measuring what a machine takes: the numbers of a machine file (`parallel/machine.py`), by running the code that they are for.

All ranks measure at the same time, as they work at the same time in training: they share caches, memory and the network.
"""

import time
from itertools import cycle, pairwise, product

import numpy as np
from mpi4py import MPI

import nn
from nn import SGD, Conv2d, Linear, Sequential, SoftmaxCrossEntropy
from parallel.grid import ProcessGrid
from parallel.split import size, split
from parallel.walk import KERNELS

SAMPLE = 0.002  # seconds that a timed run of an operation lasts at least
RUNS = 5
MOST = 2.5e9  # operations of a product that is measured; larger ones are in proportion
RESIDENT = 16 << 20  # bytes of weights among which products take turns: more than a core's own cache holds
WIDTHS = [8, 64, 256, 1024, 4096]
LINEAR = [1, 4, 16, 64, 256, 1024, 4096], WIDTHS, WIDTHS  # samples, inputs, outputs
CHANNELS, FILTERS = [1, 3, 16, 32, 64, 128, 256], [8, 16, 32, 64, 128, 256]
CONVOLUTION = [1, 8, 64], [16, 64, 256, 1024], CHANNELS, FILTERS  # images, pixels of one that comes out, channels in, out
ELEMENTS = [1 << k for k in (5, 8, 12, 15, 18, 21, 23)]
LENGTHS = [1 << k for k in (1, 6, 10, 12, 14, 16, 18, 20, 22)]  # elements of a collective
LAYERS = {
    "relu": nn.ReLU,
    "leakyrelu": nn.LeakyReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "dropout": lambda: nn.Dropout(0.5),
    "maxpool2d": lambda: nn.MaxPool2d(2),
    "avgpool2d": lambda: nn.AvgPool2d(2),
    "batchnorm": lambda: nn.BatchNorm(8),
    "localresponsenorm": lambda: nn.LocalResponseNorm(5),
}


def seconds(comm, action, *arguments):
    """Of one call of an action that all ranks run at the same time: the lower quartile of some runs, the mean of the ranks.

    A run repeats the action until it lasts `SAMPLE`; the ranks agree on how often.
    """
    comm.Barrier()
    start = time.perf_counter()
    action(*arguments)
    first = comm.allreduce(time.perf_counter() - start) / comm.size
    times, found = max(1, min(1000, round(SAMPLE / max(first, 1e-7)))), []
    for _ in range(RUNS if first < 0.1 else 3):
        comm.Barrier()
        start = time.perf_counter()
        for _ in range(times):
            action(*arguments)
        found.append((time.perf_counter() - start) / times)
    found = np.array(found)
    comm.Allreduce(MPI.IN_PLACE, found)
    return float(np.quantile(found / comm.size, 0.25))


def random(*shape):
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def core(comm):
    """{"flops", "bandwidth", "call"} of a rank while all are at work."""
    a, b, c = random(512, 512), random(512, 512), np.empty((512, 512), np.float32)
    x, y, one = np.ones(1 << 23, np.float32), np.ones(1 << 23, np.float32), np.ones(1, np.float32)
    return {
        "flops": 2 * 512**3 / seconds(comm, np.matmul, a, b, c),
        "bandwidth": 3 * x.nbytes / seconds(comm, np.add, x, y, y),
        "call": seconds(comm, np.add, one, one, one),
    }


# ----- tables


def tables(comm, progress=iter):
    """All tables of a machine file. progress: around what is gone through."""
    found = {}
    kernels = [(kernel, *sizes) for kernel in KERNELS for sizes in product(*CONVOLUTION)]
    points = [(linear, LINEAR, sizes) for sizes in product(*LINEAR)]
    points += [(convolution, CONVOLUTION, sizes) for sizes in kernels]
    points += [(layer, [ELEMENTS], (name, elements)) for name in LAYERS for elements in ELEMENTS]
    points += [(rest, [ELEMENTS], (elements,)) for elements in ELEMENTS]
    for measure, axes, sizes in progress(points):
        for name, value in measure(comm, *sizes).items():
            table = found.setdefault(name, {"axes": axes, "seconds": np.full([len(axis) for axis in axes], np.nan)})
            table["seconds"][tuple(axis.index(n) for axis, n in zip(axes, sizes[-len(axes) :]))] = value
    return {name: completed(table) for name, table in found.items()}


def linear(comm, samples, inputs, outputs):
    """The three products of a Linear layer."""
    if samples > 1 and 2 * samples * inputs * outputs > MOST:
        return {}
    layers = [Linear(inputs, outputs) for _ in range(max(1, min(8, RESIDENT // (8 * inputs * outputs))))]
    x, dy = random(samples, inputs), random(samples, outputs)
    nets = [Sequential([layer]) for layer in layers]
    for net in nets:
        net.forward(x, training=True)
    return {
        "linear.forward": seconds(comm, in_turn([layer.forward for layer in layers]), x),
        "linear.gradients": seconds(comm, in_turn([layer.gradients for layer in layers]), dy),
        "linear.input_gradient": seconds(comm, in_turn([layer.input_gradient for layer in layers]), dy),
    }


def in_turn(functions):
    """A function that calls one of them after the other."""
    turn = cycle(functions)
    return lambda argument: next(turn)(argument)


def convolution(comm, kernel, images, pixels, inputs, outputs):
    """The passes of a Conv2d with a square kernel, square images and stride 1."""
    if images > 1 and 2 * images * pixels * kernel**2 * inputs * outputs > MOST:
        return {}
    side, conv = round(pixels**0.5), Conv2d(inputs, outputs, kernel, padding=kernel // 2)
    x, dy = random(images, side, side, inputs), random(images, side, side, outputs)
    Sequential([conv]).forward(x, training=True)
    passes = {"forward": (conv.forward, x), "gradients": (conv.gradients, dy), "backward": (conv.backward, dy)}
    return {f"conv{kernel}.{name}": seconds(comm, *call) for name, call in passes.items()}


def layer(comm, name, elements):
    """Both passes of a layer that goes through its elements."""
    one = LAYERS[name]()
    x = random(1, 2, elements // 16, 8)
    net = Sequential([one])
    one.in_place = True  # as behind a Linear or a convolution
    dy = np.zeros_like(net.forward(x, training=True))  # which stay what they are, however often they are overwritten
    with np.errstate(over="ignore"):
        return {f"{name}.forward": seconds(comm, one.forward, x, True), f"{name}.backward": seconds(comm, one.backward, dy)}


def rest(comm, elements):
    """What else a step does with so many numbers: copies, sums, the update of parameters, the loss of outputs."""
    x, y = random(elements), random(elements)
    copied, added = seconds(comm, np.copyto, y, x), seconds(comm, np.add, x, y, np.empty_like(x))
    net = Sequential([Linear(1, elements // 2)])
    samples = max(1, elements // 10)
    loss, outputs, classes = SoftmaxCrossEntropy(), random(samples, 10), np.zeros(samples, int)

    def of_loss():
        loss.forward(outputs, classes, samples)
        loss.backward()

    return {
        **dict.fromkeys(("copy.forward", "copy.backward"), copied),
        **dict.fromkeys(("add.forward", "add.backward"), added),
        "update": seconds(comm, SGD(net, lr=1e-9, momentum=0.9).step),
        "loss": seconds(comm, of_loss),
    }


def completed(table):
    """What was too large to be measured is in proportion to the next smaller number of samples, which lie on the first axis."""
    values = table["seconds"]
    for i, (fewer, more) in enumerate(pairwise(table["axes"][0])):
        values[i + 1] = np.where(np.isnan(values[i + 1]), values[i] * more / fewer, values[i + 1])
    return table | {"seconds": values.tolist()}


# ----- collectives


def collectives(comm, lengths=LENGTHS, progress=iter):
    """{kind: {ranks: [[bytes sent, seconds], ..]}} for groups of every size that divides the number of ranks."""
    curves = {}
    for members in [n for n in range(2, comm.size + 1) if comm.size % n == 0]:
        with ProcessGrid(comm, batch=comm.size // members, model=members) as grid:
            for kind, length in progress(list(product(ACTIONS, lengths))):
                grid.tally.clear()
                action = ACTIONS[kind](grid.group("model"), length)
                action()
                sent = grid.comm.allreduce(sum(record.bytes for record in grid.tally.records.values())) / grid.size
                curve = curves.setdefault(kind, {}).setdefault(str(members), [])
                if not curve or sent > curve[-1][0]:
                    curve.append([sent, seconds(comm, action)])
    return curves


def all_reduce(group, length):
    array = np.zeros(length, np.float32)
    return lambda: group.all_reduce(array, "calibration")


def all_gather(group, length):
    counts = even(length, group.size)
    block, out = np.zeros(counts[group.rank], np.float32), np.zeros(length, np.float32)
    return lambda: group.all_gather(block, out, counts, "calibration")


def reduce_scatter(group, length):
    counts = even(length, group.size)
    blocks, out = np.zeros(length, np.float32), np.zeros(counts[group.rank], np.float32)
    return lambda: group.reduce_scatter(blocks, out, counts, "calibration")


def all_to_all(group, length):
    counts = even(length, group.size)
    mine, others = np.zeros(sum(counts), np.float32), [counts[group.rank]] * group.size
    out = np.zeros(sum(others), np.float32)
    return lambda: group.all_to_all(mine, counts, out, others, "calibration")


def halo(group, length):
    counts = [length // 2 if abs(rank - group.rank) == 1 else 0 for rank in range(group.size)]
    mine, out = np.zeros(sum(counts), np.float32), np.zeros(sum(counts), np.float32)
    return lambda: group.start_halo(mine, counts, out, counts, "calibration").wait()


ACTIONS = {
    "all-reduce": all_reduce,
    "all-gather": all_gather,
    "reduce-scatter": reduce_scatter,
    "all-to-all": all_to_all,
    "halo": halo,
}


def even(length, ranks):
    return [size(part) for part in split(length, ranks)]


def link(curves, ranks, core):
    """{"alpha", "beta"} behind the curve of the all-reduce of so many ranks; of one rank those of a copy in memory."""
    if not curves:
        return {"alpha": core["call"], "beta": 2 / core["bandwidth"]}
    curve = curves["all-reduce"][str(ranks)]
    (_, least), (sent, most) = curve[0], curve[-1]
    return {"alpha": least / (2 * (ranks - 1).bit_length()), "beta": max(most - least, 1e-9) / sent}
