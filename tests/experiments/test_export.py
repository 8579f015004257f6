"""A step for other simulators: everything that is predicted is in it, and everything in it is predicted."""

import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from gridgrad.experiments import explain
from gridgrad.experiments.export import graphs, simgrid
from gridgrad.experiments.export.actions import Collective, Compute, Send, step_actions
from gridgrad.experiments.export.messages import rounds
from gridgrad.nn.files.whole_files import NotWritten
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.grid.collectives import COLLECTIVES
from gridgrad.parallel.grid.process_grid import AXES, MODEL, STAGE, GridDescription, places
from gridgrad.parallel.prediction import machine
from gridgrad.parallel.prediction.cost import Cost
from gridgrad.parallel.prediction.pipeline_cost import Pipelines, partition_step_time, pipeline_step_time
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from gridgrad.parallel.prediction.planner import Planner
from tests.disk import files_end_at
from tests.experiments.programs import program
from tests.experiments.traces import play, read
from tests.random_networks.case import random_case
from tests.random_networks.tables import table_of

CORI = machine.read("cori-haswell")
REPLAYS = shutil.which("smpirun")
NEEDS_SIMGRID = pytest.mark.skipif(not REPLAYS, reason="SimGrid's smpirun is not installed here: libsimgrid-dev has it")
try:
    CHAKRA = graphs.package()
except ValueError:
    CHAKRA = None
NEEDS_CHAKRA = pytest.mark.skipif(CHAKRA is None, reason=f"the package mlc-chakra is not installed here: {graphs.INSTALL}")
FORMATS = [pytest.param(name, marks=NEEDS_CHAKRA if name == "chakra" else ()) for name in explain.FORMATS]
CASES = 120  # of random networks, of which each has 1 to 8 ranks


def nodes_of(ranks):
    """The machine of the tests with so many ranks a node."""
    return replace(CORI, node=CORI.node | {"ranks": ranks})


def asked_of(case):
    """The PlacementSpec of a Case."""
    plan, options = case.placing()
    owners = options.get("owners")
    if not case.pipeline:
        return PlacementSpec(case.grid, plan, case.shares, owners)
    cuts = case.made_cuts()
    pipelines = Pipelines(case.pipeline, case.micro_batches, cuts)
    return PlacementSpec(case.grid, plan, case.shares, owners if cuts is None else None, pipelines)


def collectives_of(net, asked, batch_size, of_machine):
    """For each rank, [(kind, bytes)] of all collectives that the cost model counts for a step."""
    for place in places({axis: asked.grid.get(axis, 1) for axis in AXES}):
        grid = GridDescription(asked.grid, place, of_machine.node["ranks"])
        cost = Cost(net, grid, asked.plan, batch_size, of_machine, asked.shares, asked.owners)
        seconds = sum(cost.seconds_of(work) for work in cost.works if work.group is None)
        yield seconds, sorted((work.name, work.nbytes) for work in cost.works if work.group is not None)


@pytest.mark.parametrize("part", range(4))
def test_all_that_is_predicted_is_written(part, tmp_path):
    """Computing, collectives and bytes of random networks on random grids, rank by rank, and of pipelines too."""
    kinds = set()
    for seed in range(part, CASES, 4):
        case = random_case(seed)
        with table_of(case):
            kinds.add(check(case, tmp_path / str(seed)))
    assert kinds >= {"layers", "stages"}


def check(case, folder):
    """Write a Case in all formats and hold it against its prediction; returns what it is."""
    net, asked, of_machine = case.network(), asked_of(case), nodes_of(case.ranks_per_node)
    batch_size = max(case.batch_sizes) * case.micro_batches
    if case.pipeline and case.pipeline.startswith("async"):
        with pytest.raises(ValueError, match="its steps overlap"):
            step_actions(net, asked, batch_size, of_machine)
        return "asynchronous"
    actions = step_actions(net, asked, batch_size, of_machine)
    simgrid.write(folder, actions, of_machine)
    graphs.write_goal(folder, actions, of_machine)
    if case.pipeline:
        agrees_with_pipeline(case, asked, actions, batch_size, of_machine)
    else:
        agrees_with_layers(net, asked, actions, batch_size, of_machine)
    agree(folder, actions, of_machine)
    return "layers" if not case.pipeline else "stages" if case.grid.get(STAGE, 1) > 1 else "partition"


def agrees_with_layers(net, asked, actions, batch_size, of_machine):
    for mine, (seconds, collectives) in zip(actions, collectives_of(net, asked, batch_size, of_machine), strict=True):
        assert sum(one.seconds for one in mine if isinstance(one, Compute)) == pytest.approx(seconds)
        assert sorted((one.kind, one.nbytes) for one in mine if isinstance(one, Collective)) == collectives
        for one in mine:
            if isinstance(one, Collective) and one.messages is not None:
                assert sum(one.messages.values()) == one.nbytes and one.place not in one.messages


def agrees_with_pipeline(case, asked, actions, batch_size, of_machine):
    """For the ranks with the most work of each stage, which the prediction of a pipeline is of, on even grids for all."""
    of_stages = case.grid.get(STAGE, 1) > 1
    found = (pipeline_step_time if of_stages else partition_step_time)(case.network(), asked, batch_size, of_machine)
    axis = STAGE if of_stages else MODEL
    moving = [case.micro_batches * sum(chunk.moving for chunk in found.held(rank)) for rank in range(len(found.ranks))]
    sums = [sum(chunk.sums for chunk in found.held(rank)) for rank in range(len(found.ranks))]
    played = [(one.bytes, one.messages, one.busy - a - b) for one, a, b in zip(found.ranks, moving, sums, strict=True)]
    wrote = [[] for _ in played]
    for place, mine in zip(places({axis: case.grid.get(axis, 1) for axis in AXES}), actions, strict=True):
        messages = [one.nbytes for one in mine if isinstance(one, Send)]
        collectives = [one.nbytes for one in mine if isinstance(one, Collective)]
        seconds = sum(one.seconds for one in mine if isinstance(one, Compute))
        wrote[place[axis]].append((sum(messages) + sum(collectives), len(messages), seconds))
    for of_rank, expected in zip(wrote, played, strict=True):
        assert any(one == pytest.approx(expected) for one in of_rank), (case, wrote, played)


def agree(folder, actions, of_machine):
    """The traces and the schedule have the bytes and the messages of the actions."""
    traces, schedule = read(folder), play(folder / graphs.SCHEDULE)
    total = 0
    for rank, mine in enumerate(actions):
        seconds = sum(one.seconds for one in mine if isinstance(one, Compute))
        assert traces.flops[rank] / of_machine.core["flops"] == pytest.approx(seconds)
        collectives = [one for one in mine if isinstance(one, Collective)]
        here = [one.nbytes for one in mine if isinstance(one, Send)]
        wrote = [one for one in collectives if one.kind not in simgrid.NATIVE or len(one.ranks) < len(actions)]
        assert traces.sent(rank) == (
            len(here) + sum(messages_of(one) for one in wrote), sum(here) + sum(one.nbytes for one in wrote)
        )  # fmt: skip
        total += sum(one.nbytes for one in collectives) - sum(one.nbytes for one in wrote)
        nanoseconds, sent = schedule[rank]
        assert nanoseconds == pytest.approx(1e9 * seconds, abs=len(mine))
        assert len(sent) == len(here) + sum(map(messages_of, collectives))
        empty = sum(sent) - sum(here) - sum(one.nbytes for one in collectives)
        assert 0 <= empty <= sent.count(1)  # GOAL has no empty messages
    assert traces.sent_natively == total


def messages_of(one):
    """How many messages a rank sends in a collective that is written as messages."""
    return len(one.messages) if one.messages is not None else COLLECTIVES[one.kind].rounds(len(one.ranks))


@pytest.mark.parametrize("ranks", [2, 3, 5, 8, 13])
@pytest.mark.parametrize("kind", ["all-reduce", "all-gather", "reduce-scatter"])
def test_rounds_are_those_of_the_table(kind, ranks):
    """Of even blocks: all-gathers send whole blocks, and after the last round each rank has the blocks of all."""
    meeting = [Collective("", kind, tuple(range(ranks)), place, 120 * (ranks - 1)) for place in range(ranks)]
    found = [list(rounds(meeting, place)) for place in range(ranks)]
    assert {len(of) for of in found} == {COLLECTIVES[kind].rounds(ranks)}
    for of in found:
        assert sum(nbytes for sends, _ in of for _, nbytes in sends) == 120 * (ranks - 1)
    for of_all in zip(*found, strict=True):
        sends = sorted((me, *send) for me, one in enumerate(of_all) for send in one.sends)
        assert sends == sorted((other, me, nbytes) for me, one in enumerate(of_all) for other, nbytes in one.receives)
    if kind == "all-gather":
        held = [{place} for place in range(ranks)]
        for of_all in zip(*found, strict=True):
            before = [sorted(of, key=lambda block, me=me: (me - block) % ranks) for me, of in enumerate(held)]
            for me, one in enumerate(of_all):
                ((other, nbytes),) = one.receives
                held[me] |= set(before[other][: nbytes // 120])
        assert all(len(of) == ranks for of in held)


def test_a_plan_without_messages_is_nothing_but_computing(tmp_path):
    net = network_names.build("mlp:30,20,relu", (10,), 3)
    actions = step_actions(net, PlacementSpec({"batch": 1}, "out"), 8, CORI)
    simgrid.write(tmp_path, actions, CORI)
    assert {line.split()[1] for line in (tmp_path / "rank0.txt").read_text().splitlines()} == {"init", "compute", "finalize"}
    assert not read(tmp_path).messages


def test_messages_that_smpi_can_not_count_are_refused(tmp_path):
    giant = [[Collective("big", "exchange", (0, 1), place, 3 << 30, {1 - place: 3 << 30})] for place in range(2)]
    with pytest.raises(ValueError, match="3221225472 bytes, and SMPI counts up to 2147483647: use more ranks"):
        simgrid.write(tmp_path, giant, CORI)
    whole = [[Collective("big", "all-gather", (0, 1), place, 3 << 29)] for place in range(2)]
    simgrid.write(tmp_path, whole, CORI)  # as messages
    assert read(tmp_path).sent(0) == (1, 3 << 29)


def test_ranks_that_enter_other_collectives_are_refused(tmp_path):
    unlike = [[Collective("a", kind, (0, 1), place, 8)] for place, kind in enumerate(("all-reduce", "all-gather"))]
    for actions in (unlike, [unlike[0], []]):
        with pytest.raises(ValueError, match="not all ranks of a group enter the all-reduce of layer a"):
            simgrid.write(tmp_path, actions, CORI)


@NEEDS_SIMGRID
@pytest.mark.parametrize("seed", [*range(6), 17, 23])
def test_smpirun_replays_random_networks(seed, tmp_path):
    """It comes to an end, and takes no less than the rank that computes the longest."""
    case = random_case(seed, 2 + seed % 7)
    if case.pipeline and case.pipeline.startswith("async"):
        case = replace(case, pipeline="1f1b" if STAGE in case.grid else "gpipe")
    of_machine = nodes_of(case.ranks_per_node)
    actions = step_actions(case.network(), asked_of(case), max(case.batch_sizes) * case.micro_batches, of_machine)
    simgrid.write(tmp_path, actions, of_machine)
    seconds = simgrid.replayed(tmp_path, case.ranks, of_machine)
    busy = max(sum(one.seconds for one in mine if isinstance(one, Compute)) for mine in actions)
    assert busy - 1e-6 <= seconds < 100 * busy


@NEEDS_SIMGRID
def test_a_long_all_reduce_takes_what_its_formula_says(tmp_path):
    """12 MB among 4 hosts of 1 Gbit/s: each sends 3/2 of it, in 4 rounds."""
    ethernet, nbytes = machine.read("ethernet-1g"), 18_000_000
    simgrid.write(tmp_path, [[Collective("x", "all-reduce", (0, 1, 2, 3), place, nbytes)] for place in range(4)], ethernet)
    network = ethernet.links["network"]
    expected = 4 * network["alpha"] + nbytes * network["beta"]
    assert simgrid.replayed(tmp_path, 4, ethernet) == pytest.approx(expected, rel=0.01)


def test_what_smpirun_says_where_it_fails_is_one_line(tmp_path):
    if not REPLAYS:
        with pytest.raises(ValueError, match="smpirun is not installed"):
            simgrid.replayed(tmp_path, 2, CORI)
        return
    (tmp_path / simgrid.TRACES).write_text("")
    with pytest.raises(ValueError, match="smpirun did not replay the traces in .*: "):
        simgrid.replayed(tmp_path, 2, CORI)


def test_explain_writes_both_formats_into_new_folders(tmp_path):
    words = ["explain", "--net", "mlp:64,64,relu", "--ranks", 4, "--grid", "batch=2,model=2", "--export"]
    finished = program(*words, tmp_path / "traces")
    assert finished.returncode == 0, finished.stderr
    assert f"`sh {tmp_path}/traces/replay.sh` replays it" in finished.stdout
    assert read(tmp_path / "traces").native[-1][0] == "allreduce"  # of the value of the loss
    assert program(*words, tmp_path / "goal", "--format", "goal").returncode == 0
    assert len(play(tmp_path / "goal" / "step.goal")) == 4
    again = program(*words, tmp_path / "traces")
    assert again.returncode == 2 and again.stderr.count("\n") == 1
    assert "there is something already; name a new folder, or an empty one" in again.stderr
    overlapping = ["explain", "--net", "mlp:64,64,relu", "--ranks", 2, "--grid", "stage=2", "--pipeline", "async:2"]
    refused = program(*overlapping, "--export", tmp_path / "none")
    assert refused.returncode == 2 and "pipeline async:2: its steps overlap" in refused.stderr


@pytest.mark.parametrize("name", FORMATS)
def test_an_interrupted_export_leaves_nothing_and_can_be_written_again(name, tmp_path, monkeypatch):
    folder, (write, anchor, said) = tmp_path / "step", explain.FORMATS[name]
    chosen, _ = Planner(network_names.build("mlp:8,8,relu", (4,), 2), 2, 8, CORI).best()

    def half(there, *arguments):
        write(there, *arguments)
        assert list(there.iterdir()) and not folder.exists()
        raise KeyboardInterrupt

    monkeypatch.setitem(explain.FORMATS, name, (half, anchor, said))
    with pytest.raises(KeyboardInterrupt):
        explain.write_export(chosen, None, name, folder)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    folder.mkdir()  # an empty one is as good as none
    explain.check_export(folder, name)
    explain.write_export(chosen, None, name, folder)
    assert (folder / anchor).is_file() and list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("name", FORMATS)
def test_a_full_disk_is_said_of_the_folder_that_was_named(name, tmp_path):
    chosen, _ = Planner(network_names.build("mlp:8,8,relu", (4,), 2), 2, 8, CORI).best()
    with files_end_at(100), pytest.raises(NotWritten, match=f"can not write {tmp_path}/step: File too large"):
        explain.write_export(chosen, None, name, tmp_path / "step")
    assert list(tmp_path.iterdir()) == []


def test_a_package_that_is_not_installed_is_named_before_anything_is_planned(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "chakra.schema.protobuf", None)
    with pytest.raises(ValueError, match=r"^--format chakra: .* pip install --no-deps mlc-chakra protobuf$") as raised:
        explain.check_export(tmp_path / "step", "chakra")
    assert "\n" not in str(raised.value)


def test_the_folder_where_one_is_can_not_be_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="--export .: it is the folder where you are"):
        explain.check_export(".", "goal")


@NEEDS_SIMGRID
def test_the_script_replays_the_traces(tmp_path):
    program("explain", "--net", "mlp:64,64,relu", "--ranks", 4, "--grid", "stage=2,batch=2", "--export", tmp_path / "traces")
    finished = subprocess.run(["sh", tmp_path / "traces" / simgrid.SCRIPT], capture_output=True, text=True, timeout=120)
    assert finished.returncode == 0 and "Simulation time" in finished.stderr + finished.stdout, finished.stderr
