"""Measure how fast the matrix products of the benchmark's networks are, plain and in tiles, to judge the table of kernels.

    gridgrad study kernels

It prints the table in use (see `nn/kernels.py`) and, for each product, the speed of the plain call and of each way to cut it.
The way that the table chooses is marked. Products that can not be cut are left out.
"""

from dataclasses import asdict, replace
from unittest.mock import patch

import numpy as np

from gridgrad.experiments.benchmarks.cases import SERIAL
from gridgrad.experiments.common import report
from gridgrad.experiments.common.made_up_data import minibatch
from gridgrad.experiments.common.options import Parser, check_writable, user_input, whole
from gridgrad.nn import LOSSES, SGD, gemm, patches
from gridgrad.nn.kernel_table import NO_LIMIT, ORIENTATIONS, Tiles
from gridgrad.nn.kernels import PLAIN, kernels
from gridgrad.nn.measure_kernels import SHAPES, Product, ProductOverRows, times
from gridgrad.nn.processor import blas, processor
from gridgrad.nn.shipped_kernels import generation
from gridgrad.parallel.job.run import run_launcher

CUTS = [Tiles((NO_LIMIT,) * 3), *(Tiles(shapes=shapes, most_k=NO_LIMIT, most_k_few_rows=NO_LIMIT) for shapes in SHAPES)]
LARGEST = 1 << 26  # elements of an operand or a result


def products(case):
    """The products, Product and ProductOverRows, that a training step of a Case computes: a set. Nothing is computed."""
    found = set()

    def see(a, b, out):
        if a.dtype == np.float32 and a.size * b.shape[1] > gemm.SMALL_PRODUCT:
            transposed = (not a.flags.c_contiguous) + 2 * (not b.flags.c_contiguous)
            if transposed < len(ORIENTATIONS):
                found.add(Product(ORIENTATIONS[transposed], *a.shape, b.shape[1]))
        out.fill(0)
        return out

    def see_rows(a, b, out, progress=None):
        found.add(ProductOverRows(*a.shape, b.shape[1]))
        out.fill(0)
        return out

    net = case.network()
    x, y = minibatch(net.input_shape, case.outputs, case.batch_size, case.loss)
    with patch.object(gemm, "_matmul", see), patch.object(patches, "product_over_rows", see_rows):
        net.learn(x, y, LOSSES[case.loss](), SGD(net, 1.0))
    return found


def ways(product, table):
    """{name: a table that computes a product this way}, the plain call first. They include the way that `table` chooses.

    The names are "plain", tiles such as "16x64", and "groups".
    """
    if isinstance(product, ProductOverRows):
        tables = [replace(PLAIN, group_rows=1)]
    else:
        tables = [replace(PLAIN, **{product.orientation: cut}) for cut in CUTS]
    found = {}
    for one in (PLAIN, *tables, table):
        found.setdefault(choice(product, one), one)
    return found


def choice(product, table):
    """The name of the way that a table chooses for a product."""
    if isinstance(product, ProductOverRows):
        return "groups" if gemm.group_of(table.group_rows, product.rows, product.m, product.n) else "plain"
    tile = gemm.tile(getattr(table, product.orientation), product.m, product.k, product.n)
    return "x".join(map(str, tile)) if tile else "plain"


def elements(product):
    """The elements of the largest array of a product."""
    m, k, n = product.m, getattr(product, "k", None) or product.rows, product.n
    return max(m * k, k * n, m * n)


def main():
    parser = Parser(
        prog="study kernels", description="How fast are the matrix products of the benchmark's networks, plain and in tiles?"
    )
    parser.add_argument("--quick", action="store_true", help="leave out the networks whose steps take seconds")
    parser.add_argument("--rounds", type=whole(1), default=7, help="how often each way to compute a product is timed")
    parser.add_argument("--out", metavar="FILE.json", help="also write the seconds to this file")
    args = parser.parse_args()
    if args.out:
        with user_input():
            check_writable(args.out)
    table = kernels()
    for field, value in asdict(table).items():
        print(f"{field}: {value}")
    found = set().union(*(products(case) for case in SERIAL if not (args.quick and case.large)))
    rows = []
    for product in sorted(found, key=lambda product: (type(product).__name__, *asdict(product).values())):
        several = ways(product, table)
        if len(several) == 1 or elements(product) > LARGEST:
            continue
        seconds = times([type(product)(**asdict(product))], several.values(), args.rounds)
        rows.append({"product": type(product).__name__, **asdict(product),
                     "seconds": dict(zip(several, seconds))})  # fmt: skip
        print(line(product, rows[-1]["seconds"], choice(product, table)), flush=True)
    if args.out:
        here = {"processor": processor().name, "generation": generation(processor()), "blas": str(blas()), "table": table.name}
        report.write_json(args.out, here | {"products": rows})


def line(product, seconds, chosen):
    """A line of the table that is printed: GFLOP/s of each way. chosen: the way to mark."""
    sizes = list(asdict(product).values())
    work = 2 * np.prod([float(size) for size in sizes if not isinstance(size, str)])
    speeds = "  ".join(f"{name} {work / s / 1e9:.0f}{'*' * (name == chosen)}" for name, s in seconds.items())
    return f"{type(product).__name__:16} {' '.join(map(str, sizes)):40} {speeds}"


if __name__ == "__main__":
    run_launcher(main)
