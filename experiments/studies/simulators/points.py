"""A training step, or a collective, as the cost model and as SMPI predict it, and what their difference comes from."""

import tempfile
from dataclasses import dataclass, replace

from gridgrad.experiments.common.parallel_schemes import SCHEMES, grid_of
from gridgrad.experiments.common.predicted_cost import rounded
from gridgrad.experiments.common.published_networks import published
from gridgrad.experiments.export import simgrid
from gridgrad.experiments.export.actions import Collective, step_actions
from gridgrad.nn import Conv2d
from gridgrad.parallel.grid.process_grid import AXES, BATCH, MODEL, STAGE, GridDescription, parse_grid, places
from gridgrad.parallel.prediction import machine as machines
from gridgrad.parallel.prediction.cost import Cost, cost_of_slowest_rank
from gridgrad.parallel.prediction.pipeline_cost import Pipelines, pipeline_step_time
from gridgrad.parallel.prediction.placement_spec import PlacementSpec

NEAR = 0.1  # a relative difference that needs no explanation
TIMEOUT = 900  # seconds of a replay
STAGES = 4  # of pipelines, of which the other ranks are along batch
ALL_GRIDS = 64  # ranks up to which all grids are compared; beyond, those whose replays take no more than minutes
SENT = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1}  # by each rank, about, in units of the whole array


@dataclass(frozen=True)
class Point:
    """A step. machine: the name of a machine file. grid: as text. plan: as `--plan` takes it."""

    machine: str
    net: str
    batch_size: int
    grid: str
    plan: str = "fewest-bytes"


def grids(net, batch_size, ranks):
    """The texts of the grids of so many ranks that are compared for a network by its name."""
    images = any(isinstance(layer, Conv2d) for layer in published(net).leaves())
    schemes = [scheme for scheme in SCHEMES if images or scheme != "height"] if ranks <= ALL_GRIDS else [BATCH, "2d"]
    found = [grid_of(scheme, ranks) for scheme in schemes]
    if STAGES <= ranks <= ALL_GRIDS:
        found.append(f"stage={STAGES},batch={ranks // STAGES}")
    return [grid for grid in found if grid and parse_grid(grid).get(BATCH, 1) <= batch_size]


def compared(point):
    """What is found for a Point, a dict; see `beside`."""
    net, machine = published(point.net), machines.read(point.machine)
    asked = PlacementSpec(parse_grid(point.grid), point.plan)
    return vars(point) | beside(net, asked, point.batch_size, machine)


def beside(net, asked, batch_size, machine):
    """Seconds of a step `predicted` and `simulated` by SMPI, and their relative difference, a dict.

    Where that is not near, it has `as_messages`, the seconds that SMPI simulates where all collectives are written as messages;
    `alone`, those that the cost model predicts where nothing overlaps; `longest`, those of the rank for which it predicts the
    most, where it else looks at one rank alone; and where the machine file has measured collectives, `formula`, those that it
    predicts from latency and bandwidth alone, where nothing overlaps. ValueError if the step can not be replayed.
    """
    predicted, alone, asked = prediction(net, asked, batch_size, machine)
    actions = step_actions(net, asked, batch_size, machine)
    found = {"ranks": len(actions), "predicted": rounded(predicted), "simulated": replayed(actions, machine)}
    found["difference"] = rounded(found["simulated"] / predicted - 1)
    if abs(found["difference"]) > NEAR:
        longest = predicted if asked.grid.get(STAGE, 1) > 1 else longest_step(net, asked, batch_size, machine)
        found |= {"as_messages": replayed(actions, machine, ()), "alone": rounded(alone), "longest": rounded(longest)}
        if machine.collectives:
            found["formula"] = rounded(prediction(net, asked, batch_size, replace(machine, collectives={}))[1])
    return found


def prediction(net, asked, batch_size, machine):
    """(seconds of a step, the same where nothing overlaps, the PlacementSpec with nothing left open).

    The step of a pipeline is one alone, because SMPI replays one; else predictions are of steps that follow one another.
    """
    if asked.grid.get(STAGE, 1) > 1:
        found = pipeline_step_time(net, replace(asked, pipelines=asked.pipelines or Pipelines()), batch_size, machine)
        updates = (next(event.stop for event in row if event.instruction.op == "U") for row in found.played.events)
        seconds = max(updates)
        return seconds, seconds, replace(asked, pipelines=Pipelines(found.pipeline, found.micro_batches, found.cuts))
    cost = cost_of_slowest_rank(net, asked, batch_size, machine)
    alone = sum(cost.seconds_of(replace(work, overlaps=())) for work in cost.works)
    return cost.seconds, alone, replace(asked, plan=cost.placed.plan)


def longest_step(net, asked, batch_size, machine):
    """The most seconds that the cost model predicts for any rank."""
    sizes = {axis: asked.grid.get(axis, 1) for axis in AXES}
    grids = (GridDescription(sizes, place, machine.node["ranks"]) for place in places(sizes))
    return max(Cost(net, grid, asked.plan, batch_size, machine, asked.shares, asked.owners).seconds for grid in grids)


def replayed(actions, machine, native=None):
    """Seconds of a step as SMPI simulates it. native: see `simgrid.write`."""
    with tempfile.TemporaryDirectory(prefix="gridgrad-traces-") as folder:
        simgrid.write(folder, actions, machine, native)
        return simgrid.replayed(folder, len(actions), machine, TIMEOUT)


def collective(name, ranks, kind, nbytes):
    """Seconds of one collective of all ranks, a dict: predicted, SMPI's own, and written as messages.

    name: of a machine file. nbytes: of the whole array.
    """
    machine, sent = machines.read(name), SENT[kind] * (nbytes // ranks) * (ranks - 1)
    group = GridDescription({MODEL: ranks}, None, machine.node["ranks"]).group(MODEL)
    actions = [[Collective(kind, kind, tuple(range(ranks)), place, sent)] for place in range(ranks)]
    return {
        "machine": name, "kind": kind, "ranks": ranks, "bytes": nbytes,
        "predicted": rounded(machine.collective_seconds(kind, group, ranks, sent)),
        "simulated": replayed(actions, machine), "as_messages": replayed(actions, machine, ()),
    }  # fmt: skip
