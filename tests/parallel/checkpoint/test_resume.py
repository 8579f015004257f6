"""A training that is resumed on any grid equals the one that was not interrupted: bit by bit where the grid is the same."""

from functools import partial
from itertools import product

import numpy as np

from gridgrad.nn import OPTIMIZERS
from tests.mpi import mpi
from tests.parallel.checkpoint.training import GRIDS, Training, folder, images, minibatches, part_of
from tests.parallel.equality import assert_same, on_cpus, on_first, serial

SAVED, STEPS = 2, 4
MAKE = {  # what divides by small gradients makes differences of rounding larger
    "sgd": partial(OPTIMIZERS["sgd"], lr=lambda step: 0.05 / (1 + step), momentum=0.9),
    "adam": partial(OPTIMIZERS["adam"], lr=0.01, eps=1e-3),
    "adagrad": partial(OPTIMIZERS["adagrad"], lr=0.01, eps=1e-3),
    "adadelta": partial(OPTIMIZERS["adadelta"], lr=0.5, eps=1e-3),
}
REDUCTIONS = [
    ("plain", "whole"), ("plain", "sharded"), ("overlap:1", "sharded"), ("shared", "sharded"), ("shared", "whole"),
    ("overlap:1", "whole"),
]  # fmt: skip


def options_of(comm, number, sizes):
    """How gradients are summed on a grid: all ways in turn."""
    ways = REDUCTIONS if on_cpus(comm) and "stage" not in sizes else [way for way in REDUCTIONS if way[0] != "shared"]
    reduction, update = ways[number % len(ways)]
    return {"reduction": reduction, "update": update}


def check(comm, optimizer, micro_batches, pairs):
    """Save on the first grid of each pair of numbers, resume on the second one."""
    batches, make = minibatches(STEPS), MAKE[optimizer]
    expected = on_first(comm, serial, images(), make, "cross-entropy", batches, micro_batches)
    start = partial(Training, optimizer=make, micro_batches=micro_batches)
    with folder(comm) as directory:
        went_on = {}
        for first in sorted({first for first, _ in pairs}):
            with part_of(comm, GRIDS[first]) as grid:
                if grid:
                    training = start(grid, images(), **options_of(grid.comm, first, GRIDS[first])).train(batches[:SAVED])
                    training.save(f"{directory}/{first}").train(batches)
                    assert_same((training.losses, training.state()), expected, 1e-10, GRIDS[first])
                    went_on[first] = training.losses[SAVED:], training.bits()
        for number, (first, second) in enumerate(pairs):
            with part_of(comm, GRIDS[second]) as grid:
                if grid:
                    way = first if first == second else number + second
                    training = start(grid, images(), **options_of(grid.comm, way, GRIDS[second]))
                    training.resume(f"{directory}/{first}").train(batches)
                    words = f"{optimizer}, {GRIDS[first]} -> {GRIDS[second]}"
                    assert training.net.step == STEPS and len(training.losses) == STEPS - SAVED
                    assert_same((training.losses, training.state()), (expected[0][SAVED:], expected[1]), 1e-10, words)
                    if first == second:
                        losses, (arrays, numbers) = went_on[first]
                        found, found_numbers = training.bits()
                        assert training.losses == losses and found_numbers == numbers, words
                        assert all(np.array_equal(*each) for each in zip(found, arrays, strict=True)), words


@mpi(8, long=(8,), timeout=300)
def test_each_grid_resumes_its_own_and_two_others(comm):
    """What each grid saves, with one of the optimizers."""
    pairs = [(first, (first + further) % len(GRIDS)) for first in range(len(GRIDS)) for further in (0, 1, 3)]
    for number, optimizer in enumerate(MAKE):
        check(comm, optimizer, 1 + number % 2, [pair for pair in pairs if pair[0] % len(MAKE) == number])


@mpi(8, long=(8,), timeout=900)
def test_all_pairs_of_grids_with_all_optimizers(comm):
    for optimizer, micro_batches in product(MAKE, (1, 3)):
        check(comm, optimizer, micro_batches, list(product(range(len(GRIDS)), repeat=2)))
