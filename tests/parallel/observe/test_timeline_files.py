"""Which files a timeline is written to, and what is said where that can not be. What is in them: the tests beside this one."""

import json

import pytest

from gridgrad.parallel.observe import timeline_files
from gridgrad.parallel.observe.chrome_trace import chrome_trace
from gridgrad.parallel.observe.timeline import TimelineEvent, timeline


def found():
    events = [TimelineEvent("layer", "0 Linear forward", 1.0, 2.0, 0)]
    return timeline([{"rank": 0, "coordinates": {"batch": 0}, "host": "node", "events": events, "accuracy": 0.0}])


def test_every_name_but_those_of_archives_is_that_of_a_json_file(tmp_path):
    for name in ("trace.json", "trace", "otf2", "trace.otf2.json"):
        timeline_files.write(tmp_path / name, found())
        assert json.loads((tmp_path / name).read_text()) == chrome_trace(found())
        assert timeline_files.opened(tmp_path / name) == tmp_path / name
    assert timeline_files.opened("runs/trace.otf2/") == timeline_files.Path("runs/trace.otf2/traces.otf2")


def test_without_the_package_it_is_said_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(timeline_files, "find_spec", lambda name: None)
    for attempt in (timeline_files.check_archive, lambda path: timeline_files.write(path, found())):
        with pytest.raises(
            ValueError, match="^trace.otf2 is to be an OTF2 archive, but the package .* pip install otf2, or give"
        ):
            attempt("trace.otf2")


def test_what_is_no_archive_is_not_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(timeline_files, "find_spec", lambda name: name)
    (tmp_path / "file.otf2").write_text("kept")
    (tmp_path / "folder.otf2").mkdir()
    (tmp_path / "folder.otf2" / "thesis.tex").write_text("kept")
    for name in ("file.otf2", "folder.otf2"):
        with pytest.raises(
            OSError, match=f"^can not write to {tmp_path}/{name}: it is no folder with traces.otf2; give another"
        ):
            timeline_files.check_archive(tmp_path / name)
