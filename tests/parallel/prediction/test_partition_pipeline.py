"""Predicted pipelines of hypergraph partitions: chunks are those of training, and times agree with other predictions."""

from dataclasses import replace

import numpy as np
import pytest

from gridgrad.nn import Linear, Sequential
from gridgrad.nn.sequence import leaves
from gridgrad.parallel.grid.process_grid import GridDescription, ProcessGrid
from gridgrad.parallel.pipeline import schedule_names
from gridgrad.parallel.plans.hypergraph import Owners
from gridgrad.parallel.prediction.cost import Cost, step_time
from gridgrad.parallel.prediction.machine import read
from gridgrad.parallel.prediction.pipeline_cost import Pipelines, partition_step_time
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from gridgrad.parallel.training.distribute import by_exchanges
from tests.mpi import mpi
from tests.parallel.training.test_partition_pipeline import net, owners

CORI, SLOW = read("cori-haswell"), read("ethernet-1g")


def quick():
    """A machine whose messages take next to no time."""
    return replace(SLOW, links={link: {"alpha": 1e-9, "beta": 1e-15} for link in SLOW.links})


def partitioned(net, sizes, owners, batch_size, machine, *pipeline):
    """The PipelinePrediction of a partition of a network. pipeline: of Pipelines."""
    asked = PlacementSpec(sizes, "hypergraph", owners=owners, pipelines=Pipelines(*pipeline))
    return partition_step_time(net, asked, batch_size, machine)


def layered(*ranks):
    """The Owners that give whole layers with weights to these ranks."""
    layers = [layer for layer in net().leaves() if layer.kind]
    rows = {layer.name: np.full(layer.outputs, rank) for layer, rank in zip(layers, ranks, strict=True)}
    return Owners(max(ranks) + 1, rows, loss=ranks[-1])


@mpi(2, 3, 4, long=(4,))
def test_route_and_order_are_those_of_training(comm):
    for seed, fine in enumerate((False, True)):
        mine = owners(comm.size, seed, fine)
        found = partitioned(net(), {"model": comm.size}, mine, 9, CORI, "async:3")
        with ProcessGrid(comm, model=comm.size) as grid:
            asked = PlacementSpec(grid.sizes, "hypergraph", owners=mine, pipelines=Pipelines())
            _, stage_map = by_exchanges(net(), grid, asked, None)
        assert found.schedule.route == stage_map.route
        of_training = schedule_names.parse("async:3").schedule_on(
            stage_map.route, found.schedule.micro_batches, stage_map.times
        )
        computed = [[one for one in row if one.op in "FBU"] for row in found.schedule.rows]
        assert computed == [list(row) for row in of_training.rows]
        held = {number: found.chunks[comm.rank, number].parameters for number in stage_map.chunks}
        assert held == {number: sum(p.size for leaf in leaves(chunk) for p in leaf.parameters)
                        for number, chunk in stage_map.chunks.items()}  # fmt: skip


@pytest.mark.parametrize("machine", [CORI, SLOW])
def test_one_rank_takes_what_a_step_costs(machine):
    cost = Cost(net(), GridDescription({}, None, machine.node["ranks"]), "replicate", 12, machine)
    found = partitioned(net(), {"model": 1}, None, 12, machine, "async:1")
    assert found.seconds == pytest.approx(cost.seconds) and found.ranks[0].waiting == pytest.approx(0, abs=1e-9)
    assert found.memory == pytest.approx(cost.prediction.memory)


@pytest.mark.parametrize("machine", [CORI, SLOW])
def test_one_minibatch_at_a_time_takes_the_critical_path(machine):
    for mine in (layered(0, 0, 1, 1, 2), layered(0, 1, 2, 0, 1), owners(3, 0), owners(3, 1, fine=True)):
        expected = step_time(net(), PlacementSpec({"model": 3}, "hypergraph", owners=mine), 12, machine)
        found = partitioned(net(), {"model": 3}, mine, 12, machine, "async:1")
        assert found.seconds == pytest.approx(expected.seconds, rel=0.3)
        assert expected.messages == len(found.times.flights)


def test_a_pipeline_is_faster_and_needs_more_memory():
    alone, two, four = (partitioned(net(), {"model": 2}, layered(0, 0, 1, 1, 1), 64, quick(), f"async:{k}") for k in (1, 2, 4))
    assert alone.seconds > two.seconds >= four.seconds
    assert alone.memory < two.memory <= four.memory
    assert four.seconds == pytest.approx(max(rank.busy for rank in four.ranks), rel=0.02)
    assert sum(rank.busy for rank in alone.ranks) == pytest.approx(sum(rank.busy for rank in four.ranks))


def test_first_and_last_layers_at_one_rank_do_not_wait_for_all_between():
    alike = Sequential([Linear(64, 64) for _ in range(4)], input_shape=(64,))
    mine = Owners(2, {layer.name: np.full(64, rank) for layer, rank in zip(alike.layers, (0, 1, 1, 0), strict=True)})
    found = partitioned(alike, {"model": 2}, mine, 4096, quick(), "async:8")
    assert found.seconds < sum(part.seconds[op] for part in found.chunks.values() for op in "IW")
    assert min(rank.waiting for rank in found.ranks) < 0.1 * found.seconds


def test_micro_batches_of_a_synchronous_pipeline_overlap():
    whole, parts = (partitioned(net(), {"model": 2}, layered(0, 0, 1, 1, 1), 512, SLOW, "1f1b", count) for count in (1, 4))
    assert parts.seconds < whole.seconds and parts.memory < whole.memory
    assert parts.schedule.micro_batches == 4


def test_what_does_not_fit_is_said():
    for pipeline, micro_batches, words in (
        ("async:2", 2, "updates after each minibatch"),
        ("gpipe", 10, "has no 10 micro-batches"),
    ):
        with pytest.raises(ValueError, match=f"pipeline {pipeline} {words}"):
            partitioned(net(), {"model": 2}, owners(2, 0), 9, CORI, pipeline, micro_batches)
    with pytest.raises(ValueError, match="pipeline zb-h1 is for whole layers"):
        partitioned(net(), {"model": 2}, owners(2, 0), 9, CORI, "zb-h1")
