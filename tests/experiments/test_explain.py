"""explain, calibrate and train --grid auto, small."""

import json
import re
from pathlib import Path

import pytest

from gridgrad.parallel.prediction import machine
from tests.experiments.figures import is_figure
from tests.experiments.programs import job, program


def explain(*arguments):
    return program("explain", *arguments)


def test_the_plan_is_printed_with_its_costs_and_the_runner_ups(tmp_path):
    finished = explain("--net", "cifar-cnn", "--ranks", 8, "--batch-size", 64, "--out", tmp_path / "e.json")
    assert finished.returncode == 0 and finished.stderr == ""  # no progress bar where nobody looks at a terminal
    lines = finished.stdout.splitlines()
    assert "predicted" in lines[0] and lines[1].startswith("grid ")
    end = lines.index("")
    assert [line.split(":")[0] for line in lines[2:end]] == lines[1].split()[1].strip(",").split(",")
    names = ["step", "overlapped", "pure batch", "pure model", "one rank", "speedup", "memory", "lower bound"]
    assert [line.split("  ")[0] for line in lines[end + 1 : end + 9]] == names
    head = next(line for line in lines if line.startswith("layer"))
    assert all(word in head for word in ("placement", "GFLOP", "MB sent", "MB at least", "ms"))
    rows = [line for line in lines if line.split()[1:2] and line.split()[1].rstrip(",") in ("Conv2d", "Linear")]
    assert len(rows) == 4 and any(line.startswith("a step") for line in lines)
    found = json.loads((tmp_path / "e.json").read_text())
    assert lines[-1].startswith(f"options of train: --grid {found['grid']}")
    assert found["lower_bound"] <= found["seconds"] == pytest.approx((1 + found["gap"]) * found["lower_bound"])
    assert found["seconds"] == pytest.approx(sum(row["seconds"] for row in found["layers"]))
    assert {axis: one["grid"] for axis, one in found["pure"].items()} == {"batch": "batch=8", "model": "model=8"}
    assert all(one["seconds"] >= 0.97 * found["seconds"] for one in found["pure"].values())
    assert found["efficiency"] == pytest.approx(found["one_rank"]["seconds"] / found["seconds"] / 8)
    assert all(row["bytes"] >= row["bound_bytes"] for row in found["layers"])
    runner_ups = lines[lines.index(next(line for line in lines if line.startswith("runner-up"))) + 1 :]
    assert len(runner_ups) >= 3 and all(" ms " in line for line in runner_ups[:3])


def test_what_an_axis_does_is_said_in_words():
    """A grid that is called model=64 may be mostly data parallel."""
    lines = explain("--net", "vgg16", "--batch-size", 256, "--ranks", 64, "--grid", "model=64").stdout.splitlines()
    assert lines[1] == "grid model=64, plan 13 replicate, in, out, in"
    assert lines[2].startswith("model=64: of the layers with weights, 13 split the samples and hold whole weights")
    pure = next(line for line in lines if line.startswith("pure model"))
    assert "replicate" not in pure and "needs" in pure  # and so is not that plan
    lines = explain("--net", "lenet5", "--ranks", 4, "--grid", "height=2,model=2", "--plan", "out").stdout.splitlines()
    assert lines[2:4] == [
        "height=2: convolutions split the rows of each image, other layers the samples",
        "model=2: of the layers with weights, 5 split the weights",
    ]
    assert explain("--net", "lenet5", "--ranks", 1).stdout.splitlines()[2] == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--net", "lenet5", "--ranks", 2**40), "at most 16777216"),
        (("--net", "vgg16", "--ranks", 2, "--memory", 0.1), "the largest layer is 32 Linear(25088, 4096)"),
        (("--net", "vgg16", "--machine", "cray-3"), "no such file; use one"),
        (("--net", "lenet5", "--ranks", 4, "--grid", "batch=3"), "has 3 places but the number of ranks is 4"),
        (("--net", "lenet5", "--ranks", 4, "--plan", "up"), "unknown choice 'up'"),
        (("--net", "lenet6"), "unknown net 'lenet6'"),
        (("--net", "lenet5", "--memory", 0), "--memory: must be a number above 0"),
        (("--net", "lenet5", "--machine", "flops=50"), "latency is missing"),
        (("--net", "lenet5", "--machine", "cori-haswell:speed=2"), "'speed=2' is none of flops (Gflop/s)"),
        (("--net", "lenet5", "--gpus", 4, "--ranks-per-node", 4), "give one of the two"),
        (("--net", "lenet5", "--nodes", 2**20), "1048576 nodes of 32 ranks are too many"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(arguments, words):
    finished = explain(*arguments)
    assert finished.returncode == 2 and words in finished.stderr
    assert len(finished.stderr.strip().splitlines()) == 1, finished.stderr


def test_a_cluster_is_named_by_its_nodes_and_by_three_numbers(tmp_path):
    net, path = ("--net", "mlp:64,64,relu", "--shape", 16), tmp_path / "e.json"

    def found(*arguments):
        finished = explain(*net, *arguments, "--out", path)
        assert finished.returncode == 0, finished.stderr
        return json.loads(path.read_text())

    gpus = found("--nodes", 8, "--gpus", 2)
    assert (gpus["ranks"], gpus["machine"]) == (16, "Perlmutter A100")
    faster = found("--nodes", 8, "--gpus", 2, "--machine", "perlmutter-a100:bandwidth=200")
    assert faster["machine"] == "Perlmutter A100 with 200 Gbit/s"
    more = found("--ranks", 16, "--gpus", 16)["one_rank"]
    assert more == found("--ranks", 16, "--gpus", 1)["one_rank"]  # a GPU does not get slower beside others
    assert found("--nodes", 2)["ranks"] == 64  # Cori has 32 cores a node
    numbers = "flops=50,latency=1.5,bandwidth=100"
    one, two = (found("--nodes", 4, "--machine", name) for name in (numbers, f"cori-haswell:{numbers}"))
    assert one["machine"] == "a cluster with 50 Gflop/s, 1.5 us, 100 Gbit/s" and one["ranks"] == 4
    assert two["machine"] == "Cori Haswell with 50 Gflop/s, 1.5 us, 100 Gbit/s" and two["ranks"] == 128
    slow = found("--nodes", 4, "--machine", "flops=0.5,latency=1.5,bandwidth=100")["one_rank"]["seconds"]
    assert slow > 2 * one["one_rank"]["seconds"]
    thin = found("--nodes", 4, "--machine", "flops=50,latency=1.5,bandwidth=0.1", "--grid", "batch=4")["seconds"]
    assert thin > 10 * one["pure"]["batch"]["seconds"]
    wide = found("--nodes", 4, "--machine", f"{numbers},ranks=8")
    assert (wide["ranks"], wide["one_rank"]) == (32, one["one_rank"])  # a rank has memory of its own


def test_the_page_of_machines_has_a_machine_file():
    [block] = re.findall(r"```json\n(.*?)```", Path("docs/machines.md").read_text(), re.DOTALL)
    shipped = machine.read("perlmutter-a100")
    assert machine.checked(json.loads(block) | {"source": shipped.source}) == shipped


def test_calibrate_writes_a_machine_file_that_explain_reads(tmp_path):
    finished = job(2, "calibrate", "--quick", "--busy", "--out", tmp_path / "m.json")
    assert finished.status == 0, finished.stderr
    assert "GFLOP/s" in finished.stdout and machine.read(str(tmp_path / "m.json")).node["ranks"] == 2
    explained = explain("--net", "lenet5", "--machine", tmp_path / "m.json", "--ranks", 2)
    assert explained.returncode == 0, explained.stderr
    assert machine.read(str(tmp_path / "m.json")).name in explained.stdout and "\ngrid " in explained.stdout


@pytest.mark.parametrize(
    ("ranks", "grid"),
    [
        (2, ["--grid", "auto"]),
        pytest.param(3, ["--grid", "auto"], marks=pytest.mark.long),
        pytest.param(2, ["--grid", "batch=2", "--plan", "auto"], marks=pytest.mark.long),
    ],
)
def test_the_grid_may_be_chosen_by_the_planner(tmp_path, ranks, grid):
    train = "train", "--quiet", "--net", "mlp:40,30,relu", "--steps", 8, "--dtype", "float64", "--batch-size", 50
    losses = []
    for ranks_of_run, options in ((ranks, grid), (1, [])):
        finished = job(ranks_of_run, *train, *options, "--report", tmp_path / "r.json")
        assert finished.status == 0, finished.stderr
        losses.append(json.loads((tmp_path / "r.json").read_text())["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-10)


@pytest.mark.long
def test_memory_that_is_too_little_for_any_plan_ends_the_job_with_one_line():
    finished = job(2, "train", "--grid", "auto", "--memory", "0.0001", "--quiet")
    assert finished.status == 2 and "no plan for 2 ranks fits" in finished.stderr
    assert sum("no plan" in line for line in finished.stderr.splitlines()) == 1


# ----- pipelines


def test_a_pipeline_is_printed_and_its_schedule_is_drawn(tmp_path):
    net = "--net", "mlp:64,64,64,relu", "--shape", "32", "--ranks", 2, "--batch-size", 64, "--grid", "stage=2"
    finished = explain(*net, "--pipeline", "zb-h1", "--micro-batches", 4, "--cuts", 4, "--out", tmp_path / "s.png", "--out",
                       tmp_path / "e.json")  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    first, second = json.loads((tmp_path / "e.json").read_text())["layers"]
    assert (first["layer"], first["bytes"]) == ("0 Linear .. 3 ReLU", 0) and second["bytes"] == 2 * 64 * 64 * 4
    lines = finished.stdout.splitlines()
    assert "predicted" in lines[0] and lines[1] == "grid stage=2, plan out"
    assert lines[2] == "pipeline zb-h1, 4 micro-batches, cuts 4"
    chunks = lines[lines.index(next(line for line in lines if line.startswith("chunk"))) + 1 :][:2]
    assert [line.split()[0] for line in chunks] == ["0", "1"] and "0 Linear .. 3 ReLU" in chunks[0]
    stages = next(line for line in lines if line.startswith("stage "))
    assert all(word in stages for word in ("ms busy", "ms idle", "GiB", "open micro-batches"))
    drawn = [line for line in lines if line.startswith("rank ")]
    assert len(drawn) == 2 and "0F0" in drawn[0] and "1I3" in drawn[1] and "1W3" in drawn[1]
    assert is_figure(tmp_path / "s.png")


def test_the_schedule_and_the_cuts_of_a_named_grid_are_chosen():
    finished = explain("--net", "vgg16", "--ranks", 4, "--batch-size", 32, "--grid", "stage=2,model=2")
    assert finished.returncode == 0, finished.stderr
    lines = finished.stdout.splitlines()
    assert lines[1].startswith("grid stage=2,model=2, plan ") and lines[2].startswith("pipeline ")
    runner_ups = lines[lines.index(next(line for line in lines if line.startswith("runner-up"))) + 1 :]
    assert runner_ups and all("pipeline " in line for line in runner_ups)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--grid", "batch=2", "--cuts", "3"), "are for a grid with the axis stage"),
        (("--grid", "stage=2", "--cuts", "3,4"), "cuts 3,4: no pipeline here has as many chunks"),
        (("--grid", "stage=2", "--cuts", "99"), "from 0 to 12"),
        (("--grid", "stage=2", "--pipeline", "nope"), "there is no pipeline schedule 'nope'"),
        (("--grid", "stage=2", "--pipeline", "nope.csv"), "nope.csv"),
        (("--grid", "stage=2", "--micro-batches", 1000), "1000 micro-batches of a minibatch of 128"),
        (("--grid", "stage=2", "--speeds", "2,1"), "--speeds are not for a pipeline"),
        (("--trace", "x.json"), "--trace needs --out FILE.png"),
        (("--grid", "batch=2", "--out", "FILE"), "x.png is for a pipeline"),
    ],
)
def test_what_fits_no_pipeline_is_said_in_one_line(arguments, words, tmp_path):
    finished = explain("--net", "lenet5", *(tmp_path / "x.png" if word == "FILE" else word for word in arguments))
    assert finished.returncode == 2 and words in finished.stderr
    assert len(finished.stderr.strip().splitlines()) == 1, finished.stderr


@pytest.mark.long
def test_a_traced_pipeline_is_drawn_below_the_predicted_one(tmp_path):
    net = "--net", "mlp:64,64,64,relu", "--batch-size", 64, "--grid", "stage=2", "--micro-batches", 4
    trained = job(2, "train", *net, "--steps", 9, "--trace", tmp_path / "t.json", "--quiet")
    assert trained.status == 0, trained.stderr
    explained = explain(*net, "--shape", "4", "--outputs", 1, "--out", tmp_path / "s.png", "--trace", tmp_path / "t.json")
    assert explained.returncode == 0, explained.stderr
    assert is_figure(tmp_path / "s.png")
    refused = explain(*net, "--shape", "4", "--out", tmp_path / "n.png", "--trace", tmp_path / "s.png")
    assert refused.returncode == 2 and "s.png is no timeline" in refused.stderr
    assert not (tmp_path / "n.png").exists()
