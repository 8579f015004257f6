"""One call that makes a serial network parallel: what is not named is chosen, by the planner or by measuring."""

from functools import partial

from mpi4py import MPI

from nn.device import is_cpu
from nn.sequential import Sequential
from parallel.auto.reductions import choose_reduction
from parallel.auto.this_machine import machine_of_job
from parallel.grid.process_grid import ProcessGrid, check_places, parse_grid
from parallel.job.uncaught import end_job_when_uncaught
from parallel.performance.planner import BATCH_SIZE, Planner
from parallel.training.network import ParallelSequential, distribute


def parallelize(net, grid="auto", plan=None, **options):
    """The network that this rank runs, equal to the serial `net` taken over all ranks. Collective.

        net = parallelize(net)                     # the planner chooses
        net = parallelize(net, "batch=4")          # data parallelism
        net = parallelize(net, "batch=2,model=4")  # 2-D

    net: a serial Sequential. One that was never used costs no memory here; one that was used passes its weights on. Images
    need its `input_shape`.
    grid: a ProcessGrid; or a text such as "batch=4,model=2", or a dict, of all ranks; or "auto", the planner's choice.
    plan: a text, see `parallel/placement/plans.py`; or "auto", the planner's choice for this grid; by default
    "fewest-bytes", or "auto" where the grid is.
    options: see `parallelize_unallocated`. What is named explicitly is taken as it is, and nothing is measured for it.
    Raises ValueError if the plan does not fit the network, or the layers each other, or if no layer has weights.
    From then on an exception that nobody catches on one rank ends the job: see `parallel/job/uncaught.py`.
    """
    parallel = parallelize_unallocated(net, grid, plan, **options)
    parallel.allocate()
    return parallel


def parallelize_unallocated(
    net, grid="auto", plan=None, reduction="plain", sharded=None, float16_gradients=False, shares=None, owners=None, batch_size=BATCH_SIZE,
    memory=None, machine=None,
):  # fmt: skip
    """What `parallelize` returns, before it has memory: a program can see first whether there is enough. Collective.

    reduction: how gradients are summed, see `parallel/auto/reductions.py`. sharded: whether each rank updates only its part of
    the parameters (None: where they are in shared memory). float16_gradients: whether gradients travel in float16.
    shares: {axis: weights}, one number for each rank of an axis, in proportion to which the ranks take samples, rows, channels
    or neurons along it, such as {"model": (3, 2), "batch": (2, 1)}; a share may be 0. By default all are equal.
    owners: {name of a layer: Partition} of the outputs of layers that a plan splits by "out", where a rank's outputs are not to
    be consecutive: `Partition.owned` says for each output which rank of the axis model has it.
    batch_size, memory, machine: for the planner: samples of the global minibatch, bytes that a rank may use (by default what
    the machine has), and another Machine than the one of this job.
    """
    end_job_when_uncaught()
    _check_serial(net)
    grid, plan = _grid_or_text(grid), _plan_text(plan)
    if grid == "auto" or plan == "auto":
        grid, plan = choose_grid_and_plan(net, grid, plan, batch_size, memory, machine, shares)
    if isinstance(grid, str):
        grid = ProcessGrid(MPI.COMM_WORLD, **parse_grid(grid))
    choice = partial(choose_reduction, reduction, sharded, float16_gradients)
    return distribute(net, grid, "fewest-bytes" if plan is None else plan, choice, shares, owners)


def _check_serial(net):
    if isinstance(net, ParallelSequential):
        raise ValueError("the network is parallel already: parallelize the serial one, and only once")
    if not isinstance(net, Sequential):
        raise ValueError(f"parallelize takes a Sequential, not a {type(net).__name__}: put the layers into Sequential([..])")


def _grid_or_text(grid):
    if isinstance(grid, dict):
        return ",".join(f"{axis}={ranks}" for axis, ranks in grid.items())
    if not isinstance(grid, str | ProcessGrid):
        raise ValueError(f"the grid must be a ProcessGrid, a text such as batch=4,model=2, or auto, not {grid!r}")
    return grid


def _plan_text(plan):
    if isinstance(plan, list | tuple) and plan and all(isinstance(word, str) for word in plan):
        return ",".join(plan)
    if plan is not None and not isinstance(plan, str):
        raise ValueError(f"the plan must be a text such as out,in, or a list of such words, not {plan!r}")
    return plan


def choose_grid_and_plan(net, grid, plan, batch_size, memory, machine=None, shares=None):
    """(grid, plan) for `parallelize`, in which what is "auto" is chosen for the machine of this job. Collective.

    grid, plan: as of `parallelize`; a plan that is given is kept, and only the grid chosen. machine: another one than this.
    """
    if not is_cpu():
        raise ValueError("the planner knows no GPU: name the grid and the plan")
    if not isinstance(grid, str):
        comm, sizes = grid.comm, grid.sizes
    else:
        comm, sizes = MPI.COMM_WORLD, None if grid == "auto" else parse_grid(grid)
    if sizes:
        check_places(grid, sizes, comm.size)
    if shares and not sizes:
        raise ValueError("shares are for the axes of a grid: name the grid, such as batch=2,model=2")
    named = None if plan == "auto" else plan
    planner = Planner(net, comm.size, batch_size, machine or machine_of_job(comm), memory, sizes, named, shares)
    chosen, _ = planner.best()
    return (chosen.grid if grid == "auto" else grid), chosen.plan
