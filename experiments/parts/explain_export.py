"""What `explain --export` writes: a training step of the plan that is chosen, for other simulators."""

from pathlib import Path

from gridgrad.experiments.common.options import check_room
from gridgrad.experiments.export import graphs, simgrid
from gridgrad.experiments.export.actions import step_actions
from gridgrad.nn.files.whole_files import folder_written_whole, resolved
from gridgrad.parallel.prediction.pipeline_cost import Pipelines
from gridgrad.parallel.prediction.placement_spec import PlacementSpec

FORMATS = {"simgrid": simgrid.write, "goal": graphs.write_goal, "chakra": graphs.write_chakra}
ANCHORS = {"simgrid": simgrid.PLATFORM, "goal": graphs.SCHEDULE, "chakra": graphs.GROUPS}  # a file in each folder of a format
NEEDS = {"chakra": graphs.package}  # raises ValueError where the packages that a format needs are not installed
NEXT = {
    "simgrid": f"`sh {{}}/{simgrid.SCRIPT}` replays it with SimGrid's smpirun",
    "goal": f"`txt2bin -i {{0}}/{graphs.SCHEDULE} -o {{0}}/step.bin` makes the file that LogGOPSim reads",
    "chakra": f"`chakra_jsonizer --input_filename {{0}}/{graphs.TRACE.format(0)} --output_filename rank0.json` writes what "
    f"rank 0 does as JSON, and ASTRA-sim reads {{0}}/step with {{0}}/{graphs.GROUPS}",
}


def check(folder, name):
    """Raise ValueError unless a folder is new or empty, and OSError unless one can be written beside it, to take its place.

    name: of the format. ValueError too where a package that it needs is not installed.
    """
    if name in NEEDS:
        NEEDS[name]()
    path = resolved(folder)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"--export {folder}: there is something already; name a new folder, or an empty one")
    if path == Path.cwd():  # which would be another one afterwards
        raise ValueError(f"--export {folder}: it is the folder where you are; name a new one in it")
    check_room(path.parent)


def write(chosen, shares, name, folder):
    """Write the step of a Candidate to a folder, which appears whole or not at all.

    shares: {axis: numbers} or None. name: of the format. ValueError if the format can not express the step; NotWritten if the
    folder can not be written.
    """
    cost, pipelines = chosen.cost, Pipelines(**chosen.pipelining) if chosen.pipelining else None
    asked = PlacementSpec(chosen.sizes, cost.placed.plan, shares, chosen.owners, pipelines)
    actions = step_actions(cost.net, asked, cost.batch_size, cost.machine)
    with folder_written_whole(folder, ANCHORS[name]) as beside:
        FORMATS[name](beside, actions, cost.machine)


def in_words(name, folder):
    """The line about what was written, and what to do with it."""
    return f"a step was written to {folder}: {NEXT[name].format(folder)}"
