"""Workers in virtual time. Times are powers of two, so that sums of them are exact."""

import threading
from functools import partial

import numpy as np
import pytest

from gridgrad.parallel.grid.collectives import all_reduce_elements
from gridgrad.parallel.protocols.protocol import BETWEEN_WORKERS
from gridgrad.parallel.protocols.simulated_workers import Simulation

HEADER = 48  # bytes in front of each message


def elsewhere(result=None):
    """A function for the workers other than those that a test is about."""
    return lambda workers: result


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


def threads_left(run):
    """How many threads are left after run(), and what it raised."""
    before = threading.active_count()
    with pytest.raises(Exception) as caught:
        run()
    return threading.active_count() - before, caught.value


# ----- messages


def test_a_message_takes_the_time_of_its_bytes_and_the_latency():
    simulation = Simulation(2, latency=4.0, byte_seconds=0.5)
    content = np.arange(2, dtype=np.float64)
    _, found = simulation.run(each(lambda w: send_notes(w, 1, 1, content), lambda w: receive_notes(w, 1)))
    assert found == [(4.0 + (HEADER + 16) / 2, 0, 0, content.tobytes())]
    assert simulation.time == 36.0


def test_the_link_of_a_sender_takes_one_message_after_another_and_those_of_others_do_not_wait():
    simulation = Simulation(3, latency=1.0, byte_seconds=1.0)
    found, *_ = simulation.run(
        each(lambda w: receive_notes(w, 5), lambda w: send_notes(w, 0, 3), lambda w: send_notes(w, 0, 2))
    )
    assert [(time, source, number) for time, source, number, _ in found] == [
        (49.0, 1, 0), (49.0, 2, 0), (97.0, 1, 1), (97.0, 2, 1), (145.0, 1, 2)
    ]  # fmt: skip


def test_what_is_sent_is_a_copy():
    def send(workers):
        array = np.ones(3)
        workers.send(1, "note", (), array)
        array[:] = 2

    _, found = Simulation(2, latency=1.0).run(each(send, lambda w: receive_notes(w, 1)))
    assert found[0][3] == np.ones(3).tobytes()


def test_messages_between_two_workers_stay_in_order_though_some_are_delayed():
    simulation = Simulation(2, latency=1.0, delayed=(0.25, 1.5))
    _, found = simulation.run(each(lambda w: send_notes(w, 1, 400, pause=1.0), lambda w: receive_notes(w, 400)))
    assert [number for _, _, number, _ in found] == list(range(400))
    delays = [time - number - 1.0 for time, _, number, _ in found]
    late = [delay == 1.5 for delay in delays]
    assert 60 <= sum(late) <= 140
    for earlier, this, delay in zip(late, late[1:], delays[1:], strict=False):
        assert delay == (1.5 if this else 0.5 if earlier else 0.0)  # behind a delayed message others wait


def test_a_message_to_oneself_is_handled_at_once():
    def run(workers):
        found = inbox(workers)
        workers.send(workers.rank, "note", (7,), np.ones(1))
        return found

    simulation = Simulation(2, latency=1.0, byte_seconds=1.0)
    assert simulation.run(run) == [[(0.0, rank, 7, np.ones(1).tobytes())] for rank in range(2)]
    assert not simulation.workers[0].tally.records


def test_messages_are_handled_while_their_receiver_computes():
    def receive(workers):
        found = inbox(workers)
        workers.compute(8.0)
        return found, workers.now()

    _, (found, stop) = Simulation(2, latency=1.0).run(each(lambda w: send_notes(w, 1, 3, pause=2.0), receive))
    assert [time for time, *_ in found] == [1.0, 3.0, 5.0] and stop == 8.0


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


def test_messages_that_come_when_their_receiver_has_ended_are_counted():
    simulation = Simulation(2, latency=1.0)
    simulation.run(each(lambda w: send_notes(w, 1, 3), elsewhere()))
    assert simulation.unhandled == {"note": 3}


# ----- serving


def test_messages_wait_until_earlier_ones_have_been_served():
    simulation = Simulation(3, latency=1.0, serve_seconds=4.0 / HEADER)
    found, *_ = simulation.run(each(lambda w: receive_notes(w, 4), lambda w: send_notes(w, 0, 2)))
    assert [(time, source, number) for time, source, number, _ in found] == [
        (5.0, 1, 0), (9.0, 1, 1), (13.0, 2, 0), (17.0, 2, 1)
    ]  # fmt: skip


def test_serving_makes_a_computation_longer():
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


def test_a_computation_begins_when_everything_that_has_arrived_is_served():
    def receive(workers):
        found = inbox(workers)
        workers.wait_until(lambda: found)
        start = workers.now()
        workers.compute(8.0)
        return start, workers.now()

    simulation = Simulation(2, latency=7.0, serve_seconds=lambda kind, size: 2.0)
    assert simulation.run(each(lambda w: send_notes(w, 1, 2), receive))[1] == (9.0, 11.0 + 8.0)


@pytest.mark.parametrize("pushers", [1, 2, 4, 7, 8, 9, 12, 16])
def test_a_server_sets_a_limit_to_the_workers_that_are_of_use(pushers):
    """Hegde and Usmani 2016, section 5.2.1: no gain beyond P = T / tau: T computes a gradient, tau serves it."""
    computing, serving, rounds = 8.0, 1.0, 64

    def push(workers):
        workers.compute(computing * (workers.rank - 1) / pushers)  # so that not all push at the same time
        send = partial(workers.send, 0, "push")
        workers.handle("push", None)
        for _ in range(rounds):
            workers.compute(computing)
            send()

    def serve(workers):
        times = []
        workers.handle("push", lambda *_: times.append(workers.now()))
        workers.wait_until(lambda: len(times) == rounds * pushers)
        return times

    times, *_ = Simulation(1 + pushers, serve_seconds=lambda kind, size: serving).run(each(serve, push))
    start, stop = len(times) // 4, 3 * len(times) // 4  # where all push
    rate = (stop - start) / (times[stop] - times[start])
    assert rate == min(pushers / computing, 1 / serving)


# ----- computing


def test_a_straggler_computes_longer():
    def run(workers):
        workers.compute(3.0)
        return workers.now()

    assert Simulation(3, straggler={1: 4.0}).run(run) == [3.0, 12.0, 3.0]


def test_jitter_makes_computations_longer_by_factors_that_depend_on_worker_and_seed():
    def run(workers):
        times = [0.0]
        for _ in range(300):
            workers.compute(1.0)
            times.append(workers.now())
        return np.diff(times)

    first, second = Simulation(2, jitter=2.0).run(run)
    for seconds in (first, second):
        assert 1.0 <= seconds.min() < 1.1 and 2.9 < seconds.max() < 3.0
    assert (first != second).any()
    again, other = Simulation(2, jitter=2.0).run(run)[0], Simulation(2, jitter=2.0, seed=1).run(run)[0]
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


# ----- all-reduces


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("elements", [0, 1, 7])
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


def test_all_reduces_follow_one_another():
    def run(workers):
        transfers = [workers.start_all_reduce(np.ones(2), "sum") for _ in range(3)]
        times = []
        for transfer in transfers:
            transfer.wait()
            times.append(workers.now())
        return times

    assert Simulation(2, byte_seconds=1.0).run(run) == [[16.0, 32.0, 48.0]] * 2


def test_arrays_of_an_all_reduce_must_be_alike():
    def run(workers):
        workers.all_reduce(np.ones(2 + workers.rank // 2))

    left, error = threads_left(lambda: Simulation(3).run(run))
    assert isinstance(error, ValueError) and left == 0
    assert "worker 2 has an array of shape (3,) and type float64, but worker 0 one of shape (2,)" in str(error)


# ----- what goes wrong


def test_a_deadlock_is_an_error_that_says_who_waits_for_what():
    def wait(workers):
        never = []
        workers.wait_until(lambda: never)

    def meet(workers):
        workers.all_reduce(np.ones(1), "sum")

    left, error = threads_left(lambda: Simulation(4).run(each(wait, elsewhere(), meet)))
    assert isinstance(error, RuntimeError) and left == 0
    assert "deadlock: worker 0 waits for a message, until test_a_deadlock" in str(error)
    assert "wait.<locals>.<lambda> (line" in str(error) and "of test_simulated_workers.py) is true" in str(error)
    assert "worker 1 " not in str(error)
    for worker in (2, 3):
        assert f"worker {worker} waits for all-reduce 0 (sum), which workers 0, 1 have not begun" in str(error)


def test_an_error_of_a_worker_ends_all():
    ended = []

    def wait(workers):
        try:
            workers.wait_until(lambda: False)
        except Exception:  # must not get in the way
            ended.append("caught")
        finally:
            ended.append(workers.rank)
            workers.wait_until(lambda: False)

    def fail(workers):
        workers.compute(2.0)
        raise KeyError("broken")

    left, error = threads_left(lambda: Simulation(3).run(each(wait, fail, wait)))
    assert isinstance(error, KeyError) and left == 0 and ended == [0, 2]
    assert error.__notes__ == ["in worker 1 of 3 in a simulation, at 2 s"]


def test_an_error_in_a_handler_ends_all():
    def fail(workers):
        workers.handle("note", lambda *_: 1 / 0)
        workers.compute(8.0)

    left, error = threads_left(lambda: Simulation(2, latency=1.0).run(each(lambda w: send_notes(w, 1, 1), fail)))
    assert isinstance(error, ZeroDivisionError) and left == 0
    assert error.__notes__ == ["in worker 1 of 2 in a simulation, at 1 s"]


def test_a_handler_must_not_wait():
    def wait(workers):
        workers.handle("note", lambda *_: workers.compute(1.0))
        workers.compute(8.0)

    left, error = threads_left(lambda: Simulation(2).run(each(lambda w: send_notes(w, 1, 1), wait)))
    assert isinstance(error, RuntimeError) and left == 0
    assert "handles a message to worker 1 must not wait" in str(error)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (dict(workers=0), "workers must be a whole number of at least 1"),
        (dict(workers=2, straggler={2: 4.0}), "no worker 2 to be a straggler"),
        (dict(workers=2, straggler={1: -1.0}), "must not be negative"),
        (dict(workers=2, latency=-1.0), "must not be negative"),
        (dict(workers=2, delayed=(0.1, -1.0)), "must not be negative"),
        (dict(workers=2, serve_seconds=-1.0), "must not be negative"),
    ],
)
def test_wrong_arguments(arguments, words):
    with pytest.raises(ValueError, match=words):
        Simulation(**arguments)


# ----- the same run again


def busy(workers):
    """All send to all, at random times and through random delays, and sum; returns everything that this worker sees."""
    log = []

    def on_note(source, numbers, array):
        log.append((workers.now(), source, numbers[0]))
        if numbers[0] % 3 == 0:
            workers.send(source, "echo", numbers)

    workers.handle("note", on_note)
    workers.handle("echo", lambda source, numbers, array: log.append((workers.now(), source, -numbers[0])))
    for number in range(40):
        workers.compute(1.0)
        workers.send((workers.rank + number) % workers.size, "note", (number,), np.zeros(number))
        if number % 10 == 9:
            array = np.array([workers.now() / 3])
            workers.all_reduce(array)
            log.append((workers.now(), "sum", float(array[0])))
    return log


def test_a_run_is_the_same_again_and_another_one_with_another_seed():
    make = partial(Simulation, 4, latency=0.1, byte_seconds=1e-3, straggler={2: 3.0}, jitter=1.0, delayed=(0.2, 5.0),
                   serve_seconds=1e-3)  # fmt: skip
    simulation = make()
    first = simulation.run(busy)
    assert first == simulation.run(busy) == make().run(busy)
    assert first != make(seed=1).run(busy)


def test_what_happens_at_the_same_time_happens_in_the_order_of_the_workers():
    order = []

    def run(workers):
        workers.handle("note", lambda source, *_: order.append((workers.now(), "message", workers.rank, source)))
        for _ in range(2):
            workers.compute(1.0)
            order.append((workers.now(), "computed", workers.rank))
            workers.send((workers.rank + 1) % workers.size, "note")
        workers.compute(1.0)

    Simulation(3, latency=0.5).run(run)
    computed = [[(time, "computed", worker) for worker in range(3)] for time in (1.0, 2.0)]
    messages = [[(time, "message", worker, (worker - 1) % 3) for worker in range(3)] for time in (1.5, 2.5)]
    assert order == computed[0] + messages[0] + computed[1] + messages[1]
