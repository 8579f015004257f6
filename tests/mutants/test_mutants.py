"""Faults fit the code, and trials of them say the truth: shown on a made-up repository of one module."""

import pytest

from tests.mutants import mechanical, trials
from tests.mutants.faults import ROOT, Fault, listed
from tests.mutants.ladder import LADDER, ORDERS, Ladder
from tests.mutants.report import State, write
from tests.mutants.trials import Copy, Trials, Unusable

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


class Sum:
    def __repr__(self):
        return "a" + "b"
'''
TESTS = "from pkg.sums import total\n\n\ndef test_total():\n    assert total([1, 2]) == 3\n"


def fault(old, new):
    return Fault("what it does", FILE, old, new)


FOUND = fault("found += number", "found -= number")
HANGS = fault("found += number", "while True:\n            pass")
CHANGES_NOTHING = fault("    found = 0\n", "    found = 0 + 0\n")
NOT_NOTICED = fault("len(numbers) < LEAST", "len(numbers) <= LEAST")
NO_MODULE = fault("LEAST: int = 1", "LEAST = 1 / 0")


@pytest.fixture
def made_up(tmp_path):
    """(Trials in a copy of a repository, its Ladder, a list of the test files that passed without a fault)."""
    root, passed, seconds = tmp_path / "repository", [], {}
    for name, text in {
        FILE: CODE,
        TEST: TESTS,
        "pkg/__init__.py": "",
        "pyproject.toml": '[tool.pytest]\nmarkers=["long"]',
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)

    def note(path, took):
        passed.append(path)
        seconds[path] = took

    copy = Copy(root, [FILE, TEST, "pkg/__init__.py", "pyproject.toml"], tmp_path)
    return Trials(copy, seconds, note), Ladder(root, [FILE, TEST], {"pkg": ((), (("tests/pkg",),))}), passed


def test_faults_are_found_survive_or_are_none(made_up):
    made, ladder, passed = made_up
    rungs, further = ladder.rungs(FOUND)
    assert (rungs, further) == ([[TEST]], [[]])
    outcome = made.of(FOUND, rungs)
    assert (outcome.result, outcome.by) == ("found", f"{TEST}::test_total")
    assert {made.of(one, rungs).result for one in (CHANGES_NOTHING, NOT_NOTICED)} == {"unnoticed"}
    assert made.of(NO_MODULE, rungs).result == "unimportable"
    assert (made.copy.folder / FILE).read_text() == CODE
    assert set(passed) == {TEST}


def test_tests_that_hang_are_ended_and_count_as_found(made_up, monkeypatch):
    monkeypatch.setattr(trials, "TIMES", 1)
    monkeypatch.setattr(trials, "MORE", 1.0)
    outcome = made_up[0].of(HANGS, [[TEST]])
    assert (outcome.result, outcome.by) == ("found", "the time limit")


def test_tests_that_fail_without_a_fault_say_nothing(made_up):
    made = made_up[0]
    (made.copy.folder / TEST).write_text(TESTS.replace("3", "4"))
    with pytest.raises(Unusable, match="test_total"):
        made.of(FOUND, [[TEST]])


def test_the_state_outlives_an_interruption_and_is_reported(tmp_path):
    path, texts = tmp_path / "state.jsonl", {FILE: CODE}
    for one, result in ((FOUND, "survived"), (FOUND, "found"), (NOT_NOTICED, "survived"), (NO_MODULE, "unimportable")):
        State(path).add({"fault": one.key, "code": "1", "result": result})
    State(path).add({"fault": HANGS.key, "code": "1", "result": "undecided"})
    state = State(path)
    assert state.is_settled(HANGS, "1", quick=True) and not state.is_settled(HANGS, "2", quick=True)
    assert [state.is_settled(one, "1") for one in (FOUND, NOT_NOTICED, HANGS)] == [True, True, False]
    assert not state.is_settled(NOT_NOTICED, "2") and state.is_settled(FOUND, "2")
    write(tmp_path / "report.md", [FOUND, NOT_NOTICED, NO_MODULE, CHANGES_NOTHING], state, {CHANGES_NOTHING.key: "why"}, texts)
    report = (tmp_path / "report.md").read_text()
    assert "| `pkg` | 3 | 1 | 1 | 0 | 1 | 50.0 % | 0.0 % |" in report
    assert f"`{FILE}:11`" in report and "-    if len(numbers) < LEAST:\n+    if len(numbers) <= LEAST:" in report


def test_all_faults_that_are_listed_fit_the_code():
    faults, texts = listed(), {}
    for one in faults:
        text = texts.setdefault(one.file, (ROOT / one.file).read_text())
        assert one.applied(text) != text and one.what and Ladder(ROOT, []).row(one.file.rpartition("/")[0]) in LADDER
    assert len({one.key for one in faults}) == len(faults)
    with pytest.raises(ValueError, match="occurs 2 times"):
        fault("number", "numbers").applied("number number")
    with pytest.raises(ValueError, match="no Python"):
        fault("0", "0 0").applied("found = 0")


def test_what_is_left_out_is_in_the_code():
    for folder in mechanical.FOLDERS:
        for path in (ROOT / folder).glob("*.py"):
            list(mechanical.unnoticed_parts(path.relative_to(ROOT).as_posix(), path.read_text()))
    for one in mechanical.unnoticed("one"):
        assert one["why"] and Fault("", one["file"], one["old"], one["new"]).applied((ROOT / one["file"]).read_text())


def test_the_ladders_name_tests():
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")]
    ladder = Ladder(ROOT, files)
    for folder in LADDER:
        quick, further = ladder.rungs(Fault("", f"{folder}/__init__.py", "", "", tests=("tests/nn/test_random.py",)))
        found = sum([*quick, *further], [])
        assert quick[0] == ["tests/nn/test_random.py"] and len(found) == len(set(found))
    assert ladder.rungs(Fault("", "nn/random.py", "", ""))[0][0] == ["tests/nn/test_random.py"]
    orders = [fault for fault in listed() if fault.kind == ORDERS]
    assert len(orders) >= 30
    for fault in orders:
        assert ladder.rungs(fault) == ([["tests/orders/test_explore.py", "tests/orders/test_orders.py"]], [])


@pytest.fixture
def cosmic_ray():
    return pytest.importorskip("cosmic_ray", reason="mechanical faults need cosmic-ray, which make mutants installs")


def test_mechanical_faults_are_small_changes_of_what_is_computed(tmp_path, cosmic_ray):
    (tmp_path / "pkg").mkdir()
    (tmp_path / FILE).write_text(CODE)
    found = [place.fault() for place in mechanical.places(tmp_path, "pkg")]
    diffs = {tuple(one.diff(CODE)) for one in found if one}
    assert ("-LEAST: int = 1", "+LEAST: int = 2") in diffs and ("-    found = 0", "+    found = -1") in diffs
    assert ("-    for number in numbers:", "+    for number in []:") in diffs
    assert ("-    if len(numbers) < LEAST:", "+    if len(numbers) <= LEAST:") in diffs
    changed = " ".join(line for diff in diffs for line in diff)
    assert "raise" not in changed and "return" not in changed and '"""' not in changed
    for one in found:
        assert one is None or one.applied(CODE) != CODE


def test_a_sample_stays_when_other_lines_change(tmp_path, cosmic_ray, monkeypatch):
    monkeypatch.setattr(mechanical, "FOLDERS", ("pkg",))
    monkeypatch.setattr(mechanical, "FEWEST", 4)
    (tmp_path / "pkg").mkdir()
    (tmp_path / FILE).write_text(CODE)
    before = [(one.new, one.what) for one in mechanical.sample(4, 1, tmp_path)]
    (tmp_path / FILE).write_text(CODE.replace('"""Add numbers up."""', '"""Add them up."""\n    # without their mean'))
    assert [(one.new, one.what) for one in mechanical.sample(4, 1, tmp_path)] == before
    assert [(one.new, one.what) for one in mechanical.sample(4, 2, tmp_path)] != before
