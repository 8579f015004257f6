"""What each participant in training, such as the network or an update protocol, puts into a checkpoint and takes out of it."""

import hashlib
from dataclasses import KW_ONLY, dataclass, field
from itertools import accumulate

import numpy as np

from gridgrad.nn.device import to_device, xp
from gridgrad.parallel.placement.partition import common, size
from gridgrad.parallel.sync.power_sgd import PowerSGDReduction


@dataclass
class State:
    """What one participant needs to go on, on this rank.

    arrays: {name: (flat array, slices)}. The elements of such an array belong to parameters: they are those of the slices of
    the flat buffers of the network, one slice after another. divided: the names of those arrays of which each worker has a
    part, while each worker has all of the others. buffers: {name: list with an array for each of `net.buffers`}.
    terms: {name: flat array laid out as the flat buffers}, in which the ranks that hold the same parameters have terms of a
    sum. They are read back as they were if as many ranks hold the parameters now, and else the first one gets the sum.
    own: {name: flat array} of this rank alone, read back where a worker has as many ranks as before, and else None.
    numbers: {name: what JSON can hold}, the same on all ranks of a worker. logs: {name: numbers that become more and more}, the
    same on all ranks of a worker; they are read back as arrays of float64.
    """

    arrays: dict = field(default_factory=dict)
    _: KW_ONLY
    divided: frozenset = frozenset()
    buffers: dict = field(default_factory=dict)
    terms: dict = field(default_factory=dict)
    own: dict = field(default_factory=dict)
    numbers: dict = field(default_factory=dict)
    logs: dict = field(default_factory=dict)


class NetworkState:
    """The parameters, buffers and step of a network. net: a ParallelSequential."""

    def __init__(self, net):
        self.net = net

    def state(self):
        net = self.net
        return State(
            arrays={"parameters": (net.params, [slice(0, net.size)])},
            buffers={"buffers": [buffer.value for _, buffer in net.buffers]},
            numbers={"step": net.step},
        )

    def load(self, state):
        """Take over a state of the same names. Collective."""
        with self.net.exclusive():
            copy_over(state, self.state())
        self.net.step = state.numbers["step"]


class OptimizerState:
    """The state of an optimizer.

    net: the ParallelSequential whose parameters it updates. slices: of the flat buffers, those that it updates on this rank if
    they are not `net.reduction.owned` but part of what all workers together divide among them.
    """

    def __init__(self, net, optimizer, slices=None):
        self.net, self.optimizer, self.slices = net, optimizer, slices

    def state(self):
        slices = self.net.reduction.owned if self.slices is None else self.slices
        arrays = {name: (array, slices) for name, array in self.optimizer.state_arrays().items()}
        numbers = {name: np.asarray(value).item() for name, value in self.optimizer.state_numbers().items() if name != "owned"}
        divided = frozenset() if self.slices is None else frozenset(arrays)
        return State(arrays, divided=divided, numbers=numbers)  # which slices a rank updates is a matter of the grid

    def load(self, state):
        """Take over a state of the same names. ValueError if it does not fit."""
        arrays = {name: array for name, (array, _) in state.arrays.items()}
        self.optimizer.load_state(arrays, state.numbers | {"owned": self.optimizer.owned})


class PowerSGDState:
    """What a PowerSGDReduction passes on from step to step. net: the ParallelSequential whose gradients it sums.

    Where other ranks hold the parameters now, what they have not passed on yet is kept, as a sum, and each Q is drawn anew.
    """

    def __init__(self, net):
        self.net = net

    def state(self):
        reduction, nothing = self.net.reduction, self.net.params[:0]
        q = xp.concatenate([nothing, *reduction.factors()])
        return State(terms={"error": reduction.error}, own={"q": q}, numbers={"sums": reduction.sums, "held": self._held()})

    def load(self, state):
        reduction, start = self.net.reduction, 0
        factors = reduction.factors()
        reduction.sums = state.numbers["sums"]
        reduction.error[...] = to_device(state.terms["error"])
        for q in factors if state.numbers["held"] == self._held() else ():
            q[...] = to_device(state.own["q"][start : start + q.size])
            start += q.size

    def _held(self):
        """A checksum of which ranks hold which blocks. Collective."""
        own = hashlib.sha256()
        for _, p in self.net.parameters:
            own.update(repr((p.shape, self.net.grid.group(*p.layout.summed).ranks)).encode())
            for part in p.index:
                own.update(repr(part).encode() if isinstance(part, slice) else np.asarray(part, np.int64).tobytes())
        return hashlib.sha256("".join(self.net.grid.comm.allgather(own.hexdigest())).encode()).hexdigest()


def states_of(net):
    """{name: participant} of a network and of what sums its gradients."""
    keeps = isinstance(net.reduction, PowerSGDReduction)
    return {"network": NetworkState(net)} | ({"reduction": PowerSGDState(net)} if keeps else {})


def copy_over(source, target):
    """Copy the arrays and buffers of a State to those of the same names in another."""
    for name, (array, _) in target.arrays.items():
        array[...] = to_device(source.arrays[name][0])
    for name, arrays in target.buffers.items():
        for array, value in zip(arrays, source.buffers[name], strict=True):
            array[...] = to_device(value)


def taken(slices, some):
    """Some parts of the flat buffers, as a list of slices of an array that holds `slices` of them one after another.

    some: slices of the flat buffers, each within one of `slices`.
    """
    starts, found = [0, *accumulate(map(size, slices))], []
    for wanted in some:
        for start, where in zip(starts, slices):
            part = common(where, wanted)
            if size(part):
                found.append(slice(start + part.start - where.start, start + part.stop - where.start))
    return found
