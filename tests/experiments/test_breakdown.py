"""Where the time goes, as programs: `train --trace --profile`, `plot breakdown`, `trace_cost`."""

import json
from importlib.util import find_spec

import pytest

from gridgrad.experiments import sweep
from gridgrad.experiments.parts.train_profile import watched
from gridgrad.experiments.plots.breakdown import PARTS, efficiencies, middle_runs, parts
from gridgrad.experiments.plots.figures import read
from gridgrad.parallel.observe.span_observer import METHODS
from tests.datasets.test_mnist import small  # noqa: F401 (a fixture)
from tests.experiments.figures import is_figure
from tests.experiments.programs import assert_refused, job, program


def train(ranks, *arguments):
    return job(ranks, "train", "--quiet", *arguments)


@pytest.mark.parametrize(
    ("ranks", "grid"), [(1, "batch=1"), (2, "height=2"), pytest.param(2, "model=2", marks=pytest.mark.long)]
)
def test_a_run_is_traced_and_profiled(small, tmp_path, ranks, grid):  # noqa: F811
    net = ["--dataset", "mnist", "--data-dir", small, "--net", "lenet5", "--batch-size", 5, "--steps", 10]
    reports = []
    for name, watch in (("plain", []), ("watched", ["--profile", "--trace", tmp_path / "t.json", "--trace-steps", 3])):
        finished = train(ranks, *net, "--grid", grid, "--report", tmp_path / name, *watch)
        assert (finished.status, finished.stdout, finished.stderr) == (0, "", "")
        reports.append(json.loads((tmp_path / name).read_text()))
    plain, report = reports
    assert report["params_digest"] == plain["params_digest"] and report["loss"] == plain["loss"]
    assert report["bytes"] == plain["bytes"] and "layers" not in plain
    for r in reports:
        assert 0 < r["time"]["compute"] <= r["compute_max"]
    kinds = {row["kind"] for row in report["layers"]}
    assert {"HaloConv2d" if "height" in grid else "Conv2d", "Linear", "AvgPool2d", "Tanh"} <= kinds
    assert all(row[method] >= 0 for row in report["layers"] for method in METHODS)
    assert 0 < sum(row[method] for row in report["layers"] for method in METHODS) <= report["time"]["compute"]

    timeline = json.loads((tmp_path / "t.json").read_text())
    names = [(e["pid"], e["name"]) for e in timeline["traceEvents"] if e.get("cat") == "step"]
    assert names == [(rank, f"step {step}") for rank in range(ranks) for step in (5, 6, 7)]
    shown = {e["name"].replace("HaloConv2d", "Conv2d") for e in timeline["traceEvents"]}
    assert {"optimizer SGD step", "loss SoftmaxCrossEntropy backward", "0 Conv2d forward"} <= shown
    assert any(name.startswith("reader ") and name.endswith(" load") for name in shown)
    assert timeline["otherData"]["clock accuracy in microseconds"] >= 0 and list(tmp_path.glob(".t.json*")) == []


def test_a_run_that_stops_early_is_traced_as_far_as_it_went(tmp_path):
    arguments = [
        "--validation",
        0.2,
        "--patience",
        1,
        "--lr",
        0.5,
        "--batch-size",
        400,
        "--net",
        "mlp:8,relu",
        "--grid",
        "batch=2",
    ]
    finished = train(2, *arguments, "--trace", tmp_path / "t.json", "--trace-steps", 1000, "--report", tmp_path / "r.json")
    assert finished.status == 0, finished.stderr
    report, timeline = (json.loads((tmp_path / name).read_text()) for name in ("r.json", "t.json"))
    assert report["stopped_epoch"] and report["steps"] < 30
    steps = [e for e in timeline["traceEvents"] if e.get("cat") == "step" and e["pid"] == 0]
    assert len(steps) == report["steps"] - 5


needs_otf2 = pytest.mark.skipif(find_spec("otf2") is None, reason="the package otf2 is not installed: pip install otf2")


@needs_otf2
def test_a_trace_is_an_archive_where_its_name_says_so(tmp_path):
    import otf2

    arguments = ["train", "--net", "mlp:8,relu", "--grid", "model=2", "--steps", 8, "--trace-steps", 2]
    for _ in range(2):  # the second time instead of the first
        finished = job(2, *arguments, "--trace", tmp_path / "t.otf2", "--profile", "--report", tmp_path / "r.json")
        assert finished.status == 0, finished.stderr
        assert f"trace {tmp_path}/t.otf2/traces.otf2" in finished.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.json", "t.otf2"]
    with otf2.reader.open(str(tmp_path / "t.otf2" / "traces.otf2")) as trace:
        regions = [(place.name, event.region.name) for place, event in trace.events if type(event).__name__ == "Enter"]
    for rank in range(2):
        assert regions.count((f"rank {rank}", "step")) == 2 == regions.count((f"rank {rank}", "0 Linear forward"))


@needs_otf2
def test_what_can_be_no_archive_is_refused(tmp_path):
    (tmp_path / "t.otf2").write_text("kept")
    bad = [
        (["--trace", "/proc/no/t.otf2"], "can not write to /proc/no"),
        (["--trace", tmp_path / "t.otf2"], "it is no folder with traces.otf2; give another name"),
    ]
    assert_refused(2, "train", bad, ["--quiet", "--steps", 2])
    assert (tmp_path / "t.otf2").read_text() == "kept"


def test_what_can_not_be_watched_is_refused():
    bad = [
        (["--trace", "/proc/no/t.json"], "can not write to /proc/no"),
        (["--trace", "/dev/null"], "no ordinary file"),
        (["--trace", "x.json", "--report", "./x.json"], "--report and --trace are the same file"),
        (["--trace", "x.json", "--trace-steps", "0"], "whole number of at least 1"),
        (["--profile"], "--profile needs --report"),
    ]
    assert_refused(2, "train", bad, ["--quiet", "--steps", 2])


class Watcher:
    steps = 2

    def __init__(self, name, log):
        self.name, self.log = name, log

    def __enter__(self):
        self.log.append(f"{self.name} on")

    def __exit__(self, kind, *_):
        self.log.append(f"{self.name} off")


@pytest.mark.parametrize(
    ("steps", "stop", "seen"),
    [
        (5, None, [0, 1, "profile on", "trace on", 2, 3, "trace off", 4, "profile off"]),
        (3, None, [0, 1, "profile on", "trace on", 2, "trace off", "profile off"]),
        (5, 2, [0, 1, "profile on", "trace on", 2, "trace off", "profile off"]),
        (5, 4, [0, 1, "profile on", "trace on", 2, 3, "trace off", 4, "profile off"]),
    ],
)
def test_some_steps_are_watched(steps, stop, seen):
    log = []
    for step in watched(iter(range(steps)), 2, Watcher("profile", log), Watcher("trace", log)):
        log.append(step)
        if step == stop:
            break
    assert log == seen
    assert list(watched(iter(range(steps)), 2)) == list(range(steps))


# ----- the figure


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    path = tmp_path_factory.mktemp("sweep") / "s.jsonl"
    arguments = ["--nets", "mlp:8,8,relu", "--ranks", "1,2", "--schemes", "model", "--steps", 8, "--repeats", 2]
    finished = program("sweep", *arguments, "--profile", "--out", path)
    assert finished.returncode == 0, finished.stderr
    assert "4 runs" in finished.stdout  # 2 grids x 2 repeats
    return path


@pytest.fixture
def lines(swept):
    return [json.loads(line) for line in swept.read_text().splitlines()]


def written(path, reports):
    path.write_text("".join(json.dumps(report) + "\n" for report in reports))
    return path


def test_the_breakdown_is_drawn(swept, tmp_path):
    for kind in ("breakdown", "speedup"):
        finished = program("plot", kind, swept, "--out", tmp_path / f"{kind}.png")
        assert finished.returncode == 0, finished.stderr
        assert is_figure(tmp_path / f"{kind}.png")
    [(panel, runs)] = middle_runs(read(swept)).items()
    assert panel == ("mlp:8,8,relu", 100)
    assert list(runs) == [(1, (1, 1, 1, 1)), (2, (1, 1, 1, 2))]
    for run in runs.values():
        assert list(parts(run)) == list(PARTS) and parts(run)["convolution"] == 0
        assert sum(parts(run).values()) == pytest.approx(sum(run["time"].values()))


def test_several_batch_sizes_are_panels_of_a_breakdown(lines, tmp_path):
    for report in lines[:2]:
        report["settings"]["batch_size"] = 200
    path = written(tmp_path / "s.jsonl", lines)
    assert len(middle_runs(read(path, ("global batch size",)))) == 2
    finished = program("plot", "breakdown", path)
    assert finished.returncode == 0 and is_figure(tmp_path / "s.png"), finished.stderr
    finished = program("plot", "speedup", path)
    assert finished.returncode == 2 and "runs differ in global batch size" in finished.stderr


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda report: report.pop("layers"), "the run of mlp:8,8,relu on batch=1,model=1 has no profile"),
        (lambda report: report.pop("compute_max"), "has no profile: sweep again with --profile"),
        (lambda report: report.update(dataset="mnist"), "runs differ in data set"),
        (lambda report: report["settings"].update(plan="in"), "runs differ in plan"),
        (lambda report: report.pop("grid"), "line 1 is not a report of sweep"),
    ],
)
def test_reports_that_are_no_breakdown_are_refused(lines, tmp_path, spoil, message):
    spoil(lines[0])
    finished = program("plot", "breakdown", written(tmp_path / "s.jsonl", lines))
    assert finished.returncode == 2 and message in finished.stderr and finished.stderr.count("\n") == 1
    assert not (tmp_path / "s.png").exists()


def test_efficiencies():
    def run(ranks, compute, largest, communicate, wait):
        time = {"compute": compute, "read": 5.0, "communicate": communicate, "wait": wait}
        return {"P": ranks, "time": time, "compute_max": largest}

    one, four = run(1, 8.0, 8.0, 0.0, 0.0), run(4, 2.5, 3.0, 1.0, 0.5)
    assert set(efficiencies(one, one).values()) == {1.0}
    assert efficiencies(four, one) == pytest.approx(
        {"load balance": 2.5 / 3, "communication": 3 / 4, "parallel": 2.5 / 4, "computation scaling": 0.8, "global": 0.5}
    )


def test_convolutions_are_told_apart():
    rows = [dict.fromkeys(METHODS, 0.5) | {"kind": kind} for kind in ("Conv2d", "HaloConv2d", "Linear")]
    time = {"compute": 7.0, "read": 0.5, "communicate": 1.0, "wait": 2.0}
    found = parts({"layers": rows, "compute_max": 7.0, "time": time})
    assert found == {"convolution": 4.0, "other computation": 3.5, "communication and waiting": 3.0}


@pytest.mark.parametrize("line", ["profile = 1", "profile = 'yes'", "profile = [true]"])
def test_the_setting_is_true_or_false(tmp_path, line):
    (tmp_path / "s.toml").write_text(line + "\n")
    finished = program("sweep", tmp_path / "s.toml", "--out", tmp_path / "s.jsonl")
    assert finished.returncode == 2 and "expected true or false" in finished.stderr and finished.stderr.count("\n") == 1


def test_the_breakdown_settings_are_good():
    settings = sweep.DEFAULTS | sweep.read_settings("experiments/settings/breakdown.toml")
    sweep.check(settings)
    assert settings["profile"] and len(sweep.runs(settings)) == 6


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_cost_of_tracing_is_printed(ranks, tmp_path):
    words = "--net", "mlp:64,relu", "--shape", "32", "--rounds", "3", "--out", tmp_path / "t.json"
    finished = job(ranks, "study", "trace_cost", *words)
    assert finished.status == 0, finished.stderr
    found = json.loads((tmp_path / "t.json").read_text())
    assert all(of["min"] <= of["median"] <= of["max"] for kind in ("seconds", "ratios") for of in found[kind].values())
    head, *rows = finished.stdout.splitlines()
    assert "ms a step" in head and [row.split()[0] for row in rows] == ["impossible", "off", "on"]
