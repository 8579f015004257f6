"""`summary --measure`: every pass has a row, operations and bytes are those calculated by hand; limits, points, products."""

import json
import sys
from collections import Counter
from dataclasses import fields
from itertools import count
from pathlib import Path

import pytest

from gridgrad.experiments import summary
from gridgrad.experiments.common import core_limits
from gridgrad.experiments.parts import summary_layers
from gridgrad.experiments.parts.summary_layers import PassTime, layer_points, pass_times, step_times, table
from gridgrad.nn import SGD, Concat, Conv2d, Flatten, Linear, MaxPool2d, ReLU, Residual, Sequential, SoftmaxCrossEntropy, Tanh
from gridgrad.nn.device import xp
from gridgrad.nn.kernels import kernel_table
from gridgrad.nn.kernels.kernel_table import PLAIN, SHIPPED, use
from gridgrad.nn.kernels.measure_table import ProductOverRows, TimedProduct
from gridgrad.nn.observer import Observer
from gridgrad.nn.sequence import with_branches
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.job.run import UserError


def perceptron():
    return Sequential([Linear(5, 3), Tanh(), Linear(3, 2)], input_shape=(5,))


def pooled(size, filters):
    layers = [Conv2d(3, filters, 3), ReLU(), MaxPool2d(2), Flatten(), Linear(((size - 2) // 2) ** 2 * filters, 4)]
    return Sequential(layers, input_shape=(size, size, 3))


def residual():
    """A pooling in front of all parameters, and branches within branches."""
    layers = [MaxPool2d(2), Residual([Conv2d(2, 2, 3, padding=1), Residual([Conv2d(2, 2, 1)], [Conv2d(2, 2, 1)])])]
    layers += [Concat([Conv2d(2, 1, 1), MaxPool2d(1)], []), Flatten(), Linear(2 * 4 * 3, 3)]
    return Sequential(layers, input_shape=(4, 8, 2))


CASES = {
    "perceptron": (perceptron, 4),
    "pooled": (lambda: pooled(8, 4), 3),
    "pooled in blocks": (lambda: pooled(32, 64), 20),
    "residual": (residual, 3),
}


class Passes(Observer):
    """Counts the passes of each object, and notes which of them contain others."""

    def __init__(self):
        self.counts, self.containers, self.open = Counter(), set(), []

    def begin(self, thing, phase, context):
        self.containers.update(self.open)
        self.open.append(thing.name)
        self.counts[thing.name] += 1

    def end(self, thing, phase, context):
        self.open.pop()


@pytest.mark.parametrize(("make", "batch_size"), CASES.values(), ids=CASES)
def test_the_rows_are_the_whole_step_and_no_pass_counts_twice(make, batch_size, monkeypatch):
    """By a clock that goes on by one second whenever somebody looks at it."""
    monkeypatch.setattr(summary_layers.time, "perf_counter", count().__next__)
    net = make()
    phases, wholes = step_times(net, batch_size, 3)
    found = pass_times(net, batch_size, phases, wholes)
    with net.observed_by(Passes()) as passes:
        x, y = summary_layers.minibatch(net.input_shape, 2, batch_size)
        net.learn(x, y, SoftmaxCrossEntropy(), SGD(net, 0.1))
    assert len(wholes) == 3
    assert sum(row.seconds for row in found) == 2 * sum(passes.counts.values()) + 1
    seconds = Counter()
    for row in found:
        seconds[row.name] += row.seconds
    for name, times in passes.counts.items():
        assert seconds[name] > times if name in passes.containers else seconds[name] == times


@pytest.mark.parametrize(("make", "batch_size"), CASES.values(), ids=CASES)
def test_every_layer_has_a_row_for_each_pass(make, batch_size):
    net = make()
    found = pass_times(net, batch_size, *step_times(net, batch_size, 1))
    assert all(row.seconds > 0 for row in found if row.name != "rest")
    named = [(row.name, row.pass_) for row in found]
    layers = [layer.name for layer in with_branches(net.layers)]
    expected = {(name, pass_) for name in [*layers, "loss"] for pass_ in ("forward", "backward")}
    if make is residual:
        expected.remove(("0", "backward"))  # nobody needs the gradient of its input, and it has no parameters
    assert len(named) == len(set(named)) and set(named) == expected | {("optimizer", "step"), ("rest", "")}
    assert named[-4:] == [("loss", "forward"), ("loss", "backward"), ("optimizer", "step"), ("rest", "")]


def counted(net, batch_size):
    """{(name, pass): (operations, bytes)}."""
    return {
        (row.name, row.pass_): (row.flops, row.bytes) for row in pass_times(net, batch_size, *step_times(net, batch_size, 1))
    }


def test_operations_and_bytes_of_linear_layers():
    found = counted(perceptron(), 4)
    # The first: x has 20 elements, W and b 15 + 3, y 12. Nobody needs the gradient of x.
    assert found["0", "forward"] == (2 * 5 * 3 * 4, 4 * (20 + 18 + 12))
    assert found["0", "backward"] == (2 * 5 * 3 * 4, 4 * (12 + 20 + 18))
    # The second: x has 12 elements, W and b 6 + 2, y 8. dy, x, dW and db, W and b, and dx are moved backward.
    assert found["2", "forward"] == (2 * 3 * 2 * 4, 4 * (12 + 8 + 8))
    assert found["2", "backward"] == (2 * 2 * 3 * 2 * 4, 4 * (8 + 12 + 8 + 8 + 12))
    assert found["1", "forward"] == (0, 4 * (12 + 12))
    assert found["1", "backward"] == (0, 4 * (12 + 12 + 12))  # dy, y and dx
    assert found["loss", "forward"] == found["loss", "backward"] == (0, 4 * 8)
    assert found["optimizer", "step"] == (0, 4 * 5 * 26)


def test_operations_and_bytes_of_convolutions():
    layers = [Conv2d(2, 3, 3, padding=1), Conv2d(3, 4, (3, 2), bias=False), MaxPool2d(2), Flatten(), Linear(8, 2)]
    found = counted(Sequential(layers, input_shape=(4, 5, 2)), 6)
    # The first: x has 6 * 40 elements, w and b 54 + 3, y 6 * 60. Nobody needs the gradient of x.
    flops = 2 * (3 * 3 * 2) * 6 * 60
    assert found["0", "forward"] == (flops, 4 * (240 + 57 + 360))
    assert found["0", "backward"] == (flops, 4 * (360 + 240 + 57))
    # The second, which a pooling follows: x has 360 elements, w 72, y 6 * 2 * 4 * 4.
    flops = 2 * (3 * 2 * 3) * 6 * 32
    assert found["1", "forward"] == (flops, 4 * (360 + 72 + 192))
    assert found["1", "backward"] == (2 * flops, 4 * (192 + 360 + 72 + 72 + 360))
    assert found["2", "forward"] == found["2", "backward"] == (0, 4 * (192 + 48))


def test_operations_and_bytes_of_branches():
    found = counted(residual(), 3)
    x = 3 * 2 * 4 * 2  # elements of every array of images but those of the first layer and of the joined channels
    assert found["1", "forward"] == (0, 4 * 3 * x) and found["1", "backward"] == (0, 0)  # nobody needs its input's gradient
    assert found["2", "forward"] == (0, 4 * 2 * (x // 2 + x)) and found["2", "backward"] == (0, 4 * 3 * x)
    flops = 2 * (3 * 3 * 2) * x
    assert found["1.branch.0", "forward"][0] == found["1.branch.0", "backward"][0] == flops


def limits(flops, *bandwidths):
    levels = [{"name": "memory", "bytes_per_second": rate} for rate in bandwidths]
    return {"flops_per_second": flops, "bandwidths": levels}


def test_the_table_shows_shares_of_the_limits_and_of_the_step():
    found = [PassTime("0", "Linear(5, 3)", "forward", 0.003, 6 * 10**6, 10**6), PassTime("rest", "", "", 0.001)]
    assert [" ".join(line.split()) for line in table(found, limits(8e9, 9e9, 1e9)).splitlines()] == [
        "layer pass ms % of step GFLOP/s % of GEMM MB % of memory FLOP/byte % of roof",
        "0 Linear(5, 3) forward 3.000 75.0% 2.0 25.0% 1.00 33.3% 6 33.3%",
        "rest 1.000 25.0%",
        "total 4.000 100.0% 1.5 18.8% 1.00 25.0% 6 25.0%",
    ]


def test_medians_of_the_steps_count():
    net = Sequential([Linear(5, 3)], input_shape=(5,))
    others = {("loss", "forward"): 0.0, ("loss", "backward"): 0.0, ("optimizer", "step"): 1.0}
    steps = [{("0", "forward"): a, ("0", "gradients"): 2.0} | others for a in (1.0, 9.0, 2.0)]
    found = {(row.name, row.pass_): row.seconds for row in pass_times(net, 1, steps, [5.0, 13.0, 5.5])}
    assert found["0", "forward"] == found["0", "backward"] == 2.0 and found["rest", ""] == 1.0


def test_points_count_the_operations_of_the_direct_algorithm_and_every_array_once():
    net = Sequential([Conv2d(3, 4, 3, padding=1), Conv2d(4, 8, 3, padding=1), Flatten(), Linear(288, 2)], input_shape=(6, 6, 3))
    found = layer_points("net", net, 2, step_times(net, 2, 3)[0])
    assert [(point["layer"].split()[1], point["pass"]) for point in found] == [
        ("0", "forward"), ("0", "gradients"), ("1", "forward"), ("1", "backward"),
        *(("3", name) for name in ("forward", "gradients", "input_gradient")),
    ]  # fmt: skip
    for point, products in zip(found[2:4], (1, 2), strict=True):
        assert point["flops"] == products * 2 * 9 * 4 * 8 * 36 * 2
        assert point["bytes"] == 4 * products * (2 * 4 * 36 + 9 * 4 * 8 + 8 + 2 * 8 * 36 / products)
        assert point["intensity"] == point["flops"] / point["bytes"] and point["family"] == "net, batch 2"
        assert 0 < point["seconds"]["min"] <= point["seconds"]["median"] <= point["seconds"]["max"]
    assert found[-1]["algorithm"] == "matrix product"


@pytest.mark.skipif(not xp.is_cpu, reason="GPUs use no Winograd")
def test_points_name_the_algorithm():
    kernel_table.use(kernel_table.PRESET)  # which algorithm is the fastest differs between processors
    for layer, size, shape, expected in (
        (Conv2d(256, 256, 3, padding=1), 56, (4, 56, 56, 256), "Winograd"),
        (Conv2d(1, 96, 11, stride=4), 224, (16, 54, 54, 96), "patches"),
    ):
        Sequential([layer], input_shape=(size, size, layer.inputs)).allocate()
        assert summary_layers.algorithm(layer, shape) == expected


def test_the_sizes_of_caches_are_read_from_the_system(tmp_path):
    entries = {"index0": ("1", "Data", "48K"), "index1": ("1", "Instruction", "64K"), "index3": ("3", "Unified", "491520K"),
               "index2": ("2", "Unified", "2048K"), "index4": ("4", "Unified", "big")}  # fmt: skip
    for index, words in entries.items():
        (tmp_path / index).mkdir()
        for name, word in zip(("level", "type", "size"), words, strict=True):
            (tmp_path / index / name).write_text(word + "\n")
    assert core_limits.caches(tmp_path) == [48 << 10, 2 << 20, 480 << 20]
    assert core_limits.caches(tmp_path / "nothing") == []


def test_reading_counts_both_vectors_as_often_as_they_are_read(monkeypatch):
    monkeypatch.setattr(core_limits, "least_seconds", lambda action, seconds: [action(), seconds][1])
    monkeypatch.setattr(core_limits, "READ", 1 << 16)
    assert core_limits.read_bandwidth(1 << 14, 2.0) == pytest.approx((1 << 16) / 2)
    assert core_limits.read_bandwidth(1 << 18, 2.0) == pytest.approx((1 << 18) / 2)
    assert core_limits.copy_bandwidth(2.0, 1 << 14) == pytest.approx((1 << 14) / 2)


def test_caches_are_measured_with_arrays_that_fit_and_are_not_much_larger_than_the_nearer_cache(monkeypatch):
    monkeypatch.setattr(core_limits, "caches", lambda: [1000, 4000, 1000000])
    monkeypatch.setattr(core_limits, "read_bandwidth", lambda size, seconds: 3.0)
    monkeypatch.setattr(core_limits, "copy_bandwidth", lambda seconds, size: 2.0 if size < 5000 else 4.0)
    found = summary_layers.bandwidths()
    assert [level["name"] for level in found] == ["L1 cache", "L2 cache", "L3 cache", "memory"]
    assert [level["array_bytes"] for level in found] == [500, 2000, 32000, 2 * core_limits.COPIED]
    assert [level["bytes_per_second"] for level in found] == [3, 3, 4, 4]


# ----- the program


@pytest.fixture
def core(monkeypatch):
    """A core whose limits are known."""
    rates = {"bytes_per_second": 5e9, "reading": 5e9, "copying": 4e9}
    level = {"name": "memory", "cache_bytes": None, "array_bytes": 1 << 30} | rates
    monkeypatch.setattr(summary_layers, "bandwidths", lambda: [level])
    monkeypatch.setattr(core_limits, "gemm_peak", lambda seconds: 3e9)
    monkeypatch.setattr(summary_layers.report, "busy_cores", lambda: 1.5)
    monkeypatch.setattr(summary.report, "blas_threads", lambda: 1)
    monkeypatch.setattr(summary_layers, "SECONDS", 0.0)


def run(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["summary", *map(str, words)])
    summary.main()


def test_networks_are_measured_and_written_as_the_kept_roofline(core, tmp_path, monkeypatch, capsys):
    words = ["--net", "mlp:8,relu", "--net", "lenet5", "--batch-size", 4, "--measure", "--out", tmp_path / "r.json"]
    run(monkeypatch, *words)
    said = capsys.readouterr()
    assert "3.0 GFLOP/s" in said.out and "5.0 GB/s of memory" in said.out and "Other programs kept 1.5 cores busy" in said.err
    assert "lenet5: training steps of 4 samples" in said.out and said.out.count("Conv2d") == 4
    found, kept = json.loads((tmp_path / "r.json").read_text()), json.loads(Path("results/roofline.json").read_text())
    assert found.keys() == kept.keys() and found["rounds"] == summary_layers.FEWEST_STEPS
    for name in ("points", "bandwidths"):
        assert found[name][0].keys() == kept[name][0].keys()
    assert {point["family"] for point in found["points"]} == {"mlp:8,relu, batch 4", "lenet5, batch 4"}


def test_products_are_measured_and_written_as_the_kept_ones(core, tmp_path, monkeypatch, capsys):
    use(PLAIN)
    words = ["--net", "mlp:128,128,relu", "--batch-size", 64, "--measure", "kernels", "--steps", 1]
    run(monkeypatch, *words, "--out", tmp_path / "k.json")
    found, shown = json.loads((tmp_path / "k.json").read_text()), capsys.readouterr().out
    assert found.keys() == RECORDS.keys() and found["table"] == "plain" and "the table plain" in shown
    assert all(row["seconds"]["plain"] > 0 and len(row["seconds"]) > 1 for row in found["products"])
    assert len(found["products"]) == sum(line.startswith("Product") for line in shown.splitlines()) > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps", 3], "--steps needs --measure"),
        (["--out", "r.json"], "--out needs --measure"),
        (["--measure", "--out", "/proc/no/r.json"], "can not write"),
        (["--net", "vgg16", "--batch-size", 10**6, "--measure"], "give a smaller net or --batch-size"),
    ],
)
def test_bad_options_are_refused(words, message, core, monkeypatch):
    with pytest.raises(UserError, match=message) as refusal:
        run(monkeypatch, "--net", "mlp:8,relu", *words)
    assert "\n" not in str(refusal.value)


def test_a_file_is_about_one_core(core, monkeypatch):
    monkeypatch.setattr(summary.report, "blas_threads", lambda: 2)
    with pytest.raises(UserError, match="BLAS has 2 threads"):
        run(monkeypatch, "--net", "mlp:8,relu", "--measure", "--out", "r.json")


# ----- products, and the shipped tables against what was recorded

RECORDS = json.loads((Path(__file__).parents[2] / "results" / "kernels.json").read_text())
KINDS = {"Product": TimedProduct, "ProductOverRows": ProductOverRows}


def product_of(row):
    kind = KINDS[row["product"]]
    return kind(**{field.name: row[field.name] for field in fields(kind)})


def test_what_a_shipped_table_chooses_was_hardly_slower_than_the_plain_call():
    shipped = SHIPPED[RECORDS["generation"]]
    assert len(RECORDS["products"]) > 60
    for row in RECORDS["products"]:
        chosen, seconds = summary.choice(product_of(row), shipped), row["seconds"]
        assert chosen in seconds, f"{row} lacks {chosen}: measure its network again with gridgrad summary --measure kernels"
        assert seconds[chosen] <= 1.1 * seconds["plain"], f"{chosen}: {row}"


@pytest.mark.skipif(not xp.is_cpu, reason="tables are for CPUs")
def test_the_products_of_a_network():
    use(PLAIN)
    products = summary.products(network_names.build("mlp:200,relu", 100, 10), 64)
    forward = {("tiles", 64, 100, 200)}
    assert {(p.orientation, p.m, p.k, p.n) for p in products} == forward | {("tiles_left_transposed", 100, 64, 200)}
    product = next(p for p in products if p.orientation == "tiles")
    assert list(summary.ways(product, PLAIN)) == ["plain"]
    assert list(summary.ways(TimedProduct("tiles", 64, 100, 128), PLAIN)) == ["plain", "64x64", "64x32"]
    convolution = summary.products(network_names.build("lenet5", (28, 28, 1), 10), 8)
    assert any(isinstance(p, ProductOverRows) for p in convolution)
