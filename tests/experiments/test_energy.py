"""The energy of the processors, from counters in a made-up folder, and of the phases of a run: a machine counts once."""

import tempfile
from pathlib import Path

import pytest

from gridgrad.experiments.studies import autoencoder
from gridgrad.experiments.studies.autoencoder import EnergyMeter, Phases
from gridgrad.parallel import ProcessGrid
from tests.mpi import mpi

ZONES = {
    "intel-rapl:0": "package-0",
    "intel-rapl:0:0": "core",
    "intel-rapl:0:1": "dram",
    "intel-rapl:1": "package-1",
    "intel-rapl:2": "psys",
}
LARGEST = 262143328850


def write(folder, **counts):
    for zone, name in ZONES.items():
        (folder / zone).mkdir(exist_ok=True)
        for file, value in (("name", name), ("max_energy_range_uj", LARGEST), ("energy_uj", counts[name.replace("-", "")])):
            (folder / zone / file).write_text(f"{value}\n")


def test_processors_and_memory_count_once(tmp_path):
    write(tmp_path, package0=10**6, package1=0, core=0, dram=5, psys=0)
    meter = EnergyMeter(tmp_path)
    assert meter.reason is None and meter.read() == 0
    write(tmp_path, package0=4 * 10**6, package1=7 * 10**6, core=10**6, dram=2 * 10**6 + 5, psys=10**8)
    assert meter.read() == pytest.approx(3 + 7 + 2)


def test_counters_that_start_again_from_zero(tmp_path):
    write(tmp_path, package0=LARGEST - 10**6, package1=0, core=0, dram=0, psys=0)
    meter = EnergyMeter(tmp_path)
    write(tmp_path, package0=2 * 10**6 - 1, package1=0, core=0, dram=0, psys=0)
    assert meter.read() == pytest.approx(3)
    write(tmp_path, package0=10**6, package1=0, core=0, dram=0, psys=0)  # and once more
    assert meter.read() == pytest.approx(3 + (LARGEST + 1 - 10**6 + 1) / 1e6)


def test_a_machine_without_counters_says_so(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        meter = EnergyMeter(folder)
        assert meter.read() is None and meter.reason == f"this machine shows no counters (RAPL) in {folder}"


def test_counters_that_only_root_may_read_are_named_so(tmp_path, monkeypatch):
    write(tmp_path, package0=0, package1=0, core=0, dram=0, psys=0)

    def refuse(zone):
        raise PermissionError(13, "Permission denied", str(zone))

    monkeypatch.setattr(autoencoder, "count", refuse)
    meter = EnergyMeter(tmp_path)
    assert meter.read() is None and meter.reason == f"the counters in {tmp_path} are for root alone"


def test_damaged_counters_are_not_measured(tmp_path):
    write(tmp_path, package0="half", package1=0, core=0, dram=0, psys=0)
    meter = EnergyMeter(tmp_path)
    assert meter.read() is None and "can not be read" in meter.reason


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
