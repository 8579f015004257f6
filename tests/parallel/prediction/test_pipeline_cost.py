"""The predicted time and memory of pipelines."""

import json
from dataclasses import replace
from itertools import combinations_with_replacement

import pytest

from gridgrad.nn import Conv2d, Flatten, Linear, ReLU, Sequential
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.grid.process_grid import STAGE, GridDescription
from gridgrad.parallel.pipeline import schedule_names
from gridgrad.parallel.prediction.cost import Cost, message_seconds
from gridgrad.parallel.prediction.machine import SHIPPED, Machine, read
from gridgrad.parallel.prediction.pipeline_cost import Pipelines, chunk_costs, layer_costs, pipeline_step_time, planned_cuts
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from tests.parallel.pipeline.test_schedule import longest

CORI, SLOW = read("cori-haswell"), read("ethernet-1g")
NEARLY = pytest.approx


def of_message(sizes, machine, *message):
    return message_seconds(GridDescription(sizes, None, machine.node["ranks"]), STAGE, machine, *message)


def fast(**core):
    """cori-haswell with messages that take no time."""
    content = json.loads((SHIPPED / "cori-haswell.json").read_text())
    content["links"] = {link: {"alpha": 1e-15, "beta": 1e-25} for link in content["links"]}
    content["core"] |= core
    content["node"]["bandwidth"] = content["core"]["bandwidth"] = 1e30  # passes over arrays take no time either
    content["core"]["call"] = 1e-15
    return Machine(**content)


def alike(count, width=64):
    """Layers that cost the same, but for the first one, which needs no gradient of its input."""
    return Sequential([Linear(width, width) for _ in range(count)], input_shape=(width,))


def pipelined(net, sizes, batch_size, machine, *pipeline, memory=None, **more):
    """The PipelinePrediction of a network with the plan "out". pipeline, more: of Pipelines."""
    asked = PlacementSpec(sizes, "out", pipelines=Pipelines(*pipeline, **more), memory=memory)
    return pipeline_step_time(net, asked, batch_size, machine)


def test_one_stage_and_one_micro_batch_cost_what_a_step_costs():
    for net in (network_names.build("vgg16", (32, 32, 3), 10), network_names.build("mlp:300,200,relu", (70,), 10)):
        for machine in (CORI, SLOW):
            cost = Cost(net, GridDescription({}, ranks_per_node=machine.node["ranks"]), "out", 64, machine)
            found = pipelined(net, {STAGE: 1}, 64, machine, "sequential", 1)
            assert found.seconds == NEARLY(cost.seconds) and found.ranks[0].waiting == NEARLY(0, abs=1e-9)
            assert found.memory == NEARLY(cost.prediction.memory) and found.cuts == ()
            assert {part: value for part, value in found.parts.items() if value > 1e-12} == NEARLY(
                {part: value for part, value in cost.parts.items() if value}
            )


def test_chunks_have_the_operations_and_parameters_of_the_network():
    net = network_names.build("cifar-cnn", (32, 32, 3), 10)
    sizes = {STAGE: 2, "batch": 2, "model": 2}
    whole = Cost(net, GridDescription(sizes, ranks_per_node=CORI.node["ranks"]), "out", 16, CORI)
    for cuts in ((3,), (1, 4, 9), [*range(1, len(net.layers))]):
        chunks = chunk_costs(net, PlacementSpec(sizes, "out"), 16, CORI, cuts)
        computed = sum(work.flops for work in whole.works if work.phase != "update")
        assert sum(chunk.flops for chunk in chunks) == computed
        assert sum(chunk.parameters for chunk in chunks) == sum(p.size for _, p in parameters(whole))
        sums = sum(whole.seconds_of(work) for work in whole.works if work.layer == "gradients")
        assert sum(chunk.sums for chunk in chunks) >= 0.99 * sums > 0
    half, whole = (chunk_costs(net, PlacementSpec(sizes, "out"), samples, CORI, (3,)) for samples in (8, 16))
    assert half[1].taken == whole[1].taken / 2


def parameters(cost):
    return [(layer, p) for layer in cost.placed.layers for p in layer.parameters]


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("micro_batches", [1, 4, 9])
def test_times_are_the_known_ones_of_each_schedule(stages, micro_batches):
    """Chunks of two equal layers, and of three at first, of which one needs no gradient of its input: they take 4/3 as long."""
    net, machine, batch = alike(2 * stages + 1), fast(), 720
    cuts = [*range(3, 2 * stages + 1, 2)]
    unit = chunk_costs(net, PlacementSpec({STAGE: stages}, "out"), batch // micro_batches, machine, cuts)[-1].seconds["F"]
    found = {
        name: pipelined(net, {STAGE: stages}, batch, machine, name, micro_batches, cuts)
        for name in ("sequential", "gpipe", "1f1b", "zb-h1")
    }
    for time in found.values():
        assert [chunk.seconds["W"] / unit for chunk in list(time.chunks.values())[1:]] == NEARLY([1] * (stages - 1))
        assert time.chunks[0, 0].seconds["F"] == NEARLY(1.5 * unit)
        assert all(rank.busy + rank.waiting == NEARLY(time.seconds) for rank in time.ranks)
    assert found["zb-h1"].seconds <= found["1f1b"].seconds * (1 + 1e-9) <= found["sequential"].seconds * (1 + 1e-9)
    assert found["sequential"].seconds == NEARLY(micro_batches * (4 + 3 * (stages - 1)) * unit, rel=1e-3)
    for name in ("zb-h1", "1f1b"):
        assert found[name].seconds >= micro_batches * 4 * unit * (1 - 1e-9)
        assert found[name].parts["compute"] == NEARLY(micro_batches * 4 * unit, rel=1e-3)


def test_messages_delay_the_stages():
    net = alike(4)
    near, far = (pipelined(net, {STAGE: 2}, 64, machine, "sequential", 4, (2,)) for machine in (fast(), SLOW))
    sent = sum(of_message({STAGE: 2}, SLOW, 0, 1, 16 * 64 * 4))
    assert far.seconds > 4 * 2 * sent and near.seconds < far.seconds
    assert far.seconds == NEARLY(sum(rank.busy for rank in far.ranks) + 4 * 2 * sent, rel=0.02)
    flights = far.times.flights
    assert set(flights) == {(0, 1, "SEND_F", 0), (1, 0, "SEND_B", 1)}
    on_node, across = (of_message({STAGE: 4, "model": 2}, replace(SLOW, node=SLOW.node | {"ranks": 4}), 0, to, 1000)
                       for to in (1, 2))  # fmt: skip
    assert sum(on_node) < sum(across)


def test_an_asynchronous_pipeline_takes_the_time_of_its_slowest_stage_a_minibatch():
    net, machine = alike(8), fast()
    found = pipelined(net, {STAGE: 4}, 64, machine, "async:8", cuts=(2, 4, 6))
    assert found.seconds == NEARLY(max(rank.busy for rank in found.ranks))
    alone = pipelined(net, {STAGE: 4}, 64, machine, "async:8:bound=0", cuts=(2, 4, 6))
    assert alone.seconds == NEARLY(sum(rank.busy for rank in alone.ranks), rel=0.02)
    stashed, newest = (pipelined(net, {STAGE: 4}, 64, machine, name, cuts=(2, 4, 6)) for name in
                       ("async:4", "async:4:nostash"))  # fmt: skip
    assert stashed.ranks[0].memory > newest.ranks[0].memory and stashed.seconds == newest.seconds


def test_earlier_stages_keep_more_micro_batches_and_less_is_kept_of_smaller_ones():
    net = alike(8)
    found = pipelined(net, {STAGE: 4}, 2048, CORI, "1f1b", 8, (2, 4, 6))
    assert [rank.open for rank in found.ranks] == [4, 3, 2, 1]
    assert found.ranks[0].memory > found.ranks[2].memory
    every = pipelined(net, {STAGE: 4}, 2048, CORI, "gpipe", 8, (2, 4, 6))
    assert [rank.open for rank in every.ranks] == [8] * 4 and every.ranks[3].memory > found.ranks[3].memory
    smaller = pipelined(net, {STAGE: 4}, 2048, CORI, "1f1b", 16, (2, 4, 6))
    assert smaller.memory < found.memory == max(rank.memory for rank in found.ranks)


def test_a_rank_that_waits_leaves_its_core_to_others():
    net, cuts = alike(8), (6,)  # the first stage does most of the work
    alone, shared = (pipelined(net, {STAGE: 2}, 512, fast(**core), "1f1b", 4, cuts) for core in ({}, {"crowd": 2}))
    assert alone.seconds / 2 < shared.seconds < alone.seconds
    assert shared.seconds / alone.seconds == NEARLY(alone.use, rel=0.01)


def test_planned_cuts_make_the_longest_chunk_as_short_as_possible():
    net, sizes = network_names.build("cifar-cnn", (32, 32, 3), 10), {STAGE: 3, "model": 2}
    for machine in (fast(), SLOW):
        layers = layer_costs(net, PlacementSpec(sizes, "out"), 8, machine)
        taken = [*(layer.taken for layer in layers), layers[-1].made]

        def seconds(chunk, start, end):
            arrives = 2 * sum(of_message(sizes, machine, chunk - 1, chunk, taken[start])) if chunk else 0  # noqa: B023
            return sum(layer.computed for layer in layers[start:end]) + arrives  # noqa: B023

        cuts = planned_cuts(layers, PlacementSpec(sizes), machine, schedule_names.parse("1f1b"), 8, 4)
        every = combinations_with_replacement(range(len(net.layers) + 1), 2)
        assert longest(cuts, len(net.layers), seconds) == NEARLY(min(longest(c, len(net.layers), seconds) for c in every))


def test_a_last_stage_without_layers_is_not_free():
    """It takes all outputs, which here are many more than the hidden units."""
    net = network_names.build("mlp:64,64,relu", 64, 2048)
    planned, *every = (pipelined(net, {STAGE: 2}, 256, SLOW, "1f1b", 4, cuts).seconds for cuts in (None, *zip(range(6))))
    assert planned == min(every) < every[-1] / 4


def test_cuts_leave_room_where_memory_is_short():
    """The convolutions take the time, and the dense layers the memory."""
    images = [Conv2d(3, 32, 3, padding=1), ReLU(), Conv2d(32, 32, 3, padding=1), ReLU(), Conv2d(32, 32, 3, padding=1)]
    net = Sequential([*images, Flatten(), Linear(8192, 256), Linear(256, 8192), Linear(8192, 3)], input_shape=(16, 16, 3))
    sizes, limits = {STAGE: 2}, (1e9, 6e7, 1e3)
    free, short, none = (pipelined(net, sizes, 64, CORI, "1f1b", 4, memory=limit) for limit in limits)
    assert free.cuts[0] < 6 and short.cuts == (7,)
    assert short.memory < 6e7 < free.memory and short.seconds > free.seconds
    assert none.cuts == free.cuts


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("1f1b", 2, (1, 2)), "2 cuts make 3 chunks, but pipeline 1f1b on 2 stages has 2"),
        (("1f1b", 65, (2,)), "65 micro-batches of a minibatch of 64"),
        (("1f1b", 2, (9,)), "from 0 to 4"),
        (("async:2", 2, (2,)), "updates after each minibatch"),
        (("two", 2, (2,)), "there is no pipeline schedule 'two'"),
    ],
)
def test_what_does_not_fit_is_said(arguments, words):
    with pytest.raises(ValueError, match=words):
        pipelined(alike(4), {STAGE: 2}, 64, CORI, *arguments)
