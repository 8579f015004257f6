"""Traces and profiles show what happened, and recording them changes no result."""

import json
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from gridgrad.nn import (
    LOSSES,
    SGD,
    BatchNorm,
    Concat,
    Conv2d,
    Flatten,
    Linear,
    MaxPool2d,
    ReLU,
    Residual,
    Sequential,
    SoftmaxCrossEntropy,
)
from gridgrad.nn.device import to_device, xp
from gridgrad.nn.sequence import with_branches
from gridgrad.parallel import ProcessGrid, parallelize, train_step
from gridgrad.parallel.grid import group as grid_groups
from gridgrad.parallel.grid.collectives import COLLECTIVES
from gridgrad.parallel.grid.group import Call, WallClock
from gridgrad.parallel.observe.span_observer import METHODS, Profile
from gridgrad.parallel.observe.trace import TimelineEvent, Trace, to_clock_of_rank_0, waiting
from gridgrad.parallel.pipeline import schedule_names
from gridgrad.parallel.pipeline.generators import complete
from tests.clock import Clock
from tests.mpi import mpi

BATCH = 6


def branching():
    """Layers of every kind that spans treat apart: branches, halves computed at once, communication within."""
    inception = Concat([Conv2d(4, 3, 3, padding=1)], [Conv2d(4, 2, 1), ReLU()])
    residual = Residual([Conv2d(5, 5, 3, padding=1), BatchNorm(5), ReLU()])
    start = [Conv2d(2, 4, 3, padding=1), BatchNorm(4), ReLU()]
    return [*start, inception, residual, MaxPool2d(2), Flatten(), Linear(5 * 6 * 6, 7), ReLU(), Linear(7, 3)]


class Training:
    """A network on a grid, a made-up minibatch, and steps on it."""

    def __init__(self, grid):
        shape = 12, 12, 2
        self.net = parallelize(Sequential(branching(), seed=1, input_shape=shape), grid)
        self.loss, self.optimizer = LOSSES["cross-entropy"](), SGD(self.net, 0.05, 0.9)
        rng = np.random.default_rng(0)
        x, y = rng.standard_normal((BATCH, *shape)).astype(np.float32), rng.integers(0, 3, BATCH)
        self.x = to_device(np.ascontiguousarray(x[self.net.input_block(BATCH)]))
        self.y = to_device(y[self.net.output_rows(BATCH)])

    def steps(self, count):
        return [train_step(self.net, self.loss, self.optimizer, self.x, self.y, BATCH) for _ in range(count)]


def grids_of_one_axis(ranks):
    return [{axis: ranks} for axis in ("batch", "height", "model")]


def slices(found, rank, thread=0):
    return [e for e in found["traceEvents"] if e["ph"] == "X" and (e["pid"], e["tid"]) == (rank, thread)]


def is_nested(events):
    """Whether of the events of one thread, in their order, each lies within those that are still open."""
    open_ends = []
    for event in events:
        start, stop = event["ts"], event["ts"] + event["dur"]
        while open_ends and open_ends[-1] <= start + 1e-4:
            open_ends.pop()
        if open_ends and stop > open_ends[-1] + 1e-4:
            return False
        open_ends.append(stop)
    return True


# ----- the timeline of a training


@mpi(1, 2, 3)
def test_a_timeline_shows_every_layer_of_every_rank(comm):
    for sizes in grids_of_one_axis(comm.size):
        with ProcessGrid(comm, **sizes) as grid:
            training = Training(grid)
            training.steps(2)
            with Trace(training.net, steps=3) as trace:
                training.steps(5)
            found = trace.timeline()
            layers = Counter(layer.name for layer in with_branches(training.net.layers))
        assert (found is None) == (comm.rank > 0)
        if comm.rank:
            continue
        assert json.loads(json.dumps(found, allow_nan=False)) == found
        assert {e["ph"] for e in found["traceEvents"]} == {"M", "X"}
        assert min(e["ts"] for e in found["traceEvents"] if e["ph"] == "X") == 0
        assert found["otherData"]["ranks"] == comm.size
        for rank in range(comm.size):
            mine = slices(found, rank)
            assert is_nested(mine), (sizes, rank)
            steps = [e for e in mine if e["cat"] == "step"]
            assert [e["name"] for e in steps] == ["step 2", "step 3", "step 4"]
            forward = Counter(e["name"].split()[0] for e in mine if e["name"].endswith(" forward") and e["cat"] == "layer")
            for name, count in layers.items():
                assert forward[name] == 3 * count, (sizes, name)
            assert sum(e["name"] == "optimizer SGD step" for e in mine) == 3
            for e in mine:
                within = [s for s in steps if s["ts"] <= e["ts"] and e["ts"] + e["dur"] <= s["ts"] + s["dur"] + 1e-3]
                assert len(within) == 1, e
            said = {e["name"]: e["args"] for e in found["traceEvents"] if e["ph"] == "M" and e["pid"] == rank}
            assert said["process_name"]["name"].startswith(f"rank {rank} (stage=0, batch=")
            collectives = [e for e in mine if e["cat"] in ("collective", "begin")]
            assert bool(collectives) == (comm.size > 1)
            assert all(e["args"]["ranks"] == list(range(comm.size)) for e in collectives)


@mpi(1, 2)
def test_watching_changes_no_bit_and_leaves_nothing_behind(comm):
    for sizes in grids_of_one_axis(comm.size):
        results = []
        for watched in (False, True):
            with ProcessGrid(comm, **sizes) as grid:
                training = Training(grid)
                if watched:
                    with Profile(training.net) as profile:
                        losses = training.steps(1)
                        with Trace(training.net, steps=9) as trace:
                            losses += training.steps(3)
                        assert grid.tally.observer is training.net.observer is profile
                        losses += training.steps(1)
                    assert trace.spans and profile.seconds
                else:
                    losses = training.steps(5)
                results.append((losses, training.net.state_dict(everywhere=True)))
                assert grid.tally.observer is training.net.observer is None
                for thing in (*with_branches(training.net.layers), training.optimizer, training.loss):
                    for part in (thing, getattr(thing, "conv", thing)):
                        assert not vars(part).keys() & {*METHODS, "load", "step"}
        assert results[0][0] == results[1][0]
        for name, value in results[0][1].items():
            assert np.array_equal(value, results[1][1][name])


@mpi(2)
def test_an_exception_ends_the_watch_on_its_rank_alone(comm):
    with ProcessGrid(comm, batch=2) as grid:
        training = Training(grid)
        try:
            with Trace(training.net):
                if comm.rank:
                    raise KeyError
        except KeyError:
            WallClock().compare(grid.comm)  # the other one left in peace
        assert grid.tally.observer is training.net.observer is None


@mpi(2)
def test_evaluation_is_no_part_of_it(comm):
    with ProcessGrid(comm, height=2) as grid:
        training = Training(grid)
        with Profile(training.net) as profile, Trace(training.net) as trace:
            training.steps(1)
            before = len(trace.spans), len(trace.collectives), dict(profile.seconds)
            with grid.tally.set_aside():
                training.net.forward(training.x, batch_size=BATCH)
            assert before == (len(trace.spans), len(trace.collectives), dict(profile.seconds))
            assert grid.tally.observer.observers == (profile, trace)
            training.steps(1)
            assert len(trace.spans) == 2 * before[0]


# ----- clocks


class Skewed:
    """A clock that is `ahead` seconds ahead of the true time and gains `drift` seconds a second."""

    def __init__(self, true, ahead, drift=0.0):
        self.true, self.ahead, self.drift = true, ahead, drift

    def perf_counter(self):
        return (1 + self.drift) * self.true() + self.ahead

    def error(self, at, comparisons):
        """How far a time of this clock is from the true one, once it is on the clock of rank 0."""
        true = (at - self.ahead) / (1 + self.drift)
        return abs(float(to_clock_of_rank_0(np.array(at), comparisons)) - true)


class Posts:
    """A communicator whose messages take some milliseconds of made-up time, each way other ones."""

    LEAST, MOST = 0.001, 0.009

    def __init__(self, comm, clock):
        self.comm, self.clock, self.rank, self.size = comm, clock, comm.rank, comm.size
        self.random = np.random.default_rng(comm.rank)

    def Send(self, array, to):
        self.comm.send((array.copy(), self.clock.now + self.random.uniform(self.LEAST, self.MOST)), to)

    def Recv(self, array, source):
        array[...], arrived = self.comm.recv(source=source)
        self.clock.now = max(self.clock.now, arrived)


@mpi(1, 3)
def test_a_skewed_clock_is_found_out(comm, monkeypatch):
    true = Clock()
    own, posts = Skewed(true.perf_counter, 5.0 * comm.rank, drift=0.01 * comm.rank), Posts(comm, true)
    monkeypatch.setattr(grid_groups, "time", own)
    comparisons = [WallClock().compare(posts)]
    true.sleep(2.0)
    between = own.perf_counter()
    true.sleep(2.0)
    comparisons.append(WallClock().compare(posts))
    accuracy = max(error for *_, error in comparisons)
    if comm.rank == 0:
        assert accuracy == 0
    else:
        assert Posts.LEAST <= accuracy < (Posts.LEAST + Posts.MOST) / 2, "the fastest of all round trips counts"
        assert own.error(between, comparisons) <= accuracy
        assert own.error(between, comparisons[:1]) > 2.0 * 0.01 * comm.rank - accuracy > accuracy, "the drift is there"


@mpi(2)
def test_ranks_with_other_clocks_meet_on_the_timeline(comm, monkeypatch):
    monkeypatch.setattr(grid_groups, "time", Skewed(time.perf_counter, -100.0 * comm.rank))
    with ProcessGrid(comm, batch=2) as grid:
        training = Training(grid)
        with Trace(training.net) as trace:
            for _ in range(3):
                comm.Barrier()
                training.steps(1)
        found = trace.timeline()
    if comm.rank == 0:
        accuracy = found["otherData"]["clock accuracy in microseconds"]
        assert accuracy > 0
        steps = [[e for e in slices(found, rank) if e["cat"] == "step"] for rank in (0, 1)]
        for a, b in zip(*steps, strict=True):  # a loss is summed in each step: they overlap
            assert a["ts"] < b["ts"] + b["dur"] + accuracy and b["ts"] < a["ts"] + a["dur"] + accuracy


# ----- waiting


@mpi(3)
def test_the_others_wait_for_who_comes_late(comm, monkeypatch):
    """In made-up time, in which a collective ends on all ranks 10 ms after the last one has come."""
    clock = Clock()

    class Meeting(Call):
        def __exit__(self, *failure):
            clock.now = comm.allreduce(clock.now, MPI.MAX) + 0.01
            super().__exit__(*failure)

    monkeypatch.setattr(grid_groups, "time", clock)
    monkeypatch.setattr(grid_groups, "Call", Meeting)  # that of collectives that block
    with ProcessGrid(comm, batch=3) as grid:
        training = Training(grid)
        array = np.ones(100)
        with Trace(training.net) as trace:
            for late in range(3):
                if comm.rank == late:
                    clock.sleep(0.05)
                grid.world.all_reduce(array, "probe")
        found = trace.timeline()
        assert np.all(array == 27)
    if comm.rank:
        return
    for rank in range(3):
        mine = slices(found, rank)
        probes = [e for e in mine if e["name"] == "probe all-reduce"]
        waits = [[w for w in mine if w["cat"] == "waiting" and w["ts"] == e["ts"]] for e in probes]
        assert is_nested(mine) and len(probes) == 3
        for late, (probe, wait) in enumerate(zip(probes, waits, strict=True)):
            seconds = sum(w["dur"] for w in wait) / 1e6
            assert seconds == pytest.approx(0.0 if rank == late else 0.05), (rank, late)
            assert probe["dur"] / 1e6 == pytest.approx(seconds + 0.01)


@mpi(2)
def test_a_trace_writes_itself(comm):
    folder = comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None)
    with ProcessGrid(comm, model=2) as grid:
        training = Training(grid)
        with Trace(training.net) as trace:
            training.steps(1)
        for _ in range(2):  # the second time instead of the first
            trace.write(f"{folder}/t.json")
        found = trace.timeline()
    if comm.rank == 0:
        assert [path.name for path in Path(folder).iterdir()] == ["t.json"]
        assert json.loads((Path(folder) / "t.json").read_text()) == found
        shutil.rmtree(folder)


def called(start, stop, kind="all-reduce", category="collective", ranks=(0, 1)):
    return TimelineEvent(category, f"x {kind}", start, stop, 0, kind, ranks, 8)


def test_waiting_follows_from_the_entries():
    a, b = called(1, 6), called(4, 6.5)
    assert waiting({0: [a], 1: [b]}) == {0: [(a, 3)]}
    a = called(1, 2)  # it left before the other came
    assert waiting({0: [a], 1: [b]}) == {0: [(a, 1)]}
    first, second = [called(0, 3), called(5, 9)], [called(2, 3), called(4, 9)]  # the i-th call meets the i-th
    assert waiting({0: first, 1: second}) == {0: [(first[0], 2)], 1: [(second[1], 1)]}
    assert waiting({0: first, 1: second[:1]}) == {0: [(first[0], 2)]}
    assert waiting({0: [called(0, 3, ranks=(0,))], 1: [called(2, 3, ranks=(1,))]}) == {}


def test_waiting_of_what_does_not_block_is_where_it_ended():
    def transfer(begin, wait, stop):
        """As a tally tells it: the beginning, then, when it is over, the flight and the call that ended it."""
        flight = called(begin, stop, category="flight")
        return [called(begin, begin + 0.1, category="begin"), flight, called(wait, stop, category="progress")]

    a, b = transfer(0, 1, 7), transfer(5, 6.5, 7)
    assert waiting({0: a, 1: b}) == {0: [(a[-1], 4)]}
    assert waiting({0: a[:-1], 1: b}) == {}  # the trace ended before
    assert waiting({0: [*a[:-1], *transfer(7, 8, 9)], 1: b}) == {}
    a = transfer(0, 5.5, 7)  # it had other things to do
    assert waiting({0: a, 1: b}) == {}


@pytest.mark.parametrize(
    ("kind", "places"),
    [
        ("all-gather", [3, 3, 3]),
        ("broadcast", [2, 2, 2]),
        ("scatter", [2, 2, 2]),
        ("gather", [3, 1, 3]),
        ("exchange", [2, 3, 3]),
    ],
)
def test_who_is_needed(kind, places):
    assert [max([2, 1, 3][COLLECTIVES[kind].needs(place)]) for place in range(3)] == places


# ----- what flies


@mpi(2)
def test_flights_are_shown_apart(comm):
    with ProcessGrid(comm, batch=2) as grid:
        training = Training(grid)
        tally, group = grid.tally, grid.world
        with Trace(training.net) as trace:
            for start, stop in ((1, 5), (2, 3), (4, 6), (5.5, 7)):
                tally.observer.flight(group, "gradients", "all-reduce", 8, trace.comparisons[0][0] + start, stop)
        opened = trace.comparisons[0][0]
        trace.collectives = [event._replace(stop=opened + event.stop) for event in trace.collectives]
        found = trace.timeline()
    if comm.rank == 0:
        for rank in range(2):
            lanes = [slices(found, rank, thread) for thread in (1, 2, 3)]
            assert [[round(e["dur"] / 1e6, 3) for e in lane] for lane in lanes] == [[4, 1.5], [1, 2], []]
            assert not slices(found, rank) and all(is_nested(lane) for lane in lanes)
            named = [e for e in found["traceEvents"] if e["name"] == "thread_name" and e["pid"] == rank]
            assert [(e["tid"], e["args"]["name"]) for e in named] == [(0, "does"), (1, "in flight"), (2, "in flight")]
            assert lanes[0][0]["name"] == "gradients all-reduce" and lanes[0][0]["args"] == {"bytes": 8, "ranks": [0, 1]}


@mpi(2)
def test_halos_fly_while_the_layer_computes(comm):
    with ProcessGrid(comm, height=2) as grid:
        training = Training(grid)
        with Trace(training.net) as trace:
            training.steps(2)
        found = trace.timeline()
    if comm.rank == 0:
        flights = [e for e in slices(found, 0, 1) if e["name"] == "0 exchange"]
        layers = [e for e in slices(found, 0) if e["name"].startswith("0 HaloConv2d forward")]
        assert len(flights) == len(layers) == 2  # the first layer has no gradient of its input to send back
        for flight, layer in zip(flights, layers, strict=True):
            assert layer["ts"] <= flight["ts"] and flight["ts"] + flight["dur"] <= layer["ts"] + layer["dur"]


# ----- profiles


def slow(patch, clock, layer, method, seconds):
    """Let a method of a layer take so long by a Clock, also where it runs as a part of another layer, a copy of it."""
    own = getattr(type(layer), method)

    def slower(self, *arguments):
        clock.sleep(seconds if self.name == layer.name else 0.0)
        return own(self, *arguments)

    patch.setattr(type(layer), method, slower)


@mpi(1, 2)
def test_what_a_layer_takes_is_counted_once(comm, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(grid_groups, "time", clock)
    for sizes in grids_of_one_axis(comm.size):
        with ProcessGrid(comm, **sizes) as grid:
            training = Training(grid)
            by_name = {}
            for layer in training.net.leaves():
                if isinstance(layer, BatchNorm) or type(layer).__name__.endswith("Conv2d"):
                    by_name.setdefault(layer.name, layer)
            inner, norm = by_name["3.branches.0.0"], by_name["4.branch.1"]
            with monkeypatch.context() as patch:
                inside = getattr(inner, "conv", inner)
                slow(patch, clock, inside, "backward" if inside is inner else "gradients", 0.05)
                slow(patch, clock, norm, "forward", 0.06)  # of both passes, its own and with the ReLU
                training.steps(1)
                grid.tally.clear()
                with Profile(training.net) as profile:
                    training.steps(2)
                rows = profile.rows(2)
        if comm.rank:
            continue
        kinds = {row["layer"]: row["kind"] for row in rows}
        assert len({(row["layer"], row["kind"]) for row in rows}) == len(rows)
        assert kinds["3"] == "Concat" and kinds["4"] == "Residual"
        seconds = {(row["layer"], row["kind"]): sum(row[method] for method in METHODS) for row in rows}
        slowed = {("3.branches.0.0", type(inner).__name__): 0.05, ("4.branch.1", "GlobalBatchNorm"): 0.06}
        assert seconds == pytest.approx(dict.fromkeys(seconds, 0.0) | slowed), "what lies in branches counts there"


@mpi(2)
def test_communication_is_no_part_of_a_layer(comm, monkeypatch):
    """By a clock that passes in collectives alone, which are within layers."""
    clock = Clock()

    class Slow(Call):
        def __exit__(self, *failure):
            clock.sleep(1.0)
            super().__exit__(*failure)

    monkeypatch.setattr(grid_groups, "time", clock)
    monkeypatch.setattr(grid_groups, "Call", Slow)  # that of collectives that block
    with ProcessGrid(comm, batch=2) as grid:
        training = Training(grid)
        with Profile(training.net) as profile:
            training.steps(2)
        rows = profile.rows(2)
        within = [record.seconds for (layer, _), record in grid.tally.records.items() if layer == "1"]
    assert sum(within) > 1 and sum(within) < clock.now, "a BatchNorm sums, and so do others"
    if comm.rank == 0:
        assert {row["layer"] for row in rows} >= {"0", "1", "3", "9"}
        assert all(row[method] == 0 for row in rows for method in METHODS)


@mpi(1)
def test_a_layer_in_halves_and_one_at_once(comm):
    with ProcessGrid(comm) as grid:
        training = Training(grid)
        with Profile(training.net) as profile:
            training.steps(1)
        rows = {row["layer"]: row for row in profile.rows(1)}
    assert rows["7"]["gradients"] > 0 and rows["7"]["input_gradient"] > 0 == rows["7"]["backward"]
    inside = rows["3.branches.0.0"]
    assert inside["backward"] > 0 == inside["gradients"] == inside["input_gradient"]
    assert rows["0"]["gradients"] > 0 == rows["0"]["backward"], "nobody needs the gradient of the network's input"
    assert xp.isfinite(training.net.params).all()


@mpi(2, 4)
def test_a_pipeline_shows_its_instructions_with_the_layers_within_them(comm):
    layers = [Linear(6, 8), ReLU(), Linear(8, 8), ReLU(), Linear(8, 3)]
    net = parallelize(Sequential(layers, seed=0), {"stage": 2, "batch": comm.size // 2}, micro_batches=3, cuts=(2,))
    optimizer, rng = SGD(net, lr=0.1), np.random.default_rng(0)
    x, y = rng.standard_normal((12, 6)).astype(np.float32), rng.integers(0, 3, 12)
    with Profile(net) as profile, Trace(net, steps=2) as trace:
        for _ in range(3):
            net.learn(x, y, SoftmaxCrossEntropy(), optimizer)
    found = trace.timeline()
    schedule = complete(schedule_names.parse("1f1b").schedule(2, 3))
    assert not any("F" in phase for *_, phase in profile.seconds)  # instructions are no passes of layers
    if comm.rank == 0:
        for rank in range(comm.size):
            stage = rank * 2 // comm.size
            mine = slices(found, rank)
            instructions = [event for event in mine if event["cat"] == "instruction"]
            flights = [e["name"] for e in found["traceEvents"] if e.get("cat") == "flight" and e["pid"] == rank]
            assert Counter(flights) >= Counter({"chunk 1 send": 6, "chunk 1 receive": 6}), (
                "also of the last step, which end behind it"
            )
            assert is_nested(mine) and [e["name"] for e in instructions] == 2 * [str(one) for one in schedule.rows[stage]]
            passes = [e for e in mine if e["cat"] == "layer" and e["name"].split()[1] in ("Linear", "ReLU")]
            assert {e["name"].split()[0] for e in passes} == ({"0", "1"}, {"2", "3", "4"})[stage]
            for one in passes:
                around = [
                    e for e in instructions if e["ts"] <= one["ts"] and one["ts"] + one["dur"] <= e["ts"] + e["dur"] + 1e-3
                ]
                assert len(around) == 1 and around[0]["name"][1] in ("F" if one["name"].endswith("forward") else "B"), one
    net.grid.free()
