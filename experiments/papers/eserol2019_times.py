"""Table 5.15 of Eserol 2019: run times of VGG16, published and predicted. Model parallelism has an asynchronous pipeline.

Seconds of another machine say nothing, so what is compared are speed-ups over one rank with the same batch, and which method is
the fastest. Nothing is measured here. The machine is that of the shipped file `cori-haswell`, with a whole node as a rank: of
the files that come with the project it is the only one of servers with Xeon processors on a fast network. Its nodes compute at
their peak, 343 operations in the time of a byte. Those of the thesis did 1.97e12 operations per second with batches of 512,
which is 158 for a byte of Omni-Path and 1,573 for one of 10 Gbit/s Ethernet; it does not say which of the two was used.
"""

from dataclasses import dataclass, replace

from gridgrad.experiments.papers import eserol2019_vgg16 as vgg16
from gridgrad.parallel.grid.grid_description import GridDescription
from gridgrad.parallel.partitioning import naive
from gridgrad.parallel.performance import machine as machines
from gridgrad.parallel.performance.cost import Cost
from gridgrad.parallel.performance.partition_pipeline import partition_step_time
from gridgrad.parallel.performance.pipeline_cost import pipeline_step_time
from gridgrad.parallel.pipeline import names
from gridgrad.parallel.training.stage_cuts import balanced_cuts

BATCHES = 16, 32, 64, 128, 256, 512
IMAGES = 102_400  # 10 epochs of 10240 images
RANKS = 2, 4
MACHINE = "cori-haswell"
SINGLE, LAYERS, FILTERS, HYPERGRAPH = "Single Processor", "Layer-wise", "Filter-wise", "Coarse-grain Hypergraph"
ALONE, FLIGHT = "one minibatch at a time", "2N minibatches in flight"


@dataclass(frozen=True)
class Predicted:
    """A predicted step. seconds: per minibatch. busy: of each rank, its share of the time. memory: bytes of the rank that needs
    the most."""

    seconds: float
    busy: tuple = (1.0,)
    memory: float = 0.0


def nodes():
    """The Machine on which a whole node is a rank."""
    shipped = machines.read(MACHINE)
    core = shipped.core | {
        "flops": shipped.node["ranks"] * shipped.core["flops"], "bandwidth": shipped.node["bandwidth"]
    }  # fmt: skip
    return replace(shipped, name=f"{shipped.name}, a node a rank", core=core, node=shipped.node | {"ranks": 1})


def predictions(partitions, batches=BATCHES):
    """{(ranks, method, batch): {ALONE or FLIGHT: Predicted}}; with one rank there is no pipeline, only ALONE.

    partitions: {ranks: Owners} of the hypergraph. Layers are cut as in training; the other partitions are balanced by the works
    of the thesis.
    """
    net, machine, found = vgg16.network(), nodes(), {}
    for batch in batches:
        cost = Cost(net, GridDescription({}, None, 1), "replicate", batch, machine)
        found[1, SINGLE, batch] = {ALONE: Predicted(cost.seconds, memory=cost.memory)}
        for ranks in RANKS:
            found[ranks, LAYERS, batch] = of_layers(net, ranks, batch, machine)
            filters = vgg16.model().owners(naive.incremental(vgg16.model(), ranks), ranks)
            for method, owners in ((FILTERS, filters), (HYPERGRAPH, partitions.get(ranks))):
                if owners:
                    found[ranks, method, batch] = of_owners(net, ranks, owners, batch, machine)
    return found


def schedules(ranks):
    """{ALONE or FLIGHT: the Named schedule}."""
    return {ALONE: names.parse("async:1"), FLIGHT: names.parse(f"async:{2 * ranks}")}


def of_layers(net, ranks, batch, machine):
    """The Predicted steps of whole layers."""
    sizes, cuts = {"stage": ranks}, balanced_cuts(net, ranks)
    return {
        name: predicted(pipeline_step_time(net, sizes, "replicate", batch, machine, schedule, cuts=cuts))
        for name, schedule in schedules(ranks).items()
    }


def of_owners(net, ranks, owners, batch, machine):
    """The Predicted steps of a partition."""
    return {
        name: predicted(partition_step_time(net, {"model": ranks}, owners, batch, machine, schedule))
        for name, schedule in schedules(ranks).items()
    }


def predicted(time):
    """The Predicted of a PipelineTime or a PartitionTime."""
    return Predicted(time.seconds, tuple(rank.busy / time.seconds for rank in time.ranks), time.memory)


def seconds_of(found):
    """{(ranks, method, batch): seconds of a minibatch} of the rows of Table 5.15. found: of `predictions`."""
    return {key: here[FLIGHT if key[0] > 1 else ALONE].seconds for key, here in found.items()}


def compared(published, seconds):
    """Rows of Table 5.15 as speed-ups. published: [ranks, method, seconds of each of BATCHES]. seconds: of a minibatch, of
    model and of data parallelism; what is not in it was not predicted."""
    (single,) = (line[2:] for line in published if line[1] == SINGLE)
    rows = []
    for ranks, method, *theirs in published:
        row = {"N": ranks, "method": method}
        for batch, one, some in zip(BATCHES, single, theirs, strict=True):
            here = seconds.get((ranks, method, batch))
            row |= {f"{batch}, published": one / some, f"{batch}, *predicted*": here and seconds[1, SINGLE, batch] / here}
        rows.append(row)
    return rows


def in_seconds(published, seconds):
    """Rows of Table 5.15 in seconds: as printed, and predicted for as many images on the machine. seconds: see `compared`."""
    rows = []
    for ranks, method, *printed in published:
        row = {"N": ranks, "method": method}
        for batch, theirs in zip(BATCHES, printed, strict=True):
            here = seconds.get((ranks, method, batch))
            row |= {f"{batch}, published": theirs, f"{batch}, *predicted*": here and here * IMAGES / batch}
        rows.append(row)
    return rows


def gains(found):
    """What the pipeline of section 4.2 is worth: a row for each number of ranks, method and batch."""
    rows = []
    for ranks, method, batch in sorted(found, key=lambda key: (key[0], [LAYERS, FILTERS, HYPERGRAPH, SINGLE].index(key[1]))):
        if ranks > 1:
            here, row = found[ranks, method, batch], {"N": ranks, "method": method, "batch": batch}
            single, alone, flight = found[1, SINGLE, batch][ALONE].seconds, here[ALONE], here[FLIGHT]
            row |= {f"speed-up, {name}": single / some.seconds for name, some in here.items()}
            row |= {"gain of the pipeline": alone.seconds / flight.seconds}
            row |= {"idle, % of the time, each rank": idle(alone), "the same in flight": idle(flight)}
            row |= {"busiest rank over the mean": max(flight.busy) * ranks / sum(flight.busy)}
            row |= {"GiB, most of a rank": alone.memory / 2**30, "the same in flight, GiB": flight.memory / 2**30}
            rows.append(row)
    return rows


def idle(time):
    return ", ".join(f"{max(0.0, 100 * (1 - busy)):.0f}" for busy in time.busy)
