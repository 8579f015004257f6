"""The columns of the tidy table, and that pandas reads what is written."""

import pandas

from gridgrad.experiments.scaling import tidy
from tests.experiments.scaling import made_up_studies as made_up


def records():
    """Runs, one that failed, and a prediction, which say different things."""
    options = {"optimizer": "adam", "threads": 2, "shares": "1,1", "profile": True, "lr": [1, 0.5], "rebalance": 20, "hosts": 2}
    first, *others = made_up.records(repeats=1, nesterov=True, cuts=["2", "auto"], rate=100.5, device="cpu", **options)
    failed = others[-1] | {"failed": "no memory", "seconds_per_step": None, "time": None, "bytes": None, "peak_memory": None}
    return [first, *others[:-1], failed, first | {"predicted": True, "oversubscribed": None, "load": None}]


def test_all_that_was_varied_has_a_column():
    rows = tidy.table(records())
    more = list(rows[0])[list(rows[0]).index("code") + 1 :]
    assert more == ["cuts", "device", "lr", "nesterov", "rate_mbit_per_s", "rebalance"]
    assert {(row["lr"], row["cuts"]) for row in rows if row["ranks"] == 2} == {
        (lr, cuts) for lr in (1, 0.5) for cuts in ("2", "auto")
    }
    assert rows[0]["nesterov"] is True and {row["rate_mbit_per_s"] for row in rows if row["ranks"] > 1} == {100.5}
    assert all(list(row) == list(rows[0]) for row in rows) and list(tidy.table(records()[::-1])[0]) == list(rows[0])
    assert tidy.table(made_up.records())[0].keys() == rows[0].keys() - {*more}  # as few as there are


def test_an_option_with_numbers_and_texts_has_texts():
    one = made_up.records(repeats=1)[0]
    mixed = [one | {"point": one["point"] | {"memory": value}} for value in (4, "auto", None)]
    rows = tidy.table(mixed)
    assert {row["memory_gib"] for row in rows} == {"4", "auto", None}


def test_pandas_finds_the_types_of_a_file_and_reads_what_was_written(tmp_path):
    path, rows = tmp_path / "s.csv", tidy.table(records())
    path.write_text(tidy.text(records()))
    frame = pandas.read_csv(path).convert_dtypes()
    kinds = {"ranks": "Int64", "step_s": "Float64", "busy": "boolean", "nesterov": "boolean", "shares": "string"}
    assert {name: str(frame.dtypes[name]) for name in kinds} == kinds
    for name in frame:
        known = [None if value == "" else value for value in (row[name] for row in rows)]
        found = [None if pandas.isna(value) else value for value in frame[name]]
        assert found == known or list(map(str, found)) == list(map(str, known)), name  # texts that look like numbers


def test_no_cell_is_a_command_for_a_spreadsheet_or_a_terminal():
    cells = {
        "=1+1": "'=1+1",
        "-x\x1b[2J": "'-x\\x1b[2J",
        "a\tb": "a\\tb",
        "\udcff→": "\\udcff→",
        "a b": "a b",
        -1: -1,
        None: None,
    }
    assert {value: tidy.harmless(value) for value in cells} == cells
