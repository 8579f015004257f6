"""The base class of all optimizers, which work on the flat buffers of a network, and stochastic gradient descent."""

import math
import zlib
from collections.abc import Mapping, Sequence

from gridgrad.nn.arguments import fraction, penalty_weight
from gridgrad.nn.device import Array, to_device, xp
from gridgrad.nn.kernels.kernel_table import kernels
from gridgrad.nn.optimizers.schedules import Schedule, constant
from gridgrad.nn.sequential import Sequential


class Optimizer:
    """Updates the parameters of a network from its gradients, one chunk of the flat buffers after another.

    net, lr, l2, l1: as for SGD.
    updates: the number of updates so far. last_lr: the learning rate of the last one.

    A subclass lists the names of its state arrays in `state_names`, returns the numbers that it needs in a step from
    `constants`, and updates one chunk of the parameters in `update`. Only the slices that the network's FlatParameters say are
    `owned` are updated and have state arrays in this process. These are told before a chunk is read and after it is written.
    """

    name = "optimizer"  # the name under which observers report it
    # The names of the state arrays, which have the size of the parameters and start as zeros.
    state_names: tuple[str, ...] = ()

    def __init__(self, net: Sequential, lr: float | Schedule, l2: float = 0.0, l1: float = 0.0) -> None:
        self.net, self.l2, self.l1 = net, penalty_weight(l2, "l2"), penalty_weight(l1, "l1")
        self.lr: Schedule = lr if callable(lr) else constant(lr)
        self.updates, self.last_lr = 0, self.rate()
        net.allocate()
        self.attach()

    def attach(self) -> None:
        """Allocate state arrays for the flat buffers that the network has now; they start as zeros."""
        self.flat = self.net.flat
        params, grads, parts = self.flat.params, self.flat.grads, self.flat.owned
        self._number = params.dtype.type
        owned = sum(part.stop - part.start for part in parts)
        # A checksum of the owned slices: the state of other slices must not be loaded, even if it has the same size.
        self.owned = zlib.crc32(repr([(part.start, part.stop) for part in parts]).encode())
        self._state = {name: xp.zeros(owned, params.dtype) for name in self.state_names}
        size = kernels().chunk if xp.is_cpu else max(owned, 1)
        self.scratch = xp.empty(min(size, owned), params.dtype)
        self.chunks: list[tuple[slice, Array, Array, list[Array]]] = []  # slice of the buffers, parameters, gradients, state
        position = 0
        for part in parts:
            for start in range(part.start, part.stop, size):
                where = slice(start, min(start + size, part.stop))
                state_part = slice(position, position + where.stop - where.start)
                state = [array[state_part] for array in self._state.values()]
                self.chunks.append((where, params[where], grads[where], state))
                position = state_part.stop

    def step(self) -> None:
        """Update the parameters from the gradients, which are overwritten. The schedule is evaluated at step `net.step`."""
        lr = self.rate()
        self.updates += 1
        constants = [self._number(value) for value in self.constants(lr)]
        self.last_lr = lr
        for where, p, g, state in reversed(self.chunks):  # the gradients of the last layers are final first
            self.flat.ready(where)
            if self.l1 or self.l2:
                self._add_penalties(p, g)
            self.update(p, g, state, constants)
            self.flat.updated(where)
        self.flat.end_update()

    def rate(self) -> float:
        """The learning rate of the next update. Raises ValueError if the schedule gives no finite number of at least 0."""
        lr = self.lr(self.net.step)
        if not 0 <= lr < math.inf:
            raise ValueError(f"the schedule gives the learning rate {lr} at step {self.net.step}: it must be at least 0")
        return lr

    def constants(self, lr: float) -> Sequence[float]:
        """The numbers that `update` needs in this step, as Python floats. It gets them in the dtype of the parameters."""
        raise NotImplementedError

    def update(self, p: Array, g: Array, state: Sequence[Array], constants: Sequence[float]) -> None:
        """Update one chunk of the parameters and of the state, in place.

        p, g: the chunk of the parameters and of the gradients, flat; g may be overwritten. state: the chunks of the state
        arrays, in the order of `state_names`. constants: what `constants` returned.
        """
        raise NotImplementedError

    def state_arrays(self) -> dict[str, Array]:
        """{name: flat array on the device} for the owned parameters, in the order of `net.params`. These are no copies."""
        return dict(self._state)

    def state_numbers(self) -> dict[str, float]:
        """{name: number}. With `state_arrays` and `net.step` this is everything that the next update depends on."""
        return {"updates": self.updates, "last_lr": self.last_lr, "owned": self.owned}

    def load_state(self, arrays: Mapping[str, Array], numbers: Mapping[str, float]) -> None:
        """Restore the state from what `state_arrays` and `state_numbers` returned.

        arrays: may be copies, on the host or on the device. Raises ValueError, and changes nothing, if names, shapes or the
        owned slices differ from those of this optimizer.
        """
        fits = arrays.keys() == self._state.keys() and numbers.keys() == self.state_numbers().keys()
        if fits and numbers["owned"] != self.owned:
            raise ValueError(f"state of {type(self).__name__}: it is of other slices of the parameters")
        if not fits or any(arrays[name].shape != own.shape for name, own in self._state.items()):
            shapes = {name: array.shape for name, array in arrays.items()}
            expected = {name: array.shape for name, array in self._state.items()}
            raise ValueError(f"state of {type(self).__name__}: got {shapes} and {sorted(numbers)}, expected {expected}")
        for name, own in self._state.items():
            own[...] = to_device(arrays[name])
        self.updates, self.last_lr = int(numbers["updates"]), float(numbers["last_lr"])

    def _add_penalties(self, p, g):
        """Add the gradient of the penalties, l1 sign(p) + l2 p, to g."""
        scratch = self.scratch[: len(p)]
        if self.l1:
            xp.sign(p, out=scratch)
            xp.multiply(scratch, p.dtype.type(self.l1), out=scratch)
            xp.add(g, scratch, out=g)
        if self.l2:
            xp.multiply(p, p.dtype.type(self.l2), out=scratch)
            xp.add(g, scratch, out=g)


class SGD(Optimizer):
    """Stochastic gradient descent with momentum; the update is the same as PyTorch's.

    g <- grad + l2 p + l1 sign(p);  v <- momentum v + g;  p <- p - lr v, or with Nesterov p <- p - lr (g + momentum v).

    The state array `scaled_velocity` is lr v instead of v. So an update needs no array besides p, the gradient and v, and
    moves a third fewer bytes. When lr changes, the array is rescaled by the ratio of the rates. A step with a rate of 0 moves
    no parameter but still changes v; the array then keeps its scale, `velocity_lr`: the last rate above 0, at first 1.

    Parameters
    ----------
    net : Sequential
        The network whose parameters it updates; they are allocated.
    lr : float or function
        The learning rate, or a schedule: a function from the step, counted from 0, to the rate (`nn/optimizers/schedules.py`).
    momentum : float
        In [0, 1).
    nesterov : bool
        Whether to look a step ahead; it needs a momentum above 0.
    l2, l1 : float
        The weights of the penalties l2/2 |p|^2 and l1 |p| on all parameters. They add to the gradient, but not to the loss that
        is reported.

    Raises
    ------
    ValueError
        For values out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from gridgrad.nn import MSE, SGD, Linear, Sequential
    >>> net, loss = Sequential([Linear(3, 1)]), MSE()
    >>> optimizer = SGD(net, lr=0.1, momentum=0.9)
    >>> x, y = np.eye(3, dtype=np.float32), np.ones((3, 1), np.float32)
    >>> first, *_, last = (net.learn(x, y, loss, optimizer) for _ in range(20))
    >>> last < first
    True
    """

    state_names: tuple[str, ...] = ("scaled_velocity",)

    def __init__(
        self,
        net: Sequential,
        lr: float | Schedule,
        momentum: float = 0.0,
        nesterov: bool = False,
        l2: float = 0.0,
        l1: float = 0.0,
    ) -> None:
        self.momentum, self.nesterov = fraction(momentum, "momentum"), nesterov
        if nesterov and momentum == 0:
            raise ValueError("nesterov needs a momentum above 0")
        if not momentum:
            self.state_names = ()
        super().__init__(net, lr, l2, l1)
        self.velocity_lr = self.last_lr or 1.0

    def constants(self, lr: float) -> Sequence[float]:
        if not self.momentum:
            return lr, 0.0, 0.0
        previous_scale, self.velocity_lr = self.velocity_lr, lr or self.velocity_lr
        return self.velocity_lr, self.momentum, self.momentum * self.velocity_lr / previous_scale

    def state_numbers(self) -> dict[str, float]:
        return super().state_numbers() | ({"velocity_lr": self.velocity_lr} if self.momentum else {})

    def load_state(self, arrays: Mapping[str, Array], numbers: Mapping[str, float]) -> None:
        super().load_state(arrays, numbers)
        self.velocity_lr = float(numbers.get("velocity_lr", 1.0))

    def update(self, p: Array, g: Array, state: Sequence[Array], constants: Sequence[float]) -> None:
        scale, momentum, rescaled_momentum = constants
        xp.multiply(g, scale, out=g)
        if self.momentum:
            (v,) = state
            xp.multiply(v, rescaled_momentum, out=v)
            xp.add(v, g, out=v)
            if not self.last_lr:
                return
            if self.nesterov:
                ahead = xp.multiply(v, momentum, out=self.scratch[: len(v)])
                xp.add(g, ahead, out=g)
            else:
                g = v
        xp.subtract(p, g, out=p)
