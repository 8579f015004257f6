"""The claims of Hegde and Usmani 2016: made-up measurements, and results of other programs, turn the verdicts both ways."""

import json

import pytest

from gridgrad.experiments.papers import hegde2016, hegde2016_claims_5, hegde2016_kept
from gridgrad.experiments.papers import hegde2016_costs as costs
from gridgrad.experiments.papers.claims import DIFFERS, FOLLOWS, HOLDS, OPEN
from gridgrad.experiments.papers.hegde2016_claims import claims
from gridgrad.experiments.papers.items import KEPT, MEASURED, PREDICTED
from tests.experiments.test_hegde2016 import FACTORS, made_up

THREADS = ["1 CPU thread", "2 CPU threads"]
VERSIONS = {"processor": "a processor"}
ALGORITHMS = costs.SHUFFLE, costs.EXCHANGE, costs.PARALLEL, costs.ADMM, costs.DOWNPOUR


def verdicts(measured):
    """{claim: its verdict}."""
    return {claim.name: claim.verdict for claim in claims(hegde2016.tables(measured))}


def scaled(measured, factor):
    """The measurement with seconds times factor(device, size)."""
    for row in measured["convolution"] + measured["dense"]:
        row["seconds"] = [seconds * factor(row["device"], row.get("n") or row["batch"]) for seconds in row["seconds"]]
    return measured


def test_devices_that_follow_the_paper():
    found = verdicts(made_up(FACTORS))
    for name in ("linear_cpu", "linear_gpu", "gpu_convolution", "gpu_dense", "quadratic", "larger_batches"):
        assert found[name] == HOLDS, name  # small batches take a millisecond more
    assert found["batch_speedup"] == found["size_speedup"] == DIFFERS  # they are the same at all sizes


def test_devices_that_do_not():
    slower = verdicts(scaled(made_up(FACTORS), lambda device, size: 3 if device.startswith("GPU") else 1))
    assert slower["gpu_convolution"] == slower["gpu_dense"] == DIFFERS and slower["linear_gpu"] == HOLDS
    bent = verdicts(scaled(made_up(FACTORS), lambda device, size: size))
    assert bent["linear_cpu"] == bent["linear_gpu"] == bent["quadratic"] == bent["larger_batches"] == DIFFERS
    growing = verdicts(scaled(made_up(FACTORS), lambda device, size: 1 / size if device.startswith("GPU") else 1))
    assert growing["batch_speedup"] == growing["size_speedup"] == HOLDS


def test_threads_stand_for_a_gpu_that_is_not_there():
    tables = hegde2016.tables(made_up(THREADS))
    found = {claim.name: claim for claim in claims(tables)}
    assert found["batch_speedup"].verdict == DIFFERS and "a GPU gains was not measured" in found["batch_speedup"].finding.reason
    assert {found[name].verdict for name in ("linear_gpu", "gpu_convolution", "gpu_dense")} == {OPEN}
    assert found["slopes"].verdict == OPEN and "1 CPU thread: 6.45 ms an image" in found["slopes"].finding.numbers
    assert found["cores"].verdict == HOLDS  # two threads are twice as fast
    halves = scaled(made_up(THREADS), lambda device, size: 1.5 if device.startswith("2") else 1)
    assert verdicts(halves)["cores"] == DIFFERS
    alone = verdicts(made_up(["1 CPU thread"]))
    assert alone["batch_speedup"] == alone["cores"] == OPEN


def test_a_gpu_counts_where_there_is_one():
    measured = scaled(made_up(FACTORS), lambda device, size: 1 / size if device.startswith("2") else 1)
    assert verdicts(measured)["batch_speedup"] == DIFFERS  # although that of the threads grows


def counted(change=lambda name, k, bytes: bytes, operations=lambda name, k, number: number):
    """What jobs would count, as predicted, but for changes."""
    found = []
    for name in ALGORITHMS:
        for k in costs.WORKERS:
            total, most, messages, work = costs.predicted(name, k)
            row = {"algorithm": name, "k": k, "bytes": change(name, k, total), "most_bytes": change(name, k, most)}
            row |= {"most_messages": messages}
            found.append(
                row if name in (costs.SHUFFLE, costs.EXCHANGE) else row | {"most_operations": operations(name, k, work)}
            )
    return found


def findings_5(rows):
    """The findings of section 5 on what was counted."""
    return hegde2016_claims_5.findings({"costs": costs.rows(rows), "computations": costs.computations(rows)})


def test_orders_of_magnitude():
    names = "shuffle_bytes", "parallel_sgd_bytes", "admm_bytes", "downpour_bytes", "exchange", "parallel_sgd_time", "admm_time"
    found = findings_5(counted())
    assert {found[name].verdict for name in (*names, "parallel_sgd_computation", "admm_computation")} == {HOLDS}
    assert {found[name].kind for name in names} == {MEASURED}
    assert {findings_5([])[name].kind for name in names} == {PREDICTED}
    wrong = findings_5(counted(lambda name, k, bytes: bytes * k**2, lambda name, k, number: number * k**2))
    assert {wrong[name].verdict for name in (*names, "parallel_sgd_computation", "admm_computation")} == {DIFFERS}


def test_one_algorithm_beside_another():
    found = findings_5(counted())
    assert found["admm_avoids"].verdict == found["downpour_computation"].verdict == DIFFERS
    assert found["parallel_sgd_total"].verdict == DIFFERS and found["same_gradients"].verdict == HOLDS
    less = findings_5(counted(lambda name, k, bytes: bytes / 1000 if name == costs.ADMM else bytes))
    assert less["admm_avoids"].verdict == HOLDS
    more = findings_5(counted(lambda name, k, bytes: bytes * 10 if name == costs.PARALLEL else bytes))
    assert more["parallel_sgd_total"].verdict == HOLDS
    alike = findings_5(counted(operations=lambda name, k, number: 1e6))
    assert alike["downpour_computation"].verdict == HOLDS


def test_what_the_text_decides():
    found = findings_5([])
    assert {found[name].verdict for name in ("merge_work", "aggregate", "sgd_iterations", "depth_of_sums")} == {DIFFERS}
    assert hegde2016_claims_5.both_lines(8) == (12, 7) and "12 d/B, that on the right 7" in found["aggregate"].numbers
    assert hegde2016_claims_5.both_lines(2) == (1, 1)
    assert found["distribution_is_cheap"].verdict == HOLDS and found["distribution_is_cheap"].kind == PREDICTED
    assert found["merge_work"].kind == FOLLOWS


def test_comparisons_of_a_merge():
    assert hegde2016_claims_5.comparisons(1, 9) == 0
    assert hegde2016_claims_5.comparisons(2, 9) <= 17 < hegde2016_claims_5.comparisons(4, 9)


def run(protocol, seconds, score=90.0, straggler=1.0, bytes=1.0):
    return {"protocol": protocol, "seconds": seconds, "score": score, "straggler": straggler, "bytes": bytes}


def training(**options):
    """A result of `study protocols` in virtual time."""
    found = {
        "time": "virtual", "dataset": "mnist", "net": "mnist-cnn", "sorted": True, "workers": 4, "epochs": 10, "samples": 12000,
        "straggler": 1.0, "versions": VERSIONS, "seconds": {"compute": 2.0, "update": 2.0}, "parameters": 20,
    }  # fmt: skip
    return found | options


def of_protocols(moved=95.0, shuffled=95.0, time=4.0, shuffle_time=2.1, late=1.2, compute=4.0):
    """Results of `study protocols`: times of two networks, training on sorted samples, and jobs with a straggler.

    late: how many times as long a step with an asynchronous server takes with a straggler. compute: the seconds of a minibatch
    of a network with twice as many parameters as that for which they are 2.
    """
    runs = [
        run("sync", 5.0, 96.0), run("parallel-sgd", 2.0, 60.0), run("parallel-sgd:epoch", 2.0, 77.0),
        run("parallel-sgd:exchange", time, moved), run("parallel-sgd:shuffle", shuffle_time, shuffled, bytes=9.0),
    ]  # fmt: skip
    slower = {"sync": 4.0, "server:asp": late, "downpour:4:4": late}
    jobs = [run(name, {"median": factor if is_slow else 1.0}, straggler=4.0 if is_slow else 1.0)
            for name, factor in slower.items() for is_slow in (False, True)]  # fmt: skip
    return [
        training(runs=[], sorted=False, parameters=20, seconds={"compute": compute, "update": 4.0}),
        training(runs=[], sorted=False, parameters=10, seconds={"compute": 2.0, "update": 2.0}, net="cifar-cnn,dropout=0"),
        training(runs=runs),
        training(runs=jobs, sorted=False, time="on this machine", straggler=4.0, workers=2, seconds=None),
    ]


def of_servers(*rates):
    """A result of `study servers`, with T = 2 tau and tau = 5 ms. rates: the updates a second of 1, 2, .. workers."""
    rows = [{"workers": k, "measured": rate, "predicted": rate, "least": rate, "most": rate} for k, rate in enumerate(rates, 1)]
    return [{"part": "limit", "link": "", "compute": 0.01, "tau": 0.005, "versions": VERSIONS, "rows": rows}]


def of_convergence(**seconds):
    """A result of `study convergence`."""
    found = {"serial": 80.0, "batch=2": 50.0, "stage=2, 1f1b": 90.0, "stage=2, async:2": 60.0} | seconds
    ways = [{"way": way, "seconds": taken} for way, taken in found.items()]
    return [{"dataset": "cifar10", "settings": {"target": 65.0}, "versions": VERSIONS, "ways": ways}]


def of_crossover(batch, model):
    """A result of `study crossover`: seconds of a step on two grids."""
    rows = [
        {"grid": grid, "batch_size": 16, "seconds": {"median": seconds}}
        for grid, seconds in (("batch=2,model=1", batch), ("batch=1,model=2", model))
    ]
    return {"ranks": 2, "net": "a net", "link": "a link", "versions": VERSIONS, "rows": rows}


def of_bench(ratio):
    """A result of `bench`."""
    return {"versions": VERSIONS, "ratios": {"2 ranks / 2 ranks with nothing to say: a net": {"wall": {"median": ratio}}}}


BOTH = {  # claim: (the program, results with which it holds, results with which it does not)
    "images_at_once": ("bench", of_bench(1.02), of_bench(1.5)),
    "data_parallelism": ("convergence", of_convergence(), of_convergence(serial=40.0)),
    "backpropagation": ("convergence", of_convergence(), of_convergence(**{"stage=2, async:2": 100.0})),
    "model_parallelism": ("crossover", of_crossover(1.0, 1.0), of_crossover(2.0, 1.0)),
    "representative": ("protocols", of_protocols(), of_protocols(shuffled=65.0)),
    "rounds": ("protocols", of_protocols(), of_protocols(moved=70.0)),
    "practical": ("protocols", of_protocols(), of_protocols(time=6.0)),
    "shuffle_bottleneck": ("protocols", of_protocols(shuffle_time=5.0), of_protocols()),
    "no_waiting": ("protocols", of_protocols(), of_protocols(late=4.5)),
    "both_linear": ("protocols", of_protocols(), of_protocols(compute=1.0)),
    "server_rate": ("servers", of_servers(70, 130, 190, 195), of_servers(70, 130, 190, 300)),
    "server_workers": ("servers", of_servers(95, 195, 195, 195), of_servers(70, 110, 165, 195)),
}


@pytest.mark.parametrize("name", BOTH)
def test_results_of_other_programs_decide(name, tmp_path, monkeypatch):
    monkeypatch.setattr(hegde2016_kept, "FOLDER", tmp_path)
    program, holds, differs = BOTH[name]
    assert hegde2016_kept.findings()[name].verdict == OPEN  # there is no file
    for content, verdict in ((holds, HOLDS), (differs, DIFFERS), ([], OPEN), ({"rows": [1]}, OPEN)):
        (tmp_path / f"{program}.json").write_text(json.dumps(content))
        finding = hegde2016_kept.findings()[name]
        assert finding.verdict == verdict, finding
        if verdict != OPEN:
            assert finding.kind == KEPT and f"results/{program}.json, a processor" in finding.numbers
    (tmp_path / f"{program}.json").write_text("{")
    assert hegde2016_kept.findings()[name].verdict == OPEN


def test_every_claim_that_is_kept_is_tried():
    assert set(BOTH) == set(hegde2016_kept.findings())


def test_what_was_not_trained_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(hegde2016_kept, "FOLDER", tmp_path)
    (tmp_path / "protocols.json").write_text(json.dumps([training(runs=[run("sync", 5.0)])]))
    assert "no training on sorted samples of MNIST with all of parallel-sgd" in hegde2016_kept.findings()["rounds"].reason
    assert hegde2016_kept.measured_limit() is None
