"""Faults fit the code, and trials of them say the truth: shown on a made-up repository of one module."""

import pytest

from tests.mutants import trials
from tests.mutants.faults import ROOT, Fault, listed
from tests.mutants.ladder import FEW_RANDOM, ORDERS, Ladder
from tests.mutants.state import State
from tests.mutants.trials import Copy, Unusable

FILE, TEST = "pkg/sums.py", "tests/pkg/test_sums.py"
CODE = '''"""Sums. They have 1 line more than they need."""

LEAST: int = 1


def total(numbers):
    """Add numbers up."""
    found = 0
    for number in numbers:
        found += number
    if len(numbers) < LEAST:
        raise ValueError(f"{len(numbers) + 1} numbers are too few" + "!")
    return found
'''
TESTS = "from pkg.sums import total\n\n\ndef test_total():\n    assert total([1, 2]) == 3\n"
FILES = {FILE: CODE, TEST: TESTS, "pkg/__init__.py": "", "pyproject.toml": '[tool.pytest]\nmarkers=["long"]'}


def fault(old, new):
    return Fault("what it does", FILE, old, new)


FOUND = fault("found += number", "found -= number")
HANGS = fault("found += number", "while True:\n            pass")
NOT_NOTICED = fault("len(numbers) < LEAST", "len(numbers) <= LEAST")
NO_MODULE = fault("LEAST: int = 1", "LEAST = 1 / 0")


@pytest.fixture
def copy(tmp_path):
    """A Copy of a repository, whose Ladder has one rung for each fault."""
    for name, text in FILES.items():
        (tmp_path / "repository" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "repository" / name).write_text(text)
    assert Ladder(tmp_path / "repository", FILES).rungs(FOUND)[0] == [[TEST], [], []]
    return Copy(tmp_path / "repository", FILES, tmp_path)


def test_faults_are_found_survive_or_are_none(copy, monkeypatch):
    outcome = copy.outcome(FOUND, [[TEST]])
    assert (outcome.result, outcome.by) == ("found", f"{TEST}::test_total")
    assert copy.outcome(NOT_NOTICED, [[TEST]]).result == "unnoticed"
    assert copy.outcome(NO_MODULE, [[TEST]]).result == "unimportable"
    assert (copy.folder / FILE).read_text() == CODE
    with monkeypatch.context() as patch:
        patch.setattr(trials, "LIMIT", 2.0)
        copy.passed.add(TEST)
        assert copy.outcome(HANGS, [[TEST]]).by == "the time limit"
    copy.passed.clear()
    (copy.folder / TEST).write_text(TESTS.replace("3", "4"))
    with pytest.raises(Unusable, match="test_total"):
        copy.outcome(FOUND, [[TEST]])


def test_the_state_outlives_an_interruption(tmp_path):
    path = tmp_path / "state.jsonl"
    for one, result in ((FOUND, "survived"), (FOUND, "found"), (NOT_NOTICED, "survived"), (HANGS, "undecided")):
        State(path).add({"fault": one.key, "code": "1", "result": result})
    state = State(path)
    assert state.is_settled(HANGS, "1", quick=True) and not state.is_settled(HANGS, "2", quick=True)
    assert [state.is_settled(one, "1") for one in (FOUND, NOT_NOTICED, HANGS)] == [True, True, False]
    assert not state.is_settled(NOT_NOTICED, "2") and state.is_settled(FOUND, "2")


def test_all_that_is_listed_fits_the_code_and_names_tests():
    faults, texts = listed(), {}
    ladder = Ladder(ROOT, [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")])
    for one in faults:
        text = texts.setdefault(one.file, (ROOT / one.file).read_text())
        assert one.applied(text) != text and one.what
        assert all(map(ladder.under, one.tests)), one.tests
        quick, further = ladder.rungs(one)
        assert further == [] and quick[0] if one.kind == ORDERS else quick[1] == FEW_RANDOM
    assert len({one.key for one in faults}) == len(faults)
