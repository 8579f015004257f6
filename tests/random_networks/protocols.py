"""What update protocols promise, with random networks, workers of any shape, and minibatches with few samples."""

import random
from dataclasses import replace

import numpy as np

from gridgrad.nn import LOSSES, SGD, Context
from gridgrad.nn.device import to_device, to_host
from gridgrad.parallel.training.steps import minibatch_indices
from tests.parallel.equality import error
from tests.parallel.protocols.training import spread, train
from tests.random_networks.layers import BRANCHING

STEPS, LR = 5, 0.05
APART = "BatchNorm", "Dropout"  # layers that differ between workers and one network, by their definition
SERIAL = "server:bsp", "server:bsp:single", "server:bsp:round-robin", "server:ssp:0", "local:1", "admm:1", "post-local:9:3"
SAME = {  # protocols that are another one with these numbers
    "diloco:2:lr=1:momentum=0": "local:2", "slowmo:2:0": "local:2", "admm:2": "local:2", "post-local:0:3": "local:3",
    "diloco:1:lr=1:momentum=0": "local:1",
}  # fmt: skip
ANY = (
    "diloco:2", "diloco:3:fragments=2", "easgd:2:0.1", "sgp", "parallel-sgd", "parallel-sgd:epoch", "parallel-sgd:shuffle",
    "parallel-sgd:exchange", "parallel-sgd:shuffle:exchange", "server:asp", "server:ssp:1", "downpour:2:3", "admm:2:rho=0.1",
    "slowmo:2:0.5",
)  # fmt: skip


def keeps_its_promise(case, comm):
    """One of the promises, drawn by the seed of the Case."""
    rng = random.Random(case.seed)
    case = for_workers(case)
    count, batch_size = rng.choice((1, 3, 7, 11)), rng.choice((1, 2, 3, 5))
    data = case.batch(np.random.default_rng(case.seed), count)
    promise = rng.choice(("serial", "serial", "same", "equal"))
    if promise == "serial":
        text = rng.choice(SERIAL + (ANY if case.grid.get("batch", 1) == 1 else ()))
        expected = serial_state(case, data, batch_size)
    elif promise == "same":
        text = rng.choice(list(SAME))
        expected = trained(case, comm, SAME[text], data, batch_size)
    else:
        text, expected = rng.choice(ANY), None
    found = trained(case, comm, text, data, batch_size)
    for other in comm.allgather(found):
        if finite(expected or found):
            assert error(other, expected or found) < 1e-10, (text, batch_size, count, case)
        else:  # a training that diverges does so on all ranks, and where the promise names another one, with that one
            assert not finite(other), (text, batch_size, count, case)
            assert expected or not finite(serial_state(case, data, batch_size)), (text, batch_size, count, case)


def for_workers(case):
    """A Case like another one that workers can train as one network does."""
    case = replace(
        case, layers=without(case.layers, APART), start="used", samples="normal", loss="cross-entropy", dtype="float64"
    )
    return replace(case, shares={axis: n for axis, n in (case.shares or {}).items() if axis != "batch"})


def finite(state):
    return all(np.isfinite(value).all() for value in state.values())


def without(values, names):
    """A list of layers without those of some names, in branches too."""
    kept = [value for value in values if value[0] not in names]
    return [(value[0], *(without(branch, names) for branch in value[1:])) if value[0] in BRANCHING else value for value in kept]


def trained(case, comm, text, data, batch_size):
    """The state of the network after training on a grid whose workers follow a protocol. Collective."""
    plan, options = case.placing()
    pipelining = {name: value for name, value in case.options().items() if name in ("pipeline", "micro_batches", "cuts")}
    with spread(comm, case.grid, case.network(), plan=plan, **options, **pipelining) as (net, workers):
        net.step = 0
        train(net, workers, text, data, STEPS, lr=LR, batch_size=batch_size)
        return net.state_dict(everywhere=True)


def serial_state(case, data, batch_size):
    """The state after the same steps by the plain Sequential."""
    net, context, loss = case.network(), Context(), LOSSES["cross-entropy"]()
    net.step = 0
    optimizer, (x, y) = SGD(net, LR), data
    for step in range(STEPS):
        indices, _ = minibatch_indices(len(x), batch_size, 0, step)
        loss.forward(net.forward(to_device(x[indices]), context), to_device(y[indices]), context)
        net.backward(loss.backward(context), context)
        optimizer.step()
        net.step += 1
    return {name: to_host(value) for name, value in net.state_dict().items()}
