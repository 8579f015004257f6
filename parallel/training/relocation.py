"""Moving a network that is being trained to other shares: its parameters, its buffers and the state of its optimizer."""

from math import prod

from gridgrad.nn.device import xp
from gridgrad.parallel.placement.layout import move_block
from gridgrad.parallel.placement.partition import size


def relocate(net, optimizer, placed):
    """Change a ParallelSequential to another placing, with the same plan on the same grid. Collective. Earlier contexts are of
    no use then. For a moment a rank holds parameters and optimizer's state twice, the latter whole."""
    params, buffers = net.params, [buffer.value for _, buffer in net.buffers]
    state, numbers = whole_state(net, optimizer), optimizer.state_numbers()
    relocation = Relocation(net)
    net.adopt(placed)
    net.allocate()
    moved = relocation.flat(params)
    with net.exclusive():
        net.params[...] = moved
    for (_, buffer), value in zip(net.buffers, relocation.buffers(buffers), strict=True):
        buffer.value[...] = value
    optimizer.attach()
    state = {name: relocation.flat(array) for name, array in state.items()}
    owned = {name: joined([whole[where] for where in net.reduction.owned], net.dtype) for name, whole in state.items()}
    optimizer.load_state(owned, numbers | {"owned": optimizer.owned})
    if net.observer is not None:
        net.observer.relocated(relocation)


class Relocation:
    """Moves arrays that are laid out as the parameters or buffers of a network were when this was made, to the layouts that the
    network has when a method is called. All methods are collective."""

    def __init__(self, net):
        self.net = net
        self._before = [(p.layout, p.block_shape) for _, p in net.parameters]
        self._buffers_before = [buffer.layout for _, buffer in net.buffers]

    def flat(self, array):
        """A flat array that was laid out as `net.params` before, laid out as it is now."""
        moved, start = [], 0
        for (before, shape), (_, p) in zip(self._before, self.net.parameters, strict=True):
            stop = start + prod(shape)
            moved.append(self._moved(array[start:stop].reshape(shape), before, p.layout).reshape(-1))
            start = stop
        return joined(moved, array.dtype)

    def buffers(self, arrays):
        """Arrays that were laid out as the values of `net.buffers` before, laid out as they are now: a list."""
        now = [buffer.layout for _, buffer in self.net.buffers]
        return [self._moved(*each) for each in zip(arrays, self._buffers_before, now, strict=True)]

    def _moved(self, block, before, now):
        return move_block(self.net.grid, block, before, now, "relocation")


def whole_state(net, optimizer):
    """{name: array laid out as `net.params`} of an optimizer's state, also if each rank updates only its shard. Collective."""
    state = {name: spread(net, array) for name, array in optimizer.state_arrays().items()}
    if not net.reduction.sharded or not state:
        return state
    ones = xp.ones(sum(map(size, net.reduction.owned)), net.dtype)
    copies = spread(net, ones)  # summed below: on each node a rank may own the same element
    for array in (*state.values(), copies):
        for group, where in net.reduction.runs:
            if size(where):
                group.all_reduce(array[where], "relocation")
    return {name: array / copies for name, array in state.items()}


def spread(net, owned):
    """An array laid out as `net.params` that is `owned` where this rank owns the parameters, and else 0."""
    whole, start = xp.zeros(net.size, net.dtype), 0
    for where in net.reduction.owned:
        whole[where] = owned[start : start + size(where)]
        start += size(where)
    return whole


def joined(arrays, dtype):
    """Flat arrays one after another; an empty array if there are none."""
    return xp.concatenate([xp.empty(0, dtype), *arrays])
