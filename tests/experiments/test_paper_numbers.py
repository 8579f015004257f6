"""What the modules of the papers compute: a few numbers of each by hand, verdicts of made-up measurements, and small jobs."""

import json
import sys

import numpy as np
import pytest

from gridgrad.experiments.papers import eserol2019, grabaskas2018, hegde2016, laugier2018, marques2016, marques2016_job
from gridgrad.experiments.papers import eserol2019_partitions as vgg16
from gridgrad.experiments.papers import eserol2019_times as times
from gridgrad.experiments.papers import grabaskas2018_lines as thesis
from gridgrad.experiments.papers.claims import DIFFERS, HOLDS
from gridgrad.experiments.papers.marques2016_runs import PARTS, WITH_MASTER, MarquesRun
from gridgrad.experiments.papers.marques2016_scaling import EQUATIONS, derived
from gridgrad.experiments.papers.paper import paper_of
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.job.run import UserError
from gridgrad.parallel.partitioning.network_hypergraph import measure
from tests.mpi import mpi

# ----- Grabaskas 2018


def test_the_numbers_of_the_thesis_are_all_there_and_give_those_that_it_prints():
    assert [len([ref for ref in thesis.lines() if ref[0] == appendix]) for appendix in "CD"] == [67, 41]
    assert grabaskas2018.effort_of_totals("Manual SGD Train()").value == pytest.approx(34917, abs=1)
    assert grabaskas2018.overhead("C.37").value == pytest.approx((215.147 - 168.685 / 2) / 300)
    assert network_names.build("mnist-cnn", (32, 32, 1), 10).size == 169_506


# ----- Marques et al. 2016

LARGEST = "CPUs, largest network"


@pytest.mark.parametrize("equation", EQUATIONS)
def test_the_constants_give_the_speedups_in_the_text_of_marques(equation):
    cluster = derived(equation)[LARGEST]
    assert [cluster.speedup(nodes) for nodes in (2, 3, 4)] == pytest.approx([1.98, 2.74, 3.28], rel=1e-6)
    assert cluster.limit == pytest.approx(7.76) and derived(equation)["GPUs, largest network"].limit == pytest.approx(2.15)
    small = derived(equation)["CPUs, smallest network"].seconds(4)
    assert small["communication"] == pytest.approx(0.47 * sum(small.values()))


def test_runs_on_gpus_stand_beside_those_on_cpus():
    found, versions = {}, {"processor": "a machine", "mpi": "an MPI", "threads": 1, "device": "A"}
    for run, seconds in (
        (MarquesRun("50:500", 64), (0.0, 8.0, 2.0)),
        (MarquesRun("50:500", 64, 2, WITH_MASTER), (1.0, 4.0, 2.0)),
        (MarquesRun("50:500", 64, 1, "", "gpu"), (0.0, 1.5, 0.5)),
        (MarquesRun("50:500", 64, 2, WITH_MASTER, "gpu"), (0.4, 0.8, 0.4)),
    ):
        step = {name: [value] for name, value in zip(PARTS, seconds, strict=True)}
        found[run.key] = [step | {"round": 0, "batch_size": 64, "bytes": 1, "versions": versions, "peak_memory": 1 << 30}]
    tables = marques2016.tables({"runs": found, "machine": "a machine"})
    gpus = [[row[name] for name in ("GPUs", "speedup", "over CPUs", "communication, %")] for row in tables["on GPUs"]]
    assert gpus == [pytest.approx(one) for one in ([1, 1, 10 / 2, 0], [2, 2 / 1.6, 7 / 1.6, 25])]
    claims = {claim.name: claim.verdict for claim in paper_of("marques2016").claims(tables)}
    assert claims["a CPU beats a GPU"] == DIFFERS


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
    assert [row["parameters"] for row in eserol2019.layer_rows()] == [
        *(line["parameters"] for line in eserol2019.lines_of("5.13")), 138357544
    ]  # fmt: skip
    by_hand = 4842 / 2 * 22757 / 21500 + 102400 / 32 * 2 * 24.5 * 2**22 / 1.25e9
    assert times.without_overlap(2, times.LAYERS, 512) == pytest.approx(by_hand)


def test_a_partition_that_is_found_is_kept_and_one_that_is_none_is_refused():
    kept = vgg16.search(vgg16.SearchCase("coarse", 2))
    assert vgg16.owners_of(kept | {"volume": 1.0})[0] == vgg16.SearchCase("coarse", 2)
    for broken in ({"counts": ["1 2"]}, {"grain": "fine"}):
        with pytest.raises(UserError, match=r"tables\.json: a kept partition is none of VGG16"):
            vgg16.owners_of(kept | broken)


# ----- Hegde and Usmani 2016


def made_up_times(exponent=1.0):
    """A measurement of devices that follow the paper: 6.45 ms an image, or a power of the batch, and c n^2."""
    found = {"busy_cores": 0.0, "versions": {}, "convolution": [], "dense": []}
    for name, factor in {"1 CPU thread": 1.0, "2 CPU threads": 0.5, "GPU A": 0.025}.items():
        about = {"device": name, "channels": 1}
        found["versions"][name] = {"processor": "a processor", "blas": "a library"}
        found["convolution"] += [
            about | {"batch": batch, "seconds": [factor * (1e-3 + 6.45e-3 * batch**exponent)] * 3} for batch in (1, 2, 4, 8, 16)
        ]
        found["dense"] += [about | {"batch": 1, "n": n, "seconds": [factor * 2e-9 * n**2] * 3} for n in (256, 512, 1024, 2048)]
    return found


def test_lines_and_powers_are_found_in_times_and_turn_the_verdicts_on_hegde():
    tables = hegde2016.tables(made_up_times())
    slope = next(row for row in tables["convolution_slopes"] if row["device"] == "1 CPU thread")
    assert slope["ms_an_image"] == pytest.approx(6.45)
    assert slope["GFLOP/s"] == pytest.approx(2 * 121 * 96 * 54 * 54 / 6.45e-3 / 1e9)
    assert {round(row["exponent"], 6) for row in tables["dense_fits"]} == {2.0}
    assert {round(row["speedup"], 6) for row in tables["convolution_speedups"]} == {2.0, 40.0}
    both = (paper_of("hegde2016").claims(one) for one in (tables, hegde2016.tables(made_up_times(exponent=0.5))))
    assert [claim.verdict for claims in both for claim in claims if claim.name == "linear_cpu"] == [HOLDS, DIFFERS]


# ----- Laugier et al. 2018


def test_volumes_and_steps_are_those_of_laugiers_formulas_by_hand():
    weights = 16 * 1024 + 2 * 1024**2 + 1024 * 2
    assert laugier2018.sent(1024, 3, 2, 1) == pytest.approx((weights + 3 * 1024 + 2) * 4)
    # One hidden layer of 2 units on one rank: it packs 100 outputs of each layer, 16 + 2 gradients of inputs a sample, all
    # weights, and what it gets; it hands itself the minibatch.
    numbers = 100 * (2 + 2) * 2 + 100 * (16 + 2) * 2 + (17 * 2 + 3 * 2) * 2 + 100 * 18 * 2
    one_node, apart, logged = laugier2018.CHOICES
    assert laugier2018.step(2, 1, 1, logged)[1] == pytest.approx(numbers * 55e-9)
    printed = 5.8  # the speedup of batch parallelism on 32 ranks
    speedups = {name: laugier2018.curve("batch", 1024, name)[32] for name in laugier2018.CHOICES}
    assert printed / 1.25 < speedups[logged] < printed * 1.25
    assert max(speedups[one_node], speedups[apart]) < printed / 2
