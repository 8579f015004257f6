"""Print what networks are made of: shapes, parameters, operations and bytes. Or measure how fast they are on this core.

    gridgrad summary --net vgg16 --batch-size 8
    gridgrad summary --net resnet20 --batch-size 32 --measure
    gridgrad summary --net alexnet --net vgg16 --batch-size 4 --measure --out roofline.json
    gridgrad summary --net lenet5 --batch-size 64 --measure kernels --out kernels.json

`--measure` trains on made-up data and compares each pass of each layer with the limits of the core; `gridgrad plot roofline`
draws the file. `--measure kernels` compares the ways to compute each matrix product.
"""

from dataclasses import asdict, replace
from math import prod

import numpy as np

from gridgrad.experiments.common import report
from gridgrad.experiments.common.options import Parser, check_writable, user_input, whole
from gridgrad.experiments.common.problems import add_problem, minibatch, published
from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.common.tables import table as text_of
from gridgrad.experiments.common.train_setup import sample_bytes
from gridgrad.experiments.parts import summary_layers
from gridgrad.nn import SGD, SoftmaxCrossEntropy, network_summary
from gridgrad.nn.kernels import gemm, patches
from gridgrad.nn.kernels.kernel_table import NO_LIMIT, ORIENTATIONS, PLAIN, Tiles, generation, kernels
from gridgrad.nn.kernels.measure_table import SHAPES, ProductOverRows, TimedProduct, times
from gridgrad.nn.kernels.processor import blas, processor
from gridgrad.parallel.calibration.this_machine import memory_of_machine
from gridgrad.parallel.job.run import run_launcher

CUTS = [Tiles((NO_LIMIT,) * 3), *(Tiles(shapes=shapes, most_k=NO_LIMIT, most_k_few_rows=NO_LIMIT) for shapes in SHAPES)]
LARGEST = 1 << 26  # elements of an operand or a result
NAMES = {TimedProduct: "Product", ProductOverRows: "ProductOverRows"}  # what each is called in results
ROUNDS = 7  # how often each way to compute a product is timed by default


def options():
    parser = Parser(prog="summary", description="Print what a network is made of, or measure how fast its layers are.")
    add = parser.add_argument
    add_problem(parser, "vgg16", batch_size=1, several=True)
    add("--measure", nargs="?", const="layers", choices=["layers", "kernels"], help="layers (default): train on made-up data, "
        "compare each layer with the limits of the core; kernels: speeds of matrix products, plain and in tiles")  # fmt: skip
    add("--steps", type=whole(1), help="with --measure: how many training steps to time (default: those of three seconds), or "
        f"how often each way to compute a product (default: {ROUNDS})")  # fmt: skip
    add("--out", metavar="FILE.json", help="with --measure: also write the numbers, of layers for gridgrad plot roofline")
    return parser


def check_memory(net, batch_size):
    """Raise ValueError if the parameters, gradients, momentum and outputs of a Sequential need more memory than there is."""
    needed = 3 * net.dtype.itemsize * sum(p.size for leaf in net.leaves() for p in leaf.parameters)
    needed += batch_size * sample_bytes(net)
    if needed > memory_of_machine():
        raise ValueError(f"--measure trains the network, for which it needs {needed / 2**30:.3g} GiB, and the machine has "
                         f"{memory_of_machine() / 2**30:.3g}: give a smaller net or --batch-size")  # fmt: skip


# ----- --measure kernels: how fast the products of a training step are, which judges the table of kernels in use


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
    is_over_rows = isinstance(product, ProductOverRows)
    cuts = [{"group_rows": 1}] if is_over_rows else [{product.orientation: cut} for cut in CUTS]
    found = {}
    for one in (PLAIN, *(replace(PLAIN, **cut) for cut in cuts), table):
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


def measured_products(nets, batch_size, rounds=None):
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


def main():
    args = options().parse_args()
    with user_input():
        if not args.measure and (args.steps or args.out):
            raise ValueError(f"--{'steps' if args.steps else 'out'} needs --measure: without it, nothing is timed")
        nets = {name: published(name, args.shape, args.outputs) for name in args.net or ["vgg16"]}
        if not args.measure:
            print("\n\n".join(network_summary.table(net, net.input_shape, args.batch_size) for net in nets.values()))
            return
        for net in nets.values():
            check_memory(net, args.batch_size)
        if args.out and (threads := report.blas_threads()) > 1:
            raise ValueError(f"BLAS has {threads} threads, and --out is about one core: set OMP_NUM_THREADS=1")
        if args.out:
            check_writable(args.out)
    if args.measure == "kernels":
        found, text = measured_products(nets.values(), args.batch_size, args.steps)
    else:
        found, rows = summary_layers.measured(nets, args.batch_size, args.steps)
        text = summary_layers.text(found, rows, args.batch_size)
    print(text)
    if args.out:
        report.write_json(args.out, found)


if __name__ == "__main__":
    run_launcher(main)
