"""The examples in the docstrings of the exports run: alone, and those of `gridgrad.parallel` on two ranks too."""

import pytest

from gridgrad.experiments.launching.start_ranks import mpiexec
from tests.api.exports import PACKAGES

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize(("package", "ranks"), [*((package, 1) for package in PACKAGES), ("gridgrad.parallel", 2)])
def test_the_examples_run(package, ranks, tmp_path):
    finished = mpiexec(ranks, ["-m", "tests.api.examples", package], 120, {"GRIDGRAD_DATA": str(tmp_path)})
    assert finished.status == 0, finished.stdout + finished.stderr
