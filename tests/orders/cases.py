"""What is explored: a list of cases, each as on the command line of `python -m tests.orders`."""

import argparse
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gridgrad.parallel.protocols import protocol_names
from tests.orders.checkpoints import Checkpoints
from tests.orders.explore import BruteForce, explore
from tests.orders.pipelines import Pipelines
from tests.orders.protocols import Protocols

CHECKPOINT, PIPELINE = "checkpoint", "async:"

# In the short tests
SHORT = """
server:bsp:single --workers 2 --updates 1 --all
server:bsp:single --workers 2
server:bsp --workers 2
server:bsp:single --workers 3 --updates 1
server:bsp:single --workers 3 --updates 1 --batch 2
server:bsp:single --workers 2 --updates 0 --dies 1 --all
server:bsp:single --workers 2 --dies 1
server:asp:single --workers 2 --updates 0 --dies 1 --all
server:asp:single --workers 2
server:asp:single --workers 2 --updates 1 --dies 1
server:asp:single --workers 2 --updates 1 --late
server:asp:round-robin --workers 2 --updates 1
server:ssp:0 --workers 2 --updates 0 --all
server:ssp:0 --workers 2 --updates 1
server:ssp:0:single --workers 2
server:ssp:1:single --workers 2
downpour:2:1:single --workers 2
downpour:1:2 --workers 2 --updates 1
downpour:2:2:single --workers 2 --updates 1 --dies 1
sgp --workers 2 --updates 1 --all
sgp --workers 3
sgp --workers 3 --late
sgp --workers 4
local:1 --workers 2 --all
local:1 --workers 3 --batch 2
local:2 --workers 3
post-local:1:2 --workers 3 --batch 2
slowmo:1:0.5 --workers 2 --all
slowmo:1:0.5 --workers 3 --batch 2
slowmo:1:0.5:rate=0.3 --workers 2
diloco:1 --workers 3
diloco:1:lr=0.5:momentum=0.3 --workers 2
diloco:2:fragments=2 --workers 2 --all
diloco:2:fragments=2 --workers 3 --batch 2
easgd:1:0.1 --workers 2 --all
easgd:1:0.1 --workers 3 --batch 2
admm:1 --workers 3
admm:1:rho=0.3 --workers 2 --all
admm:1:rho=0.3 --workers 3 --batch 2
parallel-sgd --workers 3 --batch 5
parallel-sgd:epoch --workers 2 --updates 1 --all
parallel-sgd:epoch --workers 3 --batch 5
parallel-sgd:epoch:shuffle --workers 2 --batch 3
parallel-sgd:exchange --workers 2 --batch 4
parallel-sgd:exchange --workers 3 --batch 6 --updates 3
async:2 --workers 2 --updates 1 --all
async:2 --workers 2 --updates 3
async:3 --workers 2 --updates 4
async:2:nostash --workers 2 --updates 3
async:3:bound=1 --workers 3 --updates 3
async:3:bound=0 --workers 3 --updates 3
async:2 --workers 2 --updates 2 --partition --eager
checkpoint --workers 2
checkpoint --workers 2 --signal 1
checkpoint --workers 2 --kill
checkpoint --workers 3
"""
# In the long tests
LONG = """
sgp --workers 2 --updates 1 --late --all
downpour:1:1:single --workers 2 --updates 1 --batch 1 --all
server:asp:single --workers 3 --updates 1
server:bsp:single --workers 4 --updates 0
server:asp --workers 2
server:asp:single --workers 3 --updates 0 --dies 2
server:ssp:0:single --workers 3 --updates 1
server:ssp:0 --workers 2
server:ssp:1 --workers 2
server:ssp:1:single --workers 2 --updates 3
server:ssp:1:single --workers 3 --updates 1
server:ssp:1:single --workers 2 --updates 1 --dies 1
downpour:2:1 --workers 2
downpour:1:2:single --workers 3 --updates 1
downpour:1:2:single --workers 2 --updates 1 --dies 1
sgp --workers 3 --updates 4
sgp --workers 4 --late
async:3 --workers 3 --updates 3
async:2 --workers 4 --updates 3
async:2 --workers 2 --updates 1 --partition
async:2 --workers 3 --updates 2 --partition --eager
checkpoint --workers 3 --signal 2
checkpoint --workers 3 --updates 3 --kill
"""
# Of `python -m tests.orders` alone, since they take minutes. The tests have them with fewer updates, workers or shards.
OF_THE_PROGRAM = """
server:ssp:0:single --workers 3
downpour:1:2:single --workers 2 --dies 1
server:bsp:single --workers 4 --updates 1
server:ssp:1:single --workers 2 --dies 1
server:asp:single --workers 2 --dies 1
server:bsp --workers 3 --updates 1
server:bsp:single --workers 3 --updates 0 --dies 1
server:bsp:single --workers 3
server:bsp:round-robin --workers 3 --updates 1
async:3:nostash --workers 3 --updates 3
checkpoint --workers 3 --kill
"""


ORDER_MATTERS = "server:asp", "server:ssp:1", "server:ssp:2", "downpour"  # protocols with several results


def parser():
    """The parser of a case."""
    found = argparse.ArgumentParser(
        prog="orders", description="Explore all orders of messages of one case; without a case, of all cases of the list."
    )
    found.add_argument(
        "protocol", nargs="?", metavar="CASE", help="a protocol as for train, a pipeline such as async:2, or checkpoint"
    )
    found.add_argument("--workers", type=int, default=2, metavar="N", help="workers, or ranks (default: 2)")
    found.add_argument(
        "--updates", type=int, metavar="N", help="global minibatches (default: 2), or boundaries (default: 6, 4 with --kill)"
    )
    found.add_argument("--batch", type=int, metavar="N", help="samples in a global minibatch (default: one for each worker)")
    found.add_argument("--dies", type=int, metavar="RANK", help="this worker may die at any moment")
    found.add_argument("--late", action="store_true", help="messages leave when they arrive; else, of protocols, at once")
    found.add_argument("--eager", action="store_true", help="messages of a pipeline leave at once; else when they arrive")
    found.add_argument("--partition", action="store_true", help="the pipeline of a hypergraph partition; else of stages")
    found.add_argument("--kill", action="store_true", help="the job may be killed at any moment")
    found.add_argument("--signal", type=int, metavar="RANK", help="this rank may get a signal at any moment")
    found.add_argument("--all", action="store_true", help="try all orders, too, and compare what they lead to")
    found.add_argument("--out", type=Path, metavar="FILE", help="write the table of all cases there, in Markdown")
    found.add_argument("--replay", type=numbers, metavar="I,I,..", help="execute one order, and say what happens in it")
    return found


def numbers(text):
    """The numbers in a text such as "0,2,1"."""
    return [int(word) for word in text.split(",") if word]


def case_of(args):
    """The case that arguments describe."""
    if args.protocol == CHECKPOINT:
        boundaries, steps = (4, 2) if args.kill else (6, 3)
        return Checkpoints(args.workers, boundaries if args.updates is None else args.updates, steps, args.kill, args.signal)
    updates = 2 if args.updates is None else args.updates
    if args.protocol.startswith(PIPELINE):
        return Pipelines(args.protocol, args.workers, updates, args.eager, args.partition)
    protocol_names.parse(args.protocol)
    if args.dies is not None and "single" not in args.protocol.split(":"):
        raise ValueError("workers survive the death of one where a single server has all parameters: append :single")
    return Protocols(args.protocol, args.workers, updates, args.batch, mortal=args.dies, is_eager=not args.late)


@dataclass(frozen=True)
class Row:
    """A case of the list. line: it, as on the command line. is_long, is_tested: whether it is a long test, or one at all."""

    line: str
    is_long: bool = False
    is_tested: bool = True

    @cached_property
    def args(self):
        return parser().parse_args(self.line.split())

    @property
    def has_one_result(self):
        """Whether all orders are to lead to the same."""
        args = self.args
        return args.dies is None and args.signal is None and not args.kill and not args.protocol.startswith(ORDER_MATTERS)

    def explored(self):
        """(an Explored, that of all orders or None, [what is wrong, in lines])."""
        case = case_of(self.args)
        found = explore(case)
        every = explore(case, BruteForce()) if self.args.all else None
        wrong = []
        for one in filter(None, (found, every)):
            wrong += [f"{words}\n    {self.again(choices)}" for words, choices in one.violations.items()]
        if self.has_one_result and len(found.results) > 1:
            first, second, *_ = map(self.again, found.results.values())
            wrong.append(f"two orders lead to different results:\n    {first}\n    {second}")
        if every and (every.results.keys(), every.violations.keys()) != (found.results.keys(), found.violations.keys()):
            wrong.append("the orders that suffice do not lead to what all orders lead to")
        return found, every, wrong

    def again(self, choices):
        """The command that executes one order again."""
        return f"python -m tests.orders {self.line} --replay {','.join(map(str, choices))}"

    def __str__(self):
        return self.line


def rows():
    """All cases, in the order of the list."""
    lists = (SHORT, {}), (LONG, {"is_long": True}), (OF_THE_PROGRAM, {"is_tested": False})
    return [Row(line, **marks) for lines, marks in lists for line in lines.split("\n") if line]
