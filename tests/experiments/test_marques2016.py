"""`reproduce marques2016`: what follows from the text of the paper, the job that splits a step, and what decides claims."""

import json

import pytest

from gridgrad.experiments.papers import marques2016, paper
from gridgrad.experiments.papers import marques2016_scaling as scaling
from gridgrad.experiments.papers.claims import DIFFERS, HOLDS, OPEN
from gridgrad.experiments.papers.marques2016_runs import BATCH_SIZES, MASTERLESS, NETWORKS, PARTS, WITH_MASTER, MarquesRun
from gridgrad.experiments.papers.marques2016_scaling import EQUATIONS, SUMMED, derived, sent
from gridgrad.experiments.papers.marques2016_scaling import PRINTED as AS_PRINTED
from tests.experiments.programs import job

PAPER, LARGEST = paper.paper_of("marques2016"), "CPUs, largest network"


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


def test_many_nodes_lose_where_each_is_sent_the_input():
    as_printed, summed = (derived(equation)[LARGEST] for equation in EQUATIONS)
    assert as_printed.speedup(32) > as_printed.speedup(8) > as_printed.speedup(4)
    assert summed.speedup(32) < summed.speedup(8)
    assert scaling.of_rates(SUMMED)["5.13a low and mid range CPUs"][0][5].speedup(32) == summed.speedup(32)
    slow, *_, fast = (row for row in scaling.rate_rows() if row["nodes"] == 32)
    assert slow["1 MiB/s"] < slow["1250 MiB/s"] < slow["limit"] and fast["limit"] == pytest.approx(2.15)


def test_tables_of_a_measurement():
    tables = marques2016.tables(measured())
    rows = {(r["network"], r["batch"], r["ranks"], r["form"]): r for r in tables["split"]}
    assert len(rows) == len(NETWORKS) * len(BATCH_SIZES) * 7
    two, four = rows["50:500", 64, 2, WITH_MASTER], rows["50:500", 64, 4, WITH_MASTER]
    assert (two["how"], two["speedup"], two["step, s"]) == ("measured", pytest.approx(10 / 7), pytest.approx(7))
    assert four["how"] == "predicted" and four["convolution, s"] == pytest.approx(2, rel=0.05)
    assert four["communication, s"] > two["communication, s"]
    best = tables["5.1"][0]
    assert best["published"] == 1.40 and best[f"{WITH_MASTER}, measured"] == pytest.approx(10 / 7)
    assert best[f"{WITH_MASTER}, best at"] == "batch 64, 2 rounds" and best[f"{WITH_MASTER}, predicted"] is None
    failed = measured()
    key = MarquesRun("50:500", 64, 2, WITH_MASTER).key
    failed["runs"][key] = failed["runs"][key][1:]  # a round that failed shifts no ratio
    assert marques2016.tables(failed)["split"][1]["speedup"] == pytest.approx(10 / 7)


@pytest.fixture
def nothing_kept(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def verdicts(tables):
    return {claim.name: claim.verdict for claim in PAPER.claims(tables)}


def test_measured_steps_turn_the_verdicts(nothing_kept):
    found = verdicts(marques2016.tables(measured(rounds=3, of_large=3)))
    held = "always a speedup", "constant computation", "convolutions take the time", "batch size and the smallest network"
    assert {found[name] for name in (*held, "batch size and the parts of a step")} == {HOLDS}
    assert found["batch size and the largest network"] == DIFFERS and found["equation 5.1"] == DIFFERS  # bytes are made up
    slow = verdicts(marques2016.tables(measured(faster=0.5, rounds=3, of_large=3)))
    assert (slow["always a speedup"], slow["constant computation"]) == (DIFFERS, DIFFERS)
    nothing = verdicts(marques2016.tables())
    assert {nothing[name] for name in ("always a speedup", "a faster network helps", "no loss of accuracy")} == {OPEN}
    assert {nothing[name] for name in ("mobile GPUs", "weights")} == {HOLDS} and nothing["scalable"] == DIFFERS
    assert len(PAPER.items(marques2016.tables())) == 20


@pytest.mark.parametrize("slow, verdict", [((0.1, 0.2, 0.4, 0.8), HOLDS), ((0.8, 0.4, 0.2, 0.1), DIFFERS), ((0.4,) * 4, OPEN)])
def test_unequal_ranks_turn_the_verdict(nothing_kept, tmp_path, slow, verdict):
    runs = []
    for network, speed in zip(NETWORKS, slow, strict=True):
        for setting, factor in (("alone", 1.0), ("slow", speed)):
            runs.append(printed([s / factor for s in (1.0, 8.0, 1.0)]) | {"network": network, "setting": setting})
    (tmp_path / "results/marques2016").mkdir(parents=True)
    (tmp_path / "results/marques2016/unequal.json").write_text(json.dumps({"runs": runs, "factor": 1.6, "batch_size": 64}))
    assert verdicts(marques2016.tables())["more kernels, more speedup"] == verdict
    (item,) = (one for one in PAPER.items(marques2016.tables()) if one.name == "Figure 5.1, as written")
    assert [row.measured for row in item.rows[:4]] == pytest.approx(slow) and item.rows[0].cited.value == 1.20


def test_an_epoch_is_timed():
    finished = job(1, "gridgrad.experiments.papers.marques2016_epochs", "--width", 20, "--steps", 2)
    row = marques2016.epoch_row(json.loads(finished.stdout.splitlines()[-1]))
    assert row["network"] == "784-20-250-10" and row["epoch, s"] > 0 and marques2016.seconds_of("1h51m24s") == 6684


def test_a_step_is_split_and_what_does_not_fit_is_refused():
    result = MarquesRun("50:500", 4, 2, WITH_MASTER).start(0)
    assert all(len(result[part]) == 1 and result[part][0] > 0 for part in PARTS)
    assert result["bytes"] == pytest.approx(marques2016.equation("50:500", 4, 2) * 2**20, abs=100)
    finished = job(1, "gridgrad.experiments.papers.marques2016_job", "--net", "marques-1-2")
    assert finished.status == 2 and finished.stderr.count("\n") == 1, finished.stderr
