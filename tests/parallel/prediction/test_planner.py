"""The planner finds the fastest plan that fits the memory, and the same one of measurements that differ by noise."""

from itertools import chain, product

import numpy as np
import pytest

from gridgrad.experiments.parts.explain_report import why_lost
from gridgrad.nn import BatchNorm, Concat, Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.grid.process_grid import AXES, LAYER_AXES, STAGE
from gridgrad.parallel.placement.plan import weighted
from gridgrad.parallel.plans.hypergraph import Owners
from gridgrad.parallel.prediction.cost import cost_of_slowest_rank
from gridgrad.parallel.prediction.machine import Machine, read
from gridgrad.parallel.prediction.pipeline_cost import Pipelines
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from gridgrad.parallel.prediction.plan_search import PlanProblem, PlanSearch
from gridgrad.parallel.prediction.planner import TOLERANCE, NoRoom, Planner, every_grid

CORI, SLOW = read("cori-haswell"), read("ethernet-1g")
DENSE = network_names.build("mlp:310,1100,relu", 70, 9)


def best(net, ranks, batch_size, machine, partition=None, **asked):
    """(the Candidate that is chosen, the others). asked: of a PlacementSpec."""
    return Planner(net, ranks, batch_size, machine, PlacementSpec(**asked), partition=partition).best()


def small_cnn():
    layers = [Conv2d(3, 8, 3), ReLU(), MaxPool2d(2), Conv2d(8, 16, 3), ReLU(), Flatten(), Linear(16 * 3 * 3, 10)]
    return Sequential(layers, input_shape=(12, 12, 3))


def with_a_branch():
    layers = [Conv2d(3, 32, 3, padding=1), ReLU(), Concat([], [Conv2d(32, 64, 3, padding=1)]), MaxPool2d(2), Flatten()]
    return Sequential([*layers, Linear(96 * 4 * 4, 10)], input_shape=(8, 8, 3))


def every_plan(net, ranks, batch_size, machine):
    """The Costs of all plans on all grids."""
    words = [("out", "in", "replicate", *(["height"] if layer.kind == "conv" else [])) for layer in weighted(net)]
    for sizes in every_grid(ranks, LAYER_AXES if any(layer.kind == "conv" for layer in weighted(net)) else ("batch", "model")):
        for plan in product(*words):
            if not any(axis in plan and size > 1 for axis, size in sizes.items()):
                yield cost_of_slowest_rank(net, PlacementSpec(sizes, ",".join(plan)), batch_size, machine)


@pytest.mark.parametrize(
    ("make", "ranks", "batch_size", "machine"),
    [
        (lambda: DENSE, 4, 5, SLOW),
        (small_cnn, 4, 64, CORI),
        (with_a_branch, 4, 8, CORI),
    ],
)
def test_no_plan_is_better_than_the_one_that_is_chosen(make, ranks, batch_size, machine):
    net, least = make(), {}
    for cost in every_plan(net, ranks, batch_size, machine):
        sizes = tuple(cost.grid.sizes.items())
        least[sizes] = min(cost.seconds, least.get(sizes, cost.seconds))
    for sizes, seconds in least.items():
        search = PlanSearch(PlanProblem(net, net.input_shape, batch_size, machine), dict(sizes))
        found = cost_of_slowest_rank(net, PlacementSpec(dict(sizes), search.plan(0.0)), batch_size, machine)
        assert found.seconds == pytest.approx(seconds, rel=1e-9), (sizes, found.placed.plan)
        while not search.is_complete:
            search.advance()
        assert search.bound <= seconds
    chosen, others = best(net, ranks, batch_size, machine)
    fastest = min([chosen, *others], key=lambda candidate: candidate.seconds)
    assert fastest.seconds <= (1 + 1e-9) * min(least.values()), (fastest.grid, fastest.plan)
    assert chosen.seconds <= (1 + TOLERANCE) * fastest.seconds
    assert all(o.step.bounding.collectives >= chosen.step.bounding.collectives for o in others if o.seconds < chosen.seconds)
    assert all(other.bound <= other.seconds for other in [chosen, *others] if other.cost)
    assert all(why_lost(other, chosen) for other in others)


def test_memory_is_respected():
    net, grid = DENSE, {"model": 4}
    free, _ = best(net, 4, 1024, SLOW, grid=grid)
    plans = product(("out", "in", "replicate"), repeat=3)
    costs = [cost_of_slowest_rank(net, PlacementSpec(grid, ",".join(plan)), 1024, SLOW) for plan in plans]
    least = min(cost.prediction.memory for cost in costs)
    assert least < free.step.memory  # so that there is a choice
    chosen, _ = best(net, 4, 1024, SLOW, grid=grid, memory=least)
    assert chosen.step.memory == least and chosen.seconds > free.seconds
    with pytest.raises(NoRoom, match=r"no plan for 4 ranks.*the largest layer is 2 Linear\(310, 1100\)"):
        best(net, 4, 1024, CORI, memory=10_000)


def test_a_grid_and_a_plan_that_are_given_are_kept():
    chosen, others = best(DENSE, 4, 64, CORI, grid={"batch": 2, "model": 2})
    assert chosen.sizes == {axis: {"batch": 2, "model": 2}.get(axis, 1) for axis in AXES} and not others
    assert best(DENSE, 4, 64, CORI, plan="replicate")[0].plan == "replicate"
    chosen, others = best(small_cnn(), 4, 64, CORI, plan="marques")
    assert all(one.sizes["height"] == 1 for one in (chosen, *others))  # along which that plan has no rule


# ----- partitions


def test_a_partition_is_one_more_plan_where_sending_takes_most_of_the_time():
    net, sizes = network_names.build("resnet18", (224, 224, 3), 10), {"model": 4}

    def partition(ranks):
        """Owners with whole layers, as quick as a partitioner is not."""
        layers = [layer for layer in net.leaves() if layer.kind]
        rows = {layer.name: np.full(layer.outputs, i * ranks // len(layers)) for i, layer in enumerate(layers)}
        return Owners(ranks, rows, loss=ranks - 1)

    alone, _ = best(net, 4, 1, SLOW, grid=sizes)
    chosen, others = best(net, 4, 1, SLOW, partition, grid=sizes)
    (found,) = [candidate for candidate in (chosen, *others) if candidate.owners]
    assert found.plan == "hypergraph" and found.seconds == found.step.seconds and chosen.seconds <= alone.seconds
    named, _ = best(net, 4, 1, SLOW, partition, grid=sizes, plan="hypergraph")
    assert named.seconds == found.seconds and named.owners.ranks == 4


# ----- pipelines


def deep(width=1024, norm=False):
    hidden = [[Linear(width, width), *([BatchNorm(width)] if norm else []), ReLU()] for _ in range(7)]
    return Sequential([*chain(*hidden), Linear(width, 10)], input_shape=(width,))


def test_a_pipeline_is_chosen_where_it_is_predicted_to_be_the_fastest():
    chosen, others = best(deep(), 4, 1024, SLOW, pipelines=Pipelines())
    plain, _ = best(deep(), 4, 1024, SLOW)
    assert plain.sizes[STAGE] == 1 and not plain.pipelining
    assert chosen.sizes[STAGE] > 1 and chosen.seconds < plain.seconds / (1 + TOLERANCE)
    assert chosen.seconds == chosen.pipelined.seconds and chosen.step.memory == chosen.pipelined.memory
    assert sum(chosen.step.parts.values()) == pytest.approx(chosen.seconds, rel=1e-6)
    assert all(why_lost(other, chosen) for other in others) and any(other.pipelined for other in others)


def test_a_pipeline_that_does_not_pay_or_changes_batch_norm_is_not_chosen_unless_it_is_named():
    chosen, _ = best(network_names.build("vgg16", (32, 32, 3), 10), 2, 256, SLOW, pipelines=Pipelines())
    assert chosen.sizes[STAGE] == 1 and chosen.pipelining == {}
    net = deep(norm=True)
    chosen, others = best(net, 4, 1024, SLOW, pipelines=Pipelines())
    assert not any(candidate.pipelined for candidate in [chosen, *others])
    assert best(net, 4, 1024, SLOW, pipelines=Pipelines("1f1b"))[0].pipelining["pipeline"] == "1f1b"


def test_what_is_asked_of_a_pipeline_is_kept():
    chosen, _ = best(deep(), 4, 64, SLOW, pipelines=Pipelines("gpipe", 3, (5,)))
    assert chosen.sizes[STAGE] == 2 and chosen.pipelining == {"pipeline": "gpipe", "micro_batches": 3, "cuts": (5,)}
    free, others = best(deep(), 4, 1024, SLOW, pipelines=Pipelines(), grid={STAGE: 4})
    least = min(candidate.step.memory for candidate in others)
    chosen, _ = best(deep(), 4, 1024, SLOW, pipelines=Pipelines(), grid={STAGE: 4}, memory=least)
    assert least < free.step.memory and chosen.step.memory <= least and chosen.seconds >= free.seconds / (1 + TOLERANCE)


# ----- equals


def test_a_probe_with_noise_leads_to_the_same_grid_and_plan():
    """Of a machine that is wrong by up to a tenth, and knows that it is uncertain."""

    def chosen(seed, **more):
        flops, bandwidth, call, alpha, beta = np.exp(np.random.default_rng(seed).uniform(-0.1, 0.1, 5)).tolist()
        core = {"flops": 5e10 * flops, "bandwidth": 2e10 * bandwidth, "call": 5e-7 * call} | more
        node, link = {"ranks": 2, "bandwidth": 4e10 * bandwidth, "memory": 1e10}, {"alpha": 3e-5 * alpha, "beta": 2e-9 * beta}
        machine = Machine("noisy", "a test", core, node, {"node": link, "network": link})
        found, others = best(network_names.build("mlp:512,512,relu", (784,), 10), 2, 1024, machine, pipelines=Pipelines())
        fastest = min(candidate.seconds for candidate in [found, *others])
        assert found.seconds <= (1 + max(TOLERANCE, machine.uncertainty)) * fastest
        return found.grid, found.plan

    assert len({chosen(seed, uncertainty=0.25) for seed in range(6)}) == 1
    assert len({chosen(seed) for seed in range(8)}) > 1
