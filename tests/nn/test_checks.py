"""Bad input is refused with a message of one sentence before anything has changed; harmless input is converted."""

import math
import re

import numpy as np
import pytest

from gridgrad.nn import (
    MSE,
    SGD,
    Adam,
    BatchNorm,
    Concat,
    Conv2d,
    Diverged,
    Dropout,
    EarlyStopping,
    Linear,
    MaxPool2d,
    ReLU,
    Sequential,
    SoftmaxCrossEntropy,
    SparseLinear,
)
from gridgrad.nn.device import to_host
from tests.bad_minibatches import CONVERTED, LABELS, TARGETS, X, dense

LAYER, USED = Linear(4, 4), Sequential([Linear(4, 4)]).layers[0]

NETWORKS = [  # (layers, the shape of a sample, words)
    ([LAYER, ReLU(), LAYER], (4,), "the same object .* occurs twice, in layers 0 and 2"),
    ([ReLU(), Concat([USED])], (4,), "layer 1 .* is part of a network already"),
    ([Linear(4, 4), ReLU], (4,), "layer 1 is .*, which is no layer"),
    ([Linear(5, 7), ReLU(), Linear(8, 3)], (5,), r"layer 2 Linear\(8, 3\) takes 8 features but gets 7"),
    ([Linear(75, 2)], (5, 5, 3), "put a Flatten in front"),
    ([Concat([MaxPool2d(2)], [])], (5, 5, 3), "do not fit together"),
]


@pytest.mark.parametrize(("layers", "shape", "words"), NETWORKS)
def test_layers_that_are_none_or_do_not_fit_are_named(layers, shape, words):
    with pytest.raises(ValueError, match=words):
        Sequential(layers).output_shape(shape)


NUMBERS = [  # (what is refused, words)
    (lambda: Linear(2.5, 3), "Linear: inputs"), (lambda: SparseLinear(np.ones((3, 4))), "pattern"),
    (lambda: Conv2d(1, 1, 3, padding=-1), "padding"), (lambda: MaxPool2d(2, padding=2), "padding"),
    (lambda: BatchNorm(3, eps=math.nan), "eps"), (lambda: Dropout(1.0), "[0, 1)"),
    (lambda: SoftmaxCrossEntropy(smoothing=1.0), "smoothing"), (lambda: Sequential([], seed=2**64), "seed"),
    (lambda: Sequential([], dtype=np.float16), "not float16"), (lambda: Sequential([], input_shape=(3, 4)), "input_shape"),
    (lambda: SGD(dense(), 0.1, momentum=1.0), "momentum"), (lambda: Adam(dense(), betas=(1, 0.9)), "beta1"),
    (lambda: SGD(dense(), math.nan), "must be"), (lambda: Adam(dense(), 0.1, l2=-1), "must be"),
    (lambda: EarlyStopping(0), "patience"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "words"), NUMBERS)
def test_arguments_out_of_range_are_refused(make, words):
    with pytest.raises(ValueError, match=f"^[^\n]*{re.escape(words)}[^\n]*$"):
        make()


# ----- minibatches: all that do not fit are in tests/parallel/training/test_checks.py


def test_after_a_right_minibatch_a_wrong_one_is_still_refused():
    net = dense()
    optimizer, loss = SGD(net, 0.1), SoftmaxCrossEntropy()
    for x, y, wrong_for, words in (
        (X, LABELS + 1, loss, "labels must"), (X, LABELS, MSE(), "targets must"), (X[:, :15], LABELS, loss, "network takes"),
        (X, TARGETS, MSE, r"the loss must be an object.*: write MSE\(\)"),
    ):  # fmt: skip
        net.learn(X, LABELS, loss, optimizer)
        before, step = to_host(net.params).copy(), net.step
        with pytest.raises(ValueError, match=words):
            net.learn(x, y, wrong_for, optimizer)
        assert np.array_equal(to_host(net.params), before) and net.step == step
    with pytest.raises(ValueError, match="this SGD was made for another network"):
        net.learn(X, LABELS, loss, SGD(dense(), 0.1))


@pytest.mark.parametrize("case", range(len(CONVERTED)))
def test_what_is_plainly_meant_is_converted(case):
    make, loss, x, y, meant_x, meant_y = CONVERTED[case]
    states = []
    for given in ((x, y), (meant_x, meant_y)):
        net = make()
        optimizer = SGD(net, 0.1)
        losses = [net.learn(*given, loss(), optimizer) for _ in range(3)]
        states.append((losses, to_host(net.params).copy()))
    assert states[0][0] == states[1][0] and np.array_equal(states[0][1], states[1][1])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_named(bad):
    x, net = X.copy(), dense()
    x[3, 2] = bad
    before = to_host(net.params).copy()
    with np.errstate(all="ignore"), pytest.raises(Diverged, match="step 0: .* first not finite: the input"):
        net.learn(x, LABELS, SoftmaxCrossEntropy(), SGD(net, 0.1))
    assert np.array_equal(to_host(net.params), before) and net.step == 0
    with np.errstate(all="ignore"), pytest.raises(Diverged, match="look at the targets"):
        net.learn(X, TARGETS * bad, MSE(), SGD(net, 0.1))
    net.params[:] = np.nan
    with pytest.raises(Diverged, match="first not finite: parameter 1.weight"):
        net.learn(X, LABELS, SoftmaxCrossEntropy(), SGD(net, 0.1))
