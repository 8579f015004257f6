"""The stacked autoencoder: on a grid the same, what is reported, and the energy from counters in a made-up folder."""

import json
from functools import partial

import numpy as np
import pytest
from mpi4py import MPI

from gridgrad.experiments.studies.autoencoder import EnergyMeter, Stack, error_of, made_up, options
from gridgrad.parallel import ProcessGrid, parallelize
from tests.datasets.made_up_mnist import blocks, write_mnist
from tests.experiments.programs import run_main
from tests.mpi import mpi

SMALL = ["--pretrain-epochs", "2", "--epochs", "2", "--batch-size", "20", "--dtype", "float64", "--corruption", "0.2"]


@mpi(2)
def test_a_grid_trains_the_same_networks(comm):
    args, found = options().parse_args(SMALL), []
    part = made_up(20, 4, args, 5)
    for ranks, sizes in ((MPI.COMM_SELF, {}), (comm, {"model": 2})):
        with ProcessGrid(ranks, **sizes) as grid:
            stack = Stack([20, 9, 5], 4, args, partial(parallelize, grid=grid, allocate=False))
            errors = [stack.pretrain(part, position, lambda *_: None)[1] for position in range(2)]
            net, losses = stack.finetune(part, lambda *_: None)
            found.append([*errors, losses, [error_of(net, part, args.batch_size)] * 2])
    np.testing.assert_allclose(*found, rtol=1e-9)


def test_the_report_has_what_was_measured(tmp_path, monkeypatch, capsys):
    rng, path = np.random.default_rng(0), tmp_path / "report.json"
    write_mnist(tmp_path, train=blocks(rng, 250), t10k=blocks(rng, 50))
    words = ["--widths", "31,7", "--validation", 0.2, "--energy", "--report", path]
    run_main(monkeypatch, "autoencoder", "--data-dir", tmp_path, *SMALL, *words)
    found, printed = json.loads(path.read_text()), capsys.readouterr().out
    assert found["widths"] == [784, 31, 7, 10] and found["training_samples"] == 200
    assert all(0 < last < first < 1 for first, last in (layer["reconstruction_error"] for layer in found["layers"]))
    assert found["loss"][1] < found["loss"][0] and [row["phase"] for row in found["phases"]][-1] == "fine-tuning"
    assert f"test error {found['test_error']:.2f} %" in printed


# ----- energy

ZONES = "package-0", "core", "dram", "package-1", "psys"
LARGEST = 262143328850


def write(folder, **counts):
    """Set the counters of the zones, in microjoules; those that are not named are 0."""
    for number, name in enumerate(ZONES):
        zone = folder / f"intel-rapl:{number}"
        zone.mkdir(exist_ok=True)
        for file, value in (("name", name), ("max_energy_range_uj", LARGEST), ("energy_uj", counts.get(name[:7], 0))):
            (zone / file).write_text(f"{value}\n")


def test_processors_and_memory_count_once_and_counters_start_again_from_zero(tmp_path):
    write(tmp_path, package=10**6, dram=5)
    meter = EnergyMeter(tmp_path)
    assert meter.reason is None and meter.read() == 0
    write(tmp_path, package=4 * 10**6, core=10**6, dram=2 * 10**6 + 5, psys=10**8)
    assert meter.read() == pytest.approx(3 + 3 + 2)  # of two processors
    write(tmp_path, package=10**6, dram=2 * 10**6 + 5)
    assert meter.read() == pytest.approx(8 + 2 * (LARGEST + 1 - 3 * 10**6) / 1e6, rel=1e-13)
