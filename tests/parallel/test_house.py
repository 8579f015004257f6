"""The direction of imports: from experiments to parallel to nn, and within parallel from one folder down to the next.

Imports are read from the syntax trees of all files, those inside functions included, so nothing is executed. What is imported
for type hints alone, under `if TYPE_CHECKING`, does not count: a hint may name what is built upon a module.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = "nn", "parallel", "datasets", "experiments"
FOLDERS = (  # from top to bottom
    *("choose", "calibration", "protocols", "faults", "training", "observe", "prediction", "pipeline", "partitioning"),
    *("checkpoint", "sync", "plans", "placement", "grid", "job"),
)
OUTSIDE = ("startup",)  # modules in gridgrad/, beside the packages
MAY_IMPORT = {  # package: (a package or a module that its files may import, ..)
    "nn": ("nn",),
    "parallel": ("parallel", "nn", "startup"),  # the last is beside them, in gridgrad/
    # the order of samples and their augmentation are functions of the global seed; there is one way to write a file
    "datasets": ("datasets", "nn.random", "nn.files.hdf5_arrays", "nn.files.limits", "nn.files.whole_files"),
    "experiments": ("experiments", "datasets", "parallel", "nn", "startup"),
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
    """What a module imports from this repository though it is nowhere, such as what has got another name."""
    found = [(node.module, alias.name) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
    inside = [(module.removeprefix("gridgrad."), name) for module, name in found if module.startswith("gridgrad.")]
    return [
        f"{module}.{name}"
        for module, name in inside
        if f"{module}.{name}" not in MODULES and name not in BOUND.get(module, ()) and module not in OUTSIDE
    ]


def test_imports_and_what_is_forbidden_are_seen():
    assert "parallel.grid.group" in IMPORTS["parallel.grid.process_grid"]
    source = "def f():\n    from gridgrad.parallel.grid import group, grp\n    from numpy import ones\n"
    source += "if TYPE_CHECKING:\n    from gridgrad.parallel.grid import devices\n"
    assert imports("some.module", ast.parse(source)) == {"parallel.grid.group", "parallel.grid"}
    assert missing(ast.parse(source)) == ["parallel.grid.grp"]


def test_all_that_is_imported_is_there():
    """Nothing is executed, so that this holds also for what only a study imports, or needs a library that is not installed."""
    assert {module: names for module, tree in TREES.items() if (names := missing(tree))} == {}


def test_packages_are_imported_in_one_direction():
    for module, found in IMPORTS.items():
        package = module.split(".")[0]
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
            assert name != "parallel", f"{module} imports the whole package parallel: import the module that it needs"
            if name.startswith("parallel."):
                other = name.split(".")[1]
                assert FOLDERS.index(folder) <= FOLDERS.index(other), f"{module} imports {name}, but {other} is above {folder}"
