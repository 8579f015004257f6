"""`summary --measure`: every pass has a row, operations and bytes are those calculated by hand; limits, points, products."""

import json
from itertools import count
from pathlib import Path

from gridgrad.experiments import summary
from gridgrad.experiments.common import core_limits
from gridgrad.experiments.parts import summary_layers
from gridgrad.experiments.parts.summary_layers import pass_times, step_times
from gridgrad.nn import Concat, Conv2d, Flatten, Linear, MaxPool2d, Residual, Sequential, Tanh
from gridgrad.nn.sequence import with_branches
from tests.experiments.programs import run_main

# ----- passes


def residual():
    """A pooling in front of all parameters, and branches within branches."""
    layers = [MaxPool2d(2), Residual([Conv2d(2, 2, 3, padding=1), Residual([Conv2d(2, 2, 1)], [Conv2d(2, 2, 1)])])]
    layers += [Concat([Conv2d(2, 1, 1), MaxPool2d(1)], []), Flatten(), Linear(2 * 4 * 3, 3)]
    return Sequential(layers, input_shape=(4, 8, 2))


def test_every_pass_has_a_row_and_the_rows_are_the_whole_step(monkeypatch):
    """By a clock that goes on by one second whenever somebody looks at it: no pass counts twice."""
    looks = count()
    monkeypatch.setattr(summary_layers.time, "perf_counter", looks.__next__)
    net = residual()
    found = pass_times(net, 3, *step_times(net, 3, 1))
    assert sum(row.seconds for row in found) == next(looks) - 1  # from the first look to the last one
    expected = [(layer.name, pass_) for layer in with_branches(net.layers) for pass_ in ("forward", "backward")]
    expected.remove(("0", "backward"))  # nobody needs the gradient of its input, and it has no parameters
    last = [("loss", "forward"), ("loss", "backward"), ("optimizer", "step"), ("rest", "")]
    named = [(row.name, row.pass_) for row in found]
    assert sorted(named[:-4]) == sorted(expected) and named[-4:] == last


def counted(net, batch_size):
    """{(name, pass): (operations, elements that are moved)}."""
    found = pass_times(net, batch_size, *step_times(net, batch_size, 1))
    return {(row.name, row.pass_): (row.flops, row.bytes / 4) for row in found}


def test_operations_and_bytes_are_those_calculated_by_hand():
    found = counted(Sequential([Linear(5, 3), Tanh(), Linear(3, 2)], input_shape=(5,)), 4)
    # The first: x has 20 elements, W and b 15 + 3, y 12. Nobody needs the gradient of x.
    assert found["0", "forward"] == found["0", "backward"] == (2 * 5 * 3 * 4, 20 + 18 + 12)
    # The second: x has 12 elements, W and b 6 + 2, y 8. dy, x, dW and db, W and b, and dx are moved backward.
    assert found["2", "forward"] == (2 * 3 * 2 * 4, 12 + 8 + 8)
    assert found["2", "backward"] == (2 * 2 * 3 * 2 * 4, 8 + 12 + 8 + 8 + 12)
    assert found["1", "forward"] == (0, 12 + 12) and found["1", "backward"] == (0, 12 + 12 + 12)  # dy, y and dx
    assert found["loss", "forward"] == found["loss", "backward"] == (0, 8) and found["optimizer", "step"] == (0, 5 * 26)
    layers = [Conv2d(2, 3, 3, padding=1), Conv2d(3, 4, (3, 2), bias=False), MaxPool2d(2), Flatten(), Linear(8, 2)]
    found = counted(Sequential(layers, input_shape=(4, 5, 2)), 6)
    # The first: x has 6 * 40 elements, w and b 54 + 3, y 6 * 60. Nobody needs the gradient of x.
    assert found["0", "forward"] == found["0", "backward"] == (2 * (3 * 3 * 2) * 6 * 60, 240 + 57 + 360)
    # The second, which a pooling follows: x has 360 elements, w 72, y 6 * 2 * 4 * 4.
    flops = 2 * (3 * 2 * 3) * 6 * 32
    assert found["1", "forward"] == (flops, 360 + 72 + 192)
    assert found["1", "backward"] == (2 * flops, 192 + 360 + 72 + 72 + 360)
    found = counted(residual(), 3)
    x = 3 * 2 * 4 * 2  # elements of every array of images but those of the first layer and of the joined channels
    assert found["1", "forward"] == (0, 3 * x) and found["1", "backward"] == (0, 0)  # nobody needs its input's gradient
    assert found["2", "forward"] == (0, 2 * (x // 2 + x)) and found["2", "backward"] == (0, 3 * x)


# ----- the program, and tables


def test_networks_are_measured_and_written_as_the_kept_roofline(tmp_path, monkeypatch, capsys):
    """On a core whose limits are known."""
    rates = {"bytes_per_second": 5e9, "reading": 5e9, "copying": 4e9}
    level = {"name": "memory", "cache_bytes": None, "array_bytes": 1 << 30, **rates}
    monkeypatch.setattr(summary_layers, "bandwidths", lambda: [level])
    monkeypatch.setattr(core_limits, "gemm_peak", lambda seconds: 3e9)
    monkeypatch.setattr(summary.report, "blas_threads", lambda: 1)
    monkeypatch.setattr(summary_layers, "SECONDS", 0.0)
    words = "--net", "mlp:8,relu", "--net", "lenet5", "--batch-size", 4, "--measure", "--out", tmp_path / "r.json"
    run_main(monkeypatch, "summary", *words)
    assert "3.0 GFLOP/s" in (printed := capsys.readouterr().out) and printed.count("Conv2d") == 4
    found, kept = json.loads((tmp_path / "r.json").read_text()), json.loads(Path("results/roofline.json").read_text())
    assert found.keys() == kept.keys() and found["points"][0].keys() == kept["points"][0].keys()
    assert {point["family"] for point in found["points"]} == {"mlp:8,relu, batch 4", "lenet5, batch 4"}
