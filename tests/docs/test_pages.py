"""What the documents show is what is there: the program of the tutorial, exports, pictures, versions."""

import ast
import re
import tomllib

import pytest

from docs import api_pages
from docs.plain_docstrings import converted
from tests.api.exports import documented
from tests.docs.pages import BLOCK, PAGES, ROOT, blocks, changed, changes

SPACK = ROOT / "docs" / "tools" / "spack_repo" / "gridgrad" / "packages" / "py_gridgrad" / "package.py"
DOCSTRING = """Move an array `a -> b`; see `Shard`s and f(*x).

rank: of |this| one. strange_name: begins a line.

Examples
--------
>>> 1 + 1
2
"""


def test_the_tutorial_makes_the_serial_program_parallel():
    serial, *_ = blocks("docs/tutorial.md", "python")
    ((path, hunks),) = changes("docs/tutorial.md")
    described = '"""The program of docs/tutorial.md: trains a network on airfoil noise on the grid that is named, such as '
    text = (ROOT / path).read_text()
    assert text.startswith(described) and text.split('"""\n\n', 1)[1] == changed(serial, hunks)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda path: str(path.relative_to(ROOT)))
def test_lines_are_short_and_pictures_have_words_for_those_who_do_not_see_them(page):
    text, address = page.read_text(), re.compile(r"\[[^]]+\]: https://\S+")
    lines = [line for line in text.splitlines() if len(line) > 128 and not line.startswith("|")]
    assert [line for line in lines if not address.fullmatch(line)] == []
    assert re.findall(r"!\[\]\(", BLOCK.sub("", text)) == []
    for path, options in re.findall(r"^```\{image\} (\S+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        assert re.search(r"^:alt: \w", options, re.MULTILINE), path


def test_versions_agree_and_the_package_of_spack_needs_what_the_project_needs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    cited = re.search(r"^version: (\S+)\ndate-released: \"(\S+)\"$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    newest = re.search(r"^## (\S+) - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert cited.groups() == newest.groups()
    calls = [node for node in ast.walk(ast.parse(SPACK.read_text())) if isinstance(node, ast.Call)]
    said = {name: {call.args[0].value for call in calls if call.func.id == name} for name in ("depends_on", "version")}
    needed = project["project"]["dependencies"] + project["build-system"]["requires"]
    python = f"python@{project['project']['requires-python'].removeprefix('>=')}:"
    assert said["depends_on"] == {"mpi", python, *(f"py-{word.replace('>=', '@')}:" for word in needed)}
    assert said["version"] == {project["project"]["version"]}


@pytest.mark.parametrize("package", api_pages.PACKAGES)
def test_the_page_of_a_package_has_everything_that_it_exports(package):
    page = (ROOT / "docs" / "api" / f"{package}.md").read_text()
    described = re.findall(r"^\.\. auto(?:class|function|exception):: (\w+)$", page, re.MULTILINE)
    assert sorted(described) == sorted(name for found, name, _ in documented() if found == f"gridgrad.{package}")


def test_a_docstring_becomes_restructured_text_that_means_the_same():
    assert converted(DOCSTRING, {"rank"}) == [
        "Move an array ``a -> b``; see ``Shard``\\ s and f(\\*x).", "",
        "* **rank**: of \\|this\\| one. strange\\_name: begins a line.", "",
        ":Examples:", "    >>> 1 + 1", "    2", "",
    ]  # fmt: skip
