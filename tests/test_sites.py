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
DEFINITION = re.compile(r"^\[([\w-]+)\]: (https://\S+)$", re.MULTILINE)
TRAIN = "-- train --net mlp:8,relu"
MINE = 'name = "mine"\nsystem = "slurm"\nlauncher = ["srun", "--ntasks={ranks}"]\ncores = 8\n'


def written(command):
    """The job script that a command writes."""
    return script(slurm.job_of(slurm.options().parse_args(shlex.split(command)[2:])), {})


def understood(text):
    """Fail unless a text is a script of the shell."""
    found = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, timeout=60)
    assert not found.returncode and not found.stderr, found.stderr


def test_the_page_says_that_nobody_ran_it_and_cites_each_of_its_sources():
    text = PAGE.read_text()
    assert "**not run here" in text[:200].lower()
    addresses = dict(DEFINITION.findall(text))
    assert len(set(addresses.values())) == len(addresses)
    assert set(re.findall(r"\]\[([\w-]+)\]", DEFINITION.sub("", text))) == set(addresses)


@pytest.mark.parametrize("name", slurm_script.site_names())
def test_each_site_has_a_paragraph_notes_with_sources_and_a_script(name):
    """Directives behind the first command are ignored by Slurm and PBS."""
    page, site = PAGE.read_text(), slurm_script.read_site(name)
    assert f"[`{name}`](#{name})" in page
    section = re.split(rf"\n## {name}\n", page, flags=re.IGNORECASE)[1].split("\n## ")[0]
    [block] = re.findall(r"^```bash\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    understood(block)
    cited = {tag for note in site.notes for tag in re.findall(r"\[([\w-]+)\]", note)}
    assert "not run" in site.notes[0] and cited == set(site.sources)
    text = written(f"gridgrad slurm --site {name} --nodes 2 --ranks-per-node 32 train --net mlp:8,relu")
    lines = [line for line in text.splitlines() if line and not re.match(r"#([^SP]|$)", line)]
    directives = [line.startswith(("#SBATCH ", "#PBS ")) for line in lines]
    assert any(directives) and directives == sorted(directives, reverse=True)
    understood(text)


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (f"--site perlmutter --ranks-per-node 4 {TRAIN} --device gpu", ["#SBATCH --gpus-per-node=4", "#SBATCH --constraint=gpu",
            'export MPICH_GPU_SUPPORT_ENABLED="1"', "#SBATCH --cpus-per-task=32"]),
        (f"--site polaris --nodes 3 --ranks-per-node 4 {TRAIN} --device gpu", ["#PBS -l select=3:system=polaris\n",
            "    -n 12\n    --ppn 4\n    --depth=8\n"]),
    ],
)  # fmt: skip
def test_options_come_before_what_a_site_says(words, lines):
    text = written(f"gridgrad slurm {words}")
    assert [line for line in lines if line not in text] == []


def test_a_file_of_ones_own_is_followed_or_refused_in_a_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(MINE + 'setup = ["echo {nodes} ${HOME}"]\n')
    text = written(f"gridgrad slurm --site mine.toml --nodes 2 --ranks-per-node 4 {TRAIN}")
    assert "echo 2 ${HOME}" in text and "    srun\n    --ntasks=8\n" in text and "--threads-per-core" not in text
    wrong = (  # a line of the file, options, a word of the refusal
        ("nam = 'x'", "", "nam"),
        ("setup = ['echo {account}']", "", "--account"),
        ("", "--ranks-per-node 3 --cores 3", "8 cores"),
        ("gpus = 2", "--gpus 3", "GPUs"),
        ("", "--site lumy", "there is no site lumy: use one of alps, "),
    )
    for line, words, named in wrong:
        Path("mine.toml").write_text(f"{MINE}{line}\n")
        with pytest.raises(ValueError) as caught:
            written(f"gridgrad slurm --site mine.toml {words} {TRAIN}")
        assert named in str(caught.value) and "\n" not in str(caught.value)
