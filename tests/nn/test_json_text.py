"""JSON that is none is refused in one line that says what it is."""

import os

import pytest

from gridgrad.nn.files import limits
from gridgrad.nn.files.json_text import content_of, content_of_file, contents_of_lines


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
def test_what_is_none_is_refused(tmp_path, content, words):
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
