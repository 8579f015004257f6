"""The records of a study, predicted by the cost model for a machine: on any number of ranks, and no job is started.

    gridgrad sweep --predict 1,4,16,64,256 --machine cori-haswell --nets vgg16 --batch-size 256 --out FILE

A record is as `records.py` says. `seconds_per_step`, `parts`, `rank_bytes` and `peak_memory` are those of the rank that bounds
the step (sums of gradients run after backward); `terms`: seconds by term, see `model.py`, null for pipelines, --handicap, and
where the planner chose; `fits`: whether the rank has this memory; `idle`: ranks with nothing to compute.
"""

from functools import lru_cache, partial
from math import prod

from tqdm import tqdm

from gridgrad import datasets
from gridgrad.experiments.common.options import shares_of
from gridgrad.experiments.common.parallel_schemes import AUTO
from gridgrad.experiments.common.problems import published
from gridgrad.experiments.common.report import flops_a_sample
from gridgrad.experiments.common.tables import rounded
from gridgrad.experiments.common.train_setup import slowdowns
from gridgrad.experiments.scaling.model import terms_of_cost
from gridgrad.experiments.scaling.records import tags
from gridgrad.nn import Conv2d
from gridgrad.parallel.choose.shares import predicted_shares
from gridgrad.parallel.grid.process_grid import BATCH, HEIGHT, MODEL, STAGE, GridDescription, parse_grid, places
from gridgrad.parallel.partitioning.good_partition import is_partition, owners_of_plan
from gridgrad.parallel.plans.hypergraph import HYPERGRAPH
from gridgrad.parallel.plans.plans import FEWEST_BYTES
from gridgrad.parallel.prediction.cost import Cost, StepPrediction, cost_of_slowest_rank
from gridgrad.parallel.prediction.pipeline_cost import Pipelines
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from gridgrad.parallel.prediction.planner import NoRoom, Planner
from gridgrad.parallel.protocols.protocol_names import SYNC
from gridgrad.parallel.training import steps_per_epoch

KNOWN = {  # {setting that changes the time of a step: its values, beside none, that the cost model knows}
    "protocol": (SYNC,), "reduction": ("auto", "plain"), "update": ("whole",), "reduce_dtype": ("same",), "reader": ("each",),
    "device": ("cpu",), "optimizer": ("sgd",), "nesterov": (), "l1": (), "l2": (), "augment": (), "rebalance": (),
    "check_replicas": (), "check_finite": (), "threads": (1,),
}  # fmt: skip # sums of gradients run after backward, the update is that of sgd with momentum, and a rank has one BLAS thread


class NotPredicted(ValueError):
    """The cost model does not know how a point runs; the message says why."""


def records(study, machine, shape=None, outputs=None, of_data=False, reasons=None):
    """The predicted records of a study, one after another. reasons: gets {Point: why} of those without a record, or None.
    shape, outputs: of a sample; by default of the data of each point where `of_data`, else as published for the network."""
    for point in tqdm(study.points, unit=" predictions", delay=2, disable=None):
        settings = point.settings
        try:
            check_known(point, machine)
            ask = of_data and not (shape and outputs)
            known = shape_of(settings["dataset"], settings.get("data_dir")) if ask else (None, None)
            net = published(settings["net"], shape or known[0], outputs or known[1], settings["dtype"])
            found = predicted_step(net, point, machine)
        except (NotPredicted, NoRoom) as error:
            if reasons is not None:
                reasons[point] = str(error) if isinstance(error, NotPredicted) else "no plan fits the memory of a rank"
        else:
            yield record(point, net, machine, *found) | tags(study, point)


def check_known(point, machine):
    """Raise NotPredicted unless the cost model knows how a point runs, and a Machine has its hosts and their network."""
    settings, job, network = point.settings, point.job, machine.links["network"]
    if "program" in job:
        raise NotPredicted("the cost model does not know what a script does")
    for name, known in KNOWN.items():
        value = settings.get(name)
        if value not in (None, False, 0, *known):
            raise NotPredicted(f"the cost model does not know --{name.replace('_', '-')} {value}")
    if "hosts" in job and machine.node["ranks"] != -(-point.ranks // job["hosts"]):
        raise NotPredicted(f"{machine.name} has {machine.node['ranks']} ranks a node, unlike the hosts")
    if "rate" in job and not 0.5 <= network["beta"] * job["rate"] * 1e6 / 8 <= 2:
        raise NotPredicted(f"the network of {machine.name} has another rate than {job['rate']:g} Mbit/s")
    if "delay" in job and not network["alpha"] / 2 - 1e-4 <= job["delay"] * 1e-6 <= 1.1 * network["alpha"]:
        raise NotPredicted(f"the network of {machine.name} has another delay than {job['delay']:g} microseconds")


def predicted_step(net, point, machine):
    """(grid, plan, both texts, StepPrediction, {term: seconds} or None) of a point; NotPredicted or NoRoom if there is none."""
    settings, ranks, grid = point.settings, point.ranks, point.settings["grid"]
    plan, batch_size = settings.get("plan"), settings["batch_size"]
    sizes = None if grid == AUTO else parse_grid(grid)  # None: the planner chooses them
    height, stages, model = (sizes.get(axis, 1) if sizes else 1 for axis in (HEIGHT, STAGE, MODEL))
    several, partitioned = stages > 1, bool(sizes and plan) and is_partition(plan)
    slow, by_speed = settings.get("handicap"), settings.get("shares") == AUTO
    factors = slowdowns(slow, ranks) if slow or by_speed else ()
    if plan == AUTO or sizes is None and plan == FEWEST_BYTES:  # beside a grid that is chosen, the default stands for any plan
        plan = None
    elif plan is None and sizes:
        plan = FEWEST_BYTES
    unknown = {  # {why: whether it is so}
        "a partition is of several ranks along the axis model alone": partitioned and (model == 1 or height > 1),
        "the cost model does not know --pipeline of a partition": partitioned and settings.get("pipeline"),
        "the cost model does not know --handicap of a partition": partitioned and slow,
        "without images to cut, height would be batch under another name":
            height > 1 and not any(isinstance(layer, Conv2d) for layer in net.leaves()),
        "the cost model knows --micro-batches in pipelines alone": not several and (settings.get("micro_batches") or 1) > 1,
        "the cost model knows no --handicap that begins in the midst of a run": any(step for _, step in factors),
        f"the cost model does not know --{'handicap' if slow else 'shares auto'} in a pipeline": several and factors,
        "--shares auto need a plan and a grid that are named": by_speed and (sizes is None or plan is None),
    }  # fmt: skip
    for why in (why for why, is_so in unknown.items() if is_so):
        raise NotPredicted(why)
    if by_speed:
        first = GridDescription(sizes, None, machine.node["ranks"])
        found = predicted_shares(net, first.sizes, plan, batch_size, machine, [1 / factor for factor, _ in factors])
        shares, owners = found.placement()
        cost = Cost(net, first, plan, batch_size, machine, shares, owners)
        return str(first), in_words(cost.placed.plan), slowed(cost, factors, shares, owners), None
    shares = shares_of(settings["shares"], sizes) if settings.get("shares") else None
    cuts = settings.get("cuts") and tuple(map(int, str(settings["cuts"]).split(",")))
    pipelines = Pipelines(settings.get("pipeline"), settings.get("micro_batches"), cuts) if several else None
    if sizes is None or several or shares or plan is None or partitioned:
        owners = partial(owners_of_plan, plan if partitioned else HYPERGRAPH, net, speeds=(shares or {}).get(MODEL))
        memory = settings.get("memory") and settings["memory"] * 2**30
        asked = PlacementSpec(sizes, HYPERGRAPH if partitioned else plan, shares, pipelines=pipelines, memory=memory)
        chosen, _ = Planner(net, ranks, batch_size, machine, asked, owners).best(shown=0)
        if chosen.pipelined and slow:
            raise NotPredicted("the cost model does not know --handicap in a pipeline")
        grid, plan, cost, step, of_terms = str(GridDescription(chosen.sizes)), chosen.plan, chosen.cost, chosen.step, None
    else:
        cost = cost_of_slowest_rank(net, PlacementSpec(sizes, plan), batch_size, machine)
        plan, step, of_terms = in_words(cost.placed.plan), cost.prediction, terms_of_cost(cost)
    return (grid, plan, slowed(cost, factors, shares), None) if slow else (grid, plan, step, of_terms)


def slowed(cost, factors, shares, owners=None):
    """The StepPrediction where ranks compute more slowly: that of the rank that then takes the longest, for which all wait.
    cost: the Cost of the rank with most work, or of any where there are owners. factors: see `slowdowns`."""
    at = places(cost.grid.sizes)
    costs = {at.index(cost.grid.coordinates): cost}
    for rank in (rank for rank, (factor, _) in enumerate(factors) if (factor > 1 or owners is not None) and rank not in costs):
        grid = GridDescription(cost.grid.sizes, at[rank], cost.machine.node["ranks"])
        costs[rank] = Cost(cost.net, grid, cost.placed.plan, cost.batch_size, cost.machine, shares, owners)
    busy = {rank: factors[rank][0] * (one.parts["compute"] + one.parts["update"]) for rank, one in costs.items()}
    slowest = max(busy, key=busy.get)
    one, factor = costs[slowest], factors[slowest][0]
    moving = one.parts["gradients"] + one.parts["activations"]
    parts = one.parts | {part: factor * one.parts[part] for part in ("compute", "update")}
    ranks = tuple(costs[rank].rank_step(busy[rank], waiting=busy[slowest] - busy[rank], communicating=moving) for rank in costs)
    return StepPrediction(busy[slowest] + moving, ranks, parts)


def in_words(plan):
    """The plan of a placed network as on the command line: one word if all layers have the same."""
    return plan[0] if len(set(plan)) == 1 else ",".join(plan)


def record(point, net, machine, grid, plan, step, of_terms):
    """The record of a point, without the entries about its study. The last four: of `predicted_step`."""
    outputs = [layer.outputs for layer in net.leaves() if hasattr(layer, "outputs")]
    most = {BATCH: point.settings["batch_size"], MODEL: max(outputs)}  # {axis: how many of its ranks have something to compute}
    most |= {HEIGHT: net.input_shape[0]} if len(net.input_shape) == 3 else {}
    busy = prod(min(size, most.get(axis, size)) for axis, size in parse_grid(grid).items())
    return {
        "predicted": True, "machine": machine.name, "ranks_per_node": machine.node["ranks"], "net": point.settings["net"],
        "dataset": point.settings["dataset"], "shape": list(net.input_shape), "outputs": outputs[-1], "P": point.ranks,
        "grid": grid, "plan": plan, "point": point.settings, "repeat": 0, "environment": {"processor": machine.name},
        "settings": {"batch_size": point.settings["batch_size"], "dtype": point.settings["dtype"]},
        "seconds_per_step": {"median": rounded(step.seconds)},
        "parts": {part: rounded(seconds) for part, seconds in step.parts.items()},
        "terms": of_terms and {term: rounded(seconds) for term, seconds in of_terms.items()},
        "rank_bytes": step.bounding.bytes, "peak_memory": step.memory, "flops_a_sample": flops_a_sample(net),
        "fits": step.memory <= machine.memory(point.ranks), "idle": point.ranks - busy,
    }  # fmt: skip


@lru_cache
def shape_of(dataset, data_dir):
    """(shape of a sample, outputs, training samples) of a data set, which is read."""
    datasets.prepare(dataset, data_dir)
    data = datasets.load(dataset, data_dir)
    return list(data.sample_shape), data.outputs, len(data.train)


def steps_of(point):
    """How many steps a run of a point has; where it has epochs its data are read."""
    settings = point.settings
    if not settings.get("epochs"):
        return settings["steps"]
    *_, samples = shape_of(settings["dataset"], settings.get("data_dir"))
    held_out = int(samples * (settings.get("validation") or 0))
    return settings["epochs"] * steps_per_epoch(samples - held_out, settings["batch_size"])
