"""What each participant in training, such as the network or an update protocol, puts into a checkpoint and takes out of it."""

import hashlib
from dataclasses import KW_ONLY, dataclass, field

import numpy as np

from gridgrad.nn.device import to_device, xp
from gridgrad.nn.files.documents import COUNT, check
from gridgrad.parallel.sync.power_sgd import PowerSGDReduction


@dataclass
class State:
    """What one participant needs to go on, on this rank."""

    arrays: dict = field(default_factory=dict)  # {name: (flat array, the slices of the flat buffers whose elements it has)}
    _: KW_ONLY
    divided: frozenset = frozenset()  # the arrays of which each worker has a part; it has all of the others
    buffers: dict = field(default_factory=dict)  # {name: [an array for each of `net.buffers`]}
    # {name: flat array laid out as the flat buffers}: terms of a sum, which the ranks that hold the same parameters have. They
    # are dealt out in turn to the ranks that hold the parameters now: each gets its own again if these are as many.
    terms: dict = field(default_factory=dict)
    own: dict = field(default_factory=dict)  # {name: flat array} of this rank; None if a worker has more or fewer ranks now
    numbers: dict = field(default_factory=dict)  # {name: what JSON can hold}, the same on all ranks of a worker
    logs: dict = field(default_factory=dict)  # {name: more and more numbers}, likewise; read back as arrays of float64


class NetworkState:
    """The parameters, buffers and step of a network. net: a ParallelSequential."""

    def __init__(self, net):
        self.net = net

    def state(self):
        net = self.net
        arrays = {"parameters": (net.params, [slice(0, net.size)])}
        buffers = {"buffers": [buffer.value for _, buffer in net.buffers]}
        return State(arrays, buffers=buffers, numbers={"step": net.step})

    def load(self, state):
        """Take over a state of the same names. ValueError if its step is none. Collective."""
        check(state.numbers["step"], COUNT, "its step")
        with self.net.exclusive():
            copy_over(state, self.state())
        self.net.step = state.numbers["step"]


class OptimizerState:
    """The state of an optimizer of a ParallelSequential.
    slices: of the flat buffers, those that it updates, if all workers together divide them and not `net.reduction`."""

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
    """What a PowerSGDReduction passes on from step to step.
    Where other ranks hold the parameters now, what they have not passed on yet is kept, as a sum, and each Q is drawn anew."""

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
