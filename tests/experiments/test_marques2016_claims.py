"""The claims of Marques 2016: each has a verdict, which made-up measurements turn both ways; and the study of unequal ranks."""

import json
from pathlib import Path

import pytest

from gridgrad.experiments.papers.cited import published
from gridgrad.experiments.papers.claims import CONTRADICTORY, DIFFERS, HOLDS, OPEN
from gridgrad.experiments.papers.items import ALONE, BESIDE, KEPT, MEASURED, PREDICTED
from gridgrad.experiments.papers.marques2016 import appendix, claims_text
from gridgrad.experiments.papers.marques2016 import claims as marques2016_claims
from gridgrad.experiments.papers.marques2016 import experiments as marques2016
from gridgrad.experiments.papers.marques2016 import items as marques2016_items
from gridgrad.experiments.papers.marques2016 import unequal as marques2016_unequal
from gridgrad.experiments.papers.marques2016.runs import BATCH_SIZES, NETWORKS, PARTS, WITH_MASTER, MarquesRun
from gridgrad.experiments.papers.marques2016.scaling import EQUATIONS
from gridgrad.experiments.papers.marques2016.unequal import ALONE as FIRST
from gridgrad.experiments.papers.marques2016.unequal import SLOWER, has_proportion, read, rows
from tests.experiments.test_marques2016 import measured

VERSIONS = {"processor": "a machine", "mpi": "an MPI", "threads": 1}


def verdicts(tables):
    return {claim.name: claim.verdict for claim in marques2016_claims.claims(tables)}


def unequal(slow, samples=(0.0, 4.0, 2.0), proportion=(2.0, 4.0, 2.0)):
    """What the study has found, if both take so many seconds of PARTS in the settings at 5 MB/s; the first alone takes 10."""
    seconds = {FIRST: (0.0, 8.0, 2.0), "memory": (0.5, 2.5, 1.5), "slow": slow, "samples": samples,
               SLOWER: (0.0, 8.0, 2.0), "proportion": proportion}  # fmt: skip
    found = []
    for network in NETWORKS:
        for name, parts in seconds.items():
            if name in (SLOWER, "proportion") and not has_proportion(network):
                continue
            for one in range(2):
                about = {"network": network, "setting": name, "round": one, "speeds": [1.0, 1.6], "bytes": 1 << 20}
                found.append(about | dict(zip(PARTS, ([value] for value in parts), strict=True)) | {"versions": VERSIONS})
    return {"factor": 1.6, "batch_size": 64, "runs": found}


@pytest.fixture
def nothing_kept(monkeypatch, tmp_path):
    """No results of other programs."""
    monkeypatch.setattr(marques2016_unequal, "kept", lambda: (None, "there is no file"))
    monkeypatch.setattr(marques2016_claims, "UNEQUAL", tmp_path / "none.json")
    monkeypatch.setattr(marques2016_claims, "TRAINED", (tmp_path / "1.json", tmp_path / "2.json"))
    return tmp_path


def test_without_a_measurement_no_claim_of_times_is_decided(nothing_kept):
    claims = marques2016_claims.claims(marques2016.tables())
    assert {claim.name for claim in claims} == set(published("marques2016").claims) and len(claims) > 40
    assert all(claim.finding.reason for claim in claims if claim.verdict == OPEN)
    assert not [claim.name for claim in claims if claim.finding.kind == MEASURED and claim.finding.numbers]
    found = {claim.name: claim.verdict for claim in claims}
    assert found["always a speedup"] == found["no loss of accuracy"] == found["best on GPUs"] == OPEN
    assert (
        found["scalable"] == DIFFERS and found["weights"] == found["25 % become 56 %"] == found["two devices reach 2"] == HOLDS
    )
    assert {name for name, verdict in found.items() if verdict == CONTRADICTORY} == {
        "one speedup of 50:500", "one speedup of 150:800", "one speedup of 500:1500", "6.70 and 7.76", "speedups of GPUs agree",
        "Table 5.3 is of one network", "phones take 15 times as long", "energy is power times time",
    }  # fmt: skip


def test_what_one_form_of_the_equation_says_alone_is_open(nothing_kept, monkeypatch):
    """Claims of section 5.5: the equation as printed, and as the algorithm sends."""
    claims = {claim.name: claim for claim in marques2016_claims.claims(marques2016.tables())}
    names = "low and high-end devices", "GPUs on a slow network", "mobile GPUs", "a faster network helps"
    for finding in [claims[name].finding for name in (*names, "high-end devices need fewer nodes")]:
        assert all(f"by equation {equation}" in finding.numbers for equation in EQUATIONS)
    assert [claims[name].verdict for name in names] == [HOLDS] * 4
    assert claims["high-end devices need fewer nodes"].verdict == HOLDS
    monkeypatch.setattr(claims_text.scaling, "of_rates", lambda equation: {"a figure": (equation, 32)})
    for told, verdict in ((EQUATIONS, HOLDS), ((), DIFFERS), (EQUATIONS[:1], OPEN), (EQUATIONS[1:], OPEN)):
        finding = claims_text.by_both(lambda figures, told=told: (figures["a figure"] in told, "numbers"), "why")
        assert (finding.verdict, finding.kind) == (verdict, PREDICTED) and finding.reason.endswith("why")


def test_measured_steps_turn_the_verdicts(nothing_kept):
    fast, slow = (verdicts(marques2016.tables(measured(faster=factor))) for factor in (1.0, 0.5))
    assert fast["always a speedup"] == HOLDS and slow["always a speedup"] == DIFFERS  # 10/7 and 5/7 times as fast
    assert fast["convolutions take the time"] == HOLDS
    assert fast["best on CPUs"] == fast["more kernels, more speedup"] == fast["more CPUs help"] == OPEN  # no unequal CPUs
    assert fast["constant computation"] == HOLDS and slow["constant computation"] == DIFFERS
    assert fast["batch size and the largest network"] == DIFFERS
    assert fast["batch size and the smallest network"] == OPEN  # large batches have too few rounds
    assert fast["equation 5.1"] == DIFFERS  # the bytes are made up
    short = verdicts(marques2016.tables(measured(sizes=(64,))))
    assert short["more kernels, more speedup"] == short["batch size and the smallest network"] == OPEN
    assert short["always a speedup"] == HOLDS
    equal = measured()
    for network in NETWORKS:  # all but convolutions takes 25 % at batch 64, and less with larger batches
        for size in BATCH_SIZES:
            for run in equal["runs"][MarquesRun(network, size).key]:
                run["computation"] = [8 / 3 if size == 64 else 1.0]
    found = verdicts(marques2016.tables(equal))
    assert found["computation becomes the bottleneck"] == found["batch size and the largest network"] == HOLDS


def test_several_rounds_turn_the_verdicts_on_batch_sizes(nothing_kept):
    """What differs by more than its rounds do is decided, and nothing else."""
    names = [f"batch size and the {words}" for words in ("smallest network", "next networks", "parts of a step")]
    for factors, verdict in (((1, 1, 1), HOLDS), ((2, 2, 2), DIFFERS), ((2, 1, 0.9), OPEN)):
        content = measured(rounds=3, of_large=3)
        for network in NETWORKS:
            for run, factor in zip(content["runs"][MarquesRun(network, 1024, 2, WITH_MASTER).key], factors, strict=True):
                run["convolution"] = [4.0 * factor]
        found = verdicts(marques2016.tables(content))
        assert [found[name] for name in names] == [verdict] * 3, factors


def test_the_best_counts_sizes_of_several_rounds_alone(nothing_kept):
    content = measured(rounds=3)
    for network in NETWORKS:  # a lucky one
        content["runs"][MarquesRun(network, 512, 2, WITH_MASTER).key][0]["convolution"] = [0.1]
    claims = {claim.name: claim for claim in marques2016_claims.claims(marques2016.tables(content))}
    finding = claims["more kernels, more speedup"].finding
    assert (finding.verdict, finding.kind) == (OPEN, MEASURED) and finding.numbers.startswith(
        "1.43, 1.43, 1.43, 1.43 on two equal"
    )
    assert claims["best on CPUs"].finding.numbers.endswith("batch 64") and claims["more CPUs help"].verdict == OPEN


@pytest.mark.parametrize(("speeds", "verdict"), [((1, 2, 3, 4), HOLDS), ((4, 2, 3, 1), DIFFERS), ((1, 1, 1, 1), OPEN)])
def test_more_kernels_gain_more_where_they_do(nothing_kept, monkeypatch, speeds, verdict):
    content = unequal((90.0, 4.0, 2.0))
    for run in content["runs"]:
        if run["setting"] == "slow":
            run["communication"] = [90.0 / speeds[NETWORKS.index(run["network"])]]
    monkeypatch.setattr(marques2016_unequal, "kept", lambda: (content, ""))
    found = verdicts(marques2016.tables())
    assert found["more kernels, more speedup"] == found["communication falls with kernels"] == verdict


@pytest.mark.parametrize(("slow", "verdict"), [((1.0, 4.0, 2.0), HOLDS), ((90.0, 4.0, 2.0), DIFFERS)])
def test_a_slow_network_turns_the_verdicts(nothing_kept, monkeypatch, slow, verdict):
    monkeypatch.setattr(marques2016_unequal, "kept", lambda: (unequal(slow, samples=(3.0, 4.0, 2.0)), ""))
    claims = {claim.name: claim for claim in marques2016_claims.claims(marques2016.tables(measured()))}
    best = claims["best technique for unequal devices"].finding  # nor is that of data parallelism
    assert (best.verdict, best.kind) == (OPEN, KEPT) and "was not measured in the thesis' proportion" in best.reason
    assert best.numbers.endswith("data parallel 1.11 to 1.11")
    assert claims["always a speedup"].verdict == (HOLDS if verdict == HOLDS else OPEN)  # there is one in memory
    small = claims["smallest network is bound by communication"].finding  # neither setting is that of the thesis
    assert small.numbers.startswith("14 % of a step at" if verdict == HOLDS else "94 % of a step at")
    assert small.verdict == OPEN and "25 % of a step in the thesis' proportion" in small.numbers
    assert claims["a faster network helps"].verdict == HOLDS
    finding = claims["not bound by communication"].finding  # a core of today is too fast for this network
    assert (finding.verdict, finding.kind) == (OPEN, KEPT)
    assert finding.numbers.startswith("at 5 MB/s 14 %" if verdict == HOLDS else "at 5 MB/s 94 %")
    assert finding.numbers.endswith("in the thesis' proportion 50:500 25 %, 150:800 25 %")
    assert str(marques2016_unequal.FILE) in finding.reason and "a machine" in finding.reason


def test_damaged_results_decide_nothing(nothing_kept, monkeypatch):
    """Of other programs; the claims and items say why."""
    file = nothing_kept / "damaged.json"
    for module, name in (
        (marques2016_claims, "UNEQUAL"), (claims_text, "ROOFLINE"), (appendix, "AUTOENCODER"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, file)
    monkeypatch.setattr(marques2016_claims, "TRAINED", (file, file))
    monkeypatch.setattr(appendix, "FILE", file)
    for text in ("{", "[]", "[1]", '{"points": [{}]}', '[{"net": "marques-50-500", "rounds": []}]'):
        file.write_text(text)
        claims = {claim.name: claim for claim in marques2016_claims.claims(marques2016.tables())}
        for name in ("even shares wait", "no loss of accuracy", "bound by memory", "error of the autoencoder"):
            assert claims[name].verdict == OPEN and not claims[name].finding.numbers, (text, name)
        items = {item.name: item for item in marques2016_items.items(marques2016.tables())}
        assert "damaged.json" in items["Figures 5.17 and 5.18"].reason and "damaged.json" in items["Appendix A: error"].reason


def test_results_of_other_programs_turn_the_verdicts(nothing_kept, monkeypatch):
    files = [nothing_kept / f"{ranks}.json" for ranks in (1, 2)]
    for accuracy, verdict in ((45.2, HOLDS), (30.0, DIFFERS)):
        for file, value in zip(files, (45.0, accuracy), strict=True):
            file.write_text(json.dumps({"test_accuracy": value, "versions": VERSIONS}))
        assert verdicts(marques2016.tables())["no loss of accuracy"] == verdict
    files[1].write_text(json.dumps({"test_accuracy": 45.0, "versions": VERSIONS | {"processor": "another"}}))
    assert verdicts(marques2016.tables())["no loss of accuracy"] == OPEN
    for even, verdict in ((1.5, HOLDS), (0.9, DIFFERS)):
        one = {"net": "marques-50-500", "grid": "batch=2", "rounds": [{"even": even, "constant": 1.0}], "versions": VERSIONS}
        marques2016_claims.UNEQUAL.write_text(json.dumps([one]))
        assert verdicts(marques2016.tables())["even shares wait"] == verdict


def test_unequal_ranks_stand_beside_what_is_printed(monkeypatch):
    monkeypatch.setattr(marques2016_unequal, "kept", lambda: (unequal((90.0, 4.0, 2.0)), ""))
    found = {item.name: item for item in marques2016_items.items(marques2016.tables())}["Figure 5.1, as written"]
    rows = {row.label: row for row in found.rows}
    assert found.status == BESIDE and found.processor.startswith("a machine") and found.elsewhere
    row = rows["50:500: speedup at 5 MB/s"]
    assert (row.cited.value, row.measured) == (1.20, pytest.approx(10 / 96)) and row.remark.startswith("2 rounds")
    assert rows["50:500: communication at 5 MB/s, %"].measured == pytest.approx(9000 / 96)
    assert rows["50:500: speedup at 5 MB/s, data parallel"].cited is None  # the thesis has no data parallelism
    assert "50:500: communication at 5 MB/s, data parallel, %" not in rows
    assert rows["500:1500: speedup in memory"].cited is None  # not printed of 2 CPUs at batch 64
    assert "500:1500: speedup in the thesis' proportion" not in rows
    monkeypatch.setattr(marques2016_unequal, "kept", lambda: (None, "there is no file"))
    empty = {item.name: item for item in marques2016_items.items(marques2016.tables())}["Figure 5.1, as written"]
    assert empty.status not in (ALONE, BESIDE) and [row.cited.value for row in empty.rows] == [1.20, 1.67, 1.61]


def test_a_file_of_unequal_ranks_is_read_or_refused(tmp_path, monkeypatch):
    file = tmp_path / "unequal.json"
    monkeypatch.setattr(marques2016_unequal, "FILE", file)
    assert read(file) is None and rows(None) == []
    file.write_text(json.dumps(unequal((1.0, 2.0, 3.0))))
    assert len(rows(read(file))) == 3 * len(NETWORKS) + 2
    mixed = unequal((1.0, 2.0, 3.0))
    mixed["runs"][-1]["versions"] = VERSIONS | {"processor": "another"}
    for content, words in ((mixed, "another"), ({"runs": []}, "does not hold"), ([], "unequal ranks")):
        file.write_text(json.dumps(content))
        with pytest.raises(ValueError, match=words):
            read(file)
        found, why = marques2016_unequal.kept()
        assert found is None and str(file) in why
        claims = {claim.name: claim for claim in marques2016_claims.claims(marques2016.tables())}
        assert (
            claims["not bound by communication"].verdict == OPEN and why in claims["not bound by communication"].finding.reason
        )


def test_kept_tables_load_and_decide_claims():
    tables = marques2016.tables(json.loads(Path("results/marques2016/tables.json").read_text()))
    found = verdicts(tables)
    assert found["constant computation"] == HOLDS and found["best on CPUs"] == OPEN
    assert len([item for item in marques2016_items.items(tables) if item.status == BESIDE]) >= 5
