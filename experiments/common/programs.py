"""The programs, by their names: in the folder experiments, or in the package gridgrad.experiments where that is installed."""

import ast
import re
from importlib.util import find_spec
from pathlib import Path

PACKAGE = __name__.removesuffix(".common.programs")
FOLDER = Path(__file__).parents[1]
STARTS = re.compile(r'^if __name__ == "__main__":', re.MULTILINE)  # in every file that is a program


def as_module(name):
    """The words behind `python` that run a program, such as "train"."""
    return ["-m", f"{PACKAGE}.{name}"]


def programs():
    """{name: what it does, in one line} of all programs but those in folders of others, such as "benchmarks.step_time"."""
    names = {path.stem for path in FOLDER.glob("*.py")} | {path.parent.name for path in FOLDER.glob("*/__main__.py")}
    return {name: description(name) for name in sorted(names) if source(name)}


def source(name):
    """The text of the program of this name; an empty string if there is none. No program is run or imported."""
    if all(word.isidentifier() for word in name.split(".")):
        path = FOLDER.joinpath(*name.split("."))
        for file in (path.with_name(f"{path.name}.py"), path / "__main__.py"):
            if file.is_file() and STARTS.search(text := file.read_text(encoding="utf-8")):
                return text
    return ""


def description(name):
    """The `description` of a program's command line, which its --help prints."""
    for node in ast.walk(ast.parse(source(name))):
        if isinstance(node, ast.keyword) and node.arg == "description":
            return ast.literal_eval(node.value)
    raise ValueError(f"the program {name} has no description")


def module_of(name):
    """The module to run for "train", "experiments.train", or the name of any other module; ValueError if there is none."""
    for module in (f"{PACKAGE}.{name}", name, f"{PACKAGE}.{name.removeprefix('experiments.')}"):
        if runs(module):
            return module
    raise ValueError(f"there is no program {name}: give the name of one, such as train, or of a module")


def runs(module):
    """Whether Python finds a module or package of this name that it can run."""
    try:
        spec = find_spec(module)
        if spec and spec.submodule_search_locations is not None:  # a package
            spec = find_spec(f"{module}.__main__")
    except (ImportError, ValueError, TypeError):
        return False
    return spec is not None


def starts_jobs(name):
    """Whether a program starts jobs instead of being a rank of one. ValueError if there is no program of this name."""
    if not (text := source(name)):
        raise ValueError(f"there is no program {name}: give the name of one, such as train")
    return "run_launcher(main)" in text
