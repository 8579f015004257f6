"""The roofline: caches and rates, what the points count, the figure, and what the program refuses."""

import json
import sys

import pytest

from gridgrad.experiments.common import core_limits
from gridgrad.experiments.plots import style as looks
from gridgrad.experiments.plots.roofline import draw, read, roof
from gridgrad.experiments.studies import roofline
from gridgrad.nn.device import xp
from gridgrad.nn.kernels import kernel_table
from tests.experiments.figures import is_figure
from tests.experiments.plots import made_up_lines as made_up
from tests.experiments.programs import program

SMALL = ["--only", "dense 1024", "--rounds", "1"]


def test_the_sizes_of_caches_are_read_from_the_system(tmp_path):
    entries = {"index0": ("1", "Data", "48K"), "index1": ("1", "Instruction", "64K"), "index3": ("3", "Unified", "491520K"),
               "index2": ("2", "Unified", "2048K"), "index4": ("4", "Unified", "big")}  # fmt: skip
    for index, words in entries.items():
        (tmp_path / index).mkdir()
        for name, word in zip(("level", "type", "size"), words, strict=True):
            (tmp_path / index / name).write_text(word + "\n")
    assert core_limits.caches(tmp_path) == [48 << 10, 2 << 20, 480 << 20]
    assert core_limits.caches(tmp_path / "nothing") == []


def test_reading_counts_both_vectors_as_often_as_they_are_read(monkeypatch):
    monkeypatch.setattr(core_limits, "least_seconds", lambda action, seconds: [action(), seconds][1])
    monkeypatch.setattr(core_limits, "READ", 1 << 16)
    assert core_limits.read_bandwidth(1 << 14, 2.0) == pytest.approx((1 << 16) / 2)
    assert core_limits.read_bandwidth(1 << 18, 2.0) == pytest.approx((1 << 18) / 2)
    assert core_limits.copy_bandwidth(2.0, 1 << 14) == pytest.approx((1 << 14) / 2)


def test_caches_are_measured_with_arrays_that_fit_and_are_not_much_larger_than_the_nearer_cache(monkeypatch):
    monkeypatch.setattr(core_limits, "caches", lambda: [1000, 4000, 1000000])
    monkeypatch.setattr(core_limits, "read_bandwidth", lambda size: 3.0)
    monkeypatch.setattr(core_limits, "copy_bandwidth", lambda size: 2.0 if size < 5000 else 4.0)
    found = roofline.bandwidths()
    assert [level["name"] for level in found] == ["L1 cache", "L2 cache", "L3 cache", "memory"]
    assert [level["array_bytes"] for level in found] == [500, 2000, 32000, 2 * core_limits.COPIED]
    assert [level["bytes_per_second"] for level in found] == [3, 3, 4, 4]


def test_the_roof():
    assert roof(2.0, 100.0, 10.0) == 20 and roof(50.0, 100.0, 10.0) == 100


def test_points_count_the_operations_of_the_direct_algorithm_and_every_array_once():
    found = roofline.points(roofline.vgg(4, 8, 6, batch_size=2), 1)
    assert [point["pass"] for point in found] == ["forward", "gradients", "input_gradient"]
    for point in found:
        assert point["flops"] == 2 * 9 * 4 * 8 * 36 * 2
        assert point["bytes"] == 4 * (2 * 4 * 36 + 9 * 4 * 8 + 8 + 2 * 8 * 36)
        assert point["intensity"] == point["flops"] / point["bytes"]
        assert 0 < point["seconds"]["min"] <= point["seconds"]["median"] <= point["seconds"]["max"]
    images = roofline.points(roofline.vgg(3, 4, 6, batch_size=1), 1)
    assert [point["pass"] for point in images] == ["forward", "gradients"]
    assert {point["algorithm"] for point in roofline.points(roofline.dense(8, 2), 1)} == {"matrix product"}


@pytest.mark.skipif(not xp.is_cpu, reason="GPUs use no Winograd")
@pytest.mark.long
def test_points_name_the_algorithm():
    kernel_table.use(kernel_table.PRESET)  # which algorithm is the fastest differs between processors
    layers = {kernel.name: kernel for kernel in roofline.KERNELS}
    assert len(layers) == len(roofline.KERNELS) - 4  # dense layers of three batches share names
    for name, expected in (("3x3 256-256 on 56x56", "Winograd"), ("11x11 1-96 stride 4 on 224x224", "patches")):
        kernel = layers[name]
        layer = kernel.make()
        net = roofline.Sequential([layer], input_shape=kernel.shape)
        net.allocate()
        assert roofline.algorithm(layer, (kernel.batch_size, *net.output_shape(kernel.shape))) == expected


@pytest.mark.parametrize(("busy", "warning"), [(0.1, ""), (1.5, "warning: Other programs kept 1.5 cores busy.")])
def test_a_busy_machine_is_said(busy, warning, monkeypatch, capsys):
    monkeypatch.setattr(roofline.report, "busy_cores", lambda: busy)
    monkeypatch.setattr(roofline, "bandwidths", lambda: [{"name": "memory", "bytes_per_second": 1.0}])
    monkeypatch.setattr(core_limits, "gemm_peak", lambda seconds: 1.0)
    assert roofline.measure([], 1)["busy_cores"] == busy
    said = capsys.readouterr().err
    assert said.startswith(warning) and bool(said) == bool(warning)


def test_the_figure_of_all_kinds_of_points(tmp_path):
    versions = {"processor": "a processor of a very long name, as vendors have them", "blas": "a library 1.2.3"}
    point = {"family": "a", "flops": 1e9, "seconds": {"median": 0.02, "min": 0.01, "max": 0.03}}
    points = [
        point | {"intensity": 4.0 + number, "pass": pass_, "algorithm": kind}
        for number, (pass_, kind) in enumerate(zip(roofline.PASSES, ("patches", "Winograd", "matrix product"), strict=True))
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


def test_the_program_writes_what_it_has_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(roofline, "bandwidths", lambda: [{"name": "memory", "bytes_per_second": 1e10}])
    monkeypatch.setattr(core_limits, "gemm_peak", lambda seconds: 1e11)
    monkeypatch.setattr(roofline, "KERNELS", [roofline.dense(8, 2)])
    monkeypatch.setattr(roofline.report, "blas_threads", lambda: 1)
    monkeypatch.setattr(sys, "argv", ["roofline", "--rounds", "1", "--out", str(tmp_path / "r.png")])
    roofline.main()
    assert is_figure(tmp_path / "r.png") and len(json.loads((tmp_path / "r.json").read_text())["points"]) == 3
    assert f"numbers to {tmp_path / 'r.json'}" in capsys.readouterr().out


@pytest.mark.long
def test_the_program_writes_figure_and_numbers(tmp_path):
    finished = program("study", "roofline", *SMALL, "--out", tmp_path / "r.png")
    assert finished.returncode == 0, finished.stderr
    result = json.loads((tmp_path / "r.json").read_text())
    assert is_figure(tmp_path / "r.png") and result["versions"]["threads"] == 1
    assert len(result["points"]) == 9 and finished.stdout.count("dense 1024-1024") == 9
    assert result["bandwidths"][-1]["name"] == "memory" and result["flops_per_second"] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "nothing"], "--only: no layer has 'nothing' in its name"),
        ([*SMALL, "--out", "/proc/no/r.png"], "can not write"),
        ([*SMALL, "--out", "r.json"], "need names of their own"),
    ],
)
def test_bad_options_are_refused(words, message):
    finished = program("study", "roofline", *words)
    assert finished.returncode == 2 and message in finished.stderr and finished.stderr.count("\n") == 1
