"""A training step as a schedule in GOAL, the text format of LogGOPSim and ATLAHS (Hoefler, Siebert and Lumsdaine 2009).

`txt2bin` of LogGOPSim makes the binary that the simulators read. Operations are `calc`, in whole nanoseconds of their predicted
seconds; collectives are messages (`experiments/export/rounds.py`). GOAL has no empty messages: these have one byte.
"""

from pathlib import Path

from gridgrad.experiments.export.rounds import meetings, rounds
from gridgrad.nn.files.whole_files import written_whole
from gridgrad.parallel.prediction.actions import Collective, Compute, Expect, Receive, Send

SCHEDULE = "step.goal"
NANOSECONDS = 1e9  # in a second


def write(folder, actions, machine):
    """Write the schedule into a folder. actions: of each rank, see `step_actions`. machine: a Machine."""
    lists, network = meetings(actions), machine.links["network"]
    with written_whole(Path(folder) / SCHEDULE) as beside, open(beside, "w") as file:
        file.write(f"// {machine.name}: LogGOPSim -L {network['alpha'] * NANOSECONDS:.0f} -o 0 -g 0 ")
        file.write(f"-G {network['beta'] * NANOSECONDS:.4g}\n")
        file.write(f"num_ranks {len(actions)}\n")
        for rank, of_rank in enumerate(actions):
            file.write(f"\nrank {rank} {{\n")
            file.writelines(f"{line}\n" for line in _Rank().lines(of_rank, lists[rank]))
            file.write("}\n")


class _Rank:
    """The operations of a rank while they are written.

    last: the label of the one that the next ones require, or None. expected: {(sender, tag) of a message: its label}.
    """

    def __init__(self):
        self.number, self.last, self.expected = 0, None, {}

    def lines(self, actions, lists):
        """Yield the lines of a rank."""
        for one in actions:
            match one:
                case Compute():
                    yield from self.after(f"calc {round(one.seconds * NANOSECONDS)}")
                case Collective():
                    for sends, receives in rounds(next(lists), one.place):
                        yield from self.round(sends, receives)
                case Send():  # nothing waits for it
                    yield from self.beside(send(one.receiver, one.nbytes, one.tag))
                case Expect():
                    yield from self.beside(receive(one.sender, one.nbytes, one.tag))
                    self.expected[one.sender, one.tag] = f"l{self.number}"
                case Receive():
                    yield from self.after("calc 0")
                    yield f"{self.last} requires {self.expected.pop((one.sender, one.tag))}"

    def round(self, sends, receives):
        """Yield the lines of a Round, at the end of which the rank waits for all of it."""
        texts = [*(send(*one, 0) for one in sends), *(receive(*one, 0) for one in receives)]
        first = self.number + 1
        for text in texts:
            yield from self.beside(text)
        if texts:
            labels = [f"l{number}" for number in range(first, self.number + 1)]
            yield from self.beside("calc 0")
            self.last = f"l{self.number}"
            yield from (f"{self.last} requires {label}" for label in labels)

    def after(self, text):
        """Yield the lines of an operation that the next ones require."""
        yield from self.beside(text)
        self.last = f"l{self.number}"

    def beside(self, text):
        """Yield the lines of an operation that requires the last one."""
        self.number += 1
        yield f"l{self.number}: {text}"
        if self.last:
            yield f"l{self.number} requires {self.last}"


def send(rank, nbytes, tag):
    return f"send {max(1, nbytes)}b to {rank} tag {tag}"


def receive(rank, nbytes, tag):
    return f"recv {max(1, nbytes)}b from {rank} tag {tag}"
