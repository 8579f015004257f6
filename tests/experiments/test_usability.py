"""What a parallel training costs its author: every version trains as the serial program does; the measure is the thesis's."""

import io
import json
from contextlib import redirect_stdout

import pytest
from mpi4py import MPI

from gridgrad.experiments.studies.usability.__main__ import BY_HAND, GRIDS, halstead, one_call, source
from gridgrad.parallel.training.network import ParallelSequential
from tests.experiments.programs import run_main
from tests.mpi import mpi


def losses(text):
    """What a program prints, run by this rank in this process: the loss of each epoch."""
    printed, names = io.StringIO(), {"__name__": "__main__"}
    with redirect_stdout(printed):
        exec(compile(text, "program", "exec"), names)
    for thing in names.values():  # what its end would free
        if isinstance(thing, ParallelSequential):
            thing.grid.free()
        elif isinstance(thing, MPI.Comm) and thing not in (MPI.COMM_WORLD, MPI.COMM_SELF):
            thing.Free()
    found = [float(line.split()[1]) for line in printed.getvalue().splitlines()]
    assert len(found) == 3
    return found


@mpi(2)
def test_every_version_trains_as_the_serial_program(comm):
    expected = losses(source("serial"))
    for text in [*map(source, BY_HAND), *map(one_call, [None, "batch=2", "model=2"])]:
        assert losses(text) == pytest.approx(expected, rel=1e-10), text


def test_the_one_call_is_two_lines_that_take_at_least_95_percent_less_effort_than_by_hand(tmp_path, monkeypatch):
    run_main(monkeypatch, "usability", "--out", tmp_path / "u.json")
    programs = json.loads((tmp_path / "u.json").read_text())["programs"]
    assert halstead(7, 11, 21, 19).effort == pytest.approx(1008.31, rel=2e-4)  # Grabaskas 2018, Table 4.13
    saved = {name: row["less_effort_than"] for name, row in programs.items() if "less_effort_than" in row}
    assert set(saved) == {"automatic", *GRIDS} and {programs[name]["lines"] for name in saved} == {2}
    assert all(percent >= 95 for others in saved.values() for percent in others.values()), saved
