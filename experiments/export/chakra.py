"""A training step as execution traces of MLCommons Chakra, which ASTRA-sim reads (Sridharan et al. 2023).

A rank has a file of its own: a GlobalMetadata, then a Node for each of its operations (`experiments/export/operations.py`), in
an order in which they can be done. Its messages are written by the package mlc-chakra, whose schema they follow.

| an operation            | its node                                                                                       |
|-------------------------|------------------------------------------------------------------------------------------------|
| computing               | COMP_NODE of a CPU, in whole microseconds, rounded so that their sum is right, with `num_ops`  |
| a collective of `KINDS` | COMM_COLL_NODE: `comm_type`, `comm_size`, and `pg_name` unless it is of all ranks              |
| a message               | COMM_SEND_NODE or COMM_RECV_NODE: `comm_src`, `comm_dst`, `comm_tag`, `comm_size`              |

`comm_size` of a collective is what Chakra's converter writes and ASTRA-sim expects: the bytes of a rank's input, which are all
of an array that is reduced or that goes to all, but only the block that a rank gives to an all-gather. It is the same on all
ranks, because ASTRA-sim waits for messages of that size: where inputs differ it is their mean, rounded up to whole bytes. The
names of the groups are numbers, and the ranks of each are in a file that ASTRA-sim reads.
"""

import json
from pathlib import Path

from gridgrad.experiments.export.actions import Collective, Compute, Expect, Send
from gridgrad.experiments.export.operations import operations
from gridgrad.experiments.export.rounds import meetings
from gridgrad.nn.files.whole_files import write_text, written_whole

TRACE, GROUPS = "step.{}.et", "groups.json"
SCHEMA = "1.0.0"  # which the traces of the package's own generator name
MICROSECONDS = 1e6  # in a second
INSTALL = "pip install --no-deps mlc-chakra protobuf"  # what else mlc-chakra requires is for its other programs
KINDS = {  # of collectives: Chakra's name, and how often all ranks of a group together send the input of one
    "all-reduce": ("ALL_REDUCE", lambda ranks: 2 * (ranks - 1)),
    "all-gather": ("ALL_GATHER", lambda ranks: ranks * (ranks - 1)),
    "reduce-scatter": ("REDUCE_SCATTER", lambda ranks: ranks - 1),
    "all-to-all": ("ALL_TO_ALL", lambda ranks: ranks - 1),
}


def write(folder, actions, machine):
    """Write the trace of each rank and the groups into a folder.

    actions: of each rank, see `step_actions`. machine: a Machine; the seconds of the actions have all that is needed of it.
    ValueError if the package mlc-chakra is not installed.
    """
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
    """(the module of Chakra's schema, the function that writes a message with its length before it).

    ValueError, which says how to install them, if they are not there or do not fit each other.
    """
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
                kind = schema.CollectiveCommType.Value(KINDS[what.kind][0])
                attributes = {"comm_type": ("int64", kind), "comm_size": ("int64", input_bytes(meeting))}
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


def input_bytes(meeting):
    """The bytes of the input of one rank of a collective, on average, rounded up, and at least one."""
    times = KINDS[meeting[0].kind][1](len(meeting))
    return max(1, -(-sum(one.nbytes for one in meeting) // times))
