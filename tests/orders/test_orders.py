"""In no order of messages is a promise of a protocol, a pipeline or a checkpoint broken; and the exploration says if one is."""

import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from gridgrad.parallel.protocols import protocol_names
from gridgrad.parallel.protocols.averaging import SGP
from gridgrad.parallel.protocols.server import ParameterServer, ServerShard
from tests.orders.cases import Row, case_of, numbers, rows
from tests.orders.explore import explore
from tests.orders.machine import Violation
from tests.orders.replay import replay

ROOT = Path(__file__).parents[2]
ROWS = [pytest.param(row, marks=pytest.mark.long if row.is_long else (), id=row.line) for row in rows() if row.is_tested]


@pytest.mark.parametrize("row", ROWS)
def test_no_order_breaks_a_promise(row):
    found, _, wrong = row.explored()
    assert not wrong, "\n".join(wrong)
    assert found.ends and found.orders > 0


def test_every_protocol_is_explored():
    """With each of its words and options, except those that say which worker serves which parameters."""
    explored = [f"{row.args.protocol}:" for row in rows() if not row.is_long]
    for name, form in protocol_names.FORMS.items():
        words = [f":{word}:" for word in form.words.keys() - protocol_names.OWNERS.keys()]
        for part in ("", *words, *(f":{option}=" for option in form.options)):
            assert any(text.startswith(f"{name}:") and part in text for text in explored), (name, part)


def test_each_order_that_is_named_is_that_order():
    """A break of the bound that one order alone shows is found, and shown again by the choices that are printed."""
    row = Row("server:ssp:0:single --workers 2")
    with mock.patch.object(ServerShard, "may_answer", lambda self, worker: self.slowest() >= self.clocks[worker] - 1):
        _, _, wrong = row.explored()
        (words, command), *_ = (lines.split("\n") for lines in wrong)
        choices, said = numbers(command.split()[-1]), []
        again = replay(case_of(row.args), choices, said.append)
    assert "without the gradient" in words
    assert isinstance(again, Violation) and str(again) == words
    assert any("it sends 'parameters'" in line for line in said) and any("rank 1 handles" in line for line in said)
    assert not isinstance(replay(case_of(row.args), choices, said.append), Violation)


def test_who_waits_for_whom_is_said():
    with mock.patch.object(SGP, "_keep", lambda *arguments: None):
        (words, *_), *_ = (list(explore(case_of(Row("sgp --workers 2").args)).violations),)
    assert words.startswith("deadlock: rank 0 waits for a message, until line ") and "; rank 1 waits for a message" in words


def test_exceptions_of_a_worker_are_violations():
    with mock.patch.object(ParameterServer, "_on_done", lambda *arguments: 1 // 0):
        (words, *_) = explore(case_of(Row("server:asp:single --workers 2 --updates 1").args)).violations
    assert words == "rank 0 fails: ZeroDivisionError: integer division or modulo by zero"


def run(*words):
    """A run of the program: (its exit status, what it prints)."""
    finished = subprocess.run(
        [sys.executable, "-m", "tests.orders", *words], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    return finished.returncode, finished.stdout + finished.stderr


def test_the_program_explores_one_case_and_shows_one_order():
    status, text = run("sgp", "--workers", "2", "--updates", "1", "--all")
    assert status == 0, text
    header, row, last = text.splitlines()
    assert row.split()[-6:-1] == ["1", "0", "720", "1", "0"] and last.startswith("1 cases, 0 with violations"), text
    status, text = run("sgp", "--workers", "2", "--updates", "1", "--replay", "1,1")
    assert status == 0 and "1. rank 1 goes on (choice 1 of 2)" in text and "it is 'half' [0, 0, 0, 0, 0]" in text, text
    status, text = run("sgp", "--replay", "9")
    assert (status, text.splitlines()[-1]) == (2, "error: there is no choice 9 in step 1: there are 0 to 1")
    status, text = run("gossip")
    assert status == 2 and "there is no protocol 'gossip'" in text.splitlines()[-1], text
