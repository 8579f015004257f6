"""Print what a network is made of: shapes, parameters, operations and bytes.

python -m experiments.summary --net vgg16 --batch-size 8
"""

from experiments.common.options import Parser, user_input, whole, whole_list
from nn import summary
from nn import network_names
from parallel.job.run import run_launcher

# As published, where that is not 32,32,3.
SHAPES = dict.fromkeys(("alexnet", "vgg16", "resnet18"), "224,224,3") | dict.fromkeys(("mnist-cnn", "lenet5"), "28,28,1")
SHAPES |= dict.fromkeys(("mlp2", "mlp3"), "32,32,1")


def published(net, shape=None, outputs=None, dtype="float32"):
    """The network of a spec, for samples of the published shape and for as many classes where nothing else is said."""
    shape = shape or whole_list(SHAPES.get(net.partition(",")[0], "32,32,3"))
    return network_names.build(net, tuple(shape), outputs or (1000 if shape[0] == 224 else 10), dtype=dtype)


def main():
    parser = Parser(prog="summary", description="Print what a network is made of.")
    parser.add_argument("--net", default="vgg16", help=network_names.HELP)
    parser.add_argument("--shape", type=whole_list, metavar="H,W,C", help="of a sample (default: as published, else 32,32,3)")
    parser.add_argument("--outputs", type=whole(1), help="classes (default: 1000 for images of 224 pixels, else 10)")
    parser.add_argument("--batch-size", type=whole(1), default=1, metavar="B", help="samples")
    args = parser.parse_args()
    with user_input():
        net = published(args.net, args.shape, args.outputs)
        print(summary.table(net, net.input_shape, args.batch_size))


if __name__ == "__main__":
    run_launcher(main)
