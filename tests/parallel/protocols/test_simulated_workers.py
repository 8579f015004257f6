"""Workers in virtual time, and messages as they come in. Times are powers of two, so that sums of them are exact."""

import threading
from functools import partial
from itertools import chain, repeat
from types import SimpleNamespace

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


def notes(count):
    """A function for `run`: all workers send so many notes to the first one, which returns (time, source, number) of each."""

    def run(workers):
        found = []
        workers.handle("note", lambda source, numbers, array: found.append((workers.now(), source, numbers[0])))
        for number in range(count if workers.rank else 0):
            workers.send(0, "note", (number,), None)
        workers.wait_until(lambda: workers.rank or len(found) == count * (workers.size - 1))
        return found

    return run


# ----- messages


@pytest.mark.parametrize(("options", "expected"), [
    # A link sends one message after another, and those of others do not wait; or so does the receiver serve them.
    ({"byte_seconds": 1.0}, [(49.0, 1, 0), (49.0, 2, 0), (97.0, 1, 1), (97.0, 2, 1)]),
    ({"serve_seconds": 4.0 / HEADER}, [(5.0, 1, 0), (9.0, 1, 1), (13.0, 2, 0), (17.0, 2, 1)]),
])  # fmt: skip
def test_messages_wait_for_earlier_ones_on_the_link_and_at_the_receiver(options, expected):
    found, *_ = Simulation(3, latency=1.0, **options).run(notes(2))
    assert found == expected


@mpi(1)
def test_messages_of_a_worker_are_handled_in_their_order_whenever_they_are_complete(comm):
    """Those of MPI, each complete when one has looked so many times."""
    workers, handled = Workers(comm, comm, Tally()), []
    workers.handle("number", lambda source, numbers, array: handled.append((source, numbers[0])))
    for source, looks, number in [(1, 2, 10), (2, 0, 20), (1, 0, 11), (1, 1, 12)]:
        message = np.array([0, number, *[0] * (NUMBERS - 2)]).view(np.uint8)
        request = SimpleNamespace(Test=chain([False] * looks, repeat(True)).__next__)
        workers._arriving.append((source, request, message))
    while workers._arriving:
        workers.serve()
    assert handled == [(2, 20), (1, 10), (1, 11), (1, 12)]


# ----- computing and all-reduces


def test_an_all_reduce_sums_in_the_order_of_the_workers_and_takes_the_time_of_a_ring():
    size, values = 3, np.random.default_rng(0).normal(size=(3, 7)).astype(np.float32)

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
    for rank, workers in enumerate(simulation.workers):
        assert workers.tally.records[BETWEEN_WORKERS, "all-reduce"].bytes == 4 * all_reduce_elements(7, size, rank)


@pytest.mark.parametrize(("action", "error", "words"), [
    (lambda workers: workers.wait_until(lambda: False), RuntimeError, "deadlock: worker 0 waits"),
    (lambda workers: workers.rank != 1 or 1 / 0, ZeroDivisionError, "in worker 1 of 3 in a simulation, at 0 s"),
])  # fmt: skip
def test_what_goes_wrong_with_one_worker_ends_all_and_says_where(action, error, words):
    before = threading.active_count()
    with pytest.raises(error) as caught:
        Simulation(3).run(action)
    assert words in " ".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert threading.active_count() == before


def test_training_is_the_same_again():
    def trained():
        options = dict(latency=1e-3, byte_seconds=1e-6, straggler={0: 4.0}, serve_seconds=1e-5)
        task = Task(dense(), partial(SGD, lr=0.1), LOSSES["cross-entropy"](), *samples(dense(), 31), 8, 10)
        simulation, history = Simulation(3, **options), []
        note = lambda workers, turn, loss, nets: history.append((workers.now(), workers.rank, turn.step, turn.samples, loss))  # noqa: E731
        train(simulation, task, protocol_names.parse("server:asp"), lambda count: 1.0, note)
        assert sum(samples for *_, samples, _ in history) == 8 * 8 + 2 * 7 and sorted(history) == history
        return history

    assert trained() == trained()
