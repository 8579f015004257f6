"""From a serial network to this rank's part of it on a grid, with everything given."""

from parallel.grid.process_grid import STAGE
from parallel.pipeline import names
from parallel.placement.place_network import place
from parallel.sync.reduction import BlockingReduction
from parallel.training.network import ParallelSequential
from parallel.training.pipelined import PipelinedSequential
from parallel.training.stage_cuts import balanced_cuts

MICRO_BATCHES = 4  # of a minibatch, for each stage of a pipeline: the stages are then idle for less than a quarter of the time


def distribute(
    net, grid, plan="fewest-bytes", reduction=BlockingReduction, shares=None, owners=None,
    pipeline=None, micro_batches=None, cuts=None,
):  # fmt: skip
    """Place a serial network on a grid; return this rank's part, a ParallelSequential whose memory is not allocated yet.

    Unlike `parallelize`, it chooses nothing and measures nothing. If `net` has memory, the result is allocated and gets its
    values. Collective. net: a serial Sequential; one that was never used costs no memory. grid: a ProcessGrid. plan, shares,
    owners, pipeline, micro_batches, cuts: see `parallelize_unallocated`. reduction: a function that returns a Reduction for a
    ParallelSequential.
    Raises ValueError if the plan, the shares, the owners, the pipeline or the cuts do not fit the network or the grid.
    """
    if pipeline is None and grid.sizes[STAGE] == 1:
        if cuts is not None:
            raise ValueError("cuts are for a pipeline: use a grid with the axis stage, such as stage=2")
        parallel = ParallelSequential(place(net, grid, plan, shares, owners), grid, net.seed, net.dtype, reduction)
        parallel.micro_batches = micro_batches or 1
    else:
        parallel = pipelined(net, grid, plan, reduction, shares, owners, pipeline, micro_batches, cuts)
    parallel.step = net.step
    if net.allocated:
        parallel.load_state_dict(net.state_dict())
    return parallel


def pipelined(net, grid, plan, reduction, shares, owners, pipeline, micro_batches, cuts):
    """The PipelinedSequential for the arguments of `distribute`."""
    named, stages = names.parse(pipeline or "1f1b"), grid.sizes[STAGE]
    route = named.route(stages)
    if named.in_flight and (micro_batches or 1) > 1:
        raise ValueError(f"pipeline {pipeline} updates after each minibatch: leave it in one piece, without micro-batches")
    default = 1 if named.in_flight or stages == 1 else MICRO_BATCHES * stages
    if named.file:
        default = named.file.micro_batches
    cuts = balanced_cuts(net, route.chunks) if cuts is None else cuts
    if len(cuts) != route.chunks - 1:
        raise ValueError(
            f"{len(cuts)} cuts make {len(cuts) + 1} chunks, but pipeline {named.name} on {stages} stages has {route.chunks}"
        )
    places = [place for (place,) in route.places]
    placed = place(net, grid, plan, shares, owners, cuts, places)
    return PipelinedSequential(placed, grid, net.seed, net.dtype, reduction, named, micro_batches or default)
