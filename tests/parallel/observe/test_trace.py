"""Traces and profiles show what happened. That they change no result is tested by random networks (tests/random_networks)."""

import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gridgrad.nn import SGD, BatchNorm, Concat, Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential
from gridgrad.nn.losses import SoftmaxCrossEntropy
from gridgrad.nn.sequence import with_branches
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.grid import group as grid_groups
from gridgrad.parallel.grid.group import Call
from gridgrad.parallel.observe.span_observer import METHODS, Profile
from gridgrad.parallel.observe.trace import TimelineEvent, Trace, to_clock_of_rank_0, waiting
from gridgrad.parallel.pipeline import schedule_names
from gridgrad.parallel.pipeline.generators import complete
from tests.clock import Clock
from tests.mpi import mpi

X, Y = np.random.default_rng(0).standard_normal((6, 12, 12, 2)), np.array([0, 1, 2, 0, 1, 2])


def network():
    """With layers that spans treat apart: branches, halves that are computed at once, communication within."""
    branches = [Conv2d(4, 3, 3, padding=1)], [Conv2d(4, 2, 1), BatchNorm(2), ReLU()]
    layers = [Conv2d(2, 4, 3, padding=1), ReLU(), Concat(*branches), MaxPool2d(2), Flatten(), Linear(5 * 6 * 6, 3)]
    return Sequential(layers, seed=1, input_shape=X.shape[1:])


def train(net, optimizer, steps, x=X):
    for _ in range(steps):
        net.learn(x, Y, SoftmaxCrossEntropy(), optimizer)


def slices(found, rank, thread=0):
    return [e for e in found["traceEvents"] if e["ph"] == "X" and (e["pid"], e["tid"]) == (rank, thread)]


def is_within(inner, outer):
    return outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 1e-3


def is_nested(events):
    """Whether of the events of one thread, in their order, each lies within those that are still open."""
    opened = []
    for event in events:
        while opened and opened[-1]["ts"] + opened[-1]["dur"] <= event["ts"] + 1e-4:
            opened.pop()
        if opened and not is_within(event, opened[-1]):
            return False
        opened.append(event)
    return True


# ----- the timeline of a training


@mpi(3)
def test_a_timeline_shows_every_layer_of_every_rank(comm, monkeypatch):
    """Also where the clocks of the ranks differ."""
    skewed = SimpleNamespace(perf_counter=lambda: time.perf_counter() - 100.0 * comm.rank)
    monkeypatch.setattr(grid_groups, "time", skewed)
    with tempfile.TemporaryDirectory() as folder:
        for axis in ("batch", "height"):
            with ProcessGrid(comm, **{axis: 3}) as grid:
                net = parallelize(network(), grid)
                optimizer = SGD(net, 0.05)
                train(net, optimizer, 2)
                with Trace(net, steps=3) as trace:
                    train(net, optimizer, 5)
                assert grid.tally.observer is net.observer is None
                found, layers = trace.timeline(), Counter(layer.name for layer in with_branches(net.layers))
                trace.write(comm.bcast(f"{folder}/t.json"))
            assert (found is None) == (comm.rank > 0)
            if comm.rank == 0:
                assert [json.loads(path.read_text()) for path in Path(folder).iterdir()] == [found]
                check_timeline(found, layers, axis)
        comm.Barrier()


def check_timeline(found, layers, axis):
    everywhere = [slices(found, rank) for rank in range(3)]
    for rank, mine in enumerate(everywhere):
        assert is_nested(mine)
        steps = [e for e in mine if e["cat"] == "step"]
        assert [e["name"] for e in steps] == ["step 2", "step 3", "step 4"]
        assert all(sum(is_within(e, step) for step in steps) == 1 for e in mine)
        forward = Counter(e["name"].split()[0] for e in mine if e["name"].endswith(" forward") and e["cat"] == "layer")
        assert all(forward[name] == 3 * count for name, count in layers.items())
        assert sum(e["name"] == "optimizer SGD step" for e in mine) == 3
        collectives = [e for e in mine if e["cat"] in ("collective", "begin")]
        assert collectives and all(e["args"]["ranks"] == [0, 1, 2] for e in collectives)
        accuracy = found["otherData"]["clock accuracy in microseconds"]
        for step, first in zip(steps, (e for e in everywhere[0] if e["cat"] == "step"), strict=True):
            assert step["ts"] < first["ts"] + first["dur"] + accuracy  # a loss is summed in each step: they overlap
            assert first["ts"] < step["ts"] + step["dur"] + accuracy
        if axis == "height":  # halos fly while the layer computes
            flights = [e for e in slices(found, rank, 1) if e["name"] == "0 exchange"]
            convolutions = [e for e in mine if e["name"] == "0 HaloConv2d forward"]
            assert len(flights) == 3 and all(is_within(*both) for both in zip(flights, convolutions, strict=True))


@mpi(2)
def test_a_pipeline_shows_its_instructions_and_their_layers(comm):
    layers = [Linear(6, 8), ReLU(), Linear(8, 8), ReLU(), Linear(8, 3)]
    net = parallelize(Sequential(layers, seed=0), {"stage": 2}, micro_batches=3, cuts=(2,))
    optimizer = SGD(net, lr=0.1)
    with Profile(net) as profile, Trace(net, steps=2) as trace:
        train(net, optimizer, 3, X[:, 0, 0:3].reshape(6, 6))
    found = trace.timeline()
    schedule = complete(schedule_names.parse("1f1b").schedule(2, 3))
    assert not any("F" in phase for *_, phase in profile.seconds)  # instructions are no passes of layers
    for rank in range(2) if comm.rank == 0 else ():
        mine = slices(found, rank)
        instructions = [event for event in mine if event["cat"] == "instruction"]
        flights = Counter(e["name"] for e in found["traceEvents"] if e.get("cat") == "flight" and e["pid"] == rank)
        assert flights >= Counter({"chunk 1 send": 6, "chunk 1 receive": 6})  # those of the last step end behind it
        assert is_nested(mine) and [e["name"] for e in instructions] == 2 * [str(one) for one in schedule.rows[rank]]
        passes = [e for e in mine if e["cat"] == "layer" and e["name"].split()[1] in ("Linear", "ReLU")]
        assert {e["name"].split()[0] for e in passes} == ({"0", "1"}, {"2", "3", "4"})[rank]
    net.grid.free()


# ----- clocks, waiting and flights


def test_times_are_those_of_the_clock_of_rank_0_also_where_a_clock_drifts():
    comparisons = [(100.0, -50.0, 0.1), (200.0, -60.0, 0.1)]  # (by this clock, what rank 0's clock shows besides, accuracy)
    assert list(to_clock_of_rank_0(np.array([100.0, 150.0, 300.0]), comparisons)) == [50.0, 95.0, 240.0]


def called(start, stop, kind="all-reduce", category="collective", ranks=(0, 1)):
    return TimelineEvent(category, f"x {kind}", start, stop, 0, kind, ranks, 8)


def test_waiting_follows_from_the_entries():
    a, b = called(1, 6), called(4, 6.5)
    assert waiting({0: [a], 1: [b]}) == {0: [(a, 3)]}
    first, second = [called(0, 3), called(5, 9)], [called(2, 3), called(4, 9)]  # the i-th call meets the i-th
    assert waiting({0: first, 1: second}) == {0: [(first[0], 2)], 1: [(second[1], 1)]}
    assert waiting({0: [called(0, 3, ranks=(0,))], 1: [called(2, 3, ranks=(1,))]}) == {}
    for kind, seconds in (("broadcast", {}), ("gather", {0: 2})):  # the first rank alone is needed, or alone needs the others
        a, b = called(0, 3, kind), called(2, 3, kind)
        assert {rank: of[0][1] for rank, of in waiting({0: [a], 1: [b]}).items()} == seconds


def test_waiting_of_what_does_not_block_is_where_it_ended():
    def transfer(begin, wait, stop):
        """As a tally tells it: the beginning, then, when it is over, the flight and the call that ended it."""
        flight = called(begin, stop, category="flight")
        return [called(begin, begin + 0.1, category="begin"), flight, called(wait, stop, category="progress")]

    a, b = transfer(0, 1, 7), transfer(5, 6.5, 7)
    assert waiting({0: a, 1: b}) == {0: [(a[-1], 4)]}
    assert waiting({0: a[:-1], 1: b}) == {}  # the trace ended before
    assert waiting({0: transfer(0, 5.5, 7), 1: b}) == {}  # it had other things to do


# ----- profiles, by clocks that pass where a test says so


def slow(patch, clock, layer, method, seconds):
    """Let a method of a layer take so long by a Clock, also where it runs as a part of another layer, a copy of it."""
    own = getattr(type(layer), method)

    def slower(self, *arguments):
        clock.sleep(seconds if self.name == layer.name else 0.0)
        return own(self, *arguments)

    patch.setattr(type(layer), method, slower)


@mpi(2)
def test_what_a_layer_takes_is_counted_once_and_communication_within_it_is_no_part_of_it(comm, monkeypatch):
    clock = Clock()

    class SlowCall(Call):
        def __exit__(self, *failure):
            clock.sleep(1.0)
            super().__exit__(*failure)

    monkeypatch.setattr(grid_groups, "time", clock)
    monkeypatch.setattr(grid_groups, "Call", SlowCall)  # that of collectives that block
    with ProcessGrid(comm, batch=2) as grid:
        net = parallelize(network(), grid)
        leaves = {layer.name: layer for layer in net.leaves()}
        slow(monkeypatch, clock, leaves["2.branches.0.0"], "backward", 0.05)
        slow(monkeypatch, clock, leaves["2.branches.1.1"], "forward", 0.06)  # a BatchNorm, with its sums over the ranks
        with Profile(net) as profile:
            train(net, SGD(net, 0.05), 2)
        rows = profile.rows(2)
        assert sum(record.seconds for (layer, _), record in grid.tally.records.items() if layer == "2.branches.1.1") > 1
    if comm.rank == 0:
        seconds = {row["layer"]: sum(row[method] for method in METHODS) for row in rows}
        assert ("2", "Concat") in {(row["layer"], row["kind"]) for row in rows} and len(seconds) == len(rows)
        assert seconds == pytest.approx(dict.fromkeys(seconds, 0.0) | {"2.branches.0.0": 0.05, "2.branches.1.1": 0.06})
