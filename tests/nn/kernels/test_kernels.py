"""The table of kernels: its JSON, which one a processor gets, and that one is measured once."""

import json
from dataclasses import asdict, replace

import pytest

from gridgrad.nn import Linear, Sequential
from gridgrad.nn.device import xp
from gridgrad.nn.kernels import gemm, kernel_table, measure_table
from gridgrad.nn.kernels.kernel_table import ORIENTATIONS, SHIPPED, from_json, generation, shipped, to_json
from gridgrad.nn.kernels.measure_table import ProductOverRows, TimedProduct, timed_convolution
from gridgrad.nn.kernels.processor import Blas, Processor
from tests.clock import Clock

AVX512 = {"avx2", "avx512f"}
OPENBLAS = Blas("openblas", "0.3.31", "SkylakeX", 1)


WHOLE = asdict(kernel_table.PLAIN)
DAMAGED = [  # (what is in the file, words)
    ("", "JSON"), ({}, "name"), (WHOLE | {"more": 1}, "entries"), (WHOLE | {"block_bytes": 0}, "block_bytes"),
    (WHOLE | {"tiles": WHOLE["tiles"] | {"few_columns": [1, 2]}}, "tiles.few_columns"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "words"), DAMAGED)
def test_the_variable_names_a_table_and_a_damaged_one_is_refused(content, words, tmp_path, monkeypatch):
    path = tmp_path / "table.json"
    monkeypatch.setenv("GRIDGRAD_KERNELS", str(path))
    path.write_text(to_json(SHIPPED["Zen 4"]))
    assert kernel_table.known() == replace(SHIPPED["Zen 4"], name=str(path))
    path.write_text(json.dumps(content) if isinstance(content, dict) else content)
    with pytest.raises(ValueError, match=f"^GRIDGRAD_KERNELS: [^\n]*table.json is no table of kernels: [^\n]*{words}[^\n]*$"):
        kernel_table.known()


@pytest.mark.parametrize(
    ("processor", "expected"),
    [
        (Processor("", "AuthenticAMD", 25, AVX512), "Zen 4"),
        (Processor("", "GenuineIntel", 6, AVX512 | {"avx512ifma"}), None),
        (Processor("", "GenuineIntel", 6, AVX512 | {"avx512ifma", "avx512_bf16", "amx_tile"}), "Sapphire Rapids"),
        (Processor(), None),
    ],
)
def test_processors_are_recognised(processor, expected):
    assert generation(processor) == expected
    assert shipped(processor, OPENBLAS) is SHIPPED.get(expected)
    assert shipped(processor, replace(OPENBLAS, kernels="Haswell")) is None
    assert shipped(processor, replace(OPENBLAS, name="mkl")) is None


def pretend(monkeypatch, threads=1, **processor):
    """A processor that no table fits, with an OpenBLAS of so many threads."""
    monkeypatch.delenv("GRIDGRAD_KERNELS", raising=False)
    for module in kernel_table, measure_table:
        monkeypatch.setattr(module, "processor", lambda: Processor("pretended", **processor))
        monkeypatch.setattr(module, "blas", lambda: replace(OPENBLAS, threads=threads))


def tiles_pay(task, table):
    """The seconds of a task on a processor where products in tiles take half as long."""
    cut = isinstance(task, TimedProduct) and gemm.tile(getattr(table, task.orientation), task.m, task.k, task.n)
    return 0.5e-4 if cut else 1e-4


@pytest.mark.skipif(not xp.is_cpu, reason="tables are for CPUs")
def test_an_unknown_processor_is_measured_once(tmp_path, monkeypatch, capsys):
    pretend(monkeypatch)
    monkeypatch.setenv("GRIDGRAD_CACHE", str(tmp_path))
    monkeypatch.setattr(measure_table, "seconds", tiles_pay)
    monkeypatch.setattr(measure_table, "time", Clock())  # it stands still, so there is time for all
    kernel_table.use(None)
    assert kernel_table.kernels() == kernel_table.PRESET
    Sequential([Linear(2, 3)]).allocate()
    table = kernel_table.kernels()
    assert table.name.startswith("measured quickly on pretended, openblas") and table.tiles.few_columns[0]
    assert capsys.readouterr().err.count("\n") == 1
    assert from_json(kernel_table.table_file().read_text()) == table
    kernel_table.table_file().write_text("{")  # a damaged file is measured again
    kernel_table.use(None)
    Sequential([Linear(2, 3)]).allocate()
    assert kernel_table.stored() == kernel_table.kernels() == table
    assert "measuring" in capsys.readouterr().err


@pytest.mark.skipif(not xp.is_cpu, reason="tables are for CPUs")
def test_what_is_timed_runs():
    products = [TimedProduct(name, 64, 28, 32) for name in ORIENTATIONS]
    for task in (*products, ProductOverRows(128, 28, 32), timed_convolution(3, 4, 4, 1, 4)):
        assert measure_table.seconds(task, kernel_table.PRESET) >= 0
    assert all((task.arrays[2] == task.k).all() for task in products)
