"""The executor alone: all ranks of a pipeline in one process, with messages through a mailbox."""

from collections import Counter
from functools import partial
from itertools import product

import numpy as np
import pytest

from gridgrad.nn import SGD, SoftmaxCrossEntropy
from gridgrad.nn.sequence import Chunk, output_shape
from gridgrad.parallel.grid.group import TAGS
from gridgrad.parallel.grid.process_grid import AXES
from gridgrad.parallel.pipeline import schedule_names
from gridgrad.parallel.pipeline.generators import complete
from gridgrad.parallel.pipeline.schedule import Route, Schedule, Unsound, execution
from gridgrad.parallel.placement.layout import Layout
from gridgrad.parallel.plans.place_network import cut
from gridgrad.parallel.training import messages
from gridgrad.parallel.training.distribute import balanced_cuts
from gridgrad.parallel.training.executor import Executor, MicroBatch
from gridgrad.parallel.training.messages import LEAST_TAGS, WAYS, Messages, StageBoundary
from tests.parallel.equality import micro_batches_of, serial
from tests.parallel.pipelines import dense, images, minibatches, own_schedule, serial_net

SYNCHRONOUS = "sequential", "gpipe", "1f1b", "interleaved:2", "interleaved:3", "zb-h1", "zbv"


class LocalMessages(Messages):
    """Messages between ranks that all run in one process. mailbox: a dict of them for all ranks."""

    def __init__(self, mailbox, route, rank, *arguments):
        super().__init__(None, route, rank, *arguments)
        self.mailbox, self.rank = mailbox, rank

    def post(self, message, arrays, given):
        for rank, array in arrays.items():
            self.mailbox[*message, self.rank, rank] = array.copy()
        for array in given:
            self.give_back(array)

    def expect(self, message, buffers):
        self.expected[message] = buffers

    def arrived(self, message):
        """Whether the announced messages have arrived; only then they are taken out of the mailbox."""
        keys = {rank: (*message, rank, self.rank) for rank in self.expected[message]}
        if not all(key in self.mailbox for key in keys.values()):
            return False
        for rank, array in self.expected.pop(message).items():
            array[...] = self.mailbox.pop(keys[rank])
        return True


class OneProcess:
    """All ranks of a pipeline, each with its chunks of one serial network. None of them updates its parameters."""

    def __init__(self, layers, route):
        self.net = serial_net(layers)
        parts, shapes = cut(self.net.layers, balanced_cuts(self.net, route.chunks)), [self.net.input_shape]
        self.net.allocate()
        for part in parts:
            shapes.append(output_shape(part, shapes[-1]))
        self.mailbox, self.executors, nowhere = {}, [], dict.fromkeys(AXES, 0)
        for rank in range(route.ranks):
            boundaries = {
                number: StageBoundary(Layout((None, *shapes[number]), dict.fromkeys(AXES, 1), {}), nowhere,
                                      *route.places[number - 1], *route.places[number], rank)
                for number in range(1, route.chunks)
            }  # fmt: skip
            chunks = {number: Chunk(parts[number]) for number in route.held(rank)}
            crossing = LocalMessages(self.mailbox, route, rank, boundaries, self.net.dtype)
            self.executors.append(Executor(self.net, chunks, route.chunks - 1, crossing))
            self.executors[-1].trainer = NoTrainer()

    def step(self, rows, x, y, micro_batches):
        """Follow the rows until no rank can go on. Returns {rank: the Instruction at which it waits}."""
        for executor in self.executors:
            for number, part in enumerate(micro_batches_of(len(x), micro_batches)):
                samples = part.stop - part.start
                executor.micro_batches[number] = MicroBatch(x[part], y[part], samples, part.start, len(x), self.net.step)
        running = {rank: self.executors[rank].run(self.executors[rank].bound(row, {}, {})) for rank, row in enumerate(rows)}
        waiting, before = {}, None
        while running and waiting != before:
            before = dict(waiting)
            for rank, run in list(running.items()):
                waiting[rank] = next(run, None)
                if waiting[rank] is None:
                    del running[rank], waiting[rank]
        return waiting


class NoTrainer:
    """What the executor of one rank calls, in place of a Trainer."""

    loss = SoftmaxCrossEntropy()

    def loss_known(self):
        pass

    def update(self, micro_batch):
        pass


def schedules(stages, micro_batches):
    """Complete ones: all that are synchronous, and one of our own."""
    found = [schedule_names.parse(name).schedule(stages, micro_batches) for name in SYNCHRONOUS]
    return [complete(schedule) for schedule in (*found, own_schedule(stages, micro_batches))]


def open_at_most(row):
    """{chunk: how many micro-batches are open in it at a time} of a row."""
    now, most = Counter(), Counter()
    for op, chunk, _ in row:
        now[chunk] += (op == "F") - (op in ("B", "W"))
        most[chunk] = max(most[chunk], now[chunk])
    return {chunk: n for chunk, n in most.items() if chunk is not None}


def moved(row, rng):
    """A row in which a message may have another place nearby: a receive comes earlier, a send later."""
    row, at = list(row), int(rng.integers(len(row) - 1))
    if row[at].op.startswith("RECV"):
        row.insert(int(rng.integers(max(0, at - 4), at + 1)), row.pop(at))
    elif row[at].op.startswith("SEND"):
        row.insert(int(rng.integers(at, min(at + 4, len(row) - 1))), row.pop(at))
    return row


def marks_of(schedule):
    """{rank: position of the instruction at which it waits for ever, says the check}, empty for a sound schedule."""
    try:
        list(execution(schedule))
    except Unsound as unsound:
        return unsound.marks
    return {}


@pytest.mark.parametrize("stages", (1, 2, 3))
def test_sound_schedules_come_to_an_end_and_others_stop_where_the_check_says(stages):
    """Each schedule as it is, and with messages that are misplaced at random. The loss is that of the serial network."""
    rng, ends = np.random.default_rng(stages), Counter()
    micro_batches = stages + 1
    ((x, y),) = minibatches(dense, (2 * micro_batches + 1,))
    (loss,), _ = serial(serial_net(dense), partial(SGD, lr=0.1), "cross-entropy", [(x, y)], micro_batches)
    for whole, is_moved in product(schedules(stages, micro_batches), (False, True, True, True)):
        rows = [moved(row, rng) for row in whole.rows] if is_moved else whole.rows
        schedule = Schedule(rows, whole.route, whole.name)
        marks = marks_of(schedule)
        pipeline = OneProcess(dense, schedule.route)
        stopped = pipeline.step(schedule.rows, x, y, micro_batches)
        assert marks == {rank: schedule.rows[rank].index(one) for rank, one in stopped.items()}, schedule.name
        ends[bool(marks)] += 1
        if not marks:
            assert sum(sum(executor.losses.values()) for executor in pipeline.executors) == pytest.approx(loss, rel=1e-10)
            assert not pipeline.mailbox
            for executor, row in zip(pipeline.executors, schedule.rows, strict=True):
                assert executor.open_at_most == open_at_most(row), schedule.name
                assert not executor.passes and executor.messages.is_empty
    assert ends[False] > 8 and (ends[True] > 2 or stages == 1), ends


def test_memory_is_used_again(monkeypatch):
    """After the first step no step takes new arrays, neither for messages nor for contexts."""
    taken = []
    monkeypatch.setattr(messages, "empty", lambda size, dtype: taken.append(size) or np.empty(size, dtype))
    ((x, y),) = minibatches(images, (9,))
    for schedule in schedules(3, 4):
        pipeline, counts = OneProcess(images, schedule.route), []
        for _ in range(3):
            assert not pipeline.step(schedule.rows, x, y, 4)
            counts.append(len(taken))
            for executor, row in zip(pipeline.executors, schedule.rows, strict=True):
                assert {chunk: len(contexts) for chunk, contexts in executor.free.items()} == open_at_most(row)
        assert counts[1:] == counts[:1] * 2, schedule.name


def test_messages_have_tags_that_groups_do_not_use():
    crossing = Messages(None, Route.contiguous(3), 0, {}, np.float64)
    found = {crossing._tag(way, chunk, number) for way in WAYS for chunk in range(3) for number in range(20000)}
    assert min(found) == TAGS and max(found) < LEAST_TAGS and len(found) == 6 * crossing.numbers
