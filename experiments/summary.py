"""Print what a network is made of: shapes, parameters, operations and bytes. Or measure how fast its layers are.

gridgrad summary --net vgg16 --batch-size 8
gridgrad summary --net resnet20 --batch-size 32 --measure
"""

from gridgrad.experiments.common import layer_times
from gridgrad.experiments.common.options import Parser, add_problem, user_input, whole
from gridgrad.experiments.common.published_networks import published
from gridgrad.experiments.common.train_setup import sample_bytes
from gridgrad.nn import network_summary
from gridgrad.parallel.calibration.this_machine import memory_of_machine
from gridgrad.parallel.job.run import run_launcher


def options():
    parser = Parser(prog="summary", description="Print what a network is made of.")
    add_problem(parser, "vgg16", batch_size=1)
    words = "train on made-up data, and print how long each layer takes and how close it is to the limits of the machine"
    parser.add_argument("--measure", action="store_true", help=words)
    words = "with --measure: how many training steps to time (default: as many as take three seconds, and at least three)"
    parser.add_argument("--steps", type=whole(1), help=words)
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
        if args.steps and not args.measure:
            raise ValueError("--steps needs --measure: without it, nothing is timed")
        net = published(args.net, args.shape, args.outputs)
        if args.measure:
            check_memory(net, args.batch_size)
            print(layer_times.measured_table(net, args.batch_size, args.steps))
        else:
            print(network_summary.table(net, net.input_shape, args.batch_size))


if __name__ == "__main__":
    run_launcher(main)
