"""One call that makes a serial network parallel.

The planner chooses the grid and the plan, and a measurement the reduction, if they are "auto".
"""

from functools import partial

from mpi4py import MPI

from gridgrad.nn.sequential import Sequential
from gridgrad.parallel.auto.reductions import choose_reduction
from gridgrad.parallel.auto.this_machine import machine_of_job, memory_of_rank
from gridgrad.parallel.balance.choose import measured_shares
from gridgrad.parallel.grid.devices import ranks_on_cpus
from gridgrad.parallel.grid.process_grid import AXES, ProcessGrid, check_places, parse_grid
from gridgrad.parallel.job.run import one_line
from gridgrad.parallel.job.uncaught import end_job_when_uncaught
from gridgrad.parallel.job.waiting import broadcast
from gridgrad.parallel.partitioning.choose import is_partition, owners_of_plan
from gridgrad.parallel.performance.pipeline_plans import Pipelines
from gridgrad.parallel.performance.planner import BATCH_SIZE, Planner
from gridgrad.parallel.placement.place_network import shares_by_axis, splits
from gridgrad.parallel.placement.plans import CHOSEN, HYPERGRAPH
from gridgrad.parallel.training.distribute import distribute
from gridgrad.parallel.training.network import ParallelSequential


def parallelize(net, grid="auto", plan=None, **options):
    """Make a serial network parallel: return this rank's part, a ParallelSequential with allocated memory. Collective.

    All ranks together compute what the serial network computes.

        net = parallelize(net)                     # the planner chooses
        net = parallelize(net, "batch=4")          # data parallelism
        net = parallelize(net, "batch=2,model=4")  # 2-D

    net: a serial Sequential. If it was never used, it costs no memory; if it was used, its weights are copied. A network for
    images must have an `input_shape`.
    grid: a ProcessGrid; or, for a grid of all ranks, a text such as "batch=4,model=2" or a dict such as
    {"batch": 4, "model": 2}; or "auto" for the planner's choice.
    plan: a text that names the placement of the weights, see `parallel/placement/plans.py`; or "auto" for the planner's choice
    on this grid. The default is "fewest-bytes", or "auto" if the grid is "auto". "hypergraph", "hypergraph:fine" and the name
    of a file of owners stand for a partition of the network over the axis `model` (`parallel/partitioning/choose.py`).
    options: see `parallelize_unallocated`. The planner runs only for a grid or a plan that is "auto", and sums are
    timed only for the reductions "auto" and "overlap" without a size. What is measured takes less than five seconds, and is
    stored, so that a second call measures nothing; but for the shares "auto", which are measured each time.
    Raises ValueError if the grid does not fit the ranks, the plan does not fit the network, the shapes of consecutive layers do
    not fit, or no layer has weights.
    Afterwards an uncaught exception on one rank ends the whole job: see `parallel/job/uncaught.py`.
    """
    parallel = parallelize_unallocated(net, grid, plan, **options)
    parallel.allocate()
    return parallel


def parallelize_unallocated(
    net, grid="auto", plan=None, reduction="plain", sharded=None, float16_gradients=False, shares=None, owners=None,
    batch_size=BATCH_SIZE, memory=None, machine=None, pipeline=None, micro_batches=None, cuts=None,
):  # fmt: skip
    """What `parallelize` returns, but before its memory is allocated: a program can check first whether it fits. Collective.

    net, grid, plan: see `parallelize`.
    reduction: how gradients are summed: "plain", "overlap", "overlap:KIB", "shared" or "auto", see
    `parallel/auto/reductions.py`.
    sharded: whether each rank updates only its shard of the parameters; None means only if the reduction is "shared".
    float16_gradients: whether gradients are sent in float16.
    shares: {axis: one number for each of its ranks}, such as {"model": (3, 2), "batch": (2, 1)}. The ranks take samples, rows,
    channels or neurons along that axis in proportion to these numbers, which may be 0. By default all are equal. "auto": every
    rank is timed, and the shares are those with which the slowest rank finishes as early as possible
    (`parallel/balance/choose.py`).
    owners: {name of a layer: Partition} of the outputs of layers that the plan splits by "out", for ranks whose outputs are not
    consecutive: `Partition.owned` makes one from the rank of the axis model that has each output. For the plan "hypergraph",
    Owners; by default a partition is searched for, with parts in proportion to the shares along the axis `model`.
    pipeline: the schedule of a grid with the axis stage, see `parallel/pipeline/names.py`; by default "1f1b". micro_batches:
    into how many parts a minibatch is cut; by default 4 for each stage, and 1 for an asynchronous schedule or without stages.
    cuts: the positions in `net.layers` at which new chunks begin; by default the chunks have about the same work. Where the
    planner runs, it chooses what is None; if the pipeline or the cuts are given and the grid is "auto", it has the axis stage.
    batch_size, memory, machine: for the planner and for measured shares: the samples in a global minibatch, the bytes that a
    rank may use (by default what the machine has), and a Machine (by default the one that this job runs on, which is probed
    for `probe.SECONDS`, at most once, if nobody has calibrated it: `parallel/auto/this_machine.py`).
    """
    auto_shares = isinstance(shares, str) and shares == "auto"
    if auto_shares and isinstance(plan, str) and is_partition(plan):
        raise ValueError(f"plan '{plan}' has no shares that are measured: give shares as numbers, or another plan")
    pipelines = None if auto_shares else Pipelines(pipeline, micro_batches, cuts)
    grid, plan, owners, pipelining = grid_and_plan(
        net, grid, plan, batch_size, memory, machine, None if auto_shares else shares, owners, not auto_shares, pipelines
    )  # fmt: skip
    pipelining = {"pipeline": pipeline, "micro_batches": micro_batches, "cuts": cuts} | pipelining
    if auto_shares:
        if owners:
            raise ValueError('shares="auto" chooses the owners too: leave out one of the two')
        machine, memory = machine or machine_of_job(grid.comm), memory or memory_of_rank(grid.comm)
        shares, owners = measured_shares(net, grid, plan, batch_size, machine, memory=memory).placement()
    make_reduction = partial(choose_reduction, reduction, sharded, float16_gradients)
    return distribute(net, grid, plan, make_reduction, shares, owners, **pipelining)


def grid_and_plan(
    net, grid, plan, batch_size=BATCH_SIZE, memory=None, machine=None, shares=None, owners=None, partitions=True, pipelines=None
):  # fmt: skip
    """(the ProcessGrid, the text of the plan, the owners, the pipelining) for these arguments of `parallelize_unallocated`.

    partitions: whether the planner considers the plan "hypergraph". pipelines: what is asked for of a pipeline, a Pipelines; if
    it is None, the planner considers none on a grid that is "auto". The pipelining is a dict of the arguments pipeline,
    micro_batches and cuts that the planner has chosen, empty if it has chosen no pipeline. Collective.
    """
    end_job_when_uncaught()
    _check_serial(net)
    grid, plan, shares, pipelining = _grid_or_text(grid), _plan_text(plan), shares_by_axis(shares), {}
    if grid == "auto" and plan is not None and is_partition(plan):
        raise ValueError(f"plan '{plan}' is for a grid that is named, such as model=4: name it")
    if grid == "auto" or plan == "auto":
        partition = partial(owners_of_plan, HYPERGRAPH, net, speeds=shares.get(CHOSEN)) if partitions else None
        grid, plan, found, pipelining = choose_grid_and_plan(
            net, grid, plan, batch_size, memory, machine, shares, partition, pipelines
        )
        owners = found or owners
    if isinstance(grid, str):
        grid = ProcessGrid(MPI.COMM_WORLD, **parse_grid(grid))
    if plan is not None and is_partition(plan):
        if owners is None and grid.sizes[CHOSEN] > 1:
            splits(grid.sizes, shares)  # refuses those that do not fit the grid
            owners = of_first(grid.comm, lambda: owners_of_plan(plan, net, grid.sizes[CHOSEN], shares.get(CHOSEN)))
        plan = HYPERGRAPH
    return grid, "fewest-bytes" if plan is None else plan, owners, pipelining


def of_first(comm, decide):
    """What `decide` returns on the first rank, on all ranks; the others sleep meanwhile. Collective.

    ValueError on all of them if it raises that or OSError there.
    """
    found = message = None
    if comm.rank == 0:
        try:
            found = decide()
        except (ValueError, OSError) as error:
            message = one_line(error)
    found, message = broadcast(comm, (found, message))
    if message is not None:
        raise ValueError(message)
    return found


def _check_serial(net):
    """Raise ValueError unless `net` is a serial Sequential."""
    if isinstance(net, ParallelSequential):
        raise ValueError("the network is parallel already: pass the serial network to parallelize, and only once")
    if not isinstance(net, Sequential):
        raise ValueError(f"parallelize takes a Sequential, not a {type(net).__name__}: put the layers into Sequential([..])")


def _grid_or_text(grid):
    """The grid as a ProcessGrid or a text."""
    if isinstance(grid, dict):
        return ",".join(f"{axis}={ranks}" for axis, ranks in grid.items())
    if not isinstance(grid, str | ProcessGrid):
        raise ValueError(f"the grid must be a ProcessGrid, a text such as batch=4,model=2, or auto, not {grid!r}")
    return grid


def _plan_text(plan):
    """The plan as a text or None."""
    if isinstance(plan, list | tuple) and plan and all(isinstance(word, str) for word in plan):
        return ",".join(plan)
    if plan is not None and not isinstance(plan, str):
        raise ValueError(f"the plan must be a text such as out,in, or a list of such words, not {plan!r}")
    return plan


def choose_grid_and_plan(
    net, grid, plan, batch_size, memory, machine=None, shares=None, partition=None, pipelines=None
):  # fmt: skip
    """(grid, plan, owners, pipelining) for `parallelize`, in which the planner has chosen what was "auto". Collective.

    The arguments are those of `parallelize_unallocated`, and partition and pipelines those of the Planner. A grid or a plan
    that is not "auto" is kept. The owners are None but for the plan "hypergraph"; pipelining is as in `grid_and_plan`. The
    planner runs on the first rank.
    """
    if not isinstance(grid, str):
        comm, sizes = grid.comm, grid.sizes
    else:
        comm, sizes = MPI.COMM_WORLD, None if grid == "auto" else parse_grid(grid)
    if len(ranks_on_cpus(comm)) < comm.size:
        raise ValueError("the planner can not predict GPUs: name the grid and the plan")
    if sizes:
        check_places(grid, sizes, comm.size)
        splits({axis: sizes.get(axis, 1) for axis in AXES}, shares)
    if shares and not sizes:
        raise ValueError("shares need a grid that is named, such as batch=2,model=2: name it")
    named, machine = None if plan == "auto" else plan, machine or machine_of_job(comm)
    pipelines = pipelines if comm.size > 1 else None  # one rank alone is one stage

    def decide():
        chosen, _ = Planner(net, comm.size, batch_size, machine, memory, sizes, named, shares, partition, pipelines).best()
        return chosen.grid, chosen.plan, chosen.owners, chosen.pipelining

    chosen, plan, found, pipelining = of_first(comm, decide)
    return (chosen if grid == "auto" else grid), plan, found, pipelining
