"""Claims of Eserol 2019: made-up measurements turn their verdicts both ways."""

import json
from pathlib import Path

import pytest

from gridgrad.experiments.papers.cited import DERIVED, published
from gridgrad.experiments.papers.claims import CONTRADICTORY, DIFFERS, FOLLOWS, HOLDS, OPEN
from gridgrad.experiments.papers.eserol2019 import claims, elsewhere, items_times, servers, times
from gridgrad.experiments.papers.eserol2019 import claims_times as of_times
from gridgrad.experiments.papers.items import BESIDE, KEPT, MEASURED, MISSING, PREDICTED
from gridgrad.experiments.papers.page_words import FEW

BATCHES = 16, 256
METHODS = *elsewhere.TABLE, *elsewhere.ROUND_ROBIN
ASYNC, SYNC, SPREAD_ASYNC, SPREAD_SYNC = times.DATA
RANKS = 2, 4, 8, 16, 32, 64, 128
LAYERS = {2: 24.5, 4: 85.75, 8: 131.7, 16: 273.6}  # what a layer-wise partition sends


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Writes made-up results of other programs: a function (name, content); none are there at first."""
    for name in ("HOSTS", "CONVERGENCE", "PROTOCOLS"):
        monkeypatch.setattr(elsewhere, name, tmp_path / f"{name}.json")
    return lambda name, content: getattr(elsewhere, name).write_text(json.dumps(content))


@pytest.fixture
def tables():
    """Of time alone, without predictions of the calibrated machine."""
    return {"5.15, seconds": times.in_seconds({}), "servers": servers.imbalances()}


def hosts(ranks, seconds, sent=1.0, cores=2):
    """A result of results/eserol2019/hosts.json. sent: bytes, as so many times what is expected.

    seconds: {method, or (method, batch): those of a minibatch, or a list of those of three rounds}, 1 for others.
    """
    rows = []
    for batch in BATCHES:
        for method in METHODS:
            pipeline = method in times.OWN
            one = seconds.get((method, batch)) or seconds.get(method, 1.0)
            each = one if isinstance(one, list) else [one * round_ for round_ in (1.0, 1.1, 0.9)]
            rows.append({
                "method": method, "batch": batch, "seconds": each[0], "rounds": each,
                "bytes": sent * batch, "bytes expected": batch if pipeline else None, "max/avg": 1.05 if pipeline else None,
            })  # fmt: skip
    return {"ranks": ranks, "link": f"{ranks} hosts played on 2 cores, 1000 Mbit/s, 50 us", "cores": cores,
            "rows": rows, "versions": {"processor": "a processor"}}  # fmt: skip


def of_convergence(seconds, ranks=2):
    ways = [{"way": way, "seconds": value} for way, value in seconds.items()]
    settings = {"target": 65.0, "epochs": 4}
    return {"ranks": ranks, "ways": ways, "net": "a net", "samples": 50000, "dataset": "cifar10", "settings": settings,
            "versions": {"processor": "a processor"}}  # fmt: skip


def test_what_was_measured_on_hosts_decides(files, tables):
    fast = {times.HYPERGRAPH: 0.5, times.LAYERS: 0.6, times.FILTERS: 0.7, SPREAD_SYNC: 0.9, SPREAD_ASYNC: 0.95}
    slow = {times.HYPERGRAPH: 0.9, times.LAYERS: 0.6, times.FILTERS: 0.5}
    names = "layers_faster", "filters_slower", "hypergraph_filters", "hypergraph_layers", "spread_sync"
    for seconds, verdicts in ((fast, 5 * [HOLDS]), (slow, [HOLDS, DIFFERS, DIFFERS, DIFFERS, OPEN])):
        files("HOSTS", [hosts(2, seconds), hosts(4, fast)])
        found = of_times.findings(tables)
        assert [found[name].verdict for name in names] == verdicts
        assert all(found[name].kind == KEPT and "a processor" in found[name].reason for name in names)
    assert "too near" in found["spread_sync"].reason and "up to 2 % counts as equal" in found["hypergraph_filters"].reason
    assert found["hypergraph_filters"].numbers == "0.56, 0.56 times as fast on 2 hosts with batches of 16, 256"
    files("HOSTS", [hosts(2, {ASYNC: 0.8, SPREAD_ASYNC: 0.8})])
    assert of_times.findings(tables)["async_faster"].verdict == HOLDS
    files("HOSTS", [hosts(2, {SYNC: 0.8, SPREAD_SYNC: 0.8})])
    assert of_times.findings(tables)["async_faster"].verdict == DIFFERS


def test_differences_inside_the_spread_decide_nothing(files, tables):
    for rounds, verdict in (([0.8, 0.9, 0.85], HOLDS), ([0.8, 0.97, 1.1], OPEN), ([1.2, 1.1, 1.3], DIFFERS)):
        files("HOSTS", [hosts(2, {times.HYPERGRAPH: rounds, times.FILTERS: [1.0, 1.0, 1.0]})])
        assert of_times.findings(tables)["hypergraph_filters"].verdict == verdict
    assert elsewhere.quartiles_of([1.0, 2.0, 3.0]) == (1.5, 2.0, 2.5) and elsewhere.quartiles_of([2.0]) == (2.0, 2.0, 2.0)


def test_claims_of_batches_and_servers(files, tables):
    found = of_times.findings(tables)
    for name in ("small_batches", "larger_batches", "spread_async", "async_faster"):  # what is printed is no evidence
        assert found[name].verdict == OPEN and "there is no" in found[name].reason
    assert found["small_batches"].numbers == "Table 5.15: in 11 of 12 cases"
    assert "shorter in 4 of 5 steps, and longer in 0" in found["larger_batches"].numbers  # 1.4 % longer counts as equal
    assert found["greedy"].verdict == HOLDS and found["greedy"].kind == FOLLOWS  # by loads alone
    seconds = {(times.HYPERGRAPH, 16): 0.5, (times.HYPERGRAPH, 256): 2.0, **dict.fromkeys(elsewhere.ROUND_ROBIN, 0.5)}
    files("HOSTS", [hosts(2, seconds)])
    found = of_times.findings(tables)
    assert "2.00, 0.50 (2 hosts" in found["small_batches"].numbers
    assert found["small_batches"].verdict == HOLDS and found["small_batches"].kind == KEPT
    assert found["greedy"].verdict == DIFFERS and found["greedy"].kind == KEPT
    assert found["spread_async"].verdict == HOLDS
    assert found["larger_batches"].verdict == HOLDS and found["larger_batches"].kind == KEPT
    files("HOSTS", [hosts(2, {SPREAD_ASYNC: 0.5, times.HYPERGRAPH: 0.8, (times.SINGLE, 256): 20.0})])
    found = of_times.findings(tables)
    assert found["spread_async"].verdict == found["larger_batches"].verdict == DIFFERS
    assert found["small_batches"].verdict == OPEN and "VGG16 may differ" in found["small_batches"].reason


@pytest.mark.parametrize("content", ["{", "[]", "{}", "[1]", '[{"ranks": 2, "link": "2 hosts", "rows": []}]', '[{"ranks": 2}]'])
def test_damaged_and_foreign_files_decide_nothing(content, files, tables):
    for name in ("HOSTS", "CONVERGENCE", "PROTOCOLS"):
        getattr(elsewhere, name).write_text(content)
    found = of_times.findings(tables)
    assert "HOSTS.json" in found["async_faster"].reason and "CONVERGENCE.json" in found["faster_than_data"].reason
    assert "PROTOCOLS.json" in found["async_converges"].reason
    assert items_times.small(2).status == items_times.convergence().status == MISSING


def test_a_result_without_a_method_is_none_and_one_batch_size_says_nothing_of_larger_ones(files):
    result = hosts(2, {})
    assert set(elsewhere.of_hosts([result])) == {2} and elsewhere.of_hosts([result | {"link": "2 cores"}]) == {}
    one = result | {"rows": [row for row in result["rows"] if row["batch"] == 16]}
    files("HOSTS", [one])
    assert "too few batch sizes" in of_times.larger_batches().reason
    result["rows"].pop()
    with pytest.raises(ValueError, match="methods are missing"):
        elsewhere.of_hosts([result])
    result = hosts(2, {times.LAYERS: [1.0, 0.0, 1.0]})
    with pytest.raises(ValueError, match="rounds are missing"):
        elsewhere.of_hosts([result])


def test_without_measurements_two_predictions_have_to_agree(files, tables):
    found = of_times.findings(tables)
    assert found["hypergraph_filters"].verdict == OPEN and "12 of 12" in found["hypergraph_filters"].numbers
    slow = {(n, times.HYPERGRAPH, batch): 1e6 for n in times.RANKS for batch in times.BATCHES}
    for factor, verdict in ((1.0, OPEN), (1e-12, HOLDS)):
        seconds = {key: factor * value for key, value in slow.items()}
        seconds |= {(n, times.FILTERS, batch): 1.0 for n in times.RANKS for batch in times.BATCHES}
        made_up = tables | {"5.15, seconds": times.in_seconds(seconds)}
        found = of_times.findings(made_up)["hypergraph_filters"]
        assert found.verdict == verdict and (found.kind == PREDICTED or verdict == OPEN)
    files("HOSTS", [hosts(2, {times.HYPERGRAPH: 2.0})])
    found = of_times.findings(made_up)["hypergraph_filters"]
    assert found.verdict == OPEN and "VGG16 is predicted to differ: so in 12 of 12 cases" in found.reason
    files("HOSTS", [hosts(2, {times.HYPERGRAPH: 0.5})])
    assert of_times.findings(made_up)["hypergraph_filters"].verdict == HOLDS


def test_counts_in_the_claims_are_those_of_the_table(tables):
    printed = of_times.seconds_of(tables, of_times.PRINTED)
    known = published("eserol2019").claims
    for name, pairs in {
        "layers_faster": [(times.LAYERS, times.SINGLE)], "filters_slower": [(times.LAYERS, times.FILTERS)],
        "hypergraph_filters": [(times.HYPERGRAPH, times.FILTERS)], "hypergraph_layers": [(times.HYPERGRAPH, times.LAYERS)],
        "spread_sync": [(SPREAD_SYNC, SYNC)], "spread_async": [(SPREAD_ASYNC, ASYNC)],
        "async_faster": [(ASYNC, SYNC), (SPREAD_ASYNC, SPREAD_SYNC)],
    }.items():  # fmt: skip
        won, cases = of_times.wins(printed, pairs)
        assert f"in {won} of {cases}" in known[name].says, name
    falls, _, steps = of_times.steps_of_table()
    assert f"in {falls} of {steps}" in known["larger_batches"].says and "in 11 of 12" in known["small_batches"].says


def test_how_fully_processors_are_used(files, tables):
    assert of_times.full_use().verdict == DIFFERS and of_times.full_use().kind == FOLLOWS
    assert of_times.bound().verdict == HOLDS and "err by 7 points or more" in of_times.bound().reason
    for seconds, verdict in ((0.55, HOLDS), (0.8, DIFFERS)):
        files("HOSTS", [hosts(2, {times.HYPERGRAPH: seconds})])
        assert of_times.full_use().verdict == verdict and of_times.full_use().kind == KEPT


@pytest.mark.parametrize(("shares", "verdict"), [((0.4, 0.6, 1.1), HOLDS), ((0.4, 0.45, 1.1), DIFFERS)])
def test_the_median_share_says_what_bounds_the_time(shares, verdict, monkeypatch):
    monkeypatch.setattr(of_times, "shares", lambda: dict(enumerate(shares)))
    assert of_times.bound().verdict == verdict and "err by 10 points" in of_times.bound().reason


def test_convergence(files):
    found = of_times.of_convergence()
    assert {finding.verdict for finding in found.values()} == {OPEN} and "2.77" in found["three_times"].numbers
    assert items_times.convergence().status == MISSING
    for pipeline in (115.0, 60.0):
        files("CONVERGENCE", [of_convergence({"serial": 88.0, "batch=2": 77.0, elsewhere.PIPELINE: pipeline, "other": None})])
        found = of_times.of_convergence()
        data = found["faster_than_data"]  # a small network, an all-reduce and one run each decide nothing of VGG16 and servers
        assert (data.verdict, data.kind) == (OPEN, KEPT) and f"pipeline {pipeline:.0f} s, all-reduce 77 s" in data.numbers
        assert data.reason.endswith("a processor") and found["three_times"].verdict == OPEN
        item = items_times.convergence()
        values = {row.label: row.measured for row in item.rows}
        assert values["N = 2: times as fast as synchronous data parallelism"] == pytest.approx(77 / pipeline)
        assert item.status == BESIDE and item.elsewhere and item.processor == "a processor"
        assert ("loses" in item.why) == (pipeline > 88)
    files("CONVERGENCE", [of_convergence({"serial": 88.0}, ranks=1)])
    assert of_times.of_convergence()["faster_than_data"].verdict == OPEN


def test_servers_to_a_target(files):
    def result(asp, bsp):
        runs = [
            {
                "protocol": name,
                "straggler": 1.0,
                "history": [{"score": 90.0, "seconds": 1.0}, {"score": 95.0, "seconds": taken}],
            }
            for name, taken in (("server:asp", asp), ("server:bsp", bsp))
        ]
        return {"net": "a net", "time": "virtual", "score": "accuracy", "settings": {"target": 95.0}, "runs": runs}

    for content, verdict in (([result(2.0, 3.0)], HOLDS), ([result(2.0, 3.0), result(3.0, 2.0)], DIFFERS)):
        files("PROTOCOLS", content)
        found = of_times.of_convergence()["async_converges"]
        assert found.verdict == verdict and found.kind == PREDICTED


def test_a_small_table_5_15_has_places(files):
    assert items_times.small(2).status == items_times.small(4).status == MISSING
    seconds = {times.HYPERGRAPH: 0.5, times.LAYERS: 0.6}
    files("HOSTS", [hosts(2, seconds), hosts(4, seconds)])
    two, four = items_times.small(2), items_times.small(4)
    rows = {row.label: row for row in two.rows}
    assert rows["batch 16, Layer-wise: place"].measured == 2 and rows["batch 16, Layer-wise: place"].cited.value == 1
    assert rows["batch 16, Layer-wise: speed-up"].measured == pytest.approx(1 / 0.6)
    assert all(row.cited.kind == DERIVED for row in two.rows if row.cited)
    assert rows["batch 16, Async. DP (round-robin): speed-up"].cited is None
    assert {row.quantity for row in four.rows} == {"place"} and "the order alone" in four.why  # more ranks than cores
    assert two.status == BESIDE and two.elsewhere and "--ranks 1,2" in two.command
    single = items_times.cited_place(2, times.SINGLE, 16)
    assert single.value == 4  # its 9,405 s, behind the pipelines; every one of data parallelism is slower


def made_up(volumes, even=1.05, fine=None, star=1.0):
    """Tables with coarse partitions of these volumes, {ranks: volume}, by way of a star `star` times as much, and fine ones of
    as much or of `fine`."""

    def grain(some):
        return {
            str(n): {"volume_melements": volume, "star_melements": star * volume, "max_over_avg": even}
            for n, volume in some.items()
        }

    def of_all(column, value):
        return [{"N": n, column: value(n)} for n in RANKS]

    def beside(name, ours):
        lines = published("eserol2019").tables[name].lines()
        return [{"N": line["N"], "volume, printed": line["volume"], "connectivity-1": ours.get(line["N"])} for line in lines]

    return {
        "coarse": grain(volumes), "fine": grain(volumes if fine is None else fine), "proof": [], "A.1": [], "A.4": [],
        "5.1": [{"N": n, "max/avg": 1.2} for n in LAYERS], "5.2": beside("5.2", LAYERS),
        "5.4": of_all("connectivity-1", lambda n: 300.0 * n),
        "5.5": of_all("max/avg", lambda n: 1.01), "5.6": of_all("connectivity-1", lambda n: 30.0 * n),
        "5.7": of_all("max/avg", lambda n: 1.01), "5.8": of_all("connectivity-1", lambda n: 30.0 * n),
        "5.10": beside("5.10", volumes), "5.12": beside("5.12", volumes),
    }  # fmt: skip


def test_partitions_turn_verdicts():
    good = {n: 5.0 * n for n in RANKS}
    found = claims.of_hypergraphs(made_up(good))
    assert {name for name, one in found.items() if one.verdict == HOLDS} == set(found) - {"layers_costly", "coarse_layers"}
    assert found["layers_costly"].kind == FOLLOWS and found["coarse_volumes"].kind == MEASURED
    bad = claims.of_hypergraphs(made_up({n: 45.0 * n for n in RANKS}, even=1.2))
    assert {bad[name].verdict for name in ("better_than_known", "no_expert", "coarse_naive", "coarse_layers")} == {DIFFERS}
    assert bad["coarse_volumes"].verdict == OPEN and "found none" in bad["coarse_volumes"].reason
    assert bad["no_expert"].numbers.startswith("2 of 14 partitions")  # those of N = 128, for which FC1 is the limit
    assert claims.of_hypergraphs(made_up(good, star=9.0))["coarse_volumes"].verdict == OPEN  # in one way of counting only
    some = claims.of_hypergraphs(made_up(good | {16: 290.0}))
    assert some["coarse_layers"].verdict == HOLDS and some["better_than_known"].verdict == DIFFERS
    assert some["better_than_known"].numbers == (
        "N = 16: hypergraph partitions send 290, the better of layer-wise and filter-wise ones 273.6 (2^20 elements)"
    )
    few = claims.of_hypergraphs(made_up({2: 10.0, 4: 20.0}))  # of a short measurement
    assert few["better_than_known"].verdict == few["coarse_volumes"].verdict == OPEN
    assert "N = 8, 16" in few["better_than_known"].reason and few["better_than_known"].kind == MEASURED
    assert claims.of_hypergraphs(made_up({2: 30.0, 4: 20.0}))["better_than_known"].verdict == DIFFERS
    none = claims.of_hypergraphs(made_up({}))
    assert none["coarse_volumes"].verdict == none["no_expert"].verdict == OPEN
    assert none["better_than_known"].verdict == DIFFERS and none["better_than_known"].kind == FOLLOWS


def test_which_grain_is_better():
    coarse = {n: 5.0 * n for n in RANKS}
    less, more = ({n: factor * volume for n, volume in coarse.items()} for factor in (0.9, 1.1))
    balances = lambda value: [{"N": n, "max/avg": value} for n in RANKS]  # noqa: E731
    for fine, even, verdict in ((less, 1.01, HOLDS), (less, 1.03, DIFFERS), (more, 1.01, DIFFERS), (less, None, OPEN)):
        tables = made_up(coarse, fine=fine)
        if even:
            tables |= {"A.1": balances(1.03), "A.4": balances(even)}
        assert claims.of_both_grains(tables)["fine_better"].verdict == verdict
    assert claims.of_both_grains(made_up({}))["fine_better"].verdict == OPEN


def test_what_pipelines_send_is_what_the_hypergraph_says(files):
    tables = {"5.13": [{"elements": 15237608, "parameters": 138357544}], "columns": []}
    assert claims.of_network(tables)["exact_model"].verdict == OPEN
    for sent, verdict in ((1.001, HOLDS), (1.2, DIFFERS)):
        files("HOSTS", [hosts(2, {}, sent)])
        found = claims.of_network(tables)
        assert found["exact_model"].verdict == verdict and found["exact_model"].kind == KEPT
    assert found["parameters"].verdict == HOLDS and found["image_memory"].verdict == DIFFERS
    assert found["columns"].verdict == HOLDS  # as none is given here
    tables["columns"] = [{"table": "5.1", "N": 2, "column": "max*N", "printed": 51308, "follows": 45514}]
    columns = claims.of_network(tables)["columns"]
    assert columns.verdict == CONTRADICTORY and "not those that follow from the other columns" in columns.numbers
    tables["5.13"][0] = {"elements": 93 * 10**6 // 4, "parameters": 1}
    found = claims.of_network(tables)
    assert found["parameters"].verdict == DIFFERS and found["image_memory"].verdict == HOLDS


@pytest.mark.parametrize(("factor", "bound", "verdict"), [(1.04, False, HOLDS), (1.06, False, OPEN), (1.06, True, DIFFERS)])
def test_other_cuts_than_those_of_the_thesis_decide_nothing(factor, bound, verdict):
    table = [{"N": 2, "star": 42.0, "volume, printed": 42}, {"N": 4, "star": 117 * factor, "volume, printed": 117}]
    finding = claims.as_printed(table, claims.CUTS, bound)
    assert finding.verdict == verdict and finding.kind == MEASURED
    assert "up to 5 % off counts as equal" in finding.reason and "% off (N = 4)" in finding.numbers


def test_main_claims_are_short():
    tables = json.loads(Path("results/eserol2019/tables.json").read_text())
    found = claims.claims(tables)
    assert not [claim.name for claim in found if claim.main and len(claim.finding.numbers) > FEW]
    assert all(claim.finding.kind == MEASURED for claim in found if claim.name in ("horizontal", "incremental_volumes"))
