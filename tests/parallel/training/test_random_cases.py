"""Random networks on random grids, with random plans, shares, owner maps, optimizers, reductions, micro-batches and nodes,
equal the serial ones.

Each case follows from its seed alone: a failing one is repeated by its number.
"""

from functools import partial

import numpy as np

from nn import (
    OPTIMIZERS,
    AvgPool2d,
    BatchNorm,
    Concat,
    Conv2d,
    Dropout,
    Flatten,
    LeakyReLU,
    Linear,
    LocalResponseNorm,
    MaxPool2d,
    ReLU,
    Residual,
    Sequential,
    Sigmoid,
    Tanh,
)
from nn.sequence import output_shape
from parallel import Partition, ProcessGrid, parallelize
from parallel.placement.plans import weighted
from tests.mpi import mpi
from tests.parallel.equality import assert_same, grids, on_cpus, on_first, parallel, serial

CASES = 204  # seeds 0 to 203; of every four, two networks are dense and two have images
FEW = 56  # of them, in the short tests
STEPS = 3
ACTIVATIONS = ReLU, Tanh, Sigmoid, LeakyReLU


def dense(rng):
    """(layers, shape of a sample, outputs)."""
    features = width = int(rng.integers(3, 20))
    layers = []
    for _ in range(rng.integers(1, 4)):
        after = int(rng.integers(1, 24))
        layers += [Linear(width, after), ACTIVATIONS[rng.integers(4)]()]
        width = after
        if rng.random() < 0.3:
            layers.append(BatchNorm(width))
        if rng.random() < 0.3:
            layers.append(Dropout(0.3))
        if rng.random() < 0.2:
            layers.append(Residual([Linear(width, width), Tanh()]))
        if rng.random() < 0.2:
            layers.append(LocalResponseNorm(3, 0.5))
    outputs = int(rng.integers(2, 6))
    return [*layers, Linear(width, outputs)], (features,), outputs


def images(rng):
    """The same for images."""
    height, width, channels = (int(n) for n in (rng.integers(7, 15), rng.integers(6, 12), rng.integers(1, 4)))
    shape, layers, held = (height, width, channels), [], channels
    if rng.random() < 0.2:  # layers without parameters in front
        layers.append(Residual([ACTIVATIONS[rng.integers(4)]()]) if rng.random() < 0.5 else MaxPool2d(2, 1))
    elif rng.random() < 0.2:
        layers.append(BatchNorm(channels))
    for _ in range(rng.integers(1, 4)):
        rows, columns, _ = output_shape(layers, shape)
        after, kernel = int(rng.integers(1, 9)), int(min(rng.integers(1, 5), rows, columns))
        layers.append(Conv2d(held, after, kernel, stride=int(rng.integers(1, 3)), padding=kernel // 2, bias=rng.random() < 0.8))
        held = after
        kinds = [ReLU(), Tanh(), BatchNorm(held), LocalResponseNorm(5, 0.3), Dropout(0.2),
                 MaxPool2d(2, 1, 1), AvgPool2d(3, 1, 1), Residual([Conv2d(held, held, 3, padding=1), Sigmoid()]),
                 Concat([Conv2d(held, 3, 1)], [MaxPool2d(3, 1, 1)])]  # fmt: skip
        for number in rng.permutation(len(kinds))[: rng.integers(1, 4)]:
            layers.append(kinds[number])
            if number == 8:
                held += 3
                break  # the layers after it were made for fewer channels
    layers.append(Flatten())
    features, outputs = output_shape(layers, shape)[0], int(rng.integers(2, 6))
    return [*layers, Linear(features, outputs)], shape, outputs


def shares_of(rng, ranks):
    """Weights of the ranks of an axis, sometimes with a zero."""
    weights = rng.integers(0, 4, ranks)
    return tuple(int(w) for w in weights) if weights.any() else (1,) * ranks


class Case:
    """All that follows from a seed, the number of ranks and whether all of these compute on CPUs."""

    def __init__(self, seed, ranks, on_cpus=True):
        rng = self.rng = np.random.default_rng([seed, ranks])
        self.make = images if seed % 2 else dense
        self.layers_seed = int(rng.integers(1 << 30))
        net = self.network()
        axes = ("batch", "height", "model") if seed % 2 else ("batch", "model")
        places = grids(ranks, axes)
        self.sizes = places[rng.integers(len(places))]
        words = ["out", "out", "in", "replicate"]
        pixels = ["width"] + (["height"] if self.sizes.get("height") == 1 else [])
        self.plan = ",".join(rng.choice(words + (pixels if isinstance(layer, Conv2d) else [])) for layer in weighted(net))
        self.options, kind = {}, seed % 4 // 2
        if kind or rng.random() < 0.5:
            self.options["shares"] = {axis: shares_of(rng, n) for axis, n in self.sizes.items() if rng.random() < 0.8}
        if rng.random() < 0.6:
            self.options["owners"] = {
                layer.name: Partition.owned(rng.integers(0, self.sizes["model"], layer.outputs), self.sizes["model"])
                for layer in weighted(net) if rng.random() < 0.7
            }  # fmt: skip
        reduction = str(rng.choice(["plain", "overlap:1", "shared"]))
        self.options["reduction"] = "plain" if reduction == "shared" and not on_cpus else reduction
        self.options["sharded"] = bool(rng.random() < 0.5)
        self.micro_batches = int(rng.integers(1, 4))
        # Momentum keeps the differences of rounding as they are; what divides by small gradients makes them larger.
        name = str(rng.choice(["sgd", "adam"]))
        self.optimizer = partial(OPTIMIZERS[name], lr=0.01, **({"momentum": 0.9} if name == "sgd" else {"eps": 1e-3}))
        self.ranks_per_node = int(rng.integers(1, ranks + 1))
        self.words = (
            f"seed {seed}: {self.sizes} {self.plan} {self.options} {name}, {self.micro_batches} micro-batches, "
            f"{self.ranks_per_node} ranks a node\n{net}"
        )

    def network(self):
        layers, self.shape, self.outputs = self.make(np.random.default_rng(self.layers_seed))
        return Sequential(layers, seed=5, dtype=np.float64, input_shape=self.shape)

    def batches(self):
        """(x, y) of each minibatch, a list."""
        rng = np.random.default_rng(self.layers_seed)
        return [
            (rng.standard_normal((batch_size, *self.shape)), rng.integers(0, self.outputs, batch_size))
            for batch_size in rng.integers(1, 12, STEPS)
        ]


def check(comm, monkeypatch, seeds):
    """Also, a network that is placed in the same way and gets the state from rank 0 has the same state."""
    for seed in seeds:
        case = Case(seed, comm.size, on_cpus(comm))
        training = case.optimizer, "cross-entropy", case.batches(), case.micro_batches
        expected = on_first(comm, serial, case.network(), *training)
        monkeypatch.setenv("GRIDGRAD_RANKS_PER_NODE", str(case.ranks_per_node))
        with ProcessGrid(comm, **case.sizes) as grid:
            found = parallel(case.network(), grid, case.plan, *training, **case.options)
            restored = parallelize(case.network(), grid, case.plan, **case.options)
            restored.load_state_dict(found[1] if comm.rank == 0 else None)
            again = restored.state_dict()
        assert_same(found, expected, 1e-10, case.words)
        assert comm.rank or all(np.array_equal(again[name], value) for name, value in found[1].items()), case.words


@mpi(2, 3, 4, 5, 6, 7, 8)
def test_random_cases_equal_serial(comm, monkeypatch):
    check(comm, monkeypatch, range(comm.size - 2, FEW, 7))


@mpi(2, 3, 4, 5, 6, 7, 8, long=(2, 3, 4, 5, 6, 7, 8))
def test_more_random_cases_equal_serial(comm, monkeypatch):
    check(comm, monkeypatch, range(FEW + comm.size - 2, CASES, 7))
