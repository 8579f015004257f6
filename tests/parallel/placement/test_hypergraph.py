"""The plan "hypergraph": what is sent and held, its products, and what it refuses. Random networks train with any partition."""

from functools import partial
from itertools import combinations

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
    MaxPool2d,
    ReLU,
    Residual,
    Sequential,
    SparseLinear,
    Tanh,
)
from gridgrad.nn.device import to_device, to_host
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.grid.process_grid import GridDescription
from gridgrad.parallel.partitioning.network_hypergraph import of_network
from gridgrad.parallel.placement.plan import weighted
from gridgrad.parallel.plans.hypergraph import MOST_PRODUCTS, Owners, PairedLayer, rectangles
from gridgrad.parallel.plans.place_network import place
from gridgrad.parallel.training.steps import train_step
from tests.mpi import mpi
from tests.parallel.equality import assert_same, block, parallel, serial

SHAPE, CLASSES, SAMPLES = (8, 7, 3), 4, 9


def branching():
    """Branches that take one array together, and ones that begin with a layer without weights or are empty."""
    return [
        Conv2d(3, 7, 3, padding=1), ReLU(), MaxPool2d(2),
        Residual([Conv2d(7, 6, 3, padding=1, bias=False), BatchNorm(6), ReLU(), Conv2d(6, 7, 3, padding=1)]), ReLU(),
        Residual([Conv2d(7, 6, 3, 2, 1), ReLU(), Conv2d(6, 9, 3, padding=1)], [Conv2d(7, 9, 1, 2), BatchNorm(9)]), ReLU(),
        Concat([Conv2d(9, 3, 1)], [Conv2d(9, 2, 1), ReLU(), Conv2d(2, 4, 3, padding=1)],
               [MaxPool2d(3, 1, 1), Conv2d(9, 2, 1)], []),
        Dropout(0.3), Flatten(), Linear(18 * 2 * 2, 11), Tanh(), Linear(11, CLASSES),
    ]  # fmt: skip


def narrow():
    """Fewer filters and neurons than ranks."""
    return [Conv2d(3, 2, 3, 2), Tanh(), Conv2d(2, 1, 1), Flatten(), Linear(9, 3), Tanh(), Linear(3, CLASSES)]


def net_of(layers, dtype=np.float64):
    return Sequential(layers(), seed=3, dtype=dtype, input_shape=SHAPE)


def batches(samples=SAMPLES, steps=3, dtype=np.float64):
    for step in range(steps):
        rng = np.random.default_rng(step)
        yield rng.standard_normal((samples, *SHAPE)).astype(dtype), rng.integers(0, CLASSES, samples)


sgd = partial(SGD, lr=0.05, momentum=0.9)


def random_owners(layers, ranks, seed, fine=0.0):
    """Random Owners, for a share `fine` of the layers with a fine grain. Parts have any sizes, and some are empty."""
    rng = np.random.default_rng(seed)
    found = weighted(net_of(layers))

    def draw(shape):
        weights = rng.random(ranks) ** 3 * (rng.random(ranks) < 0.8)
        weights[rng.integers(ranks)] += 0.1
        return rng.choice(ranks, shape, p=weights / weights.sum())

    outputs = {layer.name: draw(layer.outputs) for layer in found}
    pairs = {layer.name: draw((layer.inputs, layer.outputs)) for layer in found if rng.random() < fine}
    return Owners(ranks, outputs, pairs, int(rng.integers(ranks)))


def trained(layers, comm, owners, micro_batches=1, **options):
    options |= {"owners": owners}
    with ProcessGrid(comm, batch=comm.size // owners.ranks, model=owners.ranks) as grid:
        return parallel(net_of(layers), grid, "hypergraph", sgd, "cross-entropy", batches(), micro_batches, **options)


def expected(layers, micro_batches=1):
    return serial(net_of(layers), sgd, "cross-entropy", batches(), micro_batches)


@mpi(3)
def test_one_rank_may_own_everything(comm):
    for owner in range(3):
        found = weighted(net_of(branching))
        owners = Owners(3, {layer.name: np.full(layer.outputs, owner) for layer in found}, loss=owner)
        assert_same(trained(branching, comm, owners), expected(branching), 1e-10, f"owner {owner}")


@mpi(4)
def test_the_same_partition_twice_is_bitwise_equal(comm):
    owners = random_owners(branching, 4, 7, 0.5)
    (losses, state), (again, state_again) = (trained(branching, comm, owners) for _ in range(2))
    assert losses == again
    assert all((state[name] == state_again[name]).all() for name in state)


@mpi(3)
def test_weights_come_and_go_as_those_of_the_serial_network(comm):
    owners, state = random_owners(branching, 3, 5, 1.0), net_of(branching).state_dict()
    other = Sequential(branching(), seed=8, dtype=np.float64, input_shape=SHAPE).state_dict()
    with ProcessGrid(comm, model=3) as grid:
        net = parallelize(net_of(branching), grid, "hypergraph", owners=owners)
        drawn = net.state_dict(everywhere=True)
        net.load_state_dict(other)
        loaded = net.state_dict(everywhere=True)
    assert all((drawn[name] == state[name]).all() and (loaded[name] == other[name]).all() for name in state)


@mpi(3)
def test_the_halves_of_backward_may_be_separate(comm):
    """Gradients of the inputs first, and those of the parameters later."""
    (x, y), loss, found = next(iter(batches())), LOSSES["cross-entropy"](), []
    with ProcessGrid(comm, model=3) as grid:
        net = parallelize(net_of(branching), grid, "hypergraph", owners=random_owners(branching, 3, 11, 0.6))
        mine, labels = map(to_device, block(net, x, y))
        for separate in (False, True):
            context = Context()
            loss.forward(net.forward(mine, context, batch_size=len(x)), labels, context)
            dy = loss.backward(context)
            net.reduction.start()
            if separate:
                net.input_gradients(dy, context)
                net.parameter_gradients(context)
            else:
                net.backward(dy, context)
            net.reduction.finish()
            found.append(to_host(net.grads).copy())
    assert np.allclose(*found, rtol=1e-12, atol=1e-14)


@mpi(2, 3, 4, 5)
def test_bytes_and_messages_on_the_wire_are_those_of_the_hypergraph(comm):
    """For each rank: forward its messages, and backward those that return to it."""
    (x, y), ranks, rank = next(iter(batches())), comm.size, comm.rank
    for layers, grain in ((branching, "coarse"), (branching, "fine"), (narrow, "coarse"), (narrow, "fine")):
        owners, net = random_owners(layers, ranks, 1), net_of(layers)
        pairs = {layer.name: np.random.default_rng(1).integers(0, ranks, (layer.inputs, layer.outputs))
                 for layer in weighted(net) if layer.kind == "conv" and grain == "fine"}  # fmt: skip
        owners = Owners(ranks, owners.outputs, pairs, owners.loss)
        model = of_network(net, grain, neuron_blocks=None)
        traffic = model.hypergraph.traffic(model.parts(owners), ranks)
        with ProcessGrid(comm, model=ranks) as grid:
            net = parallelize(net, grid, "hypergraph", owners=owners)
            optimizer = sgd(net)
            grid.tally.clear()
            train_step(net, LOSSES["cross-entropy"](), optimizer, *block(net, x, y), len(x))
            records = [record for (_, kind), record in grid.tally.records.items() if kind == "exchange"]
        both = traffic[:, rank], traffic[:, :, rank]
        assert sum(record.bytes for record in records) == sum(map(np.sum, both)) * len(x) * 8, (layers, grain)
        assert sum(record.messages for record in records) == sum(map(np.count_nonzero, both)), (layers, grain)


def test_products_are_few_and_cover_the_pairs():
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 2, (3, 5)).repeat(4, 0).repeat(6, 1).astype(bool)
    several = blocks, rng.random((20, 30)) < 0.3, rng.random((9, 200)) < 0.5, np.zeros((4, 5), bool), np.ones((1, 1), bool)
    for owned in several:
        found = rectangles(owned)
        assert len(found) <= MOST_PRODUCTS
        covered = np.zeros(owned.shape, int)
        for rows, columns in found:
            covered[np.ix_(rows, columns)] += 1
        assert covered.max(initial=0) <= 1 and (covered[owned] == 1).all()
        outputs = [column for _, columns in found for column in columns]
        assert sorted(outputs) == list(np.flatnonzero(owned.any(0)))
    assert all(covered == 1 for rows, columns in rectangles(blocks) for covered in [blocks[np.ix_(rows, columns)].mean()])


def test_the_two_products_are_joined_that_add_the_fewest_zeros():
    rng = np.random.default_rng(1)
    for _ in range(20):
        patterns = rng.random((MOST_PRODUCTS + 1, 17)) < 0.4
        counts = rng.integers(1, 5, len(patterns))
        owned = patterns.repeat(counts, axis=0).T
        computed = sum(len(rows) * len(columns) for rows, columns in rectangles(owned))
        joined = (owned.sum() + zeros(patterns, counts, a, b) for a, b in combinations(range(len(patterns)), 2))
        assert computed == min(joined)


def zeros(patterns, counts, a, b):
    """How many zeros are multiplied if the groups of outputs a and b, so many with the same inputs, are one product."""
    both = (patterns[a] | patterns[b]).sum()
    return sum(counts[one] * (both - patterns[one].sum()) for one in (a, b))


def test_a_layer_in_the_coarse_grain_is_an_ordinary_block():
    net, grid = net_of(branching), GridDescription({"batch": 1, "height": 1, "model": 4}, {"model": 1})
    coarse = place(net, grid, "hypergraph", owners=random_owners(branching, 4, 1)).layers
    fine = place(net_of(branching), grid, "hypergraph", owners=random_owners(branching, 4, 1, 1.0)).layers
    assert not any(isinstance(layer, PairedLayer) for layer in coarse) and any(isinstance(layer, PairedLayer) for layer in fine)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda o: Owners(3, o.outputs), "for 3 ranks, the axis model has 2"),
        (lambda o: Owners(2, {k: v for k, v in o.outputs.items() if k != "0"}), "there are none for layer 0"),
        (lambda o: Owners(2, o.outputs | {"99": [0]}), "there is no layer 99"),
        (lambda o: Owners(2, o.outputs | {"0": [0, 1, 1]}), "has 2 outputs, not 3"),
        (lambda o: Owners(2, o.outputs, {"0": np.zeros((2, 2), int)}), "has 3 inputs, not 2"),
        (lambda o: Owners(2, o.outputs, {"0": np.zeros((3, 1), int)}), "one rank for each output"),
        (lambda o: Owners(2, o.outputs | {"0": [0, 2]}), "ranks from 0 to 1"),
        (lambda o: Owners(2, o.outputs | {"0": [0.0, 1.0]}), "array of ranks"),
        (lambda o: Owners(2, o.outputs, loss=2), "loss is at rank 2"),
        (lambda o: None, "needs owners"),
        (lambda o: {"0": [0, 1]}, "needs owners"),
    ],
)
def test_owners_that_do_not_fit_are_refused_in_one_line(change, words):
    grid = GridDescription({"batch": 1, "height": 1, "model": 2}, {"model": 0})
    with pytest.raises(ValueError, match=words) as error:
        place(net_of(narrow), grid, "hypergraph", owners=change(random_owners(narrow, 2, 0)))
    assert "\n" not in str(error.value)


def test_it_does_not_mix_with_other_plans_nor_the_axis_height():
    owners, net, sizes = random_owners(narrow, 2, 0), net_of(narrow), {"batch": 1, "height": 1, "model": 2}
    with pytest.raises(ValueError, match="whole algorithm"):
        place(net, GridDescription(sizes, {}), "hypergraph,out,out,out", owners=owners)
    with pytest.raises(ValueError, match="no rule for the axis height"):
        place(net, GridDescription(sizes | {"height": 2}, {}), "hypergraph", owners=owners)
    with pytest.raises(ValueError, match="for the plan hypergraph"):
        place(net, GridDescription(sizes, {}), "out", owners=owners)


def test_a_sparse_layer_has_no_fine_grain():
    net = Sequential([SparseLinear(np.eye(4, dtype=bool)), Linear(4, 2)], input_shape=(4,))
    owners = Owners(2, {"0": [0, 0, 1, 1], "1": [0, 1]}, {"0": np.zeros((4, 4), int)})
    with pytest.raises(ValueError, match="is sparse and has no fine grain"):
        place(net, GridDescription({"batch": 1, "height": 1, "model": 2}, {"model": 0}), "hypergraph", owners=owners)


@mpi(2, 3, 4)
def test_sparse_layers_receive_what_their_neurons_need(comm):
    rng = np.random.default_rng(2)
    patterns = [rng.random(shape) < 0.15 for shape in ((13, 17), (17, 11), (11, CLASSES))]

    def make():
        layers = [layer for pattern in patterns for layer in (SparseLinear(pattern), Tanh())]
        return Sequential(layers[:-1], seed=5, dtype=np.float64, input_shape=(13,))

    few = [(rng.standard_normal((7, 13)), rng.integers(0, CLASSES, 7)) for _ in range(4)]
    wanted = serial(make(), sgd, "cross-entropy", few)
    for seed in range(6):
        draw = np.random.default_rng(seed)
        owners = Owners(comm.size, {layer.name: draw.integers(0, comm.size, layer.outputs) for layer in weighted(make())})
        with ProcessGrid(comm, model=comm.size) as grid:
            found = parallel(make(), grid, "hypergraph", sgd, "cross-entropy", few, owners=owners)
        assert_same(found, wanted, 1e-10, f"seed {seed}")
        assert all((found[1][f"{2 * i}.weight"].T[~pattern] == 0).all() for i, pattern in enumerate(patterns))
