"""The figure of a roofline."""

from gridgrad.experiments.plots.roofline import draw, roof
from tests.experiments.figures import is_figure


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
    draw(result, tmp_path / "r.png")
    assert is_figure(tmp_path / "r.png")
