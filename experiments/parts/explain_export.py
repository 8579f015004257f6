"""What `explain --export` writes: a training step of the plan that is chosen, for other simulators."""

from pathlib import Path

from gridgrad.experiments.common.options import check_writable
from gridgrad.experiments.export import goal, simgrid
from gridgrad.parallel.prediction.actions import step_actions
from gridgrad.parallel.prediction.pipeline_plans import Pipelines
from gridgrad.parallel.prediction.placement_request import PlacementRequest

FORMATS = {"simgrid": simgrid, "goal": goal}
NEXT = {
    "simgrid": f"`sh {{}}/{simgrid.SCRIPT}` replays it with SimGrid's smpirun",
    "goal": f"`txt2bin -i {{0}}/{goal.SCHEDULE} -o {{0}}/step.bin` makes the file that LogGOPSim reads",
}


def check(folder):
    """Raise ValueError unless a folder is new or empty, and can be written to."""
    if Path(folder).exists() and (not Path(folder).is_dir() or any(Path(folder).iterdir())):
        raise ValueError(f"--export {folder}: there is something already; name a new folder, or an empty one")
    check_writable(Path(folder) / "step")


def write(chosen, shares, name, folder):
    """Write the step of a Candidate to a folder. shares: {axis: numbers} or None. name: of the format."""
    cost, pipelines = chosen.cost, Pipelines(**chosen.pipelining) if chosen.pipelining else None
    asked = PlacementRequest(chosen.sizes, cost.placed.plan, shares, chosen.owners, pipelines)
    FORMATS[name].write(folder, step_actions(cost.net, asked, cost.batch_size, cost.machine), cost.machine)


def in_words(name, folder):
    """The line about what was written, and what to do with it."""
    return f"a step was written to {folder}: {NEXT[name].format(folder)}"
