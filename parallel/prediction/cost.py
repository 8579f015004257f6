"""The predicted cost of a training step: the work of one rank times what each operation takes on a machine."""

from functools import cached_property

from gridgrad.nn.sequence import shapes
from gridgrad.parallel.grid.process_grid import HEIGHT, MODEL, GridDescription
from gridgrad.parallel.placement.plan import weighted
from gridgrad.parallel.plans.place_network import place
from gridgrad.parallel.plans.plans import plans_of, words_of
from gridgrad.parallel.prediction.step_prediction import RankStep, StepPrediction
from gridgrad.parallel.prediction.workload import Workload


class Cost:
    """The works of one rank, usually the `slowest_rank`, in a training step with the reduction "plain", and what they cost.
    executed: the works in the order of execution. ValueError if plan, shares or owners do not fit."""

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
        """Seconds of a step whose gradient reductions are hidden behind backward: a lower bound for the reduction "overlap"."""
        sums = sum(self.seconds_of(work) for work in self.works if work.layer == "gradients")
        computed = [work for work in self.works if work.group is None and work.phase in ("backward", "gradients")]
        backward = sum(self.seconds_of(work) for work in computed)
        return self.seconds - min(sums, backward)

    @cached_property
    def parts(self):
        """{what: seconds}, as in StepPrediction."""
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
    """The shape of a rank's block of the activations with this Layout for a global minibatch, samples first."""
    return layout.of(batch_size).local_shape(grid.coordinates)


def cost_of_slowest_rank(net, asked, batch_size, machine):
    """The Cost of the rank with the most work. asked: a PlacementSpec with grid and plan."""
    grid = slowest_rank(net, asked, *machine.sharing)
    return Cost(net, grid, asked.plan, batch_size, machine, asked.shares, asked.owners)


def slowest_rank(net, asked, ranks_per_node=None, ranks_per_core=1):
    """The GridDescription of the rank with the most work, for which the others wait: the one with the largest share on every
    axis. A plan may name the rank of the axis model, whatever its share. asked: a PlacementSpec with grid and plan."""
    # On the axis height with even shards it is the first rank, where that has more rows of a layer than the second one: where
    # one row is left over. Else it is the second rank, if that has neighbours on both sides, because it exchanges two halos.
    # Where ranks share a core, more rows do not count: ranks that wait leave their cores to the one that has more to do.
    height = asked.grid.get(HEIGHT, 1)
    outputs = [shape for _, _, shape in shapes(net.layers, net.input_shape)] if net.input_shape else ()
    has_more_rows = any(shape[0] % height == 1 for shape in outputs if len(shape) == 3)
    is_first = height <= 2 or (ranks_per_core == 1 and has_more_rows)
    place = {HEIGHT: 0 if is_first else 1}
    place |= {axis: weights.index(max(weights)) for axis, weights in (asked.shares or {}).items()}
    for plan in plans_of(words_of(asked.plan, weighted(net))):
        if plan.bounding_rank is not None:
            place[MODEL] = plan.bounding_rank
    return GridDescription(asked.grid, place, ranks_per_node)
