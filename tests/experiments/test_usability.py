"""What a parallel training costs its author: every version trains as the serial program does; the measure is the thesis's."""

import io
import json
from contextlib import redirect_stdout

import pytest
from mpi4py import MPI

from gridgrad.experiments.studies.usability.__main__ import (
    BY_HAND,
    GRIDS,
    halstead,
    measure,
    one_call,
    source,
    statements,
)
from gridgrad.parallel.training.network import ParallelSequential
from tests.experiments.called import run_main
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


LUA = {"local", "for", "do", "if", "then", "elseif", "else", "end", "function", "return", "self"}
TABLE = [  # 4.10 of Grabaskas 2018: added lines with the operators and operands that the thesis counts
    ("automation = require 'automatedparallelization'", 3, 2),
    ("trainData.data, trainData.labels, trsize = automation.datamodule.parallelize( trainData.data, trainData.labels, model, "
     "trsize, nil, nil, opt.batchSize)", 18, 17),
]  # fmt: skip


def test_lines_are_counted_as_the_thesis_counts_them():
    for line, operators, operands in TABLE:
        found = measure(statements(line + "\n"), LUA)
        assert (operators, operands) == (found.N1, found.N2), line
    total = measure(statements("".join(f"{line}\n" for line, *_ in TABLE)), LUA)
    assert total == halstead(7, 11, 21, 19)
    assert total.effort == pytest.approx(1008.31, rel=2e-4)  # Table 4.13, rounded on the way to four digits


def test_python_is_counted_alike():
    """A docstring, a comment and indentation are nothing; a call of another name, a slice and a string are counted."""
    text = '"""Words."""\nfor i in range(3):  # why\n    comm.send(x[1:], "a=b")\n'
    (first, header), (second, call) = statements(text)
    assert (first, second) == (2, 3)
    assert measure([(2, header)]) == halstead(5, 2, 5, 2)  # for in range () : / i 3
    assert measure([(3, call)]) == halstead(8, 5, 8, 5)  # . send () [] : , "" = / comm x 1 a b


def test_the_one_call_is_two_lines_that_take_at_least_95_percent_less_effort_than_by_hand(tmp_path, monkeypatch, capsys):
    run_main(monkeypatch, "usability", "--out", tmp_path / "u.json")
    programs = json.loads((tmp_path / "u.json").read_text())["programs"]
    assert programs["by_hand_data"]["lines"] == 11
    saved = {name: row["less_effort_than"] for name, row in programs.items() if "less_effort_than" in row}
    assert set(saved) == {"automatic", *GRIDS} and {programs[name]["lines"] for name in saved} == {2}
    assert all(percent >= 95 for others in saved.values() for percent in others.values()), saved
    assert f"{programs['ddp']['effort']:,.0f}" in capsys.readouterr().out and (tmp_path / "u.md").exists()
