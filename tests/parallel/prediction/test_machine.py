"""Machine files: what is interpolated and what is refused."""

import json

import pytest

from gridgrad.nn import Conv2d, Sequential
from gridgrad.parallel.grid.process_grid import GridDescription, GroupDescription
from gridgrad.parallel.prediction.cost import Cost
from gridgrad.parallel.prediction.machine import checked, on_lattice, read

GOOD = {
    "name": "one", "source": "made up",
    "core": {"flops": 1e10, "bandwidth": 1e10, "call": 1e-6}, "node": {"ranks": 4, "bandwidth": 2e10, "memory": 1e9},
    "links": {"node": {"alpha": 1e-6, "beta": 1e-9}, "network": {"alpha": 1e-5, "beta": 1e-8}},
}  # fmt: skip


def test_tables_are_exact_where_measured_and_follow_powers_between():
    table = [[1, 4, 16], [10, 1000]], [[1.0, 8.0], [2.0, 16.0], [4.0, 32.0]]
    assert on_lattice(*table, (4, 1000)) == pytest.approx(16)
    assert on_lattice(*table, (2, 10)) == pytest.approx(2**0.5)
    assert on_lattice(*table, (1, 100)) == pytest.approx(8**0.5)
    assert on_lattice(*table, (64, 10)) == pytest.approx(16)  # in proportion above
    assert on_lattice(*table, (1, 1)) == pytest.approx(1)  # flat below


def test_constants_where_nothing_was_measured():
    one = checked(GOOD)
    assert one.operation_seconds("product", (1,), 1.0, 2e10, 0, 4, 1) == pytest.approx(2 + 1e-6)
    four_share = one.operation_seconds("product", (1,), 1.0, 0, 1e10, 4, 4)  # 2e10 bytes a second
    assert four_share == pytest.approx(2 + 1e-6)
    inside, across = GroupDescription(4, 0, 4), GroupDescription(4, 0, 1)
    assert one.collective_seconds("all-reduce", inside, 16, 1000) == pytest.approx(4 * 1e-6 + 1e-6)
    assert one.collective_seconds("all-gather", across, 16, 1000) == pytest.approx(2 * 1e-5 + 4 * 1e-5)  # 4 groups share a link
    assert one.collective_seconds("all-gather", GroupDescription(1, 0, 1), 16, 1000) == 0


def test_collectives_of_more_ranks_or_nodes_than_were_measured():
    two, four = GroupDescription(2, 0, 1), GroupDescription(4, 0, 1)
    one = checked(GOOD | {"collectives": {"all-reduce": {"2": [[8, 1e-5], [8e6, 1e-2]]}}})
    assert one.collective_seconds("all-reduce", two, 4, 8e6) == pytest.approx(1e-2)
    assert one.collective_seconds("all-reduce", four, 4, 8e6) == pytest.approx(1e-2 + 1e-5)  # more rounds
    slow_inside = {"node": {"alpha": 1e-6, "beta": 1e-8}, "network": {"alpha": 1e-5, "beta": 1e-9}}
    one = checked(GOOD | {"links": slow_inside})  # no less than what the ranks on a node send each other
    assert one.collective_seconds("all-gather", GroupDescription(16, 0, 4), 16, 1000) == pytest.approx(4 * 1e-5 + 1e-5)
    assert one.collective_seconds("all-gather", four, 16, 1000) == pytest.approx(2 * 1e-5 + 4e-6)  # all are elsewhere


def test_an_input_gradient_takes_what_backward_takes_beyond_the_gradient_of_the_kernel():
    """Without padding, the gradient of a 14 x 14 input comes from 10 x 10 outputs: 1.96 times that of the tables' layers."""
    seconds = {"forward": 1e-3, "gradients": 1e-3, "backward": 6e-3}
    tables = {
        f"conv5.{phase}": {"axes": [[1, 1000]] * 4, "seconds": [[[[each] * 2] * 2] * 2] * 2} for phase, each in seconds.items()
    }
    net = Sequential([Conv2d(6, 6, 1), Conv2d(6, 16, 5)], input_shape=(14, 14, 6))
    cost = Cost(net, GridDescription({}), "out", 10, checked(GOOD | {"tables": tables}))
    found = {work.phase: cost.seconds_of(work) for work in cost.works if work.name.startswith("conv5")}
    assert found == pytest.approx({"forward": 1e-3, "gradients": 1e-3, "backward": 1.96 * 5e-3})


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"core": {"flops": 0, "bandwidth": 1, "call": 1}}, "core.flops"),
        ({"surprise": 1}, "surprise"),
        ({"tables": {"relu.forward": {"axes": [[2, 1]], "seconds": [1.0, 2.0]}}}, "relu.forward.axes"),
        ({"tables": {"relu.forward": {"axes": [[1, 2]], "seconds": [1.0, float("nan")]}}}, "relu.forward"),
        ({"collectives": {"all-reduce": {"2": [[8, 1.0], [8, 2.0]]}}}, "all-reduce.2"),
    ],
)
def test_a_wrong_entry_of_a_machine_file_is_named(change, word, tmp_path):
    path = tmp_path / "m.json"
    for text, words in ((json.dumps(GOOD | change), f"is no machine file.*{word}"), ("[1]", "is no machine file")):
        path.write_text(text)
        with pytest.raises(ValueError, match=words) as raised:
            read(str(path))
        assert "\n" not in str(raised.value)
    with pytest.raises(ValueError, match="no such file; use one .* cori-haswell"):
        read("cray-3")
