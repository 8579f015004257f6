"""The table of the few numbers that depend on the processor and the BLAS library: `Kernels`, its JSON, and which one is in use.

A table decides which of several ways to compute the same is taken, and so in which order numbers are added. Runs repeat bit by
bit where their tables are equal.

The table of this process is chosen at its first use: by GRIDGRAD_KERNELS, which is `plain` or names a file like a stored one;
else the one that comes with the project for this processor (SHIPPED); else the one that was measured here before and stored in
the cache folder. A processor that has none gets PRESET until `nn/kernels/measure_table.py` has measured it. Tables hold for one
BLAS thread: with several, products are not cut.
"""

import json
import os
from dataclasses import asdict, dataclass, fields, replace

from gridgrad.nn import measured
from gridgrad.nn.files.documents import Kind, check, content_of
from gridgrad.nn.files.limits import read_limited
from gridgrad.nn.kernels.processor import blas, processor

NO_LIMIT = 1 << 40
FEW_ROWS = 256  # a product with at most so many rows is one of a fully connected layer and a small batch
TILE_SIDES = range(1, 1025)  # the rows or columns of a tile
VARIABLE = "GRIDGRAD_KERNELS"

ORIENTATIONS = "tiles", "tiles_left_transposed", "tiles_right_transposed"
SIZES = "winograd_bytes", "winograd_tiles", "block_bytes", "fused_bytes", "piece", "chunk"  # which are never 0


@dataclass(frozen=True)
class Tiles:
    """Up to which k the products (m, k) x (k, n) of one orientation are cut into tiles (`nn/kernels/gemm.py`). 0: never."""

    few_columns: tuple = (0, 0, 0)  # with 16, 32, and 48 or 64 columns: tiles of all columns, and as many rows as fit
    shapes: tuple = ()  # tiles (rows, columns) of other products, and where under 16 rows fit: the first that divides is taken
    most_k: int = 0  # for `shapes`
    most_k_few_rows: int = 0  # the same where m is at most FEW_ROWS


@dataclass(frozen=True)
class Kernels:
    """The numbers that depend on the processor and the BLAS library."""

    name: str  # where the table comes from, for reports
    # Products (`nn/kernels/gemm.py`) by one BLAS thread. Operands are row-major, or one is the transpose of such an array.
    tiles: Tiles = Tiles()
    tiles_left_transposed: Tiles = Tiles()
    tiles_right_transposed: Tiles = Tiles()
    group_rows: int = 0  # products over many rows are sums of groups of at least so many; 0: never
    small_batch: int = 0  # products of at most so many samples and a matrix larger than the caches are cut, not to pack it
    # The input and output channels from which Winograd's algorithm is considered, in one dimension and in two; 0: never.
    row_winograd: int = 0
    winograd_3x3: int = 0
    winograd_5x5: int = 0
    winograd_bytes: int = 1 << 20  # of each of its buffers for a block
    winograd_tiles: int = 112  # the fewest tiles in a block, even if its buffers get larger than that
    row_channels: int = 64  # the most input channels with which the rows of a kernel are unrolled one by one
    # What convolutions do beside products, in operations of a large product; the defaults were measured on Sapphire Rapids.
    narrow: int = 10  # a product with n columns takes 1 + narrow / n times as long as its operations in a large one
    unroll: int = 25  # an element of an unrolled patch
    read_kernel: int = 50  # an element of a kernel that is read for a product
    turn_kernel: int = 200  # an element of a kernel that is turned around
    scatter_run: int = 1500  # a run of channels that is added to a pixel
    scatter_addition: int = 100  # and each of these channels besides
    transform_point: int = 1500  # a point of a transformed tile
    transform_channel: int = 95  # and each channel of it besides
    transform_kernel: int = 100  # an element of a transformed kernel
    transform_row: int = 40  # an element of an image that is transformed in one dimension
    row_kernel: int = 20  # an element of a kernel that is multiplied with the pixels of one column in a block
    # Blocks that stay in the cache.
    block_bytes: int = 1 << 20  # of unrolled patches
    fused_bytes: int = 1 << 22  # the output of a convolution from which it is processed block by block with its pooling
    piece: int = 1 << 15  # the elements of a piece in a normalisation
    chunk: int = 1 << 16  # the elements of a piece in an elementwise operation or an optimizer's update


PLAIN = Kernels("plain")  # every product is one call of the library
PRESET = Kernels("preset", row_winograd=5, winograd_3x3=24, winograd_5x5=24)


# ----- the tables that come with the project
#
# All were measured with one thread of OpenBLAS 0.3.31 and its kernels for SkylakeX, which it uses on all these processors.
#
# - Zen 4 and Zen 5: tiles are 1.05 to 1.4 times as fast as the plain call for batches of some hundred samples.
# - Skylake-X: tiles of 16 x 64 reach a third of the plain call in wide products (128 x 784 x 512: 27 to 36 GFLOP/s, not 84 to
#   100), and are faster only where k is small (4096 x 75 x 64: 88 to 119, not 45 to 88). Products with a transposed operand
#   were not measured: their limits are lower than those of Sapphire Rapids.
# - Sapphire Rapids: tiles are 1.1 to 1.5 times as fast with few columns or small k, and slower in wide products with k of some
#   hundreds (`results/kernels.json`). They need rows that begin at cache lines, as mostly those of layers do.

SHIPPED_BLAS = "openblas", "SkylakeX"  # the name and the kernels of that library


def shapes(rows, columns):
    """The tiles of so many columns that have one of these numbers of rows."""
    return tuple((some, columns) for some in rows)


ALWAYS = (NO_LIMIT,) * 3
ZEN = replace(
    PRESET,
    tiles=Tiles(ALWAYS, shapes((16, 32, 20, 24), 64) + shapes((50, 48, 32), 32), most_k=NO_LIMIT, most_k_few_rows=NO_LIMIT),
    tiles_left_transposed=Tiles(ALWAYS, shapes((64, 32, 16), 32), most_k=256, most_k_few_rows=256),
    tiles_right_transposed=Tiles(ALWAYS, shapes((64, 50, 48, 40, 32, 25, 20, 16), 16), most_k=800, most_k_few_rows=NO_LIMIT),
    group_rows=48,
)
SKYLAKE_X = replace(PRESET, tiles=Tiles((300, 300, 300)), tiles_left_transposed=Tiles((100, 150, 100)), group_rows=48)
SAPPHIRE_RAPIDS = replace(
    PRESET,
    tiles=Tiles(
        (1200, 1200, 900), shapes((64, 32, 50, 16, 20, 24), 64) + shapes((64, 32, 50, 48), 32), most_k=256, most_k_few_rows=100
    ),
    tiles_left_transposed=Tiles((100, 600, 450), ((64, 64), (32, 64), (64, 32), (32, 32)), most_k=80, most_k_few_rows=150),
    tiles_right_transposed=Tiles(shapes=((16, 64), (16, 32), (16, 16)), most_k_few_rows=600),
    group_rows=40,
    small_batch=16,
    winograd_bytes=3 << 19,
)
MEASURED = {"Zen 4": ZEN, "Zen 5": ZEN, "Skylake-X": SKYLAKE_X, "Sapphire Rapids": SAPPHIRE_RAPIDS}
SHIPPED = {name: replace(table, name=f"{name} (shipped)") for name, table in MEASURED.items()}


def generation(processor):
    """The key in SHIPPED for a Processor, or None. It goes by the instruction set: a virtual machine may give any name."""
    flags = processor.flags
    if processor.vendor == "AuthenticAMD" and "avx512f" in flags:
        return {25: "Zen 4", 26: "Zen 5"}.get(processor.family)
    if processor.vendor == "GenuineIntel" and "avx512f" in flags:
        if "amx_tile" in flags:
            return None if "amx_fp16" in flags else "Sapphire Rapids"  # amx_fp16 came with Granite Rapids
        return None if "avx512ifma" in flags else "Skylake-X"  # avx512ifma came with Ice Lake
    return None


def shipped(processor, blas):
    """The table for a Processor and one thread of a Blas; None if there is none."""
    return SHIPPED.get(generation(processor)) if (blas.name, blas.kernels) == SHIPPED_BLAS else None


# ----- a table as JSON


def to_json(table):
    return json.dumps(asdict(table), indent=1)


def _number(least):
    return Kind(f"a whole number from {least} to 2^40", lambda value: type(value) is int and least <= value <= NO_LIMIT)


def _is_three(value):
    return isinstance(value, list) and len(value) == 3 and all(map(_number(0).accepts, value))


def _is_shape(value):
    return isinstance(value, list) and len(value) == 2 and all(type(side) is int and side in TILE_SIDES for side in value)


OF_TILES = {
    "few_columns": Kind("three whole numbers from 0 to 2^40", _is_three),
    "shapes": [Kind(f"a pair of numbers from 1 to {TILE_SIDES[-1]}", _is_shape)],
    "most_k": _number(0),
    "most_k_few_rows": _number(0),
}
FORM = {"name": Kind("a text", lambda value: isinstance(value, str))} | {
    field.name: OF_TILES if field.type is Tiles else _number(1 if field.name in SIZES else 0) for field in fields(Kernels)[1:]
}


def from_json(text):
    """The table in a JSON text that `to_json` returned. Raises ValueError, with one line, for any other text."""
    content = content_of(text)
    check(content, FORM)
    for where, part, form in (("it", content, FORM), *((name, content[name], OF_TILES) for name in ORIENTATIONS)):
        if len(part) > len(form):
            raise ValueError(f"{where} must have exactly the entries {', '.join(form)}")
    tiles = {name: Tiles(**{key: _as_tuples(value) for key, value in content[name].items()}) for name in ORIENTATIONS}
    return Kernels(**content | tiles)


def _as_tuples(value):
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


# ----- the table of this process

_in_use = None


def kernels():
    """The table in use. Raises ValueError if it is chosen now and GRIDGRAD_KERNELS names no table."""
    global _in_use
    if _in_use is None:
        _in_use = known()
    return _in_use


def use(table):
    """Use `table` from now on; None: choose one at the next use."""
    global _in_use
    _in_use = table


def known():
    """The table for this process that needs no measurement, PRESET where one has to be measured. ValueError as `named`."""
    table = named()
    if table:
        return table
    library = blas()
    table = shipped(processor(), library)
    if library.threads != 1:
        table = table or PRESET
        uncut = dict.fromkeys(ORIENTATIONS, Tiles())
        return replace(table, name=f"{table.name}, products uncut", group_rows=0, small_batch=0, **uncut)
    return table or stored() or PRESET


def named():
    """The table that GRIDGRAD_KERNELS names, or None. ValueError, with one line, if it names none or GRIDGRAD_BLAS is set."""
    if os.environ.get("GRIDGRAD_BLAS"):
        raise ValueError("GRIDGRAD_BLAS is gone: unset it, and link NumPy with the library that is to multiply matrices")
    name = os.environ.get(VARIABLE)
    if not name:
        return None
    if name == "plain":
        return PLAIN
    try:
        return replace(from_json(read_limited(name)), name=name)
    except OSError as error:
        raise ValueError(f"{VARIABLE}: can not read {name} ({error.strerror}): set it to plain or to a file") from None
    except ValueError as error:
        raise ValueError(f"{VARIABLE}: {name} is no table of kernels: {error}") from None


def table_file():
    """The path of the file with the measured table for this processor, this BLAS library and one thread; it may not exist."""
    here = processor()
    return measured.answer_file("kernels", here.name, here.vendor, here.family, *sorted(here.flags), str(blas()))


def stored():
    """The table that was measured here before; None if there is none or its file is damaged."""
    return measured.stored(table_file(), from_json)


def store(table):
    """Store a measured table, or print a warning: without it the next run measures again and may sum in another order."""
    measured.store(table_file(), to_json(table) + "\n", "the next run measures again")
