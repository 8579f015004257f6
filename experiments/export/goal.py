"""A training step as a schedule in GOAL, the text format of LogGOPSim and ATLAHS (Hoefler, Siebert and Lumsdaine 2009).

`txt2bin` of LogGOPSim makes the binary that the simulators read. Operations are `calc`, in whole nanoseconds of their predicted
seconds; collectives are messages (`experiments/export/rounds.py`). GOAL has no empty messages: these have one byte.
"""

from pathlib import Path

from gridgrad.experiments.export.actions import Compute, Expect, Send
from gridgrad.experiments.export.operations import operations
from gridgrad.experiments.export.rounds import meetings
from gridgrad.nn.files.whole_files import written_whole

SCHEDULE = "step.goal"
NANOSECONDS = 1e9  # in a second


def write(folder, actions, machine):
    """Write the schedule into a folder. actions: of each rank, see `step_actions`. machine: a Machine."""
    lists, network = meetings(actions), machine.links["network"]
    with written_whole(Path(folder) / SCHEDULE) as beside, open(beside, "w", encoding="utf-8") as file:
        file.write(f"// {machine.name}: LogGOPSim -L {network['alpha'] * NANOSECONDS:.0f} -o 0 -g 0 ")
        file.write(f"-G {network['beta'] * NANOSECONDS:.4g}\n")
        file.write(f"num_ranks {len(actions)}\n")
        for rank, of_rank in enumerate(actions):
            file.write(f"\nrank {rank} {{\n")
            for number, what, requires, _ in operations(of_rank, lists[rank]):
                file.write(f"l{number}: {text(what)}\n")
                file.writelines(f"l{number} requires l{earlier}\n" for earlier in requires)
            file.write("}\n")


def text(what):
    """An operation in GOAL."""
    match what:
        case Compute():
            return f"calc {round(what.seconds * NANOSECONDS)}"
        case Send():
            return f"send {max(1, what.nbytes)}b to {what.receiver} tag {what.tag}"
        case Expect():
            return f"recv {max(1, what.nbytes)}b from {what.sender} tag {what.tag}"
