"""What the modules of the papers compute: a few numbers of each by hand, verdicts of made-up measurements, and small jobs."""

import json
import math
import sys

import numpy as np
import pytest

from gridgrad.experiments.papers import eserol2019, grabaskas2018, hegde2016, laugier2018, marques2016, marques2016_job
from gridgrad.experiments.papers import eserol2019_partitions as vgg16
from gridgrad.experiments.papers import eserol2019_times as times
from gridgrad.experiments.papers import grabaskas2018_lines as thesis
from gridgrad.experiments.papers import hegde2016_costs as costs
from gridgrad.experiments.papers import marques2016_scaling as scaling
from gridgrad.experiments.papers.cited import DERIVED
from gridgrad.experiments.papers.claims import DIFFERS, HOLDS
from gridgrad.experiments.papers.marques2016_runs import MASTERLESS, PARTS, WITH_MASTER, MarquesRun
from gridgrad.experiments.papers.marques2016_scaling import EQUATIONS, SUMMED, derived, sent
from gridgrad.experiments.papers.paper import paper_of
from gridgrad.experiments.papers.parts import USUAL
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.job.run import UserError
from gridgrad.parallel.partitioning.network_hypergraph import measure
from tests.datasets.made_up_mnist import write_mnist
from tests.mpi import mpi


def verdicts(name, tables):
    return {claim.name: claim.verdict for claim in paper_of(name).claims(tables)}


# ----- Grabaskas 2018


def test_the_numbers_and_networks_of_the_thesis_are_all_there():
    assert [len([ref for ref in thesis.lines() if ref[0] == appendix]) for appendix in "CD"] == [67, 41]
    for program, (table, _) in grabaskas2018.PROGRAMS.items():  # its lines of code add up to its totals
        tables = paper_of("grabaskas2018").known.tables
        totals = [tables["totals"].cited(name, program).value for name in ("N1", "N2")]
        assert totals == [sum(row[kind] for row in tables[table].lines()) for kind in ("operators", "operands")]
    assert grabaskas2018.effort_of_totals("Manual SGD Train()").value == pytest.approx(34917, abs=1)
    first, *_ = grabaskas2018.equation()
    assert first["printed"].value == 12 * 12 * 30  # lines, calls, operands of Table 4.9
    assert grabaskas2018.overhead("C.37").value == pytest.approx((215.147 - 168.685 / 2) / 300)
    assert network_names.build("mnist-cnn", (32, 32, 1), 10).size == 169_506


def test_an_efficiency_of_the_thesis_is_of_two_runs_of_a_kind_on_one_processor():
    line = thesis.lines()["D.98"]
    result = lambda seconds, **more: {"seconds": seconds, "oversubscribed": False} | more  # noqa: E731
    short, alone = {line.run(False).key: result(1.0)}, {line.single.run(True).key: result(20.0, accuracy=77.0)}
    both = {line.run(True).key: result(16.0), line.single.run(False).key: result(1.5)}
    mixed = grabaskas2018.training(line, short | alone)
    assert mixed["efficiency, measured"] is None and mixed["s, measured"] == pytest.approx(2000 / 237)
    whole = grabaskas2018.training(line, short | alone | both)
    assert whole["efficiency, measured"] == pytest.approx(62.5) and whole["how"] == "whole"
    two = {key: one | {"processor": key} for key, one in (short | alone).items()}
    with pytest.raises(ValueError, match="several processors"):
        grabaskas2018.tables({"runs": two, "machine": "both"})


def test_a_line_of_the_thesis_runs_on_two_ranks(tmp_path):
    random = np.random.default_rng(0)
    train, test = ((random.integers(0, 256, (count, 28, 28)), random.integers(0, 10, count)) for count in (40, 10))
    write_mnist(tmp_path, train=train, t10k=test)
    line = thesis.AppendixLine(
        "X.1", dataset="mnist", device="CPU", version="auto", nodes=2, passes=1, samples=40,
        method="Train()", net=thesis.CNNS["mnist"], seconds=1.0, n=10,
    )  # fmt: skip
    result = line.run(True).start(tmp_path)
    assert result["seconds"] > 0 and result["samples"] == 40 and math.isfinite(result["loss"]) and "accuracy" in result


# ----- Marques et al. 2016

LARGEST = "CPUs, largest network"


@pytest.mark.parametrize("equation", EQUATIONS)
def test_the_constants_give_the_speedups_in_the_text_of_marques(equation):
    cluster = derived(equation)[LARGEST]
    assert [cluster.speedup(nodes) for nodes in (2, 3, 4)] == pytest.approx([1.98, 2.74, 3.28], rel=1e-6)
    assert cluster.limit == pytest.approx(7.76) and derived(equation)["GPUs, largest network"].limit == pytest.approx(2.15)
    small = derived(equation)["CPUs, smallest network"].seconds(4)
    assert small["communication"] == pytest.approx(0.47 * sum(small.values()))


def test_equation_5_1_as_printed_is_for_one_slave_and_as_used_sends_each_the_input():
    layers = 32**2 * 3 * 64 + 5**2 * 25 * 3 + 28**2 * 25 * 64 + 14**2 * 50 * 64 + 5**2 * 250 * 50 + 10**2 * 250 * 64
    assert sent("50:500", 64, (1, 1), scaling.PRINTED) == sent("50:500", 64, (1, 1), SUMMED) == 8 * layers
    inputs = 8 * 64 * (32**2 * 3 + 14**2 * 50)
    assert sent("50:500", 64, (1,) * 4, SUMMED) - sent("50:500", 64, (1,) * 4, scaling.PRINTED) == 2 * inputs
    as_printed, summed = (derived(equation)[LARGEST] for equation in EQUATIONS)
    assert as_printed.speedup(32) > as_printed.speedup(8) and summed.speedup(32) < summed.speedup(8)


def test_a_split_step_gives_a_speedup_and_the_time_on_more_ranks():
    found, versions = {}, {"processor": "a machine", "mpi": "an MPI", "threads": 1, "device": "A"}
    for run, seconds in (
        (MarquesRun("50:500", 64), (0.0, 8.0, 2.0)),
        (MarquesRun("50:500", 64, 2, WITH_MASTER), (1.0, 4.0, 2.0)),
        (MarquesRun("50:500", 64, 2, MASTERLESS), (0.5, 4.0, 1.0)),
        (MarquesRun("50:500", 64, 1, "", "gpu"), (0.0, 1.5, 0.5)),
        (MarquesRun("50:500", 64, 2, WITH_MASTER, "gpu"), (0.4, 0.8, 0.4)),
    ):
        step = {name: [value] for name, value in zip(PARTS, seconds, strict=True)}
        found[run.key] = [step | {"round": 0, "batch_size": 64, "bytes": 1, "versions": versions, "peak_memory": 1 << 30}]
    tables = marques2016.tables({"runs": found, "machine": "a machine"})
    rows = {(row["ranks"], row["form"]): row for row in tables["split"]}
    two, four = rows[2, WITH_MASTER], rows[4, WITH_MASTER]
    assert (two["how"], two["speedup"], two["step, s"]) == ("measured", pytest.approx(10 / 7), pytest.approx(7))
    assert four["how"] == "predicted" and four["convolution, s"] == pytest.approx(2, rel=0.05)
    gpus = [[row[name] for name in ("GPUs", "speedup", "over CPUs", "communication, %")] for row in tables["on GPUs"]]
    assert gpus == [pytest.approx(one) for one in ([1, 1, 10 / 2, 0], [2, 2 / 1.6, 7 / 1.6, 25])]
    assert verdicts("marques2016", tables)["a CPU beats a GPU"] == DIFFERS


def test_a_step_of_marques_is_split_and_sends_what_equation_5_1_says():
    result = MarquesRun("50:500", 4, 2, WITH_MASTER).start(0)
    assert all(len(result[part]) == 1 and result[part][0] > 0 for part in PARTS)
    assert result["bytes"] == pytest.approx(marques2016.equation("50:500", 4, 2) * 2**20, abs=100)


@mpi(2)
def test_a_step_of_marques_on_devices_sends_the_same(comm, monkeypatch):
    words, printed = "--batch-size 4 --seconds 0 --grid model=2 --plan marques --device stand-in,cpu", []
    monkeypatch.setattr(sys, "argv", ["job", *words.split()])
    monkeypatch.setattr(marques2016_job, "print", printed.append, raising=False)
    marques2016_job.main()
    assert len(printed) == (comm.rank == 0)
    for result in map(json.loads, printed):
        assert result["versions"]["device"] == "stand-in" and min(result["convolution"]) > 0
        assert result["bytes"] == pytest.approx(marques2016.equation("50:500", 4, 2) * 2**20, abs=100)


# ----- Eserol 2019


def test_counts_cost_the_same_as_the_hypergraph_says():
    chain, random, ranks = vgg16.chain_of_layers(), np.random.default_rng(3), 3
    counts = np.array([random.multinomial(filters, np.ones(ranks) / ranks) for filters in chain.filters])
    counts[0] = np.eye(ranks, dtype=int)[np.flatnonzero(counts[1])[0]]
    owners, model = vgg16.owners_of_counts(counts), vgg16.model()
    found, measured = vgg16.costs_of(owners, "coarse"), measure(model, model.parts(owners), ranks)
    assert found.volume == pytest.approx(chain.volume(counts)) == vgg16.melements(measured.volume)
    assert found.loads == pytest.approx(chain.loads(counts), rel=1e-4)
    assert found.star == pytest.approx(vgg16.melements(measured.star)) and found.messages == measured.messages


def test_sizes_and_run_times_of_vgg16_follow_from_printed_numbers():
    sample, coarse, fine = eserol2019.hypergraph_rows()
    assert (sample["vertices"], sample["nets"], sample["pins"]) == (13, 12, 38)  # printed
    assert (coarse["vertices"], coarse["nets"], fine["vertices"], fine["nets"]) == (4228, 4227, 1638726, 8453)
    *layers, total = eserol2019.layer_rows()
    assert [row["parameters"] for row in layers] == [line["parameters"] for line in eserol2019.lines_of("5.13")]
    assert (total["parameters"], 4 * total["elements"] / 1e6) == (138357544, pytest.approx(60.95, abs=0.01))
    assert times.alone(512) == pytest.approx(24.21)
    assert times.rate(16) == pytest.approx(2 * 527.792 / ((10256 * 2 - 9405) * 16 / 102400))
    by_hand = 4842 / 2 * 22757 / 21500 + 102400 / 32 * 2 * 24.5 * 2**22 / 1.25e9
    assert times.without_overlap(2, times.LAYERS, 512) == pytest.approx(by_hand)


def test_a_partition_that_is_found_is_kept_and_one_that_is_none_is_refused():
    kept = vgg16.search(vgg16.SearchCase("coarse", 2))
    assert vgg16.owners_of(kept | {"volume": 1.0})[0] == vgg16.SearchCase("coarse", 2)
    for broken in ({"counts": ["1 2"]}, {"counts": 3}, {"grain": "fine"}):
        with pytest.raises(UserError, match=r"tables\.json: a kept partition is none of VGG16"):
            vgg16.owners_of(kept | broken)


# ----- Hegde and Usmani 2016

FACTORS = {"1 CPU thread": 1.0, "2 CPU threads": 0.5, "GPU A": 0.025}


def made_up_times(exponent=1.0):
    """A measurement in which all devices follow the paper: 6.45 ms an image, or a power of the batch, and c n^2."""
    found = {"busy_cores": 0.0, "versions": {}, "convolution": [], "dense": []}
    for name, factor in FACTORS.items():
        about = {"device": name, "channels": 1}
        found["versions"][name] = {"processor": "a processor", "blas": "a library"}
        for batch in (1, 2, 4, 8, 16):
            seconds = [factor * (1e-3 + 6.45e-3 * batch**exponent)] * 3
            found["convolution"].append(about | {"batch": batch, "seconds": seconds})
        found["dense"] += [about | {"batch": 1, "n": n, "seconds": [factor * 2e-9 * n**2] * 3} for n in (256, 512, 1024, 2048)]
    return found


def test_lines_and_powers_are_found_in_times_and_turn_the_verdicts_on_hegde():
    assert hegde2016.line([1, 2, 4], [5, 7, 11]) == pytest.approx((2, 3, 1))
    tables = hegde2016.tables(made_up_times())
    slope = next(row for row in tables["convolution_slopes"] if row["device"] == "1 CPU thread")
    assert slope["ms_an_image"] == pytest.approx(6.45)
    assert slope["GFLOP/s"] == pytest.approx(2 * 121 * 96 * 54 * 54 / 6.45e-3 / 1e9)
    assert {round(row["exponent"], 6) for row in tables["dense_fits"]} == {2.0}
    assert {round(row["speedup"], 6) for row in tables["convolution_speedups"]} == {2.0, 40.0}
    others = hegde2016.tables(made_up_times(exponent=0.5))
    assert [verdicts("hegde2016", one)["linear_cpu"] for one in (tables, others)] == [HOLDS, DIFFERS]


def test_costs_are_of_the_order_that_hegde_says():
    for row in hegde2016.sent_rows([]):
        ratio = row["all workers, *predicted* MiB"] / row["its terms, *predicted* MiB"]
        stays = (row["k"] - 1) / row["k"]  # of the samples, one in k stays where it is
        expected = {costs.SHUFFLE: stays, costs.EXCHANGE: 1 / 2}.get(row["algorithm"], 2 * stays)
        assert ratio == pytest.approx(expected, rel=0.02)
    assert all(row["k = 64"] == pytest.approx(row["T/tau"], rel=0.06) for row in costs.limits())


@pytest.mark.long
def test_a_small_measurement_counts_what_is_predicted_for_hegde(tmp_path, monkeypatch):
    for name, values in {"CHANNELS": (1,), "BATCH_SIZES": (1, 2), "SAMPLES": (1,), "SIZES": (16, 32), "LARGE": 16}.items():
        monkeypatch.setattr(hegde2016, name, values)
    monkeypatch.setattr(hegde2016, "ROUNDS", 2)
    monkeypatch.setattr(hegde2016, "cores", lambda: {0})
    monkeypatch.setattr(hegde2016.device, "gpus", list)
    monkeypatch.setattr(hegde2016, "WORKERS", (2,))
    monkeypatch.setattr(costs, "SAMPLES", 10 * costs.BATCH)  # five steps
    measured = hegde2016.gathered({part.name: part.run() for part in hegde2016.to_measure(USUAL, [1], None)}, tmp_path)
    tables = json.loads(json.dumps(hegde2016.tables(measured), allow_nan=False))
    counted = {row["algorithm"]: row["counted MiB"] / row["all workers, *predicted* MiB"] for row in tables["costs"]}
    assert [counted[name] for name in ("exchange of halves", "ParallelSGD", "ADMM SGD")] == pytest.approx([1] * 3, rel=1e-4)
    done = [row["counted millions"] for row in tables["computations"][1:]]
    assert done == pytest.approx([row["operations, *predicted* millions"] for row in tables["computations"][1:]], rel=1e-5)


# ----- Laugier et al. 2018

ONE_NODE, APART, LOGGED = laugier2018.CHOICES


def test_volumes_are_those_of_laugiers_formulas_by_hand():
    weights = 16 * 1024 + 2 * 1024**2 + 1024 * 2
    assert laugier2018.sent(1024, 3, 2, 1) == pytest.approx((weights + 3 * 1024 + 2) * 4)
    items = paper_of("laugier2018").items(laugier2018.tables())
    (rows,) = (item.rows for item in items if item.name == "Sections 5 to 7")
    cited = {row.label: row.cited for row in rows if row.cited}
    batch, model = cited["4 ranks, batch=4,model=1"], cited["4 ranks, batch=1,model=4"]
    assert batch.value == pytest.approx(2 * 4 / 3 * weights * 4 / 1e6) and batch.place == "section 5"
    assert model.value == pytest.approx(3 * 100 * 4 / 3 * (16 + 3 * 1024 + 2) * 4 / 1e6) and model.kind == DERIVED


def test_a_step_of_laugier_is_that_of_the_cost_model_and_more_with_the_settings_of_the_code():
    for name, node in ((ONE_NODE, 32), (APART, 1)):
        cost = laugier2018.cost_of(512, 3, node, 8, 4)
        assert sum(laugier2018.step(512, 8, 4, name)) == pytest.approx(cost.seconds, rel=1e-3)
    # One hidden layer of 2 units on one rank: it packs 100 outputs of each layer, 16 + 2 gradients of inputs a sample, all
    # weights, and what it gets; it hands itself the minibatch.
    numbers = 100 * (2 + 2) * 2 + 100 * (16 + 2) * 2 + (17 * 2 + 3 * 2) * 2 + 100 * 18 * 2
    assert laugier2018.step(2, 1, 1, LOGGED)[1] == pytest.approx(numbers * 55e-9)
    printed = 5.8  # the speedup of batch parallelism on 32 ranks
    speedups = {name: laugier2018.curve("batch", 1024, name)[32] for name in laugier2018.CHOICES}
    assert printed / 1.25 < speedups[LOGGED] < printed * 1.25
    assert max(speedups[ONE_NODE], speedups[APART]) < printed / 2


def test_a_claim_of_laugier_is_decided_where_both_depths_agree():
    def holds(*speedups, kind="measured"):
        made = {"ranks": 2, "place": "here", "kind": kind}
        cases = []
        for hidden, speedup in zip((3, 1), speedups, strict=False):
            of = made | {"source": f"{hidden} layers", "hidden": hidden}
            cases.append(laugier2018.labelled(of, (speedup, 0.99 * speedup, 1.01 * speedup), "on 2 ranks"))
        found = [True if one["range"][0] > 1 else False if one["range"][1] < 1 else None for one in cases]
        return laugier2018.agreed(cases, found)["holds"]

    assert holds(1.5, 1.2) is True and holds(0.8, 0.9) is False
    assert [holds(1.5, 0.9), holds(1.5, 1.0), holds(1.0), holds(1.2, kind="derived")] == [None] * 4
