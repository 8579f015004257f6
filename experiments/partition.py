"""Divide the filters of a network among ranks so that little has to be sent, and print what the division costs. Starts no job.

    gridgrad partition --net vgg16 --ranks 4 --grain coarse --out owners.h5
    gridgrad partition --table results/partitions.md

The owners that it writes are executed by `gridgrad train --plan owners.h5`. See `parallel/partitioning`.
"""

from collections import Counter
from contextlib import suppress
from itertools import product
from pathlib import Path

from tqdm import tqdm

from gridgrad.experiments.common.options import (
    Parser,
    add_problem,
    check_writable,
    network,
    number,
    number_list,
    user_input,
    whole,
    whole_list,
)
from gridgrad.experiments.common.published_networks import published
from gridgrad.experiments.common.report import write_text
from gridgrad.experiments.common.tables import counted, lines, table
from gridgrad.experiments.parts.partition_files import SCHEMES, read_parts, write_hypergraph
from gridgrad.experiments.parts.partition_nodes import between_nodes, map_to_nodes
from gridgrad.nn.arguments import did_you_mean
from gridgrad.nn.files.documents import AT_LEAST_0, TEXT, check, content_of
from gridgrad.nn.files.limits import read_limited
from gridgrad.nn.files.whole_files import written_whole
from gridgrad.nn.network_summary import aligned
from gridgrad.parallel.job.run import run_launcher
from gridgrad.parallel.observe.span_observer import METHODS as METHODS_OF_LAYERS
from gridgrad.parallel.partitioning import mt_kahypar, naive
from gridgrad.parallel.partitioning.good_partition import SUFFIX, partition, write_owners
from gridgrad.parallel.partitioning.network_hypergraph import GRAINS, OBJECTIVES, measure, of_network

DEFAULT = "hypergraph"
METHODS = (DEFAULT, *naive.METHODS)
RANKS, MOST_RANKS = [2, 4, 8, 16], 4096  # the ranks of a table
NEURON_BLOCKS = 64  # the most of a dense layer that are vertices of the hypergraph in which methods look for a partition
NETS = "alexnet", "resnet18", "resnet20", "googlenet"
TABLE = """# Partitions of published networks

Written by `gridgrad partition --table`. What all ranks together send in a training step of {} samples,
forward and backward, in MiB of float32. max/avg is the work of the busiest rank over the mean. "most of a rank" is what the
rank sends that sends the most. A fine grain divides the convolutions alone.

{}
"""

SHORT = ("net", "shape", "outputs", "batch_size", "ranks", "method", "speeds", "ranks_per_node", "compare", "out")


def options():
    parser = Parser(prog="partition", description="Divide the filters of a network among ranks so that little has to be sent.",
                    short=SHORT)  # fmt: skip
    add = parser.add_argument
    add_problem(parser, "vgg16", batch_size=32)
    add("--dtype", default="float32", choices=("float32", "float64"), help="type of all arrays")
    add("--ranks", type=whole_list, metavar="P", help="number of ranks, of --table several (default: 4, of --table 2,4,8,16)")
    add("--grain", default="coarse", choices=GRAINS, help="coarse: a filter or neuron is at one rank; fine: the channels of a "
        "filter may be at several ranks")  # fmt: skip
    add("--method", default=DEFAULT, help=f"how the work is divided: {', '.join(METHODS)}, or a FILE in which another program "
        "has written a number for each vertex of the hypergraph of --out")  # fmt: skip
    add("--objective", default="volume", choices=tuple(OBJECTIVES), help="what --method hypergraph minimises; largest: of a "
        "rank")  # fmt: skip
    add("--epsilon", type=number(least=0), default=0.1, metavar="E", help="the part of its share by which a rank may be too "
        "large")  # fmt: skip
    add("--profile", metavar="REPORT.json", help="weigh the filters by the seconds of their layers in this report of train "
        "--profile (default: by operations)")  # fmt: skip
    add("--speeds", type=number_list, metavar="W,W,..", help="shares of the ranks, one number each (default: equal ones)")
    add("--seed", type=whole(0, 2**31 - 1), default=0, help="of random choices")
    add("--ranks-per-node", type=whole(1), metavar="K", help="ranks on a node of the cluster: parts that exchange much are put "
        "on the same node")  # fmt: skip
    add("--compare", action="store_true", help="print all methods, and what data parallelism sends")
    add("--out", action="append", default=[], metavar="FILE", help=f"write owners to FILE{SUFFIX}, for train --plan, or the "
        "hypergraph to FILE.patoh (PaToH) or FILE.hgr (hMETIS); may be repeated")  # fmt: skip
    add("--table", metavar="FILE.md", help="instead write a table of what partitions of --nets send in both grains, beside "
        "horizontal ones and data parallelism")  # fmt: skip
    add("--nets", nargs="+", type=network, default=NETS, metavar="NET", help="of --table")
    return parser


def profiled(path, net):
    """{layer name: seconds of a step} in a report of train. ValueError if it has none, or is of another network than `net`."""
    try:
        report = content_of(read_limited(path))
        check(report, {"net": TEXT, "layers": [{"layer": TEXT} | dict.fromkeys(METHODS_OF_LAYERS, AT_LEAST_0)]})
        rows = report["layers"]
    except ValueError as error:
        raise ValueError(f"{path} has no seconds of layers ({error}): write it by train --profile --report {path}") from None
    if report["net"] != net:
        raise ValueError(f"{path} has the seconds of {report['net']}: write it by train --net {net} --profile --report {path}")
    found = Counter()
    for row in rows:
        found[row["layer"]] += sum(row[method] for method in METHODS_OF_LAYERS)
    return dict(found)


def divided(method, model, net, seconds, args):
    """(the NetworkHypergraph that a method divides, the part of each vertex).

    model: with NEURON_BLOCKS. seconds: of the layers, from --profile, or None.
    """
    if method == DEFAULT:
        owners = partition(net, args.ranks, args.grain, args.speeds, epsilon=args.epsilon, objective=args.objective,
                           seed=args.seed, seconds=seconds, neuron_blocks=NEURON_BLOCKS)  # fmt: skip
        model = of_network(net, args.grain, None, None, seconds)  # the owners may divide any block of neurons
        parts = model.parts(owners)
    elif method not in METHODS:
        parts = model.hypergraph.check_parts(read_parts(method, model.hypergraph.vertices), args.ranks)
    elif method == "random":
        parts = naive.random(model, args.ranks, args.speeds, args.seed)
    else:
        parts = naive.METHODS[method](model, args.ranks, args.speeds)
    if args.ranks_per_node:
        moved = model.hypergraph.traffic(parts, args.ranks).sum(axis=0)
        parts = map_to_nodes(moved, args.ranks_per_node, args.speeds)[parts]
    return model, parts


def row(method, model, parts, found, args, itemsize):
    """The cells of the table for a partition. found: its Measures."""
    step = 2 * args.batch_size * itemsize / 2**20  # MiB of an element of a sample, forward and backward
    cells = [method, f"{found.work.max():.3f}", f"{found.work.min():.3f}", f"{found.volume * step:.4g}",
             "" if found.star is None else f"{found.star * step:.4g}", f"{found.largest_array * step:.4g}",
             str(2 * found.messages), f"{found.most_moved * step:.4g}"]  # fmt: skip
    if args.ranks_per_node:
        moved = model.hypergraph.traffic(parts, args.ranks).sum(axis=0)
        cells.append(f"{between_nodes(moved, range(args.ranks), args.ranks_per_node) * step:.4g}")
    return cells


def report(net, chosen, partitions, args):
    """The lines that are printed. chosen: a method. partitions: {method: (its NetworkHypergraph, the part of each vertex)}."""
    graph = partitions[chosen][0].hypergraph
    yield f"{args.net}, batch {args.batch_size}, on {counted(args.ranks, 'rank')}, {args.grain} grain: "\
          f"{graph.vertices:,} vertices, {graph.nets:,} nets, {len(graph.pins):,} pins"  # fmt: skip
    heads = ["method", "max work", "min work", "MiB sent", "by roots", "largest array", "messages", "most of a rank"]
    heads += ["between nodes"] if args.ranks_per_node else []
    measures = {method: measure(model, parts, args.ranks, args.speeds) for method, (model, parts) in partitions.items()}
    rows = [row(method, *partitions[method], found, args, net.dtype.itemsize) for method, found in measures.items()]
    if args.compare:
        reduced = 2 * (args.ranks - 1) * net.size * net.dtype.itemsize / 2**20
        rows.append(["data parallel", "1.000", "1.000", f"{reduced:.4g}", *[""] * (len(heads) - 4)])
    yield aligned([heads, *rows], "<" + ">" * (len(heads) - 1))
    yield "Work is in shares of a rank. MiB and messages are those of a training step, forward and backward, of all ranks."
    if chosen == DEFAULT and (most := measures[chosen].work.max()) > 1 + args.epsilon + 1e-9:
        yield f"note: a rank has {most:.3g} times its share, more than --epsilon {args.epsilon:g} allows: a vertex, which can "\
              "not be divided, may have as much"  # fmt: skip
    if args.compare and DEFAULT not in partitions:
        yield f"There is no row {DEFAULT}, because Mt-KaHyPar is not installed: pip install mtkahypar"


def table_rows(nets, ranks, batch_size):
    """Yield a dict for each network, grain and number of ranks."""
    for name, grain in product(nets, GRAINS):
        net = published(name)
        step = 2 * batch_size * net.dtype.itemsize / 2**20  # MiB of an element of a sample, forward and backward
        simple, model = of_network(net), of_network(net, grain, None, None)
        for number_of in ranks:
            found = measure(model, model.parts(partition(net, number_of, grain)), number_of)
            even = measure(simple, naive.horizontal(simple, number_of), number_of)
            yield {
                "network": name, "grain": grain, "ranks": number_of, "max/avg": float(found.work.max()),
                "MiB": found.volume * step, "messages": 2 * found.messages, "most of a rank": found.most_moved * step,
                "MiB, horizontal": even.volume * step,
                "MiB, data parallel": 2 * (number_of - 1) * net.size * net.dtype.itemsize / 2**20,
            }  # fmt: skip


def write_table(args):
    """Write the table of --table, and print it."""
    check_writable(args.table)
    ranks = args.ranks or RANKS
    total, rows = len(args.nets) * len(GRAINS) * len(ranks), table_rows(args.nets, ranks, args.batch_size)
    found = list(tqdm(rows, total=total, unit=" partitions", delay=2, disable=None))
    write_text(args.table, TABLE.format(args.batch_size, lines(found)))
    print(f"{table(found)}\nwritten to {args.table}")


def main():
    args = options().parse_args()
    with user_input():
        if max(args.ranks or [0]) > MOST_RANKS:
            raise ValueError(f"--ranks {max(args.ranks)}: at most {MOST_RANKS}")
        if args.table:
            return write_table(args)
        if len(args.ranks or [4]) > 1:
            raise ValueError("--ranks has several numbers: give one, or add --table FILE.md")
        [args.ranks] = args.ranks or [4]
        if args.speeds and len(args.speeds) != args.ranks:
            raise ValueError(f"--speeds has {len(args.speeds)} numbers for {args.ranks} ranks: give one for each")
        if args.method not in METHODS and not Path(args.method).is_file():
            meant = did_you_mean(args.method, METHODS)
            raise ValueError(f"--method {args.method}: there is no such method or file{meant}: use {', '.join(METHODS)}")
        for path in args.out:
            if not path.endswith((SUFFIX, *SCHEMES)):
                raise ValueError(f"--out {path}: the name must end in {SUFFIX} (owners), .patoh (PaToH) or .hgr (hMETIS)")
            check_writable(path)
        owners = [path for path in args.out if path.endswith(SUFFIX)]
        hypergraphs = [path for path in args.out if path not in owners]
        net = published(args.net, args.shape, args.outputs, args.dtype)
        seconds = profiled(args.profile, args.net) if args.profile else None
        model = of_network(net, args.grain, None, NEURON_BLOCKS, seconds)
        for path in hypergraphs:
            with written_whole(path) as beside:
                write_hypergraph(model.hypergraph, beside, path)
        chosen = args.method
        partitions = {chosen: divided(chosen, model, net, seconds, args)}
        for method in METHODS if args.compare else ():
            with suppress(mt_kahypar.NotInstalled):
                partitions[method] = partitions.get(method) or divided(method, model, net, seconds, args)
        for path in owners:
            model, parts = partitions[chosen]
            write_owners(model.owners(parts, args.ranks), path)
    print("\n".join(report(net, chosen, partitions, args)))
    for path in hypergraphs:
        print(f"hypergraph written to {path}")
    for path in owners:
        print(f"owners written to {path}; next: gridgrad train --net {args.net} --grid model={args.ranks} --plan {path}")


if __name__ == "__main__":
    run_launcher(main)
