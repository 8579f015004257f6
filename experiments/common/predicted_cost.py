"""What the cost model predicts for a training step on a grid that is named."""

from gridgrad.parallel.grid.process_grid import parse_grid
from gridgrad.parallel.prediction.cost import cost_of_slowest_rank
from gridgrad.parallel.prediction.placement_spec import PlacementSpec


def cost_on(net, grid, batch_size, machine, plan="fewest-bytes"):
    """The Cost of a step of the rank with the most work. No job is started.

    net: a serial Sequential. grid: as on the command line, without stages. batch_size: of the global minibatch. machine: a
    Machine. plan: see `parallelize`.
    """
    return cost_of_slowest_rank(net, PlacementSpec(parse_grid(grid), plan), batch_size, machine)


def rounded(number):
    """A number rounded to six digits, which keeps files small."""
    return float(f"{number:.6g}")
