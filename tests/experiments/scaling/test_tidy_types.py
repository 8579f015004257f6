"""The types of the tidy table, and that pandas reads it so and writes it as Parquet."""

import importlib.util

import pytest

from gridgrad.experiments.scaling import tidy
from tests.experiments.scaling import made_up_studies as made_up

KINDS = {"string": str, "Int64": int, "boolean": bool, "float64": (int, float)}


def needs(*names):
    """The mark of a test that needs these packages."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: pip install {' '.join(missing)}")


def records():
    """Runs, one that failed, and a prediction, which say different things."""
    options = {"optimizer": "adam", "threads": 2, "shares": "1,1", "profile": True, "lr": [1, 0.5], "rebalance": 20, "hosts": 2}
    first, *others = made_up.records(repeats=1, nesterov=True, cuts=["2", "auto"], rate=100.5, device="cpu", **options)
    failed = others[-1] | {"failed": "no memory", "seconds_per_step": None, "time": None, "bytes": None, "peak_memory": None}
    return [first, *others[:-1], failed, first | {"predicted": True, "oversubscribed": None, "load": None}]


def test_each_cell_is_of_the_type_of_its_column():
    rows = tidy.table(records())
    types = tidy.types(rows)
    assert types.keys() == rows[0].keys() and {*tidy.TEXTS, *tidy.WHOLES, *tidy.TRUTHS} <= types.keys()
    for row in rows:
        for name, value in row.items():
            assert value is None or isinstance(value, KINDS[types[name]]), (name, value)
            assert not isinstance(value, bool) or types[name] == "boolean", name


def test_all_that_was_varied_has_a_column():
    rows = tidy.table(records())
    more = list(rows[0])[list(rows[0]).index("code") + 1 :]
    assert more == ["cuts", "device", "lr", "nesterov", "rate_mbit_per_s", "rebalance"]
    types = tidy.types(rows)
    assert [types[name] for name in more] == ["string", "string", "float64", "boolean", "float64", "float64"]
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
    assert {row["memory_gib"] for row in rows} == {"4", "auto", None} and tidy.types(rows)["memory_gib"] == "string"


@needs("pandas", "pyarrow")
def test_pandas_reads_these_types_and_writes_them_as_parquet(tmp_path):
    import pandas

    rows = tidy.table(records())
    path, parquet = tmp_path / "s.csv", tmp_path / "s.parquet"
    path.write_text(tidy.text(records()))
    types = tidy.types(rows)
    frame = pandas.read_csv(path, dtype=types, float_precision="round_trip")
    assert {name: str(kind) for name, kind in frame.dtypes.items()} == types
    for name in types:
        assert [None if pandas.isna(value) else value for value in frame[name]] == [row[name] for row in rows], name
    frame.to_parquet(parquet)
    again = pandas.read_parquet(parquet)
    pandas.testing.assert_frame_equal(again, frame)


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
