"""Workers in virtual time: any number of them in one process, for any times of computing, sending and serving.

Each worker is a coroutine, of which exactly one runs at a time. What they train is real, but time passes only while a worker
waits for something. What happens at the same time happens in the order of the workers, so that a run repeats to the last bit. A
worker serves others while it computes, but never in the middle of its own Python code. What is assumed of the machine:

- Every worker has one core. What it serves while it computes makes the computation longer.
- Every worker has one link, over which its messages leave one after another. The network between the links has no limits.
- An all-reduce begins when the last worker has come. It goes around a ring of all workers, in 2 (W - 1) messages of 1/W of the
  array (Thakur, Rabenseifner and Gropp 2005, section 4.4). The all-reduces follow one another.
"""

from collections import defaultdict
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from greenlet import GreenletExit, getcurrent, greenlet
from mpi4py import MPI

from gridgrad.nn.arguments import whole_number
from gridgrad.nn.device import to_host
from gridgrad.nn.sequential import Sequential
from gridgrad.parallel.grid.collectives import COLLECTIVES
from gridgrad.parallel.grid.group import COMPLETE, Call, Tally, Transfer, pieces
from gridgrad.parallel.grid.process_grid import ProcessGrid
from gridgrad.parallel.pipeline.play import Link, VirtualTime
from gridgrad.parallel.protocols.protocol import BETWEEN_WORKERS
from gridgrad.parallel.protocols.workers import NUMBERS, Workers, filled
from gridgrad.parallel.training.distribute import distribute

ALL = -1  # in place of the number of a worker


class Simulation:
    """A machine in virtual time, in seconds. straggler: {worker: factor}. serve_seconds: for each byte that a worker gets.
    ValueError for bad numbers."""

    def __init__(self, workers, latency=0.0, byte_seconds=0.0, straggler=None, serve_seconds=0.0):
        self.size, self.straggler = whole_number(workers, "workers"), straggler or {}
        if strangers := [worker for worker in self.straggler if worker not in range(self.size)]:
            raise ValueError(f"there is no worker {strangers[0]} to be a straggler: the workers are 0 to {self.size - 1}")
        if min(latency, byte_seconds, serve_seconds, *self.straggler.values()) < 0:
            raise ValueError("the times and factors of a simulation must not be negative")
        self.latency, self.byte_seconds, self.serve_seconds = latency, byte_seconds, serve_seconds

    def run(self, function):
        """The results of function(workers), a coroutine for each one. If one raises, this does. RuntimeError for a deadlock."""
        self.clock, self.all_reduces = VirtualTime(), defaultdict(dict)  # {number: {worker: its array}} of those under way
        self.ring = Link()  # what does them in turn
        self.workers = [SimulatedWorkers(self, rank, function) for rank in range(self.size)]
        for rank in range(self.size):
            self.at(0.0, rank)
        try:
            while self.clock.go_on():
                pass
            if waiting := [workers for workers in self.workers if not workers.ended]:
                raise RuntimeError("deadlock: " + "; ".join(f"worker {w.rank} waits {w.waits_for()}" for w in waiting))
        finally:
            for workers in self.workers:
                workers.stop()
        return [workers.result for workers in self.workers]

    def at(self, time, worker, action=lambda: None):
        """Let action() happen at a time, and then see whether the worker (or all, for ALL) can go on."""
        self.clock.at(time, self._happen, worker, action, place=worker)

    def _happen(self, whom, action):
        worker = whom
        try:
            action()
            for worker in range(self.size) if whom == ALL else (whom,):
                self.workers[worker].go_on()
        except Exception as error:
            error.add_note(f"in worker {worker} of {self.size} in a simulation, at {self.time:g} s")
            raise

    def sum_up(self, number):
        """End an all-reduce: write the sum, in the order of the workers, to the arrays of all."""
        arrays = self.all_reduces.pop(number)
        total = sum((arrays[worker] for worker in range(1, self.size)), start=arrays[0])
        for array in arrays.values():
            array[...] = total

    @property
    def time(self):
        """The virtual time in seconds."""
        return self.clock.time


class GroupOfMessages(Workers):
    """Workers that move samples by messages, and no Group: they are their own `moves`. Arrays and counts: see Group."""

    def move_by_messages(self):
        """From now on samples may move. All workers call this before time passes."""
        self.moves, self._move_number, self._parts = self, 0, defaultdict(dict)  # {number of a move: {worker: what it sent}}
        self.handle("part", self._keep_part)

    def all_to_all(self, blocks, counts, out, out_counts, layer):
        self._move(dict(enumerate(pieces(blocks, counts))), range(self.size), out)

    def start_exchange(self, blocks, counts, out, out_counts, layer):
        parts = {worker: part for worker, part in enumerate(pieces(blocks, counts)) if part.size}
        self._move(parts, [worker for worker, count in enumerate(out_counts) if count], out)
        return COMPLETE

    def all_gather(self, block, out, counts, layer):
        self._move(dict.fromkeys(range(self.size), block), range(self.size), out)

    def gather(self, block, out, counts, layer):
        self._move({0: block}, range(self.size) if self.rank == 0 else (), out)

    def broadcast(self, array, layer):
        self._move(dict.fromkeys(range(self.size), array) if self.rank == 0 else {}, (0,), array)

    def _move(self, parts, sources, out):
        """Send parts, {worker: array}; write to `out` what the workers `sources` have sent in the same move."""
        number, self._move_number = self._move_number, self._move_number + 1
        for to, part in parts.items():
            self.send(to, "part", (number,), part)
        arrived = self._parts[number]
        self.wait_until(lambda: len(arrived) == len(sources))
        del self._parts[number]
        if arrived:
            out[...] = np.concatenate([arrived[source] for source in sources]).view(out.dtype)

    def _keep_part(self, source, numbers, content):
        self._parts[numbers[0]][source] = content


class SimulatedWorkers(GroupOfMessages):
    """The Workers of one rank in virtual time. Messages are handled in order once they are served, also while it computes. A
    handler may send but not wait: RuntimeError. A loop around `test` of a transfer never ends, since no time passes in it."""

    progress, inside = None, MPI.COMM_SELF
    all_sent = True  # what is sent needs its sender no more
    dead = ()

    def __init__(self, simulation, rank, function):
        self.simulation, self.size, self.rank = simulation, simulation.size, rank
        self.tally = Tally()
        self.tally.clock = SimpleNamespace(now=lambda: simulation.time)
        self.kinds, self.handlers = [], {}
        self.move_by_messages()
        self._begun = 0  # all-reduces
        self._computed = 0.0  # when the last computation ends
        self._serving, self._link = Link(), Link()
        self._condition, self.waits_for = lambda: True, lambda: "to begin"  # the second one in words
        self._coroutine, self._stopping, self.result = greenlet(partial(function, self)), False, None  # what function returned
        self._coroutine.gr_context = copy_context()  # it sees the context variables of its maker

    # ----- the coroutine, and waiting

    @property
    def ended(self):
        """Whether the function of this worker has returned or raised."""
        return self._coroutine.dead

    def go_on(self):
        """Let the worker run, if what it waits for has happened, until it waits again or ends. Raises what it raises."""
        if self._condition is not None and self._condition():
            self._condition = None
            self.result = self._coroutine.switch()

    def stop(self):
        """End the worker where it waits."""
        self._stopping = True
        if not self.ended:
            self._coroutine.throw()

    def sleep(self, condition, waits_for):
        """Let time pass until condition() is true. waits_for: a function that returns what that means, in words."""
        if condition():
            return
        if getcurrent() is not self._coroutine:
            raise RuntimeError(f"the function that handles a message to worker {self.rank} must not wait")
        self._condition, self.waits_for = condition, waits_for
        if not self._stopping:
            self._coroutine.parent.switch()
        if self._stopping:
            raise GreenletExit

    def wait_until(self, condition):
        with Call(self, "wait", BETWEEN_WORKERS, 0):
            self.sleep(condition, lambda: f"for a message, until {_place(condition)} is true")

    def compute(self, seconds):
        """Let the time of a computation pass. seconds: for a worker that is no straggler."""
        seconds *= self.simulation.straggler.get(self.rank, 1.0)
        self._extend(max(self.simulation.time, self._serving.free) + seconds)
        self.sleep(lambda: self.simulation.time >= self._computed, lambda: "until it has computed")

    def _extend(self, until):
        self._computed = until
        self.simulation.at(until, self.rank)

    # ----- messages

    def send(self, to, kind, numbers=(), array=None):
        simulation = self.simulation
        content = np.empty(0, np.uint8) if array is None else to_host(array).view(np.uint8).copy()
        size = 8 * NUMBERS + content.size
        if to == self.rank:
            self._take_time(size)
            self.handlers[kind](self.rank, filled(numbers), content)
            return
        with Call(self, kind, BETWEEN_WORKERS, size, messages=1):
            arrival = self._link.take(simulation.time, size * simulation.byte_seconds) + simulation.latency
        message = self.rank, filled(numbers), content
        simulation.at(arrival, to, partial(simulation.workers[to].arrived, kind, size, message))

    def arrived(self, kind, size, message):
        """Called when a message arrives: handle it when it and all earlier ones are served, unless this worker has ended."""
        if not self.ended:
            self.simulation.at(self._take_time(size), self.rank, partial(self._handle, kind, message))

    def _handle(self, kind, message):
        if not self.ended:
            self.handlers[kind](*message)

    def _take_time(self, size):
        """Serve a message as soon as this worker has served those before; returns when that is done."""
        seconds = size * self.simulation.serve_seconds
        if seconds and self._computed > self.simulation.time:  # it is interrupted
            self._extend(self._computed + seconds)
        return self._serving.take(self.simulation.time, seconds)

    # ----- all-reduces

    def all_reduce(self, array, layer=BETWEEN_WORKERS):
        self.start_all_reduce(array, layer).wait()

    def start_all_reduce(self, array, layer=BETWEEN_WORKERS):
        if self.size == 1:
            return COMPLETE
        simulation, number = self.simulation, self._begun
        self._begun += 1
        arrays = simulation.all_reduces[number]
        arrays[self.rank] = array
        if len({(one.shape, one.dtype) for one in arrays.values()}) > 1:
            raise ValueError(f"all-reduce {number} ({layer}): the arrays of the workers differ in size or type")
        if len(arrays) == self.size:
            seconds = 2 * (self.size - 1) * (simulation.latency + array.nbytes / self.size * simulation.byte_seconds)
            simulation.at(simulation.ring.take(simulation.time, seconds), ALL, partial(simulation.sum_up, number))

        def is_done():
            return number not in simulation.all_reduces

        def waits_for():
            missing = [str(worker) for worker in range(self.size) if worker not in arrays]
            return f"for all-reduce {number} ({layer}), which workers {', '.join(missing)} have not begun"

        request = SimpleNamespace(Test=is_done, Wait=lambda: self.sleep(is_done, waits_for))  # as of MPI
        sent = COLLECTIVES["all-reduce"].sent(self, array.size, 0) * array.itemsize
        return Transfer(self, layer, "all-reduce", sent, lambda: iter([request]))


def _place(function):
    """The name of a function and where it is defined."""
    name, code = getattr(function, "__qualname__", repr(function)), getattr(function, "__code__", None)
    return name if code is None else f"{name} (line {code.co_firstlineno} of {code.co_filename.rpartition('/')[2]})"


# ----- training


@dataclass(frozen=True)
class Task:
    """What is trained, whatever the protocol."""

    serial: Sequential  # of which each worker has a copy
    make_optimizer: Callable
    loss: Any
    x: np.ndarray  # the training data
    y: np.ndarray
    batch_size: int  # of a global minibatch
    steps: int
    seed: int = 0  # of the order of samples


def train(simulation, task, make_protocol, seconds, note=lambda *_: None):
    """Train in a Simulation: ([the Protocol of each worker], [the state_dict of its network]). make_protocol: of
    `parse_protocol`. seconds(samples): of computing. note(workers, turn, loss, nets): is called at the end of each turn."""
    nets, x, y = [None] * simulation.size, task.x, task.y

    def work(workers):
        net = nets[workers.rank]
        protocol = make_protocol(net, workers, task.make_optimizer)
        trainer = net.trainer(task.loss, protocol)
        if protocol.shuffles or protocol.exchanges:
            protocol.hold(lambda indices: (x[indices], y[indices]), len(x), task.seed)
        for turn in protocol.turns(protocol.shares(len(x), task.batch_size, task.seed), task.steps):
            workers.compute(seconds(turn.samples))
            (loss,) = trainer.step([net.blocks(x[turn.indices], y[turn.indices])], turn.samples)
            note(workers, turn, loss, nets)
        protocol.finish()
        return protocol, net.state_dict()

    with ProcessGrid(MPI.COMM_SELF) as alone:  # all networks use it, since nobody communicates on a grid of one rank
        nets[:] = (distribute(task.serial, alone) for _ in nets)
        protocols, states = zip(*simulation.run(work))
    return protocols, states
