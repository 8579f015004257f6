"""The study of predictions marks and repeats what it measured while others computed, and counts it nowhere."""

from types import SimpleNamespace

import pytest

from gridgrad.experiments.studies import predictions
from gridgrad.experiments.studies.predictions import judged, lines, measure, summary
from tests.experiments.common.made_up_load import BUSY, QUIET


def test_passes_beside_others_count_only_where_there_are_no_others():
    quiet, slower = (None, (2.0, 2.2, 2.1), (2.0, 2.4, 2.2)), (None, (3.0,) * 3, (3.0,) * 3)
    busy = "of 2 cores 1 were taken by others: not comparable", (1.0,) * 3, (1.0,) * 3
    found = judged([busy, slower, quiet])
    assert (found["measured"], found["as_it_was"], found["busy"]) == (2.1, 2.2, None)
    assert found["spread"] == pytest.approx(3.0 / 2.05)
    assert judged([busy, busy]) == {"measured": 1.0, "as_it_was": 1.0, "busy": busy[0], "spread": 1.0}


def row(net, measured, predicted, planned=False, busy=None, grid="batch=2,model=1"):
    return {
        "machine": "m", "net": net, "batch_size": 8, "ranks": 2, "grid": grid, "plan": ["out"], "planned": planned,
        "predicted": predicted, "measured": measured, "as_it_was": measured, "error": predicted / measured - 1, "busy": busy,
        "spread": 1.0,
    }  # fmt: skip


ROWS = [row("a", 1.0, 1.1, planned=True), row("a", 2.0, 1.6), row("a", 0.5, 1.0, busy="busy"), row("b", 9.0, 1.0, True, "busy")]


def test_marked_points_are_left_out_of_the_summary():
    told = summary(ROWS)
    assert (told["points"], told["marked"], told["choices"], told["good_choices"]) == (2, 2, 1, 1)
    assert told["median_error"] == pytest.approx(0.15) and told["worst_choice"] == 1.0
    text = list(lines(ROWS))
    assert text[1] == "2 points of 4 left out: others computed on the machine meanwhile"
    assert text[2].startswith("2 points: median error 15.0 %")
    nothing = summary(ROWS[2:])
    assert nothing["points"] == nothing["choices"] == 0 and nothing["median_error"] is nothing["worst_choice"] is None
    assert len(list(lines(ROWS[2:]))) == 2 and "busy" not in next(lines(ROWS[:2]))


class Limit:
    """In a TimeLimit's place: it is over after so many questions."""

    def __init__(self, questions):
        self.questions = questions

    def is_over(self):
        self.questions -= 1
        return self.questions < 0


class Grid:
    def __str__(self):
        return "batch=1"

    def free(self):
        pass


@pytest.mark.parametrize(
    ("loads", "questions", "passes", "busy"),
    [
        ([QUIET] * 4, 99, 4, [None, None]),
        ([None] * 4, 99, 4, [None, None]),
        ([QUIET, BUSY, QUIET, BUSY, QUIET, QUIET], 99, 6, [None, None]),
        ([BUSY] * 99, 99, 4 * (1 + predictions.AGAIN), [BUSY.verdict] * 2),
        ([BUSY, QUIET] + [BUSY] * 99, 0, 2, [BUSY.verdict, None]),
    ],
)
def test_what_others_have_disturbed_is_repeated_a_few_times(monkeypatch, loads, questions, passes, busy):
    measured, loads = [], iter(loads)

    def sides(problem, described, timer):
        measured.append(problem)
        rounds = []
        return [SimpleNamespace(
            problem=problem, grid=Grid(), net=SimpleNamespace(plan=["out"]), rounds=rounds,
            turn=lambda: rounds.append((1.0, 2.0)),
        )]  # fmt: skip

    monkeypatch.setattr(predictions, "sides_of", sides)
    monkeypatch.setattr(predictions, "load_of_job", lambda comm, seen: next(loads))
    monkeypatch.setattr(predictions, "priced", lambda side, described, planned: {"net": side.problem, "predicted": 1.5})
    rows = measure(["a", "b"], None, SimpleNamespace(comm=None), 2, 3, list, Limit(questions))
    assert len(measured) == passes and [row["busy"] for row in rows] == busy
    assert all((row["measured"], row["as_it_was"], row["error"]) == (1.0, 2.0, 0.5) for row in rows)
