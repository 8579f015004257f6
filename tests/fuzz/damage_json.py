"""Strategies that damage JSON: other values, entries that are missing or have other names, and text that is none."""

import copy
import json
import math

from hypothesis import strategies as st

from tests.fuzz.damage import AT_MOST, damaged, damaged_text

DEEP, SHALLOW = "<deep>", "<shallow>"  # stand for lists in lists, which `json.dumps` can not write
NESTED = {DEEP: 100_000, SHALLOW: 300}
ODD = (
    None, True, False, 0, -1, 1, 2, 7, 0.5, -0.5, 1e-320, 1e308, -1e308, 2**31, 2**53 + 1, 2**63, 10**30, 10**400, math.nan,
    math.inf, -math.inf, "", "a", "1", "é\n\0", "\ud800", "x" * 3000, "$\\frac{$", [], {}, [[]], [None], [1, "a"], [math.nan],
    {"": None}, {"median": "1"}, [0] * 2000, DEEP, SHALLOW,
)  # fmt: skip


@st.composite
def damaged_json(draw, content):
    """The bytes of a damaged document. content: those of a valid one, or of one a line."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(damaged(content))
    if kind == 1:
        return draw(damaged_text(content))
    lines = content.decode().splitlines()
    documents = [json.loads(line) for line in lines] if is_lines(lines) else [json.loads(content)]
    for _ in range(draw(st.integers(1, AT_MOST))):
        at = draw(st.integers(0, len(documents) - 1))
        documents[at] = changed(draw, documents[at])
    return b"\n".join(map(written, documents))


def is_lines(lines):
    return len(lines) > 1 and lines[0].startswith("{") and lines[0].endswith("}")


def changed(draw, document):
    """A copy of a document with one value changed, somewhere in it."""
    document = copy.deepcopy(document)
    inside, key = None, None
    value = document
    while isinstance(value, dict | list) and value and (inside is None or draw(st.integers(0, 4))):
        inside, key = value, draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
        value = inside[key]
    kind = draw(st.sampled_from(("other", "other", "other", "left out", "wrapped", "renamed", "repeated")))
    if inside is None:
        return draw(st.sampled_from(ODD))
    if kind == "left out":
        del inside[key]
    elif kind == "wrapped":
        inside[key] = draw(st.sampled_from(([value], {"a": value}, str(value))))
    elif kind == "renamed" and isinstance(inside, dict):
        inside[draw(st.sampled_from(("", "a", "1", "-1", "é", f"{key} ", "9" * 30, *inside)))] = inside.pop(key)
    elif kind == "repeated" and isinstance(inside, list):
        inside[key:key] = [value] * draw(st.sampled_from((1, 2, 300)))
    else:
        inside[key] = draw(st.one_of(st.sampled_from(ODD), st.floats(), st.integers(), st.text(max_size=5)))
    return document


def written(document):
    """A document as bytes, with lists in lists where they are to stand."""
    text = json.dumps(document)
    for name, depth in NESTED.items():
        text = text.replace(f'"{name}"', "[" * depth + "]" * depth)
    return text.encode()
