"""One process of `reproduce hegde2016`, which times layers of section 3 with its device and its number of BLAS threads.

It prints one line of JSON, {"versions", "convolution": rows, "dense": rows}. A row has the settings of a layer and "seconds".
"""

import json

import numpy as np

from gridgrad.experiments.common import report
from gridgrad.experiments.common.options import Parser, user_input, whole_list
from gridgrad.nn import Context, Conv2d, Linear, Sequential, device
from gridgrad.parallel.calibration.timing import times_in_turns
from gridgrad.parallel.job.run import run_launcher

KERNELS, KERNEL, STRIDE, SIZE = 96, 11, 4, 224  # of section 3.2.1
REPEATS = 2  # timings of each layer in a process


def convolution(channels, batch_size):
    """The seconds of the convolution of so many images, a list of REPEATS."""
    return seconds(Conv2d(channels, KERNELS, KERNEL, STRIDE), (SIZE, SIZE, channels), batch_size)


def dense(batch_size, n):
    """The seconds of a fully connected layer of n inputs and n outputs, a list of REPEATS."""
    return seconds(Linear(n, n), (n,), batch_size)


def seconds(layer, shape, batch_size):
    """The seconds of REPEATS forward passes of a layer on made-up samples."""
    net = Sequential([layer], input_shape=shape)
    net.allocate()
    x = device.to_device(np.random.default_rng(0).standard_normal((batch_size, *shape), np.float32))
    context = Context(training=False, batch_size=batch_size)

    def forward():
        layer.forward(x, context)
        device.synchronise()

    return times_in_turns({"forward": forward}, REPEATS)["forward"]


def main():
    parser = Parser(prog="papers.hegde2016_job", description="One process of reproduce hegde2016.")
    add = parser.add_argument
    add("--device", required=True, choices=("cpu", "gpu"), help="where arrays are kept")
    add("--channels", required=True, type=whole_list, metavar="C,C,..", help="channels of the images")
    add("--batch-sizes", required=True, type=whole_list, metavar="B,B,..", help="images of the convolution")
    add("--samples", required=True, type=whole_list, metavar="B,B,..", help="samples of the fully connected layers")
    add("--sizes", required=True, type=whole_list, metavar="N,N,..", help="inputs and outputs of the fully connected layers")
    args = parser.parse_args()
    with user_input():
        device.use(args.device)
    images = [(channels, size) for channels in args.channels for size in args.batch_sizes]
    layers = [(samples, n) for samples in args.samples for n in args.sizes]
    found = {
        "versions": report.versions(),
        "convolution": [{"channels": c, "batch": size, "seconds": convolution(c, size)} for c, size in images],
        "dense": [{"batch": samples, "n": n, "seconds": dense(samples, n)} for samples, n in layers],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    run_launcher(main)
