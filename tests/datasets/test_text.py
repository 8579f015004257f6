import numpy as np
import pytest

from gridgrad.datasets.text import read_table


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "table.txt"
        path.write_text(text)
        return path

    return write


def test_reads_numbers_after_a_header_in_chunks(file, monkeypatch):
    monkeypatch.setattr("gridgrad.datasets.text.CHUNK", 3)
    path = file("a header\n" + "".join(f"{i} {i / 2}\t{-i}\r\n" for i in range(8)) + "\n")
    table = read_table(path, 3, skip=1)
    assert table.tolist() == [[i, i / 2, -i] for i in range(8)]
    assert len(read_table(path, 3, skip=1, most=4)) == 4


def test_an_empty_file_has_no_rows(file):
    assert read_table(file(""), 3).shape == (0, 3)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 2", "line 6 has 2 columns, expected 3"),
        ("1 2 3 4", "line 6 has 4 columns"),
        ("1 nan 3", "line 6 holds 'nan', in column 1, counted from 0, where a finite number must be"),
        ("1 inf 3", "line 6 holds 'inf'"),
        ("1 1e400 3", "line 6 holds '1e400'"),
        ("1 2023_1 3", "line 6 holds '2023_1', in column 1"),
        ("1 \uff11 3", "line 6 holds '\uff11', in column 1"),
        ("1 0x1p3 3", "line 6 holds '0x1p3', in column 1"),
        ("1 x 3", "line 6 holds 'x', in column 1"),
        ("1 \x00\xff 3", "line 6 holds '.*', in column 1"),
    ],
)
def test_a_bad_line_is_named(file, line, message, monkeypatch):
    monkeypatch.setattr("gridgrad.datasets.text.CHUNK", 4)
    with pytest.raises(ValueError, match=message):
        read_table(file("1 2 3\n" * 5 + line + "\n" + "1 2 3\n"), 3)


def test_lines_that_only_add_up_are_refused(file):
    with pytest.raises(ValueError, match="line 2 has 2 columns"):
        read_table(file("1 2 3\n1 2\n1 2 3 4\n"), 3)


def test_reads_as_numpy_would(file):
    table = np.random.default_rng(0).standard_normal((50, 4))
    path = file("\n".join(" ".join(map(repr, row)) for row in table.tolist()))
    assert np.array_equal(read_table(path, 4), table)
