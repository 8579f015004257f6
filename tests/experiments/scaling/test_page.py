"""The page of a study: what it says, that nothing of a record is taken for markup, and that it needs nothing beside it."""

import re
import tomllib

from gridgrad.experiments.plots import curves, scaling
from gridgrad.experiments.scaling import page
from gridgrad.experiments.scaling.records import lines
from gridgrad.experiments.scaling.study import Study
from tests.experiments.programs import run_main
from tests.experiments.scaling import made_up_studies as made_up

EVIL = "<script>alert('x')</script>&\"><img src=x onerror=y>"


def cells(text, section):
    """The rows of the table of a section, as dicts."""
    table = re.search(rf'<section id="{section}".*?</section>', text, re.DOTALL)[0]
    rows = re.findall(r"<tr.*?</tr>", table, re.DOTALL)
    head, *found = (re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows)
    return [dict(zip(head, row, strict=True)) for row in found]


def speedup(records):
    """A figure of the speedups."""
    return scaling.draw(curves.of_files({"this": [one for one in records if not one.get("predicted")]}), "speedup")[0]


def study(**settings):
    """The records of a study with a run that failed, a busy one, and predictions."""
    found = made_up.records(lambda point, n: (0.01 + 1e-4 * n) / point.ranks**0.5, **settings)
    found[-1]["load"] = made_up.BUSY
    of = Study(found[0]["sweep"] | {"schemes": ["batch", "model", "auto"]})
    for point in of.points:
        grid = f"batch={point.ranks}" if point.settings["grid"] == "auto" else point.settings["grid"]
        priced = made_up.record(of, point, seconds=0.009 / point.ranks) | {"grid": grid, "plan": "in,out", "fits": True}
        found.append(priced | {"predicted": True, "machine": "a machine", "environment": {"processor": "a machine"}})
    eight = Study({"ranks": [8], "schemes": ["batch"]} | settings)
    failed = {"time": None, "bytes": None, "seconds_per_step": None, "failed": "ended with status 1: no memory"}
    return [*found, made_up.record(eight, eight.points[0]) | failed]


def test_the_page_says_what_was_measured_what_failed_and_what_the_planner_would_choose():
    text = page.render(study(), "A study", {})
    measured = cells(text, "measured")
    assert [(one["series"], one["ranks"]) for one in measured] == [(s, p) for s in ("batch", "model") for p in "124"]
    assert (measured[2]["speedup"], measured[2]["efficiency %"], measured[2]["MB sent a step"]) == ("2", "50", "0.003")
    assert [(one["what"], one["ranks"], one["reason"]) for one in cells(text, "left-out")] == [
        ("busy", "4", made_up.BUSY["verdict"]), ("failed", "8", "ended with status 1: no memory")]  # fmt: skip
    planner = cells(text, "planner")
    assert [(one["ranks"], one["grid"], one["plan"]) for one in planner] == [(p, f"batch={p}", "in,out") for p in "24"]
    assert planner[1]["measured fastest"].startswith("batch=1,model=4 (model)")  # its slowest run does not count


def test_nothing_of_a_record_is_taken_for_markup_and_the_page_needs_nothing_beside_it():
    def fails(records):
        raise ValueError(EVIL)

    records = study(network=[{"net": "mlp:8,relu", "name": EVIL}])
    for record in records:
        record["environment"] = record["environment"] | {"mpi": EVIL, EVIL: EVIL}
        record["dataset"] = EVIL
        if record.get("failed"):
            record["failed"] = EVIL
    text, again = (page.render(records, EVIL, {EVIL: fails, "Speedup": speedup}) for _ in range(2))
    assert text.count("alert") > 10 and "<script>alert" not in text and "<img src=x" not in text and '&"' not in text
    addresses, ids = (set(re.findall(rf'<[^>]* {name}="([^"]+)"', text)) for name in ("(?:src|href)", "id"))
    assert addresses and addresses <= {f"#{one}" for one in ids} and text == again


def test_the_program_writes_the_page_with_the_settings_of_the_study(tmp_path, monkeypatch, capsys):
    network = [{"net": "mlp:8,relu", "name": 'a "name" \\ of ü\U0001f600'}]
    [repeat] = page.commands(made_up.records(network=network))
    assert tomllib.loads(repeat["settings"]) == {"ranks": [1, 2, 4], "schemes": ["batch", "model"], "network": network}
    path, out = tmp_path / "s.jsonl", tmp_path / "s.html"
    path.write_text(lines(study()))
    run_main(monkeypatch, "plot", "speedup", path, "--model", "--out", out)
    assert "<h1>Scaling study s</h1>" in out.read_text() and "Serial fractions of strong scaling" in capsys.readouterr().out
