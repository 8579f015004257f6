"""The executor of a pipeline: carries out the instructions of one rank, one after another.

It knows neither the schedule from which the instructions come nor how messages travel. A rank announces the messages that it
will receive some instructions ahead, and its sends do not block. So what a rank waits for is always an instruction of another
one, as in the simulator (`parallel/pipeline/simulate.py`), and no schedule that the simulator finds sound can deadlock here.
"""

from collections import Counter, defaultdict
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from math import prod
from operator import mul

import numpy as np

from gridgrad.nn.context import Context
from gridgrad.nn.device import as_input, to_device, xp
from gridgrad.nn.observer import observed
from gridgrad.parallel.pipeline.schedule import Instruction, with_announcements

EVALUATED = 0  # the number of a micro-batch that is only evaluated
WAY_OF = {"RECV_F": "forward", "RECV_B": "backward", "SEND_F": "forward", "SEND_B": "backward"}  # of messages


@dataclass
class MicroBatch:
    """The part of a minibatch that passes through the pipeline as one. x, y: this rank's blocks. samples, first: the number of
    its samples on all ranks, the index of the first one in the global minibatch. step: the number of the training step."""

    x: np.ndarray
    y: np.ndarray
    samples: int
    first: int
    minibatch_size: int
    step: int


@dataclass
class ChunkPass:
    """One micro-batch in one chunk, until the gradients of the parameters are computed. version: of the weights in forward."""

    context: Context | None = None  # from forward on
    version: int = 0
    takes: dict = field(default_factory=dict)  # {"forward": the chunk's input, "backward": the gradient of its output}
    own: dict = field(default_factory=dict)  # the part of `takes` that this rank computed
    received: dict = field(default_factory=dict)  # the parts of `takes` that others computed: {way: {rank: array}}
    made: dict = field(default_factory=dict)  # {way: what the chunk computed}, until it is sent


class WeightVersions:
    """Weights before earlier updates, for backward passes whose forward pass used them: stashing (PipeDream 2019, 3.3)."""

    def __init__(self, flat):
        self.params, self.places = flat.params, flat.places
        self.number, self._kept, self._free = 0, {}, []  # updates so far; {number of a version: weights}; arrays to use again

    def before_update(self, needed):
        """Called before an update. needed: the numbers of the versions that open micro-batches have used in forward."""
        for old in self._kept.keys() - set(needed):
            self._free.append(self._kept.pop(old))
        if self.number in needed:
            kept = self._free.pop() if self._free else self.params.copy()
            kept[...] = self.params
            self._kept[self.number] = kept
        self.number += 1

    @contextmanager
    def used(self, number):
        """A `with` block in which the layers use the weights of a version."""
        if number == self.number:
            yield
            return
        self._point_to(self._kept[number])
        try:
            yield
        finally:
            self._point_to(self.params)

    def _point_to(self, flat):
        for _, p, where in self.places:
            p.value = flat[where].reshape(p.block_shape)


class Executor:
    """Carries out a rank's instructions for its `driver`, a PipelineTrainer. chunks, boundaries: see StageMap. last: the number
    of the network's last chunk. versions: WeightVersions, or None where backward uses the newest weights."""

    def __init__(self, chunks, boundaries, last, transport, pool, versions):
        self.chunks, self.boundaries, self.last, self.transport = chunks, boundaries, last, transport
        self.pool, self.versions, self.driver = pool, versions, None
        self.micro_batches, self.losses = {}, {}  # {number: MicroBatch}, filled by the caller; {number: this rank's part}
        self.staleness, self.updates = {}, 0  # {number: the most updates between forward and backward of a chunk}
        self.stale = Counter()  # {updates between forward and backward: minibatches that were finished}
        self._passes, self._free, self._sharing = {}, defaultdict(list), Context()
        self._open, self._states = dict.fromkeys(chunks, 0), set()

    def run(self, instructions):
        """Carry out a list of instructions; a generator, which yields where a message has not arrived yet."""
        for instruction, receives in with_announcements(instructions):
            for receive in receives:
                self._announce(receive)
            observer = self.driver.observer
            if observer:
                observer.begin_instruction(instruction)
            for _ in ACTIONS[instruction.op](self, instruction) or ():
                yield instruction
            if observer:
                observer.end_instruction(instruction)

    # ----- messages

    def _announce(self, instruction):
        """Take the memory for the messages of a receive, and announce them."""
        way, chunk, number = WAY_OF[instruction.op], instruction.chunk, instruction.micro_batch
        chunk_pass, out = self._pass(chunk, number), self._out(way, chunk, number)
        samples = self.micro_batches[number].samples
        chunk_pass.received[way] = self.boundaries[behind(way, chunk)].receives(way, samples, out, self.pool.take)
        self.transport.expect(way, behind(way, chunk), number, chunk_pass.received[way])

    def receive(self, instruction):
        """Yields until the messages have arrived."""
        way = WAY_OF[instruction.op]
        while not self.transport.arrived(way, behind(way, instruction.chunk), instruction.micro_batch):
            yield

    def send(self, instruction):
        """Begin to send what the chunk has computed. Its context keeps outputs unchanged until the gradients have come back."""
        way, key, taken = WAY_OF[instruction.op], (instruction.chunk, instruction.micro_batch), []
        made, boundary = self._passes[key].made.pop(way), instruction.chunk + (way == "forward")

        def take(size):
            taken.append(self.pool.take(size))
            return taken[-1]

        samples = self.micro_batches[instruction.micro_batch].samples
        messages = self.boundaries[boundary].sends(way, made, samples, take)
        if way == "backward":
            taken.append(made.reshape(-1))
        self.transport.send(way, boundary, instruction.micro_batch, messages, taken)
        self._forget(key)

    def _out(self, way, chunk, number):
        """The array for what a chunk takes on a way."""
        chunk_pass = self._pass(chunk, number)
        if way not in chunk_pass.takes:
            shape = self.boundaries[behind(way, chunk)].shape(way, self.micro_batches[number].samples)
            chunk_pass.takes[way] = self.pool.take(prod(shape)).reshape(shape)
        return chunk_pass.takes[way]

    def _joined(self, way, chunk, number):
        """What a chunk takes on a way, from this rank itself and from others."""
        chunk_pass, out = self._pass(chunk, number), self._out(way, chunk, number)
        own, received = chunk_pass.own.pop(way, None), chunk_pass.received.pop(way, {})
        self.boundaries[behind(way, chunk)].join(way, own, received, out, self.micro_batches[number].samples)
        for array in received.values():
            if not xp.may_share_memory(array, out):
                self.pool.give_back(array)
        if own is not None and way == "backward":
            self.pool.give_back(own.reshape(-1))
        return out

    def _made(self, way, chunk, number, array):
        """Keep what a chunk has computed on a way: to be sent, or for the next chunk on that way if this rank has it too."""
        boundary, following = (chunk + 1, chunk + 1) if way == "forward" else (chunk, chunk - 1)
        keep = self._copied if way == "backward" else lambda array: array  # other passes overwrite a gradient
        if self.boundaries[boundary].is_sender(way):
            self._passes[chunk, number].made[way] = keep(xp.ascontiguousarray(array))
        if following in self.chunks:
            self._pass(following, number).own[way] = keep(array)

    def _copied(self, array):
        copy = self.pool.take(array.size).reshape(array.shape)
        xp.copyto(copy, array)
        return copy

    # ----- computing

    def forward(self, instruction):
        chunk, number = instruction.chunk, instruction.micro_batch
        chunk_pass, micro_batch = self._pass(chunk, number), self.micro_batches[number]
        chunk_pass.context = context = self._free[chunk].pop() if self._free[chunk] else Context(sharing=self._sharing)
        chunk_pass.version = self.updates
        self._open[chunk] += 1
        self._note_memory()
        self.driver.prepare(context, micro_batch)
        y = self.chunks[chunk].forward(self._input(chunk, number), context)
        if chunk == self.last:
            labels, driver = to_device(micro_batch.y), self.driver
            self.losses[number] = observed(driver.observer, driver.loss, "forward", y, labels, context, context=context)
            driver.loss_known()
        else:
            self._made("forward", chunk, number, y)

    def _input(self, chunk, number):
        """What a chunk takes in forward. In the first one the samples are converted to the type of the network."""
        if chunk == 0:
            return as_input(to_device(self.micro_batches[number].x), self.pool.dtype)
        return self._joined("forward", chunk, number)

    def backward(self, instruction):
        with self._gradients(instruction) as chunk_pass:
            self._input_gradient(instruction, chunk_pass, self.chunks[instruction.chunk].backward)

    def input_gradient(self, instruction):
        chunk_pass = self._passes[instruction.chunk, instruction.micro_batch]
        with self._weights(chunk_pass):
            self._input_gradient(instruction, chunk_pass, self.chunks[instruction.chunk].input_gradients)

    def weight_gradient(self, instruction):
        with self._gradients(instruction) as chunk_pass:
            self.driver.resume(chunk_pass.context)
            self.chunks[instruction.chunk].parameter_gradients(chunk_pass.context)

    def _input_gradient(self, instruction, chunk_pass, compute):
        """Call `compute`, one of two passes of the chunk, with the gradient of its output; keep the gradient of its input."""
        chunk, number, driver = instruction.chunk, instruction.micro_batch, self.driver
        driver.resume(chunk_pass.context)
        self.staleness[number] = max(self.updates - chunk_pass.version, self.staleness.get(number, 0))
        if chunk == self.last:
            dy = observed(driver.observer, driver.loss, "backward", chunk_pass.context, context=chunk_pass.context)
        else:
            dy = self._joined("backward", chunk, number)
        dx = compute(dy, chunk_pass.context, input_gradient=chunk > 0)
        if chunk > 0:
            self._made("backward", chunk, number, dx)
        self._give_back(chunk_pass, "backward")

    @contextmanager
    def _gradients(self, instruction):
        """A `with` block that computes the gradients of a chunk's parameters; then the pass ends."""
        key = instruction.chunk, instruction.micro_batch
        chunk_pass = self._passes[key]
        self.driver.begins(instruction)
        with self._weights(chunk_pass):
            yield chunk_pass
        self.driver.computed(instruction)
        self._give_back(chunk_pass, "forward")
        self._free[instruction.chunk].append(chunk_pass.context)
        chunk_pass.context = None
        self._open[instruction.chunk] -= 1
        self._forget(key)

    def _weights(self, chunk_pass):
        """A `with` block in which the layers use the weights that the forward pass used, if these are kept."""
        return self.versions.used(chunk_pass.version) if self.versions else nullcontext()

    def update(self, instruction):
        if self.versions:
            open_ones = (one for one in self._passes.values() if one.context is not None)
            self.versions.before_update({one.version for one in open_ones})
        self.driver.update(instruction.micro_batch)
        self.updates += 1
        self._note_memory()

    def _pass(self, chunk, number):
        return self._passes.setdefault((chunk, number), ChunkPass())

    def _forget(self, key):
        """End a pass of which nothing is open and nothing has to be sent any more."""
        chunk_pass = self._passes[key]
        if chunk_pass.context is None and not chunk_pass.made:
            del self._passes[key]

    def _give_back(self, chunk_pass, way):
        """Return the memory of what the chunk took on a way."""
        if way in chunk_pass.takes:
            self.pool.give_back(chunk_pass.takes.pop(way).reshape(-1))

    # ----- evaluation

    def evaluate(self, micro_batch, context):
        """Pass a MicroBatch forward through this rank's chunks, in a Context that has begun; returns what the last of them
        computes: on the rank of the network's last chunk the outputs."""
        number, y, taken = EVALUATED, None, []
        self.micro_batches[number] = micro_batch
        for chunk in sorted(self.chunks):
            chunk_pass = self._pass(chunk, number)
            if chunk and self.boundaries[chunk].is_receiver("forward"):
                self._announce(Instruction("RECV_F", chunk, number))
                self.transport.arrived("forward", chunk, number)
            y = self.chunks[chunk].forward(self._input(chunk, number), context)
            taken.extend(chunk_pass.takes.values())
            chunk_pass.takes.clear()
            if chunk != self.last:
                self._made("forward", chunk, number, y)
            if chunk_pass.made:
                self.send(Instruction("SEND_F", chunk, number))
            else:
                self._forget((chunk, number))
        self.transport.complete_sends()  # of arrays that the next evaluation uses again; an empty chunk sends what it took
        for array in taken:
            self.pool.give_back(array.reshape(-1))
        del self.micro_batches[number]
        return y

    # ----- memory

    def clear(self):
        """Begin anew to look for the peak of the memory."""
        self._states.clear()

    def _note_memory(self):
        """Note how many micro-batches are open in each chunk, and how many versions of the weights are in use."""
        used = {chunk_pass.version for chunk_pass in self._passes.values() if chunk_pass.context} | {self.updates}
        self._states.add((*self._open.values(), len(used) if self.versions else 1))

    @property
    def versions_at_most(self):
        """How many versions of the weights were in use at a time."""
        return max((state[-1] for state in self._states), default=1)

    @property
    def open_at_most(self):
        """{chunk: how many micro-batches were open in it at a time}."""
        return {chunk: max((state[i] for state in self._states), default=0) for i, chunk in enumerate(self.chunks)}

    @property
    def context_bytes(self):
        """{chunk: bytes of what it stores for one open micro-batch}, the largest so far; to be asked between two steps."""
        return {chunk: max((context.stored_bytes for context in self._free[chunk]), default=0) for chunk in self.chunks}

    def peak_bytes(self, weights=0):
        """The most bytes that open micro-batches and versions of the weights took at a time. weights: bytes of one version."""
        sizes = [*self.context_bytes.values(), weights]
        return max((sum(map(mul, state, sizes)) for state in self._states), default=0)


def behind(way, chunk):
    """The number of the boundary where a chunk gets its input: boundary n lies in front of chunk n."""
    return chunk if way == "forward" else chunk + 1


ACTIONS = {
    "F": Executor.forward, "B": Executor.backward, "I": Executor.input_gradient, "W": Executor.weight_gradient,
    "SEND_F": Executor.send, "SEND_B": Executor.send, "RECV_F": Executor.receive, "RECV_B": Executor.receive,
    "U": Executor.update,
}  # fmt: skip
