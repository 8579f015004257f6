"""A training problem without a data set: the options that describe it, its network, and a minibatch of random numbers."""

import numpy as np

from gridgrad.experiments.common.options import network, of_parallelize, whole, whole_list
from gridgrad.nn.device import to_device
from gridgrad.nn.zoo import network_names

# Shapes of samples as published, where they are not 32,32,3.
SHAPES = dict.fromkeys(("alexnet", "vgg16", "resnet18", "googlenet"), (224, 224, 3))
SHAPES |= dict.fromkeys(("mnist-cnn", "lenet5"), (28, 28, 1)) | dict.fromkeys(("mlp2", "mlp3"), (32, 32, 1))


def add_problem(parser, net, shape=None, outputs=None, batch_size=None, several=False):
    """Add --net, which is a list if `several`, --shape, --outputs and --batch-size to a program that needs no data set."""
    add, published = parser.add_argument, "" if shape else " (default: as published, else 32,32,3)"
    if several:
        words = f"{network_names.HELP}; may be given several times (default: {net})"
        add("--net", type=network, action="append", help=words)
    else:
        add("--net", type=network, default=net, help=network_names.HELP)
    add("--shape", type=whole_list, default=shape, help=f"shape of a sample: FEATURES, or HEIGHT,WIDTH,CHANNELS{published}")
    classes = "" if outputs else " (default: 1000 for images of 224 pixels, else 10)"
    add("--outputs", type=whole(1), default=outputs, help=f"number of outputs, or classes{classes}")
    add("--batch-size", type=whole(1), default=batch_size, metavar="B", help=of_parallelize("batch_size"))


def published(net, shape=None, outputs=None, dtype="float32"):
    """The network of a spec, for samples of the published shape and for as many classes where nothing else is said."""
    shape = shape or SHAPES.get(net.partition(",")[0], (32, 32, 3))
    return network_names.build(net, tuple(shape), outputs or (1000 if shape[0] == 224 else 10), dtype=dtype)


def minibatch(shape, outputs, batch_size, loss="cross-entropy"):
    """(x, y) of made-up samples of `shape`: y are labels below `outputs` or, for "mse", `outputs` values for each sample."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((batch_size, *shape), np.float32)
    if loss == "mse":
        return x, rng.standard_normal((batch_size, outputs), np.float32)
    return x, rng.integers(0, outputs, batch_size)


def own_block(net, x, y):
    """The part of a global minibatch on the host that a rank of a ParallelSequential trains on, on its device."""
    mine, outputs = net.input_block(len(x)), net.output_rows(len(x))
    return to_device(np.ascontiguousarray(x[mine])), to_device(y[outputs])
