"""What is known of computing centres, which can not be run here: the page says so, and names its sources; each has a script."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from gridgrad.experiments import slurm
from gridgrad.experiments.parts import slurm_script
from gridgrad.experiments.parts.slurm_script import script

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "sites.md"
BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DEFINITION = re.compile(r"^\[([\w-]+)\]: (https://\S+)$", re.MULTILINE)


def written(command):
    """(the options of a command that writes a job script, the script)."""
    words = shlex.split(command.replace("\\\n", ""))
    args = slurm.options().parse_args(words[2:])
    return args, script(slurm.job_of(args), {})


def test_the_page_says_that_nobody_ran_it_and_cites_each_of_its_sources():
    text = PAGE.read_text()
    assert "**not run here" in text[:200].lower()
    addresses = dict(DEFINITION.findall(text))
    assert len(set(addresses.values())) == len(addresses)
    assert set(re.findall(r"\]\[([\w-]+)\]", DEFINITION.sub("", text))) == set(addresses)
    assert max(map(len, DEFINITION.sub("", text).splitlines())) <= 128


def test_blocks_are_shell_scripts():
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) == len(slurm_script.site_names())
    for block in blocks:
        found = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True, timeout=60)
        assert not found.returncode and not found.stderr, found.stderr


@pytest.mark.parametrize("name", slurm_script.site_names())
def test_each_site_has_a_paragraph_notes_with_sources_and_a_script(name):
    """Directives behind the first command are ignored by Slurm and PBS."""
    page, site = PAGE.read_text(), slurm_script.read_site(name)
    assert f"\n## {name}\n" in page.lower() and f"[`{name}`](#{name})" in page
    assert {tag for note in site.notes for tag in re.findall(r"\[([\w-]+)\]", note)} == set(site.sources)
    assert "not run" in site.notes[0]
    _, text = written(f"gridgrad slurm --site {name} --nodes 2 --ranks-per-node 32 train --net mlp:8,relu")
    lines = [line for line in text.splitlines() if line and not re.match(r"#([^SP]|$)", line)]
    directives = [line.startswith(("#SBATCH ", "#PBS ")) for line in lines]
    assert any(directives) and directives == sorted(directives, reverse=True)
    found = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, timeout=60)
    assert not found.returncode and not found.stderr, found.stderr


TRAIN = "-- train --net mlp:8,relu"


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (f"--site lumi --account project_1 {TRAIN}", ["#SBATCH --account=project_1", 'cd "/scratch/project_1/runs" || exit 1']),
        (f"--site lumi --partition small --mem 8G {TRAIN}", ["#SBATCH --partition=small", "#SBATCH --mem=8G"]),
        (f"--site lumi --folder 'my runs' {TRAIN}", ["cd 'my runs' || exit 1"]),
        (f"--site lumi --ranks-per-node 32 {TRAIN}", ["#SBATCH --cpus-per-task=4", "export SRUN_CPUS_PER_TASK=4  # srun"]),
        (f"--site archer2 --setup true {TRAIN}", ["source /work/CODE/CODE/USER/gridgrad-venv/bin/activate\ntrue\n"]),
        (f"--site perlmutter --ranks-per-node 4 {TRAIN} --device gpu", ["#SBATCH --gpus-per-node=4", "#SBATCH --constraint=gpu",
            'export MPICH_GPU_SUPPORT_ENABLED="1"', "#SBATCH --cpus-per-task=32"]),
        (f"--site perlmutter --ranks-per-node 8 {TRAIN} --device gpu", ["#SBATCH --gpus-per-node=4"]),  # two ranks on each
        (f"--site perlmutter --ranks-per-node 8 {TRAIN} --device hybrid", ["#SBATCH --gpus-per-node=4"]),
        (f"--site perlmutter --gpus 2 {TRAIN}", ["#SBATCH --gpus-per-node=2", "#SBATCH --constraint=gpu"]),
        (f"--site polaris --nodes 3 --ranks-per-node 4 {TRAIN} --device gpu", ["#PBS -l select=3:system=polaris\n",
            "#PBS -l place=scatter", "    -n 12\n    --ppn 4\n    --depth=8\n"]),
        ("--site polaris --ranks-per-node 2 -- sweep --ranks 1,2",
            ["export MPIEXEC='mpiexec --ppn 2 --depth=16 --cpu-bind depth'", "    -n 2\n    --ppn 2\n"]),
        ("--site lumi --ranks-per-node 2 -- sweep --ranks 1,2", ["export MPIEXEC='srun --cpu-bind=cores'"]),
    ],
)  # fmt: skip
def test_options_come_before_what_a_site_says(words, lines):
    _, text = written(f"gridgrad slurm {words}")
    assert [line for line in lines if line not in text] == []


MINE = """
name = "mine"
system = "slurm"
launcher = ["srun", "--ntasks={ranks}"]
cores = 8
"""


def test_a_file_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(MINE + 'setup = ["echo {nodes} ${HOME}"]\n')
    _, text = written(f"gridgrad slurm --site mine.toml --nodes 2 --ranks-per-node 4 {TRAIN}")
    assert "# For mine:" in text and "echo 2 ${HOME}" in text and "    srun\n    --ntasks=8\n" in text
    assert f"cd {shlex.quote(str(tmp_path))} || exit 1" in text and "--threads-per-core" not in text


@pytest.mark.parametrize(
    ("line", "words", "message"),
    [
        ("nam = 'x'", "", "mine.toml has the unknown entry nam: there are name, system, launcher"),
        ("cores = 9", "", "mine.toml is no TOML file: Cannot overwrite a value"),
        ("gpus = -1", "", "mine.toml.gpus must be a whole number of at least 0, not -1"),
        ("partition = 'a b'", "", "mine.toml.partition must be letters, digits and any of"),
        ("mem = '64'", "", "mine.toml.mem must be 0, for all, or a whole number and K, M, G or T"),
        ("directives = ['exclusive']", "", "mine.toml.directives[0] must be one option of the batch system"),
        ("setup = 'module load gcc'", "", "mine.toml.setup must be a list"),
        ('setup = ["a\\nb"]', "", "mine.toml.setup[0] must be a text of one line"),
        ("variables = { A = 1 }", "", "mine.toml.variables.A must be a line for bash to fill in variables, without"),
        ("variables = { A = '$(x)' }", "", "mine.toml.variables.A must be a line for bash to fill in variables, without"),
        ('folder = "a`b`"', "", "mine.toml.folder must be a line for bash to fill in variables, without"),
        ("sources = { \"a\\nb\" = 'x' }", "", "mine.toml.sources has an entry whose name can not be printed"),
        ("variables = { 'A B' = 'x' }", "", "mine.toml has the variable 'A B': a name is letters, digits and _"),
        ("gpu = 1", "", "mine.toml.gpu must be an object"),
        ("[gpu]\ngpus = 'x'", "", "mine.toml.gpu.gpus must be a whole number of at least 0"),
        ("[gpu]\nsystem = 'pbs'", "", "[gpu] has the unknown entry system"),
        ("setup = ['echo {node}']", "", "'echo {node}' has {node}, which is none of {account}, {nodes}"),
        ("setup = ['echo {account}']", "", "'echo {account}' has {account}: add --account"),
        ("", "--ranks-per-node 9", "a node of mine has 8 cores, and 9 ranks with --cores 1 need 9"),
        ("", "--ranks-per-node 3 --cores 3", "a node of mine has 8 cores, and 3 ranks with --cores 3 need 9"),
        ("", "--gpus 1", "1 GPUs of each node are wanted, but a node of mine has none for gridgrad"),
        ("gpus = 2", "--gpus 3", "3 GPUs of each node are wanted, but a node of mine has 2"),
        ("", "--system pbs", "--system pbs is not that of mine.toml, which is slurm"),
        ("", "--mpi pmix", "--mpi: the site says how ranks are started"),
    ],
)
def test_a_file_of_ones_own_that_is_wrong_is_refused(line, words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(f"{MINE}{line}\n")
    with pytest.raises(ValueError) as caught:
        written(f"gridgrad slurm --site mine.toml {words} {TRAIN}")
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "mine.toml has no entry name"), ("name = 'x'\nsystem = 'lsf'\n", "mine.toml.system must be one of slurm, pbs")],
)
def test_a_file_must_say_some_things(content, message, tmp_path):
    (tmp_path / "mine.toml").write_text(content)
    with pytest.raises(ValueError, match=message):
        slurm_script.read_site(tmp_path / "mine.toml")
    with pytest.raises(ValueError, match="there is no site lumy: use one of alps, "):
        slurm_script.read_site("lumy")
    with pytest.raises(OSError):
        slurm_script.read_site(tmp_path / "no.toml")
