"""Texts that are no JSON or TOML, or have another form, are refused in one line; none fills the memory or never ends."""

import os

import pytest

from gridgrad.nn.files import limits
from gridgrad.nn.files.documents import (
    AT_LEAST_0,
    COUNT,
    DOTS,
    MOST_TOML,
    SECONDS,
    TEXT,
    Each,
    Optional,
    check,
    content_of,
    content_of_file,
    content_of_toml_file,
    contents_of_lines,
)

READERS = content_of_file, lambda path: list(contents_of_lines(path)), limits.read_limited


def test_json_and_toml_are_read(tmp_path):
    assert content_of('{"a": [1, null]}') == content_of(b'{"a": [1, null]}') == {"a": [1, None]}
    path = tmp_path / "a"
    path.write_text('{"a": 1}\n\n[2]\n \r\n\n')
    assert list(contents_of_lines(path)) == [(1, {"a": 1}), (3, [2])]
    for mark in b"", b"\xef\xbb\xbf":
        path.write_bytes(mark + b"a.b = 1\r\nc = ['x.y']\r\n")
        assert content_of_toml_file(path) == {"a": {"b": 1}, "c": ["x.y"]}


NO_JSON = b"", b'{"a": "\xff"}', b"[" * 100_000, b"1" * 5000
NO_TOML = b"a", b"a = '\xff'", b"a = " + b"[" * 100_000, b"a = 1\n" + b"a." * (DOTS + 1) + b"a = 1", b"#" * (MOST_TOML + 1)


@pytest.mark.parametrize(("read", "content"), [
    *((content_of_file, content) for content in NO_JSON), *((content_of_toml_file, content) for content in NO_TOML),
])  # fmt: skip
def test_what_is_none_is_refused_in_one_line_with_the_name_of_the_file(tmp_path, read, content):
    path = tmp_path / "a.file"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="^[^\n]*a.file[^\n]*$") as refused:
        read(path)
    assert len(str(refused.value)) < 500
    path.write_bytes(b"7\n" + (content or b"-") + b"\n")
    with pytest.raises(ValueError, match="a.file: line 2: "):
        list(contents_of_lines(path))


def test_what_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_text("[" + ",".join(["{}"] * 1000) + "]")
    assert len(content_of_file(path)) == 1000
    monkeypatch.setattr(limits, "BUDGET", 10_000)
    for read in READERS[:2]:
        with pytest.raises(ValueError, match="a: (line 1: )?it would take about 1070.. bytes of memory"):
            read(path)
    monkeypatch.setattr(limits, "BUDGET", 1000)
    for read in READERS:
        with pytest.raises(ValueError, match="a: .* has more than (1000|500) bytes"):
            read(path)
    os.truncate(path, 1 << 40)  # takes no room on the disk
    with pytest.raises(ValueError, match="a: it has more than 1 MiB"):
        limits.read_limited(path, 1 << 20)


# ----- forms

FORM = {"name": TEXT, "rows": [{"count": COUNT, "seconds": SECONDS}], "sent": Each(AT_LEAST_0), "note": Optional(TEXT)}
GOOD = {"name": "a b", "rows": [{"count": 0, "seconds": 1e-3, "more": None}], "sent": {"x": 0, "y": 2.5}, "note": None}


def test_what_has_a_form_passes_and_else_the_entry_is_named():
    check(GOOD, FORM)
    for changes, words in (
        ({"rows": [{"count": True, "seconds": 1}]}, r"rows\[0\].count must be a whole number"),
        ({"sent": {"x": -1}}, "sent.x must be a finite number of at least 0, not -1"),
    ):
        with pytest.raises(ValueError, match=f"^[^\n]*{words}[^\n]*$"):
            check(GOOD | changes, FORM)
