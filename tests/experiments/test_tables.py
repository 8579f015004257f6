"""Tables in a terminal."""

from gridgrad.experiments.common.tables import lines, spread, table, terminal


def test_numbers_are_flush_right_below_their_unit():
    seconds = {"median": 0.0123456, "min": 0.012, "max": 0.5}
    rows = [{"grid": "batch=2", "step, ms": spread(seconds, 1e-3), "MB": 2048.6, "left out": None},
            {"grid": "1", "step, ms": None, "MB": 3.25, "left out": True}]  # fmt: skip
    assert table(rows).splitlines() == [
        "grid             step, ms    MB  left out",
        "batch=2  12.35 (12 - 500)  2049  -",
        "1                       -  3.25  yes",
    ]


def test_markdown_is_read_in_a_terminal_with_straight_columns():
    rows = [{"way": "`sync`", "ms": "8.1 (7 - 9)"}, {"way": "server:asp", "ms": "12"}]
    assert terminal(f"# Title\n\nSome `words`:\n\n{lines(rows)}\n") == (
        "# Title\n\nSome words:\n\nway                  ms\nsync        8.1 (7 - 9)\nserver:asp           12"
    )
