"""Two measurements of one machine that differ by noise lead to the same choice."""

from math import exp

import numpy as np
import pytest

from gridgrad.experiments.parts.explain_report import why_lost
from gridgrad.nn import Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.choose.reductions import fastest
from gridgrad.parallel.prediction.cost import RankStep, StepPrediction
from gridgrad.parallel.prediction.machine import Machine
from gridgrad.parallel.prediction.pipeline_cost import PipelinePrediction, Pipelines
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from gridgrad.parallel.prediction.planner import TOLERANCE, Candidate, Planner, order

NOISE = 0.1  # measurements differ by so much, relative


def images():
    layers = [Conv2d(3, 64, 5), ReLU(), MaxPool2d(3), Flatten(), Linear(64 * 9 * 9, 10)]
    return Sequential(layers, input_shape=(32, 32, 3))


def dense():
    return network_names.build("mlp:512,512,relu", (784,), 10)


def factors(seed, count):
    return np.exp(np.random.default_rng(seed).uniform(-NOISE, NOISE, count)).tolist()


def measured(ranks, seed, **more):
    """A machine of so many ranks on one node as a noisy measurement finds it."""
    flops, bandwidth, call, alpha, beta = factors(seed, 5)
    core = {"flops": 5e10 * flops, "bandwidth": 2e10 * bandwidth, "call": 5e-7 * call} | more
    link = {"alpha": 3e-5 * alpha, "beta": 2e-9 * beta}
    node = {"ranks": ranks, "bandwidth": core["bandwidth"] * ranks, "memory": 1e10}
    return Machine("noisy", "a test", core, node, {"node": link, "network": link})


def choice(net, ranks, batch_size, machine):
    """(the Candidate that is chosen, its grid and its plan)."""
    chosen, others = Planner(net, ranks, batch_size, machine, PlacementSpec(pipelines=Pipelines())).best()
    assert all(why_lost(other, chosen) for other in others)
    fastest_one = min(candidate.seconds for candidate in [chosen, *others])
    assert chosen.seconds <= (1 + max(TOLERANCE, machine.uncertainty)) * fastest_one
    return chosen.grid, chosen.plan


@pytest.mark.parametrize("make", [images, dense])
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("batch_size", [128, 1024])
def test_a_probe_with_noise_leads_to_the_same_grid_and_plan(make, ranks, batch_size):
    machines = [measured(ranks, seed, uncertainty=0.25) for seed in range(6)]
    assert len({choice(make(), ranks, batch_size, machine) for machine in machines}) == 1


def test_without_the_uncertainty_the_noise_would_choose():
    assert len({choice(dense(), 2, 1024, measured(2, seed)) for seed in range(8)}) > 1


def test_a_grid_that_is_clearly_faster_is_chosen_all_the_same():
    grid, _ = choice(network_names.build("mlp:4096,4096,relu", (4096,), 10), 4, 32, measured(4, 0, uncertainty=0.25))
    assert grid == "model=4"


def step(collectives):
    """The prediction of a step with so many collectives."""
    return StepPrediction(1.0, (RankStep(1.0, collectives=collectives),), {})


def pipeline(collectives):
    """The same of a pipeline."""
    return PipelinePrediction(1.0, step(collectives).ranks, {}, "1f1b", 2, (1,), {}, None, None, None, (0, 1))


def test_the_order_of_equals():
    candidates = [
        Candidate({"batch": 2, "model": 4}, 0.0, played=step(2)),
        Candidate({"stage": 2, "batch": 4}, 0.0, played=pipeline(1)),
        Candidate({"batch": 4, "model": 2}, 0.0, played=step(2)),
        Candidate({"model": 8}, 0.0, played=step(2)),
        Candidate({"batch": 8}, 0.0, played=step(3)),
        Candidate({"height": 8}, 0.0, played=step(2)),
    ]
    for seed in range(4):  # whatever order they come in
        shuffled = [candidates[i] for i in np.random.default_rng(seed).permutation(len(candidates))]
        found = [candidate.grid for candidate in sorted(shuffled, key=order)]
        assert found == ["height=8", "model=8", "batch=4,model=2", "batch=2,model=4", "batch=8", "stage=2,batch=4"]


@pytest.mark.parametrize(
    ("shared", "several_nodes", "question", "answer"),
    [
        (0.97, False, "auto", "plain"),
        (0.3, False, "auto", "shared"),
        (0.97, True, "auto", "overlap:512"),
        (0.3, True, "overlap", "overlap:512"),
    ],
)
def test_sums_with_noise_lead_to_the_same_reduction(shared, several_nodes, question, answer):
    for seed in range(20):
        noise = [exp(NOISE * x / 4) for x in np.random.default_rng(seed).uniform(-1, 1, 3)]
        seconds = {"plain": 4e-3 * noise[0], "latency": 52e-6 * noise[1]}
        if question == "auto":
            seconds["shared"] = 4e-3 * shared * noise[2]
        assert fastest(seconds, question, several_nodes, 1 << 22) == answer
