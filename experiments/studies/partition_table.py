"""Partition published networks for several numbers of ranks, and write one table of what that costs. Starts no job.

    gridgrad study partition-table --out results/partitions.md

For each network, grain and number of ranks: what a training step sends under the partition that `--plan hypergraph` would find,
beside the same under a horizontal partition, which divides every layer evenly, and under data parallelism.
"""

from tqdm import tqdm

from gridgrad.experiments.common import report
from gridgrad.experiments.common.markdown import lines
from gridgrad.experiments.common.options import Parser, check_writable, user_input, whole, whole_list
from gridgrad.experiments.common.published_networks import published
from gridgrad.experiments.common.tables import table
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.job.run import run_launcher
from gridgrad.parallel.partitioning import naive
from gridgrad.parallel.partitioning.good_partition import partition
from gridgrad.parallel.partitioning.network_hypergraph import GRAINS, measure, of_network

NETS = "alexnet", "resnet18", "resnet20", "googlenet"


def rows(nets, ranks, batch_size):
    """Yield a dict for each network, grain and number of ranks."""
    for name in nets:
        net = published(name, None, None, "float32")
        step = 2 * batch_size * net.dtype.itemsize / 2**20  # MiB of an element of a sample, forward and backward
        simple = of_network(net)
        for grain in GRAINS:
            model = of_network(net, grain, None, None)
            for number in ranks:
                found = measure(model, model.parts(partition(net, number, grain)), number)
                even = measure(simple, naive.horizontal(simple, number), number)
                yield {
                    "network": name, "grain": grain, "ranks": number, "max/avg": float(found.work.max()),
                    "MiB": found.volume * step, "messages": 2 * found.messages, "most of a rank": found.most_moved * step,
                    "MiB, horizontal": even.volume * step,
                    "MiB, data parallel": 2 * (number - 1) * net.size * net.dtype.itemsize / 2**20,
                }  # fmt: skip


def document(found, batch_size):
    """The table as Markdown, with its introduction."""
    return f"""# Partitions of published networks

Written by `gridgrad study partition-table`. What all ranks together send in a training step of {batch_size} samples,
forward and backward, in MiB of float32. max/avg is the work of the busiest rank over the mean. "most of a rank" is what the
rank sends that sends the most. A fine grain divides the convolutions alone.

{lines(found)}
"""


def options():
    parser = Parser(prog="study partition-table", description="What do partitions of published networks send and compute?")
    parser.add_argument("--nets", nargs="+", default=NETS, metavar="NET", help=network_names.HELP)
    parser.add_argument("--ranks", type=whole_list, default=[2, 4, 8, 16], metavar="P,P,..", help="numbers of ranks")
    parser.add_argument("--batch-size", type=whole(1), default=32, metavar="B", help="samples in a minibatch")
    parser.add_argument("--out", default="results/partitions.md", metavar="FILE.md", help="the file that is written")
    return parser


def main():
    args = options().parse_args()
    with user_input():
        check_writable(args.out)
        total = len(args.nets) * len(GRAINS) * len(args.ranks)
        found = list(tqdm(rows(args.nets, args.ranks, args.batch_size), total=total, unit=" partitions", delay=2, disable=None))
        report.write_text(args.out, document(found, args.batch_size))
    print(f"{table(found)}\nwritten to {args.out}")


if __name__ == "__main__":
    run_launcher(main)
