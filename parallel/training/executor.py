"""The executor of a training step: carries out the instructions of one rank, one after another.

It knows neither the schedule from which the instructions come nor how messages travel. A rank announces the messages that it
will receive some instructions ahead, and its sends do not block. So what a rank waits for is always an instruction of another
one, as in the simulator (`parallel/pipeline/simulate.py`), and no schedule that the simulator finds sound can deadlock here.
"""

from collections import Counter, defaultdict
from functools import partial
from operator import mul
from typing import Any, NamedTuple

from gridgrad.nn.context import Context
from gridgrad.nn.device import as_input, to_device
from gridgrad.parallel.pipeline.schedule import with_announcements
from gridgrad.parallel.training.messages import BACKWARD, FORWARD

EVALUATED = 0  # the number of a micro-batch that is only evaluated
WAYS_OF = {"RECV_F": (FORWARD, 0), "RECV_B": (BACKWARD, 1), "SEND_F": (FORWARD, 1), "SEND_B": (BACKWARD, 0)}  # see message_of


class MicroBatch(NamedTuple):
    """The part of a minibatch that passes through the chunks as one. x, y: this rank's blocks. samples, first: the number of
    its samples on all ranks, the index of the first one in the global minibatch. step: the number of the training step."""

    x: Any
    y: Any
    samples: int
    first: int
    minibatch_size: int
    step: int


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

    def use(self, number):
        """Let the layers use the weights of a version; returns the id of the array that holds them."""
        flat = self.params if number == self.number else self._kept[number]
        for _, p, where in self.places:
            p.value = flat[where].reshape(p.block_shape)
        return id(flat)


class Executor:
    """Carries out a rank's instructions for its `trainer`, and keeps what is open between them. chunks: {number: Chunk} of this
    rank. last: the number of the network's last chunk. messages: None without a pipeline; then one context serves all steps.
    versions: WeightVersions, or None where backward uses the newest weights."""

    def __init__(self, net, chunks, last, messages=None, versions=None):
        self.net, self.chunks, self.last, self.messages, self.versions = net, chunks, last, messages, versions
        self.trainer = None
        self.micro_batches, self.losses = {}, {}  # {number: MicroBatch}, filled by the trainer; {number: this rank's part}
        self.updates, self.staleness = 0, Counter()  # {number: the most updates between forward and backward of a chunk}
        self.stale = Counter()  # {updates between forward and backward: minibatches of asynchronous training}
        self.passes = {}  # {(chunk, number): (Context, version of the weights in forward)} of all that is open
        self.free, self._sharing = defaultdict(list), Context()  # {chunk: contexts to use again}
        self._states = set()  # of (micro-batches open in each chunk, versions of the weights in use), at one time
        self._actions = {
            "F": self.forward, "B": self.backward, "I": self.backward, "W": self.backward, "U": self.update,
            "SEND_F": self.send, "SEND_B": self.send, "RECV_F": self.receive, "RECV_B": self.receive,
        }  # fmt: skip

    def bound(self, instructions, before, after):
        """A list of instructions for `run`. before, after: {instruction: what is to be called then, too}."""
        return [
            (one, self._actions[one.op], receives, before.get(one), after.get(one))
            for one, receives in with_announcements(instructions)
        ]

    def run(self, row):
        """Carry out what `bound` has returned; a generator, which yields where a message has not arrived yet."""
        for instruction, action, receives, before, after in row:
            observer = self.messages and self.net.observer
            for receive in receives:
                self.messages.announce(message_of(receive), self.micro_batches[receive.micro_batch].samples)
            if observer:
                observer.begin_instruction(instruction)
            if before:
                before()
            while action(*instruction) is False:
                yield instruction
            if after:
                after()
            if observer:
                observer.end_instruction(instruction)

    def receive(self, *instruction):
        """Whether the message has arrived."""
        return self.messages.arrived(message_of(instruction))

    def send(self, *instruction):
        self.messages.send(message_of(instruction), self.micro_batches[instruction[-1]].samples)

    def forward(self, op, chunk, number):
        """Begin a pass of a micro-batch through a chunk."""
        net, part = self.net, self.micro_batches[number]
        context = self.free[chunk].pop() if self.free[chunk] else Context(sharing=self._sharing)
        self.passes[chunk, number] = context, self.updates
        context.training = True
        context.begin(net.seed, part.step, part.samples, part.first, part.minibatch_size)
        context.attach(net.observer)
        if self.messages:
            self._note_memory()
        x = as_input(part.x, net.dtype) if chunk == 0 else self.messages.get((FORWARD, chunk, number), part.samples)
        layers, loss = self.chunks[chunk], self.trainer.loss
        if chunk < self.last:
            y = context.as_graph(partial(layers.forward, context=context), layers, x)
            self.messages.put((FORWARD, chunk + 1, number), y)
        else:
            forward = partial(layers.loss, loss, context=context)
            self.losses[number] = context.as_graph(forward, (layers, loss), x, to_device(part.y))
            self.trainer.loss_known()

    def backward(self, op, chunk, number):
        """B, or one of its halves, I and W. After B or W nothing of the pass is open."""
        layers, (context, version) = self.chunks[chunk], self.passes[chunk, number]
        context.attach(self.net.observer)
        weights = self.versions.use(version) if self.versions and version != self.updates else None
        if op == "W":
            context.as_graph(partial(layers.parameter_gradients, context), (op, weights), follows=True)
        else:
            self.staleness[number] = max(self.updates - version, self.staleness[number])
            half, dy = "backward" if op == "B" else "input_gradients", []
            if chunk == self.last:
                compute = partial(layers.backward_from, self.trainer.loss, context, half, input_gradient=chunk > 0)
            else:
                compute = partial(getattr(layers, half), context=context, input_gradient=chunk > 0)
                dy = [self.messages.get((BACKWARD, chunk + 1, number), self.micro_batches[number].samples)]
            dx = context.as_graph(compute, (op, weights), *dy, follows=True)
            if chunk > 0:
                self.messages.put((BACKWARD, chunk, number), dx)
            if chunk < self.last:
                self.messages.done((BACKWARD, chunk + 1, number))
        if weights is not None:
            self.versions.use(self.updates)
        if op != "I":
            if chunk > 0:
                self.messages.done((FORWARD, chunk, number))
            del self.passes[chunk, number]
            self.free[chunk].append(context)

    def update(self, op, chunk, number):
        if self.versions:
            self.versions.before_update({version for _, version in self.passes.values()})
        self.trainer.update(number)
        self.updates += 1
        if self.messages:
            self._note_memory()

    def evaluate(self, micro_batch, context):
        """Pass a MicroBatch forward through this rank's chunks, in a Context that has begun; returns what the last of them
        computes: on the rank of the network's last chunk the outputs."""
        messages, samples, y = self.messages, micro_batch.samples, None
        for chunk in sorted(self.chunks):
            incoming, outgoing = (FORWARD, chunk, EVALUATED), (FORWARD, chunk + 1, EVALUATED)
            if (BACKWARD, chunk) in messages.sends_at:
                messages.announce(incoming, samples)
                messages.arrived(incoming)
            x = micro_batch.x if chunk == 0 else messages.get(incoming, samples)
            y = self.chunks[chunk].forward(x, context)
            if chunk < self.last:
                messages.put(outgoing, y)
                if (FORWARD, chunk + 1) in messages.sends_at:
                    messages.send(outgoing, samples)
        messages.complete_sends()  # of arrays that the next evaluation uses again; an empty chunk sends what it took
        for chunk in self.chunks:
            if chunk > 0:
                messages.done((FORWARD, chunk, EVALUATED))
        return y

    # ----- memory

    def clear(self):
        """Look for the peak of the memory anew."""
        self._states.clear()

    def _note_memory(self):
        opened = Counter(chunk for chunk, _ in self.passes)
        used = {version for _, version in self.passes.values()} | {self.updates}
        self._states.add((*(opened[chunk] for chunk in self.chunks), len(used) if self.versions else 1))

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
        return {chunk: max((context.stored_bytes for context in self.free[chunk]), default=0) for chunk in self.chunks}

    def peak_bytes(self, weights=0):
        """The most bytes that open micro-batches and versions of the weights took at a time. weights: bytes of one version."""
        sizes = [*self.context_bytes.values(), weights]
        return max((sum(map(mul, state, sizes)) for state in self._states), default=0)


def message_of(instruction):
    """The message (see `Messages`) that an instruction sends or receives: boundary n lies in front of chunk n."""
    op, chunk, number = instruction
    way, behind = WAYS_OF[op]
    return way, chunk + behind, number
