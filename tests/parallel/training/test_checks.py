"""Bad input is refused on every rank with the message of the serial network, and no rank waits for another."""

import numpy as np

from gridgrad.nn import SGD, Conv2d, Flatten, Layer, Linear, ReLU, Residual, Sequential, SoftmaxCrossEntropy
from gridgrad.nn.device import to_host
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.plans.hypergraph import Owners
from tests.bad_minibatches import CONVERTED, LABELS, REFUSED, X, dense, images
from tests.mpi import mpi


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


# ----- minibatches


@mpi(2)
def test_minibatches_are_refused_or_converted_as_on_one_rank(comm):
    for make, loss, x, y, words in REFUSED:
        net = make()
        serial = message(ValueError, net.learn, x, y, loss(), SGD(net, 0.1))
        assert words in serial
        with ProcessGrid(comm, **{"height" if make is images else "batch": comm.size}) as grid:
            net = parallelize(make(), grid)
            optimizer = SGD(net, 0.1)
            assert agreed(comm, message(ValueError, net.learn, x, y, loss(), optimizer)) == serial
            net.trainer(loss(), optimizer)
            assert agreed(comm, message(ValueError, net.blocks, x, y)) == serial
    for make, loss, x, y, *_ in CONVERTED:
        with ProcessGrid(comm, batch=comm.size) as grid:
            losses = []
            for net in make(), parallelize(make(), grid):
                optimizer = SGD(net, 0.1)
                losses.append([net.learn(x, y, loss(), optimizer) for _ in range(2)])
        assert np.allclose(*losses, rtol=1e-12, atol=0), losses


@mpi(2)
def test_minibatches_of_different_lengths_are_refused_on_all_ranks_before_the_update(comm):
    """Each rank passes a minibatch of its own, as with DistributedDataParallel."""
    with ProcessGrid(comm, batch=2) as grid:
        net = parallelize(dense(), grid)
        optimizer, loss, before = SGD(net, 0.1), SoftmaxCrossEntropy(), to_host(net.params).copy()
        mine = X[: 6 - comm.rank]
        words = message(ValueError, net.learn, mine, LABELS[: len(mine)], loss, optimizer)
        assert f"{len(mine)} on rank {comm.rank}: give every rank the same" in words
        assert "the ranks pass" in agreed(comm, message(ValueError, net.predict, mine))
        one = message(ValueError, net.predict, np.ones((5, 20 if comm.rank else 16)))
        assert ("(20,)" if comm.rank else "another rank passes samples") in one
        assert net.step == 0 and np.array_equal(to_host(net.params), before)
        assert np.isfinite(net.learn(X, LABELS, loss, optimizer))


# ----- what is passed to `parallelize`


class Softmax(Layer):
    """A layer that nobody has a rule for."""


def owners_of(net):
    return Owners(2, {layer.name: np.arange(layer.outputs) % 2 for layer in net.leaves() if layer.kind})


OWNERS = owners_of(dense())
BRANCHED = Sequential([Linear(16, 8), Residual([Linear(8, 8)]), Linear(8, 4)], input_shape=(16,))
REFUSED_OPTIONS = [  # axis, options, a word that stands in the line
    ("model", {"plan": 7}, "plan"), ("model", {"plan": "out,in,out"}, "3 choices"), ("model", {"plan": "height"}, "no height"),
    ("model", {"shares": {"model": (0, 0)}}, "shares"), ("model", {"shares": {"depth": (1, 2)}}, "shares"),
    ("model", {"owners": {"7": [0] * 8}}, "owners"), ("stage", {"shares": {"stage": (1, 1)}}, "cut"),
    ("stage", {"cuts": (1, 1)}, "2 cuts"), ("stage", {"cuts": (2, 1, 3), "pipeline": "interleaved:2"}, "decrease"),
    ("stage", {"pipeline": "foo"}, "schedule"), ("stage", {"micro_batches": 0}, "micro_batches"),
    ("batch", {"reduction": "overlap:0"}, "'overlap:0'"), ("batch", {"reduce_dtype": "int8"}, "'int8'"),
    ("batch", {"reduction": "powersgd:2", "update": "sharded"}, "update"),
    ("model", {"plan": "hypergraph", "owners": OWNERS, "pipeline": "zb-h1"}, "zb-h1"),
]  # fmt: skip
REFUSED_NETWORKS = [  # axis, network, options, a word
    ("batch", [Linear(3, 2)], {}, "a list"), ("model", Sequential([ReLU()]), {}, "no Linear or Conv2d"),
    ("model", Sequential([Linear(3, 4), Softmax(), Linear(4, 2)]), {}, "Softmax"),
    ("stage", Sequential([Conv2d(1, 2, 3), Flatten(), Linear(8, 2)]), {}, "size of the images"),
    ("height", images(), {"plan": "conv=height,linear=out"}, "splits the images already"),
    ("model", BRANCHED, {"plan": "hypergraph", "owners": owners_of(BRANCHED), "pipeline": "1f1b"}, "branches"),
]  # fmt: skip
REFUSED_GRIDS = [(None, "ProcessGrid"), ({"batch": 2, "depth": 1}, "depth"), ({"batch": 3}, "3 places")]


@mpi(2)
def test_what_parallelize_can_not_take_is_refused_on_all_ranks(comm):
    refused = [(axis, dense(), options, word) for axis, options, word in REFUSED_OPTIONS]
    for axis, net, options, word in refused + REFUSED_NETWORKS:
        with ProcessGrid(comm, **{axis: 2}) as grid:
            assert word in agreed(comm, message(ValueError, parallelize, net, grid, **options)), (options, word)
    for grid, word in REFUSED_GRIDS:
        assert word in agreed(comm, message(ValueError, parallelize, dense(), grid)), grid


@mpi(2)
def test_networks_and_optimizers_must_belong_together(comm):
    with ProcessGrid(comm, batch=2) as grid:
        early = SGD(dense(), 0.1)
        net = parallelize(dense(), grid)
        assert "parallel already" in message(ValueError, parallelize, net, grid)
        assert "made for another network" in message(ValueError, net.learn, X, LABELS, SoftmaxCrossEntropy(), early)
