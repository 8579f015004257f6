"""Which points are drawn as one line, in which panel, and what lines are called: of runs over ranks, and of any table."""

import json

import matplotlib.pyplot as plt
import pytest

from gridgrad.experiments.plots import curves, lines
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
    found = made_up.lines_of(tmp_path, old=made_up.records(), new=made_up.records(elsewhere, schemes=["batch", "2d"]))
    assert names(found) == ["batch (old)", "model", "batch (new)", "2d"]
    assert [line.rows[0].environment["mpi"] for line in found] == ["a library 1.0"] * 2 + ["a library 2.0"] * 2
    mixed = made_up.records(lambda record: elsewhere(record) if record["P"] == 4 else {})
    with pytest.raises(ValueError, match=r"a.jsonl: .* differ in MPI library \(a library 1.0, a library 2.0\)"):
        made_up.lines_of(tmp_path, a=mixed)


def test_lines_that_differ_in_settings_say_in_what(tmp_path):
    other = made_up.records(schemes=["batch"], batch_size=64, dtype="float64")
    found = made_up.lines_of(tmp_path, a=made_up.records(schemes=["batch"]), b=other)
    assert names(found) == ["batch, batch size 100, dtype float32", "batch, batch size 64, dtype float64"]
    assert [{row.batch for row in line.rows} for line in found] == [{100}, {64}]
    varied = made_up.lines_of(tmp_path, c=made_up.records(schemes=["batch"], reduction=["plain", "overlap"]))
    assert names(varied) == ["batch, reduction plain", "batch, reduction overlap"]


def test_predictions_stand_in_the_panel_of_what_was_measured(tmp_path):
    measured, of_model = made_up.records(schemes=["batch"]), made_up.predicted(ranks=[1, 8, 64])
    found = made_up.lines_of(tmp_path, p=of_model, m=measured)
    assert names(found) == ["batch", "batch", "model"] and len({line.panel for line in found}) == 1
    assert [line.is_predicted for line in found] == [False, True, True]
    assert ranks(found[1]) == [1, 8, 64] and found[1].origin == "Cori Haswell"
    machines = made_up.lines_of(tmp_path, q=of_model, r=made_up.predicted("another", ranks=[1, 8]))
    assert {line.name for line in machines if ranks(line) == [1, 8]} == {"batch (another)", "model (another)"}


def test_lines_are_chosen_by_their_names_and_columns(tmp_path):
    found = made_up.lines_of(tmp_path, a=made_up.records(nets=["mlp:8,relu", "mlp:9,relu"], scaling=["strong", "weak"]))
    [one] = curves.chosen(found, {"network": ["mlp:9,relu"], "scaling": ["weak"], "series": ["model"]})
    assert (one.panel.network, one.panel.scaling, one.name) == ("mlp:9,relu", "weak", "model")
    assert len(curves.chosen(found, {"batch_size": ["100"]})) == len(found)
    with pytest.raises(ValueError, match="there is no net mlp"):
        curves.chosen(found, {"net": ["mlp"]})


@pytest.mark.parametrize(
    ("change", "message"), [(None, "holds no runs"), ({"dataset": ["a"]}, "dataset"), ({"predicted": True}, "machine")]
)
def test_files_that_hold_nothing_to_draw_are_refused(tmp_path, change, message):
    path = made_up.written(tmp_path / "a.jsonl", [record | change for record in made_up.records()] if change else [])
    with pytest.raises(ValueError, match=message):
        curves.read([path])


# ----- lines of any table

REPORT = [{"net": "a", "seconds": {"median": 2}, "ways": [
    {"way": way, "history": [{"epoch": epoch, "loss": number + 1 / epoch} for epoch in (1, 2, 3)], "times": [1, 4]}
    for number, way in enumerate(("batch", "model"))
]}]  # fmt: skip


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(REPORT))
    yield lines.read([path])
    plt.close("all")


def shown(axes):
    """{x: y} of the markers of each line."""
    marked = [line for line in axes.lines if line.get_marker() not in ("None", "|", "_")]
    return [dict(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in marked]


def test_lists_of_entries_are_rows_with_what_stands_around_them(table):
    rows = table.to_dict("records")
    assert {(row["net"], row["seconds.median"], row["file"]) for row in rows} == {("a", 2, "r")}
    assert [(row["way"], row["loss"]) for row in rows if row["epoch"] > 2] == [
        ("batch", pytest.approx(1 / 3)), ("model", pytest.approx(4 / 3))
    ]  # fmt: skip
    assert [(row["index"], row["times"]) for row in rows if row["times"] > 0] == [(0, 1), (1, 4)] * 2


def test_series_are_lines_and_rows_with_the_same_x_a_median_with_its_range(table):
    figure = lines.draw(table, "epoch", ["loss"], ["way"])
    made_up.assert_whole(figure)
    assert shown(figure.axes[0])[1] == pytest.approx({1: 2, 2: 1.5, 3: 4 / 3})
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["batch", "model"]
    [together] = lines.draw(table, "epoch", ["loss"], log="x").axes
    assert shown(together)[0][1] == pytest.approx(1.5) and together.get_xscale() == "log"
    assert together.collections[0].get_segments()[0][:, 1].tolist() == pytest.approx([1, 2])
    panels = lines.draw(lines.chosen(table, {"way": "model"}), "epoch", ["loss"], panel="way").axes
    assert [axes.get_title() for axes in panels] == ["way: model"] and len(shown(panels[0])) == 1


def test_runs_of_a_sweep_have_the_columns_of_its_table(tmp_path):
    made_up.written(tmp_path / "s.jsonl", made_up.records())
    figure = lines.draw(lines.read([tmp_path / "s.jsonl"]), "ranks", ["samples_a_second"], ["series"], "network", "x")
    assert shown(figure.axes[0])[0] == pytest.approx({ranks: 1000 * ranks**0.8 for ranks in (1, 2, 4)})
