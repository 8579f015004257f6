"""JSON that is none is refused in one line that says what it is."""

import pytest

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
