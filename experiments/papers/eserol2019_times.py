"""Table 5.15 and Figure 5.2 of Eserol 2019: run times, printed and predicted of VGG16, and measured on small networks.

Two predictions of Table 5.15 stand beside what is printed. Both take the rate of computing from the thesis' own single
processor, at each batch size another one.

- *Calibrated*: a pipeline with 2N minibatches under way is played through in virtual time by the cost model, with our
  hypergraph partitions, on the machine that CALIBRATED describes; layers take shares of a step by their floating-point
  operations. Communication and computing overlap.
- *Without overlap*: everything is printed but the assumption. A minibatch takes 1/N of a step of the single processor, times
  max/avg of the printed work, and then all that the partition sends, forward and backward, over N/2 links of 10 Gbit/s
  Ethernet. The work of the hypergraph partition is that of Table A.3, since Table 5.9 is torn.

Measured, by other programs whose results are kept, are Table 5.15 on two emulated hosts (`sweep eserol2019-hosts.toml`), ways
to a target (the study `convergence`), and parameter servers (the study `protocols`).
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median, quantiles

from gridgrad.experiments.papers import eserol2019_partitions as vgg16
from gridgrad.experiments.papers.expressions import MissingError
from gridgrad.experiments.papers.paper import kept, printed
from gridgrad.experiments.papers.whole_nodes import whole_nodes
from gridgrad.parallel.grid.process_grid import GridDescription
from gridgrad.parallel.partitioning import naive
from gridgrad.parallel.pipeline.schedule_names import parse
from gridgrad.parallel.prediction.cost import Cost, grids_of_ranks
from gridgrad.parallel.prediction.pipeline_cost import partition_work
from gridgrad.parallel.prediction.placement_spec import PlacementSpec

KNOWN = printed("eserol2019")
BATCHES = 16, 32, 64, 128, 256, 512
RANKS = 2, 4
SINGLE, LAYERS, FILTERS, HYPERGRAPH = "Single Processor", "Layer-wise", "Filter-wise", "Coarse-grain Hypergraph"
DATA = "Async. DP (1PS)", "Sync. DP (1PS)", "Async. DP (Dist. PS)", "Sync. DP (Dist. PS)"
TIMED = 2, DATA[0]  # the ranks and the method whose steps say how fast a link is
OWN = {LAYERS: ("5.1", "5.2"), FILTERS: ("5.5", "5.6"), HYPERGRAPH: ("A.3", "5.10")}  # tables of work and of volume
ROUNDS = 6  # of the search for a machine's rate
METHODS = SINGLE, LAYERS, FILTERS, HYPERGRAPH, *DATA  # of Table 5.15
HOSTS, CONVERGENCE, PROTOCOLS = "results/eserol2019/hosts.json", "results/convergence.json", "results/protocols.json"
ROUND_ROBIN = "Async. DP (round-robin)", "Sync. DP (round-robin)"  # which it does not have
PIPELINE, TOGETHER, ONE = "model=2, hypergraph, async:2", "batch=2", "serial"  # ways of `convergence`
TIE = 0.02  # two methods whose times differ by less, relative, count as equally fast, since steps vary from round to round
SMALL = 16, 32, 64  # the small batches of section 5.2.4
TIED = f"up to {100 * TIE:g} % counts as equal"
CALIBRATED = (
    "the cost model on a machine that is calibrated by the thesis' own seconds: the rate of computing by its single processor "
    "with the same batch, the rate of a link by what a step of Async. DP (1PS) takes beyond computing on two workers; data "
    "parallelism on four workers takes as long beyond computing as on two (`experiments/papers/eserol2019_times.py`)"
)
FULL = 0.9  # of the time, from which on a processor is called fully used


# ----- what follows from printed numbers


def value(name):
    """A number of the text."""
    return KNOWN.value(name).value


def seconds(ranks, method, batch):
    """The seconds of Table 5.15, those of `images`."""
    return KNOWN.number("5.15", str(batch), ranks, method)


def images():
    """How many images were timed."""
    return value("images") * value("epochs")


def alone(batch):
    """The seconds of a step of the single processor."""
    return seconds(1, SINGLE, batch) * batch / images()


def beyond(ranks, method, batch):
    """The seconds that a step of data parallelism takes beyond computing; the batch is that of each worker."""
    return batch * (ranks * seconds(ranks, method, batch) - seconds(1, SINGLE, batch)) / images()


def rate(batch):
    """The rate, in MiB/s, at which a worker exchanges gradients and parameters with a server."""
    return 2 * value("parameter_MB") / beyond(*TIMED, batch)


def uneven(ranks, method):
    """The most work of a rank over the mean in model parallelism, as printed."""
    work = OWN[method][0]
    return KNOWN.number(work, "max", ranks) / KNOWN.number(work, "mean", ranks)


def shares():
    """The shares of the time in which the rank with the most work computes, in all cases of model parallelism."""
    return [
        seconds(1, SINGLE, batch) / (n * seconds(n, method, batch)) * uneven(n, method)
        for n in RANKS for method in OWN for batch in BATCHES
    ]  # fmt: skip


def without_overlap(ranks, method, batch):
    """Predicted seconds of all images, from printed numbers alone, where nothing overlaps."""
    volume = KNOWN.number(OWN[method][1], "volume", ranks)
    sent = 2 * volume * vgg16.MEBI * vgg16.ITEM_BYTES / value("volume_batch") * images()
    links = ranks / 2 * value("ethernet_Gb") * 1e9 / 8
    return seconds(1, SINGLE, batch) * uneven(ranks, method) / ranks + sent / links


# ----- the calibrated machine


@lru_cache
def calibrated(batch):
    """The Machine that needs as long as the thesis' single processor for a step with this batch, with links of `rate`."""
    found = whole_nodes()
    for _ in range(ROUNDS):
        predicted = Cost(vgg16.network(), GridDescription({}, None, 1), "replicate", batch, found).seconds
        found = replace(found, core=found.core | {"flops": found.core["flops"] * predicted / alone(batch)})
    link = found.links["network"] | {"beta": 1 / (rate(batch) * vgg16.MEBI)}
    return replace(found, name="calibrated by the thesis", links=found.links | {"network": link})


@lru_cache
def simple(method, ranks):
    """The Owners of a simple partition."""
    model, divide = vgg16.model(), {LAYERS: naive.layer_wise, FILTERS: naive.incremental}[method]
    return model.owners(divide(model, ranks), ranks)


class OneSchedule:
    """An asynchronous pipeline whose schedule is made once, since that of a partition is the same for all batch sizes.
    under_way: how many minibatches are. The rest of what it has is that of a ScheduleSpec."""

    def __init__(self, under_way):
        self.named, self.schedule = parse(f"async:{under_way}"), None

    def __getattr__(self, name):
        return getattr(self.named, name)

    def schedule_on(self, *arguments, **options):
        self.schedule = self.schedule or self.named.complete(self.named.schedule_on(*arguments, **options))
        return self.schedule

    def complete(self, schedule):
        return schedule


@lru_cache
def of_owners(owners):
    """{batch: what is predicted of a partition on the calibrated machine}. That is "step", the seconds of a minibatch, "gain",
    how many times as long one minibatch at a time takes, and "least busy", the least share of the time in which a rank is
    busy."""
    asked, net, found = PlacementSpec({"model": owners.ranks}, "hypergraph", owners=owners), vgg16.network(), {}
    pipelines = [OneSchedule(under_way) for under_way in (1, 2 * owners.ranks)]
    for batch in BATCHES:
        machine = calibrated(batch)
        work = partition_work(net, asked, batch, machine, grids_of_ranks(net, asked, machine))
        one, many = (work.step(pipeline, 1) for pipeline in pipelines)
        busy = min(rank.busy for rank in many.ranks) / many.seconds
        found[batch] = {"step": many.seconds, "gain": one.seconds / many.seconds, "least busy": busy}
    return found


def rows(partitions):
    """Table 5.15: a row for each number of it, with what is predicted; without partitions of ours nothing is calibrated.
    partitions: {ranks: Owners} of the hypergraph."""
    found = []
    for line in KNOWN.lines("5.15"):
        ranks, method = line["N"], line["method"]
        steps = predicted(ranks, method, partitions) if partitions else {}
        for batch in BATCHES:
            row = {"N": ranks, "method": method, "batch": batch, "seconds": None, "speedup": None}
            row["without overlap"] = without_overlap(ranks, method, batch) if method in OWN else None
            if steps:
                step = steps[batch]["step"]
                row |= steps[batch] | {"seconds": step * images() / batch, "speedup": alone(batch) / step}
            found.append(row)
    return found


def predicted(ranks, method, partitions):
    """What `of_owners` says of a method of Table 5.15; {} of those that calibrate the machine, or that have no partition."""
    if method in DATA and ranks == RANKS[1]:  # its steps take as long beyond computing as on two workers
        return {batch: {"step": (alone(batch) + beyond(RANKS[0], method, batch)) / ranks} for batch in BATCHES}
    owners = partitions.get(ranks) if method == HYPERGRAPH else simple(method, ranks) if method in OWN else None
    return of_owners(owners) if owners else {}


# ----- what was predicted, and what was measured on small networks


def growth(methods):
    """How many times as long a step of some methods takes beyond computing for four workers as for two, at most."""
    few, many = RANKS
    return max(beyond(many, one, batch) / beyond(few, one, batch) for one in methods for batch in BATCHES)


def wins(tables, column, pairs):
    """(in how many cases the first method of a pair is predicted to take less time, in how many both are known). column:
    "seconds", where communication overlaps, or "without overlap"."""
    known = {(row["N"], row["method"], row["batch"]): row[column] for row in tables["5.15"]}
    known |= {(n, SINGLE, batch): seconds(1, SINGLE, batch) for n in RANKS for batch in BATCHES}
    cases = [[known.get((n, one, batch)) for one in pair] for pair in pairs for n in RANKS for batch in BATCHES]
    cases = [case for case in cases if None not in case]
    return sum(one < two for one, two in cases), len(cases)


def won_of(tables, column, other):
    """In how many cases the hypergraph is predicted to be faster than another partition, in words. column: see `wins`."""
    won, cases = wins(tables, column, [(HYPERGRAPH, other)])
    return f"{won} of {cases}"


@dataclass(frozen=True)
class Hosts:
    """A result on emulated hosts. rows: {(method, batch): a row of the file}."""

    ranks: int
    cores: int
    network: str
    processor: str
    rows: dict

    @property
    def batches(self):
        return list(dict.fromkeys(batch for _, batch in self.rows))

    def quartiles(self, method, other):
        """{batch: the quartiles of the rounds of how many times as fast a method is as another}."""
        rounds = lambda one, batch: self.rows[one, batch]["rounds"]  # noqa: E731
        return {b: quartiles_of([y / x for x, y in zip(rounds(method, b), rounds(other, b))]) for b in self.batches}

    def seconds(self, method, batch):
        """The median of the rounds."""
        return median(self.rows[method, batch]["rounds"])


def quartiles_of(values):
    """The quartiles of some numbers; of a single one, three times that."""
    return tuple(quantiles(values, n=4, method="inclusive")) if len(values) > 1 else 3 * (values[0],)


def results_on_hosts():
    """{ranks: Hosts}; MissingError without any."""

    def chosen(content):
        found = {}
        for one in content:
            if one["link"].startswith(f"{one['ranks']} hosts"):
                rows = {(row["method"], row["batch"]): row for row in one["rows"]}
                if not rows or rows.keys() != {(method, b) for method in (*METHODS, *ROUND_ROBIN) for _, b in rows}:
                    raise ValueError("methods are missing")
                network = one["link"].partition(", ")[2]
                found[one["ranks"]] = Hosts(one["ranks"], one["cores"], network, one["versions"]["processor"], rows)
        return found

    return chosen_of(HOSTS, chosen, "`gridgrad sweep eserol2019-hosts.toml` measures it")


def of_hosts(ranks):
    """The Hosts of so many ranks; MissingError without."""
    found = results_on_hosts()
    if ranks not in found:
        raise MissingError(f"{HOSTS} has no result on {ranks} hosts: `gridgrad sweep eserol2019-hosts.toml` measures it")
    return found[ranks]


def chosen_of(path, choose, otherwise):
    """What a function finds in the file of another program; MissingError where it finds nothing."""
    try:
        found, why = kept(path, choose=choose), f"{path} has no such result"
    except MissingError as missing:
        found, why = None, missing
    if not found:
        raise MissingError(f"{why}: {otherwise}")
    return found


def hosts(ranks=2):
    """What expressions need of the result on so many hosts. surplus: bytes of all pipelines over those of their hypergraphs."""
    one, every = of_hosts(ranks), results_on_hosts().values()
    pipelines = [row for result in every for row in result.rows.values() if row["bytes expected"]]
    return {
        "network": one.network, "processor": one.processor, "crowded": one.ranks > one.cores,
        "surplus": [row["bytes"] / row["bytes expected"] for row in pipelines],
        "bytes an image": [one.rows[HYPERGRAPH, batch]["bytes"] / batch for batch in one.batches],
        "batches": f"batches of {', '.join(map(str, one.batches))}",
        "source": f"{HOSTS}, {' and '.join(dict.fromkeys(result.processor for result in every))}",
    }  # fmt: skip


def host_rows(ranks):
    """Rows: the place of each method among those of Table 5.15, the fastest first, and how many times as fast as one rank it
    is; of more ranks than cores the place alone."""
    one, found = of_hosts(ranks), []
    for batch in one.batches:
        order = sorted(METHODS, key=lambda method: one.seconds(method, batch))
        for method in (*METHODS, *ROUND_ROBIN):
            speedup = None if method == SINGLE or one.ranks > one.cores else one.quartiles(method, SINGLE)[batch][1]
            place = order.index(method) + 1 if method in order else None
            found.append({"batch": batch, "method": method, "place": place, "speedup": speedup})
    return found


def side(low, high=None):
    """1 where a method counts as faster than another, -1 where as slower, 0 where neither. low, high: the lower and the upper
    quartile of how many times as fast it is; one number where there is no spread."""
    return (low > 1 + TIE) - ((low if high is None else high) < 1 - TIE)


def most(sides):
    """Whether something is so in most cases; None where some are too near to each other. sides: 1, 0 or -1 for each case."""
    won, lost, cases = sides.count(1), sides.count(-1), len(sides)
    return None if not sides or won <= cases / 2 < cases - lost else won > cases / 2


def on_hosts(pairs):
    """Whether the first method of each pair is faster than the other on two hosts: {"holds": in most cases, "sides": by `side`,
    "ratios": in words}."""
    found = [list(of_hosts(2).quartiles(*pair).values()) for pair in pairs]
    sides = [side(low, high) for some in found for low, _, high in some]
    ratios = " and ".join(", ".join(f"{middle:.2f}" for _, middle, _ in some) for some in found)
    return {"holds": most(sides), "sides": sides, "ratios": ratios}


def mostly(tables, pairs):
    """Whether the first method of each pair is faster than the other in most cases, as the claims need it, with words. What was
    measured decides, unless two predictions for VGG16 agree on the contrary; where nothing was, two that agree do."""
    predicted = [wins(tables, column, pairs) for column in ("seconds", "without overlap")]
    modelled = all(one in (*OWN, SINGLE) for pair in pairs for one in pair)  # others follow from what is printed
    verdicts = {won > cases / 2 for won, cases in predicted} if modelled and all(cases for _, cases in predicted) else ()
    (overlapped, cases), (in_turn, others) = predicted
    said = f"in {overlapped} of {cases} cases where communication overlaps, in {in_turn} of {others} where it does not"
    said, agreed = said if verdicts else "", next(iter(verdicts)) if len(verdicts) == 1 else None
    try:
        measured, about = on_hosts(pairs), hosts()
    except MissingError as missing:
        return {"holds": agreed, "kind": "predicted", "numbers": said, "reason": str(missing)}
    reason, holds = f"{TIED}; {about['source']}", measured["holds"]
    if holds is None:
        reason = f"too near to each other; {reason}"
    elif agreed is not None and agreed != holds:
        holds, reason = None, f"VGG16 is predicted to differ, so {said}; {reason}"
    numbers = f"{measured['ratios']} times as fast on 2 hosts with {about['batches']}"
    return {"holds": holds, "kind": "kept", "numbers": numbers, "reason": reason}


def small_batches():
    """Whether the hypergraph is faster than the best data parallelism with small batches, and slower with others, on two hosts:
    {"holds", "ratios"}."""
    one, found = of_hosts(2), {}
    for batch in one.batches:
        fastest = min(DATA, key=lambda method: one.seconds(method, batch))
        found[batch] = one.quartiles(HYPERGRAPH, fastest)[batch]
    signs = [side(low, high) * (1 if batch in SMALL else -1) for batch, (low, _, high) in found.items()]
    return {"holds": most(signs), "ratios": [middle for _, middle, _ in found.values()]}


def larger_batches():
    """Whether a larger batch shortens the run of one rank: {"holds", "ms": those of an image with each batch}."""
    one = of_hosts(2)
    each = [quartiles_of([1e3 * seconds / batch for seconds in one.rows[SINGLE, batch]["rounds"]]) for batch in one.batches]
    signs = [side(few[0] / many[2], few[2] / many[0]) for few, many in zip(each, each[1:])]
    return {"holds": most(signs), "ms": [middle for _, middle, _ in each]}


def busiest():
    """Whether the busier of two hosts computes all the time in the hypergraph's pipeline: {"holds", "shares"}."""
    one = of_hosts(2)
    shares = [
        [ratio * one.rows[HYPERGRAPH, batch]["max/avg"] / 2 for ratio in ratios]
        for batch, ratios in one.quartiles(HYPERGRAPH, SINGLE).items()
    ]
    return {"holds": most([(low > FULL) - (high < FULL) for low, _, high in shares]), "shares": [one[1] for one in shares]}


def convergence():
    """The newest result of the study `convergence` on two ranks in which all ways get to the target."""

    def chosen(content):
        for result in reversed(content):
            seconds = {way["way"]: float(way["seconds"]) for way in result["ways"] if way["seconds"]}
            if result["ranks"] == 2 and {PIPELINE, TOGETHER, ONE} <= seconds.keys():
                processor = result["versions"]["processor"]
                about = {name: result[name] for name in ("net", "dataset", "samples")} | result["settings"]
                return about | {"seconds": seconds, "source": f"{CONVERGENCE}, {processor}", "processor": processor}

    return chosen_of(CONVERGENCE, chosen, "`gridgrad launch 2 study convergence` measures it")


def took(way):
    """The seconds of a way of `convergence`."""
    return convergence()["seconds"][way]


def to_target():
    """[(network, seconds of the asynchronous, of the synchronous server to the target)] in virtual time."""

    def chosen(content):
        found = []
        for result in content:
            target = result["settings"].get("target")
            if result["time"] == "virtual" and result["score"] == "accuracy" and target:
                equal = {run["protocol"]: run["history"] for run in result["runs"] if run["straggler"] == 1}
                both = [next((row["seconds"] for row in equal.get(name, ()) if row["score"] >= target), None)
                        for name in ("server:asp", "server:bsp")]  # fmt: skip
                found += [(result["net"], *both)] if None not in both else []
        return found

    return chosen_of(PROTOCOLS, chosen, "`gridgrad study protocols` measures it")
