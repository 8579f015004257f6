"""`reproduce hegde2016`: tables, items and claims of made-up times, a small measurement, and the costs of protocols."""

import json
import os

import numpy as np
import pytest

from gridgrad.experiments.papers import hegde2016
from gridgrad.experiments.papers import hegde2016_costs as costs
from gridgrad.experiments.papers.claims import DIFFERS, HOLDS, OPEN
from gridgrad.experiments.papers.paper import paper_of
from gridgrad.experiments.papers.parts import USUAL
from gridgrad.parallel.job.run import UserError
from tests.experiments.figures import is_figure

PAPER = paper_of("hegde2016")
FACTORS = {"1 CPU thread": 1.0, "2 CPU threads": 0.5, "GPU A": 0.025}


def made_up(devices, exponent=1.0):
    """A measurement in which all devices follow the paper: 6.45 ms an image, or a power of the batch, and c n^2."""
    times = {name: [FACTORS[name] * r for r in (1.0, 0.9, 1.2)] for name in devices}
    seconds = lambda name, work: [work * r for r in times[name]]  # noqa: E731
    return {
        "busy_cores": 0.0, "versions": {name: {"processor": "a processor", "blas": "a library"} for name in devices},
        "convolution": [
            {"device": name, "channels": c, "batch": b, "seconds": seconds(name, c * (1e-3 + 6.45e-3 * b**exponent))}
            for name in devices for c in (1, 3) for b in (1, 2, 4, 8, 16)
        ],
        "dense": [
            {"device": name, "batch": b, "n": n, "seconds": seconds(name, 2e-9 * b * n**2)}
            for name in devices for b in (1, 64) for n in (256, 512, 1024, 2048)
        ],
    }  # fmt: skip


def verdicts(tables):
    return {claim.name: claim.verdict for claim in PAPER.claims(tables)}


def test_lines_and_powers():
    assert hegde2016.line([1, 2, 4], [5, 7, 11]) == pytest.approx((2, 3, 1))
    assert hegde2016.line([0, 1, 2], [0, 1, 0])[2] == pytest.approx(0)
    exponent, factor, r2 = hegde2016.line(np.log([1, 2, 4]), np.log([3, 12, 48]))
    assert (exponent, np.exp(factor), r2) == pytest.approx((2, 3, 1))


def test_devices_that_follow_the_paper(tmp_path):
    tables = hegde2016.tables(made_up(FACTORS))
    slopes = {(row["device"], row["channels"]): row for row in tables["convolution_slopes"]}
    assert slopes["1 CPU thread", 1]["ms_an_image"] == pytest.approx(6.45)
    assert slopes["1 CPU thread", 3]["GFLOP/s"] == pytest.approx(2 * 121 * 96 * 54 * 54 / 6.45e-3 / 1e9)
    assert {round(row["exponent"], 6) for row in tables["dense_fits"]} == {2.0}
    assert {round(row["speedup"], 6) for row in tables["convolution_speedups"]} == {2.0, 40.0}
    found = verdicts(tables)
    assert {found[name] for name in ("linear_cpu", "linear_gpu", "gpu_convolution", "gpu_dense", "quadratic")} == {HOLDS}
    assert found["batch_speedup"] == DIFFERS  # all sizes gain as much
    rows = {row.label: row for item in PAPER.items(tables) for row in item.rows if item.name == "Figure 1"}
    cpu, gpu = rows["1 CPU thread, 1 channel: ms an image"], rows["GPU A, 1 channel: ms an image"]
    assert (cpu.cited.value, cpu.measured, gpu.cited.value) == (6.45, pytest.approx(6.45), 0.16)
    assert rows["a CPU over the GPU, by the slopes"].measured == pytest.approx(40)
    PAPER.draw(tables, tmp_path)
    assert all(is_figure(tmp_path / f"figure{number}.png") for number in (1, 2, 3, 4))
    assert hegde2016.tables(json.loads(json.dumps(tables))) == tables


def test_devices_that_do_not_follow_it_and_devices_that_are_not_there():
    assert verdicts(hegde2016.tables(made_up(FACTORS, exponent=0.5)))["linear_cpu"] == DIFFERS
    found = verdicts(hegde2016.tables(made_up(["1 CPU thread", "2 CPU threads"])))
    assert {found[name] for name in ("gpu_convolution", "linear_gpu", "quadratic", "batch_speedup")} == {OPEN}
    assert verdicts(hegde2016.tables())["linear_cpu"] == OPEN and len(PAPER.items(hegde2016.tables())) >= 8


def test_costs_are_of_the_order_that_the_paper_says():
    bytes_of = {}
    for row in hegde2016.sent_rows([]):
        bytes_of[row["algorithm"], row["k"]] = total = row["all workers, *predicted* MiB"]
        ratio = total / row["its terms, *predicted* MiB"]
        if row["algorithm"] == costs.SHUFFLE:
            assert ratio == pytest.approx((row["k"] - 1) / row["k"], rel=0.02)  # one sample in k stays where it is
        elif row["algorithm"] == costs.EXCHANGE:
            assert ratio == pytest.approx(1 / 2, rel=0.02)
        else:
            assert ratio == pytest.approx(2 * (row["k"] - 1) / row["k"])
    assert bytes_of["ADMM SGD", 4] == pytest.approx(bytes_of["ParallelSGD", 4] * 235)  # steps, of 256 images each
    assert costs.comparisons(1, 8) == 0 and 4 <= costs.comparisons(2, 4) <= 7
    for row in costs.limits():
        assert row["k = 64"] == pytest.approx(row["T/tau"], rel=0.06)


@pytest.fixture
def small(monkeypatch):
    for name, values in {"CHANNELS": (1,), "BATCH_SIZES": (1, 2), "SAMPLES": (1,), "SIZES": (16, 32), "LARGE": 16}.items():
        monkeypatch.setattr(hegde2016, name, values)
    monkeypatch.setattr(hegde2016, "ROUNDS", 2)
    monkeypatch.setattr(hegde2016, "cores", lambda: {0})
    monkeypatch.setattr(hegde2016.device, "gpus", list)
    monkeypatch.setattr(hegde2016, "WORKERS", (2,))
    monkeypatch.setattr(costs, "SAMPLES", 10 * costs.BATCH)  # five steps


@pytest.mark.long
def test_a_small_measurement(small, tmp_path):
    measured = hegde2016.gathered({part.name: part.run() for part in hegde2016.to_measure(USUAL, [1], None)}, tmp_path)
    assert [(row["channels"], row["batch"], len(row["seconds"])) for row in measured["convolution"]] == [(1, 1, 4), (1, 2, 4)]
    tables = json.loads(json.dumps(hegde2016.tables(measured), allow_nan=False))
    sent = {row["algorithm"]: row["counted MiB"] / row["all workers, *predicted* MiB"] for row in tables["costs"]}
    assert [sent[name] for name in ("exchange of halves", "ParallelSGD", "ADMM SGD")] == pytest.approx([1, 1, 1], rel=1e-4)
    assert (sent["ShuffleSGD"], sent["Downpour SGD"]) == pytest.approx((1, 1.1), rel=0.01)  # fetched once more at the end
    done = [row["counted millions"] for row in tables["computations"][1:]]
    assert done == pytest.approx([row["operations, *predicted* millions"] for row in tables["computations"][1:]], rel=1e-5)


def test_threads_that_were_not_asked_for_are_refused(small, monkeypatch):
    monkeypatch.setitem(os.environ, "OPENBLAS_NUM_THREADS", "1")
    with pytest.raises(UserError, match="BLAS has 1 threads where 2 were asked for"):
        hegde2016.times("cpu", 2)
