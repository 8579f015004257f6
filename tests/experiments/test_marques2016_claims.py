"""The claims of Marques 2016: each has a verdict, which made-up measurements turn both ways; and the study of unequal ranks."""

import json
from pathlib import Path

import pytest

from gridgrad.experiments.papers import marques2016, marques2016_claims, marques2016_items, marques2016_unequal
from gridgrad.experiments.papers.cited import published
from gridgrad.experiments.papers.claims import DIFFERS, HOLDS, OPEN
from gridgrad.experiments.papers.items import ALONE, BESIDE, KEPT, MEASURED
from gridgrad.experiments.papers.marques2016_runs import BATCH_SIZES, NETWORKS, PARTS, WITH_MASTER, Run, launched_by
from gridgrad.experiments.papers.marques2016_unequal import ALONE as FIRST
from gridgrad.experiments.papers.marques2016_unequal import SETTINGS, SLOWER, has_proportion, read, rows
from gridgrad.experiments.studies import laptops
from gridgrad.parallel.job.run import UserError
from tests.experiments.test_marques2016 import measured, printed

VERSIONS = {"processor": "a machine", "mpi": "an MPI", "threads": 1}


def verdicts(tables):
    return {claim.name: claim.verdict for claim in marques2016_claims.claims(tables)}


def unequal(slow, samples=(0.0, 4.0, 2.0), proportion=(2.0, 4.0, 2.0)):
    """What the study has found, if both take so many seconds of PARTS in the settings at 5 MB/s; the first alone takes 10."""
    seconds = {FIRST: (0.0, 8.0, 2.0), "memory": (0.5, 4.0, 1.5), "slow": slow, "samples": samples,
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
    monkeypatch.setattr(marques2016_unequal, "read", lambda: None)
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
    assert found["one speedup of 150:800"] == found["energy is power times time"] == found["scalable"] == DIFFERS
    assert found["weights"] == found["25 % become 56 %"] == HOLDS


def test_measured_steps_turn_the_verdicts(nothing_kept):
    fast, slow = (verdicts(marques2016.tables(measured(faster=factor))) for factor in (1.0, 0.5))
    assert fast["always a speedup"] == HOLDS and slow["always a speedup"] == DIFFERS  # 10/7 and 5/7 times as fast
    assert fast["convolutions take the time"] == HOLDS and fast["best on CPUs"] == DIFFERS
    assert fast["constant computation"] == HOLDS and slow["constant computation"] == DIFFERS
    assert fast["batch size and the largest network"] == DIFFERS
    assert fast["equation 5.1"] == DIFFERS  # the bytes are made up
    short = verdicts(marques2016.tables(measured(sizes=(64,))))
    assert short["more kernels, more speedup"] == short["batch size and the smallest network"] == OPEN
    assert short["always a speedup"] == HOLDS
    equal = measured()
    for network in NETWORKS:  # all but convolutions takes 25 % at batch 64, and less with larger batches
        for size in BATCH_SIZES:
            for run in equal["runs"][Run(network, size).key]:
                run["computation"] = [8 / 3 if size == 64 else 1.0]
    found = verdicts(marques2016.tables(equal))
    assert found["computation becomes the bottleneck"] == found["batch size and the largest network"] == HOLDS


def test_more_kernels_gain_more_where_they_do(nothing_kept):
    rising, falling = (measured() for _ in range(2))
    for number, network in enumerate(NETWORKS):
        for size in BATCH_SIZES:
            for tables, factor in ((rising, 1 - 0.1 * number), (falling, 1 + 0.1 * number)):
                for run in tables["runs"][Run(network, size, 2, WITH_MASTER).key]:
                    run.update({name: [factor * run[name][0]] for name in PARTS})
    found = [verdicts(marques2016.tables(one))["more kernels, more speedup"] for one in (rising, falling)]
    assert found == [HOLDS, DIFFERS]


@pytest.mark.parametrize(("slow", "verdict"), [((1.0, 4.0, 2.0), HOLDS), ((90.0, 4.0, 2.0), DIFFERS)])
def test_a_slow_network_turns_the_verdicts(nothing_kept, monkeypatch, slow, verdict):
    monkeypatch.setattr(marques2016_unequal, "read", lambda: unequal(slow, samples=(3.0, 4.0, 2.0)))
    claims = {claim.name: claim for claim in marques2016_claims.claims(marques2016.tables())}
    assert claims["not bound by communication"].verdict == verdict
    assert claims["best technique for unequal devices"].verdict == verdict
    assert claims["smallest network is bound by communication"].verdict == (DIFFERS if verdict == HOLDS else HOLDS)
    assert claims["a faster network helps"].verdict == HOLDS and claims["not bound by communication"].finding.kind == KEPT
    assert "50:500 1.25 (printed 1.20)" in claims["not bound by communication"].finding.reason


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
    monkeypatch.setattr(marques2016_unequal, "read", lambda: unequal((90.0, 4.0, 2.0)))
    found = {item.name: item for item in marques2016_items.items(marques2016.tables())}["Figure 5.1, as written"]
    rows = {row.label: row for row in found.rows}
    assert found.status == BESIDE and found.processor.startswith("a machine") and found.elsewhere
    row = rows["50:500, at 5 MB/s: speedup"]
    assert (row.cited.value, row.measured) == (1.20, pytest.approx(10 / 96)) and row.remark.startswith("2 rounds")
    assert rows["50:500, at 5 MB/s: communication, %"].measured == pytest.approx(9000 / 96)
    assert rows["50:500, at 5 MB/s, data parallel: speedup"].cited is None  # the thesis has no data parallelism
    assert "50:500, at 5 MB/s, data parallel: communication, %" not in rows
    assert rows["500:1500, in memory: speedup"].cited is None  # not printed of 2 CPUs at batch 64
    assert "500:1500, in the thesis' proportion: speedup" not in rows
    monkeypatch.setattr(marques2016_unequal, "read", lambda: None)
    empty = {item.name: item for item in marques2016_items.items(marques2016.tables())}["Figure 5.1, as written"]
    assert empty.status not in (ALONE, BESIDE) and [row.cited.value for row in empty.rows] == [1.20, 1.67, 1.61]


def test_a_file_of_unequal_ranks_is_read_or_refused(tmp_path):
    file = tmp_path / "unequal.json"
    assert read(file) is None and rows(None) == []
    file.write_text(json.dumps(unequal((1.0, 2.0, 3.0))))
    assert len(rows(read(file))) == 3 * len(NETWORKS) + 2
    mixed = unequal((1.0, 2.0, 3.0))
    mixed["runs"][-1]["versions"] = VERSIONS | {"processor": "another"}
    for content, words in ((mixed, "another"), ({"runs": []}, "no results of gridgrad study laptops"), ([], "laptops")):
        file.write_text(json.dumps(content))
        with pytest.raises(ValueError, match=words):
            read(file)


@pytest.fixture
def recorded(monkeypatch):
    """Runs that are not started: (network, form, words, launcher) of each."""
    seen = []

    def start(run, seconds, words=(), launcher=""):
        seen.append((run.network, run.form, list(words), launcher))
        seconds = (0.0, 0.4, 0.1) if run.ranks == 1 else (0.1, 0.2, 0.1)
        versions = VERSIONS | {"processor": laptops.processor().title}
        return printed(seconds, batch_size=run.batch_size) | {"speeds": [1.0, 1.6], "versions": versions}

    monkeypatch.setattr(Run, "start", start)
    monkeypatch.setattr(laptops.hosts, "check", lambda: None)
    return seen


def test_the_study_slows_ranks_and_the_network(recorded, tmp_path):
    out = tmp_path / "unequal.json"
    words = ["--rounds", "2", "--networks", "50:500,500:1500", "--out", str(out)]
    laptops.main([*words, "--factor", "1.6"])
    by_run = {(network, form, "launch" in launcher, words[-1]) for network, form, words, launcher in recorded}
    assert len(recorded) == 2 * (4 + 2 + 4) and len(by_run) == 10
    for network, form, options, launcher in recorded:
        first = float(options[options.index("--handicap") + 1].split("=")[1].split(",")[0])
        assert first == pytest.approx(1.6) or first > 1.6 and network == "50:500"
        assert ("--by-speed" in options) == bool(form) and ("--first" in options) == ("--rate 45" in launcher)
    (faster,) = {options[-1] for network, form, options, launcher in recorded if "--rate 1000" in launcher}
    ratio = [float(word.split("=")[1]) for word in faster.split(",")]
    assert ratio[0] / ratio[1] == pytest.approx(1.6, rel=1e-4) and ratio[1] > 1
    recorded.clear()
    laptops.main([*words, "--factor", "1.6"])
    assert not recorded  # the report has them
    assert {setting for run in read(out)["runs"] for setting in [run["setting"]]} == {FIRST, SLOWER, *SETTINGS}
    for wrong, advice in ((["--factor", "2"], "another --factor"), (["--settings", "fast"], "name some of")):
        with pytest.raises(UserError, match=advice):
            laptops.main([*words, *wrong])
    with pytest.raises(UserError, match="at batch 64 alone"):
        laptops.main([*words, "--batch-size", "8"])


@pytest.mark.long
def test_the_study_measures_what_shares_the_memory(tmp_path):
    out = tmp_path / "unequal.json"
    laptops.main(["--networks", "50:500", "--batch-size", "2", "--settings", "memory", "--rounds", "1", "--out", str(out)])
    (row,) = rows(read(out))
    assert row["speedup"] > 0 and row["MiB"] > 0 and row["speed of the second"] > 0


def test_another_launcher_is_only_one_for_a_while(monkeypatch):
    import os

    for before in (None, "mpirun"):
        monkeypatch.delenv("MPIEXEC", raising=False) if before is None else monkeypatch.setenv("MPIEXEC", before)
        with launched_by("other -x"):
            assert os.environ["MPIEXEC"] == "other -x"
        assert os.environ.get("MPIEXEC") == before
        with launched_by(""):
            assert os.environ.get("MPIEXEC") == before


def test_kept_tables_load_and_decide_claims():
    tables = marques2016.tables(json.loads(Path("results/marques2016/tables.json").read_text()))
    found = verdicts(tables)
    assert found["always a speedup"] == HOLDS and found["more kernels, more speedup"] in (HOLDS, DIFFERS)
    assert len([item for item in marques2016_items.items(tables) if item.status == BESIDE]) >= 5
