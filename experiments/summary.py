"""Print what a network is made of: shapes, parameters, operations and bytes.

python -m experiments.summary --net vgg16 --batch-size 8
"""

from experiments.common.options import Parser, user_input, whole, whole_list
from experiments.common.published_networks import published
from nn import network_names, summary
from parallel.job.run import run_launcher


def main():
    parser = Parser(prog="summary", description="Print what a network is made of.")
    parser.add_argument("--net", default="vgg16", help=network_names.HELP)
    parser.add_argument(
        "--shape", type=whole_list, metavar="H,W,C", help="shape of a sample (default: as published, else 32,32,3)"
    )
    parser.add_argument("--outputs", type=whole(1), help="number of classes (default: 1000 for images of 224 pixels, else 10)")
    parser.add_argument("--batch-size", type=whole(1), default=1, metavar="B", help="samples in the minibatch")
    args = parser.parse_args()
    with user_input():
        net = published(args.net, args.shape, args.outputs)
        print(summary.table(net, net.input_shape, args.batch_size))


if __name__ == "__main__":
    run_launcher(main)
