"""The table of the few numbers that depend on the processor and the BLAS library: the type `Kernels`, and its JSON.

A table decides which of several ways to compute the same is taken, and so in which order numbers are added. Runs repeat bit by
bit where their tables are equal.
"""

import json
from dataclasses import asdict, dataclass, fields

from gridgrad.nn.files.json_text import content_of

NO_LIMIT = 1 << 40
FEW_ROWS = 256  # a product with at most so many rows is one of a fully connected layer and a small batch
TILE_SIDES = range(1, 1025)  # the rows or columns of a tile

ORIENTATIONS = "tiles", "tiles_left_transposed", "tiles_right_transposed"
COSTS = (
    "narrow", "unroll", "read_kernel", "turn_kernel", "scatter_run", "scatter_addition",
    "transform_point", "transform_channel", "transform_kernel", "transform_row", "row_kernel",
)  # fmt: skip
MAY_BE_ZERO = "group_rows", "small_batch", "row_winograd", "winograd_3x3", "winograd_5x5", "row_channels", *COSTS


def _check_number(name, value, least=0):
    if type(value) is not int or not least <= value <= NO_LIMIT:
        raise ValueError(f"{name} must be a whole number from {least} to 2^40, not {value!r}")


@dataclass(frozen=True)
class Tiles:
    """Up to which k the products (m, k) x (k, n) of one orientation are cut into tiles. 0: never. See `nn/kernels/gemm.py`.

    few_columns: the largest k for products with 16, with 32, and with 48 or 64 columns. Their tiles have all columns, and as
    many rows as fit.
    shapes: the tiles (rows, columns) for other products, and where fewer than 16 such rows fit, in order of preference: the
    first that divides the product is taken.
    most_k: the largest k for `shapes`. most_k_few_rows: the same where m is at most FEW_ROWS.
    """

    few_columns: tuple = (0, 0, 0)
    shapes: tuple = ()
    most_k: int = 0
    most_k_few_rows: int = 0

    def __post_init__(self):
        _check_number("most_k", self.most_k)
        _check_number("most_k_few_rows", self.most_k_few_rows)
        if not isinstance(self.few_columns, tuple) or len(self.few_columns) != 3:
            raise ValueError(f"few_columns must be three numbers, not {self.few_columns!r}")
        for k in self.few_columns:
            _check_number("few_columns", k)
        for shape in self.shapes if isinstance(self.shapes, tuple) else (None,):
            pair = isinstance(shape, tuple) and len(shape) == 2 and all(type(side) is int for side in shape)
            if not pair or not all(side in TILE_SIDES for side in shape):
                raise ValueError(f"shapes must be pairs of numbers from 1 to {TILE_SIDES[-1]}, not {self.shapes!r}")


@dataclass(frozen=True)
class Kernels:
    """The numbers that depend on the processor and the BLAS library. Numbers are whole, and sizes at least 1.

    name: where the table comes from, for reports.

    Matrix products (`nn/kernels/gemm.py`), used where the BLAS library has one thread:
    tiles, tiles_left_transposed, tiles_right_transposed: for a @ b with both operands row-major, with a the transpose of a
    row-major array, and with b such a transpose. group_rows: products over many rows are sums of groups of at least so many
    rows; 0: never. small_batch: products of at most so many samples and a matrix that is larger than the caches are cut so that
    it is not packed; 0: never.

    Convolution: row_winograd, winograd_3x3, winograd_5x5: the numbers of input and output channels from which Winograd's
    algorithm is considered, in one dimension and in two; 0: never. winograd_bytes: the size of each of its buffers for a
    block. winograd_tiles: the fewest tiles in a block, even if the buffers get larger than that. row_channels: the most
    input channels with which the rows of a kernel are unrolled one by one.

    Costs of what convolutions do beside products, in operations of a large matrix product; the defaults were measured on
    Sapphire Rapids. narrow: a product with n columns takes 1 + narrow / n times as long as its operations in a large one.
    unroll: one element of an unrolled patch. read_kernel: one element of a kernel that is read for a product. turn_kernel: one
    element of a kernel that is turned around. scatter_run, scatter_addition: a run of channels that is added to a pixel, and
    each of these channels besides. transform_point, transform_channel: a point of a transformed tile, and each channel of it
    besides. transform_kernel: one element of a transformed kernel. transform_row: one element of an image that is transformed
    in one dimension. row_kernel: one element of a kernel that is multiplied with the pixels of one column in a block.

    Blocks that stay in the cache: block_bytes: of unrolled patches. fused_bytes: the output of a convolution from which it is
    processed block by block with its pooling. piece: the elements of an array in a piece of BatchNorm. chunk: the elements in a
    piece of an elementwise operation or an optimizer's update.
    """

    name: str
    tiles: Tiles = Tiles()
    tiles_left_transposed: Tiles = Tiles()
    tiles_right_transposed: Tiles = Tiles()
    group_rows: int = 0
    small_batch: int = 0
    row_winograd: int = 0
    winograd_3x3: int = 0
    winograd_5x5: int = 0
    winograd_bytes: int = 1 << 20
    winograd_tiles: int = 112
    row_channels: int = 64
    narrow: int = 10
    unroll: int = 25
    read_kernel: int = 50
    turn_kernel: int = 200
    scatter_run: int = 1500
    scatter_addition: int = 100
    transform_point: int = 1500
    transform_channel: int = 95
    transform_kernel: int = 100
    transform_row: int = 40
    row_kernel: int = 20
    block_bytes: int = 1 << 20
    fused_bytes: int = 1 << 22
    piece: int = 1 << 15
    chunk: int = 1 << 16

    def __post_init__(self):
        if not isinstance(self.name, str):
            raise ValueError(f"name must be a text, not {self.name!r}")
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if field.type is int:
                _check_number(field.name, value, 0 if field.name in MAY_BE_ZERO else 1)
            elif not isinstance(value, Tiles):
                raise ValueError(f"{field.name} must be Tiles, not {value!r}")


def to_json(table):
    """A table as a JSON text."""
    return json.dumps(asdict(table), indent=1)


def from_json(text):
    """The table in a JSON text that `to_json` returned. Raises ValueError, with one line, for any other text."""
    entries = _entries(Kernels, content_of(text))
    for name in ORIENTATIONS:
        tiles = _entries(Tiles, entries[name], f"{name}: ")
        try:
            entries[name] = Tiles(**{key: _as_tuples(value) for key, value in tiles.items()})
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return Kernels(**entries)


def _entries(kind, content, where=""):
    """`content`, a dict that has exactly the fields of a dataclass as its keys."""
    names = [field.name for field in fields(kind)]
    if not isinstance(content, dict) or sorted(content) != sorted(names):
        raise ValueError(f"{where}it must have exactly the entries {', '.join(names)}")
    return content


def _as_tuples(value):
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value
