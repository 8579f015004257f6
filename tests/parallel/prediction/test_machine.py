"""Machine files: what is interpolated, what is refused, and what a measurement writes."""

import json
from dataclasses import replace

import pytest

from gridgrad.nn import Conv2d, Sequential
from gridgrad.parallel.calibration import measure, this_machine
from gridgrad.parallel.calibration.timing import NormalisedTimer
from gridgrad.parallel.grid.process_grid import GridDescription, GroupDescription
from gridgrad.parallel.prediction import machine
from gridgrad.parallel.prediction.cost import Cost
from gridgrad.parallel.prediction.machine import checked, names, on_lattice, read
from tests.mpi import mpi

GOOD = {
    "name": "one", "source": "made up",
    "core": {"flops": 1e10, "bandwidth": 1e10, "call": 1e-6}, "node": {"ranks": 4, "bandwidth": 2e10, "memory": 1e9},
    "links": {"node": {"alpha": 1e-6, "beta": 1e-9}, "network": {"alpha": 1e-5, "beta": 1e-8}},
}  # fmt: skip


def test_those_of_the_project_are_machine_files_with_sources():
    assert {"cori-haswell", "ethernet-1g"} <= set(names())
    for name in names():
        assert len(read(name).source) > 100


def test_tables_are_exact_where_measured_and_follow_powers_between():
    table = [[1, 4, 16], [10, 1000]], [[1.0, 8.0], [2.0, 16.0], [4.0, 32.0]]
    assert on_lattice(*table, (4, 1000)) == pytest.approx(16)
    assert on_lattice(*table, (2, 10)) == pytest.approx(2**0.5)
    assert on_lattice(*table, (1, 100)) == pytest.approx(8**0.5)
    assert on_lattice(*table, (64, 10)) == pytest.approx(16)  # in proportion above
    assert on_lattice(*table, (1, 1)) == pytest.approx(1)  # flat below
    assert on_lattice([(8, 32)], (1.0, 4.0), (16,)) == pytest.approx(2)


def test_constants_where_nothing_was_measured():
    one = checked(GOOD)
    assert one.operation_seconds("product", (1,), 1.0, 2e10, 0, 4, 1) == pytest.approx(2 + 1e-6)
    assert one.operation_seconds("product", (1,), 1.0, 0, 1e10, 4, 4) == pytest.approx(
        2 + 1e-6
    )  # four share 2e10 bytes a second
    assert one.operation_seconds("product", (0,), 1.0, 9, 9, 4, 1) == 1e-6
    inside, across = GroupDescription(4, 0, 4), GroupDescription(4, 0, 1)
    assert one.collective_seconds("all-reduce", inside, 16, 1000) == pytest.approx(4 * 1e-6 + 1e-6)
    assert one.collective_seconds("all-gather", across, 16, 1000) == pytest.approx(2 * 1e-5 + 4 * 1e-5)  # 4 groups share a link
    assert one.collective_seconds("all-gather", GroupDescription(1, 0, 1), 16, 1000) == 0


def test_an_input_gradient_takes_what_backward_takes_beyond_the_gradient_of_the_kernel():
    """Without padding, the gradient of a 14 x 14 input comes from 10 x 10 outputs: 1.96 times that of the tables' layers."""
    axes, one = [[1, 1000]] * 4, [[[[1e-3] * 2] * 2] * 2] * 2
    tables = {
        "conv5.forward": {"axes": axes, "seconds": one},
        "conv5.gradients": {"axes": axes, "seconds": one},
        "conv5.backward": {"axes": axes, "seconds": [[[[6e-3] * 2] * 2] * 2] * 2},
    }
    net = Sequential([Conv2d(6, 6, 1), Conv2d(6, 16, 5)], input_shape=(14, 14, 6))
    cost = Cost(net, GridDescription({}), "out", 10, checked(GOOD | {"tables": tables}))
    found = {work.phase: cost.seconds_of(work) for work in cost.works if work.name.startswith("conv5")}
    assert found == pytest.approx({"forward": 1e-3, "gradients": 1e-3, "backward": 1.96 * 5e-3})


def test_a_collective_over_nodes_takes_no_less_than_what_its_ranks_on_a_node_send_each_other():
    one = checked(GOOD | {"links": {"node": {"alpha": 1e-6, "beta": 1e-8}, "network": {"alpha": 1e-5, "beta": 1e-9}}})
    assert one.collective_seconds("all-gather", GroupDescription(16, 0, 4), 16, 1000) == pytest.approx(4 * 1e-5 + 1e-5)
    assert one.collective_seconds("all-gather", GroupDescription(4, 0, 1), 16, 1000) == pytest.approx(
        2 * 1e-5 + 4e-6
    )  # all are elsewhere


def test_a_collective_of_more_ranks_than_were_measured_has_more_rounds():
    one = checked(GOOD | {"collectives": {"all-reduce": {"2": [[8, 1e-5], [8e6, 1e-2]]}}})
    two, four = (one.collective_seconds("all-reduce", GroupDescription(p, 0, 1), 4, 8e6) for p in (2, 4))
    assert two == pytest.approx(1e-2) and four == pytest.approx(1e-2 + 1e-5)


def test_groups_of_a_grid_description():
    grid = GridDescription({"batch": 4, "height": 2, "model": 3}, {"batch": 2, "height": 1, "model": 2}, ranks_per_node=6)
    assert grid.group("model") == GroupDescription(3, 2, 3)
    assert grid.group("height", "model") == GroupDescription(6, 5, 6)
    assert grid.group("batch") == GroupDescription(4, 2, 1) and grid.spans_nodes("batch")
    assert grid.group("batch", "height", "model") == GroupDescription(24, 17, 6) and not grid.spans_nodes("model")


@pytest.mark.parametrize(
    "change",
    [
        {"core": {"flops": 0, "bandwidth": 1, "call": 1}},
        {"core": {"flops": "many", "bandwidth": 1, "call": 1}},
        {"core": None},
        {"links": {"node": {"alpha": 1, "beta": 1}}},
        {"tables": {"relu.forward": {"axes": [[1, 2]], "seconds": [1.0]}}},
        {"tables": {"relu.forward": {"axes": [[2, 1]], "seconds": [1.0, 2.0]}}},
        {"tables": {"relu.forward": {"axes": [[1, 2]], "seconds": [1.0, float("nan")]}}},
        {"collectives": {"all-reduce": {"2": [[8, 1.0], [8, 2.0]]}}},
        {"collectives": {"all-reduce": {"1": [[8, 1.0]]}}},
        {"collectives": {"all-reduce": {}}},
        {"collectives": {"all-reduce": {"2": []}}},
        {"collectives": {"all-reduce": {"2": [[8, 1.0, 2.0]]}}},
        {"tables": {"relu.forward": {"axes": [[0, 1]], "seconds": [1.0, 2.0]}}},
        {"tables": {"relu.forward": {"axes": [[]], "seconds": []}}},
        {"tables": {"relu.forward": {"axes": [["a", "b"]], "seconds": [1.0, 2.0]}}},
        {"tables": {"linear.forward": {"axes": [[1, 2]], "seconds": [1.0, 2.0]}}},
        {"tables": {"convx.forward": {"axes": [[1, 2]] * 4, "seconds": [[[[1.0] * 2] * 2] * 2] * 2}}},
        {"node": {"ranks": 1.5, "bandwidth": 1, "memory": 1}},
        {"name": ["a"]},
        {"name": "a\nb"},
        {"name": "\ud800"},
        {"core": {"flops": 5e-324, "bandwidth": 1, "call": 1}},
        {"surprise": 1},
    ],
)
def test_what_is_no_machine_file_is_refused(change, tmp_path):
    (tmp_path / "m.json").write_text(json.dumps(GOOD | change))
    with pytest.raises(ValueError, match="is no machine file"):
        read(str(tmp_path / "m.json"))


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("core", "flops"), "fast", "core.flops must be a finite number above 1e-18, not 'fast'"),
        (("core",), 3, "core must be an object"),
        (("links", "network", "alpha"), None, "links.network.alpha must be a finite number above 1e-18, not None"),
        (("node", "ranks"), 1.5, "node.ranks must be a whole number of at least 1, not 1.5"),
        (("surprise",), 1, "there is an unknown entry surprise: a machine file has name, source,"),
        (
            ("tables",),
            {"relu.forward": {"axes": [[2, 1]], "seconds": [1, 2]}},
            "tables.relu.forward.axes must be finite numbers above 1e-18, each larger",
        ),
        (("tables",), {"relu.forward": {"axes": 5, "seconds": [1, 2]}}, "tables.relu.forward must have the seconds"),
        (("collectives",), {"halo": {"two": [[8, 1.0]]}}, "collectives.halo.two must be named by a number of ranks"),
    ],
)
def test_a_wrong_entry_of_a_machine_file_is_named(place, value, words, tmp_path):
    content = json.loads(json.dumps(GOOD))
    inner = content
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    (tmp_path / "m.json").write_text(json.dumps(content))
    with pytest.raises(ValueError) as raised:
        read(str(tmp_path / "m.json"))
    assert words in str(raised.value) and "make one with the program calibrate" in str(raised.value)


@pytest.mark.parametrize("content", [b"[1]", b"{", b"\xff\xfe"])
def test_a_file_of_another_kind_is_no_machine_file(content, tmp_path):
    (tmp_path / "m.json").write_bytes(content)
    with pytest.raises(ValueError, match="is no machine file"):
        read(str(tmp_path / "m.json"))


def test_a_machine_that_is_not_there_is_said_with_those_that_are():
    with pytest.raises(ValueError, match="no such file; use one .* cori-haswell"):
        read("cray-3")


def shorten(monkeypatch, module, **settings):
    """Settings of a measurement for this test, in which the numbers that are found do not matter."""
    for name, value in settings.items():
        monkeypatch.setattr(module, name, value)


@mpi(1, 2)
def test_what_steps_take_beyond_their_parts(comm, monkeypatch):
    shorten(monkeypatch, measure, SAMPLE=1e-6, RUNS=1, STEPS=1, STEP_ROUNDS=1, STEP_PASSES=2)
    shorten(monkeypatch, this_machine, PROBE_SECONDS=-1.0)
    first = machine.checked(comm.bcast(this_machine.measure_quickly(comm)))
    found = measure.fitted(measure.measured_steps(NormalisedTimer(comm)), first, comm.size)
    again = replace(first, core=first.core | found)
    assert found["step"] > 0 and found["wait"] > 0
    assert comm.allgather(found) == [found] * comm.size
    net = measure.dense(64)
    costs = [Cost(net, GridDescription({"batch": comm.size}), "out", 16, one) for one in (first, again)]
    assert costs[1].parts["compute"] == pytest.approx(found["step"] + costs[0].parts["compute"])


@mpi(1, 2)
def test_all_tables_of_a_calibration(comm, monkeypatch):
    shorten(monkeypatch, measure, SAMPLE=1e-6, RUNS=1, PASSES=1, ELEMENTS=[128, 4096], LONGEST=64)
    shorten(monkeypatch, measure, LINEAR=([1, 4], [8, 16], [8, 16]), CONVOLUTION=([1, 2], [16], [1, 3], [8]))
    described = machine.checked(this_machine.measure_thoroughly(comm))
    assert described.operation_seconds("linear.forward", (4, 16, 16), 1.0, 0, 0, 4, 1) > 0
    assert {"conv3.backward", "conv5.gradients", "tanh.backward", "update", "loss", "copy.forward"} <= set(described.tables)
    assert described.peak >= described.core["flops"]
