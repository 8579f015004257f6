"""The most memory that two training steps of a network take, as one line of JSON: what `bench` runs for both sides.

gridgrad benchmarks.peak_memory --net vgg16 --shape 224,224,3 --outputs 1000 --batch-size 8

It is the peak above what the process held before the network was made. The interpreter and the libraries are then loaded, and
have been warmed up by a small network, so that what they keep for themselves does not count.
"""

import json

from gridgrad.experiments.benchmarks.bench_serial import our_step
from gridgrad.experiments.common import report
from gridgrad.experiments.common.made_up_data import minibatch
from gridgrad.experiments.common.options import Parser, add_problem, user_input
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.job.run import UserError, run_launcher

STEPS = 2  # the second has the gradients and the momentum of the first
SMALL = "lenet5", (28, 28, 1), 10, 1  # the network that warms the libraries up: name, shape, outputs, batch size


def main():
    parser = Parser(prog="peak_memory", description="Measure the peak memory of training steps on made-up data.")
    add_problem(parser, "vgg16", [224, 224, 3], outputs=1000, batch_size=8)
    parser.add_argument("--peer", action="store_true", help="measure PyTorch's network instead of ours")
    args = parser.parse_args()
    make_step = peer_side() if args.peer else our_step
    with user_input():
        network_names.build(args.net, args.shape, args.outputs)  # it takes no memory, and says what is wrong
    train(make_step, *SMALL)
    before = held("VmRSS")
    train(make_step, args.net, args.shape, args.outputs, args.batch_size)
    print(json.dumps({"bytes": held("VmHWM") - before}))


def train(make_step, net, shape, outputs, batch_size):
    """Train a new network for some steps."""
    net = network_names.build(net, shape, outputs)
    step = make_step(net, *minibatch(net.input_shape, outputs, batch_size), "cross-entropy")
    for _ in range(STEPS):
        step()


def peer_side():
    """A function like `our_step` of PyTorch's network of the same layers, with weights of its own: ours take no memory."""
    try:
        from gridgrad.experiments.benchmarks import torch_peer
    except ImportError:
        raise UserError("PyTorch is not installed here: run `make peers`, which installs it") from None
    return lambda net, *data: torch_peer.step(torch_peer.chain(net.layers), *data)


def held(field):
    """The bytes that this process holds ("VmRSS") or has held at the most ("VmHWM"), as Linux counts them.

    The peak that `resource.getrusage` knows may be that of the program which started this one. Elsewhere than on Linux it has
    to do.
    """
    try:
        with open("/proc/self/status") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith(f"{field}:"))
    except OSError:
        return report.peak_memory()


if __name__ == "__main__":
    run_launcher(main)
