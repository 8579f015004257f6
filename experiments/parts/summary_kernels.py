"""What `summary --measure kernels` measures: how fast the matrix products of a training step are, plain and in tiles.

It judges the table of kernels in use (`nn/kernels/kernel_table.py`): for each product that can be cut, the speed of the plain
call, of the way that the table chooses and of the fastest way.
"""

from dataclasses import asdict, replace
from math import prod

import numpy as np

from gridgrad.experiments.common.made_up_data import minibatch
from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.common.tables import table as text_of
from gridgrad.nn import SGD, SoftmaxCrossEntropy
from gridgrad.nn.kernels import gemm, patches
from gridgrad.nn.kernels.kernel_table import NO_LIMIT, ORIENTATIONS, PLAIN, Tiles, generation, kernels
from gridgrad.nn.kernels.measure_table import SHAPES, ProductOverRows, TimedProduct, times
from gridgrad.nn.kernels.processor import blas, processor

CUTS = [Tiles((NO_LIMIT,) * 3), *(Tiles(shapes=shapes, most_k=NO_LIMIT, most_k_few_rows=NO_LIMIT) for shapes in SHAPES)]
LARGEST = 1 << 26  # elements of an operand or a result
NAMES = {TimedProduct: "Product", ProductOverRows: "ProductOverRows"}  # what each is called in results
ROUNDS = 7  # how often each way to compute a product is timed by default


def products(net, batch_size):
    """The products, of the kinds of NAMES, that a training step of a Sequential computes: a set. Nothing is computed."""
    from unittest.mock import patch  # here, because it takes long to import

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

    x, y = minibatch(net.input_shape, prod(net.output_shape(net.input_shape)), batch_size)
    with patch.object(gemm, "_large_product", see), patch.object(patches, "product_over_rows", see_rows):
        net.learn(x, y, SoftmaxCrossEntropy(), SGD(net, 1.0))
    return found


def ways(product, table):
    """{name: a table that computes a product this way}, the plain call first. They include the way that `table` chooses. The
    names are "plain", tiles such as "16x64", and "groups"."""
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
    *_, m, k, n = asdict(product).values()
    return max(m * k, k * n, m * n)


def measured(nets, batch_size, rounds=None):
    """({"processor", "generation", "blas", "table", "products": seconds of each way}, the same as a text table)."""
    table, rows, shown = kernels(), [], []
    found = set().union(*(products(net, batch_size) for net in nets))
    found = sorted(found, key=lambda product: (NAMES[type(product)], *asdict(product).values()))
    found = [product for product in found if len(ways(product, table)) > 1 and elements(product) <= LARGEST]
    for product in progress(found, "products"):
        *words, m, k, n = asdict(product).values()
        several, chosen, name = ways(product, table), choice(product, table), NAMES[type(product)]
        seconds = dict(zip(several, times([type(product)(**asdict(product))], several.values(), rounds or ROUNDS)))
        rows.append({"product": name, **asdict(product), "seconds": seconds})
        speeds, fastest = {way: 2e-9 * m * k * n / of for way, of in seconds.items()}, min(seconds, key=seconds.get)
        shown.append({
            "product": " ".join([name, *words]), "sizes": f"{m} {k} {n}", "plain GFLOP/s": speeds["plain"],
            "the table's way": chosen, "GFLOP/s": speeds[chosen], "fastest way": fastest, "its GFLOP/s": speeds[fastest],
        })  # fmt: skip
    here = {"processor": processor().title, "generation": generation(processor()), "blas": str(blas()), "table": table.name}
    said = text_of(shown) if shown else "there is no product that can be cut"
    return here | {"products": rows}, f"the ways to compute a product are those of the table {table.name}\n\n{said}"
