"""Measuring the numbers of a machine file (`parallel/prediction/machine.py`) by running the layers and collectives themselves.

All ranks measure at the same time, because in training they also compute at the same time and share caches, memory and the
network. Other programs slow a machine down for moments or minutes. So computing times are normalised to an unloaded core
(`parallel/calibration/core_speed.py`), everything is measured in several passes of which the fastest counts, and an operation
is never taken to be slower than a larger one of its kind.
"""

import random as shuffling
import time
from itertools import cycle, pairwise, product

import numpy as np
from mpi4py import MPI

from gridgrad import nn
from gridgrad.nn import SGD, Context, Conv2d, Linear, Sequential, SoftmaxCrossEntropy
from gridgrad.parallel.calibration.time_limit import TimeLimit
from gridgrad.parallel.grid.collectives import COLLECTIVES
from gridgrad.parallel.grid.process_grid import MODEL, ProcessGrid
from gridgrad.parallel.placement.layer_kinds import TABLED_KERNELS

SAMPLE = 0.001  # the least seconds of a timed run of an operation
RUNS, PASSES = 3, 2
LONG = 1.0  # the most seconds that the runs of one collective take together
MOST = 2.5e9  # the most operations of a measured convolution, and a quarter of those of a Linear; larger ones are extrapolated
RESIDENT = 12 << 20  # bytes of the arrays used in turn: more than a core's cache holds, as in a network
WIDTHS = [8, 64, 256, 512, 1024, 2048, 4096]
LINEAR = [1, 4, 16, 64, 256, 1024], WIDTHS, WIDTHS  # samples, inputs, outputs
CHANNELS, FILTERS = [1, 3, 6, 16, 32, 64, 128, 256], [4, 8, 16, 32, 64, 128, 256]
CONVOLUTION = [1, 8, 64], [16, 64, 256, 1024], CHANNELS, FILTERS  # images, pixels of an output image, channels in, out
ELEMENTS = [1 << k for k in (7, 10, 12, 15, 18, 21, 23)]
RUN_LENGTHS = [4, 16, 64, 256, 1024]  # lengths of the contiguous runs that are packed into a message
POOLED_CHANNELS = [6, 32]
LENGTHS = [1 << k for k in (1, 6, 10, 12, 14, 16, 18, 20, 22)]  # elements of the collectives
ALWAYS = [LENGTHS[0], 1 << 14, LENGTHS[-1]]  # measured however little time there is
LONGEST = 1 << 24  # elements of the longest all-reduce, as for the gradients of a large network
LAYERS = {
    "relu": nn.ReLU,
    "leakyrelu": nn.LeakyReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "dropout": lambda: nn.Dropout(0.5),
    "batchnorm": lambda: nn.BatchNorm(32),
    "localresponsenorm": lambda: nn.LocalResponseNorm(5),
    "flatten": nn.Flatten,
}
POOLINGS = {"maxpool2d": nn.MaxPool2d, "pooled": nn.MaxPool2d, "avgpool2d": nn.AvgPool2d}


def seconds(timer, action, *arguments):
    """Seconds of one call of `action`, which all ranks run at the same time, normalised to an unloaded core. Collective.

    It is the median of `RUNS` runs. A run repeats the action, equally often on all ranks, for about `SAMPLE` seconds. The time
    of the slowest rank counts, because in training the others wait for it. timer: a NormalisedTimer.
    """
    comm = timer.comm
    comm.Barrier()
    start = time.perf_counter()
    action(*arguments)
    first = comm.allreduce(time.perf_counter() - start) / comm.size
    times, found = max(1, min(1000, round(SAMPLE / max(first, 1e-7)))), []
    for _ in range(RUNS if first < 0.1 else 1):
        comm.Barrier()
        with timer:
            for _ in range(times):
                action(*arguments)
        found.append(timer.computing / times)
    found = np.array(found)
    comm.Allreduce(MPI.IN_PLACE, found, MPI.MAX)
    return float(np.median(found))


def seconds_between(timer, action):
    """Seconds of one call of a collective that follows a matrix product, so that ranks arrive at different times as in
    training.

    The mean over the ranks counts, which includes waiting. Normalised to an unloaded core. Collective. timer: a
    NormalisedTimer.
    """
    comm, found = timer.comm, []
    a, b, c = random(256, 256), random(256, 256), np.empty((256, 256), np.float32)
    comm.Barrier()
    for _ in range(4 * RUNS):
        np.matmul(a, b, out=c)
        with timer:
            action()
        found.append(timer.seconds)
        if comm.allreduce(sum(found)) > comm.size * LONG:
            break
    found = np.array(found[1:] or found)
    comm.Allreduce(MPI.IN_PLACE, found)
    return float(np.median(found) / comm.size)


def random(*shape):
    """A float32 array of random numbers."""
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def core(timer):
    """The entry `core` of a machine file, measured while all ranks compute. Collective.

    {"flops": per second, "bandwidth": bytes per second, "call": seconds of the smallest operation}.
    """
    a, b, c = random(512, 512), random(512, 512), np.empty((512, 512), np.float32)
    x, y, z, one = (np.ones(n, np.float32) for n in (1 << 23, 1 << 23, 1, 1))
    return {
        "flops": 2 * 512**3 / seconds(timer, np.matmul, a, b, c),
        "bandwidth": 3 * x.nbytes / seconds(timer, np.add, x, y, y),
        "call": seconds(timer, np.add, one, one, z),
    }


# ----- tables


def tables(timer, progress=iter, limit=None):
    """Measure the tables of a machine file. Collective.

    Returns the tables, {operation: {"axes": lists of sizes, "seconds": nested lists}}, and a pair: how many sizes of operations
    were measured at least once, and how many there are.

    timer: a NormalisedTimer. progress: a function that wraps the list of measurements, to show progress. limit: a TimeLimit at
    which measuring stops. Measurements are made in a random order, the same on all ranks, so that gaps are spread over all
    tables if the time ends early; `completed` fills them. An operation that was never measured has no table.
    """
    found, limit, done = {}, limit or TimeLimit(timer.comm), 0
    kernels = [(kernel, *sizes) for kernel in TABLED_KERNELS for sizes in product(*CONVOLUTION)]
    points = [(linear, LINEAR, sizes) for sizes in product(*LINEAR)]
    points += [(convolution, CONVOLUTION, sizes) for sizes in kernels]
    points += [(layer, [ELEMENTS], (name, elements)) for name in LAYERS for elements in ELEMENTS]
    points += [
        (pooling, [ELEMENTS, POOLED_CHANNELS], (name, *sizes))
        for name in POOLINGS
        for sizes in product(ELEMENTS, POOLED_CHANNELS)
    ]
    points += [(packing, [ELEMENTS, RUN_LENGTHS], sizes) for sizes in product(ELEMENTS, RUN_LENGTHS)]
    points += [(rest, [ELEMENTS], (elements,)) for elements in ELEMENTS]
    order = [point for seed in range(PASSES) for point in shuffling.Random(seed).sample(points, len(points))]
    for measure, axes, sizes in progress(order):
        if limit.is_over():
            break
        for name, value in measure(timer, *sizes).items():
            table = found.setdefault(name, {"axes": axes, "seconds": np.full([len(axis) for axis in axes], np.nan)})
            where = tuple(axis.index(n) for axis, n in zip(axes, sizes[-len(axes) :]))
            table["seconds"][where] = np.fmin(table["seconds"][where], value)
        done += 1
    return {name: completed(table) for name, table in found.items()}, (min(done, len(points)), len(points))


def linear(timer, samples, inputs, outputs):
    """{operation: seconds} of the three matrix products of a Linear layer; empty if they are too large to be measured."""
    if samples > 1 and 2 * samples * inputs * outputs > 4 * MOST:
        return {}
    layers = [Linear(inputs, outputs) for _ in range(turns(8 * inputs * outputs))]
    x, dy = random(samples, inputs), random(samples, outputs)
    nets, context = [Sequential([layer]) for layer in layers], Context()
    for net in nets:
        net.forward(x, context)
    return {
        "linear.forward": seconds(timer, in_turn([layer.forward for layer in layers]), x, context),
        "linear.gradients": seconds(timer, in_turn([layer.gradients for layer in layers]), dy, context),
        "linear.input_gradient": seconds(timer, in_turn([layer.input_gradient for layer in layers]), dy, context),
    }


def turns(nbytes):
    """How many arrays of `nbytes` bytes a measurement uses in turn, so that they do not stay in the core's cache."""
    return max(1, min(8, RESIDENT // nbytes))


def in_turn(functions):
    """A function that calls these functions in turn, the next one each time."""
    turn = cycle(functions)
    return lambda *arguments: next(turn)(*arguments)


def convolution(timer, kernel, images, pixels, inputs, outputs):
    """{operation: seconds} of a Conv2d with a square kernel, square images and stride 1; empty if it is too large."""
    if images > 1 and 2 * images * pixels * kernel**2 * inputs * outputs > MOST:
        return {}
    side, conv = round(pixels**0.5), Conv2d(inputs, outputs, kernel, padding=kernel // 2)
    x, dy = random(images, side, side, inputs), random(images, side, side, outputs)
    context = Context()
    Sequential([conv]).forward(x, context)
    passes = {"forward": (conv.forward, x), "gradients": (conv.gradients, dy), "backward": (conv.backward, dy)}
    return {f"conv{kernel}.{name}": seconds(timer, *call, context) for name, call in passes.items()}


def layer(timer, name, elements):
    """{operation: seconds} of forward and backward of a layer of `LAYERS`; only the number of elements matters."""
    one = LAYERS[name]()
    net, context = Sequential([one]), Context()
    one.in_place = True  # as behind a Linear or a convolution
    copies = turns(4 * elements)
    shape = (elements // 2048, 8, 8, 32) if elements >= 2048 else (1, 2, elements // 64, 32)
    inputs = cycle([random(*shape) for _ in range(copies)])
    dy = cycle([np.zeros_like(net.forward(next(inputs), context)) for _ in range(copies)])  # they remain zeros

    def forward():
        one.forward(next(inputs), context)

    with np.errstate(over="ignore"):
        found = seconds(timer, forward), seconds(timer, lambda: one.backward(next(dy), context))
    return dict(zip((f"{name}.forward", f"{name}.backward"), found))


def pooling(timer, name, elements, channels):
    """{operation: seconds} of both passes of a 2 x 2 pooling. "pooled" reads from the cache, as right after a convolution."""
    one, context = POOLINGS[name](2), Context()
    copies = turns(4 * elements) if name != "pooled" else 1
    pixels = elements // channels
    shape = (pixels // 64, 8, 8, channels) if pixels >= 64 else (1, 2, max(2, pixels // 2), channels)
    inputs = cycle([random(*shape) for _ in range(copies)])
    dy = cycle([np.zeros_like(one.forward(next(inputs), context)) for _ in range(copies)])
    return {
        f"{name}.forward": seconds(timer, lambda: one.forward(next(inputs), context)),
        f"{name}.backward": seconds(timer, lambda: one.backward(next(dy), context)),
    }


def packing(timer, elements, run):
    """{"pack": seconds} of copying every second run of `run` numbers into a contiguous buffer, as for a message."""
    copies = range(turns(12 * elements))
    pairs = cycle([(random(elements // run + 1, 2, run), np.empty((elements // run + 1, run), np.float32)) for _ in copies])

    def pack():
        x, flat = next(pairs)
        flat[...] = x[:, 0]

    return {"pack": seconds(timer, pack)}


def rest(timer, elements):
    """{operation: seconds} of the rest of a step, on `elements` elements: copies, sums, the parameter update and the loss."""
    x, y = random(elements), random(elements)
    copied, added = seconds(timer, np.copyto, y, x), seconds(timer, np.add, x, y, np.empty_like(x))
    updates = [SGD(Sequential([Linear(1, elements // 2)]), lr=1e-9, momentum=0.9).step for _ in range(turns(12 * elements))]
    update = cycle(updates)
    samples = max(1, elements // 10)
    context = Context(batch_size=samples)
    loss, outputs, classes = SoftmaxCrossEntropy(), random(samples, 10), np.zeros(samples, int)

    def loss_and_gradient():
        loss.forward(outputs, classes, context)
        loss.backward(context)

    return {
        **dict.fromkeys(("copy.forward", "copy.backward"), copied),
        **dict.fromkeys(("add.forward", "add.backward"), added),
        "update": seconds(timer, lambda: next(update)()),
        "loss": seconds(timer, loss_and_gradient),
    }


def completed(table):
    """The table with its gaps filled, as nested lists.

    Sizes that were too large to be measured are extrapolated in proportion from the next smaller number of samples, which is
    the first axis. Sizes for which there was no time are extrapolated in proportion from the nearest measured sizes. Finally,
    no time may be longer than that of a larger size.
    """
    values = table["seconds"]
    for i, (fewer, more) in enumerate(pairwise(table["axes"][0])):
        values[i + 1] = np.where(np.isnan(values[i + 1]), values[i] * more / fewer, values[i + 1])
    logs = np.stack(np.meshgrid(*map(np.log, table["axes"]), indexing="ij"), axis=-1)
    known = ~np.isnan(values)
    for place in map(tuple, np.argwhere(~known)):
        nearest = np.abs(logs[known] - logs[place]).sum(axis=-1).argmin()
        values[place] = values[known][nearest] * np.exp((logs[place] - logs[known][nearest]).sum())
    for axis in range(values.ndim):
        values = np.flip(np.minimum.accumulate(np.flip(values, axis), axis), axis)
    return table | {"seconds": values.tolist()}


# ----- collectives


def trials():
    """{kind: trial} of all collectives that are calibrated."""
    return {kind: collective.trial for kind, collective in COLLECTIVES.items() if collective.trial}


def collectives(timer, progress=iter, limit=None):
    """{kind: {ranks: [[bytes sent, seconds], ..]}} for groups of every size that divides the number of ranks. Collective.

    timer: a NormalisedTimer. progress: as for `tables`. limit: a TimeLimit, after which only the lengths of `ALWAYS` are still
    measured, once each.
    """
    curves, comm, limit = {}, timer.comm, limit or TimeLimit(timer.comm)
    for members in [n for n in range(2, comm.size + 1) if comm.size % n == 0]:
        with ProcessGrid(comm, batch=comm.size // members, model=members) as grid:
            points = [*product(trials(), LENGTHS), ("all-reduce", LONGEST)]
            least = [(kind, length) for kind, length in points if length in ALWAYS]
            rest = [point for point in points if point not in least]
            for number, (kind, length) in enumerate(progress(least + rest + points * (PASSES - 1))):
                if limit.is_over() and number >= len(least):
                    break
                grid.tally.clear()
                action = COLLECTIVES[kind].trial(grid.group(MODEL), length)
                action()
                sent = grid.comm.allreduce(sum(record.bytes for record in grid.tally.records.values()), MPI.MAX)
                curve = curves.setdefault(kind, {}).setdefault(str(members), {})
                curve[sent] = min(curve.get(sent, np.inf), seconds_between(timer, action))
    return {
        kind: {p: sorted([sent, s] for sent, s in curve.items() if sent) for p, curve in of.items()}
        for kind, of in curves.items()
    }


def link(curve, ranks, core):
    """{"alpha": seconds per message, "beta": seconds per byte}, from the curve of the all-reduce over `ranks` ranks.

    For a single rank, which has no curve, they are those of a copy in memory. core: the entry `core` of the machine file.
    """
    if not curve:
        return {"alpha": core["call"], "beta": 2 / core["bandwidth"]}
    (_, least), (sent, most) = curve[0], curve[-1]
    return {"alpha": least / COLLECTIVES["all-reduce"].rounds(ranks), "beta": max(most - least, 1e-9) / sent}
