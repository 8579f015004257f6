"""How Sphinx builds the documents: `make docs` writes docs/_build/index.html.

The folder of sources is the whole repository, not only docs/: the same Markdown pages are read where the repository is browsed,
and their links to the README, to reports in results/ and to source files then lead to the same places in the built pages.
"""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]  # for shapes of the pages, and for the extensions beside this file

about = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
project, author = about["name"], "The gridgrad developers"
version = release = about["version"]
copyright = "the gridgrad developers, BSD-3-Clause"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "api_pages", "plain_docstrings"]
root_doc = "docs/index"
include_patterns = [
    "README.md",
    "experiments/help.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/**.md",
    "docs/api/generated/**",
    "results/**.md",
]
exclude_patterns = [".*", "docs/_build", "docs/_templates", "**/__pycache__"]
templates_path = ["_templates"]
nitpicky = True

myst_heading_anchors = 4  # every heading can be linked to, by the same anchor as where the repository is browsed

autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False  # what overrides a method does what the base class says
autodoc_typehints = "signature"  # and docstrings say what is expected, with shapes and units
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 100  # characters, above which each parameter has a line of its own
autodoc_default_options = {"members": True}
# Of what the code imports, only NumPy is needed to build the documents: no MPI library, no HDF5.
absent = "greenlet h5py matplotlib mpi4py mtkahypar pandas PIL platformdirs pooch psutil scipy shtab threadpoolctl tomli_w tqdm"
autodoc_mock_imports = absent.split(" ")

nitpick_ignore_regex = [("py:class", r"(collections|mpi4py|numpy|os|pathlib|typing)\..*")]  # types that are not ours
toc_object_entries = False  # in the margin stand the modules of a page; with all functions a build takes three times as long

smartquotes = False  # it makes a dash of the two hyphens of an option
html_theme = "furo"
html_title = "gridgrad"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_additional_pages = {"index": "forward.html"}  # the address of the folder leads to docs/index.html
html_show_sourcelink = False
