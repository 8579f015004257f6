"""Time the methods of Table 5.15 of Eserol 2019 on a small network with the structure of VGG16, each rank on a host of its own.

    sudo gridgrad launch --hosts 2 2 study eserol2019-hosts
    sudo gridgrad launch --hosts 4 4 study eserol2019-hosts

Timed are one rank alone; pipelines, with 2N minibatches under way on N ranks, of a layer-wise, a filter-wise incremental and a
coarse hypergraph partition; and data parallelism with parameter servers, asynchronous and synchronous, on the first rank or
spread over all, greedily as in the table, or round-robin. The layers' times are measured first, as the thesis does with a
profiler, and balance the partitions. A minibatch of data parallelism is that of each worker. The methods take turns, so that a
drift of the machine's speed affects all of them alike; what is kept are the seconds of a minibatch in each round, and what all
ranks send for it. Where there are more ranks than cores, seconds say nothing but the order of the methods. Adds the results to
those in a JSON file, with a table beside it.
"""

import os
import time
from statistics import median

from mpi4py import MPI

from gridgrad.experiments.common import report, vgg_style
from gridgrad.experiments.common.kept_results import earlier_results, write_results
from gridgrad.experiments.common.made_up_data import minibatch
from gridgrad.experiments.common.markdown import lines
from gridgrad.experiments.common.options import Parser, number, user_input, whole, whole_list
from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.common.tables import table
from gridgrad.experiments.launching.start_ranks import cores
from gridgrad.experiments.papers.eserol2019.times import DATA, FILTERS, HYPERGRAPH, LAYERS, SINGLE
from gridgrad.experiments.studies.pipelined.measured_layers import layer_seconds
from gridgrad.experiments.studies.servers import steps as server_steps
from gridgrad.nn import SGD, SoftmaxCrossEntropy
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.choose.parallelize import of_first
from gridgrad.parallel.job.own_process import LINK
from gridgrad.parallel.job.run import on_root, run
from gridgrad.parallel.job.waiting import meet
from gridgrad.parallel.partitioning import naive
from gridgrad.parallel.partitioning.good_partition import partition
from gridgrad.parallel.partitioning.network_hypergraph import measure, of_network

NET, PROFILED = "vgg-style:16,32,64", 32  # the network, and the batch with which its layers are timed, as in the thesis
KEYS = "net", "shape", "ranks", "link"  # what names a problem in the results
SECONDS, FEWEST = 0.5, 16  # the least length of a turn, and its fewest steps: at its ends a pipeline fills and runs empty
ROUND_ROBIN = "Async. DP (round-robin)", "Sync. DP (round-robin)"  # which Table 5.15 does not have
SERVERS = dict(zip(
    (*DATA, *ROUND_ROBIN),
    ("server:asp:single", "server:bsp:single", "server:asp:greedy", "server:bsp:greedy", "server:asp:round-robin",
     "server:bsp:round-robin"),
))  # fmt: skip


class Alone:
    """One rank trains, and the others sleep. problem: the serial network, as a function. x, y: the minibatch."""

    def __init__(self, problem, comm, x, y):
        self.comm, self.batch = comm, len(x)
        self._begin(problem(), ProcessGrid(MPI.COMM_SELF), x, y)

    def _begin(self, serial, grid, x, y, *plan, **how):
        self.grid, self.sent = grid, None
        self.net = parallelize(serial, grid, *plan, reduction="plain", **how)
        self.trainer = self.net.trainer(SoftmaxCrossEntropy(), SGD(self.net, lr=1e-4, momentum=0.9))
        self.parts = [self.net.blocks(x, y)]

    @property
    def active(self):
        return self.grid.comm.size > 1 or self.comm.rank == 0

    def turn(self, steps):
        """Seconds of a minibatch, the mean of so many steps without a barrier between them. Collective."""
        self.comm.Barrier()
        self.grid.tally.clear()
        start = time.perf_counter()
        if self.active:
            for _ in range(steps):
                self.trainer.step(self.parts, self.batch)
            self.trainer.flush()
        seconds = time.perf_counter() - start
        meet(self.comm)
        self.sent = self.comm.allreduce(sum(record.bytes for record in self.grid.tally.records.values())) / steps
        return self.comm.allreduce(seconds, MPI.MAX) / steps

    def end(self):
        """Give the communicators back."""
        self.grid.free()


class Pipeline(Alone):
    """A pipeline of a partition. owners: its Owners. in_flight: how many minibatches are under way."""

    def __init__(self, problem, comm, x, y, owners, in_flight):
        self.comm, self.batch = comm, len(x)
        grid = ProcessGrid(comm, model=comm.size)
        self._begin(problem(), grid, x, y, "hypergraph", owners=owners, pipeline=f"async:{in_flight}")


class Servers:
    """Data parallelism with parameter servers. way: the name of the protocol. x, y: the minibatches of all workers."""

    def __init__(self, problem, comm, x, y, way):
        self.side, self.comm, self.sent = server_steps.ProtocolSteps(way, problem(), comm, x, y, "plain"), comm, None

    def turn(self, steps):
        """Seconds of the minibatch of one worker, the mean of so many steps, in each of which all workers have one."""
        tally, workers = self.side.grid.tally, self.comm.size
        tally.clear()
        seconds = self.side.steps(steps) / workers
        self.sent = self.comm.allreduce(sum(record.bytes for record in tally.records.values())) / (steps * workers)
        return seconds

    def end(self):
        """End the training."""
        self.side.end()


def partitions(problem, ranks, seconds):
    """{method: (Owners, elements of a sample that it sends forward, max/avg)}. seconds: {layer: its time in a step}."""
    model = of_network(problem(), neuron_blocks=None, seconds=seconds)
    owners = {
        LAYERS: model.owners(naive.layer_wise(model, ranks), ranks),
        FILTERS: model.owners(naive.incremental(model, ranks), ranks),
        HYPERGRAPH: partition(problem(), ranks, seconds=seconds),
    }
    found = {}
    for method, some in owners.items():
        costs = measure(model, model.parts(some), ranks)
        found[method] = some, costs.volume, float(costs.work.max())
    return found


def sides(problem, outputs, comm, batch, divided):
    """{method: the side} for a batch size. divided: of `partitions`. Collective."""
    ranks = comm.size
    x, y = minibatch(problem().input_shape, outputs, ranks * batch)
    found = {SINGLE: Alone(problem, comm, x[:batch], y[:batch])}
    if ranks > 1:
        for method, (owners, *_) in divided.items():
            found[method] = Pipeline(problem, comm, x[:batch], y[:batch], owners, 2 * ranks)
        found |= {method: Servers(problem, comm, x, y, way) for method, way in SERVERS.items()}
    return found


def timed(found, rounds, least, comm):
    """{method: seconds of a minibatch in each round}. found: of `sides`. least: seconds of a turn. Collective."""
    steps = {}
    for method, side in found.items():
        side.turn(2)  # which allocates memory
        steps[method] = max(FEWEST, round(least / comm.bcast(side.turn(2))))
    seconds = {method: [] for method in found}
    for _ in progress(range(rounds), "rounds", comm.rank == 0):
        for method, side in found.items():
            seconds[method].append(side.turn(steps[method]))
    return seconds


def measured(args, comm):
    """The rows of the results: one for each method and batch size. Collective."""
    problem = lambda: vgg_style.build(args.net, tuple(args.shape), args.outputs)  # noqa: E731
    x, y = minibatch(problem().input_shape, args.outputs, PROFILED)
    net = problem()
    profile = of_first(comm, lambda: layer_seconds(problem(), x, y, MPI.COMM_SELF))
    taken = {layer.name: seconds for layer, seconds in zip(net.layers, profile, strict=True)}
    divided = of_first(comm, lambda: partitions(problem, comm.size, taken)) if comm.size > 1 else {}
    rows = []
    for batch in args.batch_sizes:
        found = sides(problem, args.outputs, comm, batch, divided)
        for method, rounds in timed(found, args.rounds, args.seconds, comm).items():
            _, volume, balance = divided.get(method, (None, None, None))
            rows.append({
                "method": method, "batch": batch, "seconds": median(rounds), "rounds": rounds, "bytes": found[method].sent,
                "bytes expected": volume and 2 * volume * batch * net.dtype.itemsize, "max/avg": balance,
            })  # fmt: skip
        for side in found.values():
            side.end()
    return rows


def cells(rows):
    """The rows as dicts of texts, as they are printed and written."""
    alone = {row["batch"]: row["seconds"] for row in rows if row["method"] == SINGLE}
    for row in rows:
        expected = row["bytes expected"]
        yield {
            "batch": str(row["batch"]), "method": row["method"], "ms a minibatch": f"{1e3 * row['seconds']:.4g}",
            "from - to": f"{1e3 * min(row['rounds']):.4g} - {1e3 * max(row['rounds']):.4g}",
            "times one rank": f"{alone[row['batch']] / row['seconds']:.2f}", "MB of all ranks": f"{row['bytes'] / 1e6:.4g}",
            "MB by the hypergraph": f"{expected / 1e6:.4g}" if expected else "",
            "max/avg work": f"{row['max/avg']:.3f}" if row["max/avg"] else "",
        }  # fmt: skip


def document(results):
    """All results as Markdown."""
    yield "# The methods of Table 5.15 of Eserol 2019 on emulated hosts\n"
    yield "Medians of the rounds, and their range. A minibatch of data parallelism (DP) is that of each worker. The last"
    yield "columns are what the hypergraph says of a partition. Written by `gridgrad study eserol2019-hosts`."
    for one in results:
        shape, versions = "x".join(map(str, one["shape"])), one["versions"]
        yield (
            f"\n{one['net']}, samples of {shape}, {one['ranks']} ranks on {one['cores']} cores "
            f"({one['link'] or 'one host'}), {one['settings']['rounds']} rounds; {versions['processor']}, {versions['mpi']}:\n"
        )
        yield lines(list(cells(one["rows"])))


def options():
    parser = Parser(
        prog="study eserol2019-hosts", description="Which method of Table 5.15 of Eserol 2019 is the fastest on several hosts?"
    )
    add = parser.add_argument
    add("--net", default=NET, help=f"{vgg_style.HELP}; or a network of the zoo")
    add("--shape", type=whole_list, default=[32, 32, 3], metavar="SHAPE", help="shape of a sample")
    add("--outputs", type=whole(1), default=10, help="number of classes")
    add("--batch-sizes", type=whole_list, default=[16, 64, 256], metavar="B,B,..", help="samples in a minibatch")
    add("--rounds", type=whole(1), default=7, help="rounds, in each of which every method is timed once")
    add("--seconds", type=number(above=0), default=SECONDS, help="the least length of the turn of a method in a round")
    add("--out", default="results/eserol2019/hosts.json", metavar="FILE.json", help="file of the results, to which these are "
        "added")  # fmt: skip
    return parser


def main():
    args, comm = options().parse_args(), MPI.COMM_WORLD
    before = on_root(comm, lambda: earlier_results(args.out, (*KEYS, "rows"), "eserol2019-hosts", document))
    with user_input():
        rows = measured(args, comm)
    result = {
        "net": args.net, "shape": list(args.shape), "ranks": comm.size, "cores": len(cores()), "link": os.environ.get(LINK, ""),
        "settings": vars(args), "rows": rows, "versions": report.versions(),
    }  # fmt: skip
    if comm.rank == 0:
        print(table(list(cells(rows))))
        print(f"results added to {args.out}, and the table beside it")
    on_root(comm, lambda: write_results(args.out, before, result, KEYS, document))


if __name__ == "__main__":
    run(main)
