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
from gridgrad.experiments.common.programs import FRONT, STUDY, parser_of, studies
from gridgrad.experiments.parts.slurm_script import script
from gridgrad.parallel.job.run import UserError

TRAIN = "train", "--dataset", "airfoil", "--checkpoint", "c"
SWEEP = "sweep", "--ranks", "1"
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
    checked = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    if SHELLCHECK:
        checked = subprocess.run([SHELLCHECK, "-"], input=text, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("library", ["mpich", "openmpi"])
@pytest.mark.parametrize("kind", slurm.KINDS)
@pytest.mark.parametrize("system", ["slurm", "pbs", "mpirun"])
def test_every_script_is_one(system, kind, library, tmp_path):
    program = SWEEP if kind == "array" else TRAIN
    options = "--system", system, "--kind", kind, "--library", library, "--out", tmp_path / "job.sh"
    for more in [(), ("--mpi", "mpiexec")]:
        check_script(written(*options, *more, program=program))


def test_what_a_script_of_slurm_asks_for():
    text = written("--nodes", 4, "--ranks-per-node", 16, "--cores", 8, "--time", "36:30:00", "--partition", "standard",
                   "--account", "e05-x", "--qos", "long", "--library", "mpich", "--setup", "module load gcc", "--gpus", 4,
                   "--constraint", "a100", "--mem", "64G", "--directive", "--reservation=course", "--directive", "--exclusive",
                   "--directive=--switches=1", environ={"GRIDGRAD_DATA": "/work/my data", "HOME": "/home/me"})  # fmt: skip
    lines = text.splitlines()
    for line in (
        "#SBATCH --nodes=4", "#SBATCH --ntasks-per-node=16", "#SBATCH --cpus-per-task=8", "#SBATCH --time=36:30:00",
        "#SBATCH --partition=standard", "#SBATCH --account=e05-x", "#SBATCH --qos=long", "module load gcc",
        "#SBATCH --gpus-per-node=4", "#SBATCH --constraint=a100", "#SBATCH --mem=64G", "#SBATCH --reservation=course",
        "#SBATCH --exclusive", "#SBATCH --switches=1", "#SBATCH --threads-per-core=1", "#SBATCH --no-requeue",
        "export GRIDGRAD_DATA='/work/my data'", f"cd {shlex.quote(os.getcwd())} || exit 1",
    ):  # fmt: skip
        assert lines.count(line) == 1, line
    assert "export OMP_NUM_THREADS=8 " in text and "export SRUN_CPUS_PER_TASK=8 " in text
    assert "--mpi=pmi2" in text and "--cpu-bind=cores" in text and "HOME" not in text
    assert "--mpi=pmix" in written("--library", "openmpi")
    alone = written("--mpi", "srun")
    assert "    srun\n    --cpu-bind=cores" in alone and "--mpi=" not in alone and "SRUN_CPUS_PER_TASK" in alone


def test_what_a_script_of_pbs_asks_for():
    text = written("--system", "pbs", "--nodes", 2, "--ranks-per-node", 4, "--cores", 3, "--time", 90, "--partition", "workq",
                   "--gpus", 2, "--mem", "64G", "--constraint", "system=polaris", "--directive", "-m n")  # fmt: skip
    for line in (
        "#PBS -l select=2:ncpus=12:mpiprocs=4:ompthreads=3:ngpus=2:mem=64gb:system=polaris",
        "#PBS -l place=scatter",
        "#PBS -m n",
        "#PBS -l walltime=01:30:00",
        "#PBS -q workq",
        "#PBS -r n",
    ):
        assert line in text.splitlines()
    assert "place=" not in written("--system", "pbs") and "threads-per-core" not in text


@pytest.mark.parametrize("name", [*FRONT, *(f"{STUDY} {name}" for name in studies())])
def test_every_program_has_a_parser(name):
    assert parser_of(name.removeprefix(f"{STUDY} ")).prog == f"gridgrad {name}"


@pytest.mark.parametrize(
    ("device", "nodes", "ranks", "gpus"),
    [
        ("gpu", 2, 4, 4),
        ("cpu", 1, 4, 0),
        ("auto", 1, 4, 0),
        ("gpu,cpu", 1, 4, 2),
        ("gpu,cpu,cpu", 2, 2, 1),  # one on each node
        ("gpu,gpu,cpu", 2, 2, 2),
        ("cpu,gpu,gpu", 3, 4, 3),  # 2, 3 and 3 on the nodes
    ],
)
def test_gpus_are_asked_for_where_ranks_use_them(device, nodes, ranks, gpus):
    supervised = "supervise", "--", "train", "--checkpoint", "c", "--device", device
    for program in (("train", "--device", device), ("train", "--device", "cpu", f"--device={device}"), supervised):
        text = written("--nodes", nodes, "--ranks-per-node", ranks, program=program)
        assert (f"#SBATCH --gpus-per-node={gpus}\n" in text) == bool(gpus) and "--gpus-per-node=0" not in text
        assert "#SBATCH --gpus-per-node=7\n" in written(
            "--nodes", nodes, "--ranks-per-node", ranks, "--gpus", 7, program=program
        )


@pytest.mark.parametrize("library", ["mpich", "openmpi"])
@pytest.mark.parametrize("program", [TRAIN, ("supervise", "--", *TRAIN)])
@pytest.mark.parametrize("more", [(), ("--mpi", "mpiexec"), ("--system", "mpirun")])
def test_check_runs_first_on_all_ranks(more, program, library):
    text = written("--nodes", 2, "--ranks-per-node", 4, "--library", library, *more, program=program)
    assert words_of(text, "check")[-4:] == ["gridgrad", "check", "--ranks", "8"]
    assert text.index('"${launcher[@]}" "${check[@]}" || {') < text.index("program=(")
    if "srun" not in words_of(text, "launcher"):
        assert "-n 8 " in " ".join(words_of(text, "launcher"))
    assert "check=(" not in written(program=("check",))


def test_a_job_whose_check_fails_starts_nothing_and_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("MPIEXEC", "/bin/true")
    text = written("--system", "mpirun").replace("/bin/true", "mpiexec")
    process = run_with(tmp_path, text, 'echo "$*" >> "$HERE/started"; exit 2\n', checked=False)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 2 and not stdout
    assert stderr == "the job ends with status 2, and the program was not started: above, check says what is wrong\n"
    [line] = (tmp_path / "started").read_text().splitlines()
    assert line.endswith("gridgrad check --ranks 1")


@pytest.mark.parametrize(
    ("library", "words"),
    [("mpich", "-n 8 -ppn 4 -bind-to core:3"), ("openmpi", "-n 8 --map-by ppr:4:node:pe=3 --bind-to core")],
)
def test_ranks_are_bound_to_cores_of_their_own(library, words, monkeypatch):
    monkeypatch.setenv("MPIEXEC", f"{sys.executable} --first")
    text = written("--system", "mpirun", "--nodes", 2, "--ranks-per-node", 4, "--cores", 3, "--library", library)
    assert words_of(text, "launcher") == shlex.split(f"{sys.executable} --first {words}")
    sweeps = written("--system", "mpirun", "--cores", 3, "--library", library, program=SWEEP)
    each = "--map-by slot:pe=3 --bind-to core" if library == "openmpi" else "-bind-to core:3"
    assert f"export MPIEXEC='{sys.executable} --first {each}'" in sweeps


def test_variables_whose_names_are_no_names_are_left_out(tmp_path):
    text = written("--folder", "/a'b$(touch x)", environ={"GRIDGRAD_A;touch x;B": "1", "GRIDGRAD_C": "$(touch x)"})
    check_script(text)
    assert "GRIDGRAD_A" not in text and "GRIDGRAD_C='$(touch x)'" in text and shlex.quote("/a'b$(touch x)") in text


def test_the_signal_comes_to_the_ranks_or_is_passed_on_by_the_shell():
    assert "#SBATCH --signal=USR1@120\n" in (direct := written("--kind", "requeue", "--warn", 120)) and "trap" not in direct
    assert "#SBATCH --signal=B:USR1@120\n" in (passed := written("--kind", "requeue", "--warn", 120, "--mpi", "mpiexec"))
    assert "trap" in passed and "--open-mode=append" in passed and "#SBATCH --requeue" in passed
    assert "B:USR1@300" in written("--kind", "requeue", program=SWEEP)  # it starts jobs itself
    pbs = written("--kind", "requeue", "--system", "pbs", "--out", "job.sh", "--time", 60)
    assert 'timeout --foreground --preserve-status --signal=USR1 "$((3300 - SECONDS))" ' in pbs


def test_one_command_line_starts_and_goes_on():
    for given in (("--checkpoint", "c"), ("--checkpoint=c",), ("--checkpoint", "c", "--resume", "c")):
        text = written("--kind", "requeue", program=("train", *given))
        assert text.count("--resume c\n") == 1
    assert "--resume" not in written("--kind", "single")


AWKWARD = ["a b", "it's", '"$HOME"', "$(touch /tmp/x)", "`id`", "a\\b", "", "*", "ä"]
FOLDERS = [word for folder in AWKWARD for word in ("--data-dir", folder)]


def test_arguments_reach_the_program_as_they_are(tmp_path, monkeypatch):
    """On plain mpirun the script is run, with a launcher that says what it was to start."""
    echo = tmp_path / "my launcher"
    echo.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'import json, sys; print(json.dumps(sys.argv[1:]))' \"$@\"\n")
    echo.chmod(0o755)
    (tmp_path / "my folder").mkdir()
    monkeypatch.chdir(tmp_path / "my folder")
    monkeypatch.setenv("MPIEXEC", shlex.quote(str(echo)))
    text = written("--system", "mpirun", "--library", "mpich", program=("train", *FOLDERS))
    found = subprocess.run(["bash", "-c", text], capture_output=True, text=True)
    assert json.loads(found.stdout.splitlines()[-1]) == ["-n", "1", "-ppn", "1", "-bind-to", "core:1", sys.executable, "-m",
                                        "gridgrad", "train", *FOLDERS]  # fmt: skip


def run_with(tmp_path, text, program, checked=True, **variables):
    """Run a script in which `program`, a shell script, takes the place of mpiexec and of all commands of batch systems.

    checked: whether `check` succeeds, instead of being `program` too.
    """
    for name in ("mpiexec", "srun", "scontrol", "qsub"):
        (tmp_path / name).write_text(
            "#!/bin/bash\n" + (CHECKED * checked + program if name in ("mpiexec", "srun") else f'echo {name} "$@"\n')
        )
        (tmp_path / name).chmod(0o755)
    (tmp_path / "job.sh").write_text(text)
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HERE": str(tmp_path)} | variables
    return subprocess.Popen(
        ["bash", str(tmp_path / "job.sh")], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize(
    ("status", "restarts", "said", "system"),
    [
        (75, "0", "stopped early, to go on after a requeue\nscontrol requeue 12\n", "slurm"),
        (138, "0", "stopped early, to go on after a requeue\nscontrol requeue 12\n", "slurm"),  # killed by the signal
        (75, "3", "not requeued, after 3 restarts", "slurm"),
        (0, "0", "", "slurm"),
        (2, "0", "", "slurm"),
        (75, "0", "stopped early, to go on in the next job\nqsub -v RESTART=1 ", "pbs"),
        (75, "3", "not submitted again, after 3 restarts", "pbs"),
        (1, "0", "", "pbs"),
    ],
)
@pytest.mark.parametrize("mpi", [(), ("--mpi", "mpiexec")])
def test_what_follows_the_end_of_a_job(status, restarts, said, system, mpi, tmp_path, monkeypatch):
    monkeypatch.setenv("MPIEXEC", "/bin/true")
    options = "--kind", "requeue", "--system", system, "--restarts", 3, "--out", tmp_path / "job.sh"
    text = written(*options, *mpi).replace("/bin/true", "mpiexec")
    counts = {"SLURM_RESTART_COUNT": restarts, "RESTART": restarts, "SLURM_JOB_ID": "12"}
    process = run_with(tmp_path, text, f"exit {status}\n", **counts)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == status
    assert (stdout + stderr).startswith(said) and bool(said) == bool(stdout + stderr)


LISTENS = """
trap 'echo told; sleep 0.2; exit 75' USR1
echo ready
for i in {1..300}; do sleep 0.1; done
"""


def test_the_shell_passes_the_signal_on_and_waits(tmp_path, monkeypatch):
    monkeypatch.setenv("MPIEXEC", "/bin/true")
    text = written("--kind", "requeue", "--mpi", "mpiexec").replace("/bin/true", "mpiexec")
    process = run_with(tmp_path, text, LISTENS, SLURM_JOB_ID="12")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGUSR1)
    stdout, stderr = process.communicate(timeout=60)
    assert stdout.startswith("told\n") and stdout.endswith("scontrol requeue 12\n") and process.returncode == 75, stderr


CHECKS = 'echo ready; read -r < "$HERE/go"\n'


def test_after_a_signal_during_the_check_the_program_is_not_started(tmp_path, monkeypatch):
    monkeypatch.setenv("MPIEXEC", "/bin/true")
    os.mkfifo(tmp_path / "go")
    text = written("--kind", "requeue", "--mpi", "mpiexec").replace("/bin/true", "mpiexec")
    process = run_with(tmp_path, text, CHECKS, checked=False, SLURM_JOB_ID="12")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGUSR1)
    (tmp_path / "go").write_text("go\n")
    stdout, stderr = process.communicate(timeout=60)
    assert stdout == "stopped early, to go on after a requeue\nscontrol requeue 12\n", stderr
    assert process.returncode == 128 + signal.SIGUSR1


@pytest.mark.parametrize(
    ("ends", "starts", "status"), [("1 0", 2, 0), ("75", 1, 75), pytest.param("1 1 1", 2, 1, marks=pytest.mark.long)]
)
def test_a_plain_job_is_started_again_by_supervise(ends, starts, status, tmp_path, monkeypatch):
    monkeypatch.setenv("MPIEXEC", "/bin/true")
    train = "train", "--checkpoint", str(tmp_path / "c"), "--grid", "model=2"
    text = written("--kind", "requeue", "--system", "mpirun", "--restarts", 1, "--ranks-per-node", 2, program=train)
    words = words_of(text, "program")
    assert words[3:-2] == ["supervise", "--ranks", "2", "--grid", "model=2", "--retries", "1", "--", "train"]
    here = '"$HERE/starts"'
    complete = 'mkdir -p "$HERE/c"; touch "$HERE/c/complete"'  # as train does at its end, which counts with a status of 0
    program = f'[ "$1" = --version ] && exit\nends=({ends})\n{complete}\necho >> {here}\n'
    program += f'exit "${{ends[$(wc -l < {here}) - 1]}}"\n'
    process = run_with(tmp_path, text.replace("/bin/true", str(tmp_path / "mpiexec")), program)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == status and len((tmp_path / "starts").read_text()) == starts, stderr


@pytest.mark.parametrize(("text", "limit"), [("1-12:00:00", "36:00:00"), ("2-0", "48:00:00"), ("0-1:30", "01:30:00")])
def test_days_of_a_time_limit_are_written_as_hours(text, limit):
    assert f"#SBATCH --time={limit}\n" in written("--time", text)
    assert f"#PBS -l walltime={limit}\n" in written("--system", "pbs", "--time", text)


@pytest.mark.parametrize(("ranks", "noted"), [("1,2", True), ("1,3", False)])
def test_a_sweep_that_uses_few_of_the_ranks_is_noted(monkeypatch, capsys, ranks, noted):
    monkeypatch.setattr(sys, "argv", ["slurm", "--nodes", "4", "--dry-run", "sweep", "--schemes", "batch", "--ranks", ranks])
    slurm.main()
    words = "slurm: note: the largest run has 2 ranks, and the job asks for 4: fewer would do\n"
    assert capsys.readouterr().err == words * noted


def test_gpus_of_a_sweep_are_those_of_its_largest_run(tmp_path):
    (tmp_path / "study.toml").write_text('ranks = [1, 2, 4]\ndevice = ["cpu", "gpu"]\n')
    for options, line in (
        ("", "#SBATCH --gpus-per-node=4"), ("--system pbs", ":ngpus=4"), ("--site perlmutter", "#SBATCH --gpus-per-node=4"),
        ("--site juwels", "#SBATCH --gres=gpu:4"),
    ):  # fmt: skip
        assert line in written(*options.split(), "--ranks-per-node", 4, program=("sweep", str(tmp_path / "study.toml")))
    words = "sweep", "--vary", "device=gpu,cpu", "--ranks", "4"
    assert "--gpus-per-node=2\n" in written("--ranks-per-node", 4, program=words)


def test_a_script_of_ones_own_is_run_with_its_own_options(tmp_path, monkeypatch):
    """Also without -- in front of it; where the job runs in another folder, the script is named by its whole path."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("")
    mine = "mine.py", "--nodes", "3", "--directive", "x"
    args = slurm.options().parse_args(["--nodes", "2", "--directive", "--exclusive", "--gpus", "1", *mine])
    text = script(slurm.job_of(args), {})
    assert words_of(text, "program") == [sys.executable, "-m", "mpi4py", *mine]
    assert words_of(text, "check")[-2:] == ["--ranks", "2"] and words_of(text, "launcher")[0] == "srun"
    for line in ("--nodes=2", "--exclusive", "--gpus-per-node=1", "--job-name=mine"):
        assert f"#SBATCH {line}\n" in text
    check_script(text)
    assert words_of(written("--folder", "/x", program=mine), "program")[3] == str(tmp_path / "mine.py")
    assert words_of(written("--site", "lumi", program=mine), "program")[:4] == [
        "python",
        "-m",
        "mpi4py",
        str(tmp_path / "mine.py"),
    ]
    assert words_of(written(program=("json.tool", "-h")), "program")[1:] == ["-m", "json.tool", "-h"]
    assert "--signal=USR1@300" in written("--kind", "requeue", program=mine)


@pytest.mark.parametrize(
    ("options", "program", "message"),
    [
        ("--time 1x", "train", "must be hours:minutes:seconds, days-hours:minutes:seconds or whole minutes"),
        ("--time 1-24:00:00", "train", "must be hours:minutes:seconds, days-"),
        ("--time 4:30", "train", "must be hours:minutes:seconds, days-"),
        ("--time 0:00:30", "train", "at least a minute"),
        (f"--time {10**30}", "train", "must be hours:minutes:seconds, days-"),
        ("--partition 'a b'", "train", "must be letters, digits"),
        ("--name '$(id)'", "train", "must be letters, digits"),
        ("--account --no", "train", "expected one argument"),
        ("--setup 'a\nb'", "train", "must be a text of one line"),
        ("--setup 'echo \"'", "train", "no shell script, because of a line of --setup"),
        ("", "trainn", "there is no program trainn (did you mean train?): give the name of one"),
        ("", "train --data-dir 'a\nb'", "must each be one line"),
        ("--kind array", "train", "--kind array divides a sweep"),
        ("--kind array", "sweep --part 1/2", "--kind array divides a sweep"),
        ("--kind requeue", "train", "add --checkpoint DIR behind train"),
        ("--kind requeue", "train --checkpoint a --resume b", "--resume b would always go on from there"),
        ("--mem 64", "train", "must be 0, for all, or a whole number and K, M, G or T"),
        ("--directive exclusive", "train", "must be one option of the batch system, such as --exclusive"),
        ("--directive '--a\nb'", "train", "must be one option of the batch system"),
        ("--directive", "train", "argument --directive: expected one argument"),
        ("--folder 'a\nb'", "train", "must each be one line"),
        ("", "train --nosuchoption", "train: unrecognized arguments: --nosuchoption (see gridgrad train --help)"),
        (
            "",
            "study protocols --nosuchoption",
            "protocols: unrecognized arguments: --nosuchoption (see gridgrad study protocols",
        ),
        ("", "study nosuch", "there is no study nosuch"),
        ("", "summary --steps x", "summary: argument --steps: must be a whole number"),
        ("--ranks-per-node 4", "train --grid batch=3", "train: the grid batch=3 has 3 places but the number of ranks is 4"),
        ("--nodes 2 --ranks-per-node 2", "train --grid rows=4", "train: grid 'rows=4'"),
        ("", "train --protocol sync:3", "there is no protocol 'sync:3'"),
        ("", "train --optimizer adam --nesterov", "--nesterov is no option of adam"),
        ("", "train --checkpoint-steps 3", "needs --checkpoint DIR"),
        ("", "train --slow 0=2", "train: --slow is gone: --handicap"),
        ("", "train --handicap 1=2", "with a rank below 1"),
        ("", "train --device tpu", "unknown device 'tpu'"),
        ("", "train --device gpu,cpu", "lists 2 devices, but the number of ranks is 1"),
        ("--ranks-per-node 4", "train --device hybrid", "say how many with --gpus, or a --site that has some"),
        ("--nodes 2", "sweep --ranks 1,4", "sweep: the run on the grid batch=4,model=1 has 4 ranks but the whole job only 2"),
        ("", "sweep no-such.toml", "sweep: no-such.toml: No such file"),
        ("", "sweep --schemes rows", "sweep: setting schemes[0] must be one of batch"),
        ("", "sweep --schemes 2d --ranks 3", "sweep: there is nothing to run"),
        ("", "sweep --shape 4", "go with --predict"),
        ("", "supervise -- train", "supervise: the training can not go on without checkpoints"),
        ("", "supervise --ranks 2 -- train --checkpoint c", "supervise: the training has 2 ranks but the whole job only 1"),
        ("", "supervise --grid model=2 --ranks 1 -- train --checkpoint c", "supervise: none of the grids fits on 1 rank"),
        ("", "supervise -- train --checkpoint c --nosuch", "supervise: train: unrecognized arguments: --nosuch"),
        ("", "launch 2 train", "launch: the job of train has 2 ranks but the whole job only 1"),
        (
            "--ranks-per-node 4",
            "launch 2 train --grid batch=4",
            "launch: train: the grid batch=4 has 4 places but the number of ranks is 2",
        ),
        ("", "launch x train", "launch: the number of ranks"),
        ("", "check --ranks 2", "check: --ranks 2 is not the number of ranks of the job, 1"),
        ("", "reproduce marques2016", "reproduce: the largest run (see --ranks) has 4 ranks but the whole job only 1"),
        ("", "reproduce all --full", "reproduce: the largest run (see --ranks) has 4 ranks"),
        ("--kind requeue", "calibrate", "calibrate can not go on where it stopped"),
        ("--kind requeue --time 5", "train --checkpoint a", "--warn 300 s is not shorter than --time"),
        ("--kind requeue --system pbs", "train --checkpoint a", "name it with --out"),
        (
            "--kind requeue --system mpirun",
            "sweep --ranks 1",
            "only train is started again, not sweep: use --kind single",
        ),
        ("--system mpirun --account a", "train", "--account is for batch systems"),
        ("--system pbs --qos a", "train", "--qos is Slurm's"),
        ("--system pbs --mem 0", "train", "--mem 0 is Slurm's"),
        ("--system mpirun --gpus 1", "train", "--gpus is for batch systems"),
        ("--system pbs --mpi pmix", "train", "--mpi pmix is for srun"),
        ("--kind array", "json.tool", "--kind array divides a sweep"),
        ("--kind requeue --system mpirun", "json.tool", "only train is started again, not json.tool"),
        ("", "mine.py", "there is no program mine.py: give the name of one, such as train, a file such as mine.py"),
        ("", "", "name the program that is run"),
    ],
)
def test_bad_input_is_refused(options, program, message, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["slurm", *shlex.split(options), "--", *shlex.split(program)])
    with pytest.raises(UserError) as caught:
        slurm.main()
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_the_script_is_written_and_said_how_to_start(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["slurm", "--out", str(tmp_path / "a b.sh"), "--", "train"])
    slurm.main()
    assert capsys.readouterr().out == f"{tmp_path / 'a b.sh'} written: look through it, then sbatch {tmp_path / 'a b.sh'}\n"
    assert f"Start it with: sbatch '{tmp_path / 'a b.sh'}'" in (tmp_path / "a b.sh").read_text()


def test_a_dry_run_says_what_a_job_may_use_and_writes_nothing(tmp_path, monkeypatch, capsys):
    """4 nodes of 2 ranks with 3 cores, for half an hour: 2 node-hours and 12 core-hours a start."""
    asked = "--nodes", "4", "--ranks-per-node", "2", "--cores", "3", "--time", "30", "--out", str(tmp_path / "job.sh")
    cases = {
        ("--kind", "requeue", "--warn", "60", "--restarts", "2", "--gpus", "1", "--", *TRAIN): ("3", "2", "6", "12", "36", "6"),
        ("--kind", "array", "--parts", "5", "--", *SWEEP): ("5", "2", "10", "12", "60", "0"),
        ("--", *TRAIN): ("1", "2", "2", "12", "12", "0"),
    }
    for words, (starts, nodes, all_nodes, cores, all_cores, all_gpus) in cases.items():
        monkeypatch.setattr(sys, "argv", ["slurm", *asked, "--dry-run", *words])
        slurm.main()
        *lines, _, end = capsys.readouterr().out.splitlines()
        rows = {line[:22].strip(): line[22:].split() for line in lines}
        assert rows["starts, at most"] == ["1", starts] and rows["node-hours, at most"] == [nodes, all_nodes]
        assert rows["core-hours, at most"] == [cores, all_cores] and rows["GPU-hours, at most"][1] == all_gpus
        assert (rows["nodes"], rows["ranks"], rows["cores"]) == (["4"], ["8"], ["24"])
        assert rows["time limit, h:min:s"] == ["00:30:00"]
        assert f"would write {tmp_path / 'job.sh'}, " in end and "sbatch" in end
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(sys, "argv", ["slurm", "--system", "mpirun", "--dry-run", "--", "train"])
    slurm.main()
    assert capsys.readouterr().out.count("no limit") == 7
