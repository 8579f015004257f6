"""Measure how fast the matrix products of the benchmark's networks are, plain and in tiles, to judge the table of kernels.

    gridgrad study kernels

It prints the table in use (see `nn/kernels/kernel_table.py`) and, for each product, the speed of the plain call, of the way
that the table chooses and of the fastest way. Products that can not be cut are left out.
"""

from dataclasses import asdict, replace
from unittest.mock import patch

import numpy as np

from gridgrad.experiments.benchmarks.cases import SERIAL
from gridgrad.experiments.common import report
from gridgrad.experiments.common.made_up_data import minibatch
from gridgrad.experiments.common.options import Parser, check_writable, user_input, whole
from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.common.tables import table as text_of
from gridgrad.nn import LOSSES, SGD
from gridgrad.nn.kernels import gemm, patches
from gridgrad.nn.kernels.kernel_table import NO_LIMIT, ORIENTATIONS, PLAIN, Tiles, generation, kernels
from gridgrad.nn.kernels.measure_table import SHAPES, ProductOverRows, TimedProduct, times
from gridgrad.nn.kernels.processor import blas, processor
from gridgrad.parallel.job.run import run_launcher

CUTS = [Tiles((NO_LIMIT,) * 3), *(Tiles(shapes=shapes, most_k=NO_LIMIT, most_k_few_rows=NO_LIMIT) for shapes in SHAPES)]
LARGEST = 1 << 26  # elements of an operand or a result
NAMES = {TimedProduct: "Product", ProductOverRows: "ProductOverRows"}  # what each is called in results


def products(case):
    """The products, of the kinds of NAMES, that a training step of a Case computes: a set. Nothing is computed."""
    found = set()

    def see(a, b, out):
        if a.dtype == np.float32:
            transposed = (not a.flags.c_contiguous) + 2 * (not b.flags.c_contiguous)
            if transposed < len(ORIENTATIONS):
                found.add(TimedProduct(ORIENTATIONS[transposed], *a.shape, b.shape[1]))
        out.fill(0)
        return out

    def see_rows(a, b, out, progress=None):
        found.add(ProductOverRows(*a.shape, b.shape[1]))
        out.fill(0)
        return out

    net = case.network()
    x, y = minibatch(net.input_shape, case.outputs, case.batch_size, case.loss)
    with patch.object(gemm, "_large_product", see), patch.object(patches, "product_over_rows", see_rows):
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


def options():
    parser = Parser(
        prog="study kernels", description="How fast are the matrix products of the benchmark's networks, plain and in tiles?"
    )
    parser.add_argument("--quick", action="store_true", help="leave out the networks whose steps take seconds")
    parser.add_argument("--rounds", type=whole(1), default=7, help="how often each way to compute a product is timed")
    parser.add_argument("--out", metavar="FILE.json", help="also write the seconds to this file")
    return parser


def main():
    args = options().parse_args()
    if args.out:
        with user_input():
            check_writable(args.out)
    table, rows, shown = kernels(), [], []
    print(f"the ways to compute a product are those of the table {table.name}")
    found = set().union(*(products(case) for case in SERIAL if not (args.quick and case.large)))
    found = sorted(found, key=lambda product: (NAMES[type(product)], *asdict(product).values()))
    found = [product for product in found if len(ways(product, table)) > 1 and elements(product) <= LARGEST]
    for product in progress(found, "products"):
        several = ways(product, table)
        seconds = dict(zip(several, times([type(product)(**asdict(product))], several.values(), args.rounds)))
        rows.append({"product": NAMES[type(product)], **asdict(product), "seconds": seconds})
        shown.append(cells(product, seconds, choice(product, table)))
    print(text_of(shown) if shown else "there is no product that can be cut")
    if args.out:
        here = {"processor": processor().title, "generation": generation(processor()), "blas": str(blas()), "table": table.name}
        report.write_json(args.out, here | {"products": rows})


def cells(product, seconds, chosen):
    """The row of the table that is printed. chosen: the way that the table of kernels chooses."""
    *words, m, k, n = asdict(product).values()
    speed = lambda name: 2e-9 * m * k * n / seconds[name]  # noqa: E731
    fastest = min(seconds, key=seconds.get)
    return {
        "product": " ".join([NAMES[type(product)], *words]), "sizes": f"{m} {k} {n}", "plain GFLOP/s": speed("plain"),
        "the table's way": chosen, "GFLOP/s": speed(chosen), "fastest way": fastest, "its GFLOP/s": speed(fastest),
    }  # fmt: skip


if __name__ == "__main__":
    run_launcher(main)
