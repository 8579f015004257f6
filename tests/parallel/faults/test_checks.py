"""What the checks find in a network on a grid, and that they find nothing where nothing is wrong."""

from contextlib import nullcontext, suppress
from itertools import product

import numpy as np
import pytest

from gridgrad.nn import SGD, BatchNorm, Conv2d, Flatten, Linear, ReLU, Sequential, SoftmaxCrossEntropy
from gridgrad.nn.optimizers import Adam
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.faults.checks import FiniteCheck, ReplicaCheck, odd_ones
from gridgrad.parallel.job import run
from gridgrad.parallel.training.steps import Diverged
from tests.mpi import mpi

X, LABELS = np.random.default_rng(3).normal(size=(6, 6, 4, 2)), np.array([0, 1, 2, 0, 1, 2])


# ----- replicas


@mpi(4)
def test_one_bit_of_any_array_is_found_and_its_rank(comm):
    """At the steps that are checked. That replicas are equal without a fault is tested by random networks."""
    layers = [Conv2d(2, 3, 3, padding=1), BatchNorm(3), ReLU(), Flatten(), Linear(72, 5), ReLU(), Linear(5, 3)]
    with ProcessGrid(comm, batch=2, model=2) as grid:
        net = parallelize(Sequential(layers, seed=4, dtype=np.float64, input_shape=(6, 4, 2)), grid)
        optimizer = Adam(net, 0.01)
        check = ReplicaCheck(net, optimizer, 2)
        for step in range(4):
            net.learn(X, LABELS, SoftmaxCrossEntropy(), optimizer)
            check.after_step(step)
        assert grid.tally.records["replicas", "all-gather"].calls == 2
        check = ReplicaCheck(net, optimizer, 1)
        for name, _, array in list(check._arrays()):
            if comm.bcast(array.size, 3):
                bits = array.reshape(-1).view(np.uint64)
                bits[-1] ^= np.uint64(comm.rank == 3)
                with pytest.raises(run.Fault, match=rf"^step 7: the replicas of {name} differ: values on rank 3 are not those"):
                    check.after_step(7)
                bits[-1] ^= np.uint64(comm.rank == 3)
        check.after_step(9)


def test_the_majority_is_taken_to_be_right():
    assert list(odd_ones(["a", "a", "b", "b"], [1, 1, 2, 2])) == []
    assert list(odd_ones(["a", "a", "a", "b"], [1, 5, 1, 2])) == [([1], [0, 2])]
    assert list(odd_ones(["a"] * 3, [7, 1, 1])) == [([0], [1, 2])]


# ----- finite values


@mpi(2)
def test_the_first_value_that_is_not_finite_is_named_on_all_ranks(comm, monkeypatch):
    """An input or a gradient in a step, and a parameter after it, of whichever rank has it."""
    honest = Linear.input_gradient

    def infinite(layer, dy, context):
        return honest(layer, dy, context) * (np.inf if layer.name == "2" else 1)

    names = {"nothing": None, "input": "the input of layer 0 ", "gradient": "the gradient of the input of layer 2 ",
             "parameter": "parameter 4.weight "}  # fmt: skip
    for axis, (spoilt, words) in product(("batch", "model", "stage"), names.items()):
        with ProcessGrid(comm, **{axis: 2}) as grid, np.errstate(all="ignore"), monkeypatch.context() as patch:
            layers, x = [Linear(5, 4), ReLU(), Linear(4, 4), ReLU(), Linear(4, 3)], np.ones((6, 5))
            net = parallelize(Sequential(layers, seed=5, dtype=np.float64), grid)
            check = FiniteCheck(net)
            if spoilt == "input":
                x[3, 2] = np.nan
            if spoilt == "gradient":
                patch.setattr(Linear, "input_gradient", infinite)
            with suppress(Diverged):  # the step itself may find out
                net.learn(x, LABELS, SoftmaxCrossEntropy(), SGD(net, 0.1))
            for weight in [p.value for layer, p in net.parameters if layer.name == "4" and spoilt == "parameter"][:1]:
                weight[...] = np.inf
            with pytest.raises(Diverged, match=f"^step 0: {words}") if words else nullcontext() as caught:
                check.after_step(0)
            said = str(caught and caught.value)
            assert comm.allgather(said) == [said, said]
