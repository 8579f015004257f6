"""Table 5.15 of Eserol 2019: run times of VGG16, printed, derived and predicted. Nothing is measured here.

Two predictions stand beside what is printed. Both take the rate of computing from the thesis' own single processor, at each
batch size another one.

- *Calibrated*: a pipeline with 2N minibatches under way is played through in virtual time by the cost model, on a machine that
  takes as long for a step alone as the thesis' single processor does. Layers take shares of it by their floating-point
  operations. Each rank's link has the rate at which, in the thesis, a worker of two sends its gradients to a single server and
  gets the parameters back, in the seconds that such a step takes beyond computing. Communication and computing overlap. The
  hypergraph partitions are ours. Data parallelism on four workers takes the time beyond computing that it takes on two.
- *Without overlap*: everything is printed but the assumption. A minibatch takes 1/N of a step of the single processor, times
  max/avg of the printed work, and then all that the partition sends, forward and backward, over N/2 links of 10 Gbit/s
  Ethernet. The work of the hypergraph partition is that of Table A.3, since Table 5.9 is torn.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

from gridgrad.experiments.papers.cited import RATIO, Formula
from gridgrad.experiments.papers.eserol2019 import vgg16
from gridgrad.experiments.papers.eserol2019.vgg16 import KNOWN
from gridgrad.experiments.papers.whole_nodes import whole_nodes
from gridgrad.parallel.grid.process_grid import GridDescription
from gridgrad.parallel.partitioning import naive
from gridgrad.parallel.prediction.cost import Cost
from gridgrad.parallel.prediction.pipeline_cost import Pipelines, partition_step_time
from gridgrad.parallel.prediction.placement_spec import PlacementSpec

BATCHES = 16, 32, 64, 128, 256, 512
RANKS = 2, 4
SINGLE, LAYERS, FILTERS, HYPERGRAPH = "Single Processor", "Layer-wise", "Filter-wise", "Coarse-grain Hypergraph"
DATA = "Async. DP (1PS)", "Sync. DP (1PS)", "Async. DP (Dist. PS)", "Sync. DP (Dist. PS)"
ALONE, FLIGHT = "one minibatch at a time", "2N minibatches in flight"
TIMED = DATA[0], 2  # the method and the ranks whose steps say how fast a link is
OWN = {LAYERS: ("5.1", "5.2"), FILTERS: ("5.5", "5.6"), HYPERGRAPH: ("A.3", "5.10")}  # tables of work and of volume
ROUNDS = 6  # of the search for a machine's rate

SPEEDUP = Formula("the seconds of the single processor with the same batch over these", lambda one, some: one / some)
STEP = Formula("seconds times the batch over the 10 x 10,240 images", lambda seconds, batch, images, epochs: seconds * batch
               / (images * epochs))  # fmt: skip
BEYOND = Formula(
    "seconds times N times the batch over 10 x 10,240, which are those of a step, less the step of the single processor",
    lambda seconds, ranks, batch, one, images, epochs: batch * (ranks * seconds - one) / (images * epochs),
)
RATE = Formula("twice the MB of the parameters over the seconds beyond computing", lambda mb, seconds: 2 * mb / seconds)
SHARE = Formula(
    "the seconds of the single processor over N times the seconds, times max over mean of the work",
    lambda one, ranks, seconds, most, mean: one / (ranks * seconds) * most / mean,
)


@dataclass(frozen=True)
class Predicted:
    """A predicted step. seconds: per minibatch. busy: of each rank, its share of the time. memory: bytes of the rank that needs
    the most."""

    seconds: float
    busy: tuple = (1.0,)
    memory: float = 0.0


def printed(ranks, method, batch):
    """The Cited seconds of Table 5.15."""
    return KNOWN.tables["5.15"].cited(str(batch), ranks, method)


def images():
    """The Cited numbers of images of an epoch and of epochs that were timed."""
    values = KNOWN.values
    return values["images"], values["epochs"]


def speedup(ranks, method, batch):
    """The Cited speed-up over the single processor with the same batch."""
    return SPEEDUP(printed(1, SINGLE, batch), printed(ranks, method, batch))


def alone(batch):
    """The Cited seconds of a step of the single processor."""
    return STEP(printed(1, SINGLE, batch), batch, *images())


def beyond(ranks, method, batch):
    """The Cited seconds that a step of data parallelism takes beyond computing; the batch is that of each worker."""
    return BEYOND(printed(ranks, method, batch), ranks, batch, printed(1, SINGLE, batch), *images())


def rate(batch):
    """The Cited rate, in MB/s, at which a worker exchanges gradients and parameters with a server."""
    method, ranks = TIMED
    return RATE(KNOWN.values["parameter_MB"], beyond(ranks, method, batch))


def share(ranks, method, batch):
    """The Cited share of the time in which the rank with the most work computes, in a row of model parallelism."""
    work = KNOWN.tables[OWN[method][0]]
    of_rank = work.cited("max", ranks), work.cited("mean", ranks)
    return SHARE(printed(1, SINGLE, batch), ranks, printed(ranks, method, batch), *of_rank)


def without_overlap(ranks, method, batch):
    """Predicted seconds of all images, from printed numbers alone, where nothing overlaps."""
    work, volumes = (KNOWN.tables[name] for name in OWN[method])
    uneven = RATIO.value(work.cited("max", ranks), work.cited("mean", ranks))
    volume, values = volumes.cited("volume", ranks).value, KNOWN.values
    count = values["images"].value * values["epochs"].value
    sent = 2 * volume * vgg16.MEBI * vgg16.ITEM_BYTES / values["volume_batch"].value * count
    links = ranks / 2 * values["ethernet_Gb"].value * 1e9 / 8
    return printed(1, SINGLE, batch).value * uneven / ranks + sent / links


@lru_cache
def calibrated(batch):
    """The Machine that needs as long as the thesis' single processor for a step with this batch, with links of `rate`."""
    found, target = whole_nodes(), alone(batch).value
    for _ in range(ROUNDS):
        flops = found.core["flops"] * of_single(batch, found).seconds / target
        found = replace(found, core=found.core | {"flops": flops})
    link = found.links["network"] | {"beta": 1 / (rate(batch).value * vgg16.MEBI)}
    return replace(found, name="calibrated by the thesis", links=found.links | {"network": link})


def of_single(batch, machine):
    """The Predicted step of one rank."""
    cost = Cost(vgg16.network(), GridDescription({}, None, 1), "replicate", batch, machine)
    return Predicted(cost.seconds, memory=cost.prediction.memory)


def predictions(partitions, batches=BATCHES):
    """{(ranks, method, batch): {ALONE or FLIGHT: Predicted}} of model parallelism on the calibrated machines.

    partitions: {ranks: Owners} of the hypergraph.
    """
    model, found = vgg16.model(), {}
    for ranks in RANKS:
        owners = {
            LAYERS: model.owners(naive.layer_wise(model, ranks), ranks),
            FILTERS: model.owners(naive.incremental(model, ranks), ranks),
            HYPERGRAPH: partitions.get(ranks),
        }
        for method, some in owners.items():
            if some is not None:
                found |= {(ranks, method, batch): of_owners(ranks, some, batch) for batch in batches}
    return found


def of_owners(ranks, owners, batch):
    """{ALONE or FLIGHT: the Predicted step of a partition}."""
    found = {}
    for name, pipeline in ((ALONE, "async:1"), (FLIGHT, f"async:{2 * ranks}")):
        asked = PlacementSpec({"model": ranks}, "hypergraph", owners=owners, pipelines=Pipelines(pipeline))
        time = partition_step_time(vgg16.network(), asked, batch, calibrated(batch))
        found[name] = Predicted(time.seconds, tuple(rank.busy / time.seconds for rank in time.ranks), time.memory)
    return found


def data_parallel(batches=BATCHES):
    """{(4, method, batch): Predicted} of data parallelism, whose steps take as long beyond computing as on two workers."""
    few, many = RANKS
    return {
        (many, method, batch): Predicted((alone(batch).value + beyond(few, method, batch).value) / many)
        for method in DATA
        for batch in batches
    }


def seconds_of(found):
    """{(ranks, method, batch): seconds of a minibatch}. found: what `predictions` and `data_parallel` return."""
    return {key: here[FLIGHT].seconds if isinstance(here, dict) else here.seconds for key, here in found.items()}


def compared(seconds):
    """Rows of Table 5.15 as speed-ups. seconds: of a minibatch; what is not in it was not predicted."""
    rows = []
    for line in KNOWN.tables["5.15"].lines():
        key = line["N"], line["method"]
        row = {"N": key[0], "method": key[1]}
        for batch in BATCHES:
            here = seconds.get((*key, batch))
            row |= {f"{batch}, derived": speedup(*key, batch).value}
            row |= {f"{batch}, *predicted*": here and alone(batch).value / here}
        rows.append(row)
    return rows


def in_seconds(seconds):
    """Rows of Table 5.15 in seconds of all images: printed, and predicted twice. seconds: see `compared`."""
    rows, (count, epochs) = [], images()
    for line in KNOWN.tables["5.15"].lines():
        key = line["N"], line["method"]
        row = {"N": key[0], "method": key[1]}
        for batch in BATCHES:
            here = seconds.get((*key, batch))
            row |= {f"{batch}, printed": line[str(batch)]}
            row |= {f"{batch}, *predicted*": here and here * count.value * epochs.value / batch}
            row |= {f"{batch}, *without overlap*": without_overlap(*key, batch) if key[1] in OWN else None}
        rows.append(row)
    return rows


def calibration():
    """What follows from the printed seconds: a step of the single processor, the seconds of data parallelism beyond computing,
    and the rates of a link."""
    rows = [{"N": 1, "what": "s a step, single processor"} | {str(b): alone(b).value for b in BATCHES}]
    for ranks in RANKS:
        for method in DATA:
            row = {"N": ranks, "what": f"s of a step beyond computing, {method}"}
            rows.append(row | {str(batch): beyond(ranks, method, batch).value for batch in BATCHES})
    return [*rows, {"N": TIMED[1], "what": f"MB/s of a link, {TIMED[0]}"} | {str(b): rate(b).value for b in BATCHES}]


def gains(found):
    """What the pipeline of section 4.2 is worth: a row for each number of ranks, method and batch. found: of `predictions`."""
    rows = []
    for ranks, method, batch in sorted(found, key=lambda key: (key[0], [LAYERS, FILTERS, HYPERGRAPH].index(key[1]))):
        here, row = found[ranks, method, batch], {"N": ranks, "method": method, "batch": batch}
        single, one, flight = alone(batch).value, here[ALONE], here[FLIGHT]
        row |= {f"speed-up, {name}": single / some.seconds for name, some in here.items()}
        row |= {"gain of the pipeline": one.seconds / flight.seconds}
        row |= {"idle, % of the time, each rank": idle(one), "the same in flight": idle(flight)}
        row |= {"least busy, % in flight": 100 * min(flight.busy)}
        row |= {"busiest rank over the mean": max(flight.busy) * ranks / sum(flight.busy)}
        row |= {"GiB, most of a rank": one.memory / 2**30, "the same in flight, GiB": flight.memory / 2**30}
        rows.append(row)
    return rows


def idle(time):
    return ", ".join(f"{max(0.0, 100 * (1 - busy)):.0f}" for busy in time.busy)
