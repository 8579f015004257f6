"""How the time of a step and what was sent are put together from what each rank measured."""

from types import SimpleNamespace

import pytest

from gridgrad.experiments.common import report


class GatheredGrid:
    """A grid whose ranks have measured these: a list of {(layer, kind): (calls, bytes, seconds)} for each rank."""

    def __init__(self, ranks):
        self.ranks = ranks
        self.tally = SimpleNamespace(records={})

    def gather(self, mine):
        _, seconds, read, peak = mine
        return [(records, seconds, read, peak) for records in self.ranks]


def test_the_seconds_of_collectives_add_up_to_communicating_where_only_some_ranks_take_part():
    loss, sums, sent = ("loss", "all-reduce"), ("gradients", "all-reduce"), ("1", "send")
    ranks = [
        {loss: (2, 16, 0.2), sums: (2, 100, 0.6), sent: (2, 50, 0.4)},
        {loss: (2, 16, 0.4), sums: (2, 100, 0.8)},
        {loss: (2, 16, 0.6)},
        {loss: (2, 16, 0.2)},
    ]
    found = report.time_and_bytes(GatheredGrid(ranks), [2.0, 2.0], 0.0)
    seconds = {(row["layer"], row["kind"]): row["seconds"] for row in found["communication"]}
    assert seconds == pytest.approx({loss: 0.1, sums: 0.3 / 2, sent: 0.2 / 4})  # of a step, mean over 4 ranks
    assert sum(seconds.values()) == pytest.approx(found["time"]["communicate"])
    whole = sum(value[2] for rank in ranks for value in rank.values()) / 4 / 2
    assert found["time"]["wait"] == pytest.approx(whole - found["time"]["communicate"])
    assert found["time"]["compute"] == pytest.approx(2 - whole)


@pytest.mark.parametrize(("ranks", "expected"), [
    ([([1.0, 2.0, 6.0], [0.1, 0.2, 0.1]), ([1.0, 4.0, 2.0], [0.1, 0.1, 0.3])], (0.1, 20.0)),  # 10, 20 and 20 products
    ([([3.0], [0.5])], (0.5, 6.0)),
    ([([], []), ([], [])], None),
    ([([1.0, 2.0], [0.1, 0.1]), ([1.0], [0.1])], None),  # workers that take turns of their own
])  # fmt: skip
def test_steps_are_told_in_products_of_the_slowest_core(ranks, expected):
    grid = SimpleNamespace(gather=lambda mine: ranks)
    names = "reference_seconds", "reference_products_per_step"
    assert report.core_speed(grid, *ranks[0]) == (expected and pytest.approx(dict(zip(names, expected, strict=True))))
    assert report.core_speed(SimpleNamespace(gather=lambda mine: None), *ranks[0]) is None, "on the other ranks"
