"""Everything that is done with a parallel network is done with a pipeline in the same way."""

import json
from functools import partial

import numpy as np
import pytest

from gridgrad.datasets import Part
from gridgrad.experiments.common.scatter_readers import READERS
from gridgrad.nn import LOSSES, OPTIMIZERS, SGD, Context, Linear, Sequential
from gridgrad.nn.device import to_device
from gridgrad.nn.divergence import Diverged as SerialDiverged
from gridgrad.nn.sequence import leaves
from gridgrad.parallel import ProcessGrid, evaluate, parallelize, predict
from gridgrad.parallel.observe.span_observer import Profile
from gridgrad.parallel.observe.trace import Trace
from gridgrad.parallel.training.minibatch_readers import MicroBatchReader
from gridgrad.parallel.training.steps import Diverged
from tests.mpi import mpi
from tests.parallel.equality import assert_same, serial
from tests.parallel.pipelines import SHAPES, dense, images, minibatches, mlp, momentum, parts_of, piped, serial_net, train

GRIDS = {
    2: [{"stage": 2}],
    3: [{"stage": 3}],
    4: [{"stage": 2, "batch": 2}, {"stage": 2, "model": 2}],
    6: [{"stage": 3, "batch": 2}, {"stage": 2, "batch": 3}],
    8: [{"stage": 2, "batch": 2, "model": 2}, {"stage": 2, "height": 2, "batch": 2}],
}
PIPELINES = "1f1b", "interleaved:2", "zbv", "async:3"


def on_grids(comm, layers, **options):
    """Yields (grid, name of a pipeline, network)."""
    for sizes in GRIDS[comm.size]:
        for name in PIPELINES:
            with ProcessGrid(comm, **sizes) as grid:
                yield grid, name, parallelize(serial_net(layers), grid, pipeline=name, **options)


def samples(layers):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((29, *SHAPES[layers]))
    return Part(x, rng.integers(0, 3, 29).astype(np.uint8), np.zeros(()), np.ones(()), dtype=np.float64)


@mpi(2, 3, 4, 6, 8, long=(4, 6, 8))
def test_readers_evaluation_and_prediction(comm):
    part = samples(images)
    expected = serial_net(images).predict(part.inputs(np.arange(29), tuple(slice(0, n) for n in SHAPES[images])))
    right = 100 * float((expected.argmax(axis=1) == part.targets(np.arange(29))).mean())
    for _, name, net in on_grids(comm, images):
        indices = np.array([28, 0, 7, 9, 2, 2, 13, 5])
        found = [reader(net, part).load(indices) for reader in READERS.values()]
        for x, y in found[1:]:
            assert np.array_equal(x, found[0][0]) and np.array_equal(y, found[0][1]), name
        loss, optimizer = LOSSES["cross-entropy"](), SGD(net, 1e-9)
        for reader in READERS.values():
            outputs = predict(net, part, reader(net, part), batch_size=8)
            assert (outputs is None) == (comm.rank > 0) and (comm.rank or np.allclose(outputs, expected, rtol=1e-10))
            metrics = evaluate(net, part, "cross-entropy", reader(net, part), batch_size=7)
            assert metrics["accuracy"] == pytest.approx(right) and comm.bcast(metrics) == metrics
        for reader in READERS.values():
            trainer = net.trainer(loss, optimizer)  # training and evaluations in turn
            losses = trainer.step(MicroBatchReader(reader(net, part)).parts(indices, net.micro_batches), len(indices))
            assert len(losses + trainer.flush()) == 1
            assert np.isfinite(evaluate(net, part, "cross-entropy", reader(net, part), batch_size=7)["loss"])


@mpi(1, 2, 3, 4, long=(4,))
def test_the_script_interface_learns_as_the_serial_network(comm):
    """`learn`, `predict` and the state, of a network that was used before, with samples of another type."""
    for number, layers in enumerate((mlp, images)):
        batches = [(x.astype(np.float32), y) for x, y in minibatches(layers, (9, 5, 2))]
        for name, micro_batches in (("1f1b", 3), ("zbv", 2), ("async:2", 1)):
            used = serial_net(layers)
            used.learn(*batches[0], LOSSES["cross-entropy"](), momentum(used))
            with ProcessGrid(comm, stage=comm.size) as grid:
                net = parallelize(used, grid, pipeline=name, micro_batches=micro_batches)
                assert net.step == 1 and net.micro_batches == micro_batches
                optimizer, loss = momentum(net), LOSSES["cross-entropy"]()
                losses = [net.learn(x, y, loss, optimizer) for x, y in batches]
                found = losses, net.state_dict(everywhere=True)
                outputs, first = net.predict(batches[0][0]), net.state_dict()
                again = parallelize(serial_net(layers), grid, pipeline="gpipe")
                again.load_state_dict(first if comm.rank == 0 else None)
                restored = again.state_dict(everywhere=True)
            expected = serial(used, momentum, "cross-entropy", batches, micro_batches)
            assert_same(found, expected, 1e-10, (number, name))
            assert (first is None) == (outputs is None) == (comm.rank > 0)
            assert comm.rank or np.allclose(outputs, used.predict(batches[0][0]), rtol=1e-9)
            assert all(np.array_equal(restored[key], value) for key, value in found[1].items())


@mpi(2, 3)
def test_an_empty_first_chunk_sends_samples_in_the_type_of_the_network(comm):
    x = np.random.default_rng(0).integers(0, 9, (6, 7)).astype(np.uint8)
    y, cuts = np.arange(6) % 3, (0,) * (comm.size - 1)
    used = serial_net(mlp)
    used.learn(x, y, LOSSES["cross-entropy"](), momentum(used))
    with ProcessGrid(comm, stage=comm.size) as grid:
        net = parallelize(serial_net(mlp), grid, cuts=cuts)
        net.learn(x, y, LOSSES["cross-entropy"](), momentum(net))
        outputs = net.predict(x)
    assert comm.rank or np.allclose(outputs, used.predict(x), rtol=1e-10)


@mpi(2, 4, 6, 8, long=(6, 8))
def test_reductions_and_optimizers(comm, monkeypatch):
    batches = minibatches(dense, (11, 6, 5))
    adam = partial(OPTIMIZERS["adam"], lr=lambda step: 0.01 / (1 + step), eps=1e-3)
    for optimizer in (momentum, adam):
        expected = {m: serial(serial_net(dense), optimizer, "cross-entropy", batches, m) for m in (1, 3)}
        for sizes in GRIDS[comm.size]:
            if "height" in sizes:
                continue
            for number, reduction in enumerate(("plain", "overlap:1")):
                for update in ("whole", "sharded"):
                    monkeypatch.setenv("GRIDGRAD_RANKS_PER_NODE", str(comm.size if update == "sharded" else comm.size // 2))
                    name = ("1f1b", "zbv")[number]
                    for pipeline, micro_batches in ((name, 3), ("async:3:bound=0", 1)):
                        with ProcessGrid(comm, **sizes) as grid:
                            found = piped(dense, grid, batches, micro_batches, optimizer, pipeline=pipeline,
                                          reduction=reduction, update=update)  # fmt: skip
                        assert_same(found, expected[micro_batches], 1e-10, (sizes, reduction, update, pipeline))


@mpi(4, 6, long=(6,))
def test_asynchronous_training_does_not_depend_on_the_reduction(comm):
    batches = minibatches(dense, (11, 6, 5, 7, 4, 8))
    for sizes in GRIDS[comm.size]:
        for name in ("async:3", "async:3:nostash"):
            expected = None
            for reduction in ("plain", "overlap:1"):
                for update in ("whole", "sharded"):
                    with ProcessGrid(comm, **sizes) as grid:
                        found = piped(dense, grid, batches, pipeline=name, reduction=reduction, update=update)
                    expected = expected or found
                    assert_same(found, expected, 1e-10, (sizes, reduction, update, name))


@mpi(4)
def test_gradients_may_be_sent_in_float16(comm):
    batches = minibatches(mlp, (11, 6, 5))
    expected = serial(serial_net(mlp), momentum, "cross-entropy", batches, 3)
    for reduction in ("plain", "overlap:1"):
        with ProcessGrid(comm, stage=2, batch=2) as grid:
            found = piped(mlp, grid, batches, 3, reduction=reduction, reduce_dtype="float16")
        assert_same(found, expected, 1e-3, reduction)


@mpi(2, 4, long=(4,))
def test_traces_and_profiles_show_layers_and_messages(comm):
    batches = minibatches(dense, (9,) * 5)
    for sizes in GRIDS[comm.size]:
        for name in ("1f1b", "async:2", "zbv"):
            micro_batches, results = (1 if name == "async:2" else 3), []
            for watched in (False, True):
                with ProcessGrid(comm, **sizes) as grid:
                    net = parallelize(serial_net(dense), grid, pipeline=name)
                    if not watched:
                        results.append(train(net, batches, micro_batches))
                        continue
                    with Profile(net) as profile, Trace(net, steps=9) as trace:
                        results.append(train(net, batches, micro_batches))
                    found, rows = trace.timeline(), profile.rows(len(batches))
                    mine = {layer.name for chunk in net.chunks.values() for layer in chunk.executed}
                    held = comm.gather({leaf.name for chunk in net.chunks.values() for leaf in leaves(chunk.executed)})
            assert results[0][0] == results[1][0], name
            assert all(np.array_equal(results[1][1][key], value) for key, value in results[0][1].items())
            passes = [event.name.split() for event in trace.spans if event.category == "layer"]
            counts = comm.gather({layer: sum(e[0] == layer and e[2] == "forward" for e in passes) for layer in mine})
            assert (found is None) == (rows is None) == (comm.rank > 0)
            if comm.rank:
                continue
            json.dumps(found, allow_nan=False)
            assert {row["layer"] for row in rows} >= set.union(*held)
            for rank in range(comm.size):
                assert all(n and n % (len(batches) * micro_batches) == 0 for n in counts[rank].values()), (name, counts[rank])
                events = [e for e in found["traceEvents"] if e["ph"] == "X" and e["pid"] == rank]
                names = {e["name"].split()[0] for e in events if e["cat"] == "layer"}
                others = set.union(*(layers for layers in held if layers != held[rank]))
                assert held[rank] <= names and not (others - held[rank]) & names
                messages = [e for e in events if e["cat"] in ("collective", "begin") and e["name"].startswith("chunk ")]
                kinds = [e["name"].partition(",")[0].split()[-1] for e in messages]
                boundaries = 1 + (name == "zbv")  # in a V each rank sends to and receives from both chunks' neighbours
                assert kinds.count("send") == kinds.count("receive") == len(batches) * micro_batches * boundaries, (name, kinds)


@mpi(1, 2, 3, 4, long=(4,))
def test_all_ranks_diverge_together_and_nothing_is_left_behind(comm):
    (x, y), *_ = minibatches(mlp, (6,))
    for sizes in ({"stage": comm.size}, *GRIDS.get(comm.size, ())):
        for name in ("1f1b", "zbv", "async:1", "async:4", "async:4:nostash"):
            with ProcessGrid(comm, **sizes) as grid, np.errstate(all="ignore"):
                net = parallelize(serial_net(mlp), grid, pipeline=name)
                before, optimizer, loss = net.state_dict(), SGD(net, lr=1e200), LOSSES["mse"]()
                trainer, parts = net.trainer(loss, optimizer), parts_of(net, x, np.eye(3)[y], 1 if "async" in name else 3)
                with pytest.raises(Diverged) as caught:
                    for _ in range(20):
                        trainer.step(parts, 6)
                    trainer.flush()
                message = str(caught.value)
                assert message.startswith("step ") and "is not finite" in message and "\n" not in message
                assert comm.allgather(message) == [message] * comm.size
                assert isinstance(caught.value, SerialDiverged)
                executor = trainer.executor
                assert not executor.passes and executor.messages.is_empty
                net.load_state_dict(before)
                mine = SGD(net, 0.1)
                assert np.isfinite(net.learn(x, np.eye(3)[y], loss, mine))
                bad = np.full_like(x, np.nan)
                with pytest.raises(Diverged, match="out of the data"):
                    net.learn(bad, np.eye(3)[y], loss, mine)


# ----- messages


@mpi(2, 3, 4)
def test_messages_are_the_activations_of_the_boundaries(comm):
    """Forward and backward, once for each micro-batch."""
    widths, micro_batches, ((x, y),) = {2: 11, 4: 13, 6: 5}, 4, minibatches(mlp, (10,))
    for sizes in ({"stage": comm.size}, *GRIDS.get(comm.size, ())):
        if "model" in sizes:
            continue
        stages = sizes["stage"]
        for name in ("gpipe", "1f1b", "zb-h1", "interleaved:2"):
            chunks = stages * (1 + (name == "interleaved:2"))
            cuts = [2, 4, 6, 6, 6, 7, 7][: chunks - 1]
            with ProcessGrid(comm, **sizes) as grid:
                net = parallelize(serial_net(mlp), grid, pipeline=name, cuts=cuts)
                grid.tally.clear()
                train(net, [(x, y)], micro_batches)
                sent = {int(layer.split()[1]): found for (layer, kind), found in grid.tally.records.items() if kind == "send"}
                stage, batch, ranks = grid.coordinates["stage"], grid.coordinates["batch"], grid.sizes["batch"]
            expected = {}
            rows = sum(len(np.array_split(np.arange(n), ranks)[batch]) for n in (3, 3, 2, 2))
            for chunk, cut in enumerate(cuts, 1):
                ways = ((chunk - 1) % stages == stage) + (chunk % stages == stage)
                if ways and stages > 1:
                    expected[chunk] = (8 * rows * widths.get(cut, 3) * ways, micro_batches * ways)
            found = {chunk: (record.bytes, record.messages) for chunk, record in sent.items()}
            assert found == expected, (sizes, name)


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
        optimizer, loss = momentum(net), LOSSES["cross-entropy"]()
        for _ in range(3):
            net.learn(x, y, loss, optimizer)
            net.predict(x)
            messages.complete_sends()
            assert taken and sorted(taken) == sorted(given)
        assert sum(map(len, messages.free.values())) < len(taken) and not net.executor.passes


# ----- errors


@mpi(2, 3)
def test_single_passes_are_refused(comm):
    (x, y), *_ = minibatches(mlp, (6,))
    with ProcessGrid(comm, stage=comm.size) as grid:
        net, context = parallelize(serial_net(mlp), grid), Context()
        dy = to_device(np.zeros((6, 3)))
        with pytest.raises(ValueError, match="not by single passes"):
            net.forward(x[net.input_block(6)], context, 6)
        for refused in (
            lambda: net.backward(dy, context), lambda: net.input_gradients(dy, context),
            lambda: net.parameter_gradients(context),
        ):  # fmt: skip
            with pytest.raises(ValueError, match="no rank of a pipeline has all layers"):
                refused()
        with pytest.raises(ValueError, match="made for another network"):
            net.trainer(LOSSES["mse"](), momentum(Sequential([Linear(2, 2)])))
        assert np.isfinite(net.learn(x, y, LOSSES["cross-entropy"](), momentum(net)))
