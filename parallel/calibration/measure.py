"""Measuring the numbers of a machine file by running layers, collectives and whole training steps. All ranks measure at the
same time, because in training they also compute at the same time and share caches, memory and the network. Computing times are
normalised to an unloaded core (`parallel/calibration/timing.py`), the fastest of several passes counts, and no operation is
slower than a larger one.

A whole step takes longer than the sum of its operations, because of the interpreter, and because the ranks wait in each
collective for the last one, whose core may have been taken away for a moment. Two numbers are fitted to measured steps of
reference networks: `step`, extra seconds of each step, and `wait`, extra seconds of each collective.
"""

import random as shuffling
from functools import partial
from itertools import cycle, pairwise, product

import numpy as np
from mpi4py import MPI

from gridgrad import nn
from gridgrad.nn import SGD, Context, Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential, SoftmaxCrossEntropy, Tanh
from gridgrad.nn.measured import in_turns, timed
from gridgrad.parallel.calibration.timing import TimeLimit, slowest_in_turns
from gridgrad.parallel.grid.collectives import CALIBRATED, trial
from gridgrad.parallel.grid.process_grid import HEIGHT, LAYER_AXES, MODEL, ProcessGrid
from gridgrad.parallel.placement.layer_kinds import TABLED_KERNELS
from gridgrad.parallel.prediction.cost import cost_of_slowest_rank
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from gridgrad.parallel.prediction.planner import every_grid
from gridgrad.parallel.training.distribute import distribute

PRODUCT = 512  # the side of matrices that are multiplied
NUMBERS = 1 << 23  # in each of the arrays that are added: more than a cache holds
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
LAYERS = {  # of which only the number of elements matters
    "relu": ReLU, "leakyrelu": nn.LeakyReLU, "tanh": Tanh, "sigmoid": nn.Sigmoid, "dropout": partial(nn.Dropout, 0.5),
    "batchnorm": partial(nn.BatchNorm, 32), "localresponsenorm": partial(nn.LocalResponseNorm, 5), "flatten": Flatten,
}  # fmt: skip
# 2 x 2. "pooled" reads from the cache, as right after a convolution.
POOLINGS = {"maxpool2d": partial(MaxPool2d, 2), "pooled": partial(MaxPool2d, 2), "avgpool2d": partial(nn.AvgPool2d, 2)}
LENGTHS = [1 << k for k in (1, 6, 10, 12, 14, 16, 18, 20, 22)]  # elements of the collectives
ALWAYS = [LENGTHS[0], 1 << 14, LENGTHS[-1]]  # measured however little time there is
LONGEST = 1 << 24  # elements of the longest all-reduce, as for the gradients of a large network
STEPS, STEP_ROUNDS, STEP_PASSES = 6, 3, 4  # of the reference networks
CLASSES, PLAN = 10, "fewest-bytes"


def random(*shape):
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def core_actions():
    """What the constants of a core are measured by: a large product, an addition in memory, the smallest operation."""
    a, b, c = random(PRODUCT, PRODUCT), random(PRODUCT, PRODUCT), np.empty((PRODUCT, PRODUCT), np.float32)
    x, y, z, one = (np.ones(n, np.float32) for n in (NUMBERS, NUMBERS, 1, 1))
    return [partial(np.matmul, a, b, out=c), partial(np.add, x, y, out=y), partial(np.add, one, one, out=z)]


def core_of(product, addition, call):
    """The entry `core` of a machine file: operations and bytes per second, seconds of a call; from those of `core_actions`."""
    return {"flops": 2 * PRODUCT**3 / product, "bandwidth": 3 * 4 * NUMBERS / addition, "call": call}


def seconds(timer, action):
    """Seconds of one call of an action that all ranks run, normalised to an unloaded core by a NormalisedTimer. Collective."""
    # The median of `RUNS` runs, of equally many calls on all ranks. The slowest rank counts: in training others wait for it.
    timer.comm.Barrier()
    first = timer.comm.allreduce(timed(action)()) / timer.comm.size
    times = max(1, min(1000, round(SAMPLE / max(first, 1e-7))))

    def run():
        with timer:
            for _ in range(times):
                action()
        return timer.computing / times

    return float(np.median(slowest_in_turns(timer.comm, [run], most=RUNS if first < 0.1 else 1)))


# ----- the tables of operations


def tables(timer, progress=iter, limit=None):
    """({operation: {"axes", "seconds"}}, (how many sizes were measured, of how many)), until a TimeLimit. Collective."""
    found, limit, done = {}, limit or TimeLimit(timer.comm), 0
    points = [(linear, LINEAR, sizes) for sizes in product(*LINEAR)]
    points += [(convolution, CONVOLUTION, (kernel, *sizes)) for kernel in TABLED_KERNELS for sizes in product(*CONVOLUTION)]
    points += [(layer, [ELEMENTS], sizes) for sizes in product(LAYERS, ELEMENTS)]
    points += [(layer, [ELEMENTS, POOLED_CHANNELS], sizes) for sizes in product(POOLINGS, ELEMENTS, POOLED_CHANNELS)]
    points += [(packing, [ELEMENTS, RUN_LENGTHS], sizes) for sizes in product(ELEMENTS, RUN_LENGTHS)]
    points += [(rest, [ELEMENTS], (elements,)) for elements in ELEMENTS]
    # A random order, the same on all ranks, spreads the gaps over all tables if the time ends early.
    order = [point for seed in range(PASSES) for point in shuffling.Random(seed).sample(points, len(points))]
    for operations, axes, sizes in progress(order):
        if limit.is_over():
            break
        for name, action in operations(*sizes).items():
            table = found.setdefault(name, {"axes": axes, "seconds": np.full([len(axis) for axis in axes], np.nan)})
            where = tuple(axis.index(n) for axis, n in zip(axes, sizes[-len(axes) :]))
            with np.errstate(over="ignore"):
                table["seconds"][where] = np.fmin(table["seconds"][where], seconds(timer, action))
        done += 1
    return {name: completed(table) for name, table in found.items()}, (min(done, len(points)), len(points))


def completed(table):
    """The table with its gaps filled in proportion to measured sizes, as nested lists; no time is above a larger size's."""
    values = table["seconds"]
    # What was too large follows from fewer samples, the first axis; what there was no time for, from the nearest sizes.
    for i, (fewer, more) in enumerate(pairwise(table["axes"][0])):
        values[i + 1] = np.where(np.isnan(values[i + 1]), values[i] * more / fewer, values[i + 1])
    logs = np.stack(np.meshgrid(*map(np.log, table["axes"]), indexing="ij"), axis=-1)
    known = ~np.isnan(values)
    for gap in map(tuple, np.argwhere(~known)):
        nearest = np.abs(logs[known] - logs[gap]).sum(axis=-1).argmin()
        values[gap] = values[known][nearest] * np.exp((logs[gap] - logs[known][nearest]).sum())
    for axis in range(values.ndim):
        values = np.flip(np.minimum.accumulate(np.flip(values, axis), axis), axis)
    return table | {"seconds": values.tolist()}


# Each of these functions returns {operation: action} for some sizes, empty if they are too large to be measured.


def linear(samples, inputs, outputs):
    """The three matrix products of a Linear layer."""
    if samples > 1 and 2 * samples * inputs * outputs > 4 * MOST:
        return {}
    layers = [Linear(inputs, outputs) for _ in range(turns(8 * inputs * outputs))]
    x, dy, context = random(samples, inputs), random(samples, outputs), Context()
    for one in layers:
        Sequential([one]).forward(x, context)
    return {
        "linear.forward": in_turn([partial(one.forward, x, context) for one in layers]),
        "linear.gradients": in_turn([partial(one.gradients, dy, context) for one in layers]),
        "linear.input_gradient": in_turn([partial(one.input_gradient, dy, context) for one in layers]),
    }


def convolution(kernel, images, pixels, inputs, outputs):
    """A Conv2d with a square kernel, square images and stride 1."""
    if images > 1 and 2 * images * pixels * kernel**2 * inputs * outputs > MOST:
        return {}
    side, conv = round(pixels**0.5), Conv2d(inputs, outputs, kernel, padding=kernel // 2)
    x, dy, context = random(images, side, side, inputs), random(images, side, side, outputs), Context()
    Sequential([conv]).forward(x, context)
    passes = {"forward": (conv.forward, x), "gradients": (conv.gradients, dy), "backward": (conv.backward, dy)}
    return {f"conv{kernel}.{name}": partial(*call, context) for name, call in passes.items()}


def layer(name, elements, channels=32):
    """Both passes of a layer of `LAYERS` or `POOLINGS`."""
    one, context, pixels = (LAYERS | POOLINGS)[name](), Context(), elements // channels
    net = Sequential([one])
    one.in_place = name in LAYERS  # as behind a Linear or a convolution
    shape = (pixels // 64, 8, 8, channels) if pixels >= 64 else (1, 2, max(2, pixels // 2), channels)
    copies = range(turns(4 * elements) if name != "pooled" else 1)
    inputs = [random(*shape) for _ in copies]
    gradients = [np.zeros_like(net.forward(x, context)) for x in inputs]  # they remain zeros
    return {
        f"{name}.forward": in_turn([partial(one.forward, x, context) for x in inputs]),
        f"{name}.backward": in_turn([partial(one.backward, dy, context) for dy in gradients]),
    }


def packing(elements, run):
    """Copying every second run of `run` numbers into a contiguous buffer, as for a message."""
    copies = range(turns(12 * elements))
    pairs = [(random(elements // run + 1, 2, run), np.empty((elements // run + 1, run), np.float32)) for _ in copies]
    return {"pack": in_turn([partial(np.copyto, flat, x[:, 0]) for x, flat in pairs])}


def rest(elements):
    """The rest of a step: copies, sums, the parameter update and the loss."""
    x, y, out = random(elements), random(elements), random(elements)
    updates = [SGD(Sequential([Linear(1, elements // 2)]), lr=1e-9, momentum=0.9).step for _ in range(turns(12 * elements))]
    samples = max(1, elements // 10)
    context = Context(batch_size=samples)
    loss, outputs, classes = SoftmaxCrossEntropy(), random(samples, 10), np.zeros(samples, int)

    def loss_and_gradient():
        loss.forward(outputs, classes, context)
        loss.backward(context)

    return {
        **dict.fromkeys(("copy.forward", "copy.backward"), partial(np.copyto, y, x)),
        **dict.fromkeys(("add.forward", "add.backward"), partial(np.add, x, y, out)),
        "update": in_turn(updates),
        "loss": loss_and_gradient,
    }


def turns(nbytes):
    """How many arrays of `nbytes` bytes a measurement uses in turn, so that they do not stay in the core's cache."""
    return max(1, min(8, RESIDENT // nbytes))


def in_turn(actions):
    """An action that does these in turn, the next one each time."""
    turn = cycle(actions)
    return lambda: next(turn)()


# ----- the curves of collectives


def collectives(timer, progress=iter, limit=None):
    """{kind: {ranks: [[bytes sent, seconds], ..]}} for groups of every size that divides the number of ranks. Collective.
    limit: a TimeLimit, after which only the lengths of `ALWAYS` are still measured, once each. The rest is as for `tables`."""
    curves, comm, limit = {}, timer.comm, limit or TimeLimit(timer.comm)
    for members in [n for n in range(2, comm.size + 1) if comm.size % n == 0]:
        with ProcessGrid(comm, batch=comm.size // members, model=members) as grid:
            points = [*product(CALIBRATED, LENGTHS), ("all-reduce", LONGEST)]
            least = [(kind, length) for kind, length in points if length in ALWAYS]
            rest = [point for point in points if point not in least]
            for number, (kind, length) in enumerate(progress(least + rest + points * (PASSES - 1))):
                if limit.is_over() and number >= len(least):
                    break
                grid.tally.clear()
                action = trial(kind, grid.group(MODEL), length)
                action()
                sent = grid.comm.allreduce(sum(record.bytes for record in grid.tally.records.values()), MPI.MAX)
                curve = curves.setdefault(kind, {}).setdefault(str(members), {})
                curve[sent] = min(curve.get(sent, np.inf), seconds_between(timer, action))
    return {
        kind: {p: sorted([sent, s] for sent, s in curve.items() if sent) for p, curve in of.items()}
        for kind, of in curves.items()
    }


def seconds_between(timer, action):
    """Seconds of one call of a collective behind a matrix product, so that ranks arrive at different times as in training.
    The mean over the ranks counts, which includes waiting. Normalised as `seconds`. Collective."""
    a, b, c = random(256, 256), random(256, 256), np.empty((256, 256), np.float32)

    def run():
        np.matmul(a, b, out=c)
        with timer:
            action()
        return timer.seconds

    found = in_turns([run], 4 * RUNS, TimeLimit(timer.comm, LONG).is_over, timer.comm.Barrier)[:, 0]
    timer.comm.Allreduce(MPI.IN_PLACE, found)
    return float(np.median(found[1:] if len(found) > 1 else found) / timer.comm.size)


# ----- whole training steps


def dense(width):
    return Sequential([Linear(96, width), Tanh(), Linear(width, width), ReLU(), Linear(width, CLASSES)], input_shape=(96,))


def images():
    front = [Conv2d(3, 16, 3), MaxPool2d(2), ReLU(), Conv2d(16, 48, 3, padding=1), ReLU()]
    return Sequential([*front, Flatten(), Linear(48 * 9 * 9, CLASSES)], input_shape=(20, 20, 3))


CASES = [(partial(dense, 192), 48), (partial(dense, 640), 160), (partial(dense, 1500), 40), (images, 40), (images, 160)]


def problems(ranks):
    """[(make, batch_size, sizes)] of all measurements of steps: each case on each grid that fits it."""
    every = product(CASES, every_grid(ranks, LAYER_AXES))
    return [(*case, sizes) for case, sizes in every if sizes[HEIGHT] == 1 or len(case[0]().input_shape) > 1]


def measured_steps(timer, progress=iter, limit=None):
    """Measured seconds of a step, (passes, problems); after a TimeLimit no second or later pass begins. Collective."""
    every, limit = problems(timer.comm.size), limit or TimeLimit(timer.comm)
    return in_turns([lambda: [step_seconds(timer, *problem) for problem in progress(every)]], STEP_PASSES, limit.is_over)[:, 0]


def step_seconds(timer, make, batch_size, sizes):
    """Seconds of a step of the slowest rank, normalised to an unloaded core: the median of the rounds. Collective."""
    x = np.random.default_rng(0).standard_normal((batch_size, *make().input_shape), np.float32)
    y = np.arange(batch_size) % CLASSES
    with ProcessGrid(timer.comm, **sizes) as grid:
        net = distribute(make(), grid, PLAN)
        optimizer, loss = SGD(net, lr=1e-4, momentum=0.9), SoftmaxCrossEntropy()
        net.learn(x, y, loss, optimizer)

        def run():
            with timer:
                for _ in range(STEPS):
                    net.learn(x, y, loss, optimizer)
            return timer.raw / STEPS, timer.slowness

        raw, slowness = slowest_in_turns(timer.comm, [run], most=STEP_ROUNDS)[:, 0].T
    return float(np.median(raw / slowness))


def fitted(passes, machine, ranks):
    """{"step", "wait"} in seconds, fitted to the fastest of the `passes`. machine: predicts the rest of each step."""
    from scipy.optimize import nnls  # here, because it takes long to import

    seconds = passes.min(axis=0)
    costs = [cost_of_slowest_rank(make(), PlacementSpec(sizes, PLAN), size, machine) for make, size, sizes in problems(ranks)]
    collectives = np.array([cost.prediction.bounding.collectives for cost in costs])
    missing = seconds - [cost.seconds for cost in costs]
    # Relative errors count. Neither number can be negative.
    (step, wait), _ = nnls(np.array([1 / seconds, collectives / seconds]).T, missing / seconds)
    return {"step": max(float(step), 1e-9), "wait": max(float(wait), 1e-9)}
