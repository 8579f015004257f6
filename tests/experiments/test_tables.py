"""Tables in a terminal."""

import pytest

from gridgrad.experiments.common.markdown import lines
from gridgrad.experiments.common.tables import spread, table, terminal
from gridgrad.experiments.parts import sweep_table


def test_numbers_are_flush_right_below_their_unit():
    seconds = {"median": 0.0123456, "min": 0.012, "max": 0.5}
    rows = [{"grid": "batch=2", "step, ms": spread(seconds, 1e-3), "MB": 2048.6, "left out": None},
            {"grid": "1", "step, ms": None, "MB": 3.25, "left out": True}]  # fmt: skip
    assert table(rows).splitlines() == [
        "grid             step, ms    MB  left out",
        "batch=2  12.35 (12 - 500)  2049  -",
        "1                       -  3.25  yes",
    ]


def run(ranks, milliseconds, batch_size=64, **more):
    """A report of a sweep."""
    return {
        "net": "lenet5", "grid": f"batch={ranks}", "P": ranks, "settings": {"batch_size": batch_size}, "slots": 2,
        "seconds_per_step": {"median": 1e-3 * milliseconds}, "oversubscribed": ranks > 2, **more,
    }  # fmt: skip


def test_a_sweep_is_a_row_for_each_grid_with_its_speedup():
    reports = [run(1, 8), run(2, 5), run(4, 9), run(1, 10), run(2, 4), run(4, 9), run(1, 9), run(2, 4.5), run(4, 9)]
    head, *rows, note = sweep_table.text(reports).splitlines()
    assert head.split() == ["network", "grid", "ranks", "batch", "ms", "a", "step", "speedup", "over", "1", "rank", "repeats"]
    assert [row.split() for row in rows] == [
        ["lenet5", "batch=1", "1", "64", "9", "(8", "-", "10)", "1", "3"],
        ["lenet5", "batch=2", "2", "64", "4.5", "(4", "-", "5)", "2", "3"],
        ["lenet5", "batch=4", "4", "64", "9", "(9", "-", "9)", "1", "3"],
    ]
    assert note.startswith("4 ranks are more than the 2 cores here: oversubscribed")


def test_without_one_rank_there_is_no_speedup_and_without_timed_steps_no_row():
    head, row, note = sweep_table.text([run(2, 5), run(1, 0) | {"seconds_per_step": None}]).splitlines()
    assert row.split()[-2:] == ["-", "1"] and "no run on 1 rank" in note
    assert "more --steps" in sweep_table.text([run(1, 0) | {"seconds_per_step": None}])


def test_runs_with_other_settings_are_rows_of_their_own():
    other = [run(1, 20, sweep={"dtype": "float64"}), run(2, 10, sweep={"dtype": "float64"}), run(1, 30, 256), run(2, 10, 256)]
    _, *rows = sweep_table.text([run(1, 8), run(2, 4), *other]).splitlines()
    assert [row.split()[-2] for row in rows] == ["1", "2", "1", "2", "1", "3"]
    with pytest.raises(ValueError, match="seconds_per_step.median must be a number of seconds"):
        sweep_table.text([run(1, 8) | {"seconds_per_step": {"median": "8"}}])


def test_weak_scaling_is_compared_by_samples_a_second():
    weak = {
        "predicted": True,
        "oversubscribed": False,
        "scheme": "batch",
        "rank_bytes": 2e6,
        "rank_memory": 2**30,
        "fits": False,
    }
    _, one, four = sweep_table.text([run(1, 10, **weak), run(4, 10, 256, **weak)]).splitlines()
    assert one.split()[6:] == ["1", "2", "1", "no"] and four.split()[4:7] == ["256", "10", "4"]


def test_markdown_is_read_in_a_terminal_with_straight_columns():
    rows = [{"way": "`sync`", "ms": "8.1 (7 - 9)"}, {"way": "server:asp", "ms": "12"}]
    assert terminal(f"# Title\n\nSome `words`:\n\n{lines(rows)}\n") == (
        "# Title\n\nSome words:\n\nway                  ms\nsync        8.1 (7 - 9)\nserver:asp           12"
    )
