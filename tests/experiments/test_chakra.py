"""Execution traces of Chakra, read back with its package: each rank has what it does, and all of it can be done in order."""

import json
import subprocess
from collections import Counter, defaultdict
from types import SimpleNamespace

import pytest

from gridgrad.experiments.export import graphs
from gridgrad.experiments.export.actions import Collective, Compute, Expect, Receive, Send, step_actions
from gridgrad.parallel.grid.collectives import COLLECTIVES
from tests.experiments.programs import program
from tests.experiments.test_export import CHAKRA, CORI, NEEDS_CHAKRA, asked_of, messages_of, nodes_of
from tests.random_networks.case import random_case
from tests.random_networks.tables import table_of

pytestmark = NEEDS_CHAKRA
if CHAKRA:
    from chakra.schema.protobuf import et_def_pb2 as schema
    from chakra.src.third_party.utils import protolib

MESSAGES = ("COMM_SEND_NODE", "COMM_RECV_NODE")
CASES = 60  # of random networks, of which each has 1 to 8 ranks


def read(folder, rank):
    """[(the Node, the name of its type, {name: value} of its attributes)] of a rank, in their order."""
    found = []
    with open(folder / f"step.{rank}.et", "rb") as file:
        metadata = schema.GlobalMetadata()
        assert protolib.decodeMessage(file, metadata) and metadata.version == "1.0.0"
        while protolib.decodeMessage(file, node := schema.Node()):
            attributes = {one.name: getattr(one, one.WhichOneof("value")) for one in node.attr}
            found.append((node, schema.NodeType.Name(node.type), attributes))
        assert not file.read()
    return found


def test_all_that_a_rank_does_is_in_its_trace(tmp_path):
    """Of random networks on random grids, pipelines too."""
    met = Counter()
    for seed in range(CASES):
        case = random_case(seed)
        if case.pipeline and case.pipeline.startswith("async"):
            continue
        of_machine = nodes_of(case.ranks_per_node)
        with table_of(case):
            batch_size = max(case.batch_sizes) * case.micro_batches
            actions = step_actions(case.network(), asked_of(case), batch_size, of_machine)
        folder = tmp_path / str(seed)
        graphs.write_chakra(folder, actions, of_machine)
        assert len(list(folder.iterdir())) == len(actions) + 1
        traces = [read(folder, rank) for rank in range(len(actions))]
        for rank, (mine, nodes) in enumerate(zip(actions, traces, strict=True)):
            agrees(rank, mine, nodes)
        play(traces, json.loads((folder / "groups.json").read_text()))
        met += collectives_agree(actions, traces)
    assert met.keys() == {"ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL"}


def agrees(rank, mine, nodes):
    """The nodes of a rank have its seconds, flops and messages, and their dependencies are earlier nodes."""
    assert [node.id for node, *_ in nodes] == list(range(1, len(nodes) + 1))
    for node, kind, attributes in nodes:
        assert all(0 < earlier < node.id for earlier in node.ctrl_deps) and node.ctrl_deps == node.data_deps
        assert attributes["is_cpu_op"] is (kind == "COMP_NODE")
    computes = [one for one in mine if isinstance(one, Compute)]
    micros = sum(node.duration_micros for node, *_ in nodes)
    assert micros == pytest.approx(1e6 * sum(one.seconds for one in computes), abs=0.51)
    flops = sum(attributes.get("num_ops", 0) for *_, attributes in nodes)
    assert flops == pytest.approx(sum(one.flops for one in computes), abs=len(computes))
    parts = [one for one in mine if isinstance(one, Collective) and one.kind not in graphs.KINDS]
    expected = sum(isinstance(one, Send) for one in mine) + sum(map(messages_of, parts))
    nbytes = sum(one.nbytes for one in mine if isinstance(one, Send)) + sum(one.nbytes for one in parts)
    sent = [attributes["comm_size"] for _, kind, attributes in nodes if kind == "COMM_SEND_NODE"]
    assert len(sent) == expected and 0 <= sum(sent) - nbytes <= sent.count(1)  # empty ones have one byte
    for _, kind, attributes in nodes:
        if kind in MESSAGES:
            assert attributes["comm_src" if kind == "COMM_SEND_NODE" else "comm_dst"] == rank


def collectives_agree(actions, traces):
    """Count the collectives by their type. All ranks together send the bytes of a node, but for rounding to whole ones."""
    met, meetings = Counter(), defaultdict(list)
    for mine, nodes in zip(actions, traces, strict=True):
        kept = [one for one in mine if isinstance(one, Collective) and one.kind in graphs.KINDS]
        found = [attributes for _, kind, attributes in nodes if kind == "COMM_COLL_NODE"]
        numbers = Counter()
        for one, attributes in zip(kept, found, strict=True):
            kind = schema.CollectiveCommType.Name(attributes["comm_type"])
            assert kind == one.kind.upper().replace("-", "_")
            met[kind] += 1
            numbers[one.ranks] += 1
            meetings[one.ranks, numbers[one.ranks]].append((one, attributes["comm_size"]))
    for (ranks, _), meeting in meetings.items():
        ((kind, size),) = {(one.kind, size) for one, size in meeting}
        sent = sum(one.nbytes for one, _ in meeting)
        assert sent <= sent_by_all(kind, size, len(ranks)) and (size == 1 or sent > sent_by_all(kind, size - 1, len(ranks)))
    return met


def sent_by_all(kind, size, ranks):
    """Bytes that all ranks of a collective send, by the table of collectives, if each has an input of so many."""
    groups = [SimpleNamespace(size=ranks, rank=rank) for rank in range(ranks)]
    return sum(COLLECTIVES[kind].sent(group, size, size // ranks + (group.rank < size % ranks)) for group in groups)


def play(traces, groups):
    """Do all nodes as soon as they can be done, and refuse what is left. Messages and collectives must fit together."""
    done, mail, entered = [set() for _ in traces], defaultdict(list), [Counter() for _ in traces]
    inside, goes_on = defaultdict(dict), True
    while goes_on:
        goes_on = False
        for rank, nodes in enumerate(traces):
            for node, kind, attributes in nodes:
                if node.id in done[rank] or not done[rank].issuperset(node.ctrl_deps):
                    continue
                if kind in MESSAGES:
                    letter = attributes["comm_src"], attributes["comm_dst"], attributes["comm_tag"]
                    if kind == "COMM_SEND_NODE":
                        mail[letter].append(attributes["comm_size"])
                    elif not mail[letter]:
                        continue
                    else:
                        assert mail[letter].pop(0) == attributes["comm_size"]
                elif kind == "COMM_COLL_NODE":
                    name = attributes.get("pg_name", "")
                    ranks = groups[name] if name else list(range(len(traces)))
                    assert rank in ranks
                    here = inside[name, entered[rank][name]]
                    here[rank] = attributes["comm_type"], attributes["comm_size"]
                    if len(here) < len(ranks):
                        continue
                    assert sorted(here) == sorted(ranks) and len(set(here.values())) == 1
                    entered[rank][name] += 1
                done[rank].add(node.id)
                goes_on = True
    assert [len(of) for of in done] == [len(nodes) for nodes in traces] and not any(mail.values())


def test_durations_are_rounded_so_that_their_sum_is_right(tmp_path):
    graphs.write_chakra(tmp_path, [[Compute("a", 0.3e-6, 1.6)] * 10], CORI)
    durations = [node.duration_micros for node, *_ in read(tmp_path, 0)]
    assert sum(durations) == 3 and set(durations) == {0, 1}
    assert {attributes["num_ops"] for *_, attributes in read(tmp_path, 0)} == {2}


@pytest.mark.parametrize(("kind", "sent", "size"), [
    ("all-reduce", (14, 14, 12), 10), ("all-gather", (8, 8, 0), 3), ("reduce-scatter", (6, 6, 8), 10),
    ("all-to-all", (6, 0, 2), 4), ("all-gather", (0, 0, 0), 1),
])  # fmt: skip
def test_the_size_of_a_collective_is_that_of_the_input_of_a_rank(kind, sent, size, tmp_path):
    """Three ranks of four: ten bytes that are reduced, and blocks of which some are empty."""
    ranks = (0, 1, 3)
    actions = [[], [], [], []]
    for place, rank in enumerate(ranks):
        actions[rank] = [Collective("x", kind, ranks, place, sent[place])]
    graphs.write_chakra(tmp_path, actions, CORI)
    assert json.loads((tmp_path / "groups.json").read_text()) == {"1": [0, 1, 3]}
    for rank in ranks:
        ((_, _, attributes),) = read(tmp_path, rank)
        assert (attributes["comm_size"], attributes["pg_name"]) == (size, "1")
    assert read(tmp_path, 2) == []


def test_messages_of_a_pipeline_overlap_and_are_waited_for(tmp_path):
    """What follows an Expect does not require it, what follows its Receive does, and nothing requires a Send."""
    first = [Send(1, 8, 1), Compute("a", 1e-6)]
    second = [Expect(0, 8, 1), Compute("a", 1e-6), Receive(0, 8, 1), Compute("b", 1e-6)]
    graphs.write_chakra(tmp_path, [first, second], CORI)
    needs = [[(kind, list(node.ctrl_deps)) for node, kind, _ in read(tmp_path, rank)] for rank in range(2)]
    assert needs[0] == [("COMM_SEND_NODE", []), ("COMP_NODE", [])]
    assert needs[1] == [("COMM_RECV_NODE", []), ("COMP_NODE", []), ("COMP_NODE", [2, 1]), ("COMP_NODE", [3])]


def test_explain_writes_what_chakra_jsonizer_reads(tmp_path):
    words = ["explain", "--net", "mlp:64,64,relu", "--ranks", 4, "--grid", "batch=2,model=2", "--format", "chakra"]
    finished = program(*words, "--export", tmp_path / "traces")
    assert finished.returncode == 0, finished.stderr
    line = next(line for line in finished.stdout.splitlines() if "chakra_jsonizer" in line)
    assert f"ASTRA-sim reads {tmp_path}/traces/step with {tmp_path}/traces/groups.json" in line
    command = line.split("`")[1].split()
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    assert '"type": "COMM_COLL_NODE"' in (tmp_path / "rank0.json").read_text()
