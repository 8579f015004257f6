"""The peer comparison, small: its programs, what they refuse, its table."""

import json
import subprocess
import sys
import time

import pytest

from experiments import bench
from experiments.benchmarks import bench_conv, bench_pydtnn, bench_ranks, bench_serial
from experiments.benchmarks.rounds import ratios
from nn import network_names
from parallel.job.run import UserError

NEEDS_TORCH = pytest.mark.skipif(
    subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode != 0, reason="needs PyTorch"
)
SMALL = bench_serial.Case("small", "lenet5", (28, 28, 1), 10, 4, "cross-entropy", 1.0)
SMALL_CONV = bench_conv.Shape(2, 3, 3, 8, 2, 2, 1)


def program(name, *arguments, folder="experiments.benchmarks"):
    """A program run as a user would, alone."""
    command = [sys.executable, "-m", f"{folder}.{name}", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@NEEDS_TORCH
@pytest.mark.parametrize(
    ("name", "options", "only"),
    [
        ("bench_serial", [], "16-32-32-2 tanh, batch 100"),
        ("bench_serial", ["--best"], "mnist-cnn, batch 64"),
        ("bench_conv", [], "1-32 5x5 on 28x28, batch 64"),
        ("bench_conv", [], "32-64 5x5 on 8x8, batch 64"),
    ],
)
def test_a_program_prints_a_ratio_a_round(name, options, only):
    finished = program(name, "--rounds", 1, "--only", only, *options)
    assert finished.returncode == 0, finished.stderr
    [(case, [ratio])] = json.loads(finished.stdout).items()
    assert case == only and ratio > 0


@pytest.mark.parametrize("name", ["bench_serial", "bench_conv"])
def test_what_has_no_such_name_is_refused(name):
    finished = program(name, "--only", "vgg99")
    assert finished.returncode == 2 and finished.stderr.count("\n") == 1
    assert finished.stderr.startswith(f"{name}: error: --only: no comparison has 'vgg99' in its name")


@NEEDS_TORCH
def test_other_networks_are_refused_in_one_line(monkeypatch):
    from experiments.benchmarks import torch_peer

    network = torch_peer.network

    def another(net):
        model = network(net)
        next(iter(model.parameters())).data.add_(0.5)
        return model

    monkeypatch.setattr(torch_peer, "network", another)
    with pytest.raises(UserError, match="they do not train the same network") as refusal:
        bench_serial.serial_steps(SMALL)
    assert "\n" not in str(refusal.value)
    with pytest.raises(UserError, match="the output is not PyTorch's: they differ by") as refusal:
        bench_conv.conv_steps(SMALL_CONV)
    assert "\n" not in str(refusal.value)


@NEEDS_TORCH
def test_both_layouts_do_what_we_do():
    ours, *theirs = bench_serial.serial_steps(SMALL, best=True)
    assert [step() for step in theirs] == pytest.approx([ours()] * 2, rel=1e-4)
    ours, *theirs = bench_conv.conv_steps(bench_conv.Shape(8, 3, 3, 8, 2))
    assert [len(step()) for step in (ours, *theirs)] == [4, 4, 4]  # with the gradient of the input
    assert len(bench_conv.conv_steps(SMALL_CONV)[0]()) == 3


@NEEDS_TORCH
def test_the_check_is_made_without_dropout():
    from experiments.benchmarks import torch_peer

    net = network_names.build("mlp:8,relu,dropout=0.25", 4, 2)
    model = torch_peer.network(net)
    dropouts = [net.layers[2], model[2]]
    with bench_serial.without_dropout(net, [model]):
        assert [layer.p for layer in dropouts] == [0, 0]
    assert [layer.p for layer in dropouts] == [0.25, 0.25]
    bench_serial.serial_steps(bench_serial.Case("small", "mlp:8,relu,dropout=0.5", 4, 2, 5, "mse"))


def test_the_fastest_of_theirs_counts():
    sleep = lambda seconds: lambda: time.sleep(seconds)  # noqa: E731
    [ratio] = ratios(sleep(0.02), [sleep(0.1), sleep(0.01)], rounds=1, seconds=0.01)
    assert 1 < ratio < 4


@NEEDS_TORCH
def test_two_ranks_train_on_images():
    ratios, _ = bench_ranks.two_rank_ratios(SMALL, rounds=1, steps=2)
    assert all(ratio > 0 for values in ratios.values() for ratio in values)


def test_rounds_in_which_a_rank_shared_its_core_are_dropped(monkeypatch):
    paces = iter([50.0] * 4 + [100.0] * 4 + [60.0, 60.0, 100.0, 100.0] * 3 + [95.0] * 4)
    seconds = iter([1.0, 2.0, 4.0, 8.0] * 6)  # of 1 rank, 2 ranks, apart, DDP
    monkeypatch.setattr(bench_ranks, "job", lambda *_: {"seconds": next(seconds), "pace": next(paces)})
    ratios, dropped = bench_ranks.two_rank_ratios(SMALL, rounds=2, steps=2)
    assert dropped == 4 and ratios == {"1 rank": [2.0] * 2, "apart": [0.5] * 2, "DDP": [0.25] * 2}


@pytest.mark.parametrize("side", ["ours", pytest.param("peer", marks=NEEDS_TORCH)])
def test_peak_memory_is_printed(side):
    small = ["--net", "lenet5", "--shape", "28,28,1", "--outputs", 10, "--batch-size", 2]
    finished = program("peak_memory", *small, *(["--peer"] if side == "peer" else []))
    assert finished.returncode == 0, finished.stderr
    assert 1e7 < json.loads(finished.stdout)["bytes"] < 2e9


@pytest.mark.skipif(not bench_pydtnn.PYTHON.exists(), reason="needs PyDTNN, see `make peers`")
def test_pydtnn_is_timed():
    assert bench_pydtnn.version(bench_pydtnn.PYTHON).startswith("3.")
    [ratio] = bench_pydtnn.pydtnn_ratios(bench_pydtnn.CASES[0], bench_pydtnn.PYTHON, rounds=1, steps=1)
    assert ratio > 0


@pytest.mark.parametrize("python", ["/no/such/python", sys.executable])
def test_what_has_no_pydtnn_is_refused(python):
    with pytest.raises(UserError, match=f"PyDTNN does not run in {python}, see `make peers`: ") as refusal:
        bench_pydtnn.version(python)
    assert "\n" not in str(refusal.value)


@NEEDS_TORCH
def test_bench_writes_what_was_selected(tmp_path):
    finished = program("bench", "--rounds", 1, "--only", "16-32-32-2", "--out", tmp_path, folder="experiments")
    assert finished.returncode == 0, finished.stderr
    results = json.loads((tmp_path / "bench.json").read_text())
    assert list(results["ratios"]) == [
        "serial step / PyTorch: 16-32-32-2 tanh, batch 100", "serial step / PyTorch at its best: 16-32-32-2 tanh, batch 100",
    ]  # fmt: skip
    assert finished.stdout.strip() == (tmp_path / "bench.md").read_text().strip() == bench.table(results).strip()


def test_the_table_says_what_is_kept_and_what_was_skipped():
    results = {
        "versions": {"processor": "P", "numpy": "2", "blas": "b", "mpi": "M"},
        "torch": "2.13",
        "pydtnn": None,
        "slots": 2,
        "busy_cores": 0.02,
        "ratios": {"a": bench.row([0.5, 0.7, 0.9], 0.7), "b": bench.row([1.2], 1.0), "c": bench.row([1.0], None)},
    }
    text = bench.table(results)
    assert "PyDTNN: skipped, needs Python 3.13." in text and "GiB" not in text
    assert text.endswith(
        "| a | 0.700 | 0.500 | 0.900 | 0.700 | within |\n| b | 1.200 | 1.200 | 1.200 | 1.000 | **above** |\n"
        "| c | 1.000 | 1.000 | 1.000 | - |  |\n"
    )
    text = bench.table(results | {"pydtnn": "3.11.0", "peak_memory": {"ours": 3 << 30, "peer": 2 << 30}})
    assert "PyDTNN 3.11.0" in text and "hold 3.00 GiB at the most, PyTorch's 2.00 GiB" in text


def test_each_case_has_a_name_of_its_own_and_a_bound():
    for cases in (bench_conv.SHAPES, bench_serial.SERIAL, bench_ranks.TWO_RANKS, bench_pydtnn.CASES):
        assert len({case.name for case in cases}) == len(cases)
    for case in bench_serial.SERIAL + bench_pydtnn.CASES:
        network_names.build(case.net, case.shape, case.outputs)
        assert case.bound is not None
