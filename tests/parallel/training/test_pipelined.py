"""Pipelines of stages train as the serial network does; what chunks send to one another is what the others expect."""

import numpy as np

from gridgrad.nn.device import xp
from gridgrad.parallel import ProcessGrid, parallelize
from tests.mpi import mpi
from tests.parallel.equality import assert_same, grids, on_first, serial
from tests.parallel.pipelines import SYNCHRONOUS, dense, images, minibatches, mlp, momentum, own_csv, piped, serial_net, single

AXES = "stage", "batch", "height", "model"
OTHER = {"forward": "backward", "backward": "forward"}


def sizes_of(micro_batches):
    """Of three minibatches: uneven micro-batches, as many samples as micro-batches, and fewer."""
    return 2 * micro_batches + 1, max(micro_batches, 2), max(micro_batches - 1, 1)


@mpi(1, 2, 3, 4, 5, long=(4, 5), timeout=300)
def test_every_schedule_equals_serial(comm):
    """All numbers of micro-batches up to twice that of stages, and one more; on many ranks, not each with every network."""
    every = 1 if comm.size < 3 else 4
    for micro_batches in range(1, 2 * comm.size + 2):
        for number, layers in enumerate((mlp, dense, images, single)):
            batches = minibatches(layers, sizes_of(micro_batches))
            expected = on_first(comm, serial, serial_net(layers), momentum, "cross-entropy", batches, micro_batches)
            for name in SYNCHRONOUS[(number + micro_batches) % every :: every]:
                with ProcessGrid(comm, stage=comm.size) as grid:
                    found = piped(layers, grid, batches, micro_batches, pipeline=name)
                assert_same(found, expected, 1e-10, (layers, name, micro_batches))


@mpi(1, 2, 3, 4, 5, long=(3, 4, 5))
def test_schedules_from_files_equal_serial(comm):
    for micro_batches in range(1, 2 * comm.size + 2):
        for layers in (mlp, dense, images, single):
            batches = minibatches(layers, (2 * micro_batches + 1, micro_batches, 3 * micro_batches))
            expected = on_first(comm, serial, serial_net(layers), momentum, "cross-entropy", batches, micro_batches)
            with ProcessGrid(comm, stage=comm.size) as grid, own_csv(comm.size, micro_batches) as name:
                found = piped(layers, grid, batches, micro_batches, pipeline=name)
            assert_same(found, expected, 1e-10, (layers, micro_batches))


@mpi(2, 3, 4, 5, 6, 7, 8, long=(5, 6, 7, 8))
def test_stages_go_with_all_other_axes(comm):
    for layers, dtype in ((images, np.float64), (dense, np.float64), (images, np.float32)):
        batches = minibatches(layers, (9, 4, 2), dtype)
        expected = serial(serial_net(layers, dtype), momentum, "cross-entropy", batches, micro_batches=3)
        for number, sizes in enumerate(grids(comm.size, AXES)):
            if sizes["stage"] == 1 or sizes["height"] > 1 and layers is dense:
                continue
            for name in ("1f1b", "zbv") if comm.size < 6 else (("1f1b", "zbv", "interleaved:2")[number % 3],):
                runs = []
                for _ in range(2 if layers is dense else 1):
                    with ProcessGrid(comm, **sizes) as grid:
                        runs.append(piped(layers, grid, batches, 3, dtype=dtype, pipeline=name))
                assert_same(runs[0], expected, 1e-10 if dtype == np.float64 else 1e-4, (layers, sizes, name))
                for losses, state in runs[1:]:
                    assert losses == runs[0][0], (sizes, name)
                    assert all(np.array_equal(state[key], value) for key, value in runs[0][1].items()), (sizes, name)


@mpi(1, 2, 3, 4, 5, 6, 7, 8, long=(5, 6, 7, 8))
def test_messages_have_the_sizes_that_are_said(comm):
    ways = [
        (layers, {"stage": comm.size}, None, name) for layers in (dense, images) for name in ("1f1b", "interleaved:2", "zbv")
    ]
    ways.append((mlp, {"model": comm.size}, "hypergraph", "1f1b"))
    for layers, sizes, plan, pipeline in ways:
        with ProcessGrid(comm, **sizes) as grid:
            net = parallelize(serial_net(layers), grid, plan, pipeline=pipeline)
            for chunk, boundary in net.stage_map.boundaries.items():
                for way in OTHER:
                    sent, received = messages(boundary, way, 5)
                    assert boundary.counts(way, 5) == sent and all(sent.values())
                    of_all = comm.allgather((sent, received))
                    for rank, (there, _) in enumerate(of_all):
                        assert {to: got[rank] for to, (_, got) in enumerate(of_all) if rank in got} == there, (
                            chunk,
                            way,
                            pipeline,
                        )


def messages(boundary, way, samples):
    """({rank: elements} of the messages from this rank, the same of those to it)."""
    sent = received = {}
    if boundary.counts(way, samples):
        before = xp.zeros(boundary.shape(OTHER[way], samples))
        sent = boundary.sends(way, before, samples, xp.empty)
    if boundary.counts(OTHER[way], samples):
        received = boundary.receives(way, samples, xp.zeros(boundary.shape(way, samples)), xp.empty)
    return ({rank: message.size for rank, message in of.items()} for of in (sent, received))
