"""What the cost model says of a Case is what happens: bytes and calls, layer by layer and on every rank; and memory."""

from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from gridgrad.nn.device import as_input
from gridgrad.parallel import parallelize
from gridgrad.parallel.grid.process_grid import STAGE, GridDescription
from gridgrad.parallel.prediction.cost import Cost, slowest_rank
from gridgrad.parallel.prediction.machine import read
from gridgrad.parallel.prediction.pipeline_cost import Pipelines, pipeline_step_time
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from tests.parallel.equality import block
from tests.parallel.pipelines import parts_of
from tests.random_networks.case import unclipped
from tests.random_networks.checks import grid_of

MACHINE = read("cori-haswell")
BYTES = replace(MACHINE, links=dict.fromkeys(MACHINE.links, {"alpha": 0.0, "beta": 1.0}))  # each takes a second
MESSAGES = "send", "receive"  # of a pipeline
LARGE = 16  # times as many samples as in a minibatch, so that the memory is that of activations
MORE, LESS, BESIDE = 1.3, 0.6, 1024  # what activations may take of the memory that is predicted, and bytes besides


def are_as_predicted(case, comm):
    """Bytes and calls of a training step, without the norm of a gradient that is clipped."""
    case = unclipped(case)
    if not case.pipeline:
        sends_what_is_predicted(case, comm)
    elif case.grid.get(STAGE, 1) > 1:
        stages_send_what_is_predicted(case, comm)
    else:
        partitions_send_what_is_predicted(case, comm)


def sends_what_is_predicted(case, comm):
    """A step sends what is predicted, and a step with many samples takes the memory that is predicted.

    Here the minibatch is not cut into micro-batches, and the gradients are summed in one piece.
    """
    x, y = case.batches()[0]
    plan, options = case.placing()
    with grid_of(case, comm) as grid:
        net = parallelize(case.network(), grid, plan, **options)
        here = GridDescription(grid.sizes, grid.coordinates, min(case.ranks_per_node, grid.size))
        cost = partial(Cost, case.network(), here, plan, machine=MACHINE, **options)
        found = counts_of_step(case, net, [(*block(net, x, y), len(x))], len(x))
        expected = Counter()
        for work in cost(batch_size=len(x)).works:
            if work.group is not None:
                expected[work.layer, work.name, "bytes"] += work.nbytes
                expected[work.layer, work.name, "calls"] += 1
        assert +expected == found, (grid.rank, case, differences(+expected, found))
        x, y = case.batch(case.rng, LARGE * len(x))
        inputs, targets = block(net, x, y)
        mine = as_input(inputs, net.dtype), targets
        net.trainer(case.make_loss(), case.make_optimizer(net)).step([(*mine, len(x))], len(x))
        is_stored = any(array is mine[0] for kept in net.context.values() for array in kept.arrays())
        activations = net.context.nbytes + (0 if is_stored else mine[0].nbytes)
        predicted = sum(cost(batch_size=len(x)).memory_of[what] for what in ("activations", "gradients of activations"))
        assert LESS * predicted - BESIDE <= activations <= MORE * predicted + BESIDE, (grid.rank, case, activations, predicted)


def counts_of_step(case, net, parts, samples):
    """{(layer, kind, "bytes" or "calls"): count} of this rank in a training step, the second one, when all is in place."""
    trainer = net.trainer(case.make_loss(), case.make_optimizer(net))
    for _ in range(2):
        net.grid.comm.Barrier()
        net.grid.tally.clear()
        trainer.step(list(parts), samples)
        trainer.flush()
    found = Counter()
    for (layer, kind), record in net.grid.tally.records.items():
        found[layer, kind, "bytes"] = record.bytes
        found[layer, kind, "calls"] = record.calls
    return +found


def differences(expected, found):
    """{what: (predicted, counted)} where two counts differ."""
    return {key: (expected[key], found[key]) for key in expected | found if expected[key] != found[key]}


def stages_send_what_is_predicted(case, comm):
    """Those of a pipeline on the axis stage, for the rank with the most work of each stage and equal micro-batches.

    The calls that sum gradients are left out: those of several chunks on one rank are predicted apart, but are one sum.
    """
    plan = case.plan_text()
    samples = max(case.batch_sizes) * case.micro_batches
    x, y = case.batch(case.rng, samples)
    cuts, (_, options) = case.made_cuts(), case.placing()
    options.pop("owners", None)  # of which the prediction of pipelines does not know
    with grid_of(case, comm) as grid:
        net = parallelize(case.network(), grid, plan, **options, pipeline=case.schedule(), micro_batches=case.micro_batches,
                          cuts=cuts)  # fmt: skip
        parts = parts_of(net, x, y, case.micro_batches)
        counted = comm.allgather((grid.coordinates, counts_of_step(case, net, parts, samples)))
    asked = PlacementSpec(case.grid, plan, case.shares, pipelines=Pipelines(case.schedule(), case.micro_batches, cuts))
    time = pipeline_step_time(case.network(), asked, samples, BYTES)
    at = slowest_rank(case.alike, asked).coordinates
    for stage in range(case.grid[STAGE]):
        (found,) = (mine for place, mine in counted if place == at | {STAGE: stage})
        compare(case, found, time.work.held(stage), time.times.flights, stage)


def partitions_send_what_is_predicted(case, comm):
    """Those of a pipeline of a hypergraph partition, on all ranks of the axis model and equal micro-batches."""
    plan, (_, options) = case.plan_text(), case.placing()
    samples = case.grid["batch"] * case.micro_batches
    x, y = case.batch(case.rng, samples)
    with grid_of(case, comm) as grid:
        net = parallelize(case.network(), grid, plan, owners=options["owners"], pipeline=case.pipeline,
                          micro_batches=case.micro_batches)  # fmt: skip
        parts = parts_of(net, x, y, case.micro_batches)
        counted = comm.allgather((grid.coordinates, counts_of_step(case, net, parts, samples)))
    pipelines = Pipelines(case.schedule(), case.micro_batches)
    asked = PlacementSpec(case.grid, plan, owners=options["owners"], pipelines=pipelines)
    time = pipeline_step_time(case.network(), asked, samples, BYTES)
    for place, found in counted:
        if place["batch"] == 0:
            rank = place["model"]
            compare(case, found, time.work.held(rank), time.times.flights, rank)


def compare(case, found, held, flights, rank):
    """Hold what a rank counted in a step against the ChunkCosts of its chunks, and the predicted flights of its messages."""
    sizes = [occupied for (sender, *_), (_, occupied) in flights.items() if sender == rank]  # a byte takes a second
    within = {key: n for key, n in found.items() if key[0] != "loss" and key[1] not in MESSAGES}
    sent = {key: n for key, n in found.items() if key[1] == "send"}
    total = {
        "calls": sum(n for (layer, _, what), n in within.items() if what == "calls" and layer != "gradients"),
        "bytes": sum(n for (*_, what), n in within.items() if what == "bytes"),
        "messages": sum(n for (*_, what), n in sent.items() if what == "calls"),
        "bytes of messages": sum(n for (*_, what), n in sent.items() if what == "bytes"),
    }
    expected = {
        "calls": sum(case.micro_batches * chunk.collectives[0] for chunk in held),
        "bytes": sum(case.micro_batches * chunk.sent[0] + chunk.sent[1] for chunk in held),
        "messages": case.micro_batches * len(sizes),
        "bytes of messages": case.micro_batches * sum(sizes),
    }
    # The gradients of all chunks of a rank are one sum. It is predicted as one of each chunk, and where the sums do not divide
    # evenly, what a rank sends and gets is rounded up by an element for each.
    rounded = expected["bytes"] - total["bytes"]
    if 0 < rounded <= 2 * np.dtype(case.dtype).itemsize * (len(held) - 1):
        total["bytes"] += rounded
    assert total == pytest.approx(expected, rel=1e-9), (case, expected, found)
