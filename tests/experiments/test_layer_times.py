"""The times of layers: every pass has a row, none is counted twice, and operations and bytes are those calculated by hand."""

from collections import Counter
from itertools import count

import pytest

from gridgrad.experiments.common import layer_times
from gridgrad.experiments.common.layer_times import PassTime, measure, measured_table, rows, table
from gridgrad.nn import SGD, Concat, Conv2d, Flatten, Linear, MaxPool2d, ReLU, Residual, Sequential, SoftmaxCrossEntropy, Tanh
from gridgrad.nn.observer import Observer
from gridgrad.nn.sequence import with_branches
from tests.experiments.programs import program


def perceptron():
    return Sequential([Linear(5, 3), Tanh(), Linear(3, 2)], input_shape=(5,))


def pooled(size, filters):
    layers = [Conv2d(3, filters, 3), ReLU(), MaxPool2d(2), Flatten(), Linear(((size - 2) // 2) ** 2 * filters, 4)]
    return Sequential(layers, input_shape=(size, size, 3))


def residual():
    """A pooling in front of all parameters, and branches within branches."""
    layers = [MaxPool2d(2), Residual([Conv2d(2, 2, 3, padding=1), Residual([Conv2d(2, 2, 1)], [Conv2d(2, 2, 1)])])]
    layers += [Concat([Conv2d(2, 1, 1), MaxPool2d(1)], []), Flatten(), Linear(2 * 4 * 3, 3)]
    return Sequential(layers, input_shape=(4, 8, 2))


CASES = {
    "perceptron": (perceptron, 4),
    "pooled": (lambda: pooled(8, 4), 3),
    "pooled in blocks": (lambda: pooled(32, 64), 20),
    "residual": (residual, 3),
}


class Passes(Observer):
    """Counts the passes of each object, and notes which of them contain others."""

    def __init__(self):
        self.counts, self.containers, self.open = Counter(), set(), []

    def begin(self, thing, phase, context):
        self.containers.update(self.open)
        self.open.append(thing.name)
        self.counts[thing.name] += 1

    def end(self, thing, phase, context):
        self.open.pop()


@pytest.mark.parametrize(("make", "batch_size"), CASES.values(), ids=CASES)
def test_the_rows_are_the_whole_step_and_no_pass_counts_twice(make, batch_size, monkeypatch):
    """By a clock that goes on by one second whenever somebody looks at it."""
    monkeypatch.setattr(layer_times.time, "perf_counter", count().__next__)
    net = make()
    found, steps = measure(net, batch_size, 3)
    with net.observed_by(Passes()) as passes:
        x, y = layer_times.minibatch(net.input_shape, 2, batch_size)
        net.learn(x, y, SoftmaxCrossEntropy(), SGD(net, 0.1))
    assert steps == 3
    assert sum(row.seconds for row in found) == 2 * sum(passes.counts.values()) + 1
    seconds = Counter()
    for row in found:
        seconds[row.name] += row.seconds
    for name, times in passes.counts.items():
        assert seconds[name] > times if name in passes.containers else seconds[name] == times


@pytest.mark.parametrize(("make", "batch_size"), CASES.values(), ids=CASES)
def test_every_layer_has_a_row_for_each_pass(make, batch_size):
    net = make()
    found, _ = measure(net, batch_size, 1)
    assert all(row.seconds > 0 for row in found if row.name != "rest")
    named = [(row.name, row.pass_) for row in found]
    layers = [layer.name for layer in with_branches(net.layers)]
    expected = {(name, pass_) for name in [*layers, "loss"] for pass_ in ("forward", "backward")}
    if make is residual:
        expected.remove(("0", "backward"))  # nobody needs the gradient of its input, and it has no parameters
    assert len(named) == len(set(named)) and set(named) == expected | {("optimizer", "step"), ("rest", "")}
    assert named[-4:] == [("loss", "forward"), ("loss", "backward"), ("optimizer", "step"), ("rest", "")]


def counted(net, batch_size):
    """{(name, pass): (operations, bytes)}."""
    return {(row.name, row.pass_): (row.flops, row.bytes) for row in measure(net, batch_size, 1)[0]}


def test_operations_and_bytes_of_linear_layers():
    found = counted(perceptron(), 4)
    # The first: x has 20 elements, W and b 15 + 3, y 12. Nobody needs the gradient of x.
    assert found["0", "forward"] == (2 * 5 * 3 * 4, 4 * (20 + 18 + 12))
    assert found["0", "backward"] == (2 * 5 * 3 * 4, 4 * (12 + 20 + 18))
    # The second: x has 12 elements, W and b 6 + 2, y 8. dy, x, dW and db, W and b, and dx are moved backward.
    assert found["2", "forward"] == (2 * 3 * 2 * 4, 4 * (12 + 8 + 8))
    assert found["2", "backward"] == (2 * 2 * 3 * 2 * 4, 4 * (8 + 12 + 8 + 8 + 12))
    assert found["1", "forward"] == (0, 4 * (12 + 12))
    assert found["1", "backward"] == (0, 4 * (12 + 12 + 12))  # dy, y and dx
    assert found["loss", "forward"] == found["loss", "backward"] == (0, 4 * 8)
    assert found["optimizer", "step"] == (0, 4 * 5 * 26)


def test_operations_and_bytes_of_convolutions():
    layers = [Conv2d(2, 3, 3, padding=1), Conv2d(3, 4, (3, 2), bias=False), MaxPool2d(2), Flatten(), Linear(8, 2)]
    found = counted(Sequential(layers, input_shape=(4, 5, 2)), 6)
    # The first: x has 6 * 40 elements, w and b 54 + 3, y 6 * 60. Nobody needs the gradient of x.
    flops = 2 * (3 * 3 * 2) * 6 * 60
    assert found["0", "forward"] == (flops, 4 * (240 + 57 + 360))
    assert found["0", "backward"] == (flops, 4 * (360 + 240 + 57))
    # The second, which a pooling follows: x has 360 elements, w 72, y 6 * 2 * 4 * 4.
    flops = 2 * (3 * 2 * 3) * 6 * 32
    assert found["1", "forward"] == (flops, 4 * (360 + 72 + 192))
    assert found["1", "backward"] == (2 * flops, 4 * (192 + 360 + 72 + 72 + 360))
    assert found["2", "forward"] == found["2", "backward"] == (0, 4 * (192 + 48))


def test_operations_and_bytes_of_branches():
    found = counted(residual(), 3)
    x = 3 * 2 * 4 * 2  # elements of every array of images but those of the first layer and of the joined channels
    assert found["1", "forward"] == (0, 4 * 3 * x) and found["1", "backward"] == (0, 0)  # nobody needs its input's gradient
    assert found["2", "forward"] == (0, 4 * 2 * (x // 2 + x)) and found["2", "backward"] == (0, 4 * 3 * x)
    flops = 2 * (3 * 3 * 2) * x
    assert found["1.branch.0", "forward"][0] == found["1.branch.0", "backward"][0] == flops


def test_the_table_shows_shares_of_the_limits_and_of_the_step():
    found = [PassTime("0", "Linear(5, 3)", "forward", 0.003, 6 * 10**6, 10**6), PassTime("rest", "", "", 0.001)]
    assert [" ".join(line.split()) for line in table(found, 8e9, 1e9).splitlines()] == [
        "layer pass ms % of step GFLOP/s % of GEMM MB % of copy",
        "0 Linear(5, 3) forward 3.000 75.0% 2.0 25.0% 1.00 33.3%",
        "rest 1.000 25.0%",
        "total 4.000 100.0% 1.5 18.8% 1.00 25.0%",
    ]


def test_medians_of_the_steps_count():
    net = Sequential([Linear(5, 3)], input_shape=(5,))
    others = {("loss", "forward"): 0.0, ("loss", "backward"): 0.0, ("optimizer", "step"): 1.0}
    steps = [{("0", "forward"): a, ("0", "gradients"): 2.0} | others for a in (1.0, 9.0, 2.0)]
    found = {(row.name, row.pass_): row.seconds for row in rows(net, 1, steps, [5.0, 13.0, 5.5])}
    assert found["0", "forward"] == found["0", "backward"] == 2.0 and found["rest", ""] == 1.0


def test_the_text_names_the_machine_and_the_steps(monkeypatch):
    monkeypatch.setattr(layer_times, "gemm_peak", lambda: 3e9)
    monkeypatch.setattr(layer_times, "copy_bandwidth", lambda: 5e9)
    monkeypatch.setattr(layer_times, "SECONDS", 0.0)
    text = measured_table(perceptron(), 4)
    assert "BLAS thread" in text and "3.0 GFLOP/s" in text and "5.0 GB/s" in text and "Winograd" in text
    assert f"medians of {layer_times.FEWEST_STEPS} training steps of 4 samples" in text


def test_steps_without_a_measurement_are_refused():
    finished = program("summary", "--net", "mlp:8,relu", "--steps", 3)
    assert finished.returncode == 2 and "--steps needs --measure" in finished.stderr and finished.stderr.count("\n") == 1
