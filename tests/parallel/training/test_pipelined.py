"""Pipelines on several ranks: what is sent, what is refused, and that all ranks end together, with nothing left behind.

That they train as the serial network does, with any schedule, grid and reduction, is in random_networks; the stages of a trace
are in observe.
"""

import numpy as np
import pytest

from gridgrad.nn import MSE, SGD, Context, SoftmaxCrossEntropy
from gridgrad.nn.divergence import Diverged as SerialDiverged
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.grid.group import TAGS
from gridgrad.parallel.pipeline.schedule import Route
from gridgrad.parallel.plans.hypergraph import Owners
from gridgrad.parallel.training.messages import LEAST_TAGS, WAYS, Messages
from gridgrad.parallel.training.steps import Diverged
from tests.mpi import mpi
from tests.parallel.pipelines import minibatches, mlp, momentum, parts_of, serial_net, train

# ----- messages


@mpi(2, 4)
def test_messages_are_the_activations_of_the_boundaries(comm):
    """Forward and backward, once for each micro-batch."""
    widths, micro_batches, ((x, y),) = {2: 11, 4: 13, 6: 5}, 4, minibatches(mlp, (10,))
    for name, cuts in (("zb-h1", (2,)), ("interleaved:2", (2, 4, 6))):
        with ProcessGrid(comm, stage=2, batch=comm.size // 2) as grid:
            net = parallelize(serial_net(mlp), grid, pipeline=name, cuts=cuts)
            grid.tally.clear()
            train(net, [(x, y)], micro_batches)
            sent = {int(layer.split()[1]): found for (layer, kind), found in grid.tally.records.items() if kind == "send"}
            batch, ranks = grid.coordinates["batch"], grid.sizes["batch"]
        rows = sum(len(np.array_split(np.arange(n), ranks)[batch]) for n in (3, 3, 2, 2))
        expected = {chunk: (8 * rows * widths[cut], micro_batches) for chunk, cut in enumerate(cuts, 1)}
        assert {chunk: (record.bytes, record.messages) for chunk, record in sent.items()} == expected, name


def test_messages_have_tags_that_groups_do_not_use():
    crossing = Messages(None, Route.contiguous(3), 0, {}, np.float64)
    found = {crossing._tag(way, chunk, number) for way in WAYS for chunk in range(3) for number in range(20000)}
    assert min(found) == TAGS and max(found) < LEAST_TAGS and len(found) == 6 * crossing.numbers


# ----- numbers that are not finite


def last_rank_alone(comm):
    """The Owners of `mlp` that give most to the first rank, and the loss to the last one."""
    layers = [layer for layer in serial_net(mlp).leaves() if layer.kind]
    rows = {layer.name: np.maximum(np.arange(layer.outputs) - layer.outputs + comm.size, 0) for layer in layers}
    return Owners(comm.size, rows, loss=comm.size - 1)


@mpi(2, 3)
def test_all_ranks_diverge_together_name_the_cause_and_leave_nothing_behind(comm):
    """The rank with the loss is not the one with the input, and other steps have begun when the loss is known."""
    (x, y), *_ = minibatches(mlp, (6,))
    targets, partition = np.eye(3)[y], {"plan": "hypergraph", "owners": last_rank_alone(comm)}
    ways = [("stage", {"pipeline": name}) for name in ("zbv", "async:3:nostash")]
    ways += [("model", partition | {"pipeline": name}) for name in ("gpipe", "async:3")]
    for axis, options in ways:
        with ProcessGrid(comm, **{axis: comm.size}) as grid, np.errstate(all="ignore"):
            net = parallelize(serial_net(mlp), grid, **options)
            before, parts = net.state_dict(), 1 if "async" in options["pipeline"] else 3
            for word, factors in (("the input", (np.nan, 1)), ("the targets", (1, np.nan))):
                trainer = net.trainer(MSE(), SGD(net, 0.01))
                found = diverged(trainer, [parts_of(net, x, targets, parts)] * 3
                                 + [parts_of(net, x * factors[0], targets * factors[1], parts)] * 5)  # fmt: skip
                assert comm.allgather(found) == [found] * comm.size
                step, words = found.split(": ", 1)
                assert step.startswith("step ") and words.startswith(f"the loss is nan: first not finite: {word};"), options
                net.load_state_dict(before)
            trainer = net.trainer(MSE(), SGD(net, 1e200))
            found = diverged(trainer, [parts_of(net, x, targets, parts)] * 9)
            assert comm.allgather(found) == [found] * comm.size and "is not finite" in found, options
            assert trainer.flush() == [] and not trainer.executor.passes and trainer.executor.messages.is_empty
            net.load_state_dict(before)
            assert np.isfinite(net.learn(x, targets, MSE(), SGD(net, 0.01)))


def diverged(trainer, minibatches):
    """In what words training with these minibatches, of 6 samples each, ends."""
    with pytest.raises(Diverged) as caught:
        for parts in minibatches:
            trainer.step(parts, 6)
        trainer.flush()
    assert isinstance(caught.value, SerialDiverged) and "\n" not in str(caught.value)
    return str(caught.value)


# ----- what is refused


@mpi(2)
def test_what_only_networks_without_a_pipeline_can_do_is_refused(comm):
    (x, _), *_ = minibatches(mlp, (6,))
    with ProcessGrid(comm, stage=2) as grid:
        net = parallelize(serial_net(mlp), grid)
        for words, refused in (
            ("not by single passes", lambda: net.forward(x, Context(), 6)),
            ("no rank of a pipeline has all layers", lambda: net.backward(np.zeros((6, 3)), Context())),
            ("leave rebalancing out", lambda: net.adopt(None)),
        ):
            with pytest.raises(ValueError, match=words) as caught:
                refused()
            assert "\n" not in str(caught.value)


@mpi(2)
def test_steps_under_way_forbid_what_needs_their_end(comm):
    (x, y), *_ = minibatches(mlp, (6,))
    with ProcessGrid(comm, stage=2) as grid:
        net = parallelize(serial_net(mlp), grid, pipeline="async:3")
        assert net.steps_under_way == 3
        optimizer, loss = momentum(net), SoftmaxCrossEntropy()
        trainer = net.trainer(loss, optimizer)
        assert trainer.flush() == [] and net.trainer(loss, optimizer) is trainer
        assert trainer.step(parts_of(net, x, y), 6) == []
        for forbidden in (
            lambda: net.predict(x),
            net.state_dict,
            lambda: net.load_state_dict({}),
            lambda: net.learn(x, y, loss, optimizer),
        ):
            with pytest.raises(ValueError, match="under way"):
                forbidden()
        assert len(trainer.flush()) == 1 and trainer.flush() == []
        with pytest.raises(ValueError, match="in one piece"):
            trainer.step(parts_of(net, x, y, 2), 6)


@mpi(2)
def test_what_was_interrupted_is_not_trained_any_more(comm):
    (x, y), *_ = minibatches(mlp, (6,))
    with ProcessGrid(comm, model=2) as grid:
        net = parallelize(serial_net(mlp), grid, "hypergraph", pipeline="async:2", owners=last_rank_alone(comm))
        trainer = net.trainer(SoftmaxCrossEntropy(), momentum(net))
        net.chunks[0].forward = None
        with pytest.raises(TypeError):
            trainer.step(parts_of(net, x, y), 6)
        for again in (trainer.flush, lambda: net.predict(x)):
            with pytest.raises(ValueError, match="make the network anew"):
                again()
