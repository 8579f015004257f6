"""TOML that is none is refused in one line, and in a moment."""

import pytest

from gridgrad.nn.files.toml_text import DOTS, MOST, content_of_file


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_what_is_toml_is_read(tmp_path, mark):
    path = tmp_path / "a.toml"
    path.write_bytes(mark + b"a.b = 1\r\nc = ['x.y']\r\n")
    assert content_of_file(path) == {"a": {"b": 1}, "c": ["x.y"]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a", "Expected '='"),
        (b"a = '\xff'", "utf-8"),
        (b"a = " + b"[" * 100_000, "a.toml is no TOML file"),
        (b"a = 1\n" + b"a." * (DOTS + 1) + b"a = 1", f"line 2 has more than {DOTS} dots"),
        (b"#" * (MOST + 1), "more than 1 MiB"),
    ],
)
def test_what_is_none_is_refused(tmp_path, content, words):
    path = tmp_path / "a.toml"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=words) as error:
        content_of_file(path)
    assert "\n" not in str(error.value)
