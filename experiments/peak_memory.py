"""The most memory that two training steps of a network hold, as one line of JSON: what `bench` runs for both sides.

python -m experiments.peak_memory --net vgg16 --shape 224,224,3 --outputs 1000 --batch-size 8
"""

import json

import numpy as np

from experiments import report
from experiments.bench_serial import our_step
from experiments.options import Parser, user_input, whole, whole_list
from nn import specs
from parallel.job import UserError, run_launcher

STEPS = 2  # the second has the gradients and the momentum of the first


def main():
    parser = Parser(prog="peak_memory", description="Measure the peak memory of training steps on made-up data.")
    parser.add_argument("--net", default="vgg16", help=specs.HELP)
    shape = "of a sample: features, or HEIGHT,WIDTH,CHANNELS"
    parser.add_argument("--shape", type=whole_list, default=[224, 224, 3], metavar="SHAPE", help=shape)
    parser.add_argument("--outputs", type=whole(1), default=1000, help="classes")
    parser.add_argument("--batch-size", type=whole(1), default=8, help="samples of a minibatch")
    parser.add_argument("--peer", action="store_true", help="of PyTorch's network, not of ours")
    args = parser.parse_args()
    with user_input():
        net = specs.build(args.net, args.shape, args.outputs)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((args.batch_size, *net.input_shape), np.float32)
    y = rng.integers(0, args.outputs, args.batch_size)
    step = peer_step(net, x, y) if args.peer else our_step(net, x, y, "cross-entropy")
    for _ in range(STEPS):
        step()
    print(json.dumps({"bytes": report.peak_memory()}))


def peer_step(net, x, y):
    """PyTorch's step of the same layers, with weights of its own: ours take no memory."""
    try:
        from experiments import torch_peer
    except ImportError:
        raise UserError("PyTorch is not installed here: run `make peers`, which installs it") from None
    return torch_peer.step(torch_peer.chain(net.layers), x, y, "cross-entropy")


if __name__ == "__main__":
    run_launcher(main)
