"""Workers in virtual time, and messages as they come in. Times are powers of two, so that sums of them are exact."""

import threading
from functools import partial

import numpy as np
import pytest

from gridgrad.nn import LOSSES, SGD
from gridgrad.parallel.grid.collectives import all_reduce_elements
from gridgrad.parallel.grid.group import Tally
from gridgrad.parallel.protocols import protocol_names
from gridgrad.parallel.protocols.protocol import BETWEEN_WORKERS
from gridgrad.parallel.protocols.simulated_workers import Simulation, Task, train
from gridgrad.parallel.protocols.workers import NUMBERS, Workers
from tests.mpi import mpi
from tests.parallel.protocols.training import dense, samples

HEADER = 48  # bytes in front of each message


def each(*functions):
    """A function for `run` with which each worker does something else; the last one is for all that are left."""
    return lambda workers: functions[min(workers.rank, len(functions) - 1)](workers)


def inbox(workers, kind="note"):
    """A list to which each message of this kind adds (time, source, numbers, bytes)."""
    found = []
    workers.handle(kind, lambda source, numbers, array: found.append((workers.now(), source, numbers[0], bytes(array))))
    return found


def send_notes(workers, to, count, array=None, pause=0.0):
    workers.handle("note", None)
    for number in range(count):
        workers.send(to, "note", (number,), array)
        workers.compute(pause)


def receive_notes(workers, count):
    found = inbox(workers)
    workers.wait_until(lambda: len(found) == count)
    return found


# ----- messages


@pytest.mark.parametrize(
    ("options", "expected"),
    [  # a link sends one message after another, and those of others do not wait; or so does the receiver serve them
        ({"byte_seconds": 1.0}, [(49.0, 1, 0), (49.0, 2, 0), (97.0, 1, 1), (97.0, 2, 1)]),
        ({"serve_seconds": 4.0 / HEADER}, [(5.0, 1, 0), (9.0, 1, 1), (13.0, 2, 0), (17.0, 2, 1)]),
    ],
)
def test_messages_wait_for_earlier_ones_on_the_link_and_at_the_receiver(options, expected):
    simulation = Simulation(3, latency=1.0, **options)
    found, *_ = simulation.run(each(lambda w: receive_notes(w, 4), lambda w: send_notes(w, 0, 2)))
    assert [(time, source, number) for time, source, number, _ in found] == expected


def test_messages_between_two_workers_stay_in_order_though_some_are_delayed():
    simulation = Simulation(2, latency=1.0, delayed=(0.25, 1.5))
    _, found = simulation.run(each(lambda w: send_notes(w, 1, 400, pause=1.0), lambda w: receive_notes(w, 400)))
    assert [number for _, _, number, _ in found] == list(range(400))
    delays = [time - number - 1.0 for time, _, number, _ in found]
    late = [delay == 1.5 for delay in delays]
    assert 60 <= sum(late) <= 140
    for earlier, this, delay in zip(late, late[1:], delays[1:], strict=False):
        assert delay == (1.5 if this else 0.5 if earlier else 0.0)  # behind a delayed message others wait


class Late:
    """The request of a message that is complete at the look behind so many others."""

    def __init__(self, looks):
        self.looks = looks

    def Test(self):
        self.looks -= 1
        return self.looks < 0


@mpi(1)
def test_messages_of_a_worker_are_handled_in_their_order_whenever_they_are_complete(comm):
    """Those of MPI."""
    workers, handled = Workers(comm, comm, Tally()), []
    workers.handle("number", lambda source, numbers, array: handled.append((source, numbers[0])))
    for source, looks, number in [(1, 2, 10), (2, 0, 20), (1, 0, 11), (1, 1, 12)]:
        message = np.array([0, number, *[0] * (NUMBERS - 2)]).view(np.uint8)
        workers._arriving.append((source, Late(looks), message))
    while workers._arriving:
        workers.serve()
    assert handled == [(2, 20), (1, 10), (1, 11), (1, 12)]


# ----- computing and all-reduces


@pytest.mark.parametrize("size", [1, 3])
def test_an_all_reduce_sums_in_the_order_of_the_workers(size):
    values = np.random.default_rng(0).normal(size=(size, 7)).astype(np.float32)

    def run(workers):
        array = values[workers.rank].copy()
        workers.compute(size - workers.rank)  # they come in another order
        workers.all_reduce(array)
        return array

    simulation = Simulation(size, latency=2.0**-10, byte_seconds=2.0**-20)
    for array in simulation.run(run):
        assert array.tobytes() == sum(values[1:], values[0]).tobytes()
    ring = 2 * (size - 1) * (2.0**-10 + 4 * 7 / size * 2.0**-20)
    assert simulation.time == pytest.approx(size + ring, rel=1e-12)
    for rank, workers in enumerate(simulation.workers if size > 1 else ()):
        record = workers.tally.records[BETWEEN_WORKERS, "all-reduce"]
        assert record.bytes == 4 * all_reduce_elements(7, size, rank)
        assert record.seconds == pytest.approx(rank + ring, rel=1e-12)


# ----- what goes wrong


def wait(workers):
    try:
        workers.wait_until(lambda: False)
    except Exception:  # must not get in the way
        workers.wait_until(lambda: False)


def send_and(handler):
    """The first worker sends a note to the second one, which handles it."""

    def compute(workers):
        workers.handle("note", lambda *_: handler(workers))
        workers.compute(8.0)

    return lambda workers: send_notes(workers, 1, 1), compute


@pytest.mark.parametrize(
    ("functions", "error", "words"),
    [
        ((wait, lambda w: None, lambda w: w.all_reduce(np.ones(1), "sum")), RuntimeError, "deadlock: worker 0 waits"),
        (send_and(lambda w: 1 / 0), ZeroDivisionError, "in worker 1 of 3 in a simulation, at 0 s"),
    ],
)
def test_what_goes_wrong_with_one_worker_ends_all_and_says_where(functions, error, words):
    before = threading.active_count()
    with pytest.raises(error) as caught:
        Simulation(3).run(each(*functions))
    assert words in " ".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert threading.active_count() == before


def test_training_is_the_same_again_and_another_one_with_another_seed():
    def trained(seed=0):
        options = dict(latency=1e-3, byte_seconds=1e-6, straggler={0: 4.0}, jitter=1.0, delayed=(0.1, 0.2), serve_seconds=1e-5)
        task = Task(dense(), partial(SGD, lr=0.1), LOSSES["cross-entropy"](), *samples(dense(), 31), 8, 10)
        simulation, history = Simulation(3, seed=seed, **options), []
        note = lambda workers, turn, loss, nets: history.append((workers.now(), workers.rank, turn.step, turn.samples, loss))  # noqa: E731
        train(simulation, task, protocol_names.parse("server:asp"), lambda count: 1.0, note)
        assert sum(samples for *_, samples, _ in history) == 8 * 8 + 2 * 7 and sorted(history) == history
        return history

    assert trained() == trained() != trained(seed=1)
