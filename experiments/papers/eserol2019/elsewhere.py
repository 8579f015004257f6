"""What other programs have measured that says something about Eserol 2019, from their results that are kept.

Table 5.15 on a small network, as `sweep eserol2019-hosts.toml` measures it, and the studies `convergence` (Figure 5.2) and
`protocols` (parameter servers). What is needed of a file is taken out of it at once, so that one of other content counts as
none, with the reason.
"""

from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from gridgrad.experiments.papers.eserol2019.times import DATA, FILTERS, HYPERGRAPH, LAYERS, SINGLE
from gridgrad.experiments.papers.other_results import kept

HOSTS, CONVERGENCE = Path("results/eserol2019/hosts.json"), Path("results/convergence.json")
PROTOCOLS = Path("results/protocols.json")
TABLE = SINGLE, LAYERS, FILTERS, HYPERGRAPH, *DATA  # the methods of Table 5.15
ROUND_ROBIN = "Async. DP (round-robin)", "Sync. DP (round-robin)"  # which it does not have
PIPELINE, TOGETHER, ALONE = "model=2, hypergraph, async:2", "batch=2", "serial"  # ways of `convergence`
TIE = 0.02  # two methods whose times differ by less, relative, count as equally fast, since steps vary from round to round


@dataclass(frozen=True)
class OnHosts:
    """A result on emulated hosts.

    network: between the hosts, in words. rounds: {(method, batch): seconds of a minibatch in each round}. sent: bytes of all
    ranks for a minibatch, by the same keys; of pipelines expected: those that the hypergraph says, and balance: max/avg.
    """

    ranks: int
    cores: int
    network: str
    processor: str
    rounds: dict
    sent: dict
    expected: dict
    balance: dict

    @property
    def batches(self):
        """The batch sizes."""
        return list(dict.fromkeys(batch for _, batch in self.rounds))

    @property
    def crowded(self):
        """Whether there are more ranks than cores, where seconds say nothing but the order of the methods."""
        return self.ranks > self.cores

    def quartiles(self, method, other):
        """{batch: the quartiles of the rounds of how many times as fast a method is as another}."""
        pairs = {batch: zip(self.rounds[method, batch], self.rounds[other, batch]) for batch in self.batches}
        return {batch: quartiles_of(slow / fast for fast, slow in some) for batch, some in pairs.items()}

    def ratios(self, method, other):
        """{batch: how many times as fast a method is as another, the median of the rounds}."""
        return {batch: middle for batch, (_, middle, _) in self.quartiles(method, other).items()}

    def places(self, batch):
        """{method: its place among those of Table 5.15, the fastest first}."""
        found = {method: median(self.rounds[method, batch]) for method in TABLE}
        return {method: sorted(found, key=found.get).index(method) + 1 for method in found}

    @property
    def surplus(self):
        """The bytes of each pipeline that were counted over those that its hypergraph says, a list."""
        return [self.sent[key] / expected for key, expected in self.expected.items() if expected]


def quartiles_of(values):
    """The quartiles of some numbers; of a single one, three times that."""
    values = list(values)
    return tuple(quantiles(values, n=4, method="inclusive")) if len(values) > 1 else 3 * (values[0],)


def faster(low, high):
    """1 where a method counts as faster than another, -1 where it counts as slower, 0 where neither.

    low, high: the lower and the upper quartile of how many times as fast it is.
    """
    return (low > 1 + TIE) - (high < 1 - TIE)


def hosts():
    """{ranks: OnHosts}; empty where nothing is kept."""
    return kept(HOSTS, of_hosts)[0] or {}


def no_hosts():
    """Why there is no result on two hosts."""
    why = kept(HOSTS, of_hosts)[1] or f"{HOSTS} has no result on two hosts"
    return f"{why}: `gridgrad sweep eserol2019-hosts.toml` measures it"


def of_hosts(content):
    """{ranks: OnHosts} of the results on as many hosts in the content of the file. What it raises: see `kept`."""
    return {one["ranks"]: on_hosts(one) for one in content if one["link"].startswith(f"{one['ranks']} hosts")}


def on_hosts(result):
    """The OnHosts of a result. ValueError if not every method was timed with each batch size, as often as the others."""
    rows = {(row["method"], row["batch"]): row for row in result["rows"]}
    batches = {batch for _, batch in rows}
    if not batches or set(rows) != {(method, batch) for method in (*TABLE, *ROUND_ROBIN) for batch in batches}:
        raise ValueError("methods are missing")
    rounds = {key: [float(seconds) for seconds in row["rounds"]] for key, row in rows.items()}
    if len(set(map(len, rounds.values()))) > 1 or not all(some and min(some) > 0 for some in rounds.values()):
        raise ValueError("rounds are missing")
    pipelines = [key for key in rows if key[0] in (LAYERS, FILTERS, HYPERGRAPH)]
    expected, balance = ({key: float(rows[key][name]) for key in pipelines} for name in ("bytes expected", "max/avg"))
    sent = {key: float(row["bytes"]) for key, row in rows.items()}
    network, processor = result["link"].partition(", ")[2], result["versions"]["processor"]
    return OnHosts(result["ranks"], result["cores"], network, processor, rounds, sent, expected, balance)


def measured_by():
    """In which file `hosts` are, and on which processors they were measured, in words."""
    return f"{HOSTS}, {' and '.join(dict.fromkeys(one.processor for one in hosts().values()))}"


@dataclass(frozen=True)
class Convergence:
    """A result of `convergence` on two ranks. seconds: {way: seconds to the target}, of those that got there."""

    net: str
    dataset: str
    samples: int
    target: float
    epochs: float
    processor: str
    seconds: dict


def convergence():
    """(the newest Convergence of two ranks, ""), or (None, why there is none)."""
    found, why = kept(CONVERGENCE, lambda content: next(filter(None, map(of_ways, reversed(content))), None))
    return found, "" if found else why or f"{CONVERGENCE} has no run on two ranks in which all ways get to the target"


def of_ways(result):
    """The Convergence of a result; None if it is not of two ranks, or a way did not get to the target."""
    seconds = {way["way"]: float(way["seconds"]) for way in result["ways"] if way["seconds"]}
    if result["ranks"] != 2 or not {PIPELINE, TOGETHER, ALONE} <= set(seconds):
        return None
    target, epochs = (float(result["settings"][name]) for name in ("target", "epochs"))
    processor = result["versions"]["processor"]
    return Convergence(result["net"], result["dataset"], int(result["samples"]), target, epochs, processor, seconds)


def servers_to_target():
    """([(network, seconds of the asynchronous, of the synchronous server to the target)] in virtual time, "").

    Or (None, why there is none).
    """
    found, why = kept(PROTOCOLS, of_protocols)
    return found, "" if found else why or f"{PROTOCOLS} has no run with both servers to a target"


def of_protocols(content):
    """What `servers_to_target` finds in the content of the file of `protocols`."""
    found = []
    for result in content:
        target = result["settings"].get("target")
        if result["time"] == "virtual" and result["score"] == "accuracy" and target:
            equal = {run["protocol"]: run for run in result["runs"] if run["straggler"] == 1}
            both = [reached(equal.get(name), target) for name in ("server:asp", "server:bsp")]
            if None not in both:
                found.append((result["net"], *map(float, both)))
    return found


def reached(run, target):
    """The seconds after which a run has the target, or None."""
    history = run["history"] if run else ()
    return next((row["seconds"] for row in history if row["score"] >= target), None)
