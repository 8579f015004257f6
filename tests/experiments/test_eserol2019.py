"""`reproduce eserol2019`: units, simple partitions, costs against the hypergraph, what is kept, and a search, small."""

import json

import numpy as np
import pytest

from gridgrad.experiments.papers import eserol2019
from gridgrad.experiments.papers import eserol2019_claims as claims
from gridgrad.experiments.papers import eserol2019_search as searches
from gridgrad.experiments.papers import eserol2019_servers as servers
from gridgrad.experiments.papers import eserol2019_tables as rows
from gridgrad.experiments.papers import eserol2019_times as times
from gridgrad.experiments.papers import eserol2019_vgg16 as vgg16
from gridgrad.experiments.papers.eserol2019_costs import costs_of, horizontal, star
from gridgrad.experiments.papers.eserol2019_search import Case
from gridgrad.experiments.plots import eserol2019 as figures
from gridgrad.nn import network_names
from gridgrad.parallel.job.run import UserError
from gridgrad.parallel.partitioning import naive
from gridgrad.parallel.partitioning.measures import star as best_star
from tests.experiments.figures import is_figure
from tests.experiments.programs import program

BATCHES = 16, 512  # for which steps are predicted


@pytest.fixture(scope="module")
def kept():
    """Two coarse partitions and an exact one."""
    return [searches.search(case) for case in (Case("coarse", 2), Case("coarse", 4), Case("exact", 2))]


@pytest.fixture(scope="module")
def tables(kept):
    return eserol2019.tables({"processor": "a processor", "partitions": kept}, BATCHES)


def test_the_hypergraphs_have_the_sizes_of_the_thesis():
    coarse, fine = (vgg16.model(grain).hypergraph for grain in ("coarse", "fine"))
    assert (coarse.vertices, coarse.nets) == (4228, 4227) and (fine.vertices, fine.nets) == (1638726, 8453)
    assert fine.weights.sum() / 1e6 == pytest.approx(sum(vgg16.WORKS), rel=1e-3)


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_counts_cost_the_same_as_the_hypergraph_says(ranks):
    chain = vgg16.chain()
    random = np.random.default_rng(ranks)
    counts = np.array([random.multinomial(filters, np.ones(ranks) / ranks) for filters in chain.filters])
    counts[0] = np.eye(ranks, dtype=int)[np.flatnonzero(counts[1])[0]]
    owners = vgg16.owners(counts)
    costs = costs_of(owners, "coarse")
    assert costs.volume == pytest.approx(chain.volume(counts)) and costs.loads == pytest.approx(chain.loads(counts), rel=1e-4)
    assert costs.messages == chain.messages(counts)[1:].sum() + (counts[1] > 0).sum() - 1  # the input is at one of its users
    model = vgg16.model()
    assert costs.star == pytest.approx(float(vgg16.melements(best_star(model, model.parts(owners), ranks))))
    assert star(owners, best_root=False)[0] >= costs.star


def test_groups_of_neurons_cost_the_same_as_the_hypergraph_says():
    counts = np.vstack(
        [np.eye(1, 2, dtype=int), np.array([[some // 4, some - some // 4] for some in vgg16.chain(8).filters[1:]])]
    )
    owners = vgg16.owners(counts)
    assert costs_of(owners, "coarse", 8).volume == pytest.approx(vgg16.chain(8).volume(counts))


@pytest.mark.long
def test_published_numbers_that_are_met(tables):
    holds = {row["claim"]: row["holds"] for row in tables["claims"]}
    assert holds["5.2, 5.4, 5.6, 5.8: the largest layer"] and holds["5.1: the largest and the least work"]
    assert holds["5.2: volumes"] and holds["5.4: volumes of the horizontal partition"]
    assert holds["5.6: volumes to N = 32"]
    assert holds["N = 2: no coarse partition sends less"] and holds["N = 4: no coarse partition sends less"]
    assert all(row["equal"] for row in tables["5.13"])
    for row in tables["5.14"][:-1]:
        for name in ("data parallel", "hypergraph"):
            ours = row[f"{name}, GB" if name == "data parallel" else "hypergraph, 2^30 elements"]
            assert int(ours) == row[f"{name}, published GB"]
        assert row["reduction, published %"] in (int(row["mixed units: reduction, %"]), round(row["mixed units: reduction, %"]))
    mean = tables["5.14"][-1]
    assert mean["mixed units: reduction, %"] == pytest.approx(93.315, abs=0.01)
    assert mean["their partition in bytes: reduction, %"] == pytest.approx(73.3, abs=0.05)


def test_the_horizontal_partition_is_the_one_of_the_hypergraph_but_for_dense_layers():
    model = vgg16.model()
    costs = costs_of(model.owners(naive.horizontal(model, 4), 4), "coarse")
    assert horizontal(4).volume == pytest.approx(costs.volume, rel=0.01)


@pytest.mark.long
def test_partitions_of_ours(tables):
    assert tables["coarse"]["2"]["volume_melements"] == pytest.approx(15.3125)
    assert tables["coarse"]["4"]["volume_melements"] == pytest.approx(45.9375)
    assert all(row["max_over_avg"] <= 1.1 for row in tables["coarse"].values())
    assert tables["fine"] == {} and "not installed" in eserol2019.as_markdown(tables)
    even = [row for row in tables["even"] if row["objective"] == "volume"]
    assert [row["connectivity-1"] for row in even] == [pytest.approx(45.9375)]


@pytest.mark.long
def test_the_published_run_times_are_those_of_the_thesis(tables):
    speedups = {(row["N"], row["method"]): row for row in tables["5.15"]}
    assert speedups[2, times.LAYERS]["16, published"] == pytest.approx(9405 / 5431)
    assert speedups[4, times.HYPERGRAPH]["512, published"] == pytest.approx(4842 / 1682)
    counts = {row["claim"]: row["published"] for row in tables["claims"] if row["claim"].startswith("5.2.2")}
    assert list(counts.values()) == ["12 of 12", "11 of 12", "11 of 12", "8 of 12"]
    data = [row for row in tables["5.15"] if "DP" in row["method"]]
    assert [row["method"] for row in data] == 2 * list(servers.METHODS) and all(row["16, published"] for row in data)


@pytest.mark.long
def test_predicted_run_times(tables):
    for row in tables["5.15"]:
        assert row["32, *predicted*"] is None  # not asked for here
        assert 1 <= row["16, *predicted*"] <= row["N"] and 1 <= row["512, *predicted*"] <= row["N"]
        if "DP" in row["method"]:
            assert row["16, *predicted*"] < row["512, *predicted*"]  # as much is sent for fewer images
    holds = {row["claim"]: row["holds"] for row in tables["claims"] if row["claim"].startswith("5.2.3")}
    assert len(holds) == 3 and all(holds.values())
    single = tables["5.15, seconds"][0]
    assert single["512, *predicted*"] == pytest.approx(102400 * 3 * 31e9 / (32 * 73.6e9), rel=0.1)  # at the peak
    pipelined = tables["5.15, pipeline"]
    assert len(pipelined) == len(times.RANKS) * 3 * len(BATCHES)
    for row in pipelined:
        alone, flight = (row[f"speed-up, {name}"] for name in (times.ALONE, times.FLIGHT))
        assert alone < 1.1 and 1.2 * alone < flight <= row["N"]
        assert row["gain of the pipeline"] == pytest.approx(flight / alone)
        assert row["GiB, most of a rank"] < row["the same in flight, GiB"]


@pytest.mark.long
def test_the_largest_parameter_decides_how_even_servers_are(tables):
    rows = tables["servers"]
    for row in rows:
        assert row["FC1 alone, max/avg"] <= row["greedy, max/avg"] <= row["round-robin, max/avg"] <= row["servers"]
        assert row["greedy, max MiB"] == pytest.approx(row["greedy, max/avg"] * 527.792 / row["servers"], rel=1e-5)
    assert rows[0]["round-robin, max/avg"] == pytest.approx(2, rel=1e-3)  # all weights at one of two
    assert rows[-1]["greedy, max/avg"] == pytest.approx(rows[-1]["FC1 alone, max/avg"], rel=1e-4)


def test_places_of_methods():
    cells = (1, times.SINGLE, 1.0), (2, "x", 1.5), (2, "y", None)
    rows = [{"N": ranks, "method": method, "16, a": speedup} for ranks, method, speedup in cells]
    found = claims.speedups(rows, "a")
    assert claims.wins(found, "x", times.SINGLE) == (1, 1) and claims.wins(found, "y", "x") == (0, 0)
    assert claims.order(found, (times.SINGLE, "x"), (2, 0)) == [1, 0]


@pytest.mark.long
def test_tables_follow_from_what_is_kept(tables):
    assert eserol2019.tables(json.loads(json.dumps(tables, allow_nan=False)), BATCHES) == tables


def test_what_is_kept_is_not_trusted(kept):
    stale = kept[0] | {"volume": 1.0}
    assert searches.owners_of(stale)[0] == Case("coarse", 2)
    for broken in ({"counts": kept[1]["counts"]}, {"counts": ["1 2"]}, {"counts": 3}):
        with pytest.raises(UserError, match=r"tables\.json: a kept partition is none of VGG16"):
            searches.owners_of(kept[0] | broken)
    with pytest.raises(UserError, match=r"search again, without --tables-only"):
        searches.owners_of({"grain": "coarse"})


def test_a_fine_partition_is_kept_in_blocks():
    pytest.importorskip("mtkahypar")
    kept = json.loads(json.dumps(searches.search(Case("fine", 2), blocks=(8,), moves=1000)))
    case, owners = searches.owners_of(kept)
    costs = costs_of(owners, "fine")
    assert costs.volume <= 15.4 and costs.balance <= 1.1 and case.ranks == 2
    assert kept["blocks"] == 8 and len(kept["parts"]) < 3000
    assert costs.star >= costs.volume - 1e-9
    row = rows.search_row(case, costs, kept["seconds"])
    assert row["MiB of float32"] == pytest.approx(4 * costs.volume)


def test_all_searches():
    wanted = searches.cases(vgg16.RANKS, eserol2019.balances())
    assert len(set(wanted)) == len(wanted) and set(searches.DRAWN) < set(wanted)
    assert {case.ranks for case in wanted if case.grain == "exact"} == {2, 4}
    assert searches.cases([2], eserol2019.balances())[0] == Case("exact", 2)


@pytest.mark.long
def test_the_picture(kept, tables, tmp_path):
    eserol2019.draw(tables, tmp_path)
    assert is_figure(tmp_path / "partition.png")
    counts = figures.counts_of(searches.owners_of(kept[1])[1])
    assert (counts.sum(1) == figures.layers().filters).all()
    assert figures.layers().volume(counts) == pytest.approx(4 * 45.9375)
    first = [np.flatnonzero(counts[:, rank])[0] for rank in range(4)]
    assert first == sorted(first)


@pytest.mark.long
def test_without_a_search_there_is_what_needs_none(tmp_path):
    finished = program("reproduce", "eserol2019", "--tables-only", "--json", tmp_path / "t.json", "--out", tmp_path / "o")
    assert finished.returncode == 0 and "Nothing searched for yet" in finished.stdout, finished.stderr
    tables = json.loads((tmp_path / "t.json").read_text())
    assert tables["coarse"] == tables["fine"] == {} and len(tables["5.4"]) == 7
    assert tables["5.15, pipeline"] == [] and tables["5.15"][-1]["16, published"] and not tables["5.15"][-1]["16, *predicted*"]


def test_the_network_is_the_one_of_the_zoo():
    net = network_names.build("vgg16", vgg16.IMAGE, vgg16.NEURONS[-1])
    outputs = [layer.outputs for layer in net.leaves() if layer.kind]
    assert outputs == [*vgg16.FILTERS, *vgg16.NEURONS]
    assert sum(p.size for layer in net.leaves() for p in layer.parameters) == vgg16.PARAMETERS
