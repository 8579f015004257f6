"""`reproduce eserol2019`: units, counts, costs against the hypergraph, run times by hand, and what tables say with no, few and
all partitions."""

import json
from pathlib import Path

import numpy as np
import pytest

from gridgrad.experiments.papers import eserol2019
from gridgrad.experiments.papers import eserol2019_partitions as vgg16
from gridgrad.experiments.papers import eserol2019_times as times
from gridgrad.experiments.papers.claims import HOLDS, OPEN
from gridgrad.experiments.papers.eserol2019_partitions import SearchCase, costs_of
from gridgrad.experiments.papers.eserol2019_times import FILTERS, HYPERGRAPH, LAYERS, OWN
from gridgrad.experiments.papers.items import BESIDE, FORESEEN, MISSING
from gridgrad.experiments.papers.paper import paper_of
from gridgrad.experiments.papers.parts import SHORT, USUAL
from gridgrad.parallel.job.run import UserError
from gridgrad.parallel.partitioning.network_hypergraph import measure

PAPER, KEPT = paper_of("eserol2019"), json.loads(Path("results/eserol2019/tables.json").read_text())


@pytest.fixture(scope="module")
def kept():
    """Two coarse partitions and an exact one."""
    return [vgg16.search(case) for case in (SearchCase("coarse", 2), SearchCase("exact", 2), SearchCase("coarse", 2, 1.03))]


def verdicts(tables):
    return {claim.name: claim.verdict for claim in PAPER.claims(tables)}


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_counts_cost_the_same_as_the_hypergraph_says(ranks):
    chain, random = vgg16.chain_of_layers(), np.random.default_rng(ranks)
    counts = np.array([random.multinomial(filters, np.ones(ranks) / ranks) for filters in chain.filters])
    counts[0] = np.eye(ranks, dtype=int)[np.flatnonzero(counts[1])[0]]
    owners, model = vgg16.owners_of_counts(counts), vgg16.model()
    costs, measured = costs_of(owners, "coarse"), measure(model, model.parts(owners), ranks)
    assert costs.volume == pytest.approx(chain.volume(counts)) == vgg16.melements(measured.volume)
    assert costs.loads == pytest.approx(chain.loads(counts), rel=1e-4)
    assert costs.star == pytest.approx(vgg16.melements(measured.star)) and costs.messages == measured.messages


def test_sizes_and_sums_of_vgg16():
    sample, coarse, fine = eserol2019.hypergraph_rows()
    assert (sample["vertices"], sample["nets"], sample["pins"]) == (13, 12, 38)  # printed
    assert (coarse["vertices"], coarse["nets"], fine["vertices"], fine["nets"]) == (4228, 4227, 1638726, 8453)
    *layers, total = eserol2019.layer_rows()
    printed = eserol2019.lines_of("5.13")
    assert [row["output size"] for row in layers] == [line["output size"] for line in printed]
    assert [row["parameters"] for row in layers] == [line["parameters"] for line in printed]
    assert (total["parameters"], 4 * total["elements"] / 1e6) == (138357544, pytest.approx(60.95, abs=0.01))
    assert eserol2019.loads()[0]["round-robin"] == pytest.approx(2, rel=1e-3)  # all weights at one of two servers
    found = eserol2019.columns()
    assert found["looked"] > 300 and ("5.1", 51308, 45514) in [
        (one["table"], one["printed"], one["follows"]) for one in found["wrong"]
    ]


def test_run_times_follow_from_printed_numbers():
    assert times.alone(512) == pytest.approx(24.21)
    assert times.rate(16) == pytest.approx(2 * 527.792 / ((10256 * 2 - 9405) * 16 / 102400))
    by_hand = 4842 / 2 * 22757 / 21500 + 102400 / 32 * 2 * 24.5 * 2**22 / 1.25e9
    assert times.without_overlap(2, LAYERS, 512) == pytest.approx(by_hand)
    assert times.of_single(64, times.calibrated(64)) == pytest.approx(times.alone(64), rel=1e-6)
    tables = {"5.15": times.rows({})}
    assert times.won_of(tables, "without overlap", FILTERS) == "12 of 12"
    assert times.won_of(tables, "seconds", LAYERS) == "0 of 0"
    assert {row["method"] for row in tables["5.15"] if row["without overlap"]} == set(OWN)


def test_what_counts_as_faster(monkeypatch, tmp_path):
    assert [times.side(*ratios) for ratios in ((1.03,), (1.01, 1.5), (0.9, 0.97))] == [1, 0, -1]
    assert [times.most(sides) for sides in ([1, 1, 0], [1, 0], [-1, 0, -1], [])] == [True, None, False, None]
    assert times.quartiles_of([1.0, 2.0, 3.0]) == (1.5, 2.0, 2.5)
    monkeypatch.setattr(times, "HOSTS", tmp_path / "hosts.json")
    tables = {"5.15": times.rows({})}
    found = times.mostly(tables, [(HYPERGRAPH, FILTERS)])
    assert (found["holds"], found["kind"]) == (None, "predicted") and "hosts.json" in found["reason"]


def test_what_is_kept_is_not_trusted(kept):
    assert vgg16.owners_of(kept[0] | {"volume": 1.0})[0] == SearchCase("coarse", 2)
    for broken in ({"counts": ["1 2"]}, {"counts": 3}, {"grain": "fine"}):
        with pytest.raises(UserError, match=r"tables\.json: a kept partition is none of VGG16.*without --tables-only"):
            vgg16.owners_of(kept[0] | broken)


def test_a_fine_partition_is_kept_in_blocks():
    pytest.importorskip("mtkahypar")
    kept = json.loads(json.dumps(vgg16.search(SearchCase("fine", 2), blocks=(8,), moves=1000)))
    row = costs_of(vgg16.owners_of(kept)[1], "fine").row
    assert kept["blocks"] == 8 and row["volume, connectivity-1"] <= 15.4 and row["balance"] <= 1.1


def test_all_searches():
    short, usual = ({part.name for part in eserol2019.to_measure(size, None, None)} for size in (SHORT, USUAL))
    assert SearchCase("coarse", 2, 1.03).words in short < usual and SearchCase("coarse", 4, 1.03).words in usual - short
    if any("fine" in name for name in usual):
        assert usual == {vgg16.owners_of(one)[0].words for one in KEPT["partitions"]}


@pytest.mark.long
def test_no_few_and_all_partitions(kept):
    none, few = eserol2019.tables(), eserol2019.tables({"partitions": kept}, batches=(512,))
    items = {item.name: item for item in PAPER.items(none)}
    assert items["Table 5.1"].status == FORESEEN and items["Table 5.2"].status == BESIDE  # simple partitions need no search
    assert items["Table 5.10"].status == items["Table A.4"].status == MISSING
    assert {verdicts(none)[name] for name in ("no_expert", "coarse_volumes", "fine_better", "coarse_naive")} == {OPEN}
    assert few["coarse"]["2"]["volume_melements"] == pytest.approx(15.3125) and few["fine"] == {}
    items = {item.name: item for item in PAPER.items(json.loads(json.dumps(few, allow_nan=False)))}
    assert items["Table A.7"].status == BESIDE and "Some numbers of ranks" in items["Table A.7"].reason
    assert [row.predicted for row in items["Table 5.15"].rows if row.label == "N = 2, Layer-wise: batch 16"] == [None]
    assert verdicts(few)["coarse_volumes"] == OPEN and verdicts(few)["no_expert"] == HOLDS
    tables = eserol2019.tables(KEPT, batches=(512,))
    assert verdicts(tables)["coarse_volumes"] == HOLDS and tables["partitions"] == KEPT["partitions"]
    assert all(tables[grain][n] == pytest.approx(KEPT[grain][n]) for grain in ("coarse", "fine") for n in KEPT[grain])
