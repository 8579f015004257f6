"""The ruler of the code: how much there is of it, and how many Python calls a training step and a collective make.

python -m tests.budget

The first table has the lines, files and classes of each folder. The second one is of rank 0 of four: a steady step of a network
16-32-32-2 on batch=2,model=2, and one blocking all-reduce.
"""

import ast
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from mpi4py import MPI

ROOT = Path(__file__).resolve().parents[1]
OWN = tuple(f"{ROOT}/{folder}/" for folder in ("nn", "parallel", "tests"))
FOLDERS = "nn", "parallel", "datasets", "experiments", "docs", "tests"
WAYS = {"plain": {}, "overlap and sharded": {"reduction": "overlap", "update": "sharded"}}


def sizes():
    """{folder: (lines, files, classes)} of the top level and of the folders in nn and parallel."""
    found = {}
    for folder in FOLDERS:
        inner = [path for path in sorted((ROOT / folder).iterdir()) if path.is_dir()] if folder in ("nn", "parallel") else []
        for path in [ROOT / folder, *inner]:
            texts = [file.read_text() for file in path.rglob("*.py") if "_build" not in file.parts]  # what `make docs` makes
            classes = sum(isinstance(node, ast.ClassDef) for text in texts for node in ast.walk(ast.parse(text)))
            found[str(path.relative_to(ROOT))] = sum(text.count("\n") for text in texts), len(texts), classes
    return {folder: numbers for folder, numbers in found.items() if numbers[1]}


def calls_of(action):
    """(Python calls in files of the project, how many files) while `action` runs once, after it has run three times."""
    for _ in range(3):
        action()
    files = Counter()

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(OWN):
            files[frame.f_code.co_filename] += 1

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    files[__file__] -= 1  # `action` itself
    return sum(files.values()), sum(count > 0 for count in files.values())


def on_ranks():
    """Print the second table. Collective over four ranks."""
    from gridgrad.nn import SGD, Linear, ReLU, Sequential, SoftmaxCrossEntropy
    from gridgrad.parallel import parallelize, train_step

    table, (x, y) = {}, (np.ones((100, 16), np.float32), np.arange(100) % 2)
    for name, options in WAYS.items():
        serial = Sequential([Linear(16, 32), ReLU(), Linear(32, 32), ReLU(), Linear(32, 2)])
        net = parallelize(serial, "batch=2,model=2", **options)
        optimizer, loss, block = SGD(net, 0.01, 0.9), SoftmaxCrossEntropy(), net.blocks(x, y)
        table[f"step, {name}"] = calls_of(lambda: train_step(net, loss, optimizer, *block))  # noqa: B023
    ones = np.ones(100)
    table["blocking all-reduce"] = calls_of(lambda: net.grid.world.all_reduce(ones, "ones"))
    if MPI.COMM_WORLD.rank == 0:
        print(f"\n{'':26}{'calls':>8}{'files':>8}")
        for name, numbers in table.items():
            print(f"{name:26}{numbers[0]:8}{numbers[1]:8}")


def main():
    from gridgrad.experiments.launching.start_ranks import mpiexec

    print(f"{'':26}{'lines':>8}{'files':>8}{'classes':>8}")
    for folder, numbers in sizes().items():
        print(f"{folder:26}{numbers[0]:8}{numbers[1]:8}{numbers[2]:8}")
    finished = mpiexec(4, ["-m", "tests.budget", "ranks"], 300)
    print(finished.stdout, end="")
    sys.exit(finished.stderr if finished.status else 0)


if __name__ == "__main__":
    on_ranks() if sys.argv[1:] == ["ranks"] else main()
