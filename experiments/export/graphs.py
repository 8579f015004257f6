"""A training step as a graph of operations (`experiments/export/messages.py`) for two simulators.

GOAL is the text format of LogGOPSim and ATLAHS (Hoefler, Siebert and Lumsdaine 2009), of which `txt2bin` makes the binary that
they read. Operations are `calc`, in whole nanoseconds of their predicted seconds; all collectives are messages. It has no empty
messages: these have one byte.

Execution traces of MLCommons Chakra are what ASTRA-sim reads (Sridharan et al. 2023). A rank has a file of its own: a
GlobalMetadata, then a Node for each operation, in an order in which they can be done, written by the package mlc-chakra.
Microseconds of computing are rounded so that their sum is right. The collectives of `KINDS` stay what they are. Their
`comm_size` is what Chakra's converter writes and ASTRA-sim expects: the bytes of a rank's input, which are all of an array that
is reduced or that goes to all, but only the block that a rank gives to an all-gather. It is the same on all ranks, because
ASTRA-sim waits for messages of that size: where inputs differ it is their mean, rounded up to whole bytes. The names of the
groups are numbers, and the ranks of each are in a file that ASTRA-sim reads.
"""

import json
from pathlib import Path

from gridgrad.experiments.export.actions import Collective, Compute, Expect, Send
from gridgrad.experiments.export.messages import meetings, operations
from gridgrad.nn.files.whole_files import write_text, written_whole

SCHEDULE = "step.goal"
NANOSECONDS, MICROSECONDS = 1e9, 1e6  # in a second
TRACE, GROUPS = "step.{}.et", "groups.json"
SCHEMA = "1.0.0"  # which the traces of the package's own generator name
INSTALL = "pip install --no-deps mlc-chakra protobuf"  # what else mlc-chakra requires is for its other programs
KINDS = {  # of collectives: Chakra's name, and how often all ranks of a group together send the input of one
    "all-reduce": ("ALL_REDUCE", lambda ranks: 2 * (ranks - 1)),
    "all-gather": ("ALL_GATHER", lambda ranks: ranks * (ranks - 1)),
    "reduce-scatter": ("REDUCE_SCATTER", lambda ranks: ranks - 1),
    "all-to-all": ("ALL_TO_ALL", lambda ranks: ranks - 1),
}


def write_goal(folder, actions, machine):
    """Write the schedule in GOAL into a folder. actions: of each rank, see `step_actions`. machine: a Machine."""
    lists, network = meetings(actions), machine.links["network"]
    with written_whole(Path(folder) / SCHEDULE) as beside, open(beside, "w", encoding="utf-8") as file:
        file.write(f"// {machine.name}: LogGOPSim -L {network['alpha'] * NANOSECONDS:.0f} -o 0 -g 0 ")
        file.write(f"-G {network['beta'] * NANOSECONDS:.4g}\n")
        file.write(f"num_ranks {len(actions)}\n")
        for rank, of_rank in enumerate(actions):
            file.write(f"\nrank {rank} {{\n")
            for number, what, requires, _ in operations(of_rank, lists[rank]):
                match what:
                    case Compute():
                        words = f"calc {round(what.seconds * NANOSECONDS)}"
                    case Send():
                        words = f"send {max(1, what.nbytes)}b to {what.receiver} tag {what.tag}"
                    case Expect():
                        words = f"recv {max(1, what.nbytes)}b from {what.sender} tag {what.tag}"
                file.write(f"l{number}: {words}\n")
                file.writelines(f"l{number} requires l{earlier}\n" for earlier in requires)
            file.write("}\n")


def write_chakra(folder, actions, machine):
    """Write the trace of each rank and the groups into a folder, as `write_goal`. ValueError if mlc-chakra is not installed."""
    schema, encode = package()
    folder, lists = Path(folder), meetings(actions)
    groups = {tuple(range(len(actions))): ""}  # {ranks: name}; that of all ranks has none
    for rank, of_rank in enumerate(actions):
        with written_whole(folder / TRACE.format(rank)) as beside, open(beside, "wb") as file:
            encode(file, schema.GlobalMetadata(version=SCHEMA))
            for node in nodes(rank, operations(of_rank, lists[rank], KINDS), groups, schema):
                encode(file, node)
    write_text(folder / GROUPS, json.dumps({name: ranks for ranks, name in groups.items() if name}, indent=1) + "\n")


def package():
    """(the module of Chakra's schema, the function that writes a message). ValueError that says how to install what is
    missing."""
    try:
        from google.protobuf.runtime_version import VersionError

        try:
            from chakra.schema.protobuf import et_def_pb2
            from chakra.src.third_party.utils.protolib import encodeMessage
        except VersionError:
            raise ValueError(f"--format chakra: this protobuf does not fit mlc-chakra: {INSTALL} --upgrade") from None
    except ImportError as error:
        raise ValueError(f"--format chakra: the package mlc-chakra is not installed ({error}): {INSTALL}") from None
    return et_def_pb2, encodeMessage


def nodes(rank, done, groups, schema):
    """Yield the Nodes of a rank. done: its Operations. groups: {ranks: name}, to which new ones are added. schema: a module."""
    seconds = ended = 0  # ended: microseconds
    for number, what, requires, meeting in done:
        # Chakra's own feeder reads data dependencies alone, ASTRA-sim reads both kinds
        node = schema.Node(id=number, ctrl_deps=requires, data_deps=requires)
        match what:
            case Compute():
                began, seconds = ended, seconds + what.seconds
                ended = round(seconds * MICROSECONDS)
                node.name, node.type, node.duration_micros = what.layer, schema.COMP_NODE, ended - began
                attributes = {"num_ops": ("int64", round(what.flops))}
            case Collective():
                name = groups.setdefault(what.ranks, str(len(groups)))
                node.name, node.type = f"{what.layer} {what.kind}", schema.COMM_COLL_NODE
                kind, times = KINDS[what.kind]
                nbytes = -(-sum(one.nbytes for one in meeting) // times(len(meeting)))
                attributes = {"comm_type": ("int64", schema.CollectiveCommType.Value(kind))}
                attributes["comm_size"] = "int64", max(1, nbytes)
                if name:
                    attributes["pg_name"] = ("string", name)
            case Send():
                node.name, node.type = f"to {what.receiver}", schema.COMM_SEND_NODE
                attributes = message(rank, what.receiver, what)
            case Expect():
                node.name, node.type = f"from {what.sender}", schema.COMM_RECV_NODE
                attributes = message(what.sender, rank, what)
        attributes["is_cpu_op"] = ("bool", node.type == schema.COMP_NODE)  # ASTRA-sim refuses communication of a CPU
        node.attr.extend(schema.AttributeProto(name=key, **{f"{of}_val": value}) for key, (of, value) in attributes.items())
        yield node


def message(sender, receiver, what):
    """The attributes of a Send or Expect. Simulators know no empty messages: these have one byte."""
    ranks = {"comm_src": ("int32", sender), "comm_dst": ("int32", receiver)}
    return ranks | {"comm_tag": ("int32", what.tag), "comm_size": ("int64", max(1, what.nbytes))}
