"""The most memory that two training steps of a network hold, as one line of JSON: what `bench` runs for both sides.

python -m experiments.benchmarks.peak_memory --net vgg16 --shape 224,224,3 --outputs 1000 --batch-size 8
"""

import json

from experiments.benchmarks.bench_serial import our_step
from experiments.common import report
from experiments.common.made_up_data import minibatch
from experiments.common.options import Parser, add_problem, user_input
from nn import network_names
from parallel.job.run import UserError, run_launcher

STEPS = 2  # the second has the gradients and the momentum of the first


def main():
    parser = Parser(prog="peak_memory", description="Measure the peak memory of training steps on made-up data.")
    add_problem(parser, "vgg16", [224, 224, 3], outputs=1000, batch_size=8)
    parser.add_argument("--peer", action="store_true", help="measure PyTorch's network instead of ours")
    args = parser.parse_args()
    with user_input():
        net = network_names.build(args.net, args.shape, args.outputs)
    x, y = minibatch(net.input_shape, args.outputs, args.batch_size)
    step = peer_step(net, x, y) if args.peer else our_step(net, x, y, "cross-entropy")
    for _ in range(STEPS):
        step()
    print(json.dumps({"bytes": report.peak_memory()}))


def peer_step(net, x, y):
    """PyTorch's step of the same layers, with weights of its own: ours take no memory."""
    try:
        from experiments.benchmarks import torch_peer
    except ImportError:
        raise UserError("PyTorch is not installed here: run `make peers`, which installs it") from None
    return torch_peer.step(torch_peer.chain(net.layers), x, y, "cross-entropy")


if __name__ == "__main__":
    run_launcher(main)
