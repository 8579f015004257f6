"""What the documents show is what is there: the tutorial's program, pictures, the version, lines that are not too long."""

import re

import numpy as np
import pytest

from docs import api_pages
from docs.draw_schemes import dense, matrices
from docs.placed_ranks import on_every_rank
from docs.shapes import runs, words
from gridgrad.parallel.placement.partition import indices
from tests.api.exports import documented
from tests.docs import pages
from tests.docs.pages import BLOCK, ROOT, blocks, changed, changes

PAGES = [*pages.PAGES, ROOT / "CHANGELOG.md"]


def test_the_tutorial_makes_the_serial_program_parallel():
    serial, *_ = blocks("docs/tutorial.md", "python")
    ((path, hunks),) = changes("docs/tutorial.md")
    described = '"""The program of docs/tutorial.md: trains a network on airfoil noise on the grid that is named, such as '
    text = (ROOT / path).read_text()
    assert text.startswith(described) and text.split('"""\n\n', 1)[1] == changed(serial, hunks)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_lines_are_not_too_long(page):
    lines = page.read_text().splitlines()
    address = re.compile(r"\[[^]]+\]: https://\S+")
    assert [line for line in lines if len(line) > 128 and not line.startswith("|") and not address.fullmatch(line)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_pictures_have_words_for_those_who_do_not_see_them_and_are_kept_or_drawn(page):
    text = page.read_text()
    assert re.findall(r"!\[\]\(", BLOCK.sub("", text)) == []
    drawn = (ROOT / "Makefile").read_text().split("\nfigures:")[1].split("\n\n")[0]
    for path, options in re.findall(r"^```\{image\} \.\./(\S+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        assert re.search(r"^:alt: \w", options, re.MULTILINE) and re.search(rf"--(?:out|map) {path}", drawn), path


def test_each_scheme_has_its_picture():
    shown = re.findall(r"\(schemes/(\w+)\.png\)", (ROOT / "docs" / "schemes.md").read_text())
    assert sorted(shown) == sorted(path.stem for path in (ROOT / "docs" / "schemes").glob("*.png"))


def test_each_page_stands_once_in_the_sidebar():
    listed = "\n".join(blocks("docs/index.md", "{toctree}") + blocks("docs/api/index.md", "{toctree}"))
    folder = ROOT / "docs"
    pages = {str(path.relative_to(folder).with_suffix("")) for path in PAGES if folder in path.parents} - {"index"}
    named = [name for name in pages if len(re.findall(rf"^{name.removeprefix('api/')}$", listed, re.MULTILINE)) == 1]
    assert pages - {*named} == {"api/index"}  # which stands there with its folder


def test_versions_agree():
    cited = re.search(r"^version: (\S+)\ndate-released: \"(\S+)\"$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    newest = re.search(r"^## (\S+) - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert cited.groups() == newest.groups()


@pytest.mark.parametrize("package", api_pages.PACKAGES)
def test_the_page_of_a_package_has_everything_that_it_exports(package):
    page = (ROOT / "docs" / "api" / f"{package}.md").read_text()
    described = re.findall(r"^\.\. auto(?:class|function|exception):: (\w+)$", page, re.MULTILINE)
    assert sorted(described) == sorted(name for found, name, _ in documented() if found == f"gridgrad.{package}")


def test_pictures_show_the_blocks_of_the_layouts():
    """Every element of a weight is drawn at the ranks that hold it, and in the words below."""
    sizes = {"batch": 2, "model": 3}
    ranks = on_every_rank(dense(hidden=31), sizes)
    x, first, second, y = zip(*(matrices(rank, 32) for rank in ranks), strict=True)
    for arrays, copies in ((x, 3), (first, 2), (second, 2), (y, 1)):
        shape = arrays[0][0].shape
        held = [len(indices(rows)) * len(indices(columns)) for rows, columns in (held.block for held, *_ in arrays)]
        assert sum(held) == copies * shape[0] * shape[1]
    assert [below for _, _, below in first] == ["outputs\n0-10", "outputs\n11-20", "outputs\n21-30"] * 2
    assert [below for _, _, below in y][:2] == ["samples\n0-5", "samples\n6-10"]


def test_parts_in_words():
    assert words(slice(3, 7), "rows") == "rows 3-6" and words(slice(0, 0), "rows") == "no rows"
    assert runs(np.array([0, 1, 2, 5, 7, 8])) == [(0, 3), (5, 6), (7, 9)]
    assert words(np.array([1, 4, 5]), "neurons") == "neurons 1,4-5"
