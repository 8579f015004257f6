"""Made-up studies as files, for the tests of figures, and what a figure must be like whatever it shows."""

from gridgrad.experiments.plots import curves
from gridgrad.experiments.plots import style as looks
from gridgrad.experiments.scaling.records import lines
from tests.experiments.scaling import made_up_studies as made_up

SPREAD = -0.02, -0.01, 0.0, 0.0, 0.01, 0.02  # of the repeats, relative to the median


def seconds(point, repeat):
    """The step of a run: it scales with the power 0.8 of the ranks."""
    return 0.1 / point.ranks**0.8 * (1 + SPREAD[repeat])


def records(change=lambda record: {}, seconds=seconds, **settings):
    """The records of a study. change: a function of a record that returns entries to put into it."""
    found = made_up.records(seconds, **settings)
    return [record | {"compute_max": record["time"]["compute"]} | change(record) for record in found]


def predicted(machine="Cori Haswell", **settings):
    """The predicted records of a study."""
    more = {"predicted": True, "machine": machine, "ranks_per_node": 2, "environment": {"processor": machine}, "fits": True}
    return [record | more for record in made_up.records(lambda point, _: 0.08 / point.ranks, 1, **settings)]


def written(path, found):
    path.write_text(lines(found))
    return path


def lines_of(folder, **files):
    """The Lines of files with these names and records."""
    return curves.read([written(folder / f"{name}.jsonl", found) for name, found in files.items()])


def assert_whole(figure):
    """Nothing of a figure is cut off or smaller than 7 points, and the legend and the words cover no panel."""
    renderer = figure.canvas.get_renderer()
    panels = [panel for panel in figure.axes if panel.axison]
    texts = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    for panel in panels:
        texts += [panel.title, panel.xaxis.label, panel.yaxis.label, *panel.texts]
        texts += [*panel.get_xticklabels(), *panel.get_yticklabels()]
    assert all(text.get_fontsize() >= looks.SMALL for text in texts if text.get_text())
    words = [text.get_window_extent(renderer) for text in figure.texts if text.get_text()]
    legends = [legend.get_window_extent(renderer) for legend in figure.legends]
    boxes = [panel.get_tightbbox(renderer) for panel in panels]
    for box in (*words, *legends, *boxes):
        assert figure.bbox.x0 - 1 <= box.x0 and box.x1 <= figure.bbox.x1 + 1, (box, figure.bbox)
        assert figure.bbox.y0 - 1 <= box.y0 and box.y1 <= figure.bbox.y1 + 1, (box, figure.bbox)
    below = [*words, *legends]
    assert not any(box.overlaps(other) for box in below for other in boxes)
    assert not any(box.overlaps(other) for box in words for other in legends)
