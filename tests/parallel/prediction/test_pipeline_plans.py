"""The planner weighs pipelines against other grids, and a network that it makes a pipeline trains as the serial one."""

from itertools import chain

import numpy as np
import pytest

from gridgrad.experiments.parts.explain_report import why_lost
from gridgrad.nn import SGD, BatchNorm, Linear, ReLU, Sequential, SoftmaxCrossEntropy
from gridgrad.nn.zoo import network_names
from gridgrad.parallel import parallelize
from gridgrad.parallel.grid.process_grid import STAGE
from gridgrad.parallel.prediction.machine import read
from gridgrad.parallel.prediction.pipeline_cost import SCHEDULES, Pipelines, pipeline_step_time
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from gridgrad.parallel.prediction.planner import TOLERANCE, NoRoom, Planner
from tests.mpi import mpi
from tests.parallel.equality import error, serial

SLOW = read("ethernet-1g")  # a network on which a pipeline pays
ANY = Pipelines()


def deep(width=1024, norm=False):
    hidden = [[Linear(width, width), *([BatchNorm(width)] if norm else []), ReLU()] for _ in range(7)]
    return Sequential([*chain(*hidden), Linear(width, 10)], input_shape=(width,))


def pipelined(net, chosen, batch_size, *pipeline, **more):
    """The PipelinePrediction of a network with the grid and the plan of a Candidate. pipeline, more: of Pipelines."""
    asked = PlacementSpec(chosen.sizes, chosen.plan, pipelines=Pipelines(*pipeline, **more))
    return pipeline_step_time(net, asked, batch_size, SLOW)


def best(net, ranks, batch_size, pipelines=ANY, **options):
    return Planner(net, ranks, batch_size, SLOW, PlacementSpec(pipelines=pipelines, **options)).best()


def test_a_pipeline_is_chosen_where_it_is_predicted_to_be_the_fastest():
    chosen, others = best(deep(), 4, 1024)
    plain, _ = Planner(deep(), 4, 1024, SLOW).best()
    assert plain.sizes[STAGE] == 1 and not plain.pipelining
    assert chosen.sizes[STAGE] > 1 and chosen.seconds < plain.seconds / (1 + TOLERANCE)
    assert chosen.seconds == chosen.pipelined.seconds and chosen.step.memory == chosen.pipelined.memory
    assert sum(chosen.step.parts.values()) == pytest.approx(chosen.seconds, rel=1e-6)
    again = pipelined(deep(), chosen, 1024, **chosen.pipelining)
    assert again.seconds == chosen.seconds
    assert all(why_lost(other, chosen) for other in others) and any(other.pipelined for other in others)


def test_no_schedule_on_the_grid_is_faster_than_the_one_that_is_chosen():
    net, sizes = deep(256), {STAGE: 4}
    chosen, _ = best(net, 4, 64, grid=sizes)
    every = [pipelined(net, chosen, 64, name, count).seconds for name in SCHEDULES for count in (4, 8, 16)]
    assert chosen.seconds <= (1 + TOLERANCE) * min(every)


def test_a_pipeline_that_does_not_pay_is_not_chosen():
    net = network_names.build("vgg16", (32, 32, 3), 10)
    chosen, others = best(net, 2, 256)
    assert chosen.sizes[STAGE] == 1 and chosen.pipelining == {}
    assert chosen.seconds == Planner(net, 2, 256, SLOW).best()[0].seconds


def test_the_statistics_of_batch_norm_are_kept_unless_a_pipeline_is_named():
    net = deep(norm=True)
    assert not any(candidate.pipelined for candidate in [best(net, 4, 1024)[0], *best(net, 4, 1024)[1]])
    assert best(net, 4, 1024, Pipelines("1f1b"))[0].pipelining["pipeline"] == "1f1b"
    chosen, _ = best(net, 4, 1024, None, grid={STAGE: 2, "model": 2})
    assert (chosen.grid, chosen.pipelined.schedule.route.ranks) == ("stage=2,model=2", 2)


def test_what_is_asked_for_is_kept():
    chosen, _ = best(deep(), 4, 64, Pipelines("gpipe", 3, (5,)))
    assert chosen.sizes[STAGE] == 2 and chosen.pipelining == {"pipeline": "gpipe", "micro_batches": 3, "cuts": (5,)}
    chosen, _ = best(deep(), 4, 64, Pipelines("async:4"))
    assert chosen.pipelining["micro_batches"] == 1
    chosen, _ = best(deep(), 4, 64, Pipelines(cuts=(3, 6, 9)), grid={STAGE: 4})
    assert chosen.pipelining["cuts"] == (3, 6, 9)
    assert best(deep(), 4, 64, None, grid={STAGE: 4}, plan="replicate")[0].plan == "replicate"


def test_what_fits_no_pipeline_is_said():
    with pytest.raises(ValueError, match="no pipeline for 3 ranks"):
        best(Sequential([Linear(4, 4), Linear(4, 4)], input_shape=(4,)), 3, 64, Pipelines("1f1b"))
    with pytest.raises(ValueError, match="cuts 1,2: no pipeline here has as many chunks"):
        best(deep(), 2, 64, Pipelines("1f1b", cuts=(1, 2)), grid={STAGE: 2})
    with pytest.raises(NoRoom, match="no plan for 2 ranks fits"):
        best(deep(), 2, 64, grid={STAGE: 2}, memory=1e4)


def test_memory_is_respected():
    free, others = best(deep(), 4, 1024, grid={STAGE: 4})
    least = min(candidate.step.memory for candidate in others)
    assert least < free.step.memory
    chosen, others = best(deep(), 4, 1024, grid={STAGE: 4}, memory=least)
    assert chosen.step.memory <= least and chosen.seconds >= free.seconds / (1 + TOLERANCE)
    assert all(other.reason.startswith("needs ") for other in others if other.step.memory > least)


@mpi(2, 4, long=(4,))
def test_one_call_makes_a_pipeline_that_trains_as_the_serial_network(comm):
    rng = np.random.default_rng(0)
    batches = [(rng.normal(size=(96, 512)), np.arange(96) % 3) for _ in range(2)]

    def make():
        layers = [layer for _ in range(7) for layer in (Linear(512, 512), ReLU())]
        return Sequential([*layers, Linear(512, 3)], dtype=np.float64, input_shape=(512,), seed=3)

    net = parallelize(make(), batch_size=2048, machine=SLOW)
    assert net.pipeline and net.grid.sizes[STAGE] > 1
    optimizer, loss = SGD(net, lr=0.05, momentum=0.9), SoftmaxCrossEntropy()
    losses = [net.learn(x, y, loss, optimizer) for x, y in batches]
    expected, state = serial(make(), lambda net: SGD(net, lr=0.05, momentum=0.9), "cross-entropy", batches)
    assert np.allclose(losses, expected, rtol=1e-10, atol=0)
    assert error(net.state_dict(everywhere=True), state) < 1e-10
    net.grid.free()
