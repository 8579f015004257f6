"""One process of `reproduce hegde2016`: the forward times of its layers on one device, with this process's BLAS threads.

Prints a line of JSON: {"versions", "convolution": rows, "dense": rows}. A row has the settings of a layer, and a list of
"seconds".
"""

import json

import numpy as np

from experiments.common import report
from experiments.common.options import Parser, user_input, whole_list
from experiments.common.timing import times_in_turns
from nn import Context, Conv2d, Linear, Sequential, device
from parallel.job.run import run_launcher

KERNELS, KERNEL, STRIDE, SIZE = 96, 11, 4, 224  # section 3.2.1
REPEATS = 2  # timings of each layer in a process


def forward(layer, shape, batch_size):
    """A function that does the forward pass of a layer on made-up samples, and waits for the device."""
    net = Sequential([layer], input_shape=shape)
    net.allocate()
    x = device.to_device(np.random.default_rng(0).standard_normal((batch_size, *shape), np.float32))
    context = Context(training=False, batch_size=batch_size)

    def run():
        layer.forward(x, context)
        device.synchronise()

    return run


def convolution(channels, batch_sizes):
    """Rows of the convolution of images with so many channels."""
    shape = SIZE, SIZE, channels
    make = lambda batch_size: forward(Conv2d(channels, KERNELS, KERNEL, STRIDE), shape, batch_size)  # noqa: E731
    return [{"channels": channels, "batch": size, "seconds": timed(make(size))} for size in batch_sizes]


def dense(batch_size, sizes):
    """Rows of fully connected layers of n inputs and n outputs, on so many samples."""
    make = lambda n: forward(Linear(n, n), (n,), batch_size)  # noqa: E731
    return [{"batch": batch_size, "n": n, "seconds": timed(make(n))} for n in sizes]


def timed(action):
    """REPEATS timings of a function."""
    return times_in_turns({"forward": action}, REPEATS)["forward"]


def main():
    parser = Parser(prog="hegde2016_times", description="One process of reproduce hegde2016.")
    add = parser.add_argument
    add("--device", required=True, choices=("cpu", "gpu"), help="where arrays are kept")
    add("--channels", required=True, type=whole_list, metavar="C,C,..", help="channels of the images")
    add("--batch-sizes", required=True, type=whole_list, metavar="B,B,..", help="images of the convolution")
    add("--samples", required=True, type=whole_list, metavar="B,B,..", help="samples of the fully connected layers")
    add("--sizes", required=True, type=whole_list, metavar="N,N,..", help="inputs and outputs of the fully connected layers")
    args = parser.parse_args()
    with user_input():
        device.use(args.device)
    found = {
        "versions": report.versions(),
        "convolution": [row for channels in args.channels for row in convolution(channels, args.batch_sizes)],
        "dense": [row for samples in args.samples for row in dense(samples, args.sizes)],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    run_launcher(main)
