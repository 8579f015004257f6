"""What all update protocols have in common. A *worker* is the ranks that hold one copy of a network together. A protocol takes
the place of the optimizer; nothing else of a training step knows of other workers. It works on flat buffers, element by
element, between the ranks that hold the same blocks in all workers, whatever axes a worker is spread over."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gridgrad.nn.device import xp
from gridgrad.nn.observer import observed
from gridgrad.parallel.checkpoint.state import OptimizerState, State, copy_over
from gridgrad.parallel.placement.partition import Partition, size
from gridgrad.parallel.training.network import ParallelSequential
from gridgrad.parallel.training.steps import minibatch_indices

if TYPE_CHECKING:
    from gridgrad.parallel.protocols.workers import Workers

OPTIMIZER = "optimizer/"  # in front of the names of what a checkpoint holds of the optimizer
BETWEEN_WORKERS = "protocol"  # the name under which the tally counts what workers send each other


@dataclass(frozen=True)
class Turn:
    """One minibatch of a worker: a share of a global minibatch, whose number is `step`."""

    step: int
    share: int
    indices: np.ndarray  # the samples of the share
    whole: int  # samples of the global minibatch

    @property
    def samples(self) -> int:
        return len(self.indices)

    @property
    def weight(self) -> float:
        """The factor of this share's gradient in the sum that is the gradient of the global minibatch."""
        return self.samples / self.whole


class Shares:
    """Each global minibatch divided evenly into as many shares as there are workers. count: samples of the training data."""

    def __init__(self, count: int, batch_size: int, seed: int, workers: int) -> None:
        self.count, self.batch_size, self.seed, self.workers = count, batch_size, seed, workers

    def turn(self, step: int, share: int) -> Turn:
        """The Turn with a share of a global minibatch; it may be empty."""
        indices, _ = minibatch_indices(self.count, self.batch_size, self.seed, step)
        return Turn(step, share, indices[Partition.even(len(indices), self.workers).part(share)], len(indices))

    def sizes(self, step: int) -> np.ndarray:
        """The samples in each share of a global minibatch."""
        indices, _ = minibatch_indices(self.count, self.batch_size, self.seed, step)
        return np.array(Partition.even(len(indices), self.workers).sizes)


class Protocol:
    """The interface of all update protocols. Making one is collective over all ranks of all workers.

    A trainer calls its `step` when the gradients of a worker's minibatch are final. With one worker it is serial training.

    Parameters
    ----------
    net : ParallelSequential
        The network of this rank's worker; all workers start with the same parameters.
    workers : Workers
        The Workers, through which this rank reaches the ranks that hold the same blocks: see `divide`.
    make_optimizer : function
        A function that returns an optimizer for a network, or for anything else with `params`, `grads` and `step`.

    Attributes
    ----------
    turn
        The Turn under way, a worker's share of a global minibatch.
    taken
        (step, weight) of every turn of this worker so far that has samples.
    samples
        How many samples it has trained on.
    staleness
        A Counter {staleness: gradients that this rank applied with it}: 2 if two gradients of other workers were applied
        between fetching the parameters and applying the gradient. Empty where workers are in step.

    Examples
    --------
    Workers that never agree until the end, where they take the mean of their parameters, in virtual time:

    >>> import numpy as np
    >>> from gridgrad.nn import MSE, SGD, Linear, Sequential
    >>> from gridgrad.parallel import Protocol
    >>> from gridgrad.parallel.protocols.simulated_workers import Simulation, Task, train
    >>> class Alone(Protocol):
    ...     def finish(self):
    ...         mean = self.counted.pack(self.net.params) / self.workers.size
    ...         self.workers.all_reduce(mean)
    ...         self.replace(mean)
    ...         super().finish()
    >>> net, x, y = Sequential([Linear(3, 2)], dtype=np.float64), np.ones((6, 3)), np.zeros((6, 2))
    >>> task = Task(net, lambda updated: SGD(updated, lr=0.1), MSE(), x, y, batch_size=4, steps=4)
    >>> _, states = train(Simulation(workers=3), task, Alone, seconds=lambda samples: 1.0)
    >>> len({state["0.weight"].tobytes() for state in states})
    1
    """

    name = "protocol"  # the name under which observers report it
    lost = 0  # workers that have died
    shuffles = False  # whether samples move between workers before training
    exchanges = False  # whether samples move between workers between epochs
    interval: int | None = 1  # steps between two exchanges; None if there is one at the end alone
    # The names of attributes that the protocol keeps from step to step: what JSON can hold, and arrays
    own_numbers: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    def __init__(self, net: ParallelSequential, workers: "Workers", make_optimizer: Callable[[Any], Any]) -> None:
        net.allocate()
        net.seed += workers.rank  # the initial values are drawn; from now on the workers drop different activations
        self.net, self.workers, self.counted = net, workers, SentParameters(net)
        self.optimizer = make_optimizer(self.updated_here())
        self.turn: Any = None
        self.staleness: Counter[int] = Counter()
        self.taken: list[tuple[int, float]] = []
        self.samples = 0
        if workers.size > 1:
            net.observe(workers)  # so that it is called at the progress points of layers

    def shares(self, count: int, batch_size: int, seed: int) -> Any:
        """The Shares, or what takes their place, for `turns`."""
        return Shares(count, batch_size, seed, self.workers.size)

    def effective_batch(self, batch_size: int) -> float:
        """Samples whose gradients make one update of the parameters that workers agree on. batch_size: the global one."""
        return batch_size * (self.interval or 1)

    def updated_here(self) -> Any:
        """What the optimizer of this rank updates."""
        return self.net

    def turns(self, shares: Any, steps: int, between: Callable[[int], None] = lambda step: None) -> Iterator[Turn]:
        """Yield the turns of this worker until all `steps` global minibatches are trained on. It trains on each before it asks
        for the next one. shares: of `shares`. between: called before each turn with the number of the global minibatch."""
        for place in self.places(steps):
            between(place[0])
            self.begin(shares.turn(*place), shares)
            if self.turn.samples:
                yield self.turn
            else:
                self.without_samples()

    def places(self, steps: int) -> Iterator[tuple[int, int]]:
        """Yield (step, share) of each turn of this worker until all `steps` global minibatches are trained on."""
        for step in range(self.net.step, steps):
            yield step, self.workers.rank

    def begin(self, turn: Turn, shares: Any) -> None:
        """Note that a turn begins."""
        self.turn = turn
        self.samples += turn.samples
        if turn.samples:
            self.taken.append((turn.step, turn.weight))

    def step(self) -> None:
        """Called when the gradients of the turn are final: updates the parameters of this worker."""
        observed(self.net.observer, self.optimizer, "step")
        self.after_step()

    def without_samples(self) -> None:
        """Called instead of all else for a turn without samples."""
        self.net.step += 1
        self.after_step()

    def after_step(self) -> None:
        """Called at the end of each turn, with or without samples, by `step` and `without_samples`."""

    def finish(self) -> None:
        """Called after the last turn: then all workers hold the same parameters and the mean of their buffers. Collective."""
        if self.workers.size == 1:
            return
        total = np.array([self.samples], np.float64)
        self.workers.all_reduce(total)
        if not total[0]:
            return
        for _, buffer in self.net.buffers:
            mean = buffer.value * buffer.value.dtype.type(self.samples / total[0])
            self.workers.all_reduce(mean)
            buffer.value[...] = mean

    # ----- what optimizers tell a report

    @property
    def state_names(self) -> Any:
        """Those of the optimizer."""
        return self.optimizer.state_names

    def state_arrays(self) -> Any:
        """Those of the optimizer."""
        return self.optimizer.state_arrays()

    def own_arrays(self) -> dict[str, np.ndarray]:
        """{name: array} of what the protocol itself keeps of this rank's parameters, beside those of the network."""
        return {name: getattr(self, name) for name in self.kept}

    # ----- what checkpoints hold

    def state(self) -> State:
        """What this rank needs to go on when all workers have completed the same steps. ValueError if there is no such time."""
        optimizer = self.optimizer_state().state()
        arrays = {OPTIMIZER + name: array for name, array in optimizer.arrays.items()} | self.arrays_between_steps()
        numbers = {OPTIMIZER + name: number for name, number in optimizer.numbers.items()}
        numbers |= {"samples": self.samples, "staleness": list(self.staleness.items())}
        numbers |= {name: getattr(self, name) for name in self.own_numbers}
        divided = frozenset(OPTIMIZER + name for name in optimizer.divided)
        steps, weights = zip(*self.taken) if self.taken else ((), ())
        return State(arrays, divided=divided, numbers=numbers, logs={"taken": steps, "weights": weights})

    def load(self, state: State) -> None:
        """Take over a state of the same protocol with as many workers, after the network has. ValueError if it does not fit."""
        arrays = {name.removeprefix(OPTIMIZER): one for name, one in state.arrays.items() if name.startswith(OPTIMIZER)}
        numbers = {name.removeprefix(OPTIMIZER): one for name, one in state.numbers.items() if name.startswith(OPTIMIZER)}
        self.optimizer_state().load(State(arrays, numbers=numbers))
        copy_over(state, State(self.arrays_between_steps()))
        self.samples, self.staleness = state.numbers["samples"], Counter(dict(state.numbers["staleness"]))
        for name in self.own_numbers:
            own = np.array(getattr(self, name))
            setattr(self, name, np.array(state.numbers[name], own.dtype).reshape(own.shape).tolist())
        self.taken = list(zip(state.logs["taken"].astype(int).tolist(), state.logs["weights"].tolist()))
        self.turn = Turn(self.net.step - 1, self.workers.rank, np.empty(0, int), 0)  # that a last one was is all that matters

    def optimizer_state(self) -> OptimizerState:
        """The OptimizerState of this rank's optimizer."""
        return OptimizerState(self.net, self.optimizer)

    def arrays_between_steps(self) -> dict[str, tuple[np.ndarray, list[slice]]]:
        """{name: (array, slices of the flat buffers)} of what the protocol itself keeps from step to step."""
        return {name: (array, self.counted.slices) for name, array in self.own_arrays().items()}

    def replace(self, params: np.ndarray) -> None:
        """Write new parameters, shaped as `counted.pack` returns them, to the network of this worker. Collective over it."""
        self.counted.unpack(params, self.net.params)


def joined(flat, slices):
    """A copy of some slices of a flat array, one after another."""
    return xp.concatenate([flat[where] for where in slices]) if slices else flat[:0].copy()


def spread(values, slices, flat):
    """Write what `joined` returned back to the slices."""
    start = 0
    for where in slices:
        flat[where] = values[start : start + size(where)]
        start += size(where)


class SentParameters:
    """The parameters that a rank sends to other workers: where several ranks of a worker hold a copy, one sends it."""

    def __init__(self, net: ParallelSequential) -> None:
        self.net = net
        runs = [(group, where) for group, where in net.reduction.copies if size(where)]
        self.slices = [where for group, where in runs if group.rank == 0]
        self.copies = [(group, where) for group, where in runs if group.size > 1]

    def pack(self, flat: np.ndarray) -> np.ndarray:
        """A copy of the elements of a flat buffer, one after another."""
        return joined(flat, self.slices)

    def unpack(self, packed: np.ndarray, flat: np.ndarray) -> None:
        """Write back what `pack` returned, to the copies on other ranks of the worker too. Collective over the worker."""
        shared = self.net.reduction.sharers > 1
        with self.net.exclusive() if shared else nullcontext():  # all must have read before one writes
            spread(packed, self.slices, flat)
            for group, where in self.copies:
                group.broadcast(flat[where], BETWEEN_WORKERS)

    def parameters(self):
        """Yield (the name of a parameter, its slice of what `pack` returns, its slice of the flat buffers)."""
        packed = 0
        for layer, p, whole in self.net.flat_with_memory().places:
            if any(where.start <= whole.start < where.stop for where in self.slices) and p.size:
                yield f"{layer.name}.{p.name}", slice(packed, packed + p.size), whole
                packed += p.size
