"""Asynchronous pipelines: each gradient is of the weights that the schedule says, as a serial network computes it here."""

from itertools import islice

import numpy as np
import pytest

from gridgrad.nn import LOSSES, SGD, Context
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.grid.process_grid import STAGE
from gridgrad.parallel.pipeline.generators import asynchronous, complete, stream
from gridgrad.parallel.pipeline.schedule import Route
from gridgrad.parallel.pipeline.simulate import simulate
from tests.mpi import mpi
from tests.parallel.equality import assert_same, grids, on_first, serial
from tests.parallel.pipelines import dense, images, minibatches, mlp, momentum, parts_of, piped, serial_net, train

RATE, MOMENTUM = 0.05, 0.9
SIZES = 7, 3, 8, 5, 1, 6, 4, 9
FLUSHES = (8,), (1, 2, 5)  # after so many steps, again and again


class Recorder(SGD):
    """Keeps the gradients of this rank at each update."""

    def __init__(self, net):
        super().__init__(net, RATE, MOMENTUM)
        self.seen = []

    def step(self):
        self.seen.append({f"{layer.name}.{p.name}": p.grad.copy() for layer, p in self.net.parameters if p.size})
        super().step()


def versions(stages, in_flight, bound, steps):
    """Of each stage and step: (updates before its forward, updates before its backward), in the endless schedule."""
    found = [{} for _ in range(stages)]
    updates, last = [0] * stages, 0
    for rank, one in islice(stream(Route.contiguous(stages), in_flight, bound), 40 * stages * (steps + in_flight)):
        if one.op == "U":
            updates[rank] += one.micro_batch < steps
            last += one.micro_batch == steps - 1
        elif one.micro_batch < steps:
            found[rank].setdefault(one.micro_batch, []).append(updates[rank])
    assert last == stages
    return found


def emulated(layers, stage_of, batches, flushes, in_flight, bound, stash):
    """(losses, state, gradients of each step, Counter-like staleness of each stage) by one serial network.

    stage_of: {name of a parameter: its stage}. flushes: numbers of steps.
    """
    net, loss, context = serial_net(layers), LOSSES["cross-entropy"](), Context()
    values = {f"{layer.name}.{p.name}": p for layer, p in net.parameters}
    velocity = {name: np.zeros(p.shape) for name, p in values.items()}
    losses, gradients, stages = [], [], 1 + max(stage_of.values())
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
            gradients.append({name: p.grad.copy() for name, p in values.items()})
            newest = {}
            for name in values:
                velocity[name] = MOMENTUM * velocity[name] + gradients[-1][name]
                newest[name] = history[-1][name] - RATE * velocity[name]
            history.append(newest)
            use([len(history) - 1] * stages)
            net.step += 1
    return losses, net.state_dict(), gradients, staleness


def trained(layers, grid, batches, flushes, pipeline):
    """(losses, state, gradients that this rank saw, staleness, {name of a parameter: its stage}) of a pipeline."""
    net = parallelize(serial_net(layers), grid, pipeline=pipeline)
    optimizer = Recorder(net)
    trainer, losses, batches = net.trainer(LOSSES["cross-entropy"](), optimizer), [], iter(batches)
    for steps in flushes:
        begun = len(losses)
        for step, (x, y) in enumerate(islice(batches, steps), 1):
            losses += trainer.step(parts_of(net, x, y), len(x))
            assert len(losses) - begun >= step - net.named.in_flight
        losses += trainer.flush()
        assert len(losses) - begun == steps
    assert not trainer.executor.micro_batches and not trainer.executor.passes and not trainer.executor.losses
    held = {f"{layer.name}.{p.name}": grid.coordinates[STAGE] for layer, p in net.parameters if p.size}
    stage_of = {name: stage for found in grid.comm.allgather(held) for name, stage in found.items()}
    assert net.step == trainer.executor.updates == len(optimizer.seen) == sum(flushes)
    return losses, net.state_dict(everywhere=True), optimizer.seen, trainer.staleness, stage_of


@mpi(1, 2, 3, 4, 5, long=(4, 5))
def test_gradients_are_of_the_weights_of_the_schedule(comm):
    for stash in (True, False):
        for layers in (dense, images) if stash else (dense,):
            for number, in_flight in enumerate(range(1, comm.size + 3)):
                bound = (None, 1, 2, None)[number % 4]
                name = f"async:{in_flight}" + ("" if bound is None else f":bound={bound}") + ("" if stash else ":nostash")
                flushes, batches = FLUSHES[number % 2], minibatches(layers, SIZES)
                with ProcessGrid(comm, stage=comm.size) as grid:
                    losses, state, seen, staleness, stage_of = trained(layers, grid, batches, flushes, name)
                expected = on_first(comm, emulated, layers, stage_of, batches, flushes, in_flight, bound, stash)
                assert_same((losses, state), expected[:2], 1e-10, name)
                for step, gradients in enumerate(seen):
                    for key, value in gradients.items():
                        assert np.allclose(value, expected[2][step][key], rtol=1e-10, atol=1e-12), (name, step, key)
                assert sorted(staleness.elements()) == sorted(expected[3][comm.rank]), name
                assert max(staleness) <= min(in_flight - 1, in_flight if bound is None else bound)
                assert (comm.allreduce(max(staleness)) > 0) == (comm.size > 1 < in_flight), name


@mpi(2, 3, 4)
def test_without_stashing_gradients_differ(comm):
    batches = minibatches(mlp, SIZES)
    with ProcessGrid(comm, stage=comm.size) as grid:
        (_, kept), (_, newest) = (piped(mlp, grid, batches, pipeline=f"async:4{which}") for which in ("", ":nostash"))
    assert max(np.abs(kept[name] - newest[name]).max() for name in kept) > 1e-6


@mpi(1, 2, 3, 4, long=(4,))
def test_one_at_a_time_is_stochastic_gradient_descent(comm):
    for layers in (mlp, dense, images):
        batches = minibatches(layers, SIZES[:4])
        expected = serial(serial_net(layers), momentum, "cross-entropy", batches)
        for name in ("async:1", "async:1:nostash", "async:5:bound=0", "async:3:bound=0:nostash"):
            with ProcessGrid(comm, stage=comm.size) as grid:
                assert_same(piped(layers, grid, batches, pipeline=name), expected, 1e-10, name)


@mpi(4, 6, 8, long=(6, 8))
def test_other_axes_change_nothing(comm):
    """On grids with other axes too, all of which have the same stages, results equal the emulated ones."""
    batches, flushes = minibatches(images, SIZES), (3, 5)
    for sizes in grids(comm.size, ("stage", "batch", "height", "model")):
        if not 1 < sizes["stage"] < comm.size:
            continue
        for stash in (True, False):
            name = "async:3" if stash else "async:3:nostash"
            with ProcessGrid(comm, **sizes) as grid:
                losses, state, _, _, stage_of = trained(images, grid, batches, flushes, name)
            expected = on_first(comm, emulated, images, stage_of, batches, flushes, 3, None, stash)
            assert_same((losses, state), expected[:2], 1e-10, (sizes, name))


@mpi(1, 2, 3)
def test_as_much_is_kept_as_was_said(comm):
    batches = minibatches(mlp, SIZES)
    simulated = simulate(complete(asynchronous(Route.contiguous(comm.size), 3, len(SIZES)))).kept[comm.rank]
    for name, versions in (("async:3", simulated.versions[comm.rank]), ("async:3:nostash", 1)):
        with ProcessGrid(comm, stage=comm.size) as grid:
            net = parallelize(serial_net(mlp), grid, pipeline=name)
            train(net, batches)
            assert net.kept_at_most() == (3, 1 if "nostash" in name else 3)
            assert (net.executor.open_at_most, net.executor.versions_at_most) == (simulated.of_chunk, versions), name
    with ProcessGrid(comm, stage=comm.size) as grid:
        net = parallelize(serial_net(mlp), grid, pipeline="1f1b", micro_batches=4)
        assert net.kept_at_most() == (comm.size - comm.rank, 1)


@mpi(2, 3)
def test_what_steps_under_way_forbid(comm):
    (x, y), *_ = minibatches(mlp, (6,))
    for sizes, pipeline in (({"batch": comm.size}, None), ({"stage": comm.size}, "1f1b")):
        with ProcessGrid(comm, **sizes) as grid:
            assert parallelize(serial_net(mlp), grid, pipeline=pipeline).steps_under_way == 1
    with ProcessGrid(comm, stage=comm.size) as grid:
        net = parallelize(serial_net(mlp), grid, pipeline="async:3")
        assert net.steps_under_way == 3
        optimizer, loss = momentum(net), LOSSES["cross-entropy"]()
        trainer = net.trainer(loss, optimizer)
        assert trainer.flush() == [] and net.trainer(loss, optimizer) is trainer
        assert trainer.step(parts_of(net, x, y), 6) == []
        for forbidden in (
            lambda: net.predict(x), net.state_dict, lambda: net.load_state_dict({}), lambda: net.trainer(loss, momentum(net)),
        ):  # fmt: skip
            with pytest.raises(ValueError, match="under way: call flush"):
                forbidden()
        assert len(trainer.flush()) == 1
        net.predict(x)
        assert trainer.flush() == []
        with pytest.raises(ValueError, match="in one piece"):
            trainer.step(parts_of(net, x, y, 2), 6)
        assert np.isfinite(net.learn(x, y, loss, optimizer)) and net.step == 2
