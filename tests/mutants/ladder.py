"""Which tests are to notice a fault: those that it names and those about its module, then a few random networks, then the
others of its folder, then all random networks, then the rest. Faults in the order of messages are tried with the tests that
they name and no others: the exploration of all orders must find them alone."""

import ast
from functools import cache
from itertools import groupby
from pathlib import PurePosixPath

ORDERS = "orders"  # the kind of the faults in the order of messages
FEW = 4  # test files that use the same name
RANDOM = "tests/random_networks/test_random_networks.py"
FEW_RANDOM = [f"{RANDOM}::test_a_few_cases[{ranks}]" for ranks in (2, 3, 4)]


def folder_of(path):
    return str(PurePosixPath(path).parent)


def imported(text):
    """The modules from which a text imports, and what it imports of them, as "module.name": a set."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    return {node.module for node in nodes} | {f"{node.module}.{one.name}" for node in nodes for one in node.names}


class Ladder:
    """root: of a repository. files: the paths of its files."""

    def __init__(self, root, files):
        self.root, self.imports = root, cache(lambda path: imported((root / path).read_text()))
        self.tests = [path for path in sorted(files) if PurePosixPath(path).match("test_*.py") and path.startswith("tests/")]

    def rungs(self, fault):
        """(the quick rungs for a fault, the further ones): lists of lists of what pytest runs, of which nothing comes twice."""
        told = [path for part in fault.tests for path in self.under(part)]
        if fault.kind == ORDERS:
            return [told], []
        folder = folder_of(fault.file)
        while folder and not (mirror := self.under(f"tests/{folder}")):
            folder = folder_of(folder).removeprefix(".")
        about = self.about(fault, mirror)
        few = FEW_RANDOM if RANDOM in self.tests else []
        rest = [list(group) for _, group in groupby(self.tests, folder_of)]
        seen, rungs = set(), []
        for rung in (told + about, few, mirror, self.under(folder_of(RANDOM)), *rest):
            rungs.append([path for path in dict.fromkeys(rung) if path not in seen])
            seen.update(rung)
        return rungs[:3], rungs[3:]

    def about(self, fault, mirror):
        """Those of some test files that have the name of the module that a fault changes, import it, or are a few that use
        what it defines."""
        stem = f"test_{PurePosixPath(fault.file).stem}"
        found = [path for path in mirror if PurePosixPath(path).stem == stem or fault.module in self.imports(path)]
        package = ".".join(fault.module.split(".")[:2])  # which collects names for users
        for node in ast.parse((self.root / fault.file).read_text()).body:
            users = [path for path in mirror if f"{package}.{getattr(node, 'name', '')}" in self.imports(path)]
            found += users if len(users) <= FEW else []
        return found

    def under(self, part):
        """The test files that a path stands for, or the single test that it is."""
        file, single, _ = part.partition("::")
        if single and file in self.tests:
            return [part]
        return [path for path in self.tests if path == file or path.startswith(f"{file}/")]
