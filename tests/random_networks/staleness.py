"""Asynchronous pipelines end, and each of their gradients is of the weights that its forward pass used.

With several minibatches under way no serial training has the same gradients. So each rank notes the weights that it uses, a
serial network is given those of all ranks together, and its gradients are compared.
"""

import random
from collections import defaultdict
from dataclasses import replace
from functools import partial

import numpy as np

from gridgrad.nn import SGD, Context
from gridgrad.nn.device import to_device, to_host
from gridgrad.nn.kernels.window import put
from gridgrad.nn.sequence import leaves
from tests.parallel.equality import on_first
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


# ----- the comparison


def train_noting(net, trainer, batches):
    """Train this rank's part of a network with a pipeline, and return what it noted of each minibatch.

    That is (weights at forward, gradients when they are summed), both {step: [((layer, parameter), index, values), ..]}.
    """
    used, found = {}, {}
    note(net, used, found)
    for x, y in batches:
        trainer.step([net.blocks(x, y)], len(x))
    trainer.flush()
    return used, found


def note(net, used, found):
    """Have the weights noted at each forward, and the gradients when they have been summed over ranks."""
    chunks, finish = net.executor.chunks.values(), net.reduction.finish

    def blocks(chunk, values):
        pairs = [(layer, p) for layer in leaves(chunk.layers) for p in layer.parameters]
        return [((layer.name, p.name), p.index, to_host(values(p)).copy()) for layer, p in pairs]

    def noting(chunk, forward):
        def noting_forward(x, context):
            used.setdefault(context.step, []).extend(blocks(chunk, lambda p: p.value))
            return forward(x, context)

        return noting_forward

    def noting_finish():
        finish()
        found[net.step] = [block for chunk in chunks for block in blocks(chunk, lambda p: p.grad)]

    for chunk in chunks:
        chunk.forward = noting(chunk, chunk.forward)
    net.reduction.finish = noting_finish


def gradients_of(serial, loss, weights, x, y, step):
    """{(layer, parameter): gradient} of a serial network with these weights, {(layer, parameter): values}."""
    for layer, p in serial.parameters:
        p.load(weights[layer.name, p.name])
    serial.step, context = step, Context()
    loss.forward(serial.forward(to_device(x), context), to_device(y), context)
    serial.backward(loss.backward(context), context)
    return {(layer.name, p.name): to_host(p.grad) for layer, p in serial.parameters}


def largest_difference(make_serial, loss, batches, noted, nudge=0.0):
    """The largest difference between a gradient of a pipeline and that of the serial network with the weights that it used.

    noted: what `train_noting` returned, of all ranks. nudge: by how much the weights are changed, relatively; then the
    difference is that of the two serial gradients.
    """
    first = min(step for used, _ in noted for step in used)
    rng, most = np.random.default_rng(0), 0.0
    for step, (x, y) in enumerate(batches, first):
        weights = {(layer.name, p.name): np.zeros(p.shape) for layer, p in make_serial().parameters}
        for used, _ in noted:
            for name, index, value in used.get(step, ()):
                put(weights[name], index, value)
        expected, compared = gradients_of(make_serial(), loss, weights, x, y, step), defaultdict(int)
        if nudge:
            other = {name: value * (1 + nudge * rng.choice((-1, 1), value.shape)) for name, value in weights.items()}
            nudged = gradients_of(make_serial(), loss, other, x, y, step)
            most = max(most, *(np.abs(nudged[name] - expected[name]).max(initial=0) for name in expected))
            continue
        for _, found in noted:
            for name, index, value in found.get(step, ()):
                whole, mine = np.zeros_like(expected[name]), np.zeros_like(expected[name])
                put(whole, index, value)
                put(mine, index, np.ones_like(value))
                most = max(most, np.abs(whole - mine * expected[name]).max(initial=0))
                compared[name] += mine
        missing = [name for name, gradient in expected.items() if np.any(gradient * (compared[name] == 0))]
        assert not missing, f"nobody has all gradients of {missing} in step {step}"
    return most
