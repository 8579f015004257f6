"""Pipelines on several ranks: what is sent, what is refused, and that all ranks end together, with nothing left behind.

That they train as the serial network does, with any schedule, grid and reduction, is in random_networks; the stages of a trace
are in observe.
"""

from tempfile import NamedTemporaryFile

import numpy as np
import pytest

from gridgrad.nn import LOSSES, MSE, SGD, Context, Linear, Residual, Sequential, SoftmaxCrossEntropy
from gridgrad.nn.device import to_device
from gridgrad.nn.divergence import Diverged as SerialDiverged
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.choose.shares import measured_shares
from gridgrad.parallel.pipeline.generators import complete, gpipe
from gridgrad.parallel.pipeline.schedule_names import to_csv
from gridgrad.parallel.plans.hypergraph import Owners
from gridgrad.parallel.prediction.machine import read
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from gridgrad.parallel.training.steps import Diverged
from tests.mpi import mpi
from tests.parallel.pipelines import images, minibatches, mlp, momentum, parts_of, serial_net, train

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


@mpi(2)
def test_a_message_takes_its_memory_from_a_pool(comm, monkeypatch):
    """All of it returns, however long messages are under way, so that later steps find it there."""
    (x, y), *_ = minibatches(images, (8,))
    with ProcessGrid(comm, stage=2) as grid:
        net = parallelize(serial_net(images), grid)
        messages, taken, given = net.executor.messages, [], []
        take, give_back = messages.take, messages.give_back
        monkeypatch.setattr(messages, "take", lambda size: taken.append(size) or take(size))
        monkeypatch.setattr(messages, "give_back", lambda array: given.append(array.size) or give_back(array))
        optimizer, loss = momentum(net), SoftmaxCrossEntropy()
        for _ in range(3):
            net.learn(x, y, loss, optimizer)
            net.predict(x)
            messages.complete_sends()
            assert taken and sorted(taken) == sorted(given)
        assert sum(map(len, messages.free.values())) < len(taken) and not net.executor.passes


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
def test_schedules_in_files_that_do_not_fit_are_refused(comm):
    """The errors of a schedule itself are tested with its reader."""
    text = to_csv(complete(gpipe(2, 3)))
    with ProcessGrid(comm, stage=2) as grid:
        for content, options, word in (
            (to_csv(gpipe(3, 3)), {}, "3 ranks, not 2"),
            (text, {"micro_batches": 4}, "3 micro-batches, not 4"),
            ("0F0,nonsense\n" + text.split("\n")[1], {}, "row 1, column 2"),
        ):
            with NamedTemporaryFile("w", suffix=".csv") as file:
                file.write(content)
                file.flush()
                with pytest.raises(ValueError, match=word) as caught:
                    parallelize(serial_net(mlp), grid, pipeline=file.name, **options)
                assert "\n" not in str(caught.value) and file.name in str(caught.value)


@mpi(2)
def test_what_only_networks_without_a_pipeline_can_do_is_refused(comm):
    (x, y), *_ = minibatches(mlp, (6,))
    machine, context, dy = read("cori-haswell"), Context(), to_device(np.zeros((6, 3)))
    with ProcessGrid(comm, stage=2) as grid:
        net = parallelize(serial_net(mlp), grid)
        for words, refused in (
            ("not by single passes", lambda: net.forward(x, context, 6)),
            ("no rank of a pipeline has all layers", lambda: net.backward(dy, context)),
            ("no rank of a pipeline has all layers", lambda: net.input_gradients(dy, context)),
            ("no rank of a pipeline has all layers", lambda: net.parameter_gradients(context)),
            ("made for another network", lambda: net.trainer(MSE(), momentum(Sequential([Linear(2, 2)])))),
            ("leave rebalancing out", lambda: net.adopt(None)),
            ("not chosen", lambda: measured_shares(serial_net(mlp), grid, PlacementSpec(plan="out"), 8, machine)),
            ("not chosen", lambda: parallelize(serial_net(mlp), grid, shares="auto", machine=machine)),
        ):
            with pytest.raises(ValueError, match=words) as caught:
                refused()
            assert "\n" not in str(caught.value)
        assert np.isfinite(net.learn(x, y, SoftmaxCrossEntropy(), momentum(net)))


@mpi(2)
def test_steps_under_way_forbid_what_needs_their_end(comm):
    (x, y), *_ = minibatches(mlp, (6,))
    with ProcessGrid(comm, stage=2) as grid:
        assert parallelize(serial_net(mlp), grid, pipeline="1f1b").steps_under_way == 1
        net = parallelize(serial_net(mlp), grid, pipeline="async:3")
        assert net.steps_under_way == 3
        optimizer, loss = momentum(net), SoftmaxCrossEntropy()
        trainer = net.trainer(loss, optimizer)
        assert trainer.flush() == [] and net.trainer(loss, optimizer) is trainer
        with pytest.raises(ValueError, match="leave the context out"):
            net.trainer(loss, optimizer, Context())
        assert trainer.step(parts_of(net, x, y), 6) == []
        for forbidden in (
            lambda: net.predict(x), net.state_dict, lambda: net.load_state_dict({}), lambda: net.trainer(loss, momentum(net)),
            lambda: net.learn(x, y, loss, optimizer),
        ):  # fmt: skip
            with pytest.raises(ValueError, match="under way"):
                forbidden()
        assert len(trainer.flush()) == 1 and trainer.flush() == []
        with pytest.raises(ValueError, match="in one piece"):
            trainer.step(parts_of(net, x, y, 2), 6)
        net.trainer(LOSSES["cross-entropy"](), optimizer)
        with pytest.raises(ValueError, match="no longer the newest"):
            trainer.step(parts_of(net, x, y), 6)


@mpi(2)
def test_what_a_partition_can_not_do_is_refused(comm):
    branched = Sequential([Linear(7, 6), Residual([Linear(6, 6)]), Linear(6, 3)], 0, np.float64, (7,))
    parts = {layer.name: np.arange(layer.outputs) % 2 for layer in branched.leaves() if layer.kind}
    for net, owners, options, word in (
        (serial_net(mlp), last_rank_alone(comm), {"pipeline": "zb-h1"}, "zb-h1"),
        (serial_net(mlp), last_rank_alone(comm), {"pipeline": "1f1b", "cuts": (3,)}, "cuts"),
        (branched, Owners(2, parts), {"pipeline": "1f1b"}, "branches"),
    ):
        with ProcessGrid(comm, model=2) as grid, pytest.raises(ValueError, match=word) as caught:
            parallelize(net, grid, "hypergraph", owners=owners, **options)
        assert "\n" not in str(caught.value)


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
