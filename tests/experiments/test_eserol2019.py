"""`reproduce eserol2019`: units, simple partitions, costs against the hypergraph, what is kept, and a search, small."""

import json
from pathlib import Path

import numpy as np
import pytest

from gridgrad.experiments.papers.cited import DERIVED, PRINTED, published
from gridgrad.experiments.papers.eserol2019 import claims as of_claims
from gridgrad.experiments.papers.eserol2019 import experiments as eserol2019
from gridgrad.experiments.papers.eserol2019 import figures, servers, targets, times, vgg16
from gridgrad.experiments.papers.eserol2019 import items as eserol2019_items
from gridgrad.experiments.papers.eserol2019 import search as searches
from gridgrad.experiments.papers.eserol2019 import tables as rows
from gridgrad.experiments.papers.eserol2019.costs import costs_of, horizontal, star
from gridgrad.experiments.papers.eserol2019.search import SearchCase
from gridgrad.experiments.papers.items import ALONE, BESIDE, FORESEEN, MISSING, PREDICTED
from gridgrad.experiments.papers.parts import SHORT, USUAL
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.job.run import UserError
from gridgrad.parallel.partitioning import naive
from gridgrad.parallel.partitioning.network_hypergraph import star as best_star
from tests.experiments.figures import is_figure
from tests.experiments.programs import program

BATCHES = 16, 512  # for which steps are predicted


@pytest.fixture(scope="module")
def kept():
    """Three coarse partitions and an exact one."""
    return [
        searches.search(case)
        for case in (SearchCase("coarse", 2), SearchCase("coarse", 4), SearchCase("exact", 2), SearchCase("coarse", 2, 1.03))
    ]


@pytest.fixture(scope="module")
def tables(kept):
    return eserol2019.tables({"partitions": kept}, BATCHES)


def test_the_hypergraphs_have_the_sizes_of_the_thesis():
    sample, coarse, fine = rows.hypergraph_rows()
    for row in (sample, coarse, fine):
        for what in ("vertices", "nets", "pins"):
            assert row[f"{what}, the thesis"] in (None, row[what]), row
    assert (sample["vertices"], sample["nets"], sample["pins"]) == (13, 12, 38)  # printed
    assert (coarse["vertices"], coarse["nets"]) == (4228, 4227) and (fine["vertices"], fine["nets"]) == (1638726, 8453)
    sizes = rows.hypergraph_sizes("fine")
    assert sizes["vertices"].kind == DERIVED and sizes["vertices"].place.startswith("Table 5.13")
    assert vgg16.model("fine").hypergraph.weights.sum() / 1e6 == pytest.approx(sum(vgg16.WORKS), rel=1e-3)


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


def test_what_is_printed_is_no_number_of_ours():
    known = published("eserol2019")
    volumes = known.tables["5.10"]
    assert [volumes.cited("volume", n).value for n in (2, 4, 8)] == [27, 61, 298]
    assert volumes.cited("volume", 2).kind == PRINTED and volumes.cited("volume", 2).place == "Table 5.10, section 5.1.5"
    assert known.tables["5.1"].cited("max/avg", 2) is None  # torn
    assert known.values["imbalance"].value == searches.EPSILON
    assert known.tables["5.14"].cited("reduction, %", 8, 64).value == 83
    assert [line["max/avg, derived"] for line in rows.load_rows("5.11", {})][0] == pytest.approx(21761 / 21369)
    assert rows.balance_of("5.11")({"N": 2}).kind == DERIVED and rows.balance_of("5.9")({"N": 2}) is None


def test_columns_that_do_not_follow_from_others():
    found, counted = rows.column_rows()
    assert counted > 300 and {"table": "5.1", "N": 2, "column": "max*N", "printed": 51308, "follows": 45514} in found
    assert not [row for row in found if row["table"] in ("5.3", "5.4", "5.10", "5.11", "A.3", "A.7", "A.9")]
    line = {"N": 2, "max": 30, "min": 20, "mean": 24, "max/min": 1.5, "max/avg": "-", "max*N": 61}
    assert [name for name, *_ in rows.follows(line)] == ["max/min", "max*N"]


def test_sums_of_table_5_13():
    assert rows.memory_of_image().value == pytest.approx(60.74, abs=0.01)
    *layers, total = rows.parameter_rows()
    assert all(row["output size, printed"] == row["output size"] for row in layers)
    assert all(row["parameters, printed"] == row["parameters"] for row in (*layers, total))
    for row in layers:
        assert rows.of_text(row["memory, printed"]) == pytest.approx(row["elements"], rel=0.03)
    assert 4 * total["elements"] / 1e6 == pytest.approx(60.95, abs=0.01) and total["memory, printed"] == "93 MB"


@pytest.mark.long
def test_printed_numbers_that_are_met(tables):
    for row in tables["5.14"][:-1]:
        assert int(row["data parallel, GB"] + 1e-6) == row["data parallel, printed GB"]
        assert row["hypergraph, GB by the volume of Table 5.10"] == pytest.approx(row["hypergraph, printed GB"], rel=0.02)
        assert row["reduction, printed %"] in (int(row["reduction, %"]), round(row["reduction, %"]))
    mean = tables["5.14"][-1]
    assert mean["reduction, %"] == pytest.approx(93.33, abs=0.01)
    assert mean["reduction in bytes, derived %"] == pytest.approx(73.3, abs=0.05)
    claims = {claim.name: claim for claim in of_claims.claims(tables)}
    for name in ("layer_volumes", "horizontal", "incremental_less", "parameters", "data_grows", "horizontal_same"):
        assert claims[name].verdict == "holds here", name
    for name in ("image_memory", "less_than_data", "layers_costly"):
        assert claims[name].verdict == "does not hold here", name
    assert claims["columns"].verdict == "the paper contradicts itself"
    assert "fitted" in claims["layer_work"].finding.reason and claims["layer_work"].verdict == "can not be decided here"
    assert "N = 4, 8, 16" not in claims["coarse_volumes"].finding.numbers
    assert claims["coarse_volumes"].verdict == "can not be decided here"  # as not all was searched for


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
    (own,) = [row for row in tables["A.7"] if row["star"]]  # at the table's own imbalance
    assert own["N"] == 2 and own["volume, printed"] == 27.5 and tables["A.1"][0]["max/avg"] <= 1.0301
    (place,) = {row["on"] for row in tables["searches"]}
    assert place == tables["partitions"][0]["searched_on"] and targets.rows(tables)[0]["met"]


@pytest.mark.long
def test_items_say_what_they_are(tables):
    found = {item.name: item for item in eserol2019_items.items(tables)}
    assert found["Table 5.1"].status == found["Table 5.5"].status == FORESEEN  # their works were fitted
    assert found["Table 5.2"].status == found["Table 5.10"].status == found["Table A.7"].status == BESIDE
    assert found["Table A.1"].status == ALONE and "torn" in found["Table A.1"].reason
    assert found["Table A.4"].status == MISSING and "Nothing was searched for" in found["Table A.4"].reason
    assert "Some numbers of ranks" in found["Table A.7"].reason
    kinds = {row.label: row.cited.kind for row in found["Table 5.15"].rows}
    assert set(kinds.values()) == {DERIVED}
    volume = next(row for row in found["Table 5.10"].rows if row.label == "N = 2: volume, star")
    assert (volume.cited.value, volume.measured) == (27, pytest.approx(15.3125))
    assert PREDICTED not in found["Table 5.14"].kinds  # the formulas of the thesis are filled with what it prints
    derived = {row.label: row.cited.kind for row in (*found["Table 5.14"].rows, *found["Table 5.15, seconds"].rows)}
    assert derived["N = 2, batch 16: data parallel, GB"] == PRINTED and derived["mean: reduction by these GB, %"] == DERIVED
    assert derived["N = 2, batch 16: data parallel by its formula, GB"] == DERIVED
    assert derived["N = 2, Async. DP (1PS), batch 16: s of a step beyond computing"] == DERIVED
    assert eserol2019_items.measured_on(tables) == "counted, on any processor" and eserol2019_items.measured_on({}) == ""


def test_the_printed_run_times_are_those_of_the_thesis():
    seconds = times.printed(2, times.LAYERS, 16)
    assert (seconds.value, seconds.kind, seconds.place) == (5431, PRINTED, "Table 5.15, section 5.2")
    assert times.speedup(2, times.LAYERS, 16).value == pytest.approx(9405 / 5431)
    assert times.alone(512).value == pytest.approx(24.21) and times.alone(512).kind == DERIVED
    extra = times.beyond(2, "Async. DP (1PS)", 16)
    assert extra.value == pytest.approx((10256 * 2 - 9405) * 16 / 102400) and "less the step" in extra.formula.words
    assert times.rate(16).value == pytest.approx(2 * 527.792 / extra.value)
    assert times.share(4, times.FILTERS, 512).value == pytest.approx(4842 / 4 / 2313 * 10767 / 10755)
    assert [line["method"] for line in times.in_seconds({}) if "DP" in line["method"]] == 2 * list(times.DATA)


def test_without_overlap_the_printed_seconds_come_out():
    assert times.without_overlap(2, times.LAYERS, 512) == pytest.approx(
        4842 / 2 * 22757 / 21500 + 102400 / 32 * 2 * 24.5 * 2**22 / 1.25e9
    )
    ratios = [
        times.without_overlap(2, method, batch) / times.printed(2, method, batch).value
        for method in times.OWN for batch in times.BATCHES if batch != 32
    ]  # fmt: skip
    assert min(ratios) > 0.9 and max(ratios) < 1.1


def test_the_calibrated_machine_takes_as_long_as_the_single_processor():
    machine = times.calibrated(64)
    assert times.of_single(64, machine).seconds == pytest.approx(times.alone(64).value, rel=1e-6)
    assert 1 / machine.links["network"]["beta"] == pytest.approx(times.rate(64).value * 2**20)
    assert times.data_parallel([64])[4, "Sync. DP (1PS)", 64].seconds == pytest.approx(
        (times.alone(64).value + times.beyond(2, "Sync. DP (1PS)", 64).value) / 4
    )


@pytest.mark.long
def test_predicted_run_times(tables):
    for row in tables["5.15"]:
        assert row["32, *predicted*"] is None  # not asked for here
        predicted = [row[f"{batch}, *predicted*"] for batch in BATCHES]
        if row["method"] == times.SINGLE or (row["N"] == 2 and "DP" in row["method"]):
            assert predicted == [None, None]  # they calibrate
        else:
            assert all(1 <= speedup <= row["N"] for speedup in predicted), row
    pipelined = tables["5.15, pipeline"]
    assert len(pipelined) == len(times.RANKS) * 3 * len(BATCHES)
    for row in pipelined:
        alone, flight = (row[f"speed-up, {name}"] for name in (times.ALONE, times.FLIGHT))
        assert alone < flight <= row["N"] and row["gain of the pipeline"] == pytest.approx(flight / alone)
        assert row["GiB, most of a rank"] < row["the same in flight, GiB"] and row["least busy, % in flight"] <= 100


def test_the_largest_parameter_decides_how_even_servers_are():
    found = servers.imbalances()
    for row in found:
        assert row["FC1 alone, max/avg"] <= row["greedy, max/avg"] <= row["round-robin, max/avg"] <= row["servers"]
        assert row["greedy, max MiB"] == pytest.approx(row["greedy, max/avg"] * 527.792 / row["servers"], rel=1e-5)
    assert found[0]["round-robin, max/avg"] == pytest.approx(2, rel=1e-3)  # all weights at one of two
    assert found[-1]["greedy, max/avg"] == pytest.approx(found[-1]["FC1 alone, max/avg"], rel=1e-4)


@pytest.mark.long
def test_tables_follow_from_what_is_kept(tables):
    assert eserol2019.tables(json.loads(json.dumps(tables, allow_nan=False)), BATCHES) == tables


def test_what_is_kept_is_not_trusted(kept):
    stale = kept[0] | {"volume": 1.0}
    assert searches.owners_of(stale)[0] == SearchCase("coarse", 2)
    for broken in ({"counts": kept[1]["counts"]}, {"counts": ["1 2"]}, {"counts": 3}):
        with pytest.raises(UserError, match=r"tables\.json: a kept partition is none of VGG16"):
            searches.owners_of(kept[0] | broken)
    with pytest.raises(UserError, match="search again, with --full"):
        searches.owners_of({"grain": "coarse"})


def test_only_what_is_not_kept_is_searched_for(kept, tmp_path, monkeypatch):
    wanted, ran = [SearchCase("coarse", 2), SearchCase("coarse", 2, 1.2), SearchCase("coarse", 2, 1.3)], []

    def search(case):
        ran.append(case.balance)
        if case.balance == ends_at:
            raise KeyboardInterrupt
        return kept[0] | {"balance": case.balance}

    monkeypatch.setattr(searches, "cases", lambda *arguments: wanted)
    monkeypatch.setattr(searches, "search", search)
    old = {name: value for name, value in kept[0].items() if name != "searched_on"}
    (tmp_path / "tables.json").write_text(json.dumps({"processor": "an older one", "partitions": [old]}))
    for ends_at, done in ((1.3, [1.1, 1.2]), (None, [1.1, 1.2, 1.3])):
        try:
            eserol2019.experiments(tmp_path, None, None)
        except KeyboardInterrupt:
            assert ends_at
        measured = json.loads((tmp_path / "tables.json").read_text())  # what was found is kept at once
        assert [one["balance"] for one in measured["partitions"]] == done
    assert ran == [1.2, 1.3, 1.3] and measured["partitions"][0]["searched_on"] == "an older one"
    assert measured["partitions"][1]["searched_on"] == kept[0]["searched_on"] != ""
    eserol2019.experiments(tmp_path, None, None, full=True)
    assert ran[3:] == [1.1, 1.2, 1.3]


def test_a_fine_partition_is_kept_in_blocks():
    pytest.importorskip("mtkahypar")
    kept = json.loads(json.dumps(searches.search(SearchCase("fine", 2), blocks=(8,), moves=1000)))
    case, owners = searches.owners_of(kept)
    costs = costs_of(owners, "fine")
    assert costs.volume <= 15.4 and costs.balance <= 1.1 and case.ranks == 2
    assert kept["blocks"] == 8 and len(kept["parts"]) < 3000
    assert costs.star >= costs.volume - 1e-9
    assert rows.search_row(case, costs)["MiB of float32"] == pytest.approx(4 * costs.volume)
    assert rows.seconds_rows({case: kept})[0]["N = 2"] == kept["seconds"]


def test_seconds_of_two_processors_stand_apart():
    kept = {SearchCase("coarse", n): {"searched_on": place, "seconds": 1.0 * n} for n, place in ((2, "one"), (4, "other"))}
    one, other = rows.seconds_rows(kept)
    assert (one["on"], one["N = 2"], one["N = 4"]) == ("one", 2.0, None)
    assert (other["on"], other["N = 2"], other["N = 4"]) == ("other", None, 4.0)
    tables = json.loads(Path(eserol2019_items.RESULTS).read_text())
    places = {one["searched_on"] for one in tables["partitions"]}
    assert {row["on"] for row in tables["searches"]} == places
    assert all(any(row["what"].endswith(place) for place in places) for row in tables["targets"] if "seconds" in row["what"])


def test_all_searches():
    wanted = searches.cases(vgg16.RANKS, eserol2019.balances(), vgg16.RANKS)
    assert len(set(wanted)) == len(wanted) and set(searches.DRAWN) < set(wanted)
    assert {case.ranks for case in wanted if case.grain == "exact"} == {2, 4}
    limits = {(case.grain, case.ranks, case.balance) for case in wanted}
    assert limits > {(grain, n, limit) for grain in ("coarse", "fine") for n in vgg16.RANKS for limit in (1.03, 1.15, 1.2)}
    assert searches.cases([2], eserol2019.balances(), ())[0] == SearchCase("exact", 2)
    short, usual = ({part.name for part in eserol2019.to_measure(size, None, None)} for size in (SHORT, USUAL))
    assert (
        short < usual and SearchCase("coarse", 2, 1.03).words in short and SearchCase("coarse", 4, 1.03).words in usual - short
    )


@pytest.mark.long
def test_the_kept_partitions_fit():
    measured = json.loads(Path(eserol2019_items.RESULTS).read_text())
    cases = [searches.owners_of(one)[0] for one in measured["partitions"]]
    assert len(set(cases)) == len(cases) >= 43
    lacking = eserol2019.missing(eserol2019.to_measure(USUAL, None, None), measured)
    assert all(part.settings["balance"] in (1.03, 1.15, 1.2) for part in lacking)


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
    assert tables["5.15, pipeline"] == [] and tables["5.15"][-1]["16, derived"] and not tables["5.15"][-1]["16, *predicted*"]
    found = {claim.name: claim.verdict for claim in of_claims.claims(tables)}
    assert found["coarse_volumes"] == found["no_expert"] == found["fine_better"] == "can not be decided here"


def test_the_network_is_the_one_of_the_zoo():
    net = network_names.build("vgg16", vgg16.IMAGE, vgg16.NEURONS[-1])
    outputs = [layer.outputs for layer in net.leaves() if layer.kind]
    assert outputs == [*vgg16.FILTERS, *vgg16.NEURONS]
    assert sum(p.size for layer in net.leaves() for p in layer.parameters) == vgg16.PARAMETERS
