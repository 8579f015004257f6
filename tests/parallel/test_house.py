"""The direction of imports: from experiments to parallel to nn, and within parallel from one folder down to the next.

Imports are read from the syntax trees of all files, those inside functions included, so nothing is executed. What is imported
for type hints alone, under `if TYPE_CHECKING`, does not count: a hint may name what is built upon a module.
"""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = "nn", "parallel", "datasets", "experiments"
FOLDERS = (
    "choose",
    "calibration",
    "protocols",
    "faults",
    "training",
    "observe",
    "prediction",
    "pipeline",
    "partitioning",
    "checkpoint",
    "sync",
    "plans",
    "placement",
    "grid",
    "job",
)  # from top to bottom

MAY_IMPORT = {  # package: (a package or a module that its files may import, ..)
    "nn": ("nn",),
    "parallel": ("parallel", "nn", "startup"),  # the last is beside them, in gridgrad/
    # the order of samples and their augmentation are functions of the global seed; there is one way to write a file
    "datasets": ("datasets", "nn.random", "nn.files.hdf5_arrays", "nn.files.limits", "nn.files.whole_files"),
    "experiments": ("experiments", "datasets", "parallel", "nn", "startup"),
}

MAY_IMPORT_PROGRAMS = {  # module: (programs that it may import, ..)
    # these start the programs, or call them in turn
    "experiments.scaling.turns": ("train",),
    "experiments.settings.by_hand": ("train",),
    # in this PyTorch runs in the same process; in a job of several ranks it is a program of its own
    "experiments.benchmarks.serial": ("benchmarks.torch_peer",),
    # these evaluate what another program measures or predicts
    # this counts the words of the programs that the study compares
    "experiments.papers.grabaskas2018": ("studies.usability.__main__",),
    # this prices the layers that its processes time
    "experiments.papers.hegde2016": ("papers.hegde2016_job",),
    # this starts the caretaker of a job, and cleans up as it does
    "experiments.launching.start_ranks": ("launching.leftovers",),
    # this times the two kinds of steps of another program
    "experiments.papers.marques2016_epochs": ("studies.autoencoder",),
}


def module_of(path):
    """The dotted name of the module in a file, within gridgrad."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path): path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))}
TREES = {module: ast.parse(path.read_text(), path) for module, path in MODULES.items()}


def executed(tree):
    """The nodes of a syntax tree, without those under `if TYPE_CHECKING`."""
    yield tree
    if not (isinstance(tree, ast.If) and isinstance(tree.test, ast.Name) and tree.test.id == "TYPE_CHECKING"):
        for node in ast.iter_child_nodes(tree):
            yield from executed(node)


def imports(module, tree):
    """The modules of this repository that a module imports."""
    found = set()
    for node in executed(tree):
        if isinstance(node, ast.Import):
            assert not [alias for alias in node.names if alias.name in PACKAGES], f"{module}: it is gridgrad that has this name"
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module} has a relative import in line {node.lineno}: name the whole module"
            for alias in node.names:  # either a module in a package or a name in a module
                inside = f"{node.module}.{alias.name}"
                found.add(inside if inside.removeprefix("gridgrad.") in MODULES else node.module)
    return {name.removeprefix("gridgrad.") for name in found if name.startswith("gridgrad.")}


IMPORTS = {module: imports(module, tree) for module, tree in TREES.items()}


def bound(tree):
    """The names that a module binds, those of its functions and classes left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        else:
            yield from bound(node)


BOUND = {module: set(bound(tree)) for module, tree in TREES.items()}


def missing(tree):
    """What a module imports of this repository though it is nowhere, such as what has got another name."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if not is_there(alias.name)]
        elif isinstance(node, ast.ImportFrom):
            found += [
                name
                for alias in node.names
                if not is_there(name := f"{node.module}.{alias.name}") and not is_there(node.module, alias.name)
            ]
    return found


def is_there(module, name=None):
    """Whether a module of this repository exists and, with a name, binds it; True for all other modules."""
    package, _, inside = module.partition(".")
    if package != "gridgrad" or not inside or (ROOT / "gridgrad" / f"{inside}.py").is_file():
        return True
    return inside in MODULES and (name is None or name in BOUND[inside])


def is_program(tree):
    """Whether a module runs something when it is started: whether it compares `__name__` at its top level."""
    tests = [node.test for node in tree.body if isinstance(node, ast.If)]
    return any(isinstance(test, ast.Compare) and ast.unparse(test.left) == "__name__" for test in tests)


PROGRAMS = {module for module, tree in TREES.items() if is_program(tree)}


def circle(graph):
    """The nodes of one circle in a graph {node: nodes that it points to}; an empty list if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_the_files_and_their_imports_are_found():
    assert {"nn.sequential", "parallel.grid.group", "datasets.part", "experiments.train"} <= IMPORTS.keys()
    assert "parallel.grid.group" in IMPORTS["parallel.grid.process_grid"]
    assert {"experiments.train", "experiments.sweep"} <= PROGRAMS and "experiments.common.report" not in PROGRAMS


def test_what_is_forbidden_is_seen():
    source = (
        "import gridgrad.nn.layers.conv\ndef f():\n    from gridgrad.parallel.grid import group\n    from numpy import ones\n"
    )
    source += "if TYPE_CHECKING:\n    from gridgrad.parallel.grid import devices\n"
    tree = ast.parse(source)
    assert imports("some.module", tree) == {"nn.layers.conv", "parallel.grid.group"}
    with pytest.raises(AssertionError, match="relative import in line 1"):
        imports("some.module", ast.parse("from . import conv"))
    assert circle({"a": {"b"}, "b": {"c"}}) == []
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"b"}})) == {"b", "c"}


def test_all_that_is_imported_is_there():
    """Nothing is executed, so that this holds also for what only a study imports, or needs a library that is not installed."""
    assert {module: names for module, tree in TREES.items() if (names := missing(tree))} == {}
    source = "from gridgrad.experiments.common.tables import rounded, nothing\nfrom gridgrad.nn import gone\n"
    source += "import gridgrad.nowhere, gridgrad.parallel.nowhere\nfrom gridgrad.parallel.grid import group, grp\n"
    assert missing(ast.parse(source)) == [
        "gridgrad.experiments.common.tables.nothing", "gridgrad.nn.gone", "gridgrad.nowhere",
        "gridgrad.parallel.nowhere", "gridgrad.parallel.grid.grp",
    ]  # fmt: skip


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_are_imported_in_one_direction(package):
    for module, found in IMPORTS.items():
        if module.split(".")[0] == package:
            for name in found:
                allowed = any(name == other or name.startswith(f"{other}.") for other in MAY_IMPORT[package])
                assert allowed, f"{module} imports {name}, but {package} may import only {', '.join(MAY_IMPORT[package])}"


def test_folders_of_parallel_are_imported_downwards():
    assert {path.name for path in (ROOT / "parallel").iterdir() if path.is_dir() and path.name != "__pycache__"} == set(FOLDERS)
    for module, found in IMPORTS.items():
        package, _, inside = module.partition(".")
        if package != "parallel" or not inside:  # `parallel` itself collects what users import
            continue
        folder = inside.split(".")[0]
        for name in found:
            if name == "parallel":
                raise AssertionError(f"{module} imports the whole package parallel: import the module that it needs")
            if name.startswith("parallel."):
                other = name.split(".")[1]
                assert FOLDERS.index(folder) <= FOLDERS.index(other), f"{module} imports {name}, but {other} is above {folder}"


@pytest.mark.parametrize("package", PACKAGES)
def test_no_files_import_each_other_in_a_circle(package):
    """A package's own file, which only collects names for its users, is left out."""
    graph = {
        module: {name for name in found if name in MODULES and MODULES[name].stem != "__init__"}
        for module, found in IMPORTS.items()
        if module.split(".")[0] == package and MODULES[module].stem != "__init__"
    }
    assert circle(graph) == []


def test_programs_are_not_imported():
    """What programs share is in modules that are none; exceptions are listed above, and each of them is still needed."""
    found = {}
    for module, names in IMPORTS.items():
        programs = sorted(name.removeprefix("experiments.") for name in names & PROGRAMS)
        if programs:
            found[module] = tuple(programs)
    assert found == MAY_IMPORT_PROGRAMS


def exported():
    """What users import from `gridgrad.nn` and `gridgrad.parallel`, by the names that it has in its own files."""
    return {
        alias.name
        for package in ("nn", "parallel")
        for node in TREES[package].body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def too_long(tree, names, inside_exported=False, most=3):
    """The functions and classes in a syntax tree that are not exported and have a docstring of more than `most` lines."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            is_exported = (
                inside_exported and not node.name.startswith("_") if isinstance(tree, ast.ClassDef) else node.name in names
            )
            if not is_exported and (ast.get_docstring(node) or "").count("\n") >= most:
                yield node.name
            yield from too_long(node, names, is_exported, most)


def test_docstrings_of_what_is_not_exported_have_at_most_three_lines():
    names = exported()
    assert {"Linear", "parallelize"} <= names
    source = 'def f():\n    """A\n\n    b\n    """\nclass Linear:\n    """A\n\n    b\n    c\n    """\n    def g(): ...'
    assert list(too_long(ast.parse(source), names)) == []
    assert list(too_long(ast.parse(source.replace("b\n", "b\n    c\n")), names)) == ["f"]
    found = {module: list(too_long(TREES[module], names)) for module in TREES if module.split(".")[0] in ("nn", "parallel")}
    assert {module: long for module, long in found.items() if long} == {}
