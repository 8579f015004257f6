"""The peer comparison, small: which rounds count, what both sides do, and its table. Clocks, loads and jobs are made up."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from gridgrad.experiments import bench
from gridgrad.experiments.bench import row
from gridgrad.experiments.benchmarks import rounds
from gridgrad.experiments.benchmarks.cases import StepCase
from gridgrad.experiments.benchmarks.rounds import in_minutes, ratios
from tests.experiments.programs import run_main

SMALL = StepCase("small", "lenet5", (28, 28, 1), 10, 4)
CALM = {"left_out": 0, "busy": None}


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setattr(rounds, "load_of_process", lambda seen: SimpleNamespace(verdict=None))


def test_the_fastest_of_theirs_counts_on_each_clock(monkeypatch):
    now, calls = {"cpu": 0.0, "wall": 0.0}, []
    monkeypatch.setattr(rounds, "CLOCKS", {name: lambda name=name: now[name] for name in now})

    def side(cpu, wall):
        """A step that takes so many seconds on these clocks, and notes its calls."""

        def step():
            now.update(cpu=now["cpu"] + cpu, wall=now["wall"] + wall)
            calls.append(cpu)

        return step

    sides = side(2.0, 6.0), side(8.0, 10.0), side(4.0, 24.0)
    assert ratios(sides, rounds=2, seconds=1) == {"cpu": [0.5, 0.5], "wall": [0.6, 0.6]} | CALM
    assert calls == [2.0, 8.0, 4.0] * 3  # large networks do one step in a round, after one that says how long it takes


def test_rounds_in_which_a_rank_shared_its_core_are_dropped(monkeypatch):
    cores = [2.0] * 4 + [1.0] * 4 + [1.7, 1.7, 1.0, 1.0] * 3 + [1.05] * 4
    jobs = zip([2.0, 1.0, 4.0, 8.0] * 6, cores, strict=True)  # the seconds and core seconds of each
    monkeypatch.setattr(bench, "job", lambda *_: [0.0, *next(jobs)])
    found, marks = bench.two_rank_ratios(SMALL, rounds=2, steps=2, end=in_minutes(5))
    assert marks == CALM | {"dropped": 4}
    assert found == {"1 rank": [2.0] * 2, "2 ranks with nothing to say": [0.5] * 2, "PyTorch DDP gloo on 2": [0.25] * 2}


@pytest.mark.parametrize(("found", "bound", "cells"), [
    ({"cpu": [0.5, 0.7, 0.9], "wall": [1.5, 1.7, 1.9]}, 0.7, "(0.500 to 0.900) | 1.700 (1.500 to 1.900) | 0.700 | within"),
    ({"wall": [1.2, 1.2]}, 1.0, "**above**, 2 of 3 rounds in the time"), (None, 1.0, "**missing**"),
    ({"wall": [1.0] * 3, "left_out": 0, "busy": "others computed"}, 0.5, "**not judged**: others computed"),
])  # fmt: skip
def test_a_row_says_whether_its_first_clock_is_within_the_bound(found, bound, cells):
    assert cells in bench.time_line("a", row(found, bound), 3)


def test_a_quick_run_measures_what_was_selected_and_writes_its_table(tmp_path, monkeypatch):
    sizes = {"memory": 3 << 20, "peer-memory": 2 << 20}
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__="2.13"))
    monkeypatch.setattr(bench, "printed", lambda args, what, end, cases=(), env=None: {c.name: sizes[what] for c in cases})
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    run_main(monkeypatch, "bench", "--quick", "--only", "memory of resnet", "--out", tmp_path)
    results, text = json.loads((tmp_path / "bench.json").read_text()), (tmp_path / "bench.md").read_text()
    [(name, found)] = results["memory"].items()
    assert name == "memory of resnet20, batch 32" and (found["ours"], found["peer"]) == (3 << 20, 2 << 20)
    assert results["left_out"] == ["memory of resnet18, batch 8"] and f"| {name} | 3 | 2 | 1.500 |" in text


ON_STAND_IN = """
import sys
from gridgrad.experiments import bench
from gridgrad.parallel.job.run import run_launcher
from tests import standin
from dataclasses import replace
from tests.experiments.test_bench import SMALL
sys.modules["torch"] = None
bench.GPU = [SMALL, replace(SMALL, name="too large", net="no-net")]
run_launcher(bench.main)
"""


def test_steps_on_a_gpu_without_pytorch_on_it_are_ours_alone(tmp_path):
    def found(*words):
        command = [sys.executable, "-c", ON_STAND_IN, "--rounds", "1", "--minutes", "0", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120).stderr

    assert "error: not measured: too large" in found("--device", "stand-in", "--out", tmp_path / "a.json")
    text, results = (tmp_path / "a.md").read_text(), json.loads((tmp_path / "a.json").read_text())
    assert "Ours alone" in text and "stand-in" in text and "| too large: unknown net" in text
    assert results["networks"]["small"]["ours"]["median"] > 0
    assert "there is no GPU here" in found("--device", "auto", "--out", tmp_path)
