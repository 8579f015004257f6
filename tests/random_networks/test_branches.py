"""All pairs of branches, in one of the branching layers each, and some deeper structures."""

import pytest

from tests.random_networks.case import Case
from tests.random_networks.every import alone

SAME = (1, 1)  # padding of a window of three
BRANCHES = {  # that keep the shape of their input
    (4,): [
        [], [("Tanh",)], [("LeakyReLU", 0.3)], [("Dropout", 0.4)], [("Dropout", 0.0)], [("Flatten",)], [("TiedAutoencoder", 2)],
        [("Linear", 4)], [("Linear", 4), ("Tanh",)], [("Tanh",), ("Linear", 4)], [("Flatten",), ("Tanh",)], [("BatchNorm",)],
        [("BatchNorm",), ("ReLU",)], [("LocalResponseNorm", 3, 0.5)], [("Concat", [("Tanh",)])],
        [("Residual", [], [("Concat", []), ("Sigmoid",)]), ("Tanh",)],
    ],
    (4, 3, 2): [
        [], [("Tanh",)], [("Dropout", 0.4)], [("MaxPool2d", 3, 1, 1)], [("AvgPool2d", 3, 1, 1)],
        [("AvgPool2d", 3, 1, 1), ("Tanh",)], [("Conv2d", 2, 3, 1, 1)], [("Conv2d", 2, 3, 1, 1), ("MaxPool2d", 3, 1, 1)],
        [("Conv2d", 2, 1, 1, 0, False), ("BatchNorm",), ("ReLU",)], [("LocalResponseNorm", 2, 0.5)],
        [("Concat", [], [("Tanh",)]), ("Conv2d", 2), ("Residual", [], [("Sigmoid",)])],
    ],
}  # fmt: skip
WEIGHTS = {(4,): ("Linear", 4), (4, 3, 2): ("Conv2d", 2)}


def networks(shape):
    for i, a in enumerate(BRANCHES[shape]):
        for j, b in enumerate(BRANCHES[shape]):
            yield [(("Residual", "Concat")[(i + j) % 2], a, b)]
        yield [("Concat", a, a, a)]
        yield [("Residual", [("Residual", a, [("Residual", [], a)])], [("Concat", a), ("Concat", []), ("Tanh",)]),
               ("Residual", [], []), ("Concat", [("Residual", a, a)], [("Concat", [], a)], [])]  # fmt: skip


@pytest.mark.parametrize("shape", BRANCHES)
def test_all_pairs_of_branches(shape):
    for layers in networks(shape):
        alone(Case(layers=[WEIGHTS[shape], *layers], shape=shape, batch_sizes=(2,), loss="mse"), None)
