"""Job scripts: what they ask for and run on each system, and that shells understand them."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys

import pytest

from gridgrad.experiments import slurm
from gridgrad.experiments.parts.slurm_script import script
from tests.experiments.programs import run_main

TRAIN = "train", "--dataset", "airfoil", "--checkpoint", "c"
CHECKED = '[[ "$*" = *"gridgrad check"* ]] && exit\n'  # the first lines of stand-ins for which everything is as it should be
SHELLCHECK = shutil.which("shellcheck")


def written(*words, program=TRAIN, environ=()):
    """The script for these options."""
    args = slurm.options().parse_args([*map(str, words), "--", *program])
    return script(slurm.job_of(args), dict(environ))


def words_of(text, array):
    """The words of an array of a script."""
    return shlex.split(text.split(f"{array}=(")[1].split("\n)")[0])


def check_script(text):
    """A shell understands the script, and shellcheck, where there is one, finds nothing in it."""
    for command in ["bash", "-n"], *([[SHELLCHECK, "-"]] if SHELLCHECK else []):
        checked = subprocess.run(command, input=text, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("kind", slurm.KINDS)
@pytest.mark.parametrize("system", ["slurm", "pbs", "mpirun"])
def test_every_script_is_one_in_which_check_runs_first_on_all_ranks(system, kind, tmp_path):
    options = "--system", system, "--kind", kind, "--out", tmp_path / "job.sh", "--nodes", 2, "--ranks-per-node", 4
    text = written(*options, program=("sweep", "--ranks", "1") if kind == "array" else TRAIN)
    check_script(text)
    assert words_of(text, "check")[-4:] == ["gridgrad", "check", "--ranks", "8"]
    assert text.index('"${launcher[@]}" "${check[@]}" || {') < text.index("program=(")


@pytest.mark.parametrize(
    ("options", "lines", "others"),
    [
        (
            "--nodes 4 --ranks-per-node 16 --cores 8 --time 1-12:30:00 --partition standard --account e05-x --qos long "
            "--library mpich --setup 'module load gcc' --gpus 4 --constraint a100 --mem 64G --directive --exclusive",
            "nodes=4 ntasks-per-node=16 cpus-per-task=8 time=36:30:00 partition=standard account=e05-x qos=long "
            "gpus-per-node=4 constraint=a100 mem=64G exclusive threads-per-core=1 no-requeue",
            ["module load gcc", "export OMP_NUM_THREADS=8 ", "export SRUN_CPUS_PER_TASK=8 ", "--mpi=pmi2", "--cpu-bind=cores",
             "export GRIDGRAD_DATA='/work/my $(touch x)'", f"cd {shlex.quote(os.getcwd())} || exit 1"],
        ),
        ("--kind requeue --warn 120", "signal=USR1@120 requeue open-mode=append", ["--resume c\n"]),
        (
            "--system pbs --nodes 2 --ranks-per-node 4 --cores 3 --time 90 --partition workq --gpus 2 --mem 64G --out job.sh",
            "",
            ["#PBS -l select=2:ncpus=12:mpiprocs=4:ompthreads=3:ngpus=2:mem=64gb\n", "#PBS -l walltime=01:30:00\n",
             "#PBS -q workq\n", "#PBS -r n\n"],
        ),
        (
            "--system pbs --kind requeue --time 60 --out job.sh",
            "",
            ['timeout --foreground --preserve-status --signal=USR1 "$((3300 - SECONDS))" '],
        ),
    ],
)  # fmt: skip
def test_what_a_script_asks_for(options, lines, others):
    """Of variables, those that a job needs, if a shell takes their names."""
    environ = {"GRIDGRAD_DATA": "/work/my $(touch x)", "HOME": "/home/me", "GRIDGRAD_A;touch x;B": "1"}
    text = written(*shlex.split(options), environ=environ)
    check_script(text)
    for line in lines.split():
        assert text.splitlines().count(f"#SBATCH --{line}") == 1, line
    assert [words for words in others if words not in text] == []
    assert "HOME" not in text and "GRIDGRAD_A" not in text


# ----- scripts that run, with stand-ins for the commands of batch systems


AWKWARD = ["a b", "it's", '"$HOME"', "$(touch /tmp/x)", "`id`", "a\\b", "", "*", "ä"]


def test_arguments_reach_the_program_as_they_are(tmp_path, monkeypatch):
    echo, folders = tmp_path / "my launcher", [word for folder in AWKWARD for word in ("--data-dir", folder)]
    echo.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'import json, sys; print(json.dumps(sys.argv[1:]))' \"$@\"\n")
    echo.chmod(0o755)
    (tmp_path / "my folder").mkdir()
    monkeypatch.chdir(tmp_path / "my folder")
    monkeypatch.setenv("MPIEXEC", shlex.quote(str(echo)))
    text = written("--system", "mpirun", "--library", "mpich", program=("train", *folders))
    found = subprocess.run(["bash", "-c", text], capture_output=True, text=True)
    words = ["-n", "1", "-ppn", "1", "-bind-to", "core:1", sys.executable, "-m", "gridgrad", "train", *folders]
    assert json.loads(found.stdout.splitlines()[-1]) == words


@pytest.fixture
def running(tmp_path, monkeypatch):
    """A function that runs the script for some options.

    `program`, a shell script, takes the place of mpiexec and srun there, which `checked` says to be well if `check` is.
    """
    monkeypatch.setenv("MPIEXEC", "/bin/true")

    def run(*options, program, checked=True, **variables):
        starts, submits = CHECKED * checked + program, 'echo "${0##*/}" "$@"\n'
        for name, body in (("mpiexec", starts), ("srun", starts), ("scontrol", submits), ("qsub", submits)):
            (tmp_path / name).write_text(f"#!/bin/bash\n{body}")
            (tmp_path / name).chmod(0o755)
        (tmp_path / "job.sh").write_text(written(*options).replace("/bin/true", str(tmp_path / "mpiexec")))
        env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HERE": str(tmp_path), "SLURM_JOB_ID": "12"} | variables
        command = ["bash", str(tmp_path / "job.sh")]
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return run


def test_a_job_whose_check_fails_starts_nothing_and_says_why(running, tmp_path):
    process = running("--system", "mpirun", program='echo "$*" >> "$HERE/started"; exit 2\n', checked=False)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 2 and not stdout and "the program was not started" in stderr
    [line] = (tmp_path / "started").read_text().splitlines()
    assert line.endswith("gridgrad check --ranks 1")


@pytest.mark.parametrize(
    ("system", "restarts", "said"),
    [
        ("slurm", "3", "not requeued, after 3 restarts"),
        ("pbs", "0", "stopped early, to go on in the next job\nqsub -v RESTART=1 "),
        ("pbs", "3", "not submitted again, after 3 restarts"),
    ],
)
def test_a_job_that_stopped_early_is_submitted_again_so_often(system, restarts, said, running, tmp_path):
    options = "--kind", "requeue", "--system", system, "--restarts", 3, "--out", tmp_path / "job.sh"
    process = running(*options, program="exit 75\n", SLURM_RESTART_COUNT=restarts, RESTART=restarts)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 75 and (stdout + stderr).startswith(said)


def test_the_shell_passes_a_signal_on(running):
    listens = "trap 'echo told; sleep 0.2; exit 75' USR1\necho ready\nfor i in {1..300}; do sleep 0.1; done\n"
    process = running("--kind", "requeue", "--mpi", "mpiexec", program=listens)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGUSR1)
    stdout, stderr = process.communicate(timeout=60)
    assert stdout == "told\nstopped early, to go on after a requeue\nscontrol requeue 12\n", stderr
    assert process.returncode == 75


# ----- the program


def test_a_dry_run_says_what_a_job_may_use_and_writes_nothing(tmp_path, monkeypatch, capsys):
    """4 nodes of 2 ranks with 3 cores, for half an hour: 2 node-hours and 12 core-hours a start."""
    asked = "--nodes", 4, "--ranks-per-node", 2, "--cores", 3, "--time", 30, "--gpus", 1, "--out", tmp_path / "job.sh"
    often = "--kind", "requeue", "--warn", 60, "--restarts", 2, "--", *TRAIN
    run_main(monkeypatch, "slurm", *asked, "--dry-run", *often)
    rows = {line[:22].strip(): line[22:].split() for line in capsys.readouterr().out.splitlines()}
    assert rows["starts, at most"] == ["1", "3"] and rows["node-hours, at most"] == ["2", "6"]
    assert rows["core-hours, at most"] == ["12", "36"] and rows["GPU-hours, at most"][1] == "6"
    assert not list(tmp_path.iterdir())
