"""A step for other simulators: what is predicted is in it, what is in it is predicted, and it can be done to its end."""

import shutil
import subprocess
from collections import Counter, defaultdict
from dataclasses import replace
from types import SimpleNamespace

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


# ----- random networks on random grids, pipelines too


def asked_of(case):
    """What is predicted for a Case."""
    plan, options = case.placing()
    owners = options.get("owners")
    if not case.pipeline:
        return PlacementSpec(case.grid, plan, case.shares, owners)
    cuts = case.made_cuts()
    pipelines = Pipelines(case.schedule(), case.micro_batches, cuts)
    return PlacementSpec(case.grid, plan, case.shares, owners if cuts is None else None, pipelines)


def test_all_that_is_predicted_is_written_and_can_be_done():
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
        for whole in ((), graphs.KINDS):  # the kinds of collectives that stay what they are
            play(actions, whole)
    assert 5 < checked < CASES - 5, "there are pipelines and others"


def layers_agree(net, asked, actions, batch_size, on):
    """Each rank computes and sends what the cost model counts for it."""
    for mine, place in zip(actions, places({axis: asked.grid.get(axis, 1) for axis in AXES}), strict=True):
        grid = GridDescription(asked.grid, place, on.node["ranks"])
        cost = Cost(net, grid, asked.plan, batch_size, on, asked.shares, asked.owners)
        seconds = sum(cost.seconds_of(work) for work in cost.works if work.group is None)
        assert computed(mine) == pytest.approx(seconds)
        collectives = [(one.kind, one.nbytes) for one in mine if isinstance(one, Collective)]
        assert sorted(collectives) == sorted((work.name, work.nbytes) for work in cost.works if work.group is not None)


def computed(actions):
    return sum(one.seconds for one in actions if isinstance(one, Compute))


def sent(actions):
    return sum(one.nbytes for one in actions if isinstance(one, (Send, Collective)))


def play(actions, whole):
    """Do the operations of all ranks as soon as they can be done, and refuse what is left.

    They have the seconds and bytes of the actions. Messages and collectives must fit together.
    """
    ranks = [list(operations(mine, own, whole)) for mine, own in zip(actions, meetings(actions), strict=True)]
    for mine, found in zip(actions, ranks, strict=True):
        assert computed(one.what for one in found) == pytest.approx(computed(mine))
        assert sent(one.what for one in found) == sent(mine)
    waiting = [{one.number: one for one in found} for found in ranks]
    mail, inside, met, goes_on = defaultdict(list), defaultdict(dict), Counter(), True
    while goes_on:
        goes_on = False
        for rank, left in enumerate(waiting):
            for number, (_, what, needs, _) in list(left.items()):
                if not left.keys().isdisjoint(needs):
                    continue
                match what:
                    case Send():
                        mail[rank, what.receiver, what.tag].append(what.nbytes)
                    case Expect():
                        if not (come := mail[what.sender, rank, what.tag]):
                            continue
                        assert come.pop(0) == what.nbytes
                    case Collective():
                        here = inside[what.ranks, met[rank, what.ranks]]
                        here[rank] = what.kind
                        if len(here) < len(what.ranks):
                            continue
                        assert sorted(here) == sorted(what.ranks) and set(here.values()) == {what.kind}
                        met[rank, what.ranks] += 1
                del left[number]
                goes_on = True
    assert not any(waiting) and not any(mail.values())


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


def chakra(folder, actions):
    """[[(type of a Node, {name: value} of its attributes)] of each rank]."""
    ranks = []
    with pytest.MonkeyPatch.context() as patch:
        encode = lambda file, one: ranks[-1].append(one) if hasattr(one, "id") else ranks.append([])  # noqa: E731
        patch.setattr(graphs, "package", lambda: (SCHEMA, encode))
        graphs.write_chakra(folder, actions, CORI)
    return [[(node.type, dict(node.attr)) for node in mine] for mine in ranks]


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
        [(type_, values)] = chakra(tmp_path, [[one] for one in meeting])[1]
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


# ----- with SimGrid


@NEEDS_SIMGRID
def test_the_script_in_the_folder_that_explain_writes_replays_the_step(tmp_path, monkeypatch, capsys):
    net = "--net", "mlp:64,64,relu", "--ranks", 4, "--grid", "batch=2,stage=2"
    run_main(monkeypatch, "explain", *net, "--export", tmp_path / "new")
    assert f"sh {tmp_path}/new/{simgrid.SCRIPT}" in capsys.readouterr().out
    finished = subprocess.run(["sh", tmp_path / "new" / simgrid.SCRIPT], capture_output=True, text=True, timeout=120)
    assert finished.returncode == 0 and "Simulation time" in finished.stderr + finished.stdout, finished.stderr
