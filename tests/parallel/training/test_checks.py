"""Bad input is refused on every rank with the message of the serial network, and no rank waits for another."""

import numpy as np
import pytest

from gridgrad.datasets import Part
from gridgrad.experiments.common.scatter_readers import READERS
from gridgrad.nn import (
    LOSSES,
    MSE,
    SGD,
    BatchNorm,
    Concat,
    Context,
    Conv2d,
    Diverged,
    Flatten,
    Linear,
    MaxPool2d,
    ReLU,
    Residual,
    Sequential,
    SoftmaxCrossEntropy,
    Tanh,
)
from gridgrad.nn.device import to_device, to_host
from gridgrad.parallel import Partition, ProcessGrid, parallelize, train_step
from gridgrad.parallel.choose import parallelize as choosing
from gridgrad.parallel.grid.process_grid import LAYER_AXES
from gridgrad.parallel.plans.hypergraph import Owners
from tests.bad_minibatches import CONVERTED, LABELS, REFUSED, TARGETS, X, dense, images
from tests.mpi import mpi
from tests.parallel.equality import RANKS, grids, on_cpus
from tests.parallel.pipelines import parts_of


def message(kind, action, *arguments, **options):
    """What an action that must fail says."""
    try:
        with np.errstate(all="ignore"):
            action(*arguments, **options)
    except kind as error:
        assert "\n" not in str(error)
        return str(error)
    raise AssertionError(f"not refused: {arguments} {options}")


def agreed(comm, word):
    assert comm.allgather(word) == [word] * comm.size
    return word


@mpi(2, 3, 5, 8, long=(5, 8))
def test_a_minibatch_that_does_not_fit_is_refused_in_the_serial_words(comm):
    for make, loss, x, y, words in REFUSED:
        net = make()
        serial = message(ValueError, net.learn, x, y, loss(), SGD(net, 0.1))
        assert words in serial
        for sizes in grids(comm.size, ("batch", "height", "model") if make is images else ("batch", "model")):
            with ProcessGrid(comm, **sizes) as grid:
                net = parallelize(make(), grid)
                optimizer = SGD(net, 0.1)
                assert agreed(comm, message(ValueError, net.learn, x, y, loss(), optimizer)) == serial, (sizes, words)
                net.trainer(loss(), optimizer)
                assert agreed(comm, message(ValueError, net.blocks, x, y)) == serial, (sizes, words)


@mpi(2, 3, 5, 8, long=(5, 8))
def test_what_is_plainly_meant_is_converted_as_on_one_rank(comm):
    for make, loss, x, y, *_ in CONVERTED:
        net = make()
        optimizer = SGD(net, 0.1)
        expected = [net.learn(x, y, loss(), optimizer) for _ in range(3)]
        for sizes in grids(comm.size):
            with ProcessGrid(comm, **sizes) as grid:
                net = parallelize(make(), grid)
                optimizer = SGD(net, 0.1)
                losses = [net.learn(x, y, loss(), optimizer) for _ in range(3)]
                assert np.allclose(losses, expected, rtol=1e-12, atol=0), (sizes, losses, expected)


@mpi(2, 3)
def test_what_is_not_finite_is_named_as_on_one_rank(comm):
    x = X.copy()
    x[4, 9] = np.nan
    for spoil in (lambda net: x, lambda net: net.params.fill(np.inf) or X):
        net = dense()
        serial = message(Diverged, net.learn, spoil(net), LABELS, SoftmaxCrossEntropy(), SGD(net, 0.1))
        for sizes in grids(comm.size):
            with ProcessGrid(comm, **sizes) as grid:
                net = parallelize(dense(), grid)
                words = message(Diverged, net.learn, spoil(net), LABELS, SoftmaxCrossEntropy(), SGD(net, 0.1))
                assert agreed(comm, words) == serial, (sizes, words, serial)


@mpi(2, 3)
def test_pipelines_name_the_input_and_the_targets_too(comm):
    """The rank with the loss is not the one with the input, and other steps have begun when the loss is known."""
    layers = [layer for layer in dense().leaves() if layer.kind]
    owners = Owners(comm.size, {layer.name: np.arange(layer.outputs) % comm.size for layer in layers})
    ways = [({"stage": comm.size}, None, name) for name in ("1f1b", "zbv", "async:1", "async:3", "async:3:nostash")]
    ways += [({"model": comm.size}, "hypergraph", name) for name in ("1f1b", "gpipe", "async:1", "async:3")]
    for sizes, plan, pipeline in ways:
        for place, words in enumerate(("the input", "the targets")):
            with ProcessGrid(comm, **sizes) as grid:
                options = {"owners": owners} if plan else {}
                net = parallelize(dense(), grid, plan, pipeline=pipeline, **options)
                trainer = net.trainer(MSE(), SGD(net, 0.1))

                def train(place=place, net=net, trainer=trainer):
                    for step in range(8):
                        data = X.copy(), TARGETS.copy()
                        data[place][4] = np.nan if step == 3 else data[place][4]
                        trainer.step(parts_of(net, *data, 1 if "async" in net.pipeline else 3), 6)
                    trainer.flush()

                found = agreed(comm, message(Diverged, train))
                expected = f"step 3: the loss is nan: first not finite: {words}; take NaN and infinity out of the data"
                assert found == expected, (sizes, pipeline, found)


@mpi(2)
def test_an_optimizer_of_another_network_is_refused(comm):
    with ProcessGrid(comm, batch=2) as grid:
        serial = dense()
        early, net = SGD(serial, 0.1), parallelize(serial, grid)
        words = message(ValueError, net.learn, X, LABELS, SoftmaxCrossEntropy(), early)
        assert "was made for another network" in words
        block = X[net.input_block(6)], LABELS[net.output_rows(6)]
        assert message(ValueError, train_step, net, SoftmaxCrossEntropy(), early, *block, 6) == words
        train_step(net, SoftmaxCrossEntropy(), SGD(net, 0.1), *block, 6)


@mpi(2)
def test_what_parallelize_can_not_take_is_refused(comm):
    with ProcessGrid(comm, batch=2) as grid:
        net = parallelize(dense(), grid)
        layers = [Linear(3, 2)]
        for arguments, options, words in (
            ((net, grid), {}, "parallel already"),
            ((layers, grid), {}, "parallelize takes a Sequential, not a list"),
            ((layers[0], grid), {}, "parallelize takes a Sequential, not a Linear"),
            ((dense(), None), {}, "the grid must be a ProcessGrid"),
            ((dense(), 2), {}, "the grid must be a ProcessGrid"),
            ((dense(), None), {"plan": "auto"}, "the grid must be a ProcessGrid"),
            ((dense(), {"batch": 2, "depth": 1}), {}, "unknown axes depth"),
            ((dense(), {"batch": -2, "model": -1}), {}, "must be a whole number of at least 1"),
            ((dense(), {"batch": 3}), {}, "3 places but the number of ranks is 2"),
            ((dense(), grid), {"reduction": None}, "there is no reduction 'None': use plain"),
            ((dense(), grid), {"reduction": 7}, "there is no reduction '7': use plain"),
            ((dense(), grid), {"plan": 7}, "the plan must be a text"),
            ((dense(), grid), {"plan": []}, "the plan must be a text"),
            ((dense(), grid), {"plan": ["out", 1]}, "the plan must be a text"),
            ((dense(), grid), {"plan": ["out", "sideways"]}, "unknown choice 'sideways'"),
        ):
            assert words in agreed(comm, message(ValueError, parallelize, *arguments, **options)), words
    for sizes in ({"batch": -2, "model": -1}, {"batch": 2.0}, {"batch": "2"}, {"batch": 2, "model": 0}):
        assert "must be a whole number of at least 1" in message(ValueError, ProcessGrid, comm, **sizes)


@mpi(2)
def test_what_is_plainly_meant_is_taken(comm):
    n = np.int64
    with ProcessGrid(comm, batch=n(1), model=np.int32(2)) as grid:
        assert parallelize(dense(), grid, plan=["out", "in"]).plan == ["out", "in"]
    net = parallelize(dense(), {"batch": n(2)}, plan=("replicate", "replicate"))
    assert net.grid.sizes["batch"] == 2 and net.plan == ["replicate", "replicate"]
    net.grid.free()
    serial = Sequential([Conv2d(n(1), n(2), n(3)), Flatten(), Linear(n(2), n(4))], input_shape=(n(3), n(3), n(1)))
    net = parallelize(serial, "height=2")
    net.learn(np.ones((6, 3, 3, 1)), LABELS, SoftmaxCrossEntropy(), SGD(net, 0.1))
    net.grid.free()


def branching():
    inner = Concat([Linear(7, 5)], [Tanh(), Linear(7, 4)])
    return Sequential([Residual([Linear(7, 9), ReLU(), Linear(9, 7)]), inner, BatchNorm(9), Linear(9, 3)], dtype=np.float64)


INPUT_GRADIENTS = [  # network, shape of a sample, plans
    (lambda: Sequential([Linear(7, 5), ReLU(), Linear(5, 3)], dtype=np.float64), (7,),
     ("out", "in", "replicate", "out,in", "in,out", "replicate,out", "redundant", "redundant,out", "laugier")),
    (lambda: Sequential([Tanh(), BatchNorm(7), Linear(7, 5)], dtype=np.float64), (7,), ("out", "in", "replicate", "redundant")),
    (branching, (7,), ("out", "in", "replicate", "redundant", "fewest-bytes")),
    (lambda: Sequential([Conv2d(2, 3, 3, padding=1), ReLU(), MaxPool2d(2), Flatten(), Linear(18, 3)], dtype=np.float64,
                        input_shape=(6, 4, 2)), (6, 4, 2),
     ("out", "in", "replicate", "conv=out,linear=in", "conv=replicate,linear=out", "conv=redundant,linear=in",
      "laugier")),
]  # fmt: skip


@mpi(2, 3, 4, 5, 6, 7, 8, long=(5, 6, 7, 8))
def test_each_rank_gets_the_whole_gradient_of_its_input_block(comm):
    for make, shape, plans in INPUT_GRADIENTS:
        serial = make()
        x = np.random.default_rng(0).standard_normal((6, *shape))
        y = np.random.default_rng(1).standard_normal((6, 5 if serial.output_shape(shape) == (5,) else 3))
        loss, context = MSE(), Context()
        loss.forward(serial.forward(to_device(x), context), to_device(y), context)
        expected = to_host(serial.backward(loss.backward(context), context, input_gradient=True)).copy()
        gradients = to_host(serial.grads).copy()
        for sizes in grids(comm.size, ("batch", "height", "model") if len(shape) == 3 else ("batch", "model")):
            for plan in plans:
                with ProcessGrid(comm, **sizes) as grid:
                    net = parallelize(make(), grid, plan)
                    loss, mine = LOSSES["mse"](), np.ascontiguousarray(x[net.input_block(6)])
                    context = Context()
                    outputs = net.forward(to_device(mine), context, batch_size=6)
                    loss.forward(outputs, to_device(y[net.output_rows(6)]), context)
                    dx = to_host(net.backward(loss.backward(context), context, input_gradient=True)).copy()
                    net.reduction.finish()
                    scale = np.abs(expected).max()
                    assert dx.shape == mine.shape, (sizes, plan)
                    assert np.allclose(dx, expected[net.input_block(6)], rtol=0, atol=1e-12 * scale), (sizes, plan)
                    if sizes["model"] == 1 and sizes.get("height", 1) == 1:
                        assert np.allclose(to_host(net.grads), gradients, rtol=0, atol=1e-12 * np.abs(gradients).max())


def refused(**options):
    with pytest.raises(ValueError) as caught:
        parallelize(Sequential([Linear(6, 8), ReLU(), Linear(8, 4)], input_shape=(6,)), **options)
    return str(caught.value)


@mpi(3)
def test_shares_and_owners_that_do_not_fit_are_refused_in_one_sentence(comm):
    plans = None, "hypergraph", *["auto"] * on_cpus(comm)  # before a partition is searched, or the machine measured
    with ProcessGrid(comm, model=3) as grid:
        for shares in ([1, 1, 1], "3,2", {"model": 3}, {"model": ("a",) * 3}, {"model": (1e308,) * 3}, {"model": (0, 0, 0)},
                       {"model": (1, 2)}, {"depth": (1, 2, 3)}, {"model": (1, float("nan"), 1)}):  # fmt: skip
            for plan in plans:
                assert refused(grid=grid, plan=plan, shares=shares).startswith("shares"), (plan, shares)
        for owners in ({"0": Partition.of(8, [slice(0, 8)] * 3)}, {"0": Partition.of(8, [slice(0, 1)] * 3)}, {"0": [0] * 7},
                       {"0": [3] * 8}, {"0": "model"}, {"7": [0] * 8}, {"0": Partition.even(8, 2)}):  # fmt: skip
            assert refused(grid=grid, plan="out", owners=owners).startswith("owners"), owners
        net = parallelize(
            Sequential([Linear(6, 8), Linear(8, 4)], input_shape=(6,)), grid, "out", owners={"0": [2] * 5 + [0] * 3}
        )
        assert [net.layers[0].parameters[0].layout.block({"batch": 0, "height": 0, "model": r})[1] for r in range(3)] == [
            slice(5, 8), slice(0, 0), slice(0, 5)
        ]  # fmt: skip


@mpi(2)
def test_no_shares_are_equal_shares_in_every_plan(comm, monkeypatch):
    speeds = []

    def half(plan, net, ranks, speed=None):
        speeds.append(speed)
        return Owners(2, {layer.name: np.arange(layer.outputs) % 2 for layer in net.leaves() if layer.kind})

    monkeypatch.setattr(choosing, "owners_of_plan", half)
    with ProcessGrid(comm, model=2) as grid:
        for plan in ("hypergraph", "out"):
            nets = [parallelize(dense(), grid, plan, shares=shares) for shares in (None, {}, {"batch": (1,)})]
            assert all(repr(net.layers) == repr(nets[0].layers) for net in nets)
    assert speeds == [None] * (3 if comm.rank == 0 else 0)


@mpi(*RANKS, long=(5, 6, 7, 8))
def test_the_whole_input_is_predicted_as_on_one_rank(comm):
    """With the plan "replicate", `model` divides the samples before `height` and `width` do, so the blocks of consecutive ranks
    are not consecutive samples."""
    for make, shape, axes, plan in ((dense, (16,), ("batch", "model"), None), (images, (6, 5, 2), LAYER_AXES, "replicate")):
        serial = make()
        x = np.random.default_rng(3).standard_normal((7, *shape))
        expected = serial.predict(x)
        for sizes in grids(comm.size, axes):
            with ProcessGrid(comm, **sizes) as grid:
                net = parallelize(make(), grid, plan)
                found = net.predict(x)
                assert (found is None) == (comm.rank > 0) and (
                    found is None or np.allclose(found, expected, rtol=1e-10, atol=1e-12)
                ), (sizes, plan)
                if comm.size > 1:
                    with pytest.raises(ValueError, match="say how many samples there are on all ranks"):
                        net.forward(to_device(np.ascontiguousarray(x[net.input_block(7)])))


@mpi(*RANKS, long=(5, 6, 7, 8))
def test_samples_that_do_not_fit_are_not_predicted(comm):
    """A block of larger samples would be the first numbers of them. A network without Linear takes images of any size where
    ranks divide the samples alone."""
    cases = (dense, ("batch", "model"), (20,)), (images, LAYER_AXES, (7, 6, 2)), (images, LAYER_AXES, (6, 5, 3))
    for make, axes, wrong in cases:
        x, last = np.ones((5, *wrong)), comm.rank == comm.size - 1
        for sizes in grids(comm.size, axes):
            with ProcessGrid(comm, **sizes) as grid:
                net = parallelize(make(), grid)
                words = agreed(comm, message(ValueError, net.predict, x))
                assert words == f"the samples of x have the shape {wrong} but the network takes {net.input.sample_shape}", sizes
                one = message(ValueError, net.predict, x if last else np.ones((5, *net.input.sample_shape)))
                assert (words if last else "another rank passes samples") in one

    layers = [Conv2d(2, 3, 3, padding=1), ReLU(), Conv2d(3, 4, 2)]
    serial = Sequential(layers, seed=3, dtype=np.float64, input_shape=(6, 5, 2))
    x = np.random.default_rng(1).standard_normal((7, 9, 11, 2))
    for sizes in grids(comm.size, ("batch", "height")):
        with ProcessGrid(comm, **sizes) as grid:
            net = parallelize(serial, grid)
            if sizes["height"] > 1:
                assert "the network takes (6, 5, 2)" in agreed(comm, message(ValueError, net.predict, x))
            else:
                found = net.predict(x)
                assert found is None or np.allclose(found, serial.predict(x), rtol=1e-12)


@mpi(2, 3, 4, 5, 6, 7, 8, long=(5, 6, 7, 8))
def test_minibatches_of_different_lengths_are_refused_on_all_ranks_before_the_update(comm):
    """Each rank passes a minibatch of its own, as with DistributedDataParallel; that of the middle one has the mean length."""
    random = np.random.default_rng(comm.rank)
    for reduction in ("plain", "overlap:1"):
        with ProcessGrid(comm, batch=comm.size) as grid:
            net = parallelize(dense(), grid, reduction=reduction)
            optimizer, loss, before = SGD(net, 0.1), SoftmaxCrossEntropy(), to_host(net.params).copy()
            for n in (9 + comm.rank, 70000 - comm.rank % 2, comm.rank):
                x, y = random.standard_normal((n + 1, 16)), random.integers(0, 4, n + 1)
                words = message(ValueError, net.learn, x, y, loss, optimizer)
                assert f"{n + 1} on rank {comm.rank}: give every rank the same" in words and "nothing was updated" in words
                assert "the ranks pass" in agreed(comm, message(ValueError, net.predict, x))
            assert net.step == 0 and np.array_equal(to_host(net.params), before)
            serial = dense()
            expected = serial.learn(X, LABELS, loss, SGD(serial, 0.1))
            assert np.isclose(net.learn(X, LABELS, loss, optimizer), expected, rtol=1e-10)
            assert np.allclose(net.state_dict(everywhere=True)["3.bias"], serial.state_dict()["3.bias"], rtol=1e-10)


@mpi(4, 6, 8, long=(6, 8))
def test_minibatches_of_different_lengths_on_other_grids(comm):
    for other, options in (("model", {}), ("stage", {"micro_batches": 2}), ("stage", {"pipeline": "async:2"})):
        with ProcessGrid(comm, **{"batch": 2, other: comm.size // 2}) as grid:
            net = parallelize(dense(), grid, **options)
            n = 6 - grid.coordinates["batch"]
            for _ in range(2):
                words = message(ValueError, net.learn, X[:n], LABELS[:n], SoftmaxCrossEntropy(), SGD(net, 0.1))
                assert "different lengths, 5.5 samples" in words
            assert np.isfinite(net.learn(X, LABELS, SoftmaxCrossEntropy(), SGD(net, 0.1)))


@mpi(*RANKS, long=(5, 6, 7, 8))
def test_micro_batches_that_are_not_the_whole_minibatch_are_refused(comm):
    for sizes in ({"batch": comm.size}, {"stage": comm.size}):
        with ProcessGrid(comm, **sizes) as grid:
            net = parallelize(dense(), grid)
            trainer = net.trainer(SoftmaxCrossEntropy(), SGD(net, 0.1))
            words = "the micro-batches have 6 samples together, but the minibatch is said to have 7"
            assert agreed(comm, message(ValueError, trainer.step, [net.blocks(X, LABELS)], 7)) == words
            trainer.step([net.blocks(X, LABELS)], 6)
            trainer.flush()


@mpi(*RANKS, long=(5, 6, 7, 8))
def test_labels_are_checked_before_there_is_a_trainer(comm):
    with ProcessGrid(comm, batch=comm.size) as grid:
        net = parallelize(dense(), grid)
        assert "that of sample 0 is -1" in agreed(comm, message(ValueError, net.blocks, X, LABELS - 1))


@mpi(*RANKS, long=(5, 6, 7, 8))
def test_a_reader_of_samples_of_another_shape_is_refused(comm):
    part = Part(np.ones((9, 20)), np.zeros(9, int), np.zeros(20), np.ones(20))
    with ProcessGrid(comm, batch=comm.size) as grid:
        net = parallelize(dense(), grid)
        for reader in READERS.values():
            words = "the samples have the shape (20,) but the network takes (16,)"
            assert agreed(comm, message(ValueError, reader, net, part)) == words


@mpi(*RANKS, long=(5, 6, 7, 8))
def test_a_state_on_the_first_rank_serves_all(comm):
    for sizes in grids(comm.size):
        with ProcessGrid(comm, **sizes) as grid:
            one, other = (parallelize(dense(), grid), parallelize(dense(), grid))
            with one.exclusive():
                one.params[:] += 1
            other.load_state_dict(one.state_dict())
            assert np.array_equal(to_host(one.params), to_host(other.params))
            if comm.size > 1:
                with pytest.raises(ValueError, match="rank 0 has no state"):
                    one.load_state_dict(None)
