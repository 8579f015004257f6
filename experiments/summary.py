"""Print what networks are made of: shapes, parameters, operations and bytes. Or measure how fast they are on this core.

    gridgrad summary --net vgg16 --batch-size 8
    gridgrad summary --net resnet20 --batch-size 32 --measure
    gridgrad summary --net alexnet --net vgg16 --batch-size 4 --measure --out roofline.json
    gridgrad summary --net lenet5 --batch-size 64 --measure kernels --out kernels.json

`--measure` trains on made-up data and compares each pass of each layer with the limits of the core; `gridgrad plot roofline`
draws the file. `--measure kernels` compares the ways to compute each matrix product.
"""

from gridgrad.experiments.common import report
from gridgrad.experiments.common.options import Parser, add_problem, check_writable, user_input, whole
from gridgrad.experiments.common.published_networks import published
from gridgrad.experiments.common.train_setup import sample_bytes
from gridgrad.experiments.parts import summary_kernels, summary_layers
from gridgrad.nn import network_summary
from gridgrad.parallel.calibration.this_machine import memory_of_machine
from gridgrad.parallel.job.run import run_launcher


def options():
    parser = Parser(prog="summary", description="Print what a network is made of, or measure how fast its layers are.")
    add = parser.add_argument
    add_problem(parser, "vgg16", batch_size=1, several=True)
    add("--measure", nargs="?", const="layers", choices=["layers", "kernels"], help="layers (default): train on made-up data, "
        "compare each layer with the limits of the core; kernels: speeds of matrix products, plain and in tiles")  # fmt: skip
    add("--steps", type=whole(1), help="with --measure: how many training steps to time (default: those of three seconds), or "
        f"how often each way to compute a product (default: {summary_kernels.ROUNDS})")  # fmt: skip
    add("--out", metavar="FILE.json", help="with --measure: also write the numbers, of layers for gridgrad plot roofline")
    return parser


def check_memory(net, batch_size):
    """Raise ValueError if the parameters, gradients, momentum and outputs of a Sequential need more memory than there is."""
    needed = 3 * net.dtype.itemsize * sum(p.size for leaf in net.leaves() for p in leaf.parameters)
    needed += batch_size * sample_bytes(net)
    if needed > memory_of_machine():
        raise ValueError(f"--measure trains the network, for which it needs {needed / 2**30:.3g} GiB, and the machine has "
                         f"{memory_of_machine() / 2**30:.3g}: give a smaller net or --batch-size")  # fmt: skip


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
        found, text = summary_kernels.measured(nets.values(), args.batch_size, args.steps)
    else:
        found, rows = summary_layers.measured(nets, args.batch_size, args.steps)
        text = summary_layers.text(found, rows, args.batch_size)
    print(text)
    if args.out:
        report.write_json(args.out, found)


if __name__ == "__main__":
    run_launcher(main)
