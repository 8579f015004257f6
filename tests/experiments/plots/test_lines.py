"""Which points are drawn as one line, in which panel, and what lines are called: of runs over ranks, and of any table."""

import json
from itertools import product

import matplotlib.pyplot as plt
import pytest

from gridgrad.experiments.plots import curves, lines
from tests.experiments.scaling import made_up_studies as made_up


def names(lines):
    return [line.name for line in lines]


def ranks(line):
    return [row.ranks for row in line.rows]


def test_a_line_is_a_series_and_a_panel_a_network_with_its_scaling_and_both_are_chosen_by_name(tmp_path):
    found = made_up.lines_of(tmp_path, a=made_up.spread(nets=["mlp:8,relu", "mlp:9,relu"], scaling=["strong", "weak"]))
    assert {(line.panel.network, line.panel.scaling, line.name) for line in found} == set(
        product(("mlp:8,relu", "mlp:9,relu"), ("strong", "weak"), ("batch", "model"))
    )
    assert len(found) == 8 and all(ranks(line) == [1, 2, 4] and not line.is_predicted for line in found)
    [one] = curves.chosen(found, {"network": ["mlp:9,relu"], "scaling": ["weak"], "series": ["model"]})
    assert (one.panel.network, one.panel.scaling, one.name) == ("mlp:9,relu", "weak", "model")
    with pytest.raises(ValueError, match="there is no net mlp"):
        curves.chosen(found, {"net": ["mlp"]})
    with pytest.raises(ValueError, match="holds no runs"):
        curves.read([made_up.written(tmp_path / "none.jsonl", [])])


def test_files_that_were_measured_on_something_else_are_lines_of_their_own(tmp_path):
    elsewhere = lambda record: {"environment": made_up.ENVIRONMENT | {"mpi": "a library 2.0"}}  # noqa: E731
    made = made_up.spread()
    parts = made_up.lines_of(tmp_path, a=made[:20], b=made[10:])
    assert names(parts) == ["batch", "model"] and {len(row.runs) for line in parts for row in line.rows} == {6}
    found = made_up.lines_of(tmp_path, old=made, new=made_up.spread(elsewhere, schemes=["batch", "2d"]))
    assert names(found) == ["batch (old)", "model", "batch (new)", "2d"]
    mixed = made_up.spread(lambda record: elsewhere(record) if record["P"] == 4 else {})
    with pytest.raises(ValueError, match=r"a.jsonl: .* differ in MPI library \(a library 1.0, a library 2.0\)"):
        made_up.lines_of(tmp_path, a=mixed)


# ----- lines of any table

REPORT = [{"net": "a", "seconds": {"median": 2}, "ways": [
    {"way": way, "history": [{"epoch": epoch, "loss": number + 1 / epoch} for epoch in (1, 2, 3)]}
    for number, way in enumerate(("batch", "model"))
]}]  # fmt: skip


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(REPORT))
    yield lines.read([path])
    plt.close("all")


def test_lists_of_entries_are_rows_with_what_stands_around_them(table):
    rows = table.to_dict("records")
    assert {(row["net"], row["seconds.median"], row["file"]) for row in rows} == {("a", 2, "r")}
    assert [(row["way"], row["loss"]) for row in rows if row["epoch"] > 2] == [
        ("batch", pytest.approx(1 / 3)), ("model", pytest.approx(4 / 3))
    ]  # fmt: skip


def shown(axes):
    """{x: y} of the markers of each line."""
    marked = [line for line in axes.lines if line.get_marker() not in ("None", "|", "_")]
    return [dict(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in marked]


def test_series_are_lines_and_rows_with_the_same_x_a_median_with_its_range(table):
    figure = lines.draw(table, "epoch", ["loss"], ["way"])
    made_up.assert_whole(figure)
    assert shown(figure.axes[0])[1] == pytest.approx({1: 2, 2: 1.5, 3: 4 / 3})
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["batch", "model"]
    [together] = lines.draw(table, "epoch", ["loss"], log="x").axes
    assert shown(together)[0][1] == pytest.approx(1.5) and together.get_xscale() == "log"
    assert together.collections[0].get_segments()[0][:, 1].tolist() == pytest.approx([1, 2])
    [panel] = lines.draw(lines.chosen(table, {"way": "model"}), "epoch", ["loss"], panel="way").axes
    assert panel.get_title() == "way: model" and len(shown(panel)) == 1
