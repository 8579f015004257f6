"""Optimizers, which work on the flat buffers of a network: SGD and, with a step size for each parameter, Adam and others.

Each update is the same as PyTorch's. In the formulas, g is the gradient with the penalties: grad + l2 p + l1 sign(p). For a
running mean (1 - beta) sum_i beta^i g_(t-i), the state array holds the sum without (1 - beta), which is part of the constants
of the step: this saves one pass over the array.
"""

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial
from typing import ClassVar

import numpy as np

from gridgrad.nn.arguments import above_zero, fraction, penalty_weight
from gridgrad.nn.device import Array, records_graphs, to_device, xp
from gridgrad.nn.graphs import Graphs, upload
from gridgrad.nn.kernels.fused import fused
from gridgrad.nn.kernels.kernel_table import kernels
from gridgrad.nn.learning_rates import Schedule, constant
from gridgrad.nn.sequential import Sequential

CHECKS = {  # of the numbers that an optimizer has, by their names
    "l2": penalty_weight, "l1": penalty_weight, "weight_decay": penalty_weight, "eps": above_zero, "momentum": fraction,
    "rho": fraction,
}  # fmt: skip


@dataclass(eq=False, repr=False)
class Optimizer:
    """Updates the parameters from the gradients, a chunk of the flat buffers at a time, by a subclass's `constants` and
    `update`. Only the slices that are `owned` by the network's FlatParameters are updated and have state in this process.
    FlatParameters are told before a chunk is read and after it is written."""

    net: Sequential
    lr: float | Schedule
    _: KW_ONLY
    l2: float = 0.0
    l1: float = 0.0
    clip_norm: float | None = None

    name = "optimizer"  # the name under which observers report it
    state_names: ClassVar[tuple[str, ...]] = ()  # of arrays as large as the parameters, which start as zeros

    def __post_init__(self):
        for name, check in CHECKS.items():
            if hasattr(self, name):
                check(getattr(self, name), name)
        if self.clip_norm is not None:
            above_zero(self.clip_norm, "clip_norm")
        self.lr = self.lr if callable(self.lr) else constant(self.lr)
        self.updates, self.last_lr = 0, self.rate()  # how many so far, and the learning rate of the last one
        self.net.allocate()
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
        self._graphs = Graphs()
        vars(self).pop("scratch", None)
        self.chunks: list[tuple[slice, Array, Array, list[Array]]] = []  # slice of the buffers, parameters, gradients, state
        position = 0
        for part in parts:
            for start in range(part.start, part.stop, size):
                where = slice(start, min(start + size, part.stop))
                state_part = slice(position, position + where.stop - where.start)
                state = [array[state_part] for array in self._state.values()]
                self.chunks.append((where, params[where], grads[where], state))
                position = state_part.stop

    @cached_property
    def scratch(self) -> Array:
        """Memory as large as the largest chunk, for `update`. It is allocated when it is first used: on a GPU, where one chunk
        has all parameters, SGD and Adam do without it."""
        return xp.empty(max((len(p) for _, p, *_ in self.chunks), default=0), self.flat.params.dtype)

    def step(self) -> None:
        """Update the parameters from the gradients, which are overwritten. The schedule is evaluated at step `net.step`."""
        lr = self.rate()
        self.updates += 1
        self._constants = list(map(self._number, self.constants(lr)))
        self.last_lr = lr
        factor, records = 1.0 if self.clip_norm is None else self._clipping(), records_graphs()
        for where, p, g, state in reversed(self.chunks):  # the gradients of the last layers are final first
            if self.clip_norm is None:
                self.flat.ready(where)
            elif factor < 1:
                xp.multiply(g, self._number(factor), out=g)
            if records:
                self._graphs.run(partial(self._update, p, g, state), (where.start, bool(lr), self.l1, self.l2))
            else:
                self._update(p, g, state, self._constants)
            self.flat.updated(where)
        self.flat.end_update()

    def _update(self, p, g, state, constants=None):
        """Update a chunk, with the penalties. constants: None for a graph, which finds those of its step in device memory."""
        if self.l1 or self.l2:
            self._add_penalties(p, g)
        if constants is None:
            array = upload(lambda: np.array(self._constants))
            constants = [array[i] for i in range(len(self._constants))]
        self.update(p, g, state, constants)

    def rate(self) -> float:
        """The learning rate of the next update. Raises ValueError if the schedule gives no finite number of at least 0."""
        lr = self.lr(self.net.step) if callable(self.lr) else self.lr
        if not 0 <= lr < math.inf:
            raise ValueError(f"the schedule gives the learning rate {lr} at step {self.net.step}: it must be at least 0")
        return lr

    def constants(self, lr: float) -> Sequence[float]:
        """The numbers that `update` needs in this step, as Python floats. It gets them in the dtype of the parameters."""
        raise NotImplementedError

    def update(self, p: Array, g: Array, state: Sequence[Array], constants: Sequence[float]) -> None:
        """Update one flat chunk of the parameters p and of the state, in place; the gradients g may be overwritten.

        state: the chunks of the state arrays, in the order of `state_names`. constants: what `constants` returned."""
        raise NotImplementedError

    def state_arrays(self) -> dict[str, Array]:
        """{name: flat array on the device} for the owned parameters, in the order of `net.params`. These are no copies."""
        return dict(self._state)

    def state_numbers(self) -> dict[str, float]:
        """{name: number}. With `state_arrays` and `net.step` this is everything that the next update depends on."""
        return {"updates": self.updates, "last_lr": self.last_lr, "owned": self.owned}

    def load_state(self, arrays: Mapping[str, Array], numbers: Mapping[str, float]) -> None:
        """Restore the state from what `state_arrays` and `state_numbers` returned; arrays may be copies, or on the host.

        ValueError, and nothing is changed, if names, shapes or the owned slices differ from those of this optimizer."""
        fits = numbers.keys() == self.state_numbers().keys()
        if fits and arrays.keys() == self._state.keys() and numbers["owned"] != self.owned:
            raise ValueError(f"state of {type(self).__name__}: it is of other slices of the parameters")
        shapes, expected = ({name: array.shape for name, array in some.items()} for some in (arrays, self._state))
        if not fits or shapes != expected:
            raise ValueError(f"state of {type(self).__name__}: got {shapes} and {sorted(numbers)}, expected {expected}")
        for name, own in self._state.items():
            own[...] = to_device(arrays[name])
        self.updates, self.last_lr = int(numbers["updates"]), float(numbers["last_lr"])

    def _clipping(self):
        """The factor by which all gradients are multiplied, so that their norm is at most `clip_norm`: as in PyTorch."""
        squares = []
        for where, _, g, _ in reversed(self.chunks):
            self.flat.ready(where)
            squares.append((where, float(xp.square(g, dtype=np.float64).sum())))
        return min(1.0, self.clip_norm / (math.sqrt(self.flat.total(squares)) + 1e-6))

    def _add_penalties(self, p, g):
        """Add the gradient of the penalties, l1 sign(p) + l2 p, to g."""
        if not xp.is_cpu:
            return fused("penalties", p, self.l1, self.l2, g)
        scratch = self.scratch[: len(p)]
        if self.l1:
            xp.sign(p, out=scratch)
            xp.multiply(scratch, p.dtype.type(self.l1), out=scratch)
            xp.add(g, scratch, out=g)
        if self.l2:
            xp.multiply(p, p.dtype.type(self.l2), out=scratch)
            xp.add(g, scratch, out=g)


@dataclass(eq=False, repr=False)
class SGD(Optimizer):
    """Stochastic gradient descent with momentum. Values out of range raise ValueError, in all optimizers.

    g <- grad + l2 p + l1 sign(p);  v <- momentum v + g;  p <- p - lr v, or with Nesterov p <- p - lr (g + momentum v).

    The state array `scaled_velocity` is lr v, so an update needs no array besides p, the gradient and v, and moves a third
    fewer bytes. When lr changes, it is rescaled by the ratio of the rates. A step with a rate of 0 moves no parameter but
    changes v; the array then keeps its scale, `velocity_lr`: the last rate above 0, at first 1.

    Parameters
    ----------
    net : Sequential
        The network whose parameters it updates; they are allocated.
    lr : float or function
        The learning rate, or a schedule: a function from the step, counted from 0, to the rate (`nn/learning_rates.py`).
    momentum : float
        In [0, 1).
    nesterov : bool
        Whether to look a step ahead; it needs a momentum above 0.
    l2, l1 : float
        The weights of the penalties l2/2 |p|^2 and l1 |p| on all parameters. They add to the gradient, but not to the loss that
        is reported.
    clip_norm : float, optional
        The largest norm of the gradient of the loss over all parameters, on however many ranks; a longer one is shortened
        before penalties are added.

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

    momentum: float = 0.0
    nesterov: bool = False

    state_names = ("scaled_velocity",)

    def __post_init__(self):
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs a momentum above 0")
        if not self.momentum:
            self.state_names = ()
        super().__post_init__()
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
        if not xp.is_cpu:
            numbers = *constants, int(self.last_lr > 0), int(self.nesterov)
            return fused("momentum" if self.momentum else "sgd", g, *numbers, p, *state)
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


@dataclass(eq=False, repr=False)
class Adam(Optimizer):
    """Adam (Kingma and Ba, ICLR 2015).

    m <- beta1 m + (1 - beta1) g;  v <- beta2 v + (1 - beta2) g^2;
    p <- p - lr m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps),  t = 1, 2, ...

    The state arrays are `gradients`, m / (1 - beta1), and `squares`, v / (1 - beta2).

    Parameters
    ----------
    net, lr
        As in SGD.
    betas : (float, float)
        beta1 and beta2, each in [0, 1).
    eps : float
        Above 0.
    l2, l1, clip_norm
        As in SGD.

    Examples
    --------
    >>> from gridgrad.nn import Adam, Linear, Sequential
    >>> Adam(Sequential([Linear(3, 1)]), betas=(0.9, 0.99)).state_names
    ('gradients', 'squares')
    """

    lr: float | Schedule = 0.001
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    state_names = ("gradients", "squares")
    weight_decay = 0.0

    def __post_init__(self):
        for beta, name in zip(self.betas, ("beta1", "beta2"), strict=True):
            fraction(beta, name)
        super().__post_init__()

    def constants(self, lr: float) -> Sequence[float]:
        beta1, beta2 = self.betas
        mean = (1 - beta1) / (1 - beta1**self.updates)  # times `gradients`: the bias-corrected m
        root = math.sqrt((1 - beta2) / (1 - beta2**self.updates))  # times sqrt(`squares`): the root of the bias-corrected v
        return beta1, beta2, lr * mean / root, self.eps / root, 1 - lr * self.weight_decay

    def update(self, p: Array, g: Array, state: Sequence[Array], constants: Sequence[float]) -> None:
        if not xp.is_cpu:
            return fused("adam", g, *constants, p, *state)
        beta1, beta2, lr, eps, shrinkage = constants
        gradients, squares = state
        if self.weight_decay:
            xp.multiply(p, shrinkage, out=p)
        xp.multiply(gradients, beta1, out=gradients)
        xp.add(gradients, g, out=gradients)
        _accumulate(squares, g, beta2, g)
        _descend(p, gradients, squares, lr, eps, g)


@dataclass(eq=False, repr=False)
class AdamW(Adam):
    """AdamW (Loshchilov and Hutter, ICLR 2019): Adam, whose parameters also shrink directly, p <- (1 - lr weight_decay) p.

    Parameters
    ----------
    net, lr, betas, eps
        As in Adam.
    weight_decay : float
        At least 0.
    l2, l1, clip_norm
        As in SGD.

    Examples
    --------
    >>> from gridgrad.nn import AdamW, Linear, Sequential
    >>> AdamW(Sequential([Linear(3, 1)]), weight_decay=0.1).weight_decay
    0.1
    """

    weight_decay: float = 0.01


@dataclass(eq=False, repr=False)
class Adagrad(Optimizer):
    """Adagrad (Duchi, Hazan and Singer, JMLR 2011).

    s <- s + g^2;  p <- p - lr g / (sqrt(s) + eps).

    Parameters
    ----------
    net, lr
        As in SGD.
    eps : float
        Above 0.
    l2, l1, clip_norm
        As in SGD.

    Examples
    --------
    >>> from gridgrad.nn import Adagrad, Linear, Sequential
    >>> Adagrad(Sequential([Linear(3, 1)]), lr=0.1).state_names
    ('squares',)
    """

    lr: float | Schedule = 0.01
    eps: float = 1e-10

    state_names = ("squares",)

    def constants(self, lr: float) -> Sequence[float]:
        return lr, self.eps

    def update(self, p: Array, g: Array, state: Sequence[Array], constants: Sequence[float]) -> None:
        lr, eps = constants
        (squares,) = state
        scratch = xp.multiply(g, g, out=self.scratch[: len(g)])
        xp.add(squares, scratch, out=squares)
        _descend(p, g, squares, lr, eps, scratch)


@dataclass(eq=False, repr=False)
class Adadelta(Optimizer):
    """Adadelta (Zeiler, arXiv:1212.5701, 2012).

    s <- rho s + (1 - rho) g^2;  d <- sqrt(u + eps) / sqrt(s + eps) g;  u <- rho u + (1 - rho) d^2;  p <- p - lr d.

    The state arrays are `squares`, s / (1 - rho), and `changes`, u / (1 - rho).

    Parameters
    ----------
    net, lr
        As in SGD.
    rho : float
        In [0, 1).
    eps : float
        Above 0.
    l2, l1, clip_norm
        As in SGD.

    Examples
    --------
    >>> from gridgrad.nn import Adadelta, Linear, Sequential
    >>> Adadelta(Sequential([Linear(3, 1)])).state_names
    ('squares', 'changes')
    """

    lr: float | Schedule = 1.0
    rho: float = 0.9
    eps: float = 1e-6

    state_names = ("squares", "changes")

    def constants(self, lr: float) -> Sequence[float]:
        return lr, self.rho, self.eps / (1 - self.rho)

    def update(self, p: Array, g: Array, state: Sequence[Array], constants: Sequence[float]) -> None:
        lr, rho, eps = constants
        squares, changes = state
        scratch = self.scratch[: len(g)]
        _accumulate(squares, g, rho, scratch)
        xp.add(squares, eps, out=scratch)
        xp.sqrt(scratch, out=scratch)
        xp.divide(g, scratch, out=g)
        xp.add(changes, eps, out=scratch)
        xp.sqrt(scratch, out=scratch)
        xp.multiply(g, scratch, out=g)
        _accumulate(changes, g, rho, scratch)
        xp.multiply(g, lr, out=g)
        xp.subtract(p, g, out=p)


def _accumulate(total, x, decay, scratch):
    """total <- decay total + x^2; scratch is overwritten and may be x."""
    xp.multiply(x, x, out=scratch)
    xp.multiply(total, decay, out=total)
    xp.add(total, scratch, out=total)


def _descend(p, direction, squares, lr, eps, scratch):
    """p <- p - lr direction / (sqrt(squares) + eps); scratch is overwritten."""
    xp.sqrt(squares, out=scratch)
    xp.add(scratch, eps, out=scratch)
    xp.divide(direction, scratch, out=scratch)
    xp.multiply(scratch, lr, out=scratch)
    xp.subtract(p, scratch, out=p)


OPTIMIZERS: dict[str, type[Optimizer]] = {
    "sgd": SGD, "adam": Adam, "adamw": AdamW, "adagrad": Adagrad, "adadelta": Adadelta,
}  # fmt: skip
