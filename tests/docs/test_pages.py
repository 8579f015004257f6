"""What the documents show is what is there: the tutorial's program, pictures, the version, lines that are not too long."""

import re
import tomllib

import numpy as np
import pytest

from docs import api_pages
from docs.draw_schemes import dense, matrices
from docs.placed_ranks import on_every_rank
from docs.shapes import runs, words
from gridgrad.parallel.placement.partition import indices
from tests.api.exports import documented
from tests.docs.pages import BLOCK, ROOT, blocks, changed, changes

PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + [
    path for path in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in path.parts
]


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
def test_pictures_have_words_for_those_who_do_not_see_them(page):
    assert re.findall(r"!\[\]\(", BLOCK.sub("", page.read_text())) == []


def test_each_scheme_has_a_page_and_a_picture_and_stands_in_the_list():
    folder, listed = ROOT / "docs" / "schemes", (ROOT / "docs" / "index.md").read_text()
    names = {path.stem for path in folder.glob("*.md")} - {"index"}
    assert names == {path.stem for path in folder.glob("*.png")}
    for name in names:
        assert f"({name}.png)" in (folder / f"{name}.md").read_text()
        assert f"({name}.md)" in (folder / "index.md").read_text() and f"\nschemes/{name}\n" in listed


def test_versions_agree():
    cited = re.search(r"^version: (\S+)\ndate-released: \"(\S+)\"$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    newest = re.search(r"^## (\S+) - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert cited.groups() == newest.groups()


def test_the_extras_and_the_makefile_install_the_same_packages():
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["docs"]
    pinned = re.search(r"^SPHINX +\?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE).group(1).split()
    names = {word.split("==")[0] for word in pinned}
    assert {word.split(">=")[0] for word in extra} | {"numpy"} == names
    assert set(pinned) & set((ROOT / "requirements.lock").read_text().split()) == {next(w for w in pinned if "numpy" in w)}


def test_what_the_code_imports_is_there_when_the_documents_are_built_or_stood_in_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {word.split(">=")[0] for word in project["dependencies"]} - {"numpy", "jinja2"}  # which Sphinx needs itself
    absent = re.search(r'^absent = "(.*)"$', (ROOT / "docs" / "conf.py").read_text(), re.MULTILINE).group(1)
    assert {"PIL" if name == "pillow" else name.replace("-", "_") for name in needed} | {"mtkahypar"} == set(absent.split())


def test_every_folder_of_the_code_is_in_the_reference():
    found = {".".join(folder.parts) for folder in api_pages.folders(ROOT)}
    assert {"nn", "datasets", "parallel.placement", "parallel.protocols"} <= found
    page = api_pages.page(ROOT, api_pages.Path("parallel/placement"))
    assert ".. automodule:: gridgrad.parallel.placement.moves\n" in page and "__init__" not in page
    assert "layout\n   :exclude-members: Layout\n\nExported: :py:obj:`gridgrad.parallel.Layout`.\n" in page


@pytest.mark.parametrize("package", api_pages.PACKAGES)
def test_the_page_of_a_package_has_everything_that_it_exports(package):
    page = (ROOT / "docs" / "api" / f"{package}.md").read_text()
    described = re.findall(r"^\.\. auto(?:class|function|exception):: (\w+)$", page, re.MULTILINE)
    assert sorted(described) == sorted(name for found, name, _ in documented() if found == f"gridgrad.{package}")


def test_what_an_export_lacks_on_its_page_is_seen():
    head = '<dl class="py function"><dt id="gridgrad.nn.f">f'
    whole = f'{head}<em class="sig-param">x</em></dt><dd><dt>Parameters</dt>..<pre>&gt;&gt;&gt; f(1)</pre></dd></dl>'
    other = whole.replace("nn.f", "nn.g")
    assert api_pages.lacks(whole + other, "gridgrad.nn.f") == api_pages.lacks(other + whole, "gridgrad.nn.f") == []
    assert api_pages.lacks(whole.replace("Parameters", "") + other, "gridgrad.nn.f") == ["its parameters"]
    assert api_pages.lacks(whole.replace("&gt;", "") + other, "gridgrad.nn.f") == ["an example"]
    assert api_pages.lacks(other, "gridgrad.nn.f") == ["a signature", "an example"]


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
