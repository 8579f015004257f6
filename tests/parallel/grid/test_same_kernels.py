"""All ranks of a grid use the table of rank 0, wherever that comes from."""

import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gridgrad.nn import Conv2d, Flatten, Linear, Sequential
from gridgrad.nn.kernels import gemm, kernel_table
from gridgrad.nn.kernels.kernel_table import SHIPPED, to_json
from gridgrad.nn.kernels.measure_table import BUDGET, QUICKLY
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.grid import devices
from gridgrad.parallel.grid.devices import use_device
from tests.mpi import mpi
from tests.parallel.equality import on_cpus

TABLES = [SHIPPED["Skylake-X"], kernel_table.PLAIN, SHIPPED["Zen 4"], SHIPPED["Sapphire Rapids"]]


def check_all_equal(comm, expected):
    """All ranks use the table `expected` and choose alike."""
    table = kernel_table.kernels()
    assert table == expected
    chosen = [gemm.tile(table.tiles, 128, 784, 512), gemm.tile(table.tiles_left_transposed, 4096, 75, 64)]
    assert len(set(map(repr, comm.allgather((table, chosen))))) == 1


@mpi(1, 2, 3)
def test_files_that_differ_by_rank(comm, monkeypatch):
    path = Path(os.environ["GRIDGRAD_CACHE"]) / f"kernels-of-rank-{comm.rank}.json"
    path.write_text(to_json(TABLES[comm.rank]))
    monkeypatch.setenv("GRIDGRAD_KERNELS", str(path))
    kernel_table.use(None)
    with ProcessGrid(comm, batch=comm.size) as grid:
        check_all_equal(comm, replace(TABLES[0], name=comm.bcast(str(path))))
        net = parallelize(Sequential([Conv2d(2, 3, 3), Flatten(), Linear(3 * 4, 2)], input_shape=(4, 4, 2)), grid)
        net.predict(np.ones((4, 4, 4, 2), np.float32))
        check_all_equal(comm, replace(TABLES[0], name=comm.bcast(str(path))))


@mpi(2, 3)
def test_tables_that_were_in_use_before(comm):
    kernel_table.use(TABLES[comm.rank])
    with ProcessGrid(comm, batch=comm.size):
        check_all_equal(comm, TABLES[0])


@mpi(1, 2, 3)
def test_measurements_that_differ_by_rank(comm, monkeypatch):
    if not on_cpus(comm):
        return
    stored, measured = [], []

    def measure(budget):
        measured.append(comm.allgather(comm.rank))  # all ranks measure at the same time
        return replace(TABLES[comm.rank], name="measured")

    monkeypatch.setattr(devices, "measured", measure)
    monkeypatch.setattr(devices, "stored", lambda: None)
    monkeypatch.setattr(devices, "store", stored.append)
    monkeypatch.setattr(devices, "announce", lambda: stored.append("announced"))
    kernel_table.use(kernel_table.PRESET)
    expected = replace(TABLES[0], name="measured")
    with ProcessGrid(comm, batch=comm.size), ProcessGrid(comm, model=comm.size):
        check_all_equal(comm, expected)
    assert len(measured) == 1 and stored == (["announced", expected] if comm.rank == 0 else [])
    monkeypatch.setattr(devices, "stored", lambda: TABLES[2] if comm.rank == 0 else None)
    kernel_table.use(kernel_table.PRESET)
    with ProcessGrid(comm, batch=comm.size):
        check_all_equal(comm, TABLES[2])
    assert len(measured) == 1


@mpi(1, 2, 3)
def test_a_calibration_measures_a_quick_table_anew(comm, monkeypatch):
    if not on_cpus(comm):
        return
    budgets, stored = [], []

    def measure(budget):
        budgets.append(budget)
        return replace(TABLES[comm.rank], name="measured" if budget == math.inf else QUICKLY)

    monkeypatch.setattr(devices, "measured", measure)
    monkeypatch.setattr(devices, "stored", lambda: None)
    monkeypatch.setattr(devices, "store", stored.append)
    monkeypatch.setattr(devices, "announce", lambda: None)
    kernel_table.use(kernel_table.PRESET)
    for _ in range(2):  # what was measured without a budget stays
        devices.calibrate_kernels(comm)
        check_all_equal(comm, replace(TABLES[0], name="measured"))
        assert budgets == [BUDGET, math.inf] and [table.name for table in stored] == [QUICKLY, "measured"] * (comm.rank == 0)


@mpi(3)
def test_the_table_of_the_first_cpu_counts(comm, monkeypatch):
    """Ranks on a device measure nothing."""
    measured = []
    monkeypatch.setattr(devices, "measured", lambda budget: measured.append(comm.rank) or TABLES[comm.rank])
    monkeypatch.setattr(devices, "stored", lambda: None)
    monkeypatch.setattr(devices, "store", lambda table: None)
    monkeypatch.setattr(devices, "announce", lambda: None)
    use_device(comm, "stand-in,cpu,cpu")
    kernel_table.use(kernel_table.PRESET)
    with ProcessGrid(comm, batch=comm.size):
        check_all_equal(comm, TABLES[1])
    assert measured == [comm.rank] * (comm.rank > 0)


@mpi(1, 2)
def test_a_file_that_is_no_table(comm, monkeypatch):
    monkeypatch.setenv("GRIDGRAD_KERNELS", "plain" if comm.rank else "/nowhere")
    kernel_table.use(None)
    with pytest.raises(ValueError, match="GRIDGRAD_KERNELS: can not read /nowhere"):
        ProcessGrid(comm, batch=comm.size)
    kernel_table.use(kernel_table.PLAIN)
