"""A network that gets other shares and owners after every step goes on as the serial network does."""

import random
from dataclasses import replace

from gridgrad.parallel.plans.place_network import place
from gridgrad.parallel.training.relocation import relocate
from tests.parallel.equality import on_first
from tests.parallel.pipelines import parts_of
from tests.random_networks import feeding
from tests.random_networks.case import random_shares
from tests.random_networks.checks import agree, grid_of, placed, serial


def moves_after_every_step(case, comm):
    """In place of a pipeline and of the plan "hypergraph", which have no shares that change, there is another plan."""
    if case.pipeline or case.plan == "hypergraph":
        case = replace(case, pipeline=None, cuts=None, grid={"batch": 1, "model": case.ranks}, shares=None, plan=("out", "in"))
    expected, rng = on_first(comm, serial, case), random.Random(case.seed)
    with grid_of(case, comm) as grid:
        net = placed(case, grid)
        optimizer, losses = case.make_optimizer(net), []
        for x, y in case.batches():
            mine = parts_of(net, x, y, case.micro_batches)
            losses.append(net.trainer(case.make_loss(), optimizer).complete_step(mine, len(x)))
            now = replace(case, shares=random_shares(rng, case.grid), seed=rng.randrange(10**6))  # other owners too
            relocate(net, optimizer, place(now.network(), grid, now.plan_text(), **now.placing()[1]))
        found = losses, net.state_dict(everywhere=True), feeding.outputs(case, net)
    agree(found, expected, case, comm)
