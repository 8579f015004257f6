"""sweep, plot, check, scatter, reproduce, bench and tables of predictions, small."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gridgrad.experiments import plot, sweep
from gridgrad.experiments.benchmarks import bench_ranks, bench_serial
from gridgrad.experiments.benchmarks.bench_table import row, table
from gridgrad.experiments.benchmarks.cases import StepCase
from gridgrad.experiments.benchmarks.rounds import in_minutes
from gridgrad.experiments.check import problems
from gridgrad.experiments.parts import sweep_files
from gridgrad.experiments.parts.check_binding import BoundRank
from gridgrad.parallel.job.start_ranks import mpiexec
from tests.experiments.figures import is_figure
from tests.experiments.programs import program


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    path = tmp_path_factory.mktemp("sweep") / "s.jsonl"
    options = "--nets", "mlp:8,8,relu;mlp:16,relu", "--ranks", "1,2", "--steps", 8, "--repeats", 1
    finished = program("sweep", *options, "--out", path)
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == "" and "6 runs" in finished.stdout  # 2 nets x 3 grids; no progress bar
    return path


def test_a_sweep_writes_a_report_a_run(swept):
    reports = plot.read(swept)
    assert {r["grid"] for r in reports} == {"batch=1,model=1", "batch=2,model=1", "batch=1,model=2"}
    assert all(r["oversubscribed"] == (r["P"] > r["slots"]) for r in reports)
    losses = {(r["net"], round(r["final_loss"], 5)) for r in reports}
    assert len(losses) == 2, "every grid trains the same network"


def test_the_figure_is_drawn(swept, tmp_path):
    finished = program("plot", "speedup", swept, "--out", tmp_path / "figure.png")
    assert finished.returncode == 0, finished.stderr
    assert is_figure(tmp_path / "figure.png")


def test_speedups_are_over_the_median_time_of_the_serial_runs(swept):
    reports = [*plot.read(swept), *plot.read(swept)]  # as if each run had been repeated
    for report in reports:
        report["seconds_per_step"]["median"] = 6.0 / report["P"]
    repeats = [report for report in reports if report["net"] == "mlp:16,relu" and report["grid"] == "batch=2,model=1"]
    repeats[0]["seconds_per_step"]["median"] = 1.5
    values = plot.speedups(reports)
    assert len(values) == 6 and values.pop(("mlp:16,relu", (1, 2, 1, 1))) == (3, 2, 4)
    assert all(value == (np.prod(grid),) * 3 for (_, grid), value in values.items())


def test_the_title_and_the_legend_of_the_figure_stay_apart(swept):
    reports = plot.read(swept)
    for report in reports:
        report["versions"]["processor"] = "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz (Sapphire Rapids, 4 sockets)"
    figure = plot.speedup_figure(reports)
    figure.canvas.draw()
    [title], [legend] = figure.texts, figure.legends
    boxes = [artist.get_window_extent() for artist in (title, legend)]
    assert not boxes[0].overlaps(boxes[1])
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("settings", "batch_size"), 7, "global batch size"),
        (("versions", "threads"), 2, "threads a rank"),
        (("dataset",), "mnist", "data set"),
        (("versions", "processor"), "another", "machine"),
    ],
)
def test_runs_that_do_not_compare_are_refused(swept, tmp_path, place, value, message):
    lines = swept.read_text().splitlines()
    report = json.loads(lines[0])
    inner = report
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    (tmp_path / "mixed.jsonl").write_text("\n".join([json.dumps(report), *lines[1:]]))
    finished = program("plot", "speedup", tmp_path / "mixed.jsonl")
    assert finished.returncode == 2
    assert f"runs differ in {message}" in finished.stderr and finished.stderr.count("\n") == 1
    assert not (tmp_path / "mixed.png").exists()


@pytest.mark.parametrize("content", ["", "hello\n", "{}\n", '{"grid": "batch=1"}\n'])
def test_what_is_no_sweep_is_refused(tmp_path, content):
    (tmp_path / "x.jsonl").write_text(content)
    finished = program("plot", "speedup", tmp_path / "x.jsonl")
    assert finished.returncode == 2 and finished.stderr.startswith("plot: error: ") and finished.stderr.count("\n") == 1


def test_a_network_without_its_serial_run_is_refused(swept):
    reports = [r for r in plot.read(swept) if r["P"] > 1]
    with pytest.raises(ValueError, match="no serial run"):
        plot.speedups(reports)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--schemes", "rows"], "unknown schemes"),
        (["--ranks", "1,x"], "whole number"),
        (["no-such-file.toml"], "No such file"),
        (["--nets", "vgg99"], "unknown net 'vgg99'"),
        (["--out", "/proc/no/s.jsonl"], "can not write"),
        (["--part", "5/4"], "must be a whole number of at least 1 and at most 4, not '5'"),
        (["--part", "2"], "must be I/N, such as 2/4, not '2'"),
    ],
)
def test_bad_sweeps_are_refused(arguments, message, tmp_path):
    out = [] if "--out" in arguments else ["--out", tmp_path / "s.jsonl"]
    finished = program("sweep", "--ranks", "1", "--steps", 2, *out, *arguments)
    assert finished.returncode == 2 and message in finished.stderr and finished.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("batchsize = 3", "unknown setting batchsize"),
        ("batch_size = ", "Invalid value"),
        ("ranks = 4", "ranks = 4: expected a list of whole numbers of at least 1"),
        ("ranks = [0]", "whole numbers of at least 1"),
        ("ranks = ['a']", "whole numbers of at least 1"),
        ("ranks = [1.5]", "whole numbers of at least 1"),
        ("repeats = 'x'", "repeats = 'x': expected whole numbers"),
        ("repeats = 0", "whole numbers of at least 1"),
        ("grids = ['rows=2']", "grid 'rows=2'"),
        ("nets = []", "nothing to run"),
        ("schemes = ['2d']\nranks = [1]", "nothing to run"),
    ],
)
def test_settings_files_are_checked(tmp_path, line, message):
    (tmp_path / "s.toml").write_text(line + "\n")
    finished = program("sweep", tmp_path / "s.toml", "--out", tmp_path / "s.jsonl")
    assert finished.returncode == 2 and message in finished.stderr and finished.stderr.count("\n") == 1
    assert not (tmp_path / "s.jsonl").exists()


@pytest.mark.parametrize("content", [b"ranks = [1, 2", b"dataset = '\xff'", b"\x89PNG"])
def test_a_settings_file_that_is_no_toml_is_named(tmp_path, content):
    (tmp_path / "s.toml").write_bytes(content)
    finished = program("sweep", tmp_path / "s.toml", "--out", tmp_path / "s.jsonl")
    assert finished.returncode == 2 and finished.stderr.count("\n") == 1
    assert f"{tmp_path / 's.toml'} is no TOML file" in finished.stderr


def test_an_error_of_a_program_in_a_folder_begins_with_its_name():
    finished = program("study", "usability", "--json", "x.txt")
    assert finished.returncode == 2 and finished.stderr.startswith("usability: error: --json x.txt")


def test_the_speedup_settings_are_good():
    settings = sweep.DEFAULTS | sweep.read_settings("experiments/settings/speedup.toml")
    sweep.check(settings)
    assert len(sweep.runs(settings)) == 30


def test_an_interrupted_sweep_goes_on(swept, tmp_path):
    settings = json.loads(swept.read_text().splitlines()[0])["sweep"]
    out, part = tmp_path / "s.jsonl", tmp_path / "s.jsonl.part"
    lines = swept.read_text().splitlines(keepends=True)
    part.write_text("".join(lines[:-1]) + lines[-1][:100])  # the last one was being written
    assert sweep.sweep(settings, out) == (1, 6)
    assert out.read_text().splitlines()[:-1] == [line.rstrip() for line in lines[:-1]]  # not run again
    assert len(out.read_text().splitlines()) == len(lines) and not part.exists()
    before = out.read_text()
    assert sweep.sweep(settings, out) == (0, 6) and out.read_text() == before
    assert len(sweep_files.done(sweep_files.read(out), settings | {"ranks": [1, 2, 4]})) == 6  # a longer sweep adds to it
    assert not sweep_files.done(sweep_files.read(out), settings | {"batch_size": 7})


def test_a_sweep_that_goes_on_on_another_machine_keeps_what_it_had_until_it_is_done(swept, tmp_path, monkeypatch):
    settings, out = json.loads(swept.read_text().splitlines()[0])["sweep"], tmp_path / "s.jsonl"
    part = tmp_path / "s.jsonl.part"
    elsewhere = [report | {"machine": {"processor": "another", "threads": "1"}} for report in sweep_files.read(swept)]
    part.write_text(sweep_files.lines(elsewhere))
    two = settings | {"nets": ["mlp:8,8,relu"], "ranks": [1], "repeats": 2}

    def ended(*arguments):
        if len(sweep_files.read(part)) > len(elsewhere):
            raise KeyboardInterrupt
        return own(*arguments)

    own = sweep.report_of
    monkeypatch.setattr(sweep, "report_of", ended)
    with pytest.raises(KeyboardInterrupt):
        sweep.sweep(two, out)
    assert sweep_files.read(part)[:-1] == elsewhere and not out.exists()
    monkeypatch.setattr(sweep, "report_of", own)
    assert sweep.sweep(two, out) == (1, 2) and len(sweep_files.read(out)) == 2 and not part.exists()
    assert sweep.sweep(two | {"repeats": 1}, out, anew=True) == (1, 1) and len(sweep_files.read(out)) == 1


def test_parts_of_a_sweep_are_gathered(swept, tmp_path):
    lines = swept.read_text().splitlines(keepends=True)
    files = [sweep_files.part_name(tmp_path / "s.jsonl", (i, 3)) for i in (1, 2, 3)]
    assert files[1].name == "s-2-of-3.jsonl"
    for i, file in enumerate(files):
        file.write_text("".join(lines[i::3]))
    finished = program("sweep", "--gather", *files, files[0], "--out", tmp_path / "s.jsonl")
    *table, last = finished.stdout.splitlines()
    assert len(table) == 1 + 6 and table[0].split()[:3] == ["network", "grid", "ranks"], finished.stderr
    assert last == f"6 runs written to {tmp_path / 's.jsonl'}; next: gridgrad plot speedup {tmp_path / 's.jsonl'}"
    assert sorted((tmp_path / "s.jsonl").read_text().splitlines(keepends=True)) == sorted(lines)
    words = sweep.gather(files[:2], tmp_path / "two.jsonl")
    assert words.startswith("4 runs written to") and "; 2 are missing, such as mlp:" in words


def test_a_part_is_every_nth_run(monkeypatch, tmp_path):
    started = []

    def launch(net, grid, *_):
        started.append(grid)
        return {"net": net, "P": 1, "settings": {"grid": grid}}

    monkeypatch.setattr(sweep, "launch", launch)
    settings, files = sweep.DEFAULTS | {"ranks": [1, 2, 4], "repeats": 2}, [tmp_path / f"{i}.jsonl" for i in range(1, 6)]
    parts = [sweep.sweep(settings, file, part=(i, 5)) for i, file in enumerate(files, 1)]
    assert parts == [(3, 3), (3, 3), (2, 2), (2, 2), (2, 2)]
    assert sorted(started) == sorted(grid for _, grid, _ in sweep.all_runs(settings))
    assert sweep.gather(files, tmp_path / "all.jsonl") == f"12 runs written to {tmp_path / 'all.jsonl'}"


def test_a_sweep_that_is_told_to_stop_keeps_what_is_done(monkeypatch, tmp_path, capsys):
    def launch(net, grid, *_):
        if len(sweep_files.read(tmp_path / "s.jsonl.part")) == 2:
            os.kill(os.getpid(), signal.SIGUSR1)
        return {"net": net, "P": 1, "settings": {"grid": grid}}

    monkeypatch.setattr(sweep, "launch", launch)
    monkeypatch.setattr(sys, "argv", ["sweep", "--ranks", "1,2", "--out", str(tmp_path / "s.jsonl")])
    before = signal.getsignal(signal.SIGUSR1)
    try:
        with pytest.raises(SystemExit) as ended:
            sweep.main()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert ended.value.code == 75 and "the same command line goes on from here" in capsys.readouterr().err
    assert len(sweep_files.read(tmp_path / "s.jsonl.part")) == 2 and not (tmp_path / "s.jsonl").exists()


def test_files_that_can_not_be_gathered_are_refused(swept, tmp_path):
    lines = swept.read_text().splitlines(keepends=True)
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "other.jsonl").write_text(sweep_files.lines([json.loads(lines[0]) | {"final_loss": 0.0}]))
    (tmp_path / "garbage.jsonl").write_text(lines[0] + "hello\n")
    for name, message in (
        ("empty", "holds no report"), ("other", "disagree about mlp:8,8,relu on"), ("garbage", "line 2, is no report"),
        ("none", "there is no file"),
    ):  # fmt: skip
        finished = program("sweep", "--gather", swept, tmp_path / f"{name}.jsonl", "--out", tmp_path / "out.jsonl")
        assert finished.returncode == 2 and message in finished.stderr and finished.stderr.count("\n") == 1
    finished = program("sweep", "--ranks", 1, "--out", tmp_path / "garbage.jsonl")
    assert finished.returncode == 2 and "give another --out, or delete it" in finished.stderr
    assert not (tmp_path / "out.jsonl").exists()


def test_programs_that_are_no_jobs_say_so_once():
    for name in ("sweep", "plot"):
        finished = mpiexec(2, ["-m", "gridgrad", name], 60)
        assert finished.status == 2
        assert finished.stderr.count(f"{name}: error: this is not a parallel program: run it without mpiexec") == 1


def test_launch_starts_a_job():
    finished = program("launch", 2, "check", "--ranks", 2)
    assert finished.returncode == 0 and finished.stdout.endswith("ok\n"), finished.stderr
    refused = program("launch", 0, "check")
    assert refused.returncode == 2 and refused.stdout == ""
    assert refused.stderr.startswith("launch: error: the number of ranks must be a whole number of at least 1, not '0'")


@pytest.mark.parametrize(
    ("scheme", "ranks", "grid"),
    [
        ("2d", 4, "batch=2,model=2"),
        ("2d", 8, "batch=4,model=2"),
        ("2d", 7, None),
        ("model", 3, "batch=1,model=3"),
        ("height", 3, "batch=1,height=3,model=1"),
    ],
)
def test_grids_of_schemes(scheme, ranks, grid):
    assert sweep.grid_of(scheme, ranks) == grid


def test_check_says_what_it_finds():
    finished = mpiexec(2, ["-m", "gridgrad", "check", "--ranks", "2"], 60)
    assert finished.status == 0, finished.stderr
    for words in (
        "MPI library",
        "2 found, 2 asked for",
        "threads a rank: 1",
        "ring",
        "came back right",
        "all-reduce",
        "sum right",
        "binding",
    ):
        assert finished.stdout.count(words) == 1
    assert finished.stdout.endswith("ok\n")


def test_check_runs_alone_and_names_a_missing_rank():
    assert program("check").stdout.endswith("ok\n")
    finished = mpiexec(2, ["-m", "gridgrad", "check", "--ranks", "3"], 60)
    assert finished.status == 2 and "check: error: 3 ranks were asked for but 2 started" in finished.stderr


def test_check_names_singletons_and_too_many_threads():
    def node(ranks, cores, threads=1):  # none of them bound
        return {"here": ([BoundRank(i, frozenset(range(cores)), threads) for i in range(ranks)], {c: c for c in range(cores)})}

    assert "N singletons" in problems(None, 1, node(1, 8), {"PMI_SIZE": "4"})[0]
    assert "PMI_SIZE says 4 ranks but MPI" in problems(None, 2, node(2, 8), {"PMI_SIZE": "4"})[0]
    assert "OMP_NUM_THREADS=1" in problems(None, 2, node(2, 2, threads=2), {})[0]
    assert problems(2, 2, node(2, 2), {}) == [] == problems(None, 1, node(1, 2, threads=2), {})
    assert problems(None, 8, node(8, 2), {}) == []  # oversubscribed is said, but is not wrong
    env = {"OMP_NUM_THREADS": str(2 * (os.cpu_count() or 1))}
    for family in ("PRTE_MCA_hwloc_default", "OMPI_MCA_hwloc_base"):  # bound to one core, BLAS would start one thread
        env[f"{family}_binding_policy"] = "none"
    finished = mpiexec(2, ["-m", "gridgrad", "check"], 60, env=env)
    assert finished.status == 2 and "BLAS threads" in finished.stderr


def test_an_import_that_fails_on_one_rank_ends_the_job(tmp_path):
    """Before or after MPI is entered."""
    ranks = "os.environ.get('PMI_RANK'), os.environ.get('OMPI_COMM_WORLD_RANK')"
    (tmp_path / "tqdm.py").write_text(f"import os\nif '1' in ({ranks}): 1 / 0\ntqdm = print\n")
    finished = mpiexec(2, ["-m", "gridgrad", "train"], timeout=30, env={"PYTHONPATH": str(tmp_path)})
    assert finished.status not in (0, None) and "ZeroDivisionError" in finished.stderr
    code = "import gridgrad.experiments; from mpi4py import MPI; MPI.Init(); w = MPI.COMM_WORLD; 1 / (w.rank != 1); w.Barrier()"
    finished = mpiexec(2, ["-c", code], timeout=30)
    assert finished.status not in (0, None) and "ZeroDivisionError" in finished.stderr


def test_the_scatters_are_timed(tmp_path):
    finished = mpiexec(
        4,
        [
            "-m",
            "gridgrad",
            "study",
            "scatter",
            "--grid",
            "batch=2,model=2",
            "--repeats",
            "2",
            "--report",
            str(tmp_path / "s.json"),
        ],
        60,
    )
    assert finished.status == 0, finished.stderr
    rows = json.loads((tmp_path / "s.json").read_text())["rows"]
    # Three ranks get a block from rank 0; or one gets a block, and two get theirs from another.
    assert rows and all(
        row["scatter bytes"] // row["block_bytes"] == row["scatter-broadcast bytes"] // row["block_bytes"] == 3 for row in rows
    )


def test_the_papers_tables_follow_from_formulas(tmp_path):
    finished = program("reproduce", "laugier2018", "--tables-only", "--json", tmp_path / "t.json", "--out", tmp_path / "o")
    assert finished.returncode == 0, finished.stderr
    tables = json.loads((tmp_path / "t.json").read_text())
    row = next(r for r in tables["volumes"] if r["grid"] == "batch=1,model=4")
    assert row["corrected_MB"] == pytest.approx(3 / 4 * 4 * 100 * (3 * 3 * 1024 + 2) / 1e6, rel=1e-3)
    assert row["derived_MB"] == pytest.approx(3 * 4 / 3 * 4 * 100 * (16 + 3 * 1024 + 2) / 1e6)
    assert row["ours_MB"] <= 2 / 3 * row["corrected_MB"]
    assert [r["scatter_faster_below_MB"] for r in tables["crossover"]][0] == pytest.approx(2.8)
    refused = program("reproduce", "nobody1999")
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1
    assert refused.stderr.startswith("reproduce: error: argument paper: invalid choice: 'nobody1999'")


@pytest.mark.long
def test_the_peer_comparison_compares_the_same_network():
    pytest.importorskip("torch")
    case = StepCase("small", "mlp:16,tanh", 8, 3, 10)
    ours, theirs = bench_serial.serial_steps(case)
    assert ours() == pytest.approx(theirs(), rel=1e-5)
    found = row({"wall": [0.5, 0.7, 0.6]}, 1.0)
    assert found == {"wall": {"median": 0.6, "min": 0.5, "max": 0.7}, "bound": 1.0, "rounds": 3}
    ratios, dropped = bench_ranks.two_rank_ratios(case, rounds=1, steps=2, end=in_minutes(5))
    assert all(len(values) == 1 and values[0] > 0 for values in ratios.values()) and 0 <= dropped <= 2
    assert sorted(ratios) == ["1 rank", "DDP", "apart"]


def test_the_table_of_the_peer_comparison():
    results = json.loads(Path("results/bench.json").read_text())
    text = table(results)
    assert text == Path("results/bench.md").read_text()
    tables = [rows for rows in (results["ratios"], results["memory"]) if rows]
    assert text.count("\n| ") == sum(len(rows) + 1 for rows in tables)


def test_the_table_of_the_predictions_follows_from_the_reports(tmp_path):
    reports = sorted(Path("results/predictions").glob("*.json"))
    finished = program("plot", "predictions", *reports, "--out", tmp_path / "predictions.md")
    assert finished.returncode == 0, finished.stderr
    assert (tmp_path / "predictions.md").read_text() == Path("results/predictions.md").read_text()


@pytest.mark.parametrize("kind", plot.STUDIES)
def test_the_figures_of_studies_are_drawn_from_their_results(kind, tmp_path):
    finished = program("plot", kind, f"results/{kind}.json", "--out", tmp_path / "figure.png")
    assert (finished.returncode, finished.stdout) == (0, f"{tmp_path / 'figure.png'} written\n"), finished.stderr
    assert is_figure(tmp_path / "figure.png")
    other = "roofline" if kind != "roofline" else "servers"
    refused = program("plot", kind, f"results/{other}.json", "--out", tmp_path / "other.png")
    assert refused.returncode == 2 and f"holds no results of gridgrad study {kind}" in refused.stderr
    assert not (tmp_path / "other.png").exists()


@pytest.mark.parametrize(("old", "new"), [("pruned", "study pruned"), ("trace_cost", "study trace-cost"), ("hosts", "launch")])
def test_a_module_that_has_moved_says_its_new_name(old, new):
    ended = subprocess.run([sys.executable, "-m", f"experiments.{old}"], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2 and ended.stdout == "" and ended.stderr.count("\n") == 1
    assert ended.stderr.startswith(f"python -m experiments.{old} is now `gridgrad {new}")
