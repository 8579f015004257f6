"""One call that makes a serial network parallel; a grid, plan or reduction that is "auto" is predicted or measured."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from mpi4py import MPI

from gridgrad.nn.sequential import Sequential
from gridgrad.parallel.calibration.this_machine import machine_of_job, memory_of_rank
from gridgrad.parallel.choose.reductions import check_name, named_reduction
from gridgrad.parallel.choose.shares import measured_shares
from gridgrad.parallel.grid.devices import ranks_on_cpus
from gridgrad.parallel.grid.process_grid import MODEL, ProcessGrid, check_places, checked_sizes, written
from gridgrad.parallel.job.run import UserError, end_job_when_uncaught, on_root
from gridgrad.parallel.job.waiting import broadcast
from gridgrad.parallel.partitioning.good_partition import is_partition, owners_of_plan
from gridgrad.parallel.placement.partition import Partition
from gridgrad.parallel.plans.hypergraph import HYPERGRAPH, Owners
from gridgrad.parallel.plans.place_network import splits
from gridgrad.parallel.prediction.machine import Machine
from gridgrad.parallel.prediction.pipeline_cost import Pipelines
from gridgrad.parallel.prediction.placement_spec import AUTO, PlacementSpec, open_plan, sizes_of
from gridgrad.parallel.prediction.planner import BATCH_SIZE, Planner
from gridgrad.parallel.training.distribute import make_parallel
from gridgrad.parallel.training.network import ParallelSequential

ALTERNATIVES = PARTITIONS, PIPELINES = "partitions", "pipelines"  # to plans along the axes, where the planner chooses


def parallelize(
    net: Sequential,
    grid: ProcessGrid | str | Mapping[str, int] = "auto",
    plan: str | Sequence[str] | None = None,
    reduction: str = "auto",
    update: str | None = None,
    reduce_dtype: str = "same",
    shares: Mapping[str, Sequence[float]] | str | None = None,
    owners: Mapping[str, Partition] | Owners | None = None,
    batch_size: int = BATCH_SIZE,
    memory: float | None = None,
    machine: Machine | None = None,
    pipeline: str | None = None,
    micro_batches: int | None = None,
    cuts: Sequence[int] | None = None,
    allocate: bool = True,
) -> ParallelSequential:
    """Make a serial network parallel: all ranks together compute what the serial network computes. Collective.

    The planner runs only for a grid or a plan that is "auto" on several ranks, and sums are timed only for the reductions
    "auto" and "overlap" without a size. What is measured takes less than five seconds, and is stored for later calls, except
    for the shares "auto". Where the planner runs, it chooses what is not given of `pipeline`, `micro_batches` and `cuts`; with
    a pipeline or cuts its grid has the axis `stage`. Afterwards an uncaught exception on one rank ends the whole job.

    Parameters
    ----------
    net : Sequential
        A serial network. If it was never used, it costs no memory; if it was used, its weights are copied. A network for
        images must have an `input_shape`.
    grid : ProcessGrid, str or dict
        Sizes of the axes, such as batch=2,model=2 or in Python {"batch": 2, "model": 2}, or auto, the planner's choice; see
        `gridgrad help grid`.
    plan : str or sequence of str, optional
        Placement of the weights along the axis model, such as out, conv=height,linear=fewest-bytes or auto; see `gridgrad help
        plan` (default: fewest-bytes, or auto if the grid is auto).
    reduction : str
        How gradients are summed: plain, overlap, overlap:KIB, shared, powersgd:R, or auto, the fastest here; see `gridgrad help
        reduction`.
    update : str, optional
        Whether each rank updates all its parameters, whole, or only its shard of them, sharded, as in ZeRO-1 (default: sharded
        if the reduction is shared, else whole).
    reduce_dtype : str
        Type in which gradients are sent, same or float16, which halves the bytes and rounds each value by up to 2^-11; sums are
        in float32.
    shares : dict or str, optional
        How unevenly the ranks of an axis share samples, rows, kernels and neurons: numbers by axis, such as
        model=3:2,batch=2:1, in Python {"model": (3, 2), "batch": (2, 1)}; a share may be 0 (default: equal shares). On the
        command line also one number for each rank of the one axis that has several, such as 3,2,1.5,1. auto: each rank is timed
        with several shares, so that the slowest rank finishes as early as possible; ranks that cost more than they save get 0.
    owners : dict of Partition or Owners, optional
        {name of a layer: Partition} of the outputs of layers that the plan splits by "out", for ranks whose outputs are not
        consecutive: `Partition.owned` makes one from the rank of the axis `model` that has each output. For the plan
        "hypergraph", Owners; by default a partition is searched for, with parts in proportion to the shares along `model`.
    batch_size : int
        Samples in the global minibatch.
    memory : float, optional
        Memory of a rank that the planner may use, in bytes or, on the command line, GiB (default: the rank's share of the
        node's memory).
    machine : Machine, optional
        What the planner predicts for (default: the machine of this job, which is probed once if nobody has calibrated it).
    pipeline : str, optional
        Schedule of a grid with stages, such as gpipe, interleaved:2 or FILE.csv; see `gridgrad help pipeline` (default: 1f1b).
    micro_batches : int, optional
        Split each minibatch into so many micro-batches, whose gradients are added up; without a pipeline they pass through the
        network one after another, in the memory of one of them (default: 1, or for each stage of a pipeline 4).
    cuts : sequence of int, optional
        Numbers of the layers with which the second and all later chunks of a pipeline begin, in the order in which they run,
        from 0 (default: chunks of about the same work).
    allocate : bool
        Whether the network gets its memory now. Otherwise its method `allocate` does that, so that a program can check first.

    Returns
    -------
    This rank's part of the network.

    Raises
    ------
    ValueError
        If the grid does not fit the ranks, the plan or the shapes of consecutive layers do not fit, or no layer has weights.

    Examples
    --------
    `parallelize(net)` leaves the choice to the planner; "batch=4" is data parallelism, and "batch=2,model=4" is 2-D.

    >>> import numpy as np
    >>> from mpi4py import MPI
    >>> from gridgrad.nn import MSE, SGD, Linear, Sequential, Tanh
    >>> from gridgrad.parallel import parallelize
    >>> net = parallelize(Sequential([Linear(3, 5), Tanh(), Linear(5, 2)], dtype=np.float64), f"model={MPI.COMM_WORLD.size}")
    >>> optimizer, loss = SGD(net, lr=0.1), MSE()
    >>> x, y = np.ones((4, 3)), np.zeros((4, 2))  # the global minibatch: each rank takes its part
    >>> values = [net.learn(x, y, loss, optimizer) for step in range(3)]
    >>> values[2] < values[0]
    True
    >>> net.grid.free()
    """
    end_job_when_uncaught()  # before the checks: one rank alone may fail them
    check_name(reduction)
    auto_shares = isinstance(shares, str) and shares == AUTO
    if auto_shares and isinstance(plan, str) and is_partition(plan):
        raise ValueError(f"plan '{plan}' has no shares that are measured: give shares as numbers, or another plan")
    if isinstance(net, ParallelSequential):
        raise ValueError("the network is parallel already: pass the serial network to parallelize, and only once")
    if not isinstance(net, Sequential):
        raise ValueError(f"parallelize takes a Sequential, not a {type(net).__name__}: put the layers into Sequential([..])")
    sizes, pipelines = sizes_of(grid, MPI.COMM_WORLD.size), Pipelines(pipeline, micro_batches, cuts)
    numbers: Any = None if auto_shares else shares
    asked = PlacementSpec(sizes, open_plan(plan, sizes), numbers, owners, pipelines, memory)
    given = grid if isinstance(grid, ProcessGrid) else None
    ranks, placing = completed(net, asked, given, batch_size, machine, () if auto_shares else ALTERNATIVES)
    if auto_shares:
        if placing.owners:
            raise ValueError('shares="auto" chooses the owners too: leave out one of the two')
        machine, memory = machine or machine_of_job(ranks.comm), memory or memory_of_rank(ranks.comm)
        found = measured_shares(net, ranks, replace(placing, memory=memory), batch_size, machine)
        placing = found.placed(placing)
    sums = partial(named_reduction, reduction=reduction, update=update, reduce_dtype=reduce_dtype)
    parallel = make_parallel(net, ranks, placing, sums)
    if allocate:
        parallel.allocate()
    return parallel


def completed(net, asked, grid=None, batch_size=BATCH_SIZE, machine=None, alternatives=ALTERNATIVES):
    """(ProcessGrid, `asked` completed by the planner). Collective. grid: if there is one. alternatives: of ALTERNATIVES."""
    comm, plan = grid.comm if grid else MPI.COMM_WORLD, asked.plan
    partitioned = plan is not None and is_partition(plan)
    if asked.grid is None and partitioned:
        raise ValueError(f"plan '{plan}' is for a grid that is named, such as model=4: name it")
    if asked.grid is None or plan is None:
        asked = planned(net, asked, comm, batch_size, machine, alternatives)
    grid = grid or ProcessGrid(comm, **asked.grid)
    if partitioned:
        owners, shares, ranks = asked.owners, asked.shares or {}, grid.sizes[MODEL]
        if owners is None and ranks > 1:
            splits(grid.sizes, shares)  # refuses those that do not fit the grid
            owners = of_first(comm, lambda: owners_of_plan(plan, net, ranks, shares.get(MODEL)))
        asked = replace(asked, plan=HYPERGRAPH, owners=owners)
    return grid, asked


def planned(net, asked, comm, batch_size, machine, alternatives):
    """The PlacementSpec in which the planner has chosen, on the first rank, what was open. Collective."""
    if len(ranks_on_cpus(comm)) < comm.size:
        raise ValueError("the planner can not predict GPUs: name the grid and the plan")
    if asked.grid:
        check_places(written(asked.grid), asked.grid, comm.size, started=True)
        splits(checked_sizes(asked.grid), asked.shares)
    elif asked.shares:
        raise ValueError("shares need a grid that is named, such as batch=2,model=2: name it")
    machine = machine or machine_of_job(comm)
    wanted = asked if asked.grid or PIPELINES in alternatives else replace(asked, pipelines=None)
    partition = partial(owners_of_plan, HYPERGRAPH, net, speeds=(asked.shares or {}).get(MODEL))
    partition = partition if PARTITIONS in alternatives else None

    def decide():
        chosen, _ = Planner(net, comm.size, batch_size, machine, wanted, partition).best()
        pipelines = Pipelines(**chosen.pipelining) if chosen.pipelining else asked.pipelines
        return chosen.sizes, chosen.cost.placed.plan, chosen.owners or asked.owners, pipelines

    sizes, plan, owners, pipelines = of_first(comm, decide)
    return replace(asked, grid=sizes, plan=plan, owners=owners, pipelines=pipelines)


def of_first(comm, decide):
    """What `decide` returns on the first rank, on all ranks; ValueError on all if it fails. Collective."""

    def decided():
        try:
            return decide()
        except MemoryError:
            advice = "name the grid and the plan"
            raise UserError(f"there is too little memory to plan for a network of this size: {advice}") from None

    try:
        return broadcast(comm, on_root(comm, decided))
    except UserError as error:
        raise ValueError(str(error)) from None
