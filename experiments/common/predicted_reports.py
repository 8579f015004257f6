"""Predicted reports: what a sweep would measure on a machine according to the cost model, on any number of ranks.

No job is started.

    gridgrad sweep --predict 1,4,16,64,256 --machine cori-haswell --nets vgg16 --batch-size 256 --out FILE
    gridgrad sweep --predict 1,4,16,64,256 --machine cori-haswell --nets vgg16 --batch-size 1 --weak --out FILE

A line of JSON a network, scheme and number of ranks, like the reports of runs but marked `"predicted": true`:

| entry                             | what it says                                                                            |
|-----------------------------------|-----------------------------------------------------------------------------------------|
| `machine`, `ranks_per_node`       | the machine whose constants are used                                                    |
| `scaling`                         | "strong": all numbers of ranks share one global batch; "weak": it grows in proportion   |
| `scheme`, `grid`, `plan`          | `auto` is what the planner chooses of all grids and plans                               |
| `shape`, `outputs`                | of a sample                                                                             |
| `seconds_per_step`, `parts`       | seconds of the rank with the most work; sums of gradients run after backward            |
| `rank_bytes`, `rank_memory` | bytes that it sends in a step and bytes of memory that it needs; `fits`: it has them |
"""

import json

from tqdm import tqdm

from gridgrad import datasets
from gridgrad.experiments.common.parallel_schemes import SCHEMES, grid_of
from gridgrad.experiments.common.published_networks import published
from gridgrad.experiments.common.report import write_text
from gridgrad.nn import Conv2d
from gridgrad.parallel.grid.process_grid import parse_grid
from gridgrad.parallel.placement.plan import weighted
from gridgrad.parallel.plans.all_plans import words_of
from gridgrad.parallel.prediction import machine as machines
from gridgrad.parallel.prediction.cost import Cost, busiest
from gridgrad.parallel.prediction.planner import NoRoom, Planner

AUTO = "auto"
ALL_SCHEMES = (*SCHEMES, AUTO)


def cost(net, scheme, ranks, batch_size, machine, plan="fewest-bytes"):
    """(grid as text, Cost) of a step; None where the scheme has no grid, or nothing fits the memory.

    net: a serial Sequential. batch_size: of the global minibatch. plan: of all schemes but `auto`, which has its own.
    """
    if scheme == AUTO:
        try:
            chosen, _ = Planner(net, ranks, batch_size, machine).best(shown=0)
        except NoRoom:
            return None
        return chosen.grid, chosen.cost
    grid = grid_of(scheme, ranks)
    if grid is None or (scheme == "height" and not any(isinstance(layer, Conv2d) for layer in net.leaves())):
        return None  # without images to cut, height would be batch under another name
    rank = busiest(parse_grid(grid), words_of(plan, weighted(net)), machine.node["ranks"])
    return grid, Cost(net, rank, plan, batch_size, machine)


def reports(settings, machine, shape=None, outputs=None, weak=False):
    """The predicted reports of a sweep, one after another, each a dict; see the module's text.

    settings: of a sweep. shape, outputs: of a sample, by default as published.
    """
    nets = {spec: published(spec, shape, outputs, settings["dtype"]) for spec in settings["nets"]}
    cases = [(spec, ranks, scheme) for spec in nets for ranks in settings["ranks"] for scheme in settings["schemes"]]
    for spec, ranks, scheme in tqdm(cases, unit=" predictions", delay=2, disable=None):
        batch_size = settings["batch_size"] * (ranks if weak else 1)
        found = cost(nets[spec], scheme, ranks, batch_size, machine, settings["plan"])
        if found:
            yield report(spec, nets[spec], scheme, ranks, *found, "weak" if weak else "strong", settings)


def report(spec, net, scheme, ranks, grid, cost, scaling, settings):
    """One line of the file."""
    machine, words = cost.machine, cost.placed.plan
    outputs = [layer.outputs for layer in net.leaves() if hasattr(layer, "outputs")][-1]
    return {
        "predicted": True, "machine": machine.name, "ranks_per_node": machine.node["ranks"], "threads": 1,
        "net": spec, "shape": list(net.input_shape), "outputs": outputs, "scaling": scaling, "scheme": scheme, "P": ranks,
        "grid": grid, "plan": words[0] if len(set(words)) == 1 else ",".join(words),
        "settings": {"batch_size": cost.batch_size, "dtype": settings["dtype"], "plan": settings["plan"], "reduction": "plain"},
        "seconds_per_step": {"median": rounded(cost.seconds)},
        "parts": {part: rounded(seconds) for part, seconds in cost.parts.items()},
        "rank_bytes": cost.prediction.bytes, "rank_memory": cost.prediction.memory,
        "fits": cost.prediction.memory <= machine.memory(ranks),
    }  # fmt: skip


def rounded(number):
    """A number rounded to six digits, which keeps files small."""
    return float(f"{number:.6g}")


def shape_of(dataset, data_dir):
    """(shape of a sample, outputs) of a data set."""
    datasets.prepare(dataset, data_dir)
    data = datasets.load(dataset, data_dir)
    return list(data.sample_shape), data.outputs


def write(settings, out, machine, shape=None, outputs=None, weak=False):
    """Predict a sweep and write its reports, a line of JSON each, to `out`. Returns how many. See `reports`.

    machine: a name or file. ValueError for what does not fit.
    """
    if settings.get("grids"):
        raise ValueError("--predict goes through schemes and knows no list of grids: leave the setting out")
    lines = [json.dumps(line) + "\n" for line in reports(settings, machines.read(machine), shape, outputs, weak)]
    if not lines:
        raise ValueError("there is nothing to predict: none of the schemes has a grid for these networks and ranks")
    write_text(out, "".join(lines))
    return len(lines)
