"""The phases of a run: ranks of one machine count its energy once, and one machine without counters is enough for none."""

import tempfile
from pathlib import Path

import pytest

from gridgrad.experiments.studies.autoencoder import EnergyMeter, Phases
from gridgrad.parallel import ProcessGrid
from tests.experiments.test_energy import write
from tests.mpi import mpi


@mpi(1, 2)
def test_the_energy_of_a_machine_counts_once(comm):
    said, none = [], {"package1": 0, "core": 0, "dram": 0, "psys": 0}
    with tempfile.TemporaryDirectory() as folder, ProcessGrid(comm, batch=comm.size) as grid:
        write(Path(folder), package0=0, **none)
        phases = Phases(grid, EnergyMeter(folder), said.append)
        for joules in (3, 10):
            with phases.phase(f"until {joules}"):
                write(Path(folder), package0=joules * 10**6, **none)
                phases.keep_count()
        assert [row["joules"] for row in phases.rows] == pytest.approx([3, 7])
        assert phases.energy == {"joules": pytest.approx(10), "not_measured_because": None}
        assert len(said) == 3 and ", 7 J, " in said[2]


@mpi(2)
def test_one_machine_without_counters_is_enough_for_none(comm):
    said = []
    with tempfile.TemporaryDirectory() as folder, ProcessGrid(comm, batch=2) as grid:
        write(Path(folder), package0=0, package1=0, core=0, dram=0, psys=0)
        phases = Phases(grid, EnergyMeter(folder if comm.rank else Path(folder) / "none"), said.append)
        with phases.phase("only"):
            phases.keep_count()
        assert phases.rows[0]["joules"] is None and phases.energy["joules"] is None
        assert "shows no counters" in phases.energy["not_measured_because"] and said[0].startswith("energy is not measured: ")
