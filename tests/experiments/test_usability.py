"""What a parallel training costs its author: every version trains as the serial program does; the measure is the thesis's."""

import io
import json
from contextlib import redirect_stdout

import pytest
from mpi4py import MPI

from gridgrad.experiments.studies.usability import __main__ as usability
from gridgrad.experiments.studies.usability.__main__ import (
    BY_HAND,
    GRIDS,
    added,
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


@mpi(2, 4, long=(4,))
def test_every_version_trains_as_the_serial_program(comm):
    expected = losses(source("serial"))
    grids = [None, f"batch={comm.size}", f"model={comm.size}", *(["batch=2,model=2"] if comm.size == 4 else [])]
    for text in [*map(source, BY_HAND), *map(one_call, grids)]:
        assert losses(text) == pytest.approx(expected, rel=1e-10), text


LUA = {"local", "for", "do", "if", "then", "elseif", "else", "end", "function", "return", "self"}
TABLE = [  # 4.10 of Grabaskas 2018: added lines with the operators and operands that the thesis counts
    ("automation = require 'automatedparallelization'", 3, 2),
    ("trainData.data, trainData.labels, trsize = automation.datamodule.parallelize( trainData.data, trainData.labels, model, "
     "trsize, nil, nil, opt.batchSize)", 18, 17),
]  # fmt: skip
OTHERS = [  # of Table 4.9
    (
        "for t = (mpi.rank() * stripe) + 1, dataset:size() - ((mpi.size() - (mpi.rank() + 1)) * stripe), opt.batchSize do",
        28,
        11,
    ),
    ("if i == opt.batchSize then", 4, 3),
    ("end", 1, 0),
]


def test_lines_are_counted_as_the_thesis_counts_them():
    for line, operators, operands in TABLE + OTHERS:
        found = measure(statements(line + "\n"), LUA)
        assert (operators, operands) == (found.N1, found.N2), line
    total = measure(statements("".join(f"{line}\n" for line, *_ in TABLE)), LUA)
    assert total == halstead(7, 11, 21, 19) and total.time == total.effort / 18
    efforts = total.effort, halstead(26, 14, 65, 30).effort
    assert efforts == pytest.approx((1008.31, 14085.73), rel=2e-4)  # Table 4.13, rounded on the way to four digits


def test_python_is_counted_alike():
    """A docstring, a comment and indentation are nothing; a call of another name, a slice and a string are counted."""
    text = '"""Words."""\nfor i in range(3):  # why\n    comm.send(x[1:], "a=b")\n'
    (first, header), (second, call) = statements(text)
    assert (first, second) == (2, 3)
    assert measure([(2, header)]) == halstead(5, 2, 5, 2)  # for in range () : / i 3
    assert measure([(3, call)]) == halstead(8, 5, 8, 5)  # . send () [] : , "" = / comm x 1 a b
    assert measure([]) == halstead(0, 0, 0, 0) and measure([]).effort == 0


def test_added_statements_are_those_that_are_new_or_changed():
    base = "a = 1\nif a:\n    b = 2\n"
    assert added(base, base) == []
    assert added("if x:\n    a = 1\n    if a:\n        b = 2\n", base) == [(1, ("if", "x", ":"))]
    assert added("a = 1\nif a:\n    b = 3\n", base) == [(3, ("b", "=", "3"))]


def test_the_one_call_is_two_lines_that_take_at_least_95_percent_less_effort_than_by_hand(tmp_path, monkeypatch, capsys):
    run_main(monkeypatch, "usability", "--out", tmp_path / "u.json")
    programs = json.loads((tmp_path / "u.json").read_text())["programs"]
    assert programs == json.loads(json.dumps(usability.results())) and programs["by_hand_data"]["lines"] == 11
    saved = {name: row["less_effort_than"] for name, row in programs.items() if "less_effort_than" in row}
    assert set(saved) == {"automatic", *GRIDS} and {programs[name]["lines"] for name in saved} == {2}
    assert all(percent >= 95 for others in saved.values() for percent in others.values()), saved
    assert f"{programs['ddp']['effort']:,.0f}" in capsys.readouterr().out and (tmp_path / "u.md").exists()
