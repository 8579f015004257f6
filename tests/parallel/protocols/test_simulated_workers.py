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
from gridgrad.parallel.training.steps import Diverged
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


def test_a_message_is_a_copy_and_takes_the_time_of_its_bytes_and_the_latency():
    def send(workers):
        array = np.ones(2)
        workers.send(1, "note", (), array)
        array[:] = 2

    simulation = Simulation(2, latency=4.0, byte_seconds=0.5)
    _, found = simulation.run(each(send, lambda w: receive_notes(w, 1)))
    assert found == [(4.0 + (HEADER + 16) / 2, 0, 0, np.ones(2).tobytes())]
    assert simulation.time == 36.0


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


def test_the_answer_of_a_handler_leaves_when_the_message_has_been_served():
    def ask(workers):
        found = inbox(workers, "answer")
        workers.handle("question", None)
        workers.send(1, "question")
        workers.wait_until(lambda: found)
        return found

    def answer(workers):
        asked = []
        workers.handle("answer", None)
        workers.handle("question", lambda source, *_: (workers.send(source, "answer"), asked.append(source)))
        workers.wait_until(lambda: asked)

    times = {"question": 8.0, "answer": 2.0}
    simulation = Simulation(2, latency=1.0, serve_seconds=lambda kind, size: times[kind])
    (answers, _), asking = simulation.run(each(ask, answer)), simulation.workers[0].tally.records
    assert [time for time, *_ in answers] == [1.0 + 8.0 + 1.0 + 2.0]
    assert asking[BETWEEN_WORKERS, "wait"].seconds == 12.0
    assert (asking[BETWEEN_WORKERS, "question"].messages, asking[BETWEEN_WORKERS, "question"].bytes) == (1, HEADER)


def test_messages_are_served_while_their_receiver_computes_which_makes_that_longer():
    def receive(workers):
        found, times = inbox(workers), []
        for _ in range(3):
            workers.compute(8.0)
            times.append(workers.now())
        return [time for time, *_ in found], times

    simulation = Simulation(2, latency=7.0, serve_seconds=lambda kind, size: 2.0)
    _, (found, times) = simulation.run(each(lambda w: send_notes(w, 1, 2, pause=12.0), receive))
    assert found == [9.0, 21.0]  # arrived at 7 and 19
    assert times == [10.0, 18.0, 28.0]


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


def test_stragglers_and_jitter_make_computations_longer():
    def run(workers):
        before = workers.now()
        workers.compute(1.0)
        return workers.now() - before

    assert Simulation(3, straggler={1: 4.0}).run(run) == [1.0, 4.0, 1.0]
    first, second = Simulation(2, jitter=2.0).run(lambda w: [run(w) for _ in range(300)])
    for seconds in (first, second):
        assert 1.0 <= min(seconds) < 1.1 and 2.9 < max(seconds) < 3.0
    assert first != second


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("elements", [0, 7])
def test_an_all_reduce_sums_in_the_order_of_the_workers(size, elements):
    values = np.random.default_rng(0).normal(size=(size, elements)).astype(np.float32)

    def run(workers):
        array = values[workers.rank].copy()
        workers.compute(size - workers.rank)  # they come in another order
        workers.all_reduce(array)
        return array

    simulation = Simulation(size, latency=2.0**-10, byte_seconds=2.0**-20)
    expected = np.zeros(elements, np.float32) if size > 1 else values[0]
    for row in values if size > 1 else ():
        expected = expected + row
    for array in simulation.run(run):
        assert array.tobytes() == expected.tobytes()
    ring = 2 * (size - 1) * (2.0**-10 + 4 * elements / size * 2.0**-20)
    assert simulation.time == pytest.approx(size + ring, rel=1e-12)
    for rank, workers in enumerate(simulation.workers if size > 1 else ()):
        record = workers.tally.records[BETWEEN_WORKERS, "all-reduce"]
        assert record.bytes == 4 * all_reduce_elements(elements, size, rank)
        assert record.seconds == pytest.approx(rank + ring, rel=1e-12)


def test_a_started_all_reduce_proceeds_while_workers_compute():
    def run(workers):
        array, seen = np.array([1.0 + workers.rank]), []
        transfer = workers.start_all_reduce(array, "sum")
        for seconds in (3.0, 1.0, 4.0):
            seen.append((workers.now(), transfer.test(), transfer.done, float(array[0])))
            workers.compute(seconds)
        transfer.wait()
        return seen, workers.now(), transfer.stopped

    simulation = Simulation(2, latency=2.0)
    for rank, (seen, stop, stopped) in enumerate(simulation.run(run)):
        assert seen == [(0.0, False, False, 1.0 + rank), (3.0, False, False, 1.0 + rank), (4.0, True, True, 3.0)]
        assert stop == 8.0 and stopped == 4.0
    assert simulation.workers[0].tally.records["sum", "all-reduce"].seconds == 0.0


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
        (
            (wait, lambda w: None, lambda w: w.all_reduce(np.ones(1), "sum")),
            RuntimeError,
            "deadlock: worker 0 waits for a message",
        ),
        (send_and(lambda w: 1 / 0), ZeroDivisionError, "in worker 1 of 3 in a simulation, at 0 s"),
        (send_and(lambda w: w.compute(1.0)), RuntimeError, "worker 1 must not wait"),
        ((lambda w: w.all_reduce(np.ones(2 + w.rank // 2)),), ValueError, "worker 2 has an array of shape (3,)"),
    ],
)
def test_what_goes_wrong_with_one_worker_ends_all_and_says_where(functions, error, words):
    before = threading.active_count()
    with pytest.raises(error) as caught:
        Simulation(3).run(each(*functions))
    assert words in " ".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("options", "words"),
    [({"straggler": {2: 4.0}}, "no worker 2"), ({"latency": -1.0}, "negative"), ({"workers": 0}, "at least 1")],
)
def test_wrong_arguments_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        Simulation(**{"workers": 2} | options)


# ----- training


def trained(simulation, protocol, lr=0.1):
    """(the parameters of the first worker, [(time, worker, step, samples, loss) of each turn]) of ten steps."""
    history, (x, y) = [], samples(dense(), 31)  # the last of the four minibatches of an epoch has 7 samples
    task = Task(dense(), partial(SGD, lr=lr, momentum=0.9), LOSSES["cross-entropy"](), x, y, 8, 10)

    def note(workers, turn, loss, nets):
        assert len(nets) == simulation.size and all(np.isfinite(net.predict(x)).all() for net in nets)
        history.append((workers.now(), workers.rank, turn.step, turn.samples, loss))

    _, states = train(simulation, task, protocol_names.parse(protocol), lambda count: 1.0, note)
    return np.concatenate([array.ravel() for array in states[0].values()]), history


@pytest.mark.parametrize("protocol", ["local:5", "server:bsp"])
def test_a_straggler_slows_down_all_workers_that_are_in_step(protocol):
    alike, unlike = Simulation(4), Simulation(4, straggler={3: 4.0})
    (params, history), (slow, _) = (trained(simulation, protocol) for simulation in (alike, unlike))
    assert (alike.time, unlike.time) == (10, 40)
    assert abs(params - slow).max() < 1e-14  # it is nothing but slower
    assert sorted((step, worker) for _, worker, step, *_ in history) == [(s, w) for s in range(10) for w in range(4)]
    assert sum(samples for *_, samples, _ in history) == 8 * 8 + 2 * 7
    assert [time for time, *_ in history] == sorted(time for time, *_ in history)


def test_times_and_bytes_of_exchanges():
    simulation = Simulation(2, latency=2.0**-10, byte_seconds=2.0**-20)
    params, _ = trained(simulation, "local:5")
    exchange = 2 * 2.0**-10 + 8 * params.size * 2.0**-20
    buffers = 2 * 2.0**-10 + 8 * 2.0**-20  # the sum of the samples, when training ends
    assert simulation.time == pytest.approx(10 + 2 * exchange + buffers, rel=1e-12)
    record = simulation.workers[0].tally.records[BETWEEN_WORKERS, "all-reduce"]
    assert record.bytes == 8 * (2 * params.size + 1) and record.seconds == pytest.approx(2 * exchange + buffers)


def test_a_run_is_the_same_again_and_another_one_with_another_seed():
    def run(seed=0):
        options = dict(latency=1e-3, byte_seconds=1e-6, straggler={0: 4.0}, jitter=1.0, delayed=(0.1, 0.2), serve_seconds=1e-5)
        params, history = trained(Simulation(3, seed=seed, **options), "server:asp")
        return history, params.tolist()

    assert run() == run() != run(seed=1)


def test_divergence_of_a_worker_is_raised():
    with pytest.raises(Diverged) as caught, np.errstate(all="ignore"):
        trained(Simulation(3), "local:4", lr=1e308)
    assert "of 3 in a simulation" in caught.value.__notes__[0]
