"""The phases of a run, with the seconds and, where it can be measured, the energy that each of them takes."""

import platform
import time
from contextlib import contextmanager

import numpy as np


class Phases:
    """Measures one phase after another on all ranks.

    grid: a ProcessGrid. meter: an EnergyMeter on every rank, or None on all of them. say: called with a line of text.
    rows: for each phase, {"phase", "seconds", "joules"}: the seconds of the rank that takes the longest, and the joules of all
    machines together, or None.
    """

    def __init__(self, grid, meter, say):
        self.grid, self.meter, self.say, self.rows = grid, meter, say, []
        if meter:
            reasons = [reason for reason in grid.comm.allgather(meter.reason) if reason]
            self.reason = reasons[0] if reasons else None
            say(f"energy is not measured: {self.reason}" if reasons else "energy: that of all work on the processors")
        else:
            self.reason = "--energy was not given"

    @contextmanager
    def phase(self, name):
        """A `with` block around a phase. Collective at its end."""
        started, before = time.perf_counter(), self._joules()
        yield
        seconds = float(self.grid.max(np.array([time.perf_counter() - started]))[0])
        after = self._joules()
        joules = None if self.reason else after - before
        self.rows.append({"phase": name, "seconds": seconds, "joules": joules})
        self.say(f"{name}: {seconds:.1f} s" + (f", {joules:.0f} J, {joules / seconds:.1f} W" if joules is not None else ""))

    def keep_count(self):
        """Read the counters of the energy, which has to happen now and then in a long phase: see `EnergyMeter`."""
        if self.meter:
            self.meter.read()

    def _joules(self):
        """The joules of all machines so far, on every rank; None where they are not measured. Collective."""
        if self.reason:
            return None
        by_machine = dict(self.grid.comm.allgather((platform.node(), self.meter.read())))  # ranks of a machine read the same
        return sum(by_machine.values())

    @property
    def energy(self):
        """What a report says of the energy."""
        total = None if self.reason else sum(row["joules"] for row in self.rows)
        return {"joules": total, "not_measured_because": self.reason}
