"""The build step that makes one package, gridgrad, of the folders nn, parallel, datasets and experiments.

Those names are too common to be taken from others where gridgrad is installed, so there the folders are gridgrad.nn and so on,
and imports of them are rewritten. Names and versions are in pyproject.toml; `installed` is what only the package has.
"""

import ast
import re
import tempfile
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel

PACKAGE = "gridgrad"
FOLDERS = "nn", "parallel", "datasets", "experiments"
BEFORE_THE_NAME = re.compile(rb"from(?:\s|\\\n)*")
NOT_EDITABLE = """
gridgrad has no editable installation, because imports are rewritten where it is installed.
To change its sources, run the programs from this folder: python -m experiments.train
To use it elsewhere, install it without --editable: pip install .
"""


def rewritten(source):
    """The source of a module (bytes, UTF-8), with what it imports of FOLDERS imported from PACKAGE.

    Text is only inserted, and within lines, so that each statement keeps its line. Each import binds the names that it did.
    """
    starts = [0]  # where each line begins; the syntax tree counts bytes, as this does
    for line in source.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    inserted = []  # (where, text)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and not node.level and _is_ours(node.module):
            start = starts[node.lineno - 1] + node.col_offset
            inserted.append((BEFORE_THE_NAME.match(source, start).end(), f"{PACKAGE}."))
        elif isinstance(node, ast.Import):
            for alias in filter(lambda alias: _is_ours(alias.name), node.names):
                inserted.append((starts[alias.lineno - 1] + alias.col_offset, f"{PACKAGE}."))
                inserted.append((starts[alias.end_lineno - 1] + alias.end_col_offset, _binding(alias)))
    for where, text in sorted(inserted, reverse=True):
        source = source[:where] + text.encode() + source[where:]
    return source


def _is_ours(module):
    return module.partition(".")[0] in FOLDERS


def _binding(alias):
    """What stands behind a rewritten name of an `import`, so that it binds the same name as before."""
    folder, _, inner = alias.name.partition(".")
    if alias.asname:
        return ""
    return f", {PACKAGE}.{folder} as {folder}" if inner else f" as {folder}"


class RewriteImports(build_py):
    """Copies the modules, with their imports rewritten."""

    def build_module(self, module, module_file, package):
        target = Path(self.get_module_outfile(self.build_lib, package.split("."), module))
        self.mkpath(str(target.parent))
        target.write_bytes(rewritten(Path(module_file).read_bytes()))
        return str(target), True


class RefuseEditable(editable_wheel):
    def run(self):
        raise SystemExit(NOT_EDITABLE)


if __name__ == "__main__":
    packages = find_packages(include=[*FOLDERS, *(f"{folder}.*" for folder in FOLDERS)])
    with tempfile.TemporaryDirectory() as folder:  # nothing is left in the sources, and nothing of an earlier build is taken up
        setup(
            packages=[PACKAGE, *(f"{PACKAGE}.{name}" for name in packages)],
            package_dir={PACKAGE: "installed"} | {f"{PACKAGE}.{name}": name for name in FOLDERS},
            cmdclass={"build_py": RewriteImports, "editable_wheel": RefuseEditable},
            options={"build": {"build_base": folder}, "egg_info": {"egg_base": folder}},
        )
