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
        (f"--site perlmutter --ranks-per-node 4 {TRAIN} --device gpu", ["#SBATCH --gpus-per-node=4", "#SBATCH --constraint=gpu",
            'export MPICH_GPU_SUPPORT_ENABLED="1"', "#SBATCH --cpus-per-task=32"]),
        (f"--site polaris --nodes 3 --ranks-per-node 4 {TRAIN} --device gpu", ["#PBS -l select=3:system=polaris\n",
            "#PBS -l place=scatter", "    -n 12\n    --ppn 4\n    --depth=8\n"]),
        ("--site polaris --ranks-per-node 2 -- sweep --ranks 1,2",
            ["export MPIEXEC='mpiexec --ppn 2 --depth=16 --cpu-bind depth'", "    -n 2\n    --ppn 2\n"]),
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
    ("line", "words", "named"),
    [
        ("nam = 'x'", "", "nam"),
        ("cores = 9", "", "mine.toml"),  # a second time
        ("gpus = -1", "", "gpus"),
        ("setup = 'module load gcc'", "", "setup"),
        ('setup = ["a\\nb"]', "", "setup[0]"),
        ("variables = { A = '$(x)' }", "", "variables.A"),
        ("sources = { \"a\\nb\" = 'x' }", "", "sources"),
        ("setup = ['echo {node}']", "", "{node}"),
        ("setup = ['echo {account}']", "", "--account"),
        ("", "--ranks-per-node 3 --cores 3", "8 cores"),
        ("gpus = 2", "--gpus 3", "GPUs"),
        ("", "--system pbs", "--system"),
    ],
)
def test_a_file_of_ones_own_that_is_wrong_is_refused(line, words, named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(f"{MINE}{line}\n")
    with pytest.raises(ValueError) as caught:
        written(f"gridgrad slurm --site mine.toml {words} {TRAIN}")
    assert named in str(caught.value) and "\n" not in str(caught.value)


def test_a_site_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="there is no site lumy: use one of alps, "):
        slurm_script.read_site("lumy")
