"""Training steps of several plans that are timed in turn, and the predictions of the cost model for them."""

import time
from dataclasses import dataclass
from statistics import median

import numpy as np

from gridgrad.experiments.common.made_up_data import minibatch, own_block
from gridgrad.nn import SGD, SoftmaxCrossEntropy
from gridgrad.nn.zoo import network_names
from gridgrad.parallel import ProcessGrid, parallelize, train_step
from gridgrad.parallel.prediction.cost import cost_of_slowest_rank, step_time
from gridgrad.parallel.prediction.placement_spec import PlacementSpec

WARM_UP = 2  # steps of each plan that are not timed
LEAST, MOST = 0.05, 40  # the least seconds and the most steps of a turn


@dataclass
class PlanProblem:
    """A network and a global batch. net: a text that `network_names.build` takes."""

    net: str
    shape: tuple
    outputs: int
    batch_size: int

    def serial(self):
        return network_names.build(self.net, self.shape, self.outputs)


class TimedPlan:
    """One plan of a problem on the ranks here.

    sizes: of the grid's axes; absent ones are 1. plan, owners: as `parallelize` takes them. timer: a NormalisedTimer. rounds:
    for each round (seconds of a step normalised to an unloaded core, the same as measured).
    """

    def __init__(self, problem, sizes, plan, timer, owners=None):
        self.problem, self.timer, self.owners = problem, timer, owners
        self.grid = ProcessGrid(timer.comm, **sizes)
        self.net = parallelize(problem.serial(), self.grid, plan, "plain", owners=owners)
        self.optimizer, self.loss = SGD(self.net, lr=1e-4, momentum=0.9), SoftmaxCrossEntropy()
        self.x, self.y = own_block(self.net, *minibatch(problem.serial().input_shape, problem.outputs, problem.batch_size))
        self.steps, self.rounds = 1, []
        for _ in range(WARM_UP):
            self.turn()
        self.steps = int(min(MOST, max(1, round(LEAST / self.rounds[-1][1]))))
        self.rounds.clear()

    def turn(self):
        """Time some steps, each as long as its slowest rank, and append their median to `rounds`."""
        found = []
        self.grid.comm.Barrier()
        with self.timer:
            for _ in range(self.steps):
                start = time.perf_counter()
                train_step(self.net, self.loss, self.optimizer, self.x, self.y, self.problem.batch_size)
                found.append(time.perf_counter() - start)
        *found, slowness = self.grid.max(np.array([*found, self.timer.slowness])).tolist()
        self.rounds.append((median(found) / slowness, median(found)))

    def cost(self, described):
        """The Cost of the rank with the most work on a Machine."""
        return cost_of_slowest_rank(self.problem.serial(), self._asked, self.problem.batch_size, described)

    def step_time(self, described):
        """The predicted StepPrediction of all ranks on a Machine."""
        return step_time(self.problem.serial(), self._asked, self.problem.batch_size, described)

    @property
    def _asked(self):
        return PlacementSpec(self.grid.sizes, ",".join(self.net.plan), owners=self.owners)
