"""Strategies that damage something valid in a few places, so that most of it gets past the first check: bytes, texts, JSON."""

import copy
import json
import math
import re

from hypothesis import strategies as st

AT_MOST = 3  # damages of one input
HEAD = 96  # bytes: where formats keep their sizes
EXTREME = 0, 1, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**60, 2**63 - 1, 2**63, 2**64 - 1
FIELDS = st.builds(  # a number of 1 to 8 bytes, as a header's
    lambda number, size, order: (number % 2 ** (8 * size)).to_bytes(size, order),
    st.sampled_from(EXTREME), st.sampled_from((1, 2, 4, 8)), st.sampled_from(("little", "big")),
)  # fmt: skip
RUNS = st.builds(lambda byte, length: bytes([byte]) * length, st.sampled_from((0, 255, 32, 48)), st.sampled_from((1, 16, 512)))
PIECES = st.one_of(FIELDS, RUNS, st.binary(min_size=1, max_size=8))
MARKS = re.compile(r"([,:=@./;\s\"'\[\]{}]+)")
WORDS = (
    "", " ", "0", "-0", "-1", "1", "2", "1.5", "+1", "1_0", "0x10", "1e3", "1e308", "-1e308", "1e-320", "1e999", "nan", "inf",
    "-inf", "9" * 19, "9" * 30, "9" * 400, "9" * 5000, "9223372036854775807", "18446744073709551616", "٣", "²",
    "½", "é", "\u202e", "\ufeff", "\U0001f600", "\n", "\t", "\0", "%s", "{}", "{0.x}", "a", "None", "true", "a" * 3000, "=",
    ",", ":", "@", ",,", "/", "..", "~", "/dev/null", "/proc/self/mem", "[" * 3000, "{" * 3000, "(" * 300, "\\", "'", '"', "*",
)  # fmt: skip
DEEP, SHALLOW = "<deep>", "<shallow>"  # stand for lists in lists, which `json.dumps` can not write
NESTED = {DEEP: 100_000, SHALLOW: 300}
VALUES = (
    None, True, False, 0, -1, 1, 2, 7, 0.5, -0.5, 1e-320, 1e308, -1e308, 2**31, 2**53 + 1, 2**63, 10**30, 10**400, math.nan,
    math.inf, -math.inf, "", "a", "1", "é\n\0", "\ud800", "x" * 3000, "$\\frac{$", [], {}, [[]], [None], [1, "a"], [math.nan],
    {"": None}, {"median": "1"}, [0] * 2000, DEEP, SHALLOW,
)  # fmt: skip


def spliced(draw, content, pieces, times=50):
    """A sequence in which one of some pieces, or a part of itself again and again, or nothing takes the place of a part."""
    start = draw(st.integers(0, draw(st.sampled_from((min(len(content), HEAD), len(content))))))
    length, times = draw(st.sampled_from(((1, times), (16, times), (1, 2), (16, 2), (len(content), 2))))
    new = draw(st.one_of(pieces, pieces, st.just(content[start : start + length] * times), st.just(content[:0])))
    return content[:start] + new + content[start + draw(st.sampled_from((0, len(new), len(new), 1, 100, len(content)))) :]


@st.composite
def damaged(draw, content):
    """Bytes that differ from `content` in a few places, are a part of it, or are anything."""
    if draw(st.integers(0, 19)) == 0:
        return draw(st.binary(max_size=200))
    for _ in range(draw(st.integers(1, AT_MOST))):
        content = spliced(draw, content, PIECES)
    return content


@st.composite
def damaged_text(draw, content):
    """A text, as bytes, with other words or marks between them; or damaged as any bytes."""
    if draw(st.integers(0, 3)) == 0:
        return draw(damaged(content))
    parts = MARKS.split(content.decode())
    words = st.one_of(st.sampled_from(WORDS), st.sampled_from(parts), st.text(max_size=5)).map(lambda word: [word])
    for _ in range(draw(st.integers(1, AT_MOST))):
        parts = spliced(draw, parts, words, times=200)
    return "".join(parts).encode(errors="surrogateescape")


def damaged_argument(content):
    """A text like those of command lines, which hold no zero bytes."""
    return damaged_text(content).map(lambda text: text.replace(b"\0", b""))


@st.composite
def damaged_json(draw, content):
    """The bytes of a damaged document. content: those of a valid one, or of one a line."""
    kind = draw(st.integers(0, 9))
    if kind < 2:
        return draw(damaged_text(content) if kind else damaged(content))
    lines = content.splitlines()
    several = len(lines) > 1 and all(line[:1] == b"{" and line[-1:] == b"}" for line in lines)
    documents = [json.loads(text) for text in (lines if several else [content])]
    for _ in range(draw(st.integers(1, AT_MOST))):
        change(draw, documents)
    text = "\n".join(map(json.dumps, documents))
    for name, depth in NESTED.items():
        text = text.replace(f'"{name}"', "[" * depth + "]" * depth)
    return text.encode()


def change(draw, documents):
    """Change a value somewhere in one of some documents, or its name or place."""
    inside, key = documents, draw(st.integers(0, len(documents) - 1))
    while isinstance(inside[key], dict | list) and inside[key] and (inside is documents or draw(st.integers(0, 4))):
        inside = inside[key]
        key = draw(st.sampled_from(sorted(inside) if isinstance(inside, dict) else range(len(inside))))
    value = inside[key]
    kind = draw(st.sampled_from(("other", "other", "other", "left out", "wrapped", "renamed", "repeated")))
    if kind == "left out" and inside is not documents:
        del inside[key]
    elif kind == "wrapped":
        inside[key] = draw(st.sampled_from(([value], {"a": value}, str(value))))
    elif kind == "renamed" and isinstance(inside, dict):
        inside[draw(st.sampled_from(("", "a", "1", "-1", "é", f"{key} ", "9" * 30, *inside)))] = inside.pop(key)
    elif kind == "repeated" and isinstance(inside, list) and inside is not documents:
        inside[key:key] = [value] * draw(st.sampled_from((1, 2, 300)))
    else:
        odd = st.one_of(st.sampled_from(VALUES), st.floats(), st.integers(), st.text(max_size=5))
        inside[key] = copy.deepcopy(draw(odd))  # which further damages may change
