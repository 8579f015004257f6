"""Which tests are to notice a fault: the rungs of a ladder, what is quick and telling first.

The first rung are the tests that a fault names, and those test files of its folder's mirror in tests/ that are about its
module: they have its name, import it, or are among a few that use what it defines.
What follows is in the table: for each folder a few quick rungs, and more for the faults that those do not notice. A new file of
tests that finds many faults gets a place there. Faults in the order of messages are tried with the tests that they name
and no others: the exploration of all orders must find them alone.
"""

import ast
from pathlib import PurePosixPath

FEW = 4  # test files that use the same name
ORDERS = "orders"  # the kind of the faults in the order of messages

RANDOM = ("tests/random_networks",)  # networks and configurations
FEW_RANDOM = tuple(f"tests/random_networks/test_random_networks.py::test_a_few_cases[{ranks}]" for ranks in (2, 3, 4))
NETWORKS = "tests/parallel/training/test_network.py", "tests/parallel/test_networks.py"  # others
LADDER = {  # folder: (quick rungs, further rungs), each rung of test files, folders with all their test files, or single tests
    "nn": (
        (("tests/nn/test_layers.py", "tests/nn/test_images.py", "tests/nn/test_sequence.py"), RANDOM),
        (
            ("tests/nn/test_checks.py", "tests/nn/test_convolution.py", "tests/nn/test_gemm.py", "tests/nn/test_optimizers.py"),
            ("tests/test_device.py::test_the_suite_passes_on_the_stand_in",),
            ("tests/nn",),
            NETWORKS,
            ("tests/parallel/placement", "tests/parallel/sync", "tests/parallel/checkpoint", "tests/parallel/training"),
        ),
    ),
    "parallel/placement": (
        (("tests/parallel/placement/test_redistribute.py",), FEW_RANDOM),
        (
            RANDOM,
            NETWORKS,
            ("tests/parallel/placement",),
            ("tests/parallel/partitioning", "tests/parallel/sync", "tests/parallel/checkpoint", "tests/parallel/training"),
            ("tests/parallel/prediction", "tests/parallel/choose", "tests/experiments/test_train.py"),
        ),
    ),
    "parallel/grid": (
        (("tests/parallel/grid", "tests/parallel/pipeline"), FEW_RANDOM),
        (("tests/parallel/prediction", "tests/parallel/protocols"), RANDOM),
    ),
    "parallel/plans": (
        (FEW_RANDOM, ("tests/parallel/placement/test_hypergraph.py", "tests/parallel/placement/test_marques.py")),
        (
            RANDOM,
            NETWORKS,
            ("tests/parallel/placement",),
            ("tests/parallel/partitioning", "tests/parallel/training", "tests/parallel/prediction", "tests/parallel/choose"),
        ),
    ),
    "parallel/sync": (
        (FEW_RANDOM, ("tests/parallel/sync",)),
        (
            RANDOM,
            NETWORKS,
            ("tests/parallel/training", "tests/parallel/checkpoint"),
            ("tests/parallel/placement", "tests/parallel/protocols", "tests/parallel/choose"),
        ),
    ),
    "parallel/training": (
        (FEW_RANDOM, ("tests/parallel/training/test_executor.py", "tests/parallel/training/test_network.py")),
        (
            ("tests/parallel/training/test_asynchronous.py", "tests/parallel/training/test_partition_pipeline.py"),
            RANDOM,
            NETWORKS,
            ("tests/parallel/training",),
            ("tests/parallel/checkpoint", "tests/parallel/choose", "tests/parallel/protocols"),
            ("tests/parallel/faults", "tests/parallel/sync", "tests/parallel/placement", "tests/experiments/test_train.py"),
        ),
    ),
    "parallel/pipeline": (
        (("tests/parallel/pipeline",), FEW_RANDOM),
        (
            RANDOM,
            ("tests/parallel/training/test_executor.py", "tests/parallel/training/test_pipelined.py"),
            ("tests/parallel/training", "tests/parallel/prediction/test_pipeline_cost.py"),
            ("tests/parallel/prediction", "tests/experiments/test_pipeline_figure.py", "tests/experiments/test_explain.py"),
        ),
    ),
    "parallel/protocols": (
        (("tests/parallel/protocols",), ("tests/orders",)),
        (
            RANDOM,
            ("tests/parallel/checkpoint", "tests/experiments/test_protocol_cost.py"),
            ("tests/experiments/test_train_protocols.py", "tests/experiments/test_protocol_counts.py"),
            ("tests/experiments/test_protocols.py", "tests/experiments/test_hegde2016.py"),
        ),
    ),
    "experiments": ((("tests/experiments/common",),), (("tests/experiments/test_train.py",),)),
    "parallel/checkpoint": (
        (("tests/parallel/checkpoint",), FEW_RANDOM),
        (
            RANDOM,
            ("tests/experiments/test_resume.py", "tests/experiments/test_restarts.py"),
            ("tests/fuzz/test_fuzz.py", "tests/experiments/test_full_disk.py", "tests/test_kills.py"),
        ),
    ),
}


class Ladder:
    """The ladder of a repository. root: its folder. files: the paths of its files. table: as LADDER is."""

    def __init__(self, root, files, table=LADDER):
        self.root, self.table = root, table
        self.tests = [path for path in sorted(files) if PurePosixPath(path).match("test_*.py") and path.startswith("tests/")]
        self._imports = {}

    def rungs(self, fault):
        """(the quick rungs for a fault, the further ones): lists of lists of what pytest runs, of which nothing comes twice."""
        if fault.kind == ORDERS:
            return [self._new(fault.tests, set())], []
        folder = str(PurePosixPath(fault.file).parent)
        quick, further = self.table[self.row(folder)]
        seen, about = set(), self._about(fault, folder)
        return [self._new(rung, seen) for rung in ((*fault.tests, *about), *quick)], [self._new(rung, seen) for rung in further]

    def row(self, folder):
        """The folder of the table to which a folder belongs: itself, or the one that it lies in."""
        return folder if folder in self.table else str(PurePosixPath(folder).parent)

    def _about(self, fault, folder):
        """The test files that are about the module that a fault changes."""
        mirror = [path for path in self.tests if path.startswith(f"tests/{folder}/")]
        name, top = PurePosixPath(fault.file).stem, folder.split("/")[0]
        found = [path for path in mirror if PurePosixPath(path).stem == f"test_{name}" or fault.module in self._imported(path)]
        for node in ast.parse((self.root / fault.file).read_text()).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                package = fault.module[: fault.module.index(top) + len(top)]  # which collects names for users
                users = [path for path in mirror if f"{package}.{node.name}" in self._imported(path)]
                found += users if len(users) <= FEW else []
        return list(dict.fromkeys(found))

    def _imported(self, path):
        """The modules that a test file imports, and the names that it imports from modules, as "module.name": a set."""
        if path not in self._imports:
            found = self._imports[path] = set()
            for node in ast.walk(ast.parse((self.root / path).read_text())):
                if isinstance(node, ast.ImportFrom):
                    found.update((node.module, *(f"{node.module}.{alias.name}" for alias in node.names)))
        return self._imports[path]

    def _new(self, rung, seen):
        """The test files and single tests of a rung that were not seen yet, a list; they are seen then."""
        found = dict.fromkeys(path for part in rung for path in self._under(part) if path not in seen)
        seen.update(found)
        return list(found)

    def _under(self, part):
        """The test files that a path stands for, or the single test that it is. ValueError if there are none."""
        file, single, _ = part.partition("::")
        if single:
            return [part] if file in self.tests else self._under(file)
        found = [path for path in self.tests if path == part or path.startswith(f"{part}/")]
        if not found:
            raise ValueError(f"the ladder of tests names {part}, which is no test")
        return found
