"""Asynchronous pipelines: each gradient is of the weights that the schedule says, as a serial network computes it here."""

from itertools import islice

import numpy as np

from gridgrad.nn import LOSSES, SGD, Context
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.grid.process_grid import STAGE
from gridgrad.parallel.pipeline import schedule_names
from gridgrad.parallel.pipeline.generators import stream
from gridgrad.parallel.pipeline.schedule import Route
from tests.mpi import mpi
from tests.parallel.equality import assert_same, on_first
from tests.parallel.pipelines import dense, images, minibatches, parts_of, serial_net

RATE, MOMENTUM = 0.05, 0.9
SIZES = 7, 3, 8, 5, 1, 6, 4, 9
FLUSHES = (8,), (1, 2, 5)  # after so many steps, again and again


def versions(stages, in_flight, bound, steps):
    """Of each stage and step: (updates before its forward, updates before its backward), in the endless schedule."""
    found = [{} for _ in range(stages)]
    updates = [0] * stages
    for rank, one in islice(stream(Route.contiguous(stages), in_flight, bound), 40 * stages * (steps + in_flight)):
        if one.op == "U":
            updates[rank] += one.micro_batch < steps
        elif one.micro_batch < steps:
            found[rank].setdefault(one.micro_batch, []).append(updates[rank])
    return found


def emulated(layers, stage_of, batches, flushes, in_flight, bound, stash):
    """(losses, state, staleness of each step on each stage) by one serial network.

    stage_of: {name of a parameter: its stage}. flushes: numbers of steps.
    """
    net, loss, context = serial_net(layers), LOSSES["cross-entropy"](), Context()
    values = {f"{layer.name}.{p.name}": p for layer, p in net.parameters}
    velocity = {name: np.zeros(p.shape) for name, p in values.items()}
    losses, stages = [], 1 + max(stage_of.values())
    staleness = [[] for _ in range(stages)]
    batches = iter(batches)
    for steps in flushes:
        history = [{name: p.value.copy() for name, p in values.items()}]  # by number of updates

        def use(which, history=history):
            for name, p in values.items():
                p.value[...] = history[which[stage_of[name]]][name]

        found = versions(stages, in_flight, bound, steps)
        for step, (x, y) in enumerate(islice(batches, steps)):
            forward, backward = zip(*(of[step] for of in found), strict=True)
            for stage in range(stages):
                staleness[stage].append(backward[stage] - forward[stage])
            use(forward)
            losses.append(loss.forward(net.forward(x, context), y, context))
            use(forward if stash else backward)
            net.backward(loss.backward(context), context)
            newest = {}
            for name, p in values.items():
                velocity[name] = MOMENTUM * velocity[name] + p.grad
                newest[name] = history[-1][name] - RATE * velocity[name]
            history.append(newest)
            use([len(history) - 1] * stages)
            net.step += 1
    return losses, net.state_dict(), staleness


def trained(layers, grid, batches, flushes, pipeline):
    """(losses, state, staleness, {name of a parameter: its stage}) of a pipeline."""
    net = parallelize(serial_net(layers), grid, pipeline=pipeline)
    optimizer = SGD(net, RATE, MOMENTUM)
    trainer, losses, batches = net.trainer(LOSSES["cross-entropy"](), optimizer), [], iter(batches)
    for steps in flushes:
        for x, y in islice(batches, steps):
            losses += trainer.step(parts_of(net, x, y), len(x))
        losses += trainer.flush()
    assert not trainer.executor.micro_batches and not trainer.executor.passes and not trainer.executor.losses
    held = {f"{layer.name}.{p.name}": grid.coordinates[STAGE] for layer, p in net.parameters if p.size}
    stage_of = {name: stage for found in grid.comm.allgather(held) for name, stage in found.items()}
    assert net.step == trainer.executor.updates == sum(flushes)
    under_way, versions = net.kept_at_most()
    assert max(trainer.executor.open_at_most.values()) <= under_way and trainer.executor.versions_at_most <= versions
    return losses, net.state_dict(everywhere=True), trainer.staleness, stage_of


@mpi(1, 2, 3, 4)
def test_gradients_are_of_the_weights_of_the_schedule(comm):
    """On four ranks beside another axis."""
    stages = 2 if comm.size == 4 else comm.size
    for layers, name in ((dense, "async:3"), (dense, "async:3:bound=1"), (images, "async:4:nostash")):
        named = schedule_names.parse(name)
        flushes, batches = FLUSHES["bound" in name], minibatches(layers, SIZES)
        with ProcessGrid(comm, stage=stages, batch=comm.size // stages) as grid:
            losses, state, staleness, stage_of = trained(layers, grid, batches, flushes, name)
            place = grid.coordinates[STAGE]
        arguments = layers, stage_of, batches, flushes, named.in_flight, named.bound, named.stash
        expected = on_first(comm, emulated, *arguments)
        assert_same((losses, state), expected[:2], 1e-10, name)
        assert sorted(staleness.elements()) == sorted(expected[2][place]), name
        assert (comm.allreduce(max(staleness)) > 0) == (comm.size > 1), name
