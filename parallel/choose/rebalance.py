"""Changing the shares while training runs, where ranks have become slower or faster. Every few steps each rank compares the
seconds that its layers with weights have taken with those that its functions of the share predict
(`parallel/choose/shares.py`). Scaled by that ratio, the functions give new shares. They are adopted where they are predicted to
be more than 1.1 times as fast, as LAMMPS and WarpX do, and where they save more over the remaining steps than the move costs.
The first rank decides for all."""

from collections import defaultdict
from statistics import median

import numpy as np
from mpi4py import MPI

from gridgrad.nn.layer import Layer
from gridgrad.nn.sequence import leaves
from gridgrad.parallel.grid.process_grid import MODEL, GridDescription
from gridgrad.parallel.job.waiting import broadcast
from gridgrad.parallel.observe.span_observer import SpanObserver
from gridgrad.parallel.placement.partition import most_exchanged
from gridgrad.parallel.placement.placements import Replicate
from gridgrad.parallel.plans.marques import HandedConv2d
from gridgrad.parallel.plans.place_network import place
from gridgrad.parallel.training.relocation import relocate

GAIN = 1.1  # the least ratio of the predicted times of the old and the new shares


class LayerTimes(SpanObserver):
    """The seconds that this rank computes in the layers `names`. The first step, which allocates workspaces, does not count."""

    def __init__(self, net, names):
        super().__init__(net)
        self.clock, self.names = net.grid.tally.clock.now, names
        self.begin_anew()

    def begin_anew(self):
        """Forget all steps, and leave out the next one."""
        self.first, self._steps = self.net.step, defaultdict(lambda: [0.0, 0])  # {step: [seconds, samples]}

    @property
    def seconds(self):
        """[of each step that counts], on the largest minibatch so far."""
        largest = max((samples for _, samples in self._steps.values()), default=0)
        return [seconds for seconds, samples in self._steps.values() if samples == largest]

    def end(self, thing, phase, context):
        self._counts = isinstance(thing, Layer) and thing.kind != "" and thing.name in self.names and self.net.step > self.first
        if self._counts:
            self._steps[self.net.step][1] = context.minibatch_size or 0
        super().end(thing, phase, context)

    def record(self, span):
        _, start, stop, inner, step = span
        if self._counts:
            self._steps[step][0] += stop - start - inner


class Rebalancer:
    """Proposes other shares for a ParallelSequential, placed from the Sequential `serial`, every `interval` of `steps` steps,
    and moves it where they are adopted. balance: a Balance for its grid, which says how fast each rank was when it was made.
    ValueError if the ranks share nothing. It observes the network; on a GPU every pass then waits for its computations."""

    def __init__(self, net, serial, optimizer, balance, interval, steps):
        if not balance.chosen:
            raise ValueError(f"on the grid {net.grid} with the plan {','.join(net.plan)} the ranks share nothing that can move")
        self.net, self.serial, self.optimizer = net, serial, optimizer
        self.balance, self.interval, self.steps = balance, interval, steps
        self.times = LayerTimes(net, balance.layers)
        net.observe(self.times)
        self.slowness = np.ones(net.grid.size)
        # a dict for each proposal: "step" (after so many), "slowness" (measured over predicted seconds of each rank), "shares",
        # "proposed" ({what is shared: shares}), "seconds", "proposed_seconds" (predicted, of the slowest rank in a step),
        # "saved", "move" (predicted seconds, of the remaining steps and of the move), "adopted", "reason", "left_out" (lines
        # about ranks that get nothing), "took" (measured seconds of the move), "bytes" (of all ranks for it; None without one)
        self.log, self._took = [], 0.0

    def after_step(self):
        """Call this after each step: it proposes shares if it is time to. Returns a new log entry or None. Collective."""
        if self.net.step % self.interval or self.net.step >= self.steps:
            return None
        seconds = self.times.seconds
        if not self.net.grid.comm.allreduce(bool(seconds), MPI.LOR):  # such as after a single step
            return None
        held = self.shares_held()
        predicted = self.balance.computing(held)[self.net.grid.rank] if seconds else 0.0
        measured = self.net.grid.comm.gather(median(seconds) / predicted if predicted > 0 else 0.0)
        entry, placement = broadcast(self.net.grid.comm, self._proposal(held, np.array(measured)) if measured else None)
        self.slowness = np.array(entry["slowness"])
        if entry["adopted"]:
            entry["took"], entry["bytes"] = self._move(*placement)
        self.times.begin_anew()
        self.log.append(entry)
        return entry

    def shares_held(self):
        """{name of a SharedWork: the shares of the ranks of its axis now}."""
        held = {one.name: self.net.splits[one.axis].of_length(one.total) for one in self.balance.chosen if one.axis != MODEL}
        names = {one.name for one in self.balance.chosen if one.axis == MODEL}
        for leaf in reversed(list(self.net.leaves())):  # a bias may follow as a layer
            if leaf.name in names and leaf.parameters:
                is_handed = isinstance(leaf, HandedConv2d)  # by the master
                shared = leaf.kernels.target if is_handed else leaf.parameters[0].layout.placements[MODEL]
                held[leaf.name] = shared.partition
        return {one.name: held[one.name].sizes for one in self.balance.chosen}

    def _proposal(self, held, measured):
        """(entry of the log, (shares, owners)), on the first rank. held: of `shares_held`. measured: for each rank its measured
        over its predicted seconds; a rank with 0, which computes nothing, is taken to have changed as the others have."""
        seen = measured > 0
        change = float(np.median(measured[seen] / self.slowness[seen])) if seen.any() else 1.0
        slowness = np.where(seen, measured, self.slowness * change)
        proposed = self.balance.slowed(slowness)
        old, new = proposed.seconds(held), proposed.seconds(proposed.shares)
        shares, owners = proposed.placement()
        saved, move = (old - new) * (self.steps - self.net.step), max(self._move_seconds(shares, owners) + new, self._took)
        if proposed.shares == held:
            reason = "the shares are the fastest ones already"
        elif old <= GAIN * new:
            reason = f"a step would be {old / max(new, 1e-12):.3g} times as fast; up to {GAIN} shares are not changed"
        elif saved <= move:
            reason = "moving would take longer than it saves"
        else:
            reason = ""
        entry = {
            "step": self.net.step, "slowness": slowness.tolist(), "shares": held, "proposed": proposed.shares, "seconds": old,
            "proposed_seconds": new, "saved": saved, "move": move, "adopted": not reason,
            "reason": reason or f"a step becomes {old / new:.3g} times as fast",
            "left_out": [line for one in proposed.chosen for line in one.left_out(proposed.left[one.axis])],
            "took": None, "bytes": None,
        }  # fmt: skip
        return entry, (shares, owners)

    def _move_seconds(self, shares, owners):
        """Predicted seconds of the exchanges that bring the parameters and the optimizer's state to another placing."""
        machine, arrays, total = self.balance.machine, 1 + len(self.optimizer.state_names), 0.0
        grid = GridDescription(self.net.grid.sizes, self.net.grid.coordinates, machine.node["ranks"])
        placed = place(self.serial, self.net.grid, self.net.plan, shares, owners)
        parameters = [p for leaf in leaves(placed.layers) for p in leaf.parameters]
        for (_, before), now in zip(self.net.parameters, parameters, strict=True):
            for axis in grid.coordinates:
                source, target = (p.layout.placements.get(axis, Replicate()) for p in (before, now))
                if source != target:
                    most = most_exchanged(source.partition, target.partition)
                    nbytes = most * (np.prod(before.shape) // source.partition.length) * self.net.dtype.itemsize
                    total += arrays * machine.collective_seconds("exchange", grid.group(axis), grid.size, nbytes)
        return total

    def _move(self, shares, owners):
        """Move the network: (seconds of the slowest rank, bytes of all ranks), which the tally forgets. Collective."""
        tally, comm = self.net.grid.tally, self.net.grid.comm
        start = tally.clock.now()
        relocate(self.net, self.optimizer, place(self.serial, self.net.grid, self.net.plan, shares, owners))
        self._took = comm.allreduce(tally.clock.now() - start, MPI.MAX)
        moved = [tally.records.pop(key) for key in list(tally.records) if key[0] == "relocation"]
        return self._took, comm.allreduce(sum(record.bytes for record in moved))
