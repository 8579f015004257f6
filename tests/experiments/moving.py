"""`train` that moves work with every proposal of --rebalance, whatever was measured: run by test_resume.py."""

from gridgrad.experiments import train
from gridgrad.parallel.choose.rebalance import Rebalancer
from gridgrad.parallel.job.run import run
from gridgrad.parallel.placement.partition import Partition


def propose(rebalancer, held, measured):
    """In turns the first and the last rank of the axis model get three quarters of the outputs of a layer."""
    few = {one.name: one.total // 4 for one in rebalancer.balance.chosen}
    sizes = {one.name: [one.total - few[one.name], few[one.name]] for one in rebalancer.balance.chosen}
    if len(rebalancer.log) % 2:
        sizes = {name: both[::-1] for name, both in sizes.items()}
    entry = {"step": rebalancer.net.step, "slowness": measured.tolist(), "shares": held, "proposed": sizes, "adopted": True,
             "left_out": [], "took": None, "bytes": None, "reason": "made up"}  # fmt: skip
    return entry, ({}, {name: Partition.of_sizes(both) for name, both in sizes.items()})


def main():
    Rebalancer._proposal = propose
    train.main()


if __name__ == "__main__":
    run(main)
