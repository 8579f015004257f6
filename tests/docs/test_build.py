"""The documents are built without a warning, where Sphinx is installed; CI builds them by `make docs` too."""

import importlib.util
import subprocess
import sys

import pytest

from tests.docs.pages import ROOT

NEEDED = "sphinx", "myst_parser", "furo"
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]


@pytest.mark.long
@pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed: `make docs` builds the documents")
def test_the_documents_are_built_without_a_warning(tmp_path):
    words = [
        sys.executable,
        "-m",
        "sphinx",
        "--fail-on-warning",
        "--keep-going",
        "--quiet",
        "--conf-dir",
        "docs",
        ".",
        tmp_path,
    ]
    built = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert built.returncode == 0, built.stderr
    pages = {path.name for path in (tmp_path / "docs").rglob("*.html")}
    assert {"index.html", "tutorial.html", "batch.html", "layer.html", "gridgrad.parallel.placement.html"} <= pages
    assert "docs/index.html" in (tmp_path / "index.html").read_text()
