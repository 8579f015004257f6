"""What times of two threads, made-up ones, say of a second core's cache."""

import json

import pytest

from gridgrad.experiments.papers.hegde2016 import kept
from gridgrad.experiments.papers.hegde2016 import threads as hegde2016_threads
from gridgrad.experiments.papers.hegde2016.threads import (
    CACHE,
    LIBRARY,
    NONE,
    OTHER,
    TWO,
    cause,
    decision,
    half_fits,
    of_figure_4,
    summary,
)
from gridgrad.experiments.papers.items import ALONE

L2 = 2 * 1024**2  # half of a matrix of 768 x 768 fits, the whole does not
ROUNDS = 8


def result(cases, spread=0.0):
    """A made-up result: {(way, samples, n): (speed-up of two threads, the whole over a half, speed-up of two processes)}."""
    rows = []
    for (way, samples, n), (speedup, halves, processes) in cases.items():
        one = [1.0 + spread * (number % 2) for number in range(ROUNDS)]
        rows.append(
            {"way": way, "samples": samples, "n": n, "one": one}
            | {side: [1.0 / by] * ROUNDS for side, by in (("two", speedup), ("half", halves), ("pair", processes))}
        )
    caches = [
        {"level": 1, "type": "Data", "bytes": 32768, "cores": 1}, {"level": 1, "type": "Instruction", "bytes": L2, "cores": 1},
        {"level": 2, "type": "Unified", "bytes": L2, "cores": 1}, {"level": 3, "type": "Unified", "bytes": 2**25, "cores": 2},
    ]  # fmt: skip
    return {"versions": {"processor": "a processor", "blas": "a library"}, "caches": caches, "rows": rows}


def both(n, *ratios):
    """A layer and the product alone with the same ratios."""
    return {(way, 1, n): ratios for way in ("layer", "product")}


def causes(cases, **options):
    rows = summary(result(cases, **options))
    return [cause(row, rows) for row in rows], decision(rows)


def test_half_fits():
    assert [half_fits(n, L2) for n in (512, 720, 768, 1024, 1026)] == [False, False, True, True, False]


def test_the_cache_of_a_second_core_is_told_from_other_causes():
    found, words = causes(both(512, 1.9, 2.0, 1.9) | both(768, 2.6, 2.7, 2.5) | both(2048, 1.9, 2.0, 1.9))
    assert found == [NONE, NONE, CACHE, CACHE, NONE, NONE]
    assert "at n = 768 half of the matrix fits" in words and "open" not in words
    found, words = causes(both(512, 2.6, 2.7, 2.5))
    assert found == [OTHER, OTHER] and "at n = 512 it is not a core's own cache" in words
    for ratios in ((2.6, 2.0, 2.5), (2.6, 2.7, 1.9)):  # one core, or two processes, do not show it
        assert causes(both(768, *ratios))[0] == [OTHER, OTHER]
    found, words = causes({("layer", 1, 768): (2.6, 2.0, 2.5), ("product", 1, 768): (1.9, 2.0, 1.9)})
    assert found == [LIBRARY, NONE] and "NumPy's product alone does not show it" in words


def test_a_wide_spread_is_no_speedup():
    found, words = causes(both(768, 1.5, 2.7, 2.5), spread=1.0)  # ratios are 1.5 and 3
    assert found == [NONE, NONE] and "nowhere more than twice as fast as one, beyond the spread" in words


def test_the_item(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "FOLDER", tmp_path)
    assert hegde2016_threads.items({}) == []
    path = kept.file(hegde2016_threads.NAME)
    path.parent.mkdir()
    path.write_text(json.dumps(result(both(768, 2.6, 2.7, 2.5))))
    (item,) = hegde2016_threads.items({})
    assert (
        item.status == ALONE and item.elsewhere and item.processor.startswith("a processor, a library, L1 32 KiB, L2 2048 KiB")
    )
    assert [row.measured for row in item.rows] == [pytest.approx(2.6)] and "a half fits" in item.rows[0].remark
    for wrong in ("{", "[]", json.dumps(result({}) | {"caches": 1, "rows": [{}]})):
        path.write_text(wrong)
        assert hegde2016_threads.items({}) == []


def test_a_ratio_of_figure_4_is_of_its_own_processor():
    rows = summary(result(both(512, 1.8, 1.9, 1.9) | both(768, 1.5, 1.9, 1.9)))
    words = decision(rows)
    assert "nowhere more than twice" in words and "the largest median is 1.8 (n = 512, 1 sample)" in words
    assert "(n = 768), the largest is 1.5 (n = 768, 1 sample)" in words  # where half of the matrix fits a core's own cache
    figure = [{"device": TWO, "batch": 1, "n": 768, "speedup": 2.6, "min": 1.3, "max": 4.6}]
    tables = {"dense_speedups": figure, "versions": {TWO: {"processor": "another"}}}
    words = of_figure_4(tables, rows, "a processor")
    assert "2.6 times as fast at n = 768, 1 sample, where a matrix has 2.4 MB" in words and "from 1.30 to 4.60" in words
    assert "here they are 1.50 (quartiles 1.50 to 1.50)" in words and "on another processor (another)" in words
    assert "another" not in of_figure_4(tables, rows, "another")
    for none in ({}, {"dense_speedups": [figure[0] | {"speedup": 1.9}]}):
        assert of_figure_4(none, rows, "another") == ""
