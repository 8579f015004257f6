"""One process of `reproduce hegde2016`, with its device and its number of BLAS threads. One line of JSON.

It holds {"versions", "convolution": rows, "dense": rows}. A row has the settings of a layer and "seconds", a list.
"""

import json

from gridgrad.experiments.common import report
from gridgrad.experiments.common.options import Parser, user_input, whole_list
from gridgrad.experiments.papers.hegde2016.times import convolution, dense
from gridgrad.nn import device
from gridgrad.parallel.job.run import run_launcher


def main():
    parser = Parser(prog="papers.hegde2016.job", description="One process of reproduce hegde2016.")
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
