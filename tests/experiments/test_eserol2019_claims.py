"""Claims of Eserol 2019: made-up measurements turn their verdicts both ways."""

import json

import pytest

from gridgrad.experiments.papers import eserol2019_claims as claims
from gridgrad.experiments.papers import eserol2019_claims_times as of_times
from gridgrad.experiments.papers import eserol2019_elsewhere as elsewhere
from gridgrad.experiments.papers import eserol2019_items_times as items_times
from gridgrad.experiments.papers import eserol2019_servers as servers
from gridgrad.experiments.papers import eserol2019_times as times
from gridgrad.experiments.papers.cited import DERIVED, published
from gridgrad.experiments.papers.claims import DIFFERS, FOLLOWS, HOLDS, OPEN
from gridgrad.experiments.papers.items import BESIDE, KEPT, MEASURED, MISSING, PREDICTED

BATCHES = 16, 256
METHODS = *elsewhere.TABLE, *of_times.ROUND_ROBIN
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
    """A result of `eserol2019-hosts`. seconds: {method: those of a minibatch}, 1 for others. sent: times what is expected."""
    rows = []
    for batch in BATCHES:
        for method in METHODS:
            pipeline = method in times.OWN
            each = [(seconds.get((method, batch)) or seconds.get(method, 1.0)) * round_ for round_ in (1.0, 1.1, 0.9)]
            rows.append({
                "method": method, "batch": batch, "seconds": each[0], "rounds": each,
                "bytes": sent * batch, "bytes expected": batch if pipeline else None, "max/avg": 1.05 if pipeline else None,
            })  # fmt: skip
    return {"ranks": ranks, "link": f"{ranks} hosts played on 2 cores", "cores": cores, "rows": rows,
            "versions": {"processor": "a processor"}}  # fmt: skip


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
    assert "too near" in found["spread_sync"].reason and "4 hosts on 2 cores" in found["spread_sync"].numbers
    assert "where it does not in 12 of 12 cases" in found["hypergraph_filters"].reason
    files("HOSTS", [hosts(2, {ASYNC: 0.8, SPREAD_ASYNC: 0.8})])
    assert of_times.findings(tables)["async_faster"].verdict == HOLDS
    files("HOSTS", [hosts(2, {SYNC: 0.8, SPREAD_SYNC: 0.8})])
    assert of_times.findings(tables)["async_faster"].verdict == DIFFERS


def test_claims_of_batches_and_servers(files, tables):
    found = of_times.findings(tables)
    assert found["small_batches"].verdict == DIFFERS and "N = 2, batch 128" in found["small_batches"].numbers
    assert found["small_batches"].kind == found["larger_batches"].kind == FOLLOWS
    assert found["greedy"].verdict == HOLDS and found["greedy"].kind == FOLLOWS  # by loads alone
    assert found["spread_async"].verdict == found["async_faster"].verdict == OPEN
    files(
        "HOSTS",
        [hosts(2, {(times.HYPERGRAPH, 16): 0.5, (times.HYPERGRAPH, 256): 2.0, **dict.fromkeys(of_times.ROUND_ROBIN, 0.5)})],
    )
    found = of_times.findings(tables)
    assert "2.00 (batch 16), 0.50 (batch 256)" in found["small_batches"].numbers
    assert found["small_batches"].verdict == DIFFERS  # the table of the thesis contradicts its text
    assert found["greedy"].verdict == DIFFERS and found["greedy"].kind == KEPT
    assert found["spread_async"].verdict == HOLDS
    files("HOSTS", [hosts(2, {SPREAD_ASYNC: 0.5})])
    assert of_times.findings(tables)["spread_async"].verdict == DIFFERS


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


def test_how_fully_processors_are_used(files, tables):
    assert of_times.full_use().verdict == DIFFERS and of_times.full_use().kind == FOLLOWS
    assert of_times.bound().verdict == HOLDS
    for seconds, verdict in ((0.55, HOLDS), (0.8, DIFFERS)):
        files("HOSTS", [hosts(2, {times.HYPERGRAPH: seconds})])
        assert of_times.full_use().verdict == verdict and of_times.full_use().kind == KEPT


def test_convergence(files):
    found = of_times.of_convergence()
    assert {finding.verdict for finding in found.values()} == {OPEN} and "2.77" in found["three_times"].numbers
    assert items_times.convergence().status == MISSING
    for pipeline, verdict in ((115.0, DIFFERS), (60.0, HOLDS)):
        files("CONVERGENCE", [of_convergence({"serial": 88.0, "batch=2": 77.0, elsewhere.PIPELINE: pipeline, "other": None})])
        found = of_times.of_convergence()
        assert found["faster_than_data"].verdict == verdict and found["faster_than_data"].kind == KEPT
        assert found["three_times"].verdict == OPEN and f"{88 / pipeline:.2f} times" in found["three_times"].reason
        item = items_times.convergence()
        values = {row.label: row.measured for row in item.rows}
        assert values["N = 2: times as fast as synchronous data parallelism"] == pytest.approx(77 / pipeline)
        assert item.status == BESIDE and item.elsewhere and item.processor == "a processor"
        assert ("loses" in item.why) == (verdict == DIFFERS)
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
    assert two.status == BESIDE and two.elsewhere and "--hosts 2" in two.command
    single = items_times.cited_place(2, times.SINGLE, 16)
    assert single.value == 4  # its 9,405 s, behind the pipelines; every one of data parallelism is slower


def made_up(volumes, even=1.05, fine=None):
    """Tables with coarse partitions of these volumes, {ranks: volume}, and fine ones of as much or of `fine`."""

    def grain(some):
        return {str(n): {"volume_melements": volume, "max_over_avg": even} for n, volume in some.items()}

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
    assert {name for name, one in found.items() if one.verdict == HOLDS} == set(found) - {"layers_costly"}
    assert found["layers_costly"].kind == FOLLOWS and found["coarse_volumes"].kind == MEASURED
    bad = claims.of_hypergraphs(made_up({n: 45.0 * n for n in RANKS}, even=1.2))
    assert {bad[name].verdict for name in ("better_than_known", "no_expert", "coarse_naive", "coarse_layers")} == {DIFFERS}
    assert bad["coarse_volumes"].verdict == DIFFERS
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
    tables["5.13"][0] = {"elements": 93 * 10**6 // 4, "parameters": 1}
    found = claims.of_network(tables)
    assert found["parameters"].verdict == DIFFERS and found["image_memory"].verdict == HOLDS
