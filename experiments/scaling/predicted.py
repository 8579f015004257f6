"""The records of a study, predicted by the cost model for a machine: on any number of ranks, and no job is started.

    gridgrad sweep --predict 1,4,16,64,256 --machine cori-haswell --nets vgg16 --batch-size 256 --out FILE
    gridgrad sweep --predict 1,4,16,64,256 --machine cori-haswell --nets vgg16 --batch-size 1 --weak --out FILE

A record is as `records.py` says, with

| entry                         | what it says                                                                       |
|-------------------------------|------------------------------------------------------------------------------------|
| `predicted`, `machine`        | true; the machine whose constants are used                                         |
| `ranks_per_node`, `shape`     | of this machine; of a sample                                                       |
| `seconds_per_step`, `parts`   | seconds of the rank that bounds the step; sums of gradients run after backward     |
| `terms`                       | seconds by term, see `terms.py`; null where the planner chose, or a pipeline runs  |
| `rank_bytes`, `peak_memory`   | bytes that it sends in a step, and bytes of memory that it needs                   |
| `fits`                        | whether it has them                                                                |
"""

from functools import lru_cache

from tqdm import tqdm

from gridgrad import datasets
from gridgrad.experiments.common.options import shares_of
from gridgrad.experiments.common.parallel_schemes import AUTO
from gridgrad.experiments.common.predicted_cost import cost_on, rounded
from gridgrad.experiments.common.published_networks import published
from gridgrad.experiments.common.report import flops_a_sample
from gridgrad.experiments.scaling import terms
from gridgrad.experiments.scaling.records import tags
from gridgrad.nn import Conv2d
from gridgrad.parallel.grid.process_grid import HEIGHT, STAGE, checked_sizes, parse_grid, written
from gridgrad.parallel.partitioning.good_partition import is_partition
from gridgrad.parallel.prediction.pipeline_plans import Pipelines
from gridgrad.parallel.prediction.placement_request import PlacementRequest
from gridgrad.parallel.prediction.planner import NoRoom, Planner
from gridgrad.parallel.protocols.protocol_names import SYNC


def records(study, machine, shape=None, outputs=None, of_data=False):
    """The predicted records of a study, one after another.

    machine: a Machine. shape, outputs: of a sample; by default those of the data of each point where `of_data` is true, else as
    published for the network. A point that the cost model does not know (`is_modelled`), or of which nothing fits the memory,
    has no record.
    """
    for point in tqdm(study.points, unit=" predictions", delay=2, disable=None):
        if not is_modelled(point, machine):
            continue
        settings = point.settings
        known = shape_of(settings["dataset"], settings.get("data_dir")) if of_data and not (shape and outputs) else (None, None)
        net = published(settings["net"], shape or known[0], outputs or known[1], settings["dtype"])
        found = predicted_step(net, point, machine)
        if found:
            yield record(point, net, machine, *found) | tags(study, point)


def is_modelled(point, machine):
    """Whether the cost model knows how a point runs, and a Machine has its hosts: as many ranks on a node as on each of them.

    Sums of gradients run after backward; it knows no other protocol, no partition, and one BLAS thread a rank.
    """
    settings, job = point.settings, point.job
    if settings.get("protocol", SYNC) != SYNC or settings.get("plan") and is_partition(settings["plan"]):
        return False
    if settings.get("reduction", "auto") not in ("auto", "plain") or settings.get("update", "whole") != "whole":
        return False
    on_host = -(-point.ranks // job.get("hosts", 1))
    return job.get("threads", 1) == 1 and ("hosts" not in job or machine.node["ranks"] == on_host)


def predicted_step(net, point, machine):
    """(grid, plan, both as texts, StepPrediction, {term: seconds} or None) of a point; None where there is no prediction.

    net: a serial Sequential.
    """
    settings, ranks = point.settings, point.ranks
    grid, plan, batch_size = settings["grid"], settings.get("plan"), settings["batch_size"]
    if grid == AUTO:
        return planned(Planner(net, ranks, batch_size, machine))
    sizes = parse_grid(grid)
    if sizes.get(HEIGHT, 1) > 1 and not any(isinstance(layer, Conv2d) for layer in net.leaves()):
        return None  # without images to cut, height would be batch under another name
    if sizes.get(STAGE, 1) > 1:
        pipelines = Pipelines(settings.get("pipeline"), settings.get("micro_batches"), cuts_of(settings))
        return planned(Planner(net, ranks, batch_size, machine, PlacementRequest(sizes, plan, pipelines=pipelines)))
    shares = shares_of(settings["shares"], sizes) if settings.get("shares") else None
    if shares:
        return planned(Planner(net, ranks, batch_size, machine, PlacementRequest(sizes, plan, shares)))
    cost = cost_on(net, grid, batch_size, machine, plan or "fewest-bytes")
    return grid, in_words(cost.placed.plan), cost.prediction, terms.predicted(cost)


def planned(planner):
    """What `predicted_step` returns, of what a Planner chooses; None if nothing fits the memory."""
    try:
        chosen, _ = planner.best(shown=0)
    except NoRoom:
        return None
    return written(checked_sizes(chosen.sizes)), chosen.plan, chosen.step, None


def in_words(plan):
    """The plan of a placed network as on the command line: one word if all layers have the same."""
    return plan[0] if len(set(plan)) == 1 else ",".join(plan)


def cuts_of(settings):
    """The positions of --cuts, or None."""
    cuts = settings.get("cuts")
    return cuts and tuple(map(int, str(cuts).split(",")))


def record(point, net, machine, grid, plan, step, of_terms):
    """The record of a point, but for the entries about its study. The last four: what `predicted_step` returns."""
    outputs = [layer.outputs for layer in net.leaves() if hasattr(layer, "outputs")][-1]
    return {
        "predicted": True, "machine": machine.name, "ranks_per_node": machine.node["ranks"], "net": point.settings["net"],
        "dataset": point.settings["dataset"], "shape": list(net.input_shape), "outputs": outputs, "P": point.ranks,
        "grid": grid, "plan": plan, "point": point.settings, "repeat": 0, "environment": {"processor": machine.name},
        "settings": {"batch_size": point.settings["batch_size"], "dtype": point.settings["dtype"]},
        "seconds_per_step": {"median": rounded(step.seconds)},
        "parts": {part: rounded(seconds) for part, seconds in step.parts.items()},
        "terms": of_terms and {term: rounded(seconds) for term, seconds in of_terms.items()},
        "rank_bytes": step.bounding.bytes, "peak_memory": step.memory, "flops_a_sample": flops_a_sample(net),
        "fits": step.memory <= machine.memory(point.ranks),
    }  # fmt: skip


@lru_cache
def shape_of(dataset, data_dir):
    """(shape of a sample, outputs) of a data set, which is read."""
    datasets.prepare(dataset, data_dir)
    data = datasets.load(dataset, data_dir)
    return list(data.sample_shape), data.outputs
