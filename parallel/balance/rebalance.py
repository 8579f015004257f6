"""Changing the shares while training runs, where ranks have become slower or faster.

Every few steps each rank compares the seconds that its layers with weights have taken with those that its functions of the
share say (`parallel/balance/choose.py`). The functions, scaled by that ratio, give new shares. They are adopted where the
predicted time of the old shares is more than 1.1 times that of the new ones, as LAMMPS and WarpX do, and where the seconds that
this saves over the remaining steps are more than the move costs.
"""

from collections import defaultdict
from statistics import median

import numpy as np
from mpi4py import MPI

from nn.sequence import leaves
from parallel.balance.choose import Balance, along
from parallel.grid.grid_description import GridDescription
from parallel.observe.span_observer import SpanObserver
from parallel.placement.marques import HandedConv2d
from parallel.placement.moves import exchanged
from parallel.placement.place_network import place
from parallel.placement.placements import Replicate
from parallel.placement.plans import CHOSEN, weighted
from parallel.training.relocation import Relocation

GAIN = 1.1  # the least ratio of the predicted times of the old and the new shares


class LayerTimes(SpanObserver):
    """Adds up the seconds that this rank computes in the layers with weights, step by step: `of_steps`, {step: seconds}."""

    def __init__(self, net, names):
        super().__init__(net)
        self.names, self.of_steps = names, defaultdict(float)

    def record(self, span):
        (name, _, _), start, stop, inner, step = span
        if name in self.names:
            self.of_steps[step] += stop - start - inner


class Rebalancer:
    """Proposes other shares for a network every `interval` steps, and moves it where they are adopted.

    net: a ParallelSequential, placed from the serial Sequential `serial`. optimizer: that of `net`. balance: a Balance for its
    grid, which says how fast each rank was when it was made. steps: of the whole run.

    log: a list with a dict for each proposal: "step" (after so many), "slowness" (of each rank, over what its functions say),
    "shares" and "proposed" ({what is shared: shares}), "seconds" and "proposed_seconds" (predicted, of the slowest rank in a
    step), "saved" and "move" (predicted seconds, of the remaining steps and of the move), "adopted", "reason", and "took"
    (measured seconds of the move; None if there was none).
    """

    def __init__(self, net, serial, optimizer, balance, interval, steps):
        self.net, self.serial, self.optimizer = net, serial, optimizer
        self.balance, self.interval, self.steps = balance, interval, steps
        self.times = LayerTimes(net, {layer.name for layer in weighted(serial)}).__enter__()
        self.slowness = np.ones(net.grid.size)
        self.log, self._took = [], 0.0

    def after_step(self):
        """Call this after each step: it proposes shares if it is time to. Returns a new log entry or None. Collective."""
        if self.net.step % self.interval or self.net.step >= self.steps:
            return None
        self.log.append(self._propose())
        self.times.of_steps.clear()
        return self.log[-1]

    def _propose(self):
        """Decide on new shares, and move the network if they are adopted. Returns the entry of the log."""
        held, proposed = self.shares_held(), self._slowed()
        old = sum(one.slowest(held[one.name]) for one in proposed.chosen)
        new = sum(one.slowest(one.function) for one in proposed.chosen)
        placed = place(self.serial, self.net.grid, ",".join(self.net.plan), proposed.shares, proposed.owners)
        wanted = {one.name: one.function for one in proposed.chosen}
        saved, move = (old - new) * (self.steps - self.net.step), max(self._move_seconds(placed) + new, self._took)
        if wanted == held:
            reason = "the shares are the fastest ones already"
        elif old <= GAIN * new:
            reason = f"a step would take {old / new:.3g} times less long: that must be more than {GAIN}"
        elif saved <= move:
            reason = "moving would take longer than it saves"
        else:
            reason = ""
        took = None if reason else self._move(placed)
        return {
            "step": self.net.step, "slowness": self.slowness.tolist(), "shares": held, "proposed": wanted, "seconds": old,
            "proposed_seconds": new, "saved": saved, "move": move, "adopted": not reason,
            "reason": reason or f"a step takes {old / new:.3g} times less long", "took": took,
        }  # fmt: skip

    def shares_held(self):
        """{name of a Problem: the shares of the ranks of its axis now}."""
        partitions = {leaf.name: shared_partition(leaf) for leaf in reversed(list(self.net.leaves())) if leaf.parameters}
        return {
            one.name: (partitions[one.name] if one.axis == CHOSEN else self.net.splits[one.axis].of_length(one.total)).sizes
            for one in self.balance.chosen
        }

    def _slowed(self):
        """The Balance of ranks that compute as slowly as they did in the last steps. Collective."""
        grid, held = self.net.grid, self.shares_held()
        expected = self._expected(held)
        found = median(self.times.of_steps.values()) / expected if expected else 0.0  # a rank without a share shows no speed
        measured = np.array(grid.comm.allgather(found))
        self.slowness = np.where(measured > 0, measured, self.slowness)
        factors = {axis: along(axis, self.slowness[:, None], grid.sizes)[:, 0] for axis in self.balance.speeds}
        speeds = {axis: np.array(speeds) / factors[axis] for axis, speeds in self.balance.speeds.items()}
        chosen = [one.slowed(factors[one.axis]) for one in self.balance.chosen]
        return Balance(
            self.balance.machine, chosen, {axis: tuple((speeds / speeds.min()).tolist()) for axis, speeds in speeds.items()}
        )

    def _expected(self, held):
        """The seconds that the functions say for the layers with weights of this rank, with the shares that it holds."""
        grid, of_outputs, others = self.net.grid, [], []
        for one in self.balance.chosen:
            rank = grid.coordinates[one.axis]
            now, even = (float(one.computing[rank, shares[rank]]) for shares in (held[one.name], one.even))
            if one.axis == CHOSEN:
                of_outputs.append(now)
            else:
                others.append((now, even))
        total = sum(of_outputs) if of_outputs else others.pop()[0]
        for now, even in others:  # the functions along one axis are those of even shares along the others
            total *= now / even if even else 1.0
        return total

    def _move_seconds(self, placed):
        """Predicted seconds of the exchanges that bring the parameters and the optimizer's state to another placing."""
        arrays, total = 1 + len(self.optimizer.state_names), 0.0
        grid = GridDescription(self.net.grid.sizes, self.net.grid.coordinates, self.balance.machine.node["ranks"])
        parameters = [p for leaf in leaves(placed.layers) for p in leaf.parameters]
        for (_, before), now in zip(self.net.parameters, parameters, strict=True):
            for axis, rank in grid.coordinates.items():
                source, target = (p.layout.placements.get(axis, Replicate()) for p in (before, now))
                if source != target:
                    _, most = exchanged(source.partition, target.partition, rank)
                    nbytes = most * (np.prod(before.shape) // source.partition.length) * self.net.dtype.itemsize
                    total += arrays * self.balance.machine.collective_seconds("exchange", grid.group(axis), grid.size, nbytes)
        return total

    def _move(self, placed):
        """Move the network to another placing. Returns the seconds that this took on the slowest rank. Collective."""
        now = self.net.grid.tally.clock.now
        start = now()
        Relocation(self.net, self.optimizer, placed)
        self._took = self.net.grid.comm.allreduce(now() - start, MPI.MAX)
        return self._took


def shared_partition(leaf):
    """The Partition of what the ranks of the axis model share of a layer with parameters; None if they share nothing of it."""
    if isinstance(leaf, HandedConv2d):
        return leaf.kernels.target.partition
    placement = leaf.parameters[0].layout.placements.get(CHOSEN)
    return placement and placement.partition
