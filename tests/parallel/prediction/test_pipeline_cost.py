"""The predicted time and memory of pipelines, of stages and of hypergraph partitions."""

import json
from dataclasses import replace

import numpy as np
import pytest

from gridgrad.nn import Linear, Sequential
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.grid.process_grid import STAGE, GridDescription
from gridgrad.parallel.plans.hypergraph import Owners
from gridgrad.parallel.prediction.cost import Cost, costs_of_ranks, message_seconds, played
from gridgrad.parallel.prediction.machine import SHIPPED, Machine, read
from gridgrad.parallel.prediction.pipeline_cost import Pipelines, chunk_costs, pipeline_step_time
from gridgrad.parallel.prediction.placement_spec import PlacementSpec

CORI, SLOW = read("cori-haswell"), read("ethernet-1g")
NEARLY = pytest.approx


def of_message(sizes, machine, *message):
    return message_seconds(GridDescription(sizes, None, machine.node["ranks"]), STAGE, machine, *message)


def fast(**core):
    """cori-haswell with messages, and passes over arrays, that take no time."""
    content = json.loads((SHIPPED / "cori-haswell.json").read_text())
    content["links"] = {link: {"alpha": 1e-15, "beta": 1e-25} for link in content["links"]}
    content["core"] |= core | {"bandwidth": 1e30, "call": 1e-15}
    content["node"]["bandwidth"] = 1e30
    return Machine(**content)


def alike(count, width=64):
    """Layers that cost the same, but for the first one, which needs no gradient of its input."""
    return Sequential([Linear(width, width) for _ in range(count)], input_shape=(width,))


def pipelined(net, stages, batch_size, machine, *pipeline, memory=None, **more):
    """The PipelinePrediction of a network with the plan "out". pipeline, more: of Pipelines."""
    asked = PlacementSpec({STAGE: stages}, "out", pipelines=Pipelines(*pipeline, **more), memory=memory)
    return pipeline_step_time(net, asked, batch_size, machine)


def partitioned(net, owners, batch_size, machine, *pipeline):
    """The PipelinePrediction of a partition of a network. pipeline: of Pipelines."""
    asked = PlacementSpec({"model": owners.ranks}, "hypergraph", owners=owners, pipelines=Pipelines(*pipeline))
    return pipeline_step_time(net, asked, batch_size, machine)


def owners_of(net, ranks, row, **pairs):
    """Owners of the outputs of each layer with weights: row(layer, its number)."""
    layers = [layer for layer in net.leaves() if layer.kind]
    rows = {layer.name: np.broadcast_to(row(layer, number), layer.outputs) for number, layer in enumerate(layers)}
    return Owners(ranks, rows, **pairs)


@pytest.mark.parametrize("machine", [CORI, SLOW])
def test_one_rank_and_one_micro_batch_cost_what_a_step_costs(machine):
    net = network_names.build("mlp:300,200,relu", (70,), 10)
    cost = Cost(net, GridDescription({}, ranks_per_node=machine.node["ranks"]), "out", 64, machine)
    stage = pipelined(net, 1, 64, machine, "sequential", 1)
    parts, expected = ({name: value for name, value in one.parts.items() if value > 1e-12} for one in (stage, cost))
    assert parts == NEARLY(expected)
    for found in (stage, partitioned(net, owners_of(net, 1, lambda *_: 0), 64, machine, "async:1")):
        assert found.seconds == NEARLY(cost.seconds) and found.ranks[0].waiting == NEARLY(0, abs=1e-9)
        assert found.memory == NEARLY(cost.prediction.memory)


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 1), (4, 9)])
def test_times_are_the_known_ones_of_each_schedule(stages, micro_batches):
    """Chunks of two equal layers, and of three at first, of which one needs no gradient of its input: they take 4/3 as long."""
    net, machine, batch = alike(2 * stages + 1), fast(), 720
    cuts = [*range(3, 2 * stages + 1, 2)]
    unit = chunk_costs(net, PlacementSpec({STAGE: stages}, "out"), batch // micro_batches, machine, cuts)[-1].seconds["F"]
    names = "sequential", "gpipe", "1f1b", "zb-h1"
    found = {name: pipelined(net, stages, batch, machine, name, micro_batches, cuts) for name in names}
    for time in found.values():
        assert [chunk.seconds["W"] / unit for chunk in list(time.work.chunks.values())[1:]] == NEARLY([1] * (stages - 1))
        assert time.work.chunks[0, 0].seconds["F"] == NEARLY(1.5 * unit)
        assert all(rank.busy + rank.waiting == NEARLY(time.seconds) for rank in time.ranks)
    assert found["zb-h1"].seconds <= found["1f1b"].seconds * (1 + 1e-9) <= found["sequential"].seconds * (1 + 1e-9)
    assert found["sequential"].seconds == NEARLY(micro_batches * (4 + 3 * (stages - 1)) * unit, rel=1e-3)
    assert found["1f1b"].seconds >= micro_batches * 4 * unit * (1 - 1e-9)
    assert found["1f1b"].parts["compute"] == NEARLY(micro_batches * 4 * unit, rel=1e-3)


def test_messages_delay_the_stages():
    sent = sum(of_message({STAGE: 2}, SLOW, 0, 1, 16 * 64 * 4))
    far = pipelined(alike(4), 2, 64, SLOW, "sequential", 4, (2,))
    assert far.seconds == NEARLY(sum(rank.busy for rank in far.ranks) + 4 * 2 * sent, rel=0.02)
    assert set(far.times.flights) == {(0, 1, "SEND_F", 0), (1, 0, "SEND_B", 1)}


def test_earlier_stages_keep_more_micro_batches_and_less_is_kept_of_smaller_ones():
    ways = ("1f1b", 8), ("gpipe", 8), ("1f1b", 16)
    found, every, smaller = (pipelined(alike(8), 4, 2048, CORI, *way, (2, 4, 6)) for way in ways)
    assert [rank.open for rank in found.ranks] == [4, 3, 2, 1] and [rank.open for rank in every.ranks] == [8] * 4
    assert found.ranks[0].memory > found.ranks[2].memory and every.ranks[3].memory > found.ranks[3].memory
    assert smaller.memory < found.memory == max(rank.memory for rank in found.ranks)


def test_a_pipeline_of_a_partition_is_faster_and_needs_more_memory():
    """One minibatch at a time takes the critical path."""
    net, quick = alike(5), replace(SLOW, links={link: {"alpha": 1e-9, "beta": 1e-15} for link in SLOW.links})
    mine = owners_of(net, 2, lambda _, number: number // 3, loss=1)
    alone, two, four = (partitioned(net, mine, 64, quick, f"async:{k}") for k in (1, 2, 4))
    assert alone.seconds > two.seconds >= four.seconds and alone.memory < two.memory <= four.memory
    assert four.seconds == NEARLY(max(rank.busy for rank in four.ranks), rel=0.02)
    expected = played(costs_of_ranks(net, PlacementSpec({"model": 2}, "hypergraph", owners=mine), 64, SLOW))
    found = partitioned(net, mine, 64, SLOW, "async:1")
    assert found.seconds == NEARLY(expected.seconds, rel=0.3)
    assert sum(rank.messages for rank in expected.ranks) == len(found.times.flights)


@pytest.mark.parametrize(
    ("predict", "arguments", "words"),
    [
        (pipelined, (2, "1f1b", 2, (1, 2)), "2 cuts make 3 chunks"),
        (partitioned, (owners_of(alike(4), 2, lambda _, number: number // 2), "gpipe", 65), "65 micro-batches of"),
    ],
)
def test_what_does_not_fit_is_said(predict, arguments, words):
    with pytest.raises(ValueError, match=words):
        predict(alike(4), arguments[0], 64, CORI, *arguments[1:])
