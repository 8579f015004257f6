"""The overhead of a training step beyond the sum of its operations, fitted to measured steps of reference networks. A whole
step takes longer because of the interpreter, and because the ranks wait in each collective for the last one, whose core may
have been taken away for a moment. So there are two numbers: `step`, seconds of each step, and `wait`, seconds of each
collective. Of several passes over the networks the fastest counts."""

from itertools import product
from statistics import median

import numpy as np

from gridgrad.nn import SGD, Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential, SoftmaxCrossEntropy, Tanh
from gridgrad.parallel.calibration.turns import TimeLimit
from gridgrad.parallel.grid.process_grid import HEIGHT, LAYER_AXES, ProcessGrid
from gridgrad.parallel.prediction.cost import cost_of_slowest_rank
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from gridgrad.parallel.prediction.planner import every_grid
from gridgrad.parallel.training.distribute import distribute

STEPS, ROUNDS, PASSES = 6, 3, 4
CLASSES = 10
PLAN = "fewest-bytes"


def dense(width):
    return Sequential([Linear(96, width), Tanh(), Linear(width, width), ReLU(), Linear(width, CLASSES)], input_shape=(96,))


def images():
    front = [Conv2d(3, 16, 3), MaxPool2d(2), ReLU(), Conv2d(16, 48, 3, padding=1), ReLU()]
    return Sequential([*front, Flatten(), Linear(48 * 9 * 9, CLASSES)], input_shape=(20, 20, 3))


CASES = [(lambda: dense(192), 48), (lambda: dense(640), 160), (lambda: dense(1500), 40), (images, 40), (images, 160)]


def measured(timer, make, batch_size, sizes):
    """Seconds of a step of the slowest rank, normalised to an unloaded core: the median of `ROUNDS` rounds. Collective."""
    x = np.random.default_rng(0).standard_normal((batch_size, *make().input_shape), np.float32)
    y, rounds = np.arange(batch_size) % CLASSES, []
    with ProcessGrid(timer.comm, **sizes) as grid:
        net = distribute(make(), grid, PLAN)
        optimizer, loss = SGD(net, lr=1e-4, momentum=0.9), SoftmaxCrossEntropy()
        net.learn(x, y, loss, optimizer)
        for _ in range(ROUNDS):
            grid.comm.Barrier()
            with timer:
                for _ in range(STEPS):
                    net.learn(x, y, loss, optimizer)
            seconds, slowness = grid.max(np.array([timer.raw / STEPS, timer.slowness])).tolist()
            rounds.append(seconds / slowness)
    return median(rounds)


def problems(ranks):
    """Yield (make, batch_size, sizes) of all measurements: each case on each grid that fits it."""
    for (make, batch_size), sizes in product(CASES, every_grid(ranks, LAYER_AXES)):
        if sizes[HEIGHT] == 1 or len(make().input_shape) > 1:
            yield make, batch_size, sizes


def measured_steps(timer, progress=iter, limit=None):
    """Measured seconds of a step, (passes, problems); after a TimeLimit no second or later pass begins. Collective."""
    every, limit = list(problems(timer.comm.size)), limit or TimeLimit(timer.comm)
    passes = []
    for number in range(PASSES):
        if number and limit.is_over():
            break
        passes.append([measured(timer, *problem) for problem in progress(every)])
    return np.array(passes)


def fitted(passes, machine, ranks):
    """{"step", "wait"} in seconds, fitted to the fastest of the `passes`. machine: predicts the rest of each step."""
    every, seconds = list(problems(ranks)), passes.min(axis=0)
    costs = [cost_of_slowest_rank(make(), PlacementSpec(sizes, PLAN), size, machine) for make, size, sizes in every]
    each, collectives = 1 / seconds, [cost.prediction.bounding.collectives for cost in costs] / seconds
    missing = 1 - [cost.seconds for cost in costs] / seconds
    fits = [least_squares(columns, missing) for columns in ((each, collectives), (each, 0 * each), (0 * each, collectives))]
    step, wait = min((fit for fit in fits if min(fit[1]) >= 0), default=(0.0, (0.0, 0.0)))[1]
    return {"step": max(step, 1e-9), "wait": max(wait, 1e-9)}


def least_squares(columns, target):
    """(sum of the squared residuals, coefficients) of a linear least-squares fit."""
    matrix = np.array(columns).T
    found, *_ = np.linalg.lstsq(matrix, target, rcond=None)
    return float(np.square(matrix @ found - target).sum()), found.tolist()
