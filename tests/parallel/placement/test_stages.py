"""Placing on stages: exactly one stage holds each element, and blocks along the other axes are as without stages."""

from itertools import product

import numpy as np
import pytest

from gridgrad.parallel.grid.process_grid import STAGE, GridDescription, places
from gridgrad.parallel.pipeline.schedule import Route
from gridgrad.parallel.placement.partition import indices
from gridgrad.parallel.plans.place_network import check_cuts, cut, place
from gridgrad.parallel.training.distribute import balanced_cuts, cuts_of
from tests.parallel.equality import grids
from tests.parallel.pipelines import dense, images, mlp, serial_net, single

SAMPLES = 7


def routes(stages):
    return [Route.contiguous(stages), Route.looped(stages, 2), Route.v_shaped(stages), Route.of_stages(reversed(range(stages)))]


def some_cuts(layers, chunks):
    """Balanced ones; all layers in the first chunk; all in the last one; the middle chunks empty."""
    half = layers // 2
    return [(layers,) * (chunks - 1), (0,) * (chunks - 1), (half,) * (chunks - 1)]


def covered(layout, everywhere):
    """How many of the ranks that count hold each element."""
    count = np.zeros(layout.shape, int)
    for at in everywhere:
        if layout.is_counted(at):
            count[np.ix_(*(indices(part) for part in layout.block(at)))] += 1
    return count


@pytest.mark.parametrize("ranks", range(1, 9))
def test_one_stage_holds_each_element(ranks):
    for layers, axes in ((images, (STAGE, "batch", "height", "model")), (dense, (STAGE, "batch", "model"))):
        for number, sizes in enumerate(grids(ranks, axes)):
            description, without = GridDescription(sizes), GridDescription(sizes | {STAGE: 1})
            everywhere = places(description.sizes)
            route = routes(sizes[STAGE])[number % 4]
            serial = serial_net(layers)
            options = [balanced_cuts(serial, route.chunks), *some_cuts(len(serial.layers), route.chunks)]
            cuts = options[number // 4 % 4]
            stages = [stage for (stage,) in route.places]
            net = place(serial_net(layers), description, "fewest-bytes", cuts=cuts, places=stages)
            plain = place(serial_net(layers), without, "fewest-bytes")
            assert (covered(net.input.of(SAMPLES), everywhere) == 1).all()
            assert (covered(net.output.of(SAMPLES), everywhere) == 1).all()
            assert len(net.chunks) == route.chunks == len(net.between) - 1
            arrays = lambda placed: {  # noqa: E731
                f"{leaf.name}.{p.name}": p
                for layer in placed.layers for leaf in flat(layer) for p in (*leaf.parameters, *leaf.buffers)
            }  # fmt: skip
            mine, others = arrays(net), arrays(plain)
            assert mine.keys() == others.keys()
            for chunk, stage in zip(net.chunks, stages, strict=True):
                for p in (p for layer in chunk for leaf in flat(layer) for p in (*leaf.parameters, *leaf.buffers)):
                    assert (covered(p.layout, everywhere) == 1).all()
                    for at in everywhere:
                        assert (p.layout.local_shape(at) == p.layout.local_shape(at | {STAGE: stage})) == (
                            at[STAGE] == stage or 0 in p.layout.local_shape(at | {STAGE: stage})
                            and p.layout.local_shape(at)[1:] == p.layout.local_shape(at | {STAGE: stage})[1:]
                        )  # fmt: skip
            for name, p in mine.items():
                blocks = [p.layout.local_shape(at) for at in everywhere]
                held = [block for block in blocks if 0 not in block]
                expected = [others[name].layout.local_shape(at) for at in places(without.sizes)]
                assert sorted(held) == sorted(block for block in expected if 0 not in block), (sizes, name)


def flat(layer):
    """The layers without branches in a layer."""
    if not layer.children:
        return [layer]
    return [leaf for branch in layer.children for inner in branch for leaf in flat(inner)]


def test_the_blocks_of_a_rank_are_those_of_its_layout():
    sizes = {STAGE: 3, "batch": 2, "model": 2}
    for at in places(GridDescription(sizes).sizes):
        placed = place(serial_net(mlp), GridDescription(sizes, at), "out", cuts=(2, 4), places=(0, 1, 2))
        for chunk, stage in zip(placed.chunks, range(3), strict=True):
            for layer in chunk:
                for p in layer.parameters:
                    assert p.block_shape == p.layout.local_shape(at)
                    assert (p.size > 0) == (at[STAGE] == stage)


def test_cuts():
    layers = [None] * 5
    assert cut(layers, ()) == [layers]
    assert [len(part) for part in cut(layers, (0, 2, 2, 5))] == [0, 2, 0, 3, 0]
    check_cuts((0, 2, 2, 5), layers)
    check_cuts([], layers)
    check_cuts(list(np.array([1, 2])), layers)
    for wrong in ((2, 1), (6,), (-1,), (1.0,), "1", 1, None, (None,)):
        with pytest.raises(ValueError, match="cuts .*: they must be whole numbers"):
            check_cuts(wrong, layers)


def test_balanced_cuts_have_the_shortest_longest_chunk():
    rng = np.random.default_rng(0)
    for _ in range(60):
        work = rng.integers(0, 9, rng.integers(1, 8)).tolist()
        for chunks in range(1, 5):
            found = cuts_of(work, chunks)
            check_cuts(found, work)
            assert len(found) == chunks - 1
            longest = lambda cuts: max(map(sum, cut(work, cuts)))  # noqa: B023, E731
            every = [cuts for cuts in product(range(len(work) + 1), repeat=chunks - 1) if list(cuts) == sorted(cuts)]
            assert longest(found) == min(map(longest, every))
    for layers in (mlp, dense, images, single):
        for chunks in (1, 2, 3, 7):
            check_cuts(balanced_cuts(serial_net(layers), chunks), serial_net(layers).layers)
