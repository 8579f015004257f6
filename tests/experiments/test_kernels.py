"""The program that measures matrix products, and the shipped tables against what it has recorded."""

import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from gridgrad.experiments.benchmarks.cases import StepCase
from gridgrad.experiments.studies import kernels as program
from gridgrad.nn.device import xp
from gridgrad.nn.kernels.kernel_table import PLAIN, SHIPPED, use
from gridgrad.nn.kernels.measure_table import ProductOverRows, TimedProduct

RECORDS = json.loads((Path(__file__).parents[2] / "results" / "kernels.json").read_text())
KINDS = {"Product": TimedProduct, "ProductOverRows": ProductOverRows}


def product_of(row):
    kind = KINDS[row["product"]]
    return kind(**{field.name: row[field.name] for field in fields(kind)})


def test_what_a_shipped_table_chooses_was_hardly_slower_than_the_plain_call():
    table = SHIPPED[RECORDS["generation"]]
    assert len(RECORDS["products"]) > 60
    for row in RECORDS["products"]:
        chosen, seconds = program.choice(product_of(row), table), row["seconds"]
        assert chosen in seconds, f"{row} lacks {chosen}: measure again with gridgrad study kernels --out results/kernels.json"
        assert seconds[chosen] <= 1.1 * seconds["plain"], f"{chosen}: {row}"


@pytest.mark.skipif(not xp.is_cpu, reason="tables are for CPUs")
def test_the_products_of_a_network():
    use(PLAIN)
    products = program.products(StepCase("two layers", "mlp:200,relu", 100, 10, 64))
    forward = {("tiles", 64, 100, 200)}
    assert {(p.orientation, p.m, p.k, p.n) for p in products} == forward | {("tiles_left_transposed", 100, 64, 200)}
    product = next(p for p in products if p.orientation == "tiles")
    assert list(program.ways(product, PLAIN)) == ["plain"]
    assert list(program.ways(TimedProduct("tiles", 64, 100, 128), PLAIN)) == ["plain", "64x64", "64x32"]
    convolution = program.products(StepCase("a convolution", "lenet5", (28, 28, 1), 10, 8))
    assert any(isinstance(p, ProductOverRows) for p in convolution)


@pytest.mark.long
def test_the_program_writes_what_it_prints(tmp_path):
    path = tmp_path / "kernels.json"
    ended = subprocess.run(
        [sys.executable, "-m", "gridgrad", "study", "kernels", "--quick", "--rounds", "1", "--out", str(path)],
        env=os.environ | {"GRIDGRAD_KERNELS": "plain"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    written = json.loads(path.read_text())
    assert written["table"] == "plain" and "the table plain" in ended.stdout
    assert all(row["seconds"]["plain"] > 0 and len(row["seconds"]) > 1 for row in written["products"])
    assert len(written["products"]) == sum(line.startswith("Product") for line in ended.stdout.splitlines()) > 20
    assert {row["product"] for row in written["products"]} == KINDS.keys()
    assert "fastest way  its GFLOP/s" in ended.stdout
