"""The training program: what it adds to a network trains alike on every grid, and its report has what was measured.

That grids, plans, reductions, protocols and the like train as one rank does is tested in tests/random_networks.
"""

import io
import json
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from PIL import Image

from gridgrad.experiments.common.problems import published
from gridgrad.experiments.studies.usability.__main__ import BY_HAND, one_call, source
from gridgrad.parallel.partitioning.good_partition import partition, write_owners
from gridgrad.parallel.training.network import ParallelSequential
from tests.experiments.programs import alone, assert_refused, trained
from tests.mpi import mpi
from tests.parallel.checkpoint.training import folder

SETTINGS = "--net", "mlp:11,31,relu,dropout=0.1", "--batch-size", 97, "--epochs", 2, "--dtype", "float64"
IMAGES = (
    "--dataset", "images:flowers,size=13", "--net", "resnet20", "--batch-size", 7, "--dtype", "float64", "--lr", 0.01,
    "--schedule", "constant", "--augment", "shift=2,flip", "--validation", 0.3, "--patience", 2, "--epochs", 4,
)  # fmt: skip
OWNED = "--net", "mlp:17,13,relu", "--steps", 6, "--batch-size", 9, "--dtype", "float64"
ALIKE = [  # (what is trained, how two ranks share it)
    (IMAGES, ("--grid", "height=2")),
    (OWNED, ("--grid", "model=2", "--plan", "owners.h5", "--reader", "scatter")),
    (OWNED, ("--grid", "model=2", "--shares", "auto", "--handicap", "1=3", "--rebalance", 2)),
]


def write_data(place):
    """A folder of images in two classes, of which one is brighter; owners of all outputs of OWNED."""
    random = np.random.default_rng(0)
    for part, count in (("train", 12), ("test", 5)):
        for label, name in enumerate(("dark", "light")):
            (place / "flowers" / part / name).mkdir(parents=True)
            for number in range(count):
                pixels = random.integers(90 * label, 160 + 90 * label, (14, 17, 3)).astype(np.uint8)
                Image.fromarray(pixels).save(place / "flowers" / part / name / f"{number}.png")
    write_owners(partition(published("mlp:17,13,relu", [4], 1, "float64"), 2), place / "owners.h5")


@mpi(2)
def test_what_comes_from_files_or_changes_on_the_way_trains_alike(comm, monkeypatch):
    """Images that vary, with early stopping; partitions; shares that are measured."""
    with folder(comm) as place:
        if comm.rank == 0:
            write_data(Path(place))
        comm.Barrier()
        monkeypatch.chdir(place)
        for what, how in ALIKE:
            expected, _ = alone(comm, *what, "--data-dir", place)
            found, _ = trained(comm, *what, "--data-dir", place, *how)
            assert found["P"] == 2 and found["settings"]["grid"] == how[1]
            assert np.allclose(found["loss"], expected["loss"], rtol=1e-8), how
            for name in {"validation", "best_epoch", "test_loss", "test_accuracy", "test_mse"} & expected.keys():
                assert found[name] == pytest.approx(expected[name], rel=1e-8), (how, name)
            assert [entry["step"] for entry in found["rebalancing"] or ()] == ([2, 4] if "--rebalance" in how else [])
        comm.Barrier()


@mpi(1, 2)
def test_a_report_has_what_was_measured_and_what_was_printed(comm):
    with folder(comm) as place:
        path, trace = f"{place}/outputs.npy", f"{place}/trace.json"
        expected, _ = alone(comm, *SETTINGS, "--predictions", f"{place}/alone.npy")
        files = "--predictions", path, "--trace", trace
        found, said = trained(comm, *SETTINGS, "--grid", f"batch={comm.size}", "--reader", "scatter-broadcast", *files)
        outputs = np.load(path)
        assert json.loads(Path(trace).read_text())["traceEvents"]
        assert outputs.shape == (301, 1) and np.allclose(outputs, np.load(f"{place}/alone.npy"), rtol=1e-9)
        assert 100 < outputs.mean() < 150  # dB
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-10) and found["final_loss"] == found["loss"][-1]
    assert found["test_mse"] == pytest.approx(expected["test_mse"], rel=1e-9)
    assert found["steps"] == len(found["loss"]) == 2 * 13 and found["final_loss"] < found["loss"][0]
    if comm.rank == 0:  # who prints
        assert said.count(f"epoch 2: mean loss {np.mean(found['loss'][13:]):.6f}") == 1
        assert f"test mean squared error {found['test_mse']:.5f}" in said
    assert (found["time"]["communicate"] > 0) == bool(found["bytes"]) == (comm.size > 1)
    # A step of the mean rank takes no less than the shortest one, and no more than the longest one.
    took = found["seconds_per_step"]
    assert took["min"] / comm.size * 0.999 <= sum(found["time"].values()) <= took["max"] * 1.001
    again, _ = trained(comm, *SETTINGS, "--grid", f"batch={comm.size}", "--validation", 0.1)
    assert len(again["validation"]) == 2 and again["steps"] == 2 * 12  # of (1202 - 120) samples
    layers = {row["layer"] for row in again["communication"]}
    assert layers == ({"gradients", "loss"} if comm.size > 1 else set()), "evaluations are not counted"


def test_several_ranks_refuse_alike_what_they_find_out_together_or_alone(tmp_path):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(b"\x1f\x8b damaged")
    assert_refused(2, "train", [
        (["--grid", "batch=3"], "3 places"),
        (["--grid", "batch=2", "--protocol", "local:2", "--reader", "scatter"], "use each"),
        (["--grid", "model=2", "--plan", "nowhere.h5"], "nowhere.h5"),
        (["--grid", "batch=2", "--report", "/proc/no/r.json"], "/proc/no"),
        (["--grid", "batch=2", "--dataset", "mnist", "--data-dir", tmp_path], "train-images-idx3-ubyte"),
        (["--grid", "batch=2", "--lr", "1e30", "--net", "mlp:8,8,relu"], "first not finite: "),
        (["--grid", "batch=2", "--lr", "1e30", "--protocol", "local:4"], "step "),
    ], ["--steps", 9, "--net", "mlp:8,relu", "--quiet"])  # fmt: skip


# ----- update protocols


@mpi(2)
def test_an_asynchronous_server_with_a_straggler_reports_turns_and_staleness(comm):
    words = "--grid", "batch=2", "--protocol", "server:asp", "--handicap", "1=3"
    found, printed = trained(comm, *SETTINGS, *words)
    assert (found["P"], found["workers"], found["protocol"], found["interval"]) == (2, 2, "server:asp", 1)
    assert sum(found["turns"]) == 2 * 26 and len(found["loss"]) == 26 and np.isfinite(found["loss"]).all()
    assert sum(found["staleness"].values()) == 2 * 52  # each of two servers has had every gradient
    assert found["effective_batch"] == 48.5 and found["protocol_memory"] > 0
    assert sum(row["bytes"] for row in found["communication"] if row["layer"] == "protocol") > 0
    assert comm.rank or "effective batch 48.5, exchange in every turn" in printed


# ----- programs of the study usability


def losses(text):
    """What a program prints, run by this rank in this process: the loss of each epoch."""
    printed, names = io.StringIO(), {"__name__": "__main__"}
    with redirect_stdout(printed):
        exec(compile(text, "program", "exec"), names)
    for thing in names.values():  # what its end would free
        if isinstance(thing, ParallelSequential):
            thing.grid.free()
        elif isinstance(thing, MPI.Comm) and thing not in (MPI.COMM_WORLD, MPI.COMM_SELF):
            thing.Free()
    found = [float(line.split()[1]) for line in printed.getvalue().splitlines()]
    assert len(found) == 3
    return found


@mpi(2)
def test_every_version_of_the_study_usability_trains_as_the_serial_program(comm):
    expected = losses(source("serial"))
    for text in [*map(source, BY_HAND), *map(one_call, [None, "batch=2", "model=2"])]:
        assert losses(text) == pytest.approx(expected, rel=1e-10), text
