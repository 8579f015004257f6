"""How long each layer of a network takes in a training step, by which it can be cut into chunks of about the same time."""

from gridgrad.nn import SGD, SoftmaxCrossEntropy
from gridgrad.parallel import ProcessGrid, Profile, parallelize

WARM_UP, STEPS = 2, 5


def layer_seconds(net, x, y, comm):
    """The seconds of each layer of `net.layers` in a training step on this rank alone.

    net: a serial Sequential that was never used. x, y: a minibatch. comm: of one rank.
    """
    with ProcessGrid(comm) as grid:
        placed = parallelize(net, grid, reduction="plain")
        optimizer, loss = SGD(placed, lr=1e-4), SoftmaxCrossEntropy()
        for _ in range(WARM_UP):
            placed.learn(x, y, loss, optimizer)
        with Profile(placed) as profile:
            for _ in range(STEPS):
                placed.learn(x, y, loss, optimizer)
        seconds = {}
        for row in profile.rows(STEPS):
            own = sum(value for key, value in row.items() if key not in ("layer", "kind"))
            name = row["layer"].split(".")[0]  # a layer in a branch counts for the layer around it
            seconds[name] = seconds.get(name, 0.0) + own
    return [seconds.get(layer.name, 0.0) for layer in net.layers]
