"""The predicted cost of a training step: the work of one rank (`parallel/prediction/workload.py`) times what each operation
takes on a machine (`parallel/prediction/machine.py`)."""

from functools import cached_property

from gridgrad.nn.sequence import shapes
from gridgrad.parallel.grid.grid_description import GridDescription
from gridgrad.parallel.grid.process_grid import HEIGHT, MODEL
from gridgrad.parallel.placement.plan import weighted
from gridgrad.parallel.plans.place_network import place
from gridgrad.parallel.plans.plans import plans_of, words_of
from gridgrad.parallel.prediction.step_prediction import RankStep, StepPrediction
from gridgrad.parallel.prediction.workload import Workload


class Cost:
    """The works of one rank in a training step, and what they cost.

    net: a serial Sequential; if it takes images, it must have an `input_shape`. grid: a GridDescription of the rank whose
    step is predicted, usually the one with the most work (see `busiest`). plan, shares, owners: see `parallelize`. batch_size:
    of the global minibatch. machine: a Machine. ValueError if the plan, the shares or the owners do not fit.

    works: the list of the rank's operations and collectives, see `Work`. executed: the same in the order of execution.
    seconds: of a step in which the gradient reductions begin after backward (reduction "plain").
    memory_of: {what: bytes} that the rank needs. is_even: whether all ranks have equal shares, as far as that goes.
    The predictions are no more exact than a few per cent: `results/predictions.md` compares them with measured steps.
    """

    def __init__(self, net, grid, plan, batch_size, machine, shares=None, owners=None):
        self.net, self.grid, self.batch_size, self.machine = net, grid, batch_size, machine
        self.placed = place(net, grid, plan, shares, owners)
        self.itemsize, self.is_even = net.dtype.itemsize, shares is None and owners is None
        workload = Workload(local_shape(self.placed.input, batch_size, grid), batch_size, self.itemsize)
        workload.step(self.placed.layers, grid)
        self.works, self.executed, self.memory_of = workload.works, workload.executed, workload.memory_of
        self.seconds = workload.seconds(machine, grid.size)

    def seconds_of(self, work):
        """Predicted seconds of a Work."""
        return work.seconds(self.machine, self.grid.size, self.itemsize)

    @cached_property
    def overlapped_seconds(self):
        """Seconds of a step in which the gradient reductions are hidden behind backward, as far as it is long enough.

        It is a lower bound for the reduction "overlap".
        """
        sums = sum(self.seconds_of(work) for work in self.works if work.layer == "gradients")
        computed = [work for work in self.works if work.group is None and work.phase in ("backward", "gradients")]
        backward = sum(self.seconds_of(work) for work in computed)
        return self.seconds - min(sums, backward)

    @cached_property
    def parts(self):
        """Seconds of the step in four parts, a dict: "compute" (forward, backward and loss), "update" (of the parameters),
        "gradients" (their reductions) and "activations" (all other communication)."""
        parts = dict.fromkeys(("compute", "update", "gradients", "activations"), 0.0)
        for work in self.works:
            if work.group is None:
                part = "update" if work.phase == "update" else "compute"
            else:
                part = "gradients" if work.layer == "gradients" else "activations"
            parts[part] += self.seconds_of(work)
        return parts

    @cached_property
    def prediction(self):
        """The StepPrediction, as if all ranks did the same as this one."""
        busy = self.parts["compute"] + self.parts["update"]
        return StepPrediction(self.seconds, (self.rank_step(busy, communicating=self.seconds - busy),), self.parts)

    def rank_step(self, busy, **spent):
        """The RankStep of this rank. busy, spent: how it spends the step."""
        sent = [work.nbytes for work in self.works if work.group is not None]
        return RankStep(busy, **spent, bytes=sum(sent), collectives=len(sent), memory_of=self.memory_of)


def local_shape(layout, batch_size, grid):
    """The shape of a rank's block of the activations for a global minibatch, samples first. layout: of the activations."""
    return layout.of(batch_size).local_shape(grid.coordinates)


def cost_of_busiest(net, asked, batch_size, machine):
    """The Cost of the rank that has the most work. asked: a PlacementRequest with grid and plan. For the others see Cost."""
    return Cost(net, busiest_of(net, asked, machine), asked.plan, batch_size, machine, asked.shares, asked.owners)


def busiest_of(net, asked, machine):
    """The GridDescription of the rank that has the most work on a Machine: see `busiest`."""
    return busiest(net, asked, machine.node["ranks"], machine.core.get("crowd", 1))


def busiest(net, asked, ranks_per_node=None, crowd=1):
    """The GridDescription of the rank that has the most work, for which the others wait in a step.

    net: a serial Sequential. asked: a PlacementRequest with grid, plan and shares. ranks_per_node, crowd: how many ranks share
    a node, and a core.
    It is the rank with the largest share on every axis. On the axis height with even shards it is the first rank, where that
    has more rows of a layer than the second one. Else it is the second rank, if that has neighbours on both sides, because it
    exchanges two halos. Where several ranks share a core, more rows do not count: ranks that wait leave their cores to the one
    that has more to do, so that the step hardly takes longer than with the mean of all. A plan may say which rank of the axis
    `MODEL` it is, whatever its share.
    """
    height = asked.grid.get(HEIGHT, 1)
    is_first = height <= 2 or (crowd == 1 and _has_more_rows(net, height))
    place = {HEIGHT: 0 if is_first else 1}
    place |= {axis: weights.index(max(weights)) for axis, weights in (asked.shares or {}).items()}
    for plan in plans_of(words_of(asked.plan, weighted(net))):
        if plan.bounding_rank is not None:
            place[MODEL] = plan.bounding_rank
    return GridDescription(asked.grid, place, ranks_per_node)


def _has_more_rows(net, ranks):
    """Whether the first of so many ranks along the axis height has more rows of the output of a layer than the second one.

    An even split gives the rows that are left over to the first ranks, one each. So it has more where a single one is left.
    """
    outputs = [shape for _, _, shape in shapes(net.layers, net.input_shape)] if net.input_shape else ()
    return any(shape[0] % ranks == 1 for shape in outputs if len(shape) == 3)  # of images
