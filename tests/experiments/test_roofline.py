"""The figure of a roofline."""

import json

import pytest

from gridgrad.experiments.plots import style as looks
from gridgrad.experiments.plots.roofline import draw, read, roof
from tests.experiments.plots import made_up_lines as made_up


def test_the_roof():
    assert roof(2.0, 100.0, 10.0) == 20 and roof(50.0, 100.0, 10.0) == 100


def test_the_figure_of_all_kinds_of_points(tmp_path):
    versions = {"processor": "a processor of a very long name, as vendors have them", "blas": "a library 1.2.3"}
    point = {"family": "a", "flops": 1e9, "seconds": {"median": 0.02, "min": 0.01, "max": 0.03}}
    points = [
        point | {"intensity": 4.0 + number, "pass": pass_, "algorithm": kind}
        for number, (pass_, kind) in enumerate(
            zip(("forward", "gradients", "input_gradient"), ("patches", "Winograd", "matrix product"), strict=True)
        )
    ]
    levels = [{"name": name, "bytes_per_second": rate} for name, rate in (("L1 cache", 2e11), ("memory", 2e10))]
    result = {"versions": versions, "busy_cores": 2.5, "flops_per_second": 1e11, "bandwidths": levels, "points": points}
    path = tmp_path / "r.json"
    path.write_text(json.dumps(result))
    for width in (looks.COLUMN, looks.PAGE):
        made_up.assert_whole(draw(read(path), looks.Look(width)))
    path.write_text(json.dumps(result | {"points": []}))
    with pytest.raises(ValueError, match=r"holds no roofline that can be drawn \(it has no points\)"):
        read(path)
