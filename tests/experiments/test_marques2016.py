"""`reproduce marques2016`: what follows from the text of the paper, the job that splits a step, and a small measurement."""

import json

import pytest

from gridgrad.experiments.papers.cited import DERIVED, PRINTED
from gridgrad.experiments.papers.items import BESIDE
from gridgrad.experiments.papers.marques2016 import experiments as marques2016
from gridgrad.experiments.papers.marques2016 import items as marques2016_items
from gridgrad.experiments.papers.marques2016 import scaling as marques2016_scaling
from gridgrad.experiments.papers.marques2016.appendix import SECONDS, WIDTHS, epoch_row, kept_epochs, seconds_of
from gridgrad.experiments.papers.marques2016.runs import (
    BATCH_SIZES,
    MASTERLESS,
    NETWORKS,
    PARTS,
    WITH_MASTER,
    MarquesRun,
    measure,
    parts,
    ratios,
    runs,
)
from gridgrad.experiments.papers.marques2016.scaling import (
    EQUATIONS,
    RATE,
    SUMMED,
    derived,
    like_measured,
    second_speed,
    seconds_on_one,
    sent,
)
from gridgrad.experiments.papers.marques2016.scaling import PRINTED as AS_PRINTED
from gridgrad.parallel.job.run import UserError
from tests.experiments.figures import is_figure
from tests.experiments.programs import job, program

LARGEST = "CPUs, largest network"


def printed(seconds, sent=0, batch_size=64, number=0):
    """What the job prints of one step, and the number of the round."""
    versions = {"processor": "a machine", "mpi": "an MPI", "threads": 1}
    about = {"round": number, "batch_size": batch_size, "bytes": sent, "versions": versions, "peak_memory": 1 << 30}
    return {name: [value] for name, value in zip(PARTS, seconds, strict=True)} | about


def measured(networks=NETWORKS, sizes=BATCH_SIZES, faster=1.0, rounds=2, of_large=1):
    """A measurement in which a rank more halves the convolutions. faster: how many times as long one rank takes for all.

    rounds: of batch size 64; of_large: of the others.
    """
    found = {}
    for network in networks:
        for size in sizes:
            for number in range(rounds if size == 64 else of_large):
                for run, seconds in (
                    (MarquesRun(network, size), (0.0, 8.0 * faster, 2.0 * faster)),
                    (MarquesRun(network, size, 2, WITH_MASTER), (1.0, 4.0, 2.0)),
                    (MarquesRun(network, size, 2, MASTERLESS), (0.5, 4.0, 1.0)),
                ):
                    found.setdefault(run.key, []).append(printed(seconds, int(1e6), size, number))
    return {"runs": found, "machine": "a machine"}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_the_constants_say_what_the_text_says(equation):
    cluster = derived(equation)[LARGEST]
    assert [cluster.speedup(nodes) for nodes in (2, 3, 4)] == pytest.approx([1.98, 2.74, 3.28], rel=1e-6)
    assert cluster.limit == pytest.approx(7.76)
    assert 1 < cluster.speeds[1] < cluster.speeds[2] < cluster.speeds[3] < 5  # an i5 and three i7, the last one the newest
    small = derived(equation)["CPUs, smallest network"].seconds(4)
    assert small["communication"] == pytest.approx(0.47 * sum(small.values()))
    assert small["communication"] == pytest.approx(4.51 * small["convolution"])
    assert derived(equation)["GPUs, largest network"].limit == pytest.approx(2.15)


def test_equation_5_1_is_as_printed_for_one_slave():
    layers = 32**2 * 3 * 64 + 5**2 * 25 * 3 + 28**2 * 25 * 64 + 14**2 * 50 * 64 + 5**2 * 250 * 50 + 10**2 * 250 * 64
    assert sent("50:500", 64, (1, 1), AS_PRINTED) == sent("50:500", 64, (1, 1), SUMMED) == 8 * layers
    inputs = 8 * 64 * (32**2 * 3 + 14**2 * 50)
    assert sent("50:500", 64, (1,) * 4, SUMMED) - sent("50:500", 64, (1,) * 4, AS_PRINTED) == 2 * inputs
    assert sent("50:500", 64, (1,), SUMMED) == 0
    both = like_measured("50:500", 64, {"computation": 1.0, "convolution": 1.0}, RATE)
    assert both.bytes(2) == 4 * (2 * layers - 64 * 32**2 * 3)  # nobody needs the gradient of the images


def test_many_nodes_lose_where_each_is_sent_the_input():
    as_printed, summed = (derived(equation)[LARGEST] for equation in EQUATIONS)
    assert as_printed.speedup(32) > as_printed.speedup(8) > as_printed.speedup(4)
    assert summed.speedup(32) < summed.speedup(8)
    assert marques2016_scaling.of_rates(SUMMED)["5.13a low and mid range CPUs"][0][5].speedup(32) == summed.speedup(32)
    slow, *_, fast = (row for row in marques2016_scaling.rate_rows() if row["nodes"] == 32)
    assert slow["1 MiB/s"] < slow["1250 MiB/s"] < slow["limit"] and fast["limit"] == pytest.approx(2.15)


def test_what_the_text_implies_is_derived_by_a_formula():
    speed, alone = second_speed(), seconds_on_one("500:1500")
    assert speed.kind == alone.kind == DERIVED and 1.5 < speed.value < 1.8
    bytes_sent, rate, percent, speedup = alone.inputs
    assert (rate.value, percent.value, speedup.value) == (5, 19, 2.27) and {rate.kind, percent.kind, speedup.kind} == {PRINTED}
    assert alone.value == pytest.approx(bytes_sent / (5 * 2**20) / 0.19 * 2.27)
    assert seconds_on_one("300:1000") is None  # the text says too little


def test_tables_of_a_measurement():
    tables = marques2016.tables(measured())
    rows = {(r["network"], r["batch"], r["ranks"], r["form"]): r for r in tables["split"]}
    assert len(rows) == len(NETWORKS) * len(BATCH_SIZES) * 7
    two = rows["50:500", 64, 2, WITH_MASTER]
    assert (two["how"], two["speedup"], two["step, s"]) == ("measured", pytest.approx(10 / 7), pytest.approx(7))
    four = rows["50:500", 64, 4, WITH_MASTER]
    assert four["how"] == "predicted" and four["convolution, s"] == pytest.approx(2, rel=0.05)
    assert four["computation, s"] == pytest.approx(2, rel=0.05)  # on the master alone, however many ranks there are
    assert four["communication, s"] > two["communication, s"]
    assert rows["50:500", 64, 4, MASTERLESS]["computation, s"] < 0.75
    best = tables["5.1"][0]
    assert best["published"] == 1.40 and best[f"{WITH_MASTER}, measured"] == pytest.approx(10 / 7)
    assert best[f"{WITH_MASTER} at 5 MiB/s, predicted"] < best[f"{MASTERLESS} at 5 MiB/s, predicted"]
    assert best[f"{WITH_MASTER}, best at"] == "batch 64, 2 rounds" and best[f"{WITH_MASTER}, predicted"] is None
    assert tables["5.1"][1][f"{WITH_MASTER}, predicted"] > 10 / 7 and tables["5.1"][1][f"{WITH_MASTER}, measured"] is None
    assert [(row["rounds"], row["median"]) for row in tables["forms"]] == [(2, pytest.approx(ratio / 5.5)) for ratio in (7, 10)]
    text = marques2016.as_markdown(tables)
    assert "a machine" in text and all(title in text for title in ("Table 5.1", "Table 5.3", "Figures 5.13 to 5.15"))


def test_the_best_of_all_batch_sizes_is_of_the_rounds_of_the_figures():
    """Table 5.1 has no other numbers than Figures 5.1 to 5.5, and none where a batch size is missing."""
    few, all_ = (marques2016_items.items(marques2016.tables(measured(sizes=sizes))) for sizes in ((64,), BATCH_SIZES))
    (short,), (table,) = ([item for item in found if item.name == "Table 5.1"] for found in (few, all_))
    assert all(row.measured is None and row.predicted is None for row in short.rows) and short.rows[0].cited.value == 1.40
    figures = [row for item in all_ if item.name.startswith("Figure 5.") for row in item.rows if row.quantity == "speedup"]
    for row in table.rows:
        label, form = row.label.split(": ")[0], row.label.rpartition(": ")[2]
        network = label.partition(", ")[0]
        mine = [one for one in figures if one.label.startswith(f"{row.label.rpartition(': ')[0]}, {form}:")]
        values = [one.measured if row.measured is not None else one.predicted for one in mine]
        assert len(values) == len(BATCH_SIZES), (network, label)
        assert max(values) == (row.measured if row.measured is not None else row.predicted) and "best at batch" in row.remark


def test_items_hold_what_is_printed():
    found = {item.name: item for item in marques2016_items.items(marques2016.tables())}
    assert len(found["Table 5.1"].rows) == 24 and len(found["Table 5.2"].rows) == 8 and len(found["Table 5.3"].rows) == 20
    assert all(len({row.label for row in item.rows}) == len(item.rows) for item in found.values())
    rows = {row.label: row for item in found.values() for row in item.rows}
    third = rows["500:1500, 3 devices, from the other tables"].cited
    assert third.kind == DERIVED and third.value == pytest.approx(2.96 * 2.00 / 2.74)
    assert rows["150:800, 3 CPUs, master/slave: speedup"].cited.place == "section 5.1.2, page 35"
    assert rows["50:500, batch 1024, 3 GPUs: communication, %"].cited.value == 52
    for row in found["Figure 5.11"].rows:  # what the constants are made of is not predicted
        assert (row.predicted is None) == ("made of" in row.remark)
    made_of = [row.cited.value for row in found["Figure 5.11"].rows if row.predicted is None]
    assert made_of == [1.98, 2.74, 3.28, 6.70]
    assert all(row.label.count(": ") <= 1 for item in found.values() for row in item.rows)
    assert rows["784-3150-250-10: weights"].cited.value == rows["784-3150-250-10: weights"].predicted == 3263010
    phone = rows["784-7250-250-10, mGPU4: seconds of an epoch"].cited
    assert (phone.value, phone.kind) == (3 * 3600 + 58 * 60 + 13, DERIVED) and phone.formula is SECONDS


def test_an_epoch_stands_beside_that_of_the_desktop_gpu(tmp_path):
    versions = {"processor": "a machine", "mpi": "an MPI", "threads": 1}
    results = [{"width": width, "steps": 5, "seconds": {"pre-training 1": 2.0, "fine-tuning": 3.0}, "versions": versions}
               for width in WIDTHS]  # fmt: skip
    found = marques2016.gathered({str(one["width"]): one for one in results}, tmp_path)
    tables = marques2016.tables(found)
    assert marques2016_items.measured_on(tables).startswith("a machine")
    assert "784-7250-250-10" in marques2016.as_markdown(tables)
    items = {item.name: item for item in marques2016_items.items(tables)}
    for name, count in (("Appendix A: Table II", 1), ("Appendix A: Table III", 4)):
        rows = [row for row in items[name].rows if row.measured is not None]
        assert [row.measured for row in rows] == [5.0] * count and items[name].status == BESIDE
    assert rows[0].cited.value == seconds_of("5m43s") == 343 and rows[0].remark == "scaled from 5 steps"
    assert seconds_of("54s") == 54 and seconds_of("1h51m24s") == 6684
    assert not items[name].compares  # one core against the desktop GPU
    file = tmp_path / "epochs.jsonl"
    assert kept_epochs(file) == ([], "")
    file.write_text("".join(json.dumps(one) + "\n" for one in results))
    assert kept_epochs(file) == (list(map(epoch_row, results)), "")
    for more, words in (({"versions": versions | {"processor": "another"}}, "several machines"), ({"seconds": []}, "not hold")):
        file.write_text("".join(json.dumps(one) + "\n" for one in (*results, results[0] | more)))
        rows, why = kept_epochs(file)
        assert not rows and words in why


def test_a_round_that_failed_shifts_no_ratio():
    """Speedups compare runs of one round, though the machine was three times as slow in another."""
    measured = {
        MarquesRun("50:500", 64).key: [printed((0, 6, 2), number=0), printed((0, 18, 6), number=2)],
        MarquesRun("50:500", 64, 2, WITH_MASTER).key: [printed((0, 30, 10), number=1), printed((0, 9, 3), number=2)],
    }
    alone, two = measured.values()
    assert ratios(two, alone) == [2.0]
    row = next(row for row in marques2016.split(measured) if row["form"] == WITH_MASTER)
    assert (row["rounds"], row["speedup"], row["step, s"]) == (1, 2.0, 12)
    two[1]["round"] = 3
    assert [row["ranks"] for row in marques2016.split(measured)] == [1]


@pytest.mark.long
def test_tables_and_figures_from_an_earlier_run(tmp_path):
    content = measured(("50:500", "500:1500"), (64,))
    (tmp_path / "tables.json").write_text(json.dumps(content))
    finished = program("reproduce", "marques2016", "--tables-only", "--out", tmp_path, "--json", tmp_path / "t.json")
    assert finished.returncode == 0, finished.stderr
    assert json.loads((tmp_path / "tables.json").read_text())["runs"] == json.loads(json.dumps(content["runs"]))
    names = [*marques2016.FIGURES.values(), marques2016.figure_of_steps(64)]
    assert all(is_figure(tmp_path / name) for name in names)
    assert json.loads((tmp_path / "t.json").read_text())["5.1"][0]["published"] == 1.4


def test_tables_without_a_measurement(tmp_path):
    finished = program("reproduce", "marques2016", "--tables-only", "--out", tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert "Nothing measured yet" in finished.stdout and not (tmp_path / "tables.md").exists()


@pytest.mark.long
def test_a_small_measurement_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr("gridgrad.experiments.papers.marques2016.runs.slots", lambda: 2)
    file = tmp_path / "runs.jsonl"
    found = measure(file, [1, 2, 4], 1, ("50:500",), (4,), seconds=0.0)
    assert list(found["runs"]) == [run.key for run in runs("50:500", 4, [1, 2])]
    for ranks, form in ((1, ""), (2, WITH_MASTER), (2, MASTERLESS)):
        (result,) = found["runs"][MarquesRun("50:500", 4, ranks, form).key]
        seconds = parts([result])
        assert min(seconds["convolution"]) > 0 and min(seconds["computation"]) > 0 and result["batch_size"] == 4
    row = next(row for row in marques2016.tables(found)["split"] if row["form"] == WITH_MASTER)
    assert row["MiB"] == pytest.approx(row["equation 5.1, MiB"], abs=1e-4)  # the loss is 16 bytes more
    monkeypatch.setattr(MarquesRun, "start", lambda *_: pytest.fail("it was measured before"))
    assert measure(file, [1, 2], 1, ("50:500",), (4,))["runs"] == found["runs"]
    whole = file.read_text()
    file.write_text(whole + json.dumps({"key": "another", **printed((0, 1, 1))}) + "\n")
    with pytest.raises(UserError, match="a machine"):
        measure(file, [1, 2], 1, ("50:500",), (4,))
    for broken in ('{"key": "half a li', "[]", "1", '{"key": "no times", "round": 0}'):
        file.write_text(f"{whole}{broken}\n")
        with pytest.raises(UserError, match="line 4 is not a run"):
            measure(file, [1, 2], 1, ("50:500",), (4,))


def test_an_epoch_is_timed():
    finished = job(1, "gridgrad.experiments.papers.marques2016.epoch_job", "--width", 20, "--steps", 2)
    row = epoch_row(json.loads(finished.stdout.splitlines()[-1]))
    assert row["network"] == "784-20-250-10" and row["epoch, s"] > 0
    assert {"pre-training 1, s", "pre-training 2, s", "fine-tuning, s"} <= row.keys()


def test_what_does_not_fit_is_refused():
    finished = job(1, "gridgrad.experiments.papers.marques2016.job", "--net", "marques-1-2")
    assert finished.status == 2 and finished.stderr.count("\n") == 1, finished.stderr
