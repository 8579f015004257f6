"""The documents: README and tutorial run, all other commands are understood, links lead somewhere.

A command is a line of a ```sh block, or a piece of `code` in the text that begins like one. Those of README and tutorial run
in one folder that looks like the repository, so that a command finds the files which those before it wrote; `SHORT` makes them
short.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gridgrad.experiments.common.programs import FRONT, STUDY, parser_of, studies
from gridgrad.experiments.launching.start_ranks import mpiexec
from tests.datasets.made_up_mnist import write_mnist
from tests.docs.pages import BLOCK, PAGES, ROOT

RUN = [ROOT / "README.md", ROOT / "docs" / "tutorial.md"]
RESULTS = [ROOT / "CHANGELOG.md", *sorted((ROOT / "results").rglob("*.md"))]
PROGRAMS = ROOT / "docs" / "extending"  # pages whose blocks of Python are one program: see tests/docs/test_extending.py
BEGINNINGS = "gridgrad ", "make ", "mpiexec ", "python ", "sudo ", ".venv/"
LINK = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")
LIMIT = 600  # seconds of a command
SHORT = {  # what is put behind the options of a command that begins so
    "gridgrad train": "--epochs 1",
    "mpiexec -n 2 gridgrad train": "--epochs 1",
    "gridgrad launch 4 train": "--steps 2",
    "gridgrad sweep": "--nets mlp:8,relu --schemes batch --steps 6 --repeats 1",
    "gridgrad explain": "--ranks 8",
    "make": "--dry-run",  # it sets up an environment, or takes minutes
}


def commands(page):
    """The commands of a page, in their order, each on one line without comments."""
    text = page.read_text()
    found = [command for language, block in BLOCK.findall(text) if language == "sh" for command in lines_of(block)]
    inline = re.findall(r"`([^`\n]+)`", BLOCK.sub("", text))
    return found + [code for code in inline if code.startswith(BEGINNINGS) and " " in code]


def lines_of(block):
    lines = re.sub(r"\\\n\s*", "", block).splitlines()
    return [line for line in (re.sub(r"\s+#.*$", "", line).strip() for line in lines) if line]


def parsed(words):
    """Fail unless a command is one that there is, with options that it has."""
    words = [word for word in words if word != "sudo"]
    while "=" in words[0]:
        words.pop(0)
    program, words = Path(words[0]).name, words[1:]
    if program in ("mpiexec", "srun"):
        at = 2 if program == "mpiexec" else next(i for i, word in enumerate(words) if not word.startswith("-"))
        return parsed(words[at:])
    if program == "salloc":
        return parsed(words[next(i for i, word in enumerate(words) if word.endswith("gridgrad")) :])
    if program == "make":
        targets = {word for word in words if "=" not in word and not word.startswith("-")}
        assert targets <= set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    if program == "python":
        if words[:2] == ["-m", "gridgrad"]:
            return understood(words[2:])
        module = words[1].removeprefix("gridgrad.").replace(".", "/") if words[0] == "-m" else words[0].removesuffix(".py")
        assert any((ROOT / f"{module}{end}").exists() for end in (".py", "/__main__.py")) or words[0] == "mine.py"
    if program == "gridgrad":
        understood(words)


def understood(words):
    """Fail unless the command gridgrad knows these words."""
    name, *words = words
    if name in ("NAME", "help", "completion", "--version", "--help"):
        return
    if name == STUDY and words:
        name, *words = words
    assert name in (*FRONT, STUDY, *studies()), name
    if name == STUDY or words[:1] == ["--help"]:
        return
    if name in ("launch", "slurm", "supervise"):  # their options, a program and its options
        at = next((i for i, word in enumerate(words) if word in FRONT), None)
        if at is not None:
            understood(words[at:])
    parser_of(name).parse_args(words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_are_understood(page):
    for command in commands(page):
        try:
            parsed(shlex.split(command))
        except (Exception, SystemExit) as error:
            error.add_note(command)
            raise


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder like the repository, with a small MNIST; commands run there, and write there."""
    path = tmp_path_factory.mktemp("docs")
    for name in ("nn", "parallel", "datasets", "experiments", "tests", "Makefile", "requirements.lock", "pyproject.toml"):
        (path / name).symlink_to(ROOT / name)
    (path / "results").mkdir()
    shutil.copytree(ROOT / "docs", path / "docs", ignore=shutil.ignore_patterns("_build"))
    random = np.random.default_rng(0)
    train, test = ((random.integers(0, 256, (n, 28, 28)), random.integers(0, 10, n)) for n in (256, 16))
    write_mnist(path / "data", train=train, t10k=test)
    return path


@pytest.fixture
def inside(folder, monkeypatch):
    """In that folder, with its data and with the command `gridgrad`."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GRIDGRAD_DATA", str(folder / "data"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_the_commands_of_a_page_run_and_print_what_it_says(page, inside):
    """In the order of the page; a block of text behind a command is part of what that prints."""
    printed = ""
    for language, block in BLOCK.findall(page.read_text()):
        if language == "sh":
            for command in lines_of(block):
                printed = ran(command)
        elif language == "text":
            lines = [line.strip() for line in printed.splitlines()]
            assert [line for line in block.splitlines() if line.strip() not in lines] == []


def ran(command):
    """What a command prints, made short. Fails unless it ends well."""
    short = max((start for start in SHORT if command.startswith(f"{start} ")), key=len, default=None)
    words = shlex.split(command) + shlex.split(SHORT.get(short, ""))
    if words[0] == "mpiexec":
        ranks, words = int(words[2]), words[3:]
        words = ["-m", *words] if words[0] == "gridgrad" else words[1:]
        finished = mpiexec(ranks, words, LIMIT)
        status, output = finished.status, finished.stdout + finished.stderr
    else:
        words = [sys.executable, *words[1:]] if words[0] == "python" else words
        finished = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL)
        status, output = finished.returncode, finished.stdout + finished.stderr
    assert status == 0, f"{command}\nstatus {status}\n{output}"
    return output


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, id=f"{page.name}-{i}", marks=() if page in RUN else pytest.mark.long)
        for page in PAGES
        if page.parent != PROGRAMS
        for i, (language, block) in enumerate(BLOCK.findall(page.read_text()))
        if language == "python"
    ],
)
def test_the_block_of_python_runs(block, inside):
    (inside / "block.py").write_text(block.replace("range(100)", "range(2)"))
    finished = mpiexec(2, ["-m", "mpi4py", "block.py"], LIMIT, {"PYTHONPATH": "."})
    assert finished.status == 0, f"{block}\n{finished.stdout}{finished.stderr}"


def slug(heading):
    """The anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", [*PAGES, *RESULTS], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_names_of_files_lead_somewhere(page):
    text = BLOCK.sub("", page.read_text())
    assert "```" not in text and not re.search(r"^( {4}|\t)", text, re.MULTILINE), "code stands in closed blocks"
    for link in LINK.findall(text):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_file() and target.is_relative_to(ROOT), f"{link}: no such file"
        if anchor:
            assert anchor in {slug(line.lstrip("# ")) for line in target.read_text().splitlines() if line.startswith("#")}, link
    for path in re.findall(r"`((?:nn|parallel|datasets|experiments|tests|results|docs)/[\w./-]*)`", text):
        assert (ROOT / path).exists(), f"{path}: no such file or folder"


def test_the_readme_names_every_program():
    section = (ROOT / "README.md").read_text().split("## Programs")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]*`) \|", section, re.MULTILINE)
    assert [name for cell in cells for name in re.findall(r"`(\w+)`", cell)] == [*FRONT, STUDY]
