"""The peer comparison, small: its programs, what they refuse, its table."""

import itertools
import json
import subprocess
import sys
from dataclasses import replace

import pytest

from gridgrad.experiments import bench
from gridgrad.experiments.bench import median_of, row, table
from gridgrad.experiments.benchmarks import cases, rounds, serial
from gridgrad.experiments.benchmarks.cases import PYDTNN, SHAPES, TWO_RANKS, Shape, StepCase
from gridgrad.experiments.benchmarks.rounds import OutOfTime, in_minutes, ratios
from gridgrad.experiments.common.tables import terminal
from gridgrad.nn.zoo import network_names
from gridgrad.nn.zoo.network_names import ZOO
from gridgrad.parallel.job.run import UserError
from tests.experiments.common.made_up_load import BUSY, QUIET

NEEDS_TORCH = pytest.mark.skipif(
    subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode != 0, reason="needs PyTorch"
)
SMALL = StepCase("small", "lenet5", (28, 28, 1), 10, 4)
CALM = {"left_out": 0, "busy": None}
SMALL_CONV = Shape(2, 3, 3, 8, 2, 2, 1)


def program(name, *arguments, folder="gridgrad.experiments.benchmarks"):
    """A program run as a user would, alone."""
    command = [sys.executable, "-m", f"{folder}.{name}", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@NEEDS_TORCH
@pytest.mark.parametrize(
    ("what", "only"),
    [
        ("steps", "16-32-32-2 tanh, batch 100"),
        pytest.param("best", "mnist-cnn, batch 64, inference", marks=pytest.mark.long),
        ("convolutions", "1-32 5x5 on 28x28, batch 64"),
    ],
)
def test_a_program_prints_ratios_of_both_clocks(what, only):
    finished = program("serial", what, only, "--rounds", 1)
    assert finished.returncode == 0, finished.stderr
    [(case, found)] = json.loads(finished.stdout).items()
    assert case == only and found.keys() == {"cpu", "wall", "left_out", "busy"}
    assert all(1 <= len(found[clock]) <= rounds.AGAIN and min(found[clock]) > 0 for clock in ("cpu", "wall"))


def test_what_has_no_such_name_is_refused():
    with pytest.raises(UserError, match="--only: no comparison of a quick run has 'vgg16' in its name; .* 'small'"):
        bench.selected([SMALL, *SHAPES], bench.options().parse_args(["--only", "vgg16", "--quick"]))
    finished = program("serial", "convolutions", "vgg99")
    assert finished.returncode == 2 and finished.stderr.count("\n") == 1
    assert finished.stderr.startswith("serial: error: there is no comparison 'vgg99'; they are called such as '1-32 5x5")


@NEEDS_TORCH
def test_other_networks_are_refused_in_one_line(monkeypatch):
    from gridgrad.experiments.benchmarks import torch_peer

    network = torch_peer.network

    def another(net):
        model = network(net)
        next(iter(model.parameters())).data.add_(0.5)
        return model

    monkeypatch.setattr(torch_peer, "network", another)
    with pytest.raises(UserError, match="small: ours and PyTorch's differ by .*: they are not the same network") as refusal:
        serial.serial_steps(SMALL)
    assert "\n" not in str(refusal.value)
    with pytest.raises(UserError, match="the output is not PyTorch's: they differ by") as refusal:
        serial.conv_steps(SMALL_CONV)
    assert "\n" not in str(refusal.value)


@NEEDS_TORCH
@pytest.mark.parametrize("work", ["sgd", "adam"])
def test_both_layouts_do_what_we_do(work):
    ours, *theirs = serial.serial_steps(replace(SMALL, work=work), best=True)
    assert [step() for step in theirs] == pytest.approx([ours()] * 2, rel=1e-4)


@NEEDS_TORCH
@pytest.mark.parametrize("net", ["resnet20", "cifar-cnn,dropout=0.9"])
def test_inference_is_in_evaluation_mode(net):
    ours, *theirs = serial.serial_steps(StepCase("small", net, (32, 32, 3), 10, 2, work="inference"), best=True)
    assert ours().shape == (2, 10)
    for step in theirs:
        assert step() == pytest.approx(ours(), rel=1e-4, abs=1e-5)


@NEEDS_TORCH
def test_both_layouts_of_a_convolution_do_what_we_do():
    ours, *theirs = serial.conv_steps(Shape(8, 3, 3, 8, 2))
    assert [len(step()) for step in (ours, *theirs)] == [4, 4, 4]  # with the gradient of the input
    assert len(serial.conv_steps(SMALL_CONV)[0]()) == 3


@NEEDS_TORCH
def test_the_check_is_made_without_dropout():
    from gridgrad.experiments.benchmarks import torch_peer

    net = network_names.build("mlp:8,relu,dropout=0.25", 4, 2)
    model = torch_peer.network(net)
    dropouts = [net.layers[2], model[2]]
    with serial.without_dropout(net, [model]):
        assert [layer.p for layer in dropouts] == [0, 0]
    assert [layer.p for layer in dropouts] == [0.25, 0.25]
    serial.serial_steps(StepCase("small", "mlp:8,relu,dropout=0.5", 4, 2, 5, "mse"))


@pytest.fixture
def clocks(monkeypatch):
    """{name: seconds} of made-up clocks, which the tests move."""
    now = {"cpu": 0.0, "wall": 0.0}
    monkeypatch.setattr(rounds, "CLOCKS", {name: lambda name=name: now[name] for name in now})
    return now


@pytest.fixture
def loads(monkeypatch):
    """A list of made-up loads of the machine, one for each round; it is quiet in those that follow."""
    made_up = []
    monkeypatch.setattr(rounds, "load_of_process", lambda seen: made_up.pop(0) if made_up else QUIET)
    return made_up


def side(clocks, cpu, wall, calls):
    """A step that takes so many seconds on these clocks, and counts its calls."""

    def step():
        clocks["cpu"] += cpu
        clocks["wall"] += wall
        calls.append(cpu)

    return step


def test_the_fastest_of_theirs_counts_on_each_clock(clocks, loads):
    calls = []
    sides = side(clocks, 2.0, 6.0, calls), side(clocks, 8.0, 10.0, calls), side(clocks, 4.0, 24.0, calls)
    assert ratios(sides, rounds=2, seconds=1) == {"cpu": [0.5, 0.5], "wall": [0.6, 0.6]} | CALM
    assert calls == [2.0, 8.0, 4.0] * 3  # large networks do one step in a round, after one that says how long it takes


def test_a_side_runs_for_about_the_seconds_of_a_round(clocks, loads):
    calls = []
    ratios((side(clocks, 0.5, 0.5, calls), side(clocks, 0.25, 0.25, calls)), rounds=1, seconds=2)
    assert calls == [0.5, 0.25] + [0.5] * 4 + [0.25] * 8


@NEEDS_TORCH
@pytest.mark.long
def test_two_ranks_are_compared():
    found, about = bench.two_rank_ratios(TWO_RANKS[0], rounds=1, steps=2, end=in_minutes(5))
    assert about["dropped"] <= 2
    assert len(found) == 3 and all(len(values) == 1 and values[0] > 0 for values in found.values())


OF_TWO = {"1 rank": [2.0] * 2, "2 ranks with nothing to say": [0.5] * 2, "PyTorch DDP gloo on 2": [0.25] * 2}


def two_rank_ratios(monkeypatch, jobs, rounds, minutes=5):
    """({side: ratios}, marks) where each job takes the next (seconds, core seconds); the time is over at the end of them."""
    jobs = iter(jobs)

    def job(*_):
        if answer := next(jobs, None):
            return [0.0, *answer]
        raise OutOfTime("not ended")

    monkeypatch.setattr(bench, "job", job)
    return bench.two_rank_ratios(SMALL, rounds=rounds, steps=2, end=in_minutes(minutes))


def test_rounds_in_which_a_rank_shared_its_core_are_dropped(monkeypatch, loads):
    cores = [2.0] * 4 + [1.0] * 4 + [1.7, 1.7, 1.0, 1.0] * 3 + [1.05] * 4
    found, about = two_rank_ratios(monkeypatch, zip([2.0, 1.0, 4.0, 8.0] * 6, cores, strict=True), 2)
    assert about == CALM | {"dropped": 4} and found == OF_TWO


def test_two_ranks_do_not_wait_for_calm_beyond_their_time(monkeypatch, loads):
    found, about = two_rank_ratios(monkeypatch, itertools.cycle([(1.0, 1.0), (1.0, 2.0)]), 5, minutes=0)
    assert about == CALM | {"dropped": 0} and all(values == [1.0] for values in found.values())


@pytest.mark.parametrize(("jobs", "rounds"), [(6, 1), (2, 0)])
def test_a_round_that_does_not_end_in_time_does_not_count(jobs, rounds, monkeypatch, loads):
    found, about = two_rank_ratios(monkeypatch, [(1.0, 1.0)] * jobs, 5)
    assert about == CALM | {"dropped": 0} and all(values == [1.0] * rounds for values in found.values())


def test_jobs_of_two_ranks_beside_others_are_started_again(monkeypatch, loads):
    loads += [BUSY, QUIET, BUSY]
    seconds = [9.0, 1.0, 1.0, 1.0, *[2.0, 1.0, 4.0, 8.0] * 9]
    found, about = two_rank_ratios(monkeypatch, [(value, 1.0) for value in seconds], 2)
    assert found == OF_TWO
    assert about == {"left_out": 2, "busy": None, "dropped": 0}


def test_rounds_beside_others_are_made_again_and_left_out(clocks, loads):
    calls = []
    loads += [BUSY, QUIET, BUSY, None]
    found = ratios((side(clocks, 2.0, 2.0, calls), side(clocks, 4.0, 4.0, calls)), rounds=2, seconds=1)
    assert found == {"cpu": [0.5, 0.5], "wall": [0.5, 0.5], "left_out": 2, "busy": None} and len(calls) == 2 * (1 + 4)


def test_where_all_rounds_are_beside_others_they_are_told_and_marked(clocks, loads):
    loads += [BUSY] * 9
    found = ratios((side(clocks, 2.0, 2.0, []), side(clocks, 4.0, 4.0, [])), rounds=2, seconds=1)
    assert found == {"cpu": [0.5] * 4, "wall": [0.5] * 4, "left_out": 0, "busy": BUSY.verdict}


def test_a_job_is_ended_when_its_time_is_over():
    with pytest.raises(OutOfTime, match="ranks on mnist-cnn, batch 64 has not ended in the time: try again") as refusal:
        bench.job(1, "ranks", PYDTNN[0], 10**9, in_minutes(0.01))
    assert "\n" not in str(refusal.value)


@pytest.mark.long
def test_what_a_program_has_printed_until_it_is_ended_counts(tmp_path, monkeypatch):
    lines = "print('{\"a\": 1}', flush=True)\nprint('{\"b\"', end='', flush=True)\nwhile True: pass\n"
    (tmp_path / "endless.py").write_text(lines)
    monkeypatch.setattr(bench, "as_module", lambda name: [tmp_path / "endless.py"])
    printed = tmp_path / "printed"

    def run(command, env, stdout, timeout):
        """Until the program has printed all that it prints, however long that takes; then as if the time was over."""
        with open(printed, "wb") as output, subprocess.Popen(command, env=env, stdout=output) as process:
            while not printed.read_bytes().endswith(b'{"b"'):
                assert process.poll() is None
            process.kill()
        raise subprocess.TimeoutExpired(command, timeout, printed.read_bytes())

    monkeypatch.setattr(bench.subprocess, "run", run)
    args = bench.options().parse_args([])
    assert bench.printed(args, "steps", in_minutes(0.03)) == {"a": 1}


@pytest.mark.parametrize("what", ["memory", pytest.param("peer-memory", marks=NEEDS_TORCH)])
def test_the_peak_memory_is_that_of_the_network(what):
    name = "memory of mlp3, batch 128"
    net = next(case for case in cases.MEMORY if case.name == name).network()
    parameters = 4 * sum(p.size for _, p in net.parameters)  # bytes; with their gradients and the velocity three times as many
    finished = program("serial", what, name)
    assert finished.returncode == 0, finished.stderr
    assert 2.9 * parameters < json.loads(finished.stdout)[name] < 4.5 * parameters


@pytest.mark.skipif(not bench.PYTHON.exists(), reason="needs PyDTNN, see `make peers`")
def test_pydtnn_is_timed():
    assert bench.pydtnn_version(bench.PYTHON).startswith("3.")
    found = bench.pydtnn_ratios(PYDTNN[0], bench.PYTHON, 1, 1, in_minutes(5))
    assert found.keys() == {"cpu", "wall", "left_out", "busy"} and min(found["cpu"]) > 0 and min(found["wall"]) > 0


def test_steps_take_turns_with_those_of_another_interpreter(tmp_path, monkeypatch, loads):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho a warning\necho \'{"seconds": 4.0, "cpu_seconds": 2.0}\'\n')
    python.chmod(0o755)
    monkeypatch.setattr(bench, "job", lambda *_: [1.0, 1.0, 1.0])
    assert bench.pydtnn_ratios(PYDTNN[0], python, 2, 1, in_minutes(5)) == {"cpu": [0.5] * 2, "wall": [0.25] * 2} | CALM


@pytest.mark.parametrize("python", ["/no/such/python", sys.executable])
def test_what_has_no_pydtnn_is_refused(python):
    with pytest.raises(UserError, match=f"PyDTNN does not run in {python}, see `make peers`: ") as refusal:
        bench.pydtnn_version(python)
    assert "\n" not in str(refusal.value)


@NEEDS_TORCH
@pytest.mark.long
def test_bench_writes_what_was_selected(tmp_path):
    finished = program("bench", "--rounds", 1, "--only", "16-32-32-2", "--out", tmp_path, folder="gridgrad.experiments")
    assert finished.returncode == 0, finished.stderr
    results = json.loads((tmp_path / "bench.json").read_text())
    assert list(results["ratios"]) == [
        "serial / PyTorch: 16-32-32-2 tanh, batch 100", "serial / PyTorch at its best: 16-32-32-2 tanh, batch 100",
    ]  # fmt: skip
    assert results["memory"] == {} and min(results["limits"][side]["flops"] for side in ("ours", "peer")) > 0
    assert (tmp_path / "bench.md").read_text().strip() == table(results).strip()
    assert finished.stdout.startswith(terminal(table(results)))


@NEEDS_TORCH
@pytest.mark.long
def test_a_quick_run_leaves_out_what_takes_long_and_says_so(tmp_path):
    finished = program("bench", "--quick", "--only", "memory of resnet", "--out", tmp_path, folder="gridgrad.experiments")
    assert finished.returncode == 0, finished.stderr
    results = json.loads((tmp_path / "bench.json").read_text())
    assert list(results["memory"]) == ["memory of resnet20, batch 32"]
    assert all(found["ours"] > 0 and found["peer"] > 0 for found in results["memory"].values())
    assert "A quick run of 3 rounds, without: memory of resnet18, batch 8." in (tmp_path / "bench.md").read_text()


RESULTS = {
    "versions": {"processor": "P", "numpy": "2", "blas": "b", "mpi": "M"},
    "torch": "2.13",
    "pydtnn": None,
    "slots": 2,
    "busy_cores": 0.02,
    "rounds": 3,
    "left_out": [],
    "limits": None,
    "memory": {},
}


def test_the_table_says_what_is_kept_and_what_is_missing():
    rows = {
        "a": row({"cpu": [0.5, 0.7, 0.9], "wall": [1.5, 1.7, 1.9]}, 0.7),
        "b": row({"wall": [1.2, 1.2]}, 1.0),
        "c": row({"wall": [1.0] * 3, "dropped": 6}, None),
        "d": row(None, 1.0),
        "e": row({"wall": [1.0] * 3, "left_out": 1, "busy": None}, 1.0),
        "f": row({"wall": [1.0] * 6, "left_out": 0, "busy": "of 2 cores 1 were taken by others: not comparable"}, 0.5),
        "g": row({"cpu": [0.5] * 3, "wall": [1.0] * 3, "marked": 2}, None),
    }
    text = table(RESULTS | {"ratios": rows})
    assert "PyDTNN: skipped, needs Python 3.13." in text and "quick" not in text and "memory" not in text
    assert text.endswith(
        "| a | 0.700 (0.500 to 0.900) | 1.700 (1.500 to 1.900) | 0.700 | within |\n"
        "| b | - | 1.200 (1.200 to 1.200) | 1.000 | **above**, 2 of 3 rounds in the time |\n"
        "| c | - | 1.000 (1.000 to 1.000) | - | 6 rounds dropped in which a rank had to share its core |\n"
        "| d | - | - | 1.000 | **missing**: not measured in the time |\n"
        "| e | - | 1.000 (1.000 to 1.000) | 1.000 | within, 1 round left out in which others computed |\n"
        "| f | - | 1.000 (1.000 to 1.000) | 0.500 | **not judged**: of 2 cores 1 were taken by others: not comparable |\n"
        "| g | 0.500 (0.500 to 0.500) | 1.000 (1.000 to 1.000) | - | 2 comparisons left out beside which others computed |\n"
    )


def test_the_table_says_what_the_machine_can_do_and_what_was_left_out():
    limits = {"ours": {"blas": "o", "flops": 3e11}, "peer": {"blas": "t", "flops": 2e11}, "copy": 1.25e10}
    text = table(RESULTS | {"pydtnn": "3.11.0", "limits": limits, "left_out": ["x", "y"], "ratios": {}})
    assert "PyDTNN 3.11.0" in text and "A quick run of 3 rounds, without: x; y." in text
    assert "products by gridgrad: 300 GFLOP/s on one thread (o)." in text and "PyTorch: 200 GFLOP/s on one thread (t)." in text
    assert "reads and writes 12.5 GB/s" in text


def test_the_table_compares_memory():
    memory = {"m": {"bound": 1.1, "ours": 3 << 20, "peer": 2 << 20}, "n": {"bound": 1.1, "ours": 5 << 20}}
    assert table(RESULTS | {"ratios": {}, "memory": memory}).endswith(
        "| m | 3 | 2 | 1.500 | 1.100 | **above** |\n| n | 5 | - | - | 1.100 | **missing**: not measured in the time |\n"
    )


def test_the_median_is_over_all_cases_round_by_round():
    three = [replace(SMALL, name=name) for name in "abc"]
    found = {"a": {"cpu": [1, 4], "wall": [1, 1]}, "b": {"cpu": [2, 5], "wall": [2, 2]}, "c": {"cpu": [9, 0], "wall": [3, 3]}}
    assert median_of(found, three) == {"cpu": [2, 4], "wall": [2, 2], "marked": 0}
    marked = found | {"c": found["c"] | {"busy": "busy"}}
    assert median_of(marked, three) == {"cpu": [1.5, 4.5], "wall": [1.5, 1.5], "marked": 1}
    assert median_of(marked, three[2:]) == {"cpu": [], "wall": [], "marked": 1}
    del found["b"]
    assert median_of(found, three) is None


def test_each_case_has_a_name_of_its_own_and_a_bound():
    for listed in (SHAPES, cases.SERIAL, cases.MEMORY, TWO_RANKS, PYDTNN):
        assert len({case.name for case in listed}) == len(listed)
        assert any(not case.large for case in listed)
    for case in cases.SERIAL + cases.MEMORY + PYDTNN:
        assert case.network().output_shape(case.network().input_shape) == (case.outputs,)
        assert case.bound is not None and case.best_bound is not None and case.work in serial.WORK


def test_the_memory_of_every_network_of_the_zoo_is_measured():
    assert sorted(case.net for case in cases.MEMORY) == sorted(ZOO)
