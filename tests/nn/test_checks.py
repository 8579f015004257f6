"""Bad input is refused with a message of one sentence before anything has changed; harmless input is converted."""

import math
import re

import numpy as np
import pytest

from gridgrad.nn import (
    MSE,
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    BatchNorm,
    Concat,
    Conv2d,
    Diverged,
    Flatten,
    Linear,
    LocalResponseNorm,
    MaxPool2d,
    Parameter,
    ReLU,
    Residual,
    Sequential,
    SoftmaxCrossEntropy,
    minibatch_checks,
)
from gridgrad.nn.device import to_device, to_host, xp
from tests.bad_minibatches import CONVERTED, LABELS, REFUSED, TARGETS, X, dense, one_output

# ----- one object in two places


def twice():
    relu, linear, branch = ReLU(), Linear(4, 4), [Linear(4, 4), ReLU()]
    return {
        "an activation": [Linear(4, 4), relu, Linear(4, 4), relu],
        "weights": [linear, ReLU(), linear],
        "in a branch too": [linear, Residual([linear])],
        "in both branches": [Linear(4, 4), Residual([linear], [linear])],
        "a list for both branches": [Linear(4, 4), Residual(branch, branch)],
        "a list for several branches": [Concat(branch, [], branch)],
        "nested": [Residual([ReLU(), Concat([relu], [Linear(4, 4), relu])])],
        "a container": [residual := Residual([Linear(4, 4)]), residual],
    }


@pytest.mark.parametrize("name", twice())
def test_an_object_in_two_places_is_refused_and_stays_free(name):
    layers = twice()[name]
    for _ in range(2):  # nothing got a name the first time
        with pytest.raises(ValueError, match="the same object .* occurs twice, in layer.*: make a new one for each place"):
            Sequential(layers)


def test_the_same_empty_branch_is_no_layer_twice():
    nothing = []
    Sequential([Linear(4, 4), Concat(nothing, nothing), Residual([ReLU()], nothing)])


@pytest.mark.parametrize("thing", [ReLU, None, [ReLU()], "relu"])
def test_what_is_no_layer_is_refused(thing):
    with pytest.raises(ValueError, match="layer 1 is .*, which is no layer"):
        Sequential([Linear(4, 4), thing])


def test_parameters_of_a_layer_with_branches_are_refused():
    block = Residual([Linear(4, 4)])
    block.parameters = (Parameter("scale", (1,), fill=1.0),)
    with pytest.raises(ValueError, match="layer 1 Residual.*: parameters of a layer with branches belong"):
        Sequential([Linear(4, 4), block])


# ----- minibatches


@pytest.mark.parametrize(("make", "loss", "x", "y", "words"), REFUSED, ids=[case[-1][-40:] for case in REFUSED])
def test_a_minibatch_that_does_not_fit_is_refused(make, loss, x, y, words):
    net = make()
    optimizer, before = SGD(net, 0.1), to_host(net.params).copy()
    for _ in range(2):
        with pytest.raises(ValueError, match=re.escape(words)) as failure:
            net.learn(x, y, loss(), optimizer)
        assert "\n" not in str(failure.value)
    assert np.array_equal(to_host(net.params), before) and net.step == 0


def test_after_a_right_minibatch_a_wrong_one_is_still_refused():
    net = dense()
    optimizer, loss = SGD(net, 0.1), SoftmaxCrossEntropy()
    for wrong in (LABELS - 1, LABELS + 1, LABELS[:5], LABELS * 1.0, LABELS[:, None]):
        net.learn(X, LABELS, loss, optimizer)
        with pytest.raises(ValueError, match="labels must"):
            net.learn(X, wrong, loss, optimizer)
    with pytest.raises(ValueError, match="but that of sample 2 is 4"):
        net.learn(X[:3], np.array([0, 3, 4]), loss, optimizer)
    with pytest.raises(ValueError, match="targets must"):
        net.learn(X, LABELS, MSE(), optimizer)
    with pytest.raises(ValueError, match="the network takes"):
        net.learn(X[:, :15], LABELS, loss, optimizer)


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


def test_forward_takes_whole_numbers_and_lists():
    net = dense()
    x = (X * 9).astype(int)
    expected = to_host(net.forward(to_device(x * 1.0))).copy()
    assert np.array_equal(to_host(net.forward(to_device(x))), expected)
    assert np.array_equal(to_host(net.forward(x.tolist())), expected)
    assert net.forward(to_device(X.astype(np.float32))).dtype == np.float64


def test_a_network_without_an_input_shape_takes_images_that_its_layers_take():
    net = Sequential([Conv2d(2, 3, 3), Flatten(), Linear(36, 4)], dtype=np.float64)
    net.learn(np.ones((6, 6, 5, 2)), LABELS, SoftmaxCrossEntropy(), optimizer := SGD(net, 0.1))
    for shape, words in (((7, 5, 2), "takes 36 features but gets 45"), ((6, 5, 3), "takes 2 channels but gets 3"),
                         ((2, 2, 2), "its window does not fit"), ((60,), "takes images")):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            net.learn(np.ones((6, *shape)), LABELS, SoftmaxCrossEntropy(), optimizer)


def test_branches_before_the_first_weights_may_change_the_features():
    net = Sequential([Concat([], [ReLU()]), Linear(8, 4)], dtype=np.float64)
    net.learn(X[:, :4], LABELS, SoftmaxCrossEntropy(), SGD(net, 0.1))


def test_images_out_of_a_network_are_no_outputs_for_a_loss():
    net = Sequential([Conv2d(2, 3, 3)], input_shape=(6, 5, 2))
    for loss in (MSE(), SoftmaxCrossEntropy()):
        with pytest.raises(ValueError, match="put a Flatten behind them"):
            net.learn(np.ones((6, 6, 5, 2)), LABELS, loss, SGD(net, 0.1))


def test_a_loss_of_ones_own_gets_targets_of_any_shape_but_for_every_sample():
    class Mean(MSE):
        pass

    class First:
        def forward(self, y, targets, context):
            context[self].shape = y.shape
            assert targets.shape == (6, 2, 2)
            return float(y[:, 0].sum()) / context.minibatch_size

        def backward(self, context):
            dy = np.zeros(context[self].shape)
            dy[:, 0] = 1 / len(dy)
            return to_device(dy)

    net = dense()
    optimizer = SGD(net, 0.1)
    net.learn(X, TARGETS, Mean(), optimizer)
    net.learn(X, np.zeros((6, 2, 2)), First(), optimizer)
    with pytest.raises(ValueError, match="y must have a row for each of the 6 samples"):
        net.learn(X, np.zeros((5, 2, 2)), First(), optimizer)
    with pytest.raises(ValueError, match=r"the loss must be an object, not the class: write MSE\(\)"):
        net.learn(X, TARGETS, MSE, optimizer)


def test_tensors_of_pytorch_are_arrays_too():
    torch = pytest.importorskip("torch")
    losses = []
    for x, y in ((torch.tensor(X), torch.tensor(LABELS)), (X, LABELS)):
        net = dense()
        optimizer = SGD(net, 0.1)
        losses.append([net.learn(x, y, SoftmaxCrossEntropy(), optimizer) for _ in range(2)])
    assert losses[0] == losses[1]


def test_an_optimizer_of_another_network_is_refused():
    net, other = dense(), dense()
    with pytest.raises(ValueError, match="this SGD was made for another network"):
        net.learn(X, LABELS, SoftmaxCrossEntropy(), SGD(other, 0.1))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_named(bad):
    x = X.copy()
    x[3, 2] = bad
    net = dense()
    before = to_host(net.params).copy()
    words = "step 0: the loss is nan: first not finite: the input; take NaN"
    with np.errstate(all="ignore"), pytest.raises(Diverged, match=words):
        net.learn(x, LABELS, SoftmaxCrossEntropy(), SGD(net, 0.1))
    assert np.array_equal(to_host(net.params), before) and net.step == 0
    net.params[:] = np.nan
    with pytest.raises(Diverged, match="first not finite: parameter 1.weight; try a lower learning rate"):
        net.learn(X, LABELS, SoftmaxCrossEntropy(), SGD(net, 0.1))
    words = "the outputs are finite, the loss of them is not; look at the targets"
    with np.errstate(all="ignore"), pytest.raises(Diverged, match=words):
        (net := dense()).learn(X, TARGETS * bad, MSE(), SGD(net, 0.1))


# ----- numbers


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Linear(2.5, 3), "Linear: inputs must be a whole number of at least 1, not 2.5"),
        (lambda: Linear(2, 0), "Linear: outputs must be a whole number of at least 1, not 0"),
        (lambda: Linear("2", 3), "Linear: inputs must be a whole number of at least 1, not '2'"),
        (lambda: Conv2d(None, 3, 3), "Conv2d: inputs must be a whole number"),
        (lambda: Conv2d(1, -3, 3), "Conv2d: outputs must be a whole number"),
        (lambda: Conv2d(1, 3, 2.0), "Conv2d: kernel must be a whole number"),
        (lambda: BatchNorm(1.0), "BatchNorm: channels must be a whole number"),
        (lambda: BatchNorm(3, eps=math.nan), "eps must be above 0"),
        (lambda: BatchNorm(3, eps=0.0), "eps must be above 0"),
        (lambda: LocalResponseNorm(2.0), "LocalResponseNorm: size must be a whole number"),
        (lambda: LocalResponseNorm(2, alpha=math.nan), "alpha must be at least 0"),
        (lambda: LocalResponseNorm(2, k=0.0), "k above 0"),
        (lambda: Sequential([], seed=-1), "seed must be a whole number of at least 0 and below 2^64, not -1"),
        (lambda: Sequential([], seed=1.5), "seed must be a whole number"),
        (lambda: Sequential([], seed=2**64), "seed must be a whole number"),
        (lambda: Sequential([], seed=None), "seed must be a whole number"),
        (lambda: Sequential([], dtype=np.float16), "dtype must be float32 or float64, not float16"),
        (lambda: Sequential([], dtype=int), "dtype must be float32 or float64, not int64"),
        (lambda: Sequential([], dtype=None), "dtype must be float32 or float64, not None"),
        (lambda: Sequential([], dtype="single precision"), "dtype must be float32 or float64, not single precision"),
        (lambda: Sequential([], input_shape=0), "input_shape must be (features,) or (height, width, channels)"),
        (lambda: Sequential([], input_shape=(3, 4)), "input_shape must be"),
        (lambda: Sequential([], input_shape=(3.0,)), "input_shape must be"),
        (lambda: Sequential([], input_shape="16"), "input_shape must be"),
    ],
)
def test_numbers_out_of_range_are_refused(make, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        make()


@pytest.mark.parametrize("optimizer", [SGD, Adam, Adagrad, Adadelta])
@pytest.mark.parametrize("name", ["lr", "l2", "l1"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -1, "0.1", None])
def test_rates_and_penalties_out_of_range_are_refused(optimizer, name, value):
    with pytest.raises(ValueError, match="must be"):
        optimizer(dense(), **{"lr": 0.1, name: value})


@pytest.mark.parametrize("rate", [math.nan, -0.1, math.inf])
def test_a_schedule_that_leaves_the_range_is_refused(rate):
    net = dense()
    optimizer = SGD(net, lambda step: rate if step else 0.1)
    net.learn(X, LABELS, SoftmaxCrossEntropy(), optimizer)
    with pytest.raises(ValueError, match=f"the schedule gives the learning rate {rate} at step 1"):
        net.learn(X, LABELS, SoftmaxCrossEntropy(), optimizer)


def test_whole_numbers_of_numpy_are_whole_numbers():
    n = np.int64
    layers = [Conv2d(n(2), n(3), n(3), padding=(n(1), n(1))), BatchNorm(n(3)), MaxPool2d(np.int32(2)), LocalResponseNorm(n(2))]
    layers += [Flatten(), Linear(n(18), n(4))]
    net = Sequential(layers, seed=n(7), dtype="float64", input_shape=[n(6), n(5), n(2)])
    assert net.input_shape == (6, 5, 2) and repr(net).count("int") == 0
    assert type(net.seed) is int and type(net.layers[-1].inputs) is int
    net.learn(np.ones((6, 6, 5, 2)), LABELS, SoftmaxCrossEntropy(), SGD(net, 0.1))
    assert Sequential([], input_shape=16).input_shape == (16,)


# ----- SGD at a rate of 0

SCHEDULES = {
    "from 0": lambda step: 0.05 * step,
    "from 0 for long": lambda step: max(0.0, 0.05 * (step - 3)),
    "through 0": lambda step: (0.1, 0.05, 0.0, 0.0, 0.02, 0.1, 0.0, 0.3)[step],
    "to 0": lambda step: 0.1 * max(0.0, 1 - step / 5),
    "0": lambda step: 0.0,
    "above 0": lambda step: 0.1 / (step + 1),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}, {"momentum": 0.5, "l2": 0.1}])
def test_sgd_keeps_its_momentum_at_a_rate_of_0(schedule, options):
    torch = pytest.importorskip("torch")
    lr = SCHEDULES[schedule]
    net = one_output()
    optimizer = SGD(net, lr, **options)
    parameter = torch.nn.Parameter(torch.tensor(to_host(net.params).copy()))
    torch_options = {"weight_decay" if name == "l2" else name: value for name, value in options.items()}
    reference = torch.optim.SGD([parameter], lr=0.1, **torch_options)
    rng = np.random.default_rng(0)
    for step in range(8):
        gradient = rng.standard_normal(net.size)
        net.grads[...] = to_device(gradient)
        optimizer.step()
        net.step += 1
        parameter.grad = torch.tensor(gradient)
        reference.param_groups[0]["lr"] = lr(step)
        reference.step()
        assert np.allclose(to_host(net.params), parameter.detach().numpy(), rtol=1e-13, atol=1e-14), step
        if step == 3:  # a resumed run goes on alike
            arrays = {name: to_host(array).copy() for name, array in optimizer.state_arrays().items()}
            numbers = optimizer.state_numbers()
            optimizer = SGD(net, lr, **options)
            optimizer.load_state(arrays, numbers)


@pytest.mark.skipif(not xp.is_cpu, reason="compares bits with what NumPy computes")
@pytest.mark.parametrize("nesterov", [False, True])
def test_rates_above_0_give_the_bits_that_they_always_gave(nesterov):
    net = dense(np.float32)
    optimizer = SGD(net, lr := lambda step: 0.1 * 0.9**step, momentum=0.9, nesterov=nesterov)
    p, v, before = net.params.copy(), np.zeros_like(net.params), lr(0)
    rng, f = np.random.default_rng(0), np.float32
    for step in range(6):
        gradient = rng.standard_normal(net.size).astype(f)
        net.grads[...] = gradient
        optimizer.step()
        net.step += 1
        g = gradient * f(lr(step))
        v = v * f(0.9 * lr(step) / before) + g
        p -= g + v * f(0.9) if nesterov else v
        before = lr(step)
        assert np.array_equal(net.params, p)


def test_minibatches_of_the_same_kind_are_looked_at_once(monkeypatch):
    """But for the range of their labels."""
    net, loss, looks = dense(), SoftmaxCrossEntropy(), []
    whole_check = minibatch_checks._checked_kind
    monkeypatch.setattr(minibatch_checks, "_checked_kind", lambda *arguments: looks.append(1) or whole_check(*arguments))
    for _ in range(3):
        net.learn(X, LABELS, loss, SGD(net, 0.1))
    assert len(looks) == 1
    net.learn(X[:2], LABELS[:2], loss, SGD(net, 0.1))
    assert len(looks) == 2
    for _ in range(2):
        net.learn(X.tolist(), LABELS, loss, SGD(net, 0.1))  # what has to be converted is looked at each time
    assert len(looks) == 4
