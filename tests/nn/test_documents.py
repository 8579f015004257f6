"""JSON and TOML that is none is refused in one line; what has a form passes, and of what has not the entry is named."""

import math
import os

import pytest

from gridgrad.nn.files import limits
from gridgrad.nn.files.documents import (
    AT_LEAST_0,
    COUNT,
    DOTS,
    MOST_TOML,
    NUMBER,
    SECONDS,
    TEXT,
    TRUTH,
    WHOLE,
    Each,
    Optional,
    check,
    content_of,
    content_of_file,
    content_of_toml_file,
    contents_of_lines,
)

FORM = {"name": TEXT, "rows": [{"count": COUNT, "seconds": SECONDS}], "sent": Each(AT_LEAST_0), "note": Optional(TEXT)}
GOOD = {"name": "a b", "rows": [{"count": 0, "seconds": 1e-3, "more": None}], "sent": {"x": 0, "y": 2.5}, "note": None}


def test_what_is_json_is_read(tmp_path):
    assert content_of('{"a": [1, null]}') == content_of(b'{"a": [1, null]}') == {"a": [1, None]}
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n\n[2]\n \r\n\n')
    assert list(contents_of_lines(path)) == [(1, {"a": 1}), (3, [2])]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is not JSON: Expecting value"),
        (b'{"a": 1', "it is not JSON: Expecting ','"),
        (b'{"a": "\xff"}', "it is not JSON: bytes that are no text in UTF-8"),
        (b"[" * 100_000, "lists within too many others"),
        (b"1" * 5000, "it is not JSON"),
    ],
)
def test_what_is_no_json_is_refused(tmp_path, content, words):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="a.json: ") as caught:
        content_of_file(path)
    assert words in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 500
    path.write_bytes(b"7\n" + (content or b"-") + b"\n")  # a blank line holds nothing
    with pytest.raises(ValueError, match="a.json: line 2: "):
        list(contents_of_lines(path))


def test_what_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_text("[" + ",".join(["{}"] * 1000) + "]")
    assert len(content_of_file(path)) == 1000
    monkeypatch.setattr(limits, "BUDGET", 10_000)
    for read in (content_of_file, lambda path: list(contents_of_lines(path))):
        with pytest.raises(ValueError, match="a.json: (line 1: )?it would take about 1070.. bytes of memory"):
            read(path)
    monkeypatch.setattr(limits, "BUDGET", 1000)
    for read in (content_of_file, lambda path: list(contents_of_lines(path))):
        with pytest.raises(ValueError, match="a.json: .* has more than (1000|500) bytes"):
            read(path)
    path.unlink()
    os.mkfifo(path)
    for read in (content_of_file, lambda path: list(contents_of_lines(path))):
        with pytest.raises(OSError, match="no ordinary file"):
            read(path)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_what_is_toml_is_read(tmp_path, mark):
    path = tmp_path / "a.toml"
    path.write_bytes(mark + b"a.b = 1\r\nc = ['x.y']\r\n")
    assert content_of_toml_file(path) == {"a": {"b": 1}, "c": ["x.y"]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a", "Expected '='"),
        (b"a = '\xff'", "utf-8"),
        (b"a = " + b"[" * 100_000, "a.toml is no TOML file"),
        (b"a = 1\n" + b"a." * (DOTS + 1) + b"a = 1", f"line 2 has more than {DOTS} dots"),
        (b"#" * (MOST_TOML + 1), "more than 1 MiB"),
    ],
)
def test_what_is_no_toml_is_refused(tmp_path, content, words):
    path = tmp_path / "a.toml"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=words) as error:
        content_of_toml_file(path)
    assert "\n" not in str(error.value)


def test_what_has_the_form_passes():
    check(GOOD, FORM)
    check({name: value for name, value in GOOD.items() if name != "note"}, FORM)
    check(GOOD | {"rows": []}, FORM)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": 7}, "name must be a text of at most 400 printable characters without $, not 7"),
        ({"name": "a\nb"}, r"not 'a\nb'"),
        ({"name": "$x$"}, "name must be a text"),
        ({"name": "x" * 401}, f"not '{'x' * 39}.."),
        ({"rows": {}}, "rows must be a list"),
        ({"rows": [7]}, "rows[0] must be an object"),
        ({"rows": [{"count": True, "seconds": 1}]}, "rows[0].count must be a whole number of at least 0, not True"),
        ({"rows": [{"count": 10**400, "seconds": 1}]}, "rows[0].count must be a whole number of at least 0, not another one"),
        ({"rows": [{"count": 1, "seconds": 0}]}, "rows[0].seconds must be a number of seconds above 1e-12, not 0"),
        ({"rows": [{"count": 1}]}, "rows[0] has no entry seconds"),
        ({"sent": {"x": -1}}, "sent.x must be a finite number of at least 0, not -1"),
        ({"sent": 7}, "sent must be an object"),
        ({"note": []}, "note must be a text of at most 400 printable characters without $, not a list"),
    ],
)
def test_the_entry_that_is_wrong_is_named(changes, words):
    with pytest.raises(ValueError) as caught:
        check(GOOD | changes, FORM)
    assert words in str(caught.value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, True, "1", None, []])
def test_what_is_no_number(value):
    for kind in (NUMBER, AT_LEAST_0, SECONDS, WHOLE, COUNT):
        assert not kind.accepts(value)
    assert TRUTH.accepts(value) == (value is True)
