"""What other programs have measured that says something about Eserol 2019, from their results that are kept.

The studies `eserol2019-hosts` (Table 5.15 on a small network), `convergence` (Figure 5.2) and `protocols` (parameter servers).
"""

from pathlib import Path
from statistics import median

from gridgrad.experiments.papers.eserol2019_times import DATA, FILTERS, HYPERGRAPH, LAYERS, SINGLE
from gridgrad.nn.json_text import content_of_file

HOSTS, CONVERGENCE = Path("results/eserol2019/hosts.json"), Path("results/convergence.json")
PROTOCOLS = Path("results/protocols.json")
TABLE = SINGLE, LAYERS, FILTERS, HYPERGRAPH, *DATA  # the methods of Table 5.15
PIPELINE, TOGETHER, ALONE = "model=2, hypergraph, async:2", "batch=2", "serial"  # ways of `convergence`


def kept(path):
    """The results in a file, a list; empty where there is no such file."""
    return content_of_file(path) if path.exists() else []


def hosts():
    """{ranks: the result of `eserol2019-hosts` on as many emulated hosts}."""
    return {one["ranks"]: one for one in kept(HOSTS) if one["link"].startswith(f"{one['ranks']} hosts")}


def measured_by():
    """In which file `hosts` are, and on which processors they were measured, in words."""
    names = dict.fromkeys(map(processor, hosts().values()))
    return f"a small network, `{HOSTS}`, {' and '.join(names)}"


def processor(result):
    """On which processor a result was measured."""
    return result["versions"]["processor"]


def rounds(result):
    """{(method, batch): seconds of a minibatch in each round} of one of `hosts`."""
    return {(row["method"], row["batch"]): row["rounds"] for row in result["rows"]}


def batches(result):
    """The batch sizes of one of `hosts`."""
    return list(dict.fromkeys(row["batch"] for row in result["rows"]))


def ratios(result, method, other):
    """{batch: how many times as fast a method is as another, the median of the rounds} of one of `hosts`."""
    found = rounds(result)
    return {
        batch: median(slow / fast for fast, slow in zip(found[method, batch], found[other, batch], strict=True))
        for batch in batches(result)
        if (method, batch) in found and (other, batch) in found
    }


def places(result, batch):
    """{method: its place among those of Table 5.15, the fastest first} of one of `hosts`."""
    found = {method: median(some) for (method, size), some in rounds(result).items() if size == batch and method in TABLE}
    return {method: sorted(found, key=found.get).index(method) + 1 for method in found}


def surplus(result):
    """Of one of `hosts`: the bytes of each pipeline that were counted over those that its hypergraph says, a list."""
    return [row["bytes"] / row["bytes expected"] for row in result["rows"] if row["bytes expected"]]


def convergence():
    """(the result of `convergence` on two ranks, {way: seconds to the target}); (None, {}) if there is none."""
    for result in reversed(kept(CONVERGENCE)):
        seconds = {way["way"]: way["seconds"] for way in result["ways"]}
        if result["ranks"] == 2 and all(seconds.get(way) for way in (PIPELINE, TOGETHER, ALONE)):
            return result, seconds
    return None, {}


def servers_to_target():
    """[(the network, seconds of the asynchronous and of the synchronous server to the target)] in virtual time."""
    found = []
    for result in kept(PROTOCOLS):
        target = result["settings"].get("target")
        if result["time"] == "virtual" and result["score"] == "accuracy" and target:
            equal = {run["protocol"]: run for run in result["runs"] if run["straggler"] == 1}
            both = [reached(equal.get(name), target) for name in ("server:asp", "server:bsp")]
            if None not in both:
                found.append((result["net"], *both))
    return found


def reached(run, target):
    """The seconds after which a run has the target, or None."""
    history = run["history"] if run else ()
    return next((row["seconds"] for row in history if row["score"] >= target), None)
