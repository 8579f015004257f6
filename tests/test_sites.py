"""The recipes for other systems, which can not be run here: they say so, name their sources, and their scripts are whole."""

import re
import shlex
import subprocess
from math import prod
from pathlib import Path

import pytest

from gridgrad.experiments.train import options

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "sites"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")
DOCUMENTS = [FOLDER / "README.md", *PAGES]
BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CITATION = re.compile(r"\[([\w-]+)\](?!\()")
DEFINITION = re.compile(r"^\[([\w-]+)\]: (https://\S+)$", re.MULTILINE)
NODES = re.compile(r"^#(?:SBATCH (?:--nodes=|-N )|PBS -l select=)(\d+)", re.MULTILINE)
PER_NODE = re.compile(r"(?:--ntasks-per-node=|--ppn )(\d+)")


def ids(path):
    return path.name


def job_script(page):
    """The block that is a whole script. The other ones are lines to type."""
    scripts = [block for block in BLOCK.findall(page.read_text()) if block.startswith("#!/bin/bash")]
    assert len(scripts) == 1
    return scripts[0]


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids)
def test_it_says_that_nobody_ran_it(document):
    assert "**not run here" in "".join(document.read_text().splitlines()[:5]).lower()


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids)
def test_each_source_is_cited_and_listed_and_has_an_address(document):
    text = document.read_text()
    addresses = dict(DEFINITION.findall(text))
    body, listed = DEFINITION.sub("", text).split("## Sources")
    body = BLOCK.sub("", body)
    cited = set(CITATION.findall(body))
    assert len(addresses) >= 3 and len(set(addresses.values())) == len(addresses)
    assert cited == set(addresses)
    assert set(CITATION.findall(listed)) == cited


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids)
def test_links_lead_somewhere_and_lines_are_not_too_long(document):
    for link in re.findall(r"\]\(([^)#\s]+)", document.read_text()):
        assert (document.parent / link).resolve().is_file(), link
    assert max(map(len, DEFINITION.sub("", document.read_text()).splitlines())) <= 128


def test_the_overview_names_every_page():
    assert {path.name for path in PAGES} <= set(re.findall(r"\]\(([\w-]+\.md)\)", (FOLDER / "README.md").read_text()))


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_blocks_are_shell_scripts(page):
    for block in BLOCK.findall(page.read_text()):
        found = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True, timeout=60)
        assert not found.returncode and not found.stderr, found.stderr


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_directives_stand_before_the_first_command(page):
    """Those behind it are ignored by Slurm and PBS."""
    lines = job_script(page).splitlines()
    directives = [line.startswith(("#SBATCH ", "#PBS ")) for line in lines[1:] if line]
    assert directives == sorted(directives, reverse=True)
    assert any(directives)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_the_job_checks_and_trains_on_all_its_ranks(page):
    script = job_script(page)
    words = [re.sub(r"\\\n\s*", "", script).split("-m gridgrad ")[i] for i in (1, 2)]
    assert words[0].startswith("check || exit\n")
    program, *arguments = shlex.split(words[1])
    assert program == "train"
    args = options().parse_args(arguments)
    assert args.checkpoint == args.resume
    ranks = prod(int(part.partition("=")[2]) for part in args.grid.split(","))
    per_node = max(map(int, PER_NODE.findall(script)))
    assert ranks == int(NODES.search(script)[1]) * per_node and args.batch_size >= ranks
