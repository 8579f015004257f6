"""Which points are drawn as one line, in which panel, and what lines are called."""

import pytest

from gridgrad.experiments.plots import curves
from tests.experiments.plots import made_up_lines as made_up
from tests.experiments.scaling.made_up_studies import ENVIRONMENT


def names(lines):
    return [line.name for line in lines]


def ranks(line):
    return [row.ranks for row in line.rows]


def elsewhere(record):
    return {"environment": ENVIRONMENT | {"mpi": "a library 2.0"}}


def test_a_line_is_a_series_and_a_panel_a_network_with_its_data_and_scaling(tmp_path):
    lines = made_up.lines_of(tmp_path, a=made_up.records(nets=["mlp:8,relu", "mlp:9,relu"], scaling=["strong", "weak"]))
    found = {(line.panel.network, line.panel.scaling, line.panel.dataset, line.name) for line in lines}
    assert found == {
        (net, scaling, "airfoil", series) for net in ("mlp:8,relu", "mlp:9,relu") for scaling in ("strong", "weak")
        for series in ("batch", "model")
    }  # fmt: skip
    assert len(lines) == len(found) and all(ranks(line) == [1, 2, 4] for line in lines)
    assert {line.settings["batch_size"] for line in lines} == {100} and not any(line.is_predicted for line in lines)


def test_parts_of_a_study_that_were_measured_on_the_same_are_put_together(tmp_path):
    made = made_up.records()
    lines = made_up.lines_of(tmp_path, a=made[:20], b=made[10:])
    assert names(lines) == ["batch", "model"] and {len(row.runs) for line in lines for row in line.rows} == {6}


def test_files_that_were_measured_on_something_else_are_lines_of_their_own(tmp_path):
    lines = made_up.lines_of(tmp_path, old=made_up.records(), new=made_up.records(elsewhere, schemes=["batch", "2d"]))
    assert names(lines) == ["batch (old)", "model", "batch (new)", "2d"]
    assert [line.rows[0].environment["mpi"] for line in lines] == ["a library 1.0"] * 2 + ["a library 2.0"] * 2
    folders = [tmp_path / name for name in ("x", "y")]
    for folder, change in zip(folders, (lambda _: {}, elsewhere), strict=True):
        folder.mkdir()
        made_up.written(folder / "s.jsonl", made_up.records(change, schemes=["batch"]))
    lines = curves.read([folder / "s.jsonl" for folder in folders])
    assert names(lines) == [f"batch ({folder / 's.jsonl'})" for folder in folders]


def test_a_line_whose_points_were_measured_on_different_things_is_refused(tmp_path):
    mixed = made_up.records(lambda record: elsewhere(record) if record["P"] == 4 else {})
    with pytest.raises(ValueError, match=r"a.jsonl: runs of mlp:512,512,512,relu, batch, strong scaling differ in MPI library "
                       r"\(a library 1.0, a library 2.0\): draw them apart, or measure all of them again"):  # fmt: skip
        made_up.lines_of(tmp_path, a=mixed)
    failed = made_up.records(lambda record: elsewhere(record) | {"failed": "no"} if record["P"] == 4 else {})
    assert made_up.lines_of(tmp_path, a=failed)  # which has no time


def test_lines_that_differ_in_settings_say_in_what(tmp_path):
    one = made_up.records(schemes=["batch"])
    lines = made_up.lines_of(tmp_path, a=one, b=made_up.records(schemes=["batch"], batch_size=64, dtype="float64"))
    assert names(lines) == ["batch, batch size 100, dtype float32", "batch, batch size 64, dtype float64"]
    assert list(map(ranks, lines)) == [[1, 2, 4]] * 2
    assert [{row.batch for row in line.rows} for line in lines] == [{100}, {64}]
    varied = made_up.lines_of(tmp_path, c=made_up.records(schemes=["batch"], reduction=["plain", "overlap"]))
    assert names(varied) == ["batch, reduction plain", "batch, reduction overlap"]


def test_predictions_stand_in_the_panel_of_what_was_measured(tmp_path):
    measured, of_model = made_up.records(schemes=["batch"]), made_up.predicted(ranks=[1, 8, 64])
    for lines in (made_up.lines_of(tmp_path, a=[*measured, *of_model]), made_up.lines_of(tmp_path, p=of_model, m=measured)):
        assert names(lines) == ["batch", "batch", "model"] and len({line.panel for line in lines}) == 1
        assert [line.is_predicted for line in lines] == [False, True, True]
        assert ranks(lines[1]) == [1, 8, 64] and lines[1].origin == "Cori Haswell"
    other = made_up.lines_of(tmp_path, a=made_up.records(schemes=["batch"], steps=9, batch_size=64), p=of_model)
    assert names(other) == ["batch, batch size 64", "batch, batch size 100", "model"]  # steps are how it was measured
    alone = made_up.lines_of(tmp_path, q=of_model)
    assert {line.panel.dataset for line in alone} == {""}  # a prediction is of a shape, and not of data
    machines = made_up.lines_of(tmp_path, q=of_model, r=made_up.predicted("another", ranks=[1, 8]))
    assert set(names(machines)) == {
        f"{series} ({name})" for series in ("batch", "model") for name in ("Cori Haswell", "another")
    }


def test_lines_are_chosen_by_their_names_and_columns(tmp_path):
    lines = made_up.lines_of(tmp_path, a=made_up.records(nets=["mlp:8,relu", "mlp:9,relu"], scaling=["strong", "weak"]))
    [one] = curves.chosen(lines, {"network": ["mlp:9,relu"], "scaling": ["weak"], "series": ["model"]})
    assert (one.panel.network, one.panel.scaling, one.name) == ("mlp:9,relu", "weak", "model")
    assert len(curves.chosen(lines, {"batch_size": ["100"]})) == len(lines) == len(curves.chosen(lines, {}))
    with pytest.raises(ValueError, match="there is no net mlp: there are .*; network; scaling; dataset; series"):
        curves.chosen(lines, {"net": ["mlp"]})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no file"),
        ("", "holds no runs: run sweep first"),
        ({"dataset": ["a"]}, "dataset must be a text"),
        ({"environment": {"processor": "$x$"}}, "environment.processor must be a text"),
        ({"predicted": True}, "it has no entry machine"),
    ],
)
def test_files_that_hold_nothing_to_draw_are_refused(tmp_path, content, message):
    path = tmp_path / "a.jsonl"
    if content is not None:
        made_up.written(path, [record | content for record in made_up.records()] if content else [])
    with pytest.raises(ValueError, match=message):
        curves.read([path])
