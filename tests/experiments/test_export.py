"""A step for other simulators: what is predicted is in it, what is in it is predicted, and it can be done to its end."""

import shutil
import subprocess
from collections import Counter, defaultdict
from dataclasses import replace
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from gridgrad.experiments.export import graphs, simgrid
from gridgrad.experiments.export.actions import Collective, Compute, Expect, Receive, Send, step_actions
from gridgrad.experiments.export.messages import meetings, operations
from gridgrad.parallel.grid.process_grid import AXES, GridDescription, places
from gridgrad.parallel.prediction import machine
from gridgrad.parallel.prediction.cost import Cost
from gridgrad.parallel.prediction.pipeline_cost import Pipelines
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from tests.experiments.programs import run_main
from tests.random_networks.case import random_case
from tests.random_networks.tables import table_of

CORI = machine.read("cori-haswell")
NEEDS_SIMGRID = pytest.mark.skipif(not shutil.which("smpirun"), reason="SimGrid is not installed: libsimgrid-dev has it")
CASES = 40  # of random networks, of which each has 1 to 8 ranks


# ----- the operations of a step, which all formats write


class Step(NamedTuple):
    what: str  # "compute", "send", "receive" or the name of a collective
    amount: float  # seconds, or bytes that this rank sends or receives
    needs: tuple = ()  # the labels of those that must have ended before
    meets: tuple = ()  # (sender, receiver, tag) of a message, the ranks of a collective


def graph(actions, whole):
    """{number: Step} of each rank. whole: the kinds of collectives that stay what they are."""
    for rank, (mine, lists) in enumerate(zip(actions, meetings(actions), strict=True)):
        steps = {}
        for number, what, needs, _ in operations(mine, lists, whole):
            match what:
                case Compute():
                    steps[number] = Step("compute", what.seconds, needs)
                case Send():
                    steps[number] = Step("send", what.nbytes, needs, (rank, what.receiver, what.tag))
                case Expect():
                    steps[number] = Step("receive", what.nbytes, needs, (what.sender, rank, what.tag))
                case Collective():
                    steps[number] = Step(what.kind, what.nbytes, needs, what.ranks)
        yield steps


def play(ranks):
    """Do all Steps as soon as they can be done, and refuse what is left. Messages and collectives must fit together."""
    waiting = [dict(steps) for steps in ranks]
    mail, inside, meetings, goes_on = defaultdict(list), defaultdict(dict), Counter(), True
    while goes_on:
        goes_on = False
        for rank, steps in enumerate(waiting):
            for label, step in list(steps.items()):
                if not steps.keys().isdisjoint(step.needs):
                    continue
                if step.what == "send":
                    mail[step.meets].append(step.amount)
                elif step.what == "receive":
                    if not mail[step.meets]:
                        continue
                    assert mail[step.meets].pop(0) == step.amount
                elif step.what != "compute":
                    number = meetings[rank, step.meets]
                    here = inside[step.meets, number]
                    here[rank] = step.what
                    if len(here) < len(step.meets):
                        continue
                    assert tuple(sorted(here)) == tuple(sorted(step.meets)) and set(here.values()) == {step.what}
                    meetings[rank, step.meets] += 1
                del steps[label]
                goes_on = True
    assert not any(waiting) and not any(mail.values())


# ----- random networks on random grids, pipelines too


def asked_of(case):
    plan, options = case.placing()
    owners = options.get("owners")
    if not case.pipeline:
        return PlacementSpec(case.grid, plan, case.shares, owners)
    cuts = case.made_cuts()
    pipelines = Pipelines(case.schedule(), case.micro_batches, cuts)
    return PlacementSpec(case.grid, plan, case.shares, owners if cuts is None else None, pipelines)


def test_all_that_is_predicted_is_written():
    checked = 0
    for seed in range(CASES):
        case = random_case(seed)
        net, asked = case.network(), asked_of(case)
        on = replace(CORI, node=CORI.node | {"ranks": case.ranks_per_node})
        batch_size = max(case.batch_sizes) * case.micro_batches
        with table_of(case):
            if case.pipeline and case.pipeline.startswith("async"):
                with pytest.raises(ValueError, match="its steps overlap"):
                    step_actions(net, asked, batch_size, on)
                continue
            actions = step_actions(net, asked, batch_size, on)
            if not case.pipeline:
                layers_agree(net, asked, actions, batch_size, on)
                checked += 1
        check(actions, ())
        check(actions, graphs.KINDS)
    assert 5 < checked < CASES - 5, "there are pipelines and others"


def layers_agree(net, asked, actions, batch_size, on):
    """Each rank computes and sends what the cost model counts for it."""
    for mine, place in zip(actions, places({axis: asked.grid.get(axis, 1) for axis in AXES}), strict=True):
        grid = GridDescription(asked.grid, place, on.node["ranks"])
        cost = Cost(net, grid, asked.plan, batch_size, on, asked.shares, asked.owners)
        seconds = sum(cost.seconds_of(work) for work in cost.works if work.group is None)
        assert sum(one.seconds for one in mine if isinstance(one, Compute)) == pytest.approx(seconds)
        collectives = [one for one in mine if isinstance(one, Collective)]
        assert sorted((one.kind, one.nbytes) for one in collectives) == sorted(
            (work.name, work.nbytes) for work in cost.works if work.group is not None
        )


def check(actions, whole):
    """Their operations can be done, and have their seconds and bytes."""
    ranks = list(graph(actions, whole))
    play(ranks)
    for steps, mine in zip(ranks, actions, strict=True):
        computed = sum(step.amount for step in steps.values() if step.what == "compute")
        assert computed == pytest.approx(sum(one.seconds for one in mine if isinstance(one, Compute)))
        sent = sum(step.amount for step in steps.values() if step.what not in ("compute", "receive"))
        assert sent == sum(one.nbytes for one in mine if isinstance(one, (Send, Collective)))


# ----- the formats

FIRST, SECOND = [Send(1, 8, 1), Compute("a", 1e-6)], [Expect(0, 8, 1), Compute("a", 1e-6), Receive(0, 8, 1), Compute("b", 0)]
SCHEMA = SimpleNamespace(  # in place of the modules of Chakra's package, which need not be installed
    GlobalMetadata=SimpleNamespace, Node=lambda **fields: SimpleNamespace(attr=[], duration_micros=0, **fields),
    AttributeProto=lambda name, **value: (name, *value.values()), CollectiveCommType=SimpleNamespace(Value=str),
    COMP_NODE="compute", COMM_COLL_NODE="collective", COMM_SEND_NODE="send", COMM_RECV_NODE="receive",
)  # fmt: skip


def test_traces_of_simgrid_are_the_actions(tmp_path):
    """In flops and bytes. A collective that SMPI does not have is messages."""
    exchange, flops = [Collective("x", "exchange", (0, 1), place, 4 + place, {1 - place: 4 + place}) for place in range(2)], 1e6
    simgrid.write(tmp_path, [[*FIRST, exchange[0]], [*SECOND, exchange[1]]], replace(CORI, core=CORI.core | {"flops": flops}))
    first, second = ((tmp_path / name).read_text().splitlines() for name in (tmp_path / simgrid.TRACES).read_text().split())
    exchanged = "isend 1 0 4 6", "irecv 1 0 5 6", "wait 0 1 0", "wait 1 0 0"
    assert first == [f"0 {line}" for line in ("init", "isend 1 1 8 6", "compute 1", *exchanged, "waitall", "finalize")]
    exchanged = "isend 0 0 5 6", "irecv 0 0 4 6", "wait 1 0 0", "wait 0 1 0"
    received = "irecv 0 1 8 6", "compute 1", "wait 0 1 1", "compute 0"
    assert second == [f"1 {line}" for line in ("init", *received, *exchanged, "finalize")]


def test_collectives_have_the_blocks_of_all_ranks(tmp_path):
    """On the second of three ranks, and for Chakra the size of the input of a rank; some blocks are empty."""
    for kind, nbytes, line, size in (
        ("all-reduce", (14, 14, 12), "allreduce 10 0 6", 10),
        ("all-gather", (6, 8, 0), "allgatherv 4 3 4 0 6", 3),
        ("reduce-scatter", (6, 7, 7), "reducescatter 4 3 3 0 6", 10),
        ("all-to-all", (3, 5, 0), "alltoallv 5 5 0 0 2 2 0 0 6 6", 4),
    ):
        messages = [{1: 2, 2: 1}, {0: 5}, {}] if kind == "all-to-all" else [None] * 3
        meeting = [Collective("x", kind, (0, 1, 2), place, nbytes[place], messages[place]) for place in range(3)]
        assert simgrid.native_line(kind, meeting, 1) == line
        [(type_, _, values)] = chakra(tmp_path, [[one] for one in meeting])[1]
        assert (type_, values["comm_type"]) == ("collective", kind.upper().replace("-", "_")), kind
        assert values["comm_size"] == size, (kind, values)


def test_a_schedule_in_goal_is_its_operations(tmp_path):
    """What follows an Expect does not require it, what follows its Receive does, and nothing requires a Send."""
    graphs.write_goal(tmp_path, [FIRST, SECOND], CORI)
    header, *ranks = (tmp_path / graphs.SCHEDULE).read_text().split("\nrank ")
    assert header.endswith("\nnum_ranks 2\n")
    assert ranks[0].split("\n") == ["0 {", "l1: send 8b to 1 tag 1", "l2: calc 1000", "}", ""]
    assert ranks[1].split("\n") == ["1 {", "l1: recv 8b from 0 tag 1", "l2: calc 1000", "l3: calc 0", "l3 requires l2",
                                    "l3 requires l1", "l4: calc 0", "l4 requires l3", "}", ""]  # fmt: skip


def chakra(folder, actions):
    """[[(type of a Node, what it requires, {name: value} of its attributes and microseconds)] of each rank]."""
    ranks = []
    with pytest.MonkeyPatch.context() as patch:
        encode = lambda file, one: ranks[-1].append(one) if hasattr(one, "id") else ranks.append([])  # noqa: E731
        patch.setattr(graphs, "package", lambda: (SCHEMA, encode))
        graphs.write_chakra(folder, actions, CORI)
    return [
        [(node.type, node.ctrl_deps, dict(node.attr) | {"micros": node.duration_micros}) for node in mine] for mine in ranks
    ]


def test_traces_of_chakra_are_the_operations_in_whole_microseconds(tmp_path):
    computed, (_, compute, _, after) = chakra(tmp_path, [[*[Compute("a", 0.27e-6, 1.6)] * 10, Send(1, 0, 1)], SECOND])
    assert sum(values["micros"] for *_, values in computed) == 3 and computed[0][2]["num_ops"] == 2
    message = {"comm_src": 0, "comm_dst": 1, "comm_tag": 1, "comm_size": 1, "is_cpu_op": False, "micros": 0}
    assert computed[-1] == ("send", (10,), message)  # simulators know no empty messages
    assert compute == ("compute", (), {"num_ops": 0, "is_cpu_op": True, "micros": 1}) and after[1] == (3,)


# ----- with SimGrid


@NEEDS_SIMGRID
def test_the_script_in_the_folder_that_explain_writes_replays_the_step(tmp_path, monkeypatch, capsys):
    net = "--net", "mlp:64,64,relu", "--ranks", 4, "--grid", "batch=2,stage=2"
    run_main(monkeypatch, "explain", *net, "--export", tmp_path / "new")
    assert f"sh {tmp_path}/new/{simgrid.SCRIPT}" in capsys.readouterr().out
    finished = subprocess.run(["sh", tmp_path / "new" / simgrid.SCRIPT], capture_output=True, text=True, timeout=120)
    assert finished.returncode == 0 and "Simulation time" in finished.stderr + finished.stdout, finished.stderr
