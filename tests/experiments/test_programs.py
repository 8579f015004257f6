"""sweep, plot, check, scatter, reproduce, bench and tables of predictions, small."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from gridgrad.experiments.bench import table
from gridgrad.experiments.check import BoundRank, load_line, problems
from gridgrad.experiments.launching.start_ranks import mpiexec
from tests.experiments.common.made_up_load import BUSY, QUIET
from tests.experiments.programs import program


@pytest.mark.parametrize("content", ["", "hello\n", "{}\n", '{"grid": "batch=1"}\n'])
def test_what_is_no_sweep_is_refused(tmp_path, content):
    (tmp_path / "x.jsonl").write_text(content)
    finished = program("plot", "speedup", tmp_path / "x.jsonl")
    assert finished.returncode == 2 and finished.stderr.startswith("plot: error: ") and finished.stderr.count("\n") == 1


def test_an_error_of_a_program_in_a_folder_begins_with_its_name():
    finished = program("study", "usability", "--out", "x.md")
    assert finished.returncode == 2 and finished.stderr.startswith("usability: error: --out x.md")


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


def test_check_says_what_it_finds():
    finished = mpiexec(2, ["-m", "gridgrad", "check", "--ranks", "2"], 60)
    assert finished.status == 0, finished.stderr
    once = "MPI library", "2 found, 2 asked for", "threads a rank: 1", "ring", "came back right", "all-reduce", "sum right"
    for words in (*once, "binding", "\nload "):
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


def test_check_says_how_busy_the_machine_is():
    assert load_line(None) == "how busy this machine is is not known"
    assert load_line(QUIET) == "of 2 cores 0.02 were taken by others"
    assert load_line(BUSY) == "of 2 cores 0.9 were taken by others: wait until it is quiet before you measure"


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
    words = ["-m", "gridgrad.experiments.papers.laugier2018_scatter", "--grid", "batch=2,model=2", "--repeats", "2"]
    finished = mpiexec(4, [*words, "--report", str(tmp_path / "s.json")], 60)
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
    assert {"batch, one rank a node", "2-D over batch, all ranks on one node"} < {row["curve"] for row in tables["curves"]}
    refused = program("reproduce", "nobody1999")
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1
    assert refused.stderr.startswith("reproduce: error: argument paper: invalid choice: 'nobody1999'")


def test_the_table_of_the_peer_comparison():
    results = json.loads(Path("results/bench.json").read_text())
    text = table(results)
    assert text == Path("results/bench.md").read_text()
    tables = [rows for rows in (results["ratios"], results["memory"]) if rows]
    assert text.count("\n| ") == sum(len(rows) + 1 for rows in tables)


def test_bash_completes_programs_options_and_choices(tmp_path):
    script = tmp_path / "completion"
    script.write_text(program("completion", "bash").stdout)
    typed = {
        "gridgrad tr": "train",
        "gridgrad train --opt": "--optimizer",
        "gridgrad train --optimizer adag": "adagrad",
        "gridgrad study prot": "protocols",
        "gridgrad plot spe": "speedup",
        "gridgrad help pip": "pipeline",
    }
    lines = [f"COMP_WORDS=({words}); COMP_CWORD={words.count(' ')}; _shtab_gridgrad; echo ${{COMPREPLY[*]}}" for words in typed]
    found = subprocess.run(["bash", "-c", "\n".join([f"source {script}", *lines])], capture_output=True, text=True)
    assert found.stdout.splitlines() == list(typed.values()), found.stderr
