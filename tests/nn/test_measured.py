"""Trials take turns, and an answer that was measured is stored."""

from gridgrad.nn.measured import answer_file, in_turns, store, stored, timed
from tests.clock import Clock


def test_trials_take_turns_until_it_is_over():
    order, meetings = [], []
    trials = [lambda name=name: order.append(name) or float(len(order)) for name in "ab"]
    assert in_turns(trials, 2, meet=lambda: meetings.append(1)).tolist() == [[1, 2], [3, 4]] and order == [*"abab"]
    assert len(meetings) == 4
    assert len(in_turns(trials, is_over=lambda: True)) == 1 and len(in_turns(trials, 9, lambda: len(order) > 10)) == 3


def test_an_action_is_timed_by_the_clock_that_is_given():
    clock = Clock()
    assert timed(lambda: clock.sleep(3), 4, clock.perf_counter)() == 3 and len(clock.naps) == 4


def test_answers_are_stored_by_what_they_depend_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GRIDGRAD_CACHE", str(tmp_path / "cache"))
    one, other = answer_file("speed", 2, "MPICH"), answer_file("speed", 3, "MPICH")
    assert one != other and stored(one, float) is None
    store(one, "1.5", "it is lost")
    assert stored(one, float) == 1.5 and stored(other, float) is None
    one.write_text("fast")
    assert stored(one, float) is None and capsys.readouterr().err == ""


def test_a_folder_that_can_not_be_written_is_warned_of_in_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("GRIDGRAD_CACHE", str(tmp_path / "file"))
    store(answer_file("speed"), "1.5", "it is lost")
    assert stored(answer_file("speed"), float) is None
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.startswith("can not write ") and said.endswith(": it is lost\n")
