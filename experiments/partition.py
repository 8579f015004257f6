"""Divide the filters of a network among ranks so that little has to be sent, and print what the division costs. Starts no job.

    gridgrad partition --net vgg16 --ranks 4 --grain coarse --out owners.h5
    gridgrad partition --table results/partitions.md

The owners that it writes are executed by `gridgrad train --plan owners.h5`. See `parallel/partitioning`.
"""

import re
from array import array
from collections import Counter
from contextlib import suppress
from itertools import product
from pathlib import Path

import numpy as np
from tqdm import tqdm

from gridgrad.experiments.common import options as command_line
from gridgrad.experiments.common.options import Parser, network, number, number_list, whole, whole_list
from gridgrad.experiments.common.problems import add_problem, published
from gridgrad.experiments.common.report import write_text
from gridgrad.experiments.common.tables import counted, lines, table
from gridgrad.nn.arguments import did_you_mean
from gridgrad.nn.files.documents import AT_LEAST_0, TEXT, check, content_of
from gridgrad.nn.files.limits import longest_text, read_limited
from gridgrad.nn.files.whole_files import written_whole
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
PATOH, HMETIS = ".patoh", ".hgr"  # endings of hypergraph files: PaToH's (Eserol 2019, Figure 3.5) and hMETIS' formats
TABLE = """# Partitions of published networks

Written by `gridgrad partition --table`. What all ranks together send in a training step of {} samples,
forward and backward, in MiB of float32. max/avg is the work of the busiest rank over the mean. "most of a rank" is what the
rank sends that sends the most. A fine grain divides the convolutions alone.

{}
"""
SHORT = ("net", "shape", "outputs", "batch_size", "ranks", "method", "speeds", "compare", "out")


def options():
    parser = Parser(prog="partition", short=SHORT,
                    description="Divide the filters of a network among ranks so that little has to be sent.")  # fmt: skip
    add = parser.add_argument
    add_problem(parser, "vgg16", batch_size=32)
    add("--dtype", default="float32", choices=("float32", "float64"), help="type of all arrays")
    add("--ranks", type=whole_list, metavar="P", help="number of ranks, of --table several (default: 4, of --table 2,4,8,16)")
    add("--grain", default="coarse", choices=GRAINS, help="fine: the channels of a filter may be at several ranks")
    add("--method", default=DEFAULT, help=f"{', '.join(METHODS)}, or a FILE in which another program has written a number for "
        "each vertex of the hypergraph of --out")  # fmt: skip
    add("--objective", default="volume", choices=tuple(OBJECTIVES), help="of --method hypergraph; largest: of a rank")
    add("--epsilon", type=number(least=0), default=0.1, metavar="E", help="part of its share by which a rank may be too large")
    add("--profile", metavar="REPORT.json", help="weigh filters by the seconds in this report of train --profile")
    add("--speeds", type=number_list, metavar="W,W,..", help="shares of the ranks, one number each (default: equal ones)")
    add("--seed", type=whole(0, 2**31 - 1), default=0, help="of random choices")
    add("--compare", action="store_true", help="print all methods, and what data parallelism sends")
    add("--out", action="append", default=[], metavar="FILE", help=f"write owners to FILE{SUFFIX}, for train --plan, or the "
        f"hypergraph to FILE{PATOH} (PaToH) or FILE{HMETIS} (hMETIS); may be repeated")  # fmt: skip
    add("--table", metavar="FILE.md", help="instead write a table of what partitions of --nets send, in both grains")
    add("--nets", nargs="+", type=network, default=NETS, metavar="NET", help="of --table")
    return parser


def profiled(path, net):
    """{layer name: seconds of a step} in a report of train. ValueError if it has none, or is of another network than `net`."""
    try:
        report = content_of(read_limited(path))
        check(report, {"net": TEXT, "layers": [{"layer": TEXT} | dict.fromkeys(METHODS_OF_LAYERS, AT_LEAST_0)]})
    except ValueError as error:
        raise ValueError(f"{path} has no seconds of layers ({error}): write it by train --profile --report {path}") from None
    if report["net"] != net:
        raise ValueError(f"{path} has the seconds of {report['net']}: write it by train --net {net} --profile --report {path}")
    found = Counter()
    for row in report["layers"]:
        found[row["layer"]] += sum(row[method] for method in METHODS_OF_LAYERS)
    return dict(found)


def divided(method, model, net, seconds, args):
    """(the NetworkHypergraph that a method divides, the part of each vertex). model: with NEURON_BLOCKS. seconds: of the
    layers, from --profile, or None."""
    if method == DEFAULT:
        owners = partition(net, args.ranks, args.grain, args.speeds, epsilon=args.epsilon, objective=args.objective,
                           seed=args.seed, seconds=seconds)  # fmt: skip
        model = of_network(net, args.grain, None, None, seconds)  # the owners may divide any block of neurons
        parts = model.parts(owners)
    elif method not in METHODS:
        parts = model.hypergraph.check_parts(read_parts(method, model.hypergraph.vertices), args.ranks)
    elif method == "random":
        parts = naive.random(model, args.ranks, args.speeds, args.seed)
    else:
        parts = naive.METHODS[method](model, args.ranks, args.speeds)
    return model, parts


def report(net, chosen, partitions, args):
    """The lines that are printed. chosen: a method. partitions: {method: (its NetworkHypergraph, the part of each vertex)}."""
    graph, rows, most = partitions[chosen][0].hypergraph, [], 0.0
    yield f"{args.net}, batch {args.batch_size}, on {counted(args.ranks, 'rank')}, {args.grain} grain: "\
          f"{graph.vertices:,} vertices, {graph.nets:,} nets, {len(graph.pins):,} pins"  # fmt: skip
    step = 2 * args.batch_size * net.dtype.itemsize / 2**20  # MiB of an element of a sample, forward and backward
    for method, (model, parts) in partitions.items():
        found = measure(model, parts, args.ranks, args.speeds)
        most = found.work.max() if method == chosen == DEFAULT else most
        rows.append({
            "method": method, "max work": f"{found.work.max():.3f}", "min work": f"{found.work.min():.3f}",
            "MiB sent": f"{found.volume * step:.4g}", "by roots": "" if found.star is None else f"{found.star * step:.4g}",
            "largest array": f"{found.largest_array * step:.4g}", "messages": str(2 * found.messages),
            "most of a rank": f"{found.most_moved * step:.4g}",
        })  # fmt: skip
    if args.compare:
        rows.append(dict.fromkeys(rows[0], "") | {
            "method": "data parallel", "max work": "1.000", "min work": "1.000",
            "MiB sent": f"{2 * (args.ranks - 1) * net.size * net.dtype.itemsize / 2**20:.4g}"})  # fmt: skip
    yield table(rows)
    yield "Work is in shares of a rank. MiB and messages are those of a training step, forward and backward, of all ranks."
    if most > 1 + args.epsilon + 1e-9:
        yield f"note: a rank has {most:.3g} times its share, more than --epsilon {args.epsilon:g} allows: as much as one vertex"
    if args.compare and DEFAULT not in partitions:
        yield f"There is no row {DEFAULT}, because Mt-KaHyPar is not installed: pip install mtkahypar"


def write_table(args):
    """Write the table of --table, a row for each network, grain and number of ranks, and print it."""
    command_line.check_writable(args.table)
    rows = []
    for name, grain in tqdm(list(product(args.nets, GRAINS)), unit=" networks", delay=2, disable=None):
        net = published(name)
        step = 2 * args.batch_size * net.dtype.itemsize / 2**20  # MiB of an element of a sample, forward and backward
        simple, model = of_network(net), of_network(net, grain, None, None)
        for ranks in args.ranks or RANKS:
            found = measure(model, model.parts(partition(net, ranks, grain)), ranks)
            rows.append({
                "network": name, "grain": grain, "ranks": ranks, "max/avg": float(found.work.max()),
                "MiB": found.volume * step, "messages": 2 * found.messages, "most of a rank": found.most_moved * step,
                "MiB, horizontal": measure(simple, naive.horizontal(simple, ranks), ranks).volume * step,
                "MiB, data parallel": 2 * (ranks - 1) * net.size * net.dtype.itemsize / 2**20,
            })  # fmt: skip
    write_text(args.table, TABLE.format(args.batch_size, lines(rows)))
    print(f"{table(rows)}\nwritten to {args.table}")


# ----- files of other partitioners


def write_hypergraph(graph, path):
    """Write a Hypergraph: its sizes, a line for each net with its cost and its vertices, the owner first, then the weights. The
    formats have no groups of nets, and no nets in which all others send to the first vertex."""
    patoh = Path(path).suffix == PATOH
    base, between = (0, " ") if patoh else (1, "\n")  # PaToH has the weights in one line, hMETIS one a line
    with written_whole(path) as beside, open(beside, "w", encoding="utf-8") as file:
        sizes = f"0 {graph.vertices} {graph.nets} {len(graph.pins)} 3" if patoh else f"{graph.nets} {graph.vertices} 11"
        file.write(f"{sizes}\n")
        for start, stop, cost, root in zip(graph.offsets[:-1], graph.offsets[1:], graph.costs, graph.roots):
            pins = graph.pins[start:stop]
            file.write(" ".join(map(str, [cost, root + base, *(pins[pins != root] + base).tolist()])) + "\n")
        file.writelines(f"{weight}{between}" for weight in graph.weights.tolist())
        file.write("\n" if patoh else "")


def read_parts(path, vertices):
    """The part of each of so many vertices, int64 (vertices,), from a file. ValueError, with the line, for a bad one."""
    parts = array("q")
    for number_, line in enumerate(read_limited(path, longest_text()).splitlines(), 1):
        for word in () if line.startswith(b"%") else line.split():
            if not re.fullmatch(rb"[0-9]{1,9}", word):
                shown = word[:20].decode(errors="replace")
                raise ValueError(f"{path}, line {number_}: '{shown}' is no part, which is 0 or more")
            parts.append(int(word))
    if len(parts) != vertices:
        raise ValueError(f"{path}: there are {len(parts)} numbers, but the hypergraph has {vertices} vertices")
    return np.array(parts, np.int64)


def main():
    args = options().parse_args()
    with command_line.user_input():
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
            if not path.endswith((SUFFIX, PATOH, HMETIS)):
                raise ValueError(f"--out {path}: the name must end in {SUFFIX} (owners), .patoh (PaToH) or .hgr (hMETIS)")
            command_line.check_writable(path)
        owners = [path for path in args.out if path.endswith(SUFFIX)]
        hypergraphs = [path for path in args.out if path not in owners]
        net = published(args.net, args.shape, args.outputs, args.dtype)
        seconds = profiled(args.profile, args.net) if args.profile else None
        model = of_network(net, args.grain, None, NEURON_BLOCKS, seconds)
        for path in hypergraphs:
            write_hypergraph(model.hypergraph, path)
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
