"""Several micro-batches in progress in one network, each with its own context; and what observers are told of their passes."""

import numpy as np
import pytest

from gridgrad.nn import (
    LOSSES,
    SGD,
    BatchNorm,
    Concat,
    Context,
    Conv2d,
    Dropout,
    Flatten,
    Linear,
    LocalResponseNorm,
    MaxPool2d,
    ReLU,
    Residual,
    Sequential,
    Tanh,
)
from gridgrad.nn.device import to_device, to_host, xp
from gridgrad.nn.observer import Observer

MICRO_BATCHES = slice(0, 4), slice(4, 5), slice(5, 11)  # of a minibatch of 11


def cnn():
    return [Conv2d(2, 24, 3, padding=1), MaxPool2d(2), ReLU(), Conv2d(24, 25, 3, padding=1), LocalResponseNorm(3), Flatten(),
            Linear(25 * 16, 3)]  # fmt: skip


def inception():
    branches = Concat([Conv2d(2, 3, 3, padding=1), BatchNorm(3), Tanh()], [], [MaxPool2d(3, 1, 1), Residual([Conv2d(2, 2, 1)])])
    return [branches, MaxPool2d(2), Flatten(), Linear(7 * 16, 9), ReLU(), Dropout(0.3), Linear(9, 3)]


NETWORKS = {
    "cnn": (cnn, (8, 8, 2), np.float32),  # with Winograd's algorithm
    "inception": (inception, (8, 8, 2), np.float64),
}


class Training:
    """A network, a minibatch in three parts, and what can be done with each: one letter a pass."""

    def __init__(self, name):
        layers, shape, dtype = NETWORKS[name]
        self.net = Sequential(layers(), seed=3, dtype=dtype)
        rng = np.random.default_rng(1)
        self.x, self.y = rng.standard_normal((11, *shape)).astype(dtype), rng.integers(0, 3, 11)
        self.loss = LOSSES["cross-entropy"]()
        self.contexts = [Context() for _ in MICRO_BATCHES]
        self.outputs, self.gradients, self.losses = {}, {}, {}

    def forward(self, number):
        part, context = MICRO_BATCHES[number], self.contexts[number]
        x = to_device(self.x[part])
        self.outputs[number] = self.net.forward(x, context, part.stop - part.start, part.start, minibatch_size=11)

    def evaluate(self, number):
        self.net.forward(to_device(self.x[MICRO_BATCHES[number]]))

    def loss_of(self, number):
        context, labels = self.contexts[number], to_device(self.y[MICRO_BATCHES[number]])
        self.losses[number] = self.loss.forward(self.outputs[number], labels, context)
        return self.loss.backward(context)

    def backward(self, number):
        self.net.backward(self.loss_of(number), self.contexts[number])
        self.gradients[number] = to_host(self.net.grads).copy()

    def input_gradients(self, number):
        self.net.input_gradients(self.loss_of(number), self.contexts[number])

    def weights(self, number):
        self.net.parameter_gradients(self.contexts[number])
        self.gradients[number] = to_host(self.net.grads).copy()

    def run(self, schedule):
        """Do what the words of a schedule say, such as "F0 F1 B1 B0"; a state of running means does not matter here."""
        passes = {"F": self.forward, "E": self.evaluate, "B": self.backward, "I": self.input_gradients, "W": self.weights}
        for word in schedule.split():
            passes[word[0]](int(word[1]))
        return self


IN_TURN = "F0 B0 F1 B1 F2 B2"


@pytest.mark.parametrize("schedule", ["F2 F1 E0 F0 B0 B1 B2", "F0 F1 F2 I0 I1 I2 W2 W0 W1"])
@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_do_not_depend_on_the_order(name, schedule):
    expected, found = Training(name).run(IN_TURN), Training(name).run(schedule)
    for number in range(3):
        assert expected.gradients[number].any()
        assert np.array_equal(found.gradients[number], expected.gradients[number]), number
        assert found.losses[number] == expected.losses[number]


def test_the_bytes_of_a_context_are_counted():
    net, context = Sequential([Linear(6, 8), ReLU(), Linear(8, 2)], dtype=np.float64), Context()
    assert context.nbytes == 0
    net.forward(xp.ones((3, 6)), context)
    assert context.nbytes == 8 * 3 * (6 + 8 + 2), "the input, and the outputs of two layers; ReLU works in place"
    net.backward(xp.ones((3, 2)), context)
    assert context.nbytes == 8 * 3 * (6 + 8 + 2 + 8), "and one gradient"
    net.input_gradients(xp.ones((3, 2)), context)
    assert context.nbytes == 8 * 3 * (6 + 8 + 2 + 8 + 2 + 8), "the gradients of both outputs are kept"


# ----- observers


class Listening(Observer):
    """Writes down what it is told."""

    def __init__(self):
        self.told = []

    def begin(self, thing, phase, context):
        self.told.append(("begin", thing.name, phase))

    def end(self, thing, phase, context):
        self.told.append(("end", thing.name, phase))

    def written(self, layer):
        self.told.append(("written", layer.name))


def test_an_observer_is_told_of_a_step_and_of_the_passes_in_branches():
    net, listening = Sequential([Linear(3, 4), Residual([ReLU()]), Linear(4, 2)]), Listening()
    optimizer, loss = SGD(net, 0.1), LOSSES["mse"]()
    x, y = np.ones((5, 3), np.float32), np.ones((5, 2), np.float32)
    with net.observed_by(listening):
        net.learn(x, y, loss, optimizer)
        net.forward(to_device(x))  # an evaluation
    net.learn(x, y, loss, optimizer)
    whole = ["0 forward", "1 forward", "1.branch.0 forward", "2 forward", "loss forward", "loss backward", "2 gradients",
             "2 input_gradient", "1 backward", "1.branch.0 input_gradient", "0 gradients", "optimizer step"]  # fmt: skip
    begun = [" ".join(words) for event, *words in listening.told if event == "begin"]
    ended = [" ".join(words) for event, *words in listening.told if event == "end"]
    assert begun == whole and sorted(ended) == sorted(whole)
    assert ended.index("1.branch.0 forward") < ended.index("1 forward"), "a branch lies within the whole"
    assert [word[1] for word in listening.told if word[0] == "written"] == ["2", "0"]
    assert net.observer is None
