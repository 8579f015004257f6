"""The claims of Hegde and Usmani 2016: made-up measurements, and results of other programs, turn the verdicts both ways."""

import json
from pathlib import Path

import pytest

from gridgrad.experiments.papers.claims import CONTRADICTORY, DIFFERS, FOLLOWS, HOLDS, OPEN
from gridgrad.experiments.papers.hegde2016 import claims_5, costs, kept
from gridgrad.experiments.papers.hegde2016 import experiments as hegde2016
from gridgrad.experiments.papers.hegde2016.claims import claims, cores
from gridgrad.experiments.papers.items import KEPT, MEASURED, PREDICTED
from gridgrad.experiments.papers.page_words import FEW
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
    assert bent["linear_cpu"] == bent["linear_gpu"] == bent["larger_batches"] == DIFFERS
    assert bent["quadratic"] == OPEN  # caches raise the exponent too
    assert verdicts(scaled(made_up(FACTORS), lambda device, size: 1 / size))["quadratic"] == DIFFERS
    growing = verdicts(scaled(made_up(FACTORS), lambda device, size: 1 / size if device.startswith("GPU") else 1))
    assert growing["batch_speedup"] == growing["size_speedup"] == HOLDS


def test_a_line_that_fits_well_is_not_enough_to_be_linear():
    tables = hegde2016.tables(scaled(made_up(THREADS), lambda device, size: size**0.25))
    assert all(row["R2"] > 0.99 for row in tables["convolution_slopes"] if row["R2"])
    found = {claim.name: claim.finding for claim in claims(tables)}["linear_cpu"]
    assert found.verdict == DIFFERS and "takes 1.53 times as long" in found.numbers


def test_threads_do_not_stand_for_a_gpu_that_is_not_there():
    tables = hegde2016.tables(made_up(THREADS))
    found = {claim.name: claim for claim in claims(tables)}
    for name in ("batch_speedup", "size_speedup", "larger_batches", "slopes", "quadratic"):
        assert found[name].verdict == OPEN and found[name].finding.numbers, name
    assert "what threads gain over one does not grow by 5 %" in found["batch_speedup"].finding.reason
    assert "better in 4 of 4 cases" in found["larger_batches"].finding.reason
    assert {found[name].verdict for name in ("linear_gpu", "gpu_convolution", "gpu_dense")} == {OPEN}
    assert "1 CPU thread: 6.45 ms an image" in found["slopes"].finding.numbers
    growing = scaled(made_up(THREADS), lambda device, size: 1 / size if device.startswith("2") else 1)
    found = {claim.name: claim.finding for claim in claims(hegde2016.tables(growing))}
    assert "what threads gain over one grows by 5 %" in found["batch_speedup"].reason
    bent = scaled(made_up(THREADS), lambda device, size: size)
    assert verdicts(bent)["quadratic"] == OPEN  # caches raise the exponent too
    flat = scaled(made_up(THREADS), lambda device, size: 1 / size if device.startswith("2") else 1)
    assert verdicts(flat)["quadratic"] == DIFFERS  # one device is enough for that
    assert verdicts(made_up(["1 CPU thread"]))["batch_speedup"] == OPEN


def test_cores_share_images_or_layers(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "FOLDER", tmp_path)
    tables = hegde2016.tables(made_up(THREADS))
    threads = tables["convolution_speedups"] + tables["dense_speedups"]  # two are twice as fast
    slow = [row | {"speedup": 1.3} for row in threads]
    assert cores(threads, "a processor").verdict == OPEN and "there is no" in cores(threads, "a processor").reason
    for ratio, layers, verdict in (
        (1.05, slow, OPEN), (1.05, [], HOLDS), (1.05, threads, HOLDS), (1.5, threads, OPEN), (1.5, slow, DIFFERS),
    ):  # fmt: skip
        (tmp_path / "bench.json").write_text(json.dumps(of_bench(ratio)))
        finding = cores(layers, "a processor")
        assert (finding.verdict, finding.kind) == (verdict, KEPT) and f"{ratio:.2f} (a net); {tmp_path}" in finding.numbers
        assert ("threads share" in finding.numbers) == bool(layers)
    for wrong in ({}, {"versions": VERSIONS, "ratios": {}}, {"versions": VERSIONS, "ratios": {"2 ranks / 1 rank: a": {}}}):
        (tmp_path / "bench.json").write_text(json.dumps(wrong))
        assert cores(threads, "a processor").verdict == OPEN


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
    return claims_5.findings({"costs": costs.rows(rows), "computations": costs.computations(rows)})


def test_orders_of_magnitude():
    names = "shuffle_bytes", "parallel_sgd_bytes", "admm_bytes", "downpour_bytes", "exchange", "parallel_sgd_time", "admm_time"
    bytes_alone = "shuffle_bytes", "parallel_sgd_bytes", "admm_bytes", "downpour_bytes", "exchange", "parallel_sgd_total"
    found = findings_5(counted())
    assert {found[name].verdict for name in (*names, *bytes_alone, "parallel_sgd_computation", "admm_computation")} == {HOLDS}
    assert {found[name].kind for name in names} == {MEASURED}
    assert {findings_5([])[name].kind for name in names} == {PREDICTED}
    wrong = findings_5(counted(lambda name, k, bytes: bytes * k**2, lambda name, k, number: number * k**2))
    assert {wrong[name].verdict for name in (*names, "parallel_sgd_computation", "admm_computation")} == {DIFFERS}
    root = findings_5(counted(lambda name, k, bytes: bytes * k**0.5))
    assert {root[name].verdict for name in bytes_alone} == {DIFFERS}


def test_one_algorithm_beside_another():
    found = findings_5(counted())
    assert found["admm_avoids"].verdict == found["same_gradients"].verdict == HOLDS
    assert "0 bytes in an epoch" in found["admm_avoids"].numbers and "21.9 to 25.3" in found["admm_avoids"].reason
    assert found["downpour_computation"].verdict == OPEN and "were not counted" in found["downpour_computation"].reason
    samples = findings_5(counted(lambda name, k, bytes: bytes + costs.SAMPLE if name == costs.ADMM else bytes))
    assert samples["admm_avoids"].verdict == DIFFERS
    alike = findings_5(counted(operations=lambda name, k, number: 1e6))
    assert alike["downpour_computation"].verdict == HOLDS


def test_what_the_text_decides():
    found = findings_5([])
    assert {found[name].verdict for name in ("merge_work", "aggregate", "sgd_iterations")} == {DIFFERS}
    assert found["depth_of_sums"].verdict == HOLDS
    assert claims_5.both_lines(8) == (12, 7) and "12 d/B, that on the right 7" in found["aggregate"].numbers
    assert claims_5.both_lines(2) == (1, 1)
    assert found["distribution_is_cheap"].verdict == HOLDS and found["distribution_is_cheap"].kind == PREDICTED
    assert found["merge_work"].kind == FOLLOWS
    verdict = verdicts({})
    assert verdict["captions"] == verdict["matrix_of_kernels"] == CONTRADICTORY


def test_the_numbers_and_reasons_of_main_claims_are_short():
    tables = hegde2016.tables(json.loads((Path(__file__).parents[2] / "results/hegde2016/tables.json").read_text()))
    for claim in claims(tables):
        if claim.main:
            assert max(len(claim.finding.numbers), len(claim.finding.reason)) <= FEW, claim.finding


def test_comparisons_of_a_merge():
    assert claims_5.comparisons(1, 9) == 0
    assert claims_5.comparisons(2, 9) <= 17 < claims_5.comparisons(4, 9)


def run(protocol, seconds, score=90.0, straggler=1.0, bytes=1.0):
    return {"protocol": protocol, "seconds": seconds, "score": score, "straggler": straggler, "bytes": bytes}


def training(**options):
    """A result of `study protocols` in virtual time."""
    found = {
        "time": "virtual", "dataset": "mnist", "net": "mnist-cnn", "sorted": True, "workers": 4, "epochs": 10, "samples": 12000,
        "straggler": 1.0, "versions": VERSIONS, "seconds": {"compute": 2.0, "update": 2.0}, "parameters": 20,
        "settings": {"rate": 1000.0},
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
    """A result of results/servers.json, with T = 2 tau and tau = 5 ms. rates: the updates a second of 1, 2, .. workers."""
    rows = [{"workers": k, "measured": rate, "predicted": rate, "least": rate, "most": rate} for k, rate in enumerate(rates, 1)]
    return [{"part": "limit", "link": "", "compute": 0.01, "tau": 0.005, "versions": VERSIONS, "rows": rows}]


def of_convergence(**seconds):
    """A result of `study convergence`."""
    found = {"serial": 80.0, "batch=2": 50.0, "stage=2, 1f1b": 90.0, "stage=2, async:2": 60.0} | seconds
    ways = [{"way": way, "seconds": taken} for way, taken in found.items()]
    return [{"dataset": "cifar10", "settings": {"target": 65.0}, "versions": VERSIONS, "ways": ways}]


def of_crossover(batch, model):
    """A result of results/crossover.json: seconds of a step on two grids."""
    rows = [
        {"grid": grid, "batch_size": 16, "seconds": {"median": seconds}}
        for grid, seconds in (("batch=2,model=1", batch), ("batch=1,model=2", model))
    ]
    return {"ranks": 2, "net": "a net", "link": "a link", "versions": VERSIONS, "rows": rows}


def of_bench(ratio):
    """A result of `bench`: a step of two ranks takes so many times as long as one of two apart, and as half of one's."""
    both = {"2 ranks with nothing to say": ratio, "1 rank": ratio / 2}
    ratios = {f"2 ranks / {name}: a net": {"wall": {"median": one, "max": one}} for name, one in both.items()}
    return {"versions": VERSIONS, "ratios": ratios}


BOTH = {  # claim: (the program, results with which it holds, results with which it does not)
    "images_at_once": ("bench", of_bench(1.02), of_bench(1.5)),
    "data_parallelism": ("bench", of_bench(1.02), of_bench(2.2)),
    "backpropagation": ("convergence", of_convergence(), of_convergence(**{"stage=2, async:2": 100.0})),
    "model_parallelism": ("crossover", of_crossover(1.0, 1.0), of_crossover(2.0, 1.0)),
    "representative": ("protocols", of_protocols(), of_protocols(shuffled=65.0)),
    "rounds": ("protocols", of_protocols(), of_protocols(moved=70.0)),
    "practical": ("protocols", of_protocols(moved=95.5), of_protocols(moved=95.5, time=6.0)),
    "shuffle_bottleneck": ("protocols", of_protocols(shuffle_time=5.0), of_protocols()),
    "no_waiting": ("protocols", of_protocols(), of_protocols(late=4.5)),
    "both_linear": ("protocols", of_protocols(), of_protocols(compute=1.0)),
    "server_rate": ("servers", of_servers(70, 130, 190, 195), of_servers(70, 130, 190, 300)),
    "server_workers": ("servers", of_servers(95, 195, 195, 195), of_servers(70, 110, 165, 165)),
}
SIMULATED = "practical", "shuffle_bottleneck"  # their seconds are


@pytest.mark.parametrize("name", BOTH)
def test_results_of_other_programs_decide(name, tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "FOLDER", tmp_path)
    program, holds, differs = BOTH[name]
    assert kept.findings()[name].verdict == OPEN  # there is no file
    for content, verdict in ((holds, HOLDS), (differs, DIFFERS), ([], OPEN), ({"rows": [1]}, OPEN)):
        (tmp_path / f"{program}.json").write_text(json.dumps(content))
        finding = kept.findings()[name]
        assert finding.verdict == verdict, finding
        if verdict != OPEN:
            assert finding.kind == (PREDICTED if name in SIMULATED else KEPT)
            assert f"{tmp_path / program}.json, a processor" in finding.numbers
    (tmp_path / f"{program}.json").write_text("{")
    assert kept.findings()[name].verdict == OPEN


def test_every_claim_that_is_kept_is_tried():
    assert set(BOTH) == set(kept.findings())


def test_what_is_no_simulation_alone_decides(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "FOLDER", tmp_path)
    (tmp_path / "protocols.json").write_text(json.dumps(of_protocols(moved=90.0)))
    finding = kept.findings()["practical"]
    assert (finding.verdict, finding.kind) == (DIFFERS, KEPT)  # by the accuracy alone
    few = of_protocols(moved=95.5)
    for one in few:
        one["epochs"] = 2
    (tmp_path / "protocols.json").write_text(json.dumps(few))
    assert "about 10 epochs" in kept.findings()["practical"].reason


def test_what_no_waiting_would_take_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "FOLDER", tmp_path)
    (tmp_path / "protocols.json").write_text(json.dumps(of_protocols()))
    finding = kept.findings()["no_waiting"]
    assert finding.numbers.startswith("a step takes 4.00 times as long with synchronous SGD, 1.20 and 1.20 times with a server")
    assert "one of 2 workers is 4 times as slow: without any waiting it would be 1.60 times" in finding.reason


def test_workers_of_a_server_inside_the_spread(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "FOLDER", tmp_path)
    content = of_servers(70, 110, 165, 180, 175)
    content[0]["rows"][2]["most"] = 180  # three workers were once as fast as four
    (tmp_path / "servers.json").write_text(json.dumps(content))
    finding = kept.findings()["server_workers"]
    assert finding.verdict == DIFFERS and "it takes 1 worker more" in finding.reason
    content[0]["rows"][1]["most"] = 180
    (tmp_path / "servers.json").write_text(json.dumps(content))
    assert kept.findings()["server_workers"].verdict == HOLDS


def test_what_was_not_trained_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "FOLDER", tmp_path)
    (tmp_path / "protocols.json").write_text(json.dumps([training(runs=[run("sync", 5.0)])]))
    assert "no training on sorted samples of MNIST with all of parallel-sgd" in kept.findings()["rounds"].reason


def test_training_to_an_accuracy_stands_beside_the_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "FOLDER", tmp_path)
    (tmp_path / "bench.json").write_text(json.dumps(of_bench(1.02)))
    assert "65 %" not in kept.findings()["data_parallelism"].reason
    (tmp_path / "convergence.json").write_text(json.dumps(of_convergence()))
    assert "two ranks took 50.0 s and one 80.0 s" in kept.findings()["data_parallelism"].reason
