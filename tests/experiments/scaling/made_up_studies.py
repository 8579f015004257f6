"""Made-up records of studies, as if runs had been measured, and the lines that figures draw of them."""

from gridgrad.experiments.plots import curves
from gridgrad.experiments.scaling.records import lines, tags
from gridgrad.experiments.scaling.study import Study

ENVIRONMENT = {"processor": "a processor", "cores": 4, "slots": 4, "mpi": "a library 1.0", "blas": "a BLAS", "code": "c0de"}
BUSY = {"verdict": "of 4 cores 1.3 were taken by others: not comparable"}
SPREAD = -0.02, -0.01, 0.0, 0.0, 0.01, 0.02  # of the repeats, relative to the median


def record(study, point, repeat=0, seconds=0.01, **more):
    """The record of a run of a point of a study. seconds: its median step, None for a run with too few steps."""
    share = (
        {"compute": 0.7, "read": 0.05, "communicate": 0.15, "wait": 0.1} if point.ranks > 1 else {"compute": 0.9, "read": 0.1}
    )
    return {
        "net": point.settings["net"], "dataset": point.settings["dataset"], "P": point.ranks, "grid": point.settings["grid"],
        "settings": {"batch_size": point.settings["batch_size"], "dtype": "float32"}, "slots": 4,
        "oversubscribed": point.ranks > 4, "seconds_per_step": seconds and {"median": seconds, "min": seconds, "max": seconds},
        "time": {part: value * (seconds or 1) for part, value in share.items()} | ({} if point.ranks > 1 else {
            "communicate": 0.0, "wait": 0.0}),
        "bytes": {"all-reduce": 1000.0 * (point.ranks - 1)}, "peak_memory": 2**26,
        "communication": [
            {"layer": "gradients", "kind": "all-reduce", "calls": point.ranks, "bytes": 1000.0 * (point.ranks - 1)}
        ],
        "flops_a_sample": 1000, "point": point.settings, "repeat": repeat, "took": 1.5, "loss": None,
        "environment": ENVIRONMENT, "load": None, **tags(study, point), **more,
    }  # fmt: skip


def records(seconds=lambda point, repeat: 0.01 / point.ranks, repeats=6, **settings):
    """The records of a study with these settings. seconds: the median step of a run, from its point and its number."""
    study = Study({"ranks": [1, 2, 4], "schemes": ["batch", "model"]} | settings)
    return [record(study, point, n, seconds(point, n)) for point in study.points for n in range(repeats)]


# ----- for figures


def spread_seconds(point, repeat):
    """The step of a run: it scales with the power 0.8 of the ranks."""
    return 0.1 / point.ranks**0.8 * (1 + SPREAD[repeat])


def spread(change=lambda record: {}, seconds=spread_seconds, **settings):
    """The records of a study whose repeats differ. change: a function of a record that returns entries to put into it."""
    found = records(seconds, **settings)
    return [record | {"compute_max": record["time"]["compute"]} | change(record) for record in found]


def written(path, found):
    path.write_text(lines(found))
    return path


def lines_of(folder, **files):
    """The Lines of files with these names and records."""
    return curves.read([written(folder / f"{name}.jsonl", found) for name, found in files.items()])


def assert_whole(figure):
    """Nothing of a figure is cut off, and the legends and words around its panels cover none of them."""
    renderer = figure.canvas.get_renderer()
    around = [text.get_window_extent(renderer) for text in figure.texts if text.get_text()]
    around += [legend.get_window_extent(renderer) for legend in figure.legends]
    panels = [panel.get_tightbbox(renderer) for panel in figure.axes if panel.axison]
    for box in (*around, *panels):
        assert figure.bbox.x0 - 1 <= box.x0 and box.x1 <= figure.bbox.x1 + 1, (box, figure.bbox)
        assert figure.bbox.y0 - 1 <= box.y0 and box.y1 <= figure.bbox.y1 + 1, (box, figure.bbox)
    assert not any(box.overlaps(panel) for box in around for panel in panels)
