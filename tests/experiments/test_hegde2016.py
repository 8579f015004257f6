"""`reproduce hegde2016`: fits, tables and items of made-up times, processes that measure, small, and costs of protocols."""

import json
import os
import time
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest

from gridgrad.experiments.papers.cited import DERIVED, PRINTED, published
from gridgrad.experiments.papers.hegde2016 import claims, costs, figures, fits, items
from gridgrad.experiments.papers.hegde2016 import experiments as hegde2016
from gridgrad.experiments.papers.items import ALONE, deviation
from gridgrad.parallel.calibration import timing
from gridgrad.parallel.job.run import UserError
from tests.experiments.figures import is_figure
from tests.experiments.programs import program

VERSIONS = {"processor": "a processor", "blas": "a library"}
FACTORS = {"1 CPU thread": 1.0, "2 CPU threads": 0.5, "GPU A": 0.025}


def made_up(devices):
    """A measurement in which all devices follow the paper: 6.45 ms an image, c n^2."""
    rounds = (1.0, 0.9, 1.2)
    times = {name: [FACTORS[name] * r for r in rounds] for name in devices}
    seconds = lambda name, work: [work * r for r in times[name]]  # noqa: E731
    return {
        "busy_cores": 0.0,
        "versions": {name: VERSIONS for name in devices},
        "convolution": [
            {"device": name, "channels": c, "batch": b, "seconds": seconds(name, c * (1e-3 + 6.45e-3 * b))}
            for name in devices for c in (1, 3) for b in (1, 2, 4, 8, 16)
        ],
        "dense": [
            {"device": name, "batch": b, "n": n, "seconds": seconds(name, 2e-9 * b * n**2)}
            for name in devices for b in (1, 64) for n in (256, 512, 1024, 2048)
        ],
    }  # fmt: skip


def test_fits():
    assert astuple(fits.line([1, 2, 4], [5, 7, 11])) == pytest.approx((2, 3, 1))
    assert fits.line([0, 1, 2], [0, 1, 0]).r2 == pytest.approx(0)
    assert fits.line([1, 2], [4, 4])(np.array([7])) == pytest.approx([4])
    power = fits.power([1, 2, 4], [3, 12, 48])
    assert astuple(power) == pytest.approx((3, 2, 1)) and power(3) == pytest.approx(27)
    assert fits.power_of(2, [1, 2], [3, 48]) == pytest.approx(6)  # the geometric mean of 3 and 12


def test_quick_functions_are_timed_in_a_row(monkeypatch):
    calls = []
    monkeypatch.setattr(time, "perf_counter", lambda: 2.0 * len(calls))  # each call takes 2 seconds
    actions = {name: lambda name=name: calls.append(name) for name in "ab"}
    assert timing.times_in_turns(actions, 2, least=5.0) == {"a": [2.0, 2.0], "b": [2.0, 2.0]}
    assert "".join(calls) == "aabb" + 2 * "aaabbb"


def test_tables_of_devices_that_follow_the_paper():
    tables = hegde2016.tables(made_up(FACTORS))
    slopes = {(row["device"], row["channels"]): row for row in tables["convolution_slopes"]}
    assert slopes["1 CPU thread", 1]["ms_an_image"] == pytest.approx(6.45)
    assert slopes["1 CPU thread", 1]["intercept_ms"] == pytest.approx(1)
    assert slopes["1 CPU thread", 1]["R2"] == pytest.approx(1)
    assert slopes["1 CPU thread", 3]["GFLOP/s"] == pytest.approx(2 * 121 * 96 * 54 * 54 / 6.45e-3 / 1e9)
    assert slopes["printed: Intel Xeon E5-2670", 1]["GFLOP/s"] == pytest.approx(slopes["1 CPU thread", 1]["GFLOP/s"])
    for row in tables["dense_fits"]:
        assert row["exponent"] == pytest.approx(2) and row["n"] in ("all n", "n >= 1024")
        assert row["ns_an_element"] == pytest.approx(2 * row["batch"] * FACTORS[row["device"]])
    assert {round(row["speedup"], 6) for row in tables["convolution_speedups"]} == {2.0, 40.0}
    row = tables["convolution_times"][1]
    assert [row[name] for name in ("mean_ms", "median_ms", "min_ms", "max_ms")] == pytest.approx(
        [13.9 * factor for factor in (3.1 / 3, 1, 0.9, 1.2)]
    )
    assert "Speedups are over one CPU thread." in hegde2016.as_markdown(tables)


def test_what_was_not_measured_is_said():
    tables = hegde2016.tables(made_up(["1 CPU thread", "2 CPU threads"]))
    text = hegde2016.as_markdown(tables)
    assert figures.NO_GPU in text and "| can not be decided here | A GPU computes a convolution about 40 times" in text
    alone = hegde2016.tables(made_up(["1 CPU thread"]))
    assert alone["dense_speedups"] == [] and "Figure 4:" not in hegde2016.as_markdown(alone)


def test_items_have_numbers_of_the_paper_beside_those_that_were_measured():
    found = {item.name: item for item in items.items(hegde2016.tables(made_up(FACTORS)))}
    rows = {row.label: row for row in found["Figure 1"].rows}
    cpu, gpu = rows["1 CPU thread, 1 channel: ms an image"], rows["GPU A, 1 channel: ms an image"]
    assert (cpu.cited.value, cpu.cited.kind, cpu.measured) == (6.45, PRINTED, pytest.approx(6.45))
    assert (gpu.cited.value, gpu.measured) == (0.16, pytest.approx(6.45 / 40))
    ratio = rows["a CPU over the GPU, by the slopes"]
    assert (
        ratio.cited.kind == DERIVED and ratio.cited.value == pytest.approx(6.45 / 0.16) and ratio.measured == pytest.approx(40)
    )
    assert sum("ms an image" in label for label in rows) == 6  # two kinds of images on three devices, each once
    assert {row.cited.value for row in found["Figure 3"].rows} == {2}
    assert found["Figure 2"].status == ALONE  # the ratio of the text is that of all sizes together
    costs_of = {row.label: row for row in found["Section 5: communication"].rows}
    term = costs_of["ParallelSGD, k = 8: the paper's terms"]
    assert (term.cited, term.measured) == (None, None) and "k p" in term.remark
    assert term.predicted == pytest.approx(8 * 4 * 169_506 / 2**20)
    order = costs_of["ParallelSGD, communication cost in the paper"].cited
    assert (order.kind, order.value) == (PRINTED, "O(Lk) + O(kp/B)")
    assert not deviation(found["Section 5: communication"]) and found["Figure 1"].compares is False
    assert found["Section 5.2.1"].rows[0].cited.value == "P = T/tau"
    assert "ShuffleSGD" not in {row.label.split(",")[0] for row in found["Section 5: computation"].rows if row.measured}


def test_without_a_measurement_there_are_items_and_a_verdict_on_each_claim():
    tables = hegde2016.tables({})
    assert [item.name for item in items.items(tables)][:4] == ["Figure 1", "Figure 2", "Figure 3", "Figure 4"]
    assert {claim.name for claim in claims.claims(tables)} == set(published("hegde2016").claims)
    assert items.measured_on(tables) == ""


def test_tables_follow_from_what_is_kept():
    tables = hegde2016.tables(made_up(FACTORS))
    assert hegde2016.tables(json.loads(json.dumps(tables))) == tables
    kept = hegde2016.tables(json.loads((Path(__file__).parents[2] / "results/hegde2016/tables.json").read_text()))
    assert len({one["processor"] for one in kept["versions"].values()}) == 1
    assert "Measured on" in hegde2016.as_markdown(kept) and items.items(kept)


def test_costs_are_of_the_order_that_the_paper_says():
    for row in costs.rows([]):
        ratio = row["all workers, *predicted* MiB"] / row["its terms, *predicted* MiB"]
        if row["algorithm"] == costs.SHUFFLE:
            assert ratio == pytest.approx((row["k"] - 1) / row["k"], rel=0.02)  # one sample in k stays where it is
        elif row["algorithm"] == costs.EXCHANGE:
            assert ratio == pytest.approx(1 / 2, rel=0.02)
            assert row["busiest, *predicted* MiB"] == pytest.approx(row["all workers, *predicted* MiB"] / row["k"])
        else:
            assert ratio == pytest.approx(2 * (row["k"] - 1) / row["k"])
    bytes_of = {(row["algorithm"], row["k"]): row["all workers, *predicted* MiB"] for row in costs.rows([])}
    assert bytes_of["ADMM SGD", 4] == pytest.approx(bytes_of["ParallelSGD", 4] * 235)  # steps, of 256 images each


def test_no_more_workers_than_a_server_can_serve():
    for row in costs.limits():
        speedups = {k: row[f"k = {k}"] for k in costs.SCALES}
        assert speedups[64] == pytest.approx(row["T/tau"], rel=0.06)
        assert max(speedups, key=speedups.get) <= 2 * (row["T/tau"] + 2)  # the next power of two
    spread, single = (
        [row["T/tau"] for row in costs.limits() if row["server"].startswith(name)] for name in ("spread", "single")
    )
    assert all(more > less for more, less in zip(spread, single, strict=True))


@pytest.mark.parametrize("devices", [["1 CPU thread"], pytest.param(list(FACTORS), marks=pytest.mark.long)])
def test_the_figures(devices, tmp_path):
    figures.draw(hegde2016.tables(made_up(devices)), tmp_path / "f")
    drawn = sorted(path.stem for path in (tmp_path / "f").glob("*.png") if is_figure(path))
    assert drawn == (["figure1", "figure3"] if len(devices) == 1 else ["figure1", "figure2", "figure3", "figure4"])


def test_numbers_of_threads():
    assert [hegde2016.thread_counts(cores) for cores in (1, 2, 6, 8)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]


@pytest.fixture
def small(monkeypatch):
    for name, values in {"CHANNELS": (1,), "BATCH_SIZES": (1, 2), "SAMPLES": (1,), "SIZES": (16, 32), "LARGE": 16}.items():
        monkeypatch.setattr(hegde2016, name, values)
    monkeypatch.setattr(hegde2016, "ROUNDS", 2)
    monkeypatch.setattr(hegde2016, "cores", lambda: {0})
    monkeypatch.setattr(hegde2016.device, "gpus", list)
    monkeypatch.setattr(costs, "WORKERS", (2,))
    monkeypatch.setattr(costs, "SAMPLES", 10 * costs.BATCH)  # five steps


@pytest.mark.long
def test_a_small_measurement(small, tmp_path):
    measured = hegde2016.experiments(tmp_path, [1], None)
    assert [(row["channels"], row["batch"], len(row["seconds"])) for row in measured["convolution"]] == [(1, 1, 4), (1, 2, 4)]
    assert [(row["batch"], row["n"], len(row["seconds"])) for row in measured["dense"]] == [(1, 16, 4), (1, 32, 4)]
    assert measured["versions"]["1 CPU thread"]["threads"] == 1
    tables = json.loads(json.dumps(hegde2016.tables(measured), allow_nan=False))
    rows = {row["algorithm"]: row for row in tables["costs"]}
    ratios = {name: (row["counted/*predicted*"], row["busiest, counted/*predicted*"]) for name, row in rows.items()}
    assert ratios["exchange of halves"] == (1, 1)
    messages = [rows["exchange of halves"][f"its messages, {how}"] for how in ("counted", "*predicted*")]
    assert messages == [4, 4]  # how many samples each has; inputs, targets, indices
    assert ratios["ShuffleSGD"] == pytest.approx((1, 1), rel=0.01)
    assert all(ratios[name] == pytest.approx((1, 1), rel=1e-4) for name in ("ParallelSGD", "ADMM SGD"))
    assert ratios["Downpour SGD"] == pytest.approx((1.1, 1.2), rel=1e-3)  # the parameters are fetched once more at the end
    assert rows["ParallelSGD"]["its messages, counted"] == rows["ParallelSGD"]["its messages, *predicted*"] + 2
    shuffle, *others = tables["computations"]
    assert shuffle["counted millions"] is None
    assert [row["counted/*predicted*"] for row in others] == pytest.approx([1, 1, 1], rel=1e-5)
    hegde2016.draw(tables, tmp_path)
    assert is_figure(tmp_path / "figure1.png")


def test_tables_and_figures_from_an_earlier_run(tmp_path):
    (tmp_path / "tables.json").write_text(json.dumps(hegde2016.tables(made_up(FACTORS))))
    finished = program("reproduce", "hegde2016", "--tables-only", "--out", tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert (tmp_path / "tables.md").exists() and all(is_figure(tmp_path / f"figure{number}.png") for number in (1, 2, 3, 4))


def test_threads_that_were_not_asked_for_are_refused(small, monkeypatch):
    monkeypatch.setitem(os.environ, "OPENBLAS_NUM_THREADS", "1")
    with pytest.raises(UserError, match="BLAS has 1 threads where 2 were asked for"):
        hegde2016.times("cpu", 2)


def test_without_a_measurement_there_is_what_is_printed(tmp_path):
    finished = program("reproduce", "hegde2016", "--tables-only", "--json", tmp_path / "t.json", "--out", tmp_path / "o")
    assert finished.returncode == 0 and "Nothing measured yet" in finished.stdout, finished.stderr
    tables = json.loads((tmp_path / "t.json").read_text())
    assert [row["ms_an_image"] for row in tables["convolution_slopes"]] == [6.45, 0.16]
