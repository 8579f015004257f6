"""Asynchronous pipelines end, and each of their gradients is of the weights that its forward pass used.

With several minibatches under way no serial training has the same gradients. So each rank notes the weights that it uses, a
serial network is given those of all ranks together, and its gradients are compared.
"""

import random
from dataclasses import replace
from functools import partial

import numpy as np

from gridgrad.nn import SGD
from tests.parallel.equality import on_first
from tests.parallel.stale_gradients import largest_difference, train_noting
from tests.random_networks.case import random_case
from tests.random_networks.checks import NUDGE, grid_of, placed, within_rounding

RATE = 1e-5  # so low that no deep network diverges, and a stale weight still shows in its gradient


def stale_case(seed, ranks):
    """The Case of a seed: a usual one, but deeper, and with an asynchronous pipeline of stages or of a partition on all ranks.

    Where whole layers belong to random ranks, activations go back and forth between these.
    """
    rng, usual = random.Random(f"stale {seed} {ranks}"), random_case(seed, ranks)
    in_flight = rng.randint(1, 2 * ranks + 1)
    bound = rng.choice(("", "", f":bound={rng.randint(0, in_flight)}"))
    case = replace(
        usual, layers=usual.layers * rng.randint(1, 3), shares=None, plan="hypergraph", grid={"model": ranks},
        owners=rng.choice(("layers", "coarse")), pipeline=f"async:{in_flight}{bound}", micro_batches=1,
        reduction="plain", update="whole", start="fresh",
        batch_sizes=tuple(rng.choice((1, 2, 3, 5)) for _ in range(in_flight + rng.randint(1, 8))),
    )  # fmt: skip
    if ranks > 1 and case.has_chain and case.plan_text() == "hypergraph" and rng.random() < 0.7:
        return case
    cuts = tuple(rng.randint(0, 12) for _ in range(rng.randint(1, 5)))
    return replace(case, plan="fewest-bytes", grid={"stage": ranks}, owners="", cuts=cuts)


def gradients_are_of_the_weights_used(case, comm):
    """Train with the pipeline of a Case; then the first rank compares all gradients. Collective."""
    with grid_of(case, comm) as grid:
        net, batches = placed(case, grid), case.batches()
        trainer = net.trainer(case.make_loss(), SGD(net, RATE))
        noted = comm.allgather(train_noting(net, trainer, batches))
    compare = partial(on_first, comm, largest_difference, case.network, case.make_loss(), batches, noted)
    difference = compare(0.0)
    assert np.isfinite(difference), f"{case!r} diverges"
    nudge = NUDGE[case.dtype]
    within_rounding(difference, lambda: [compare(nudge), compare(-nudge)], case)
