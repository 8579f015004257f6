"""Strategies that damage bytes and texts: a few changes of something valid, so that most of them get past the first check."""

import re

from hypothesis import strategies as st

FIELDS = 0, 1, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**60, 2**63 - 1, 2**63, 2**64 - 1
HEAD = 96  # bytes: where formats keep their sizes
AT_MOST = 3  # damages of one input
MARKS = re.compile(r"([,:=@./;\s\"'\[\]{}]+)")
ODD_WORDS = (
    "", " ", "0", "-0", "-1", "1", "2", "1.5", "+1", "1_0", "0x10", "1e3", "1e308", "-1e308", "1e-320", "1e999", "nan", "inf",
    "-inf", "9" * 19, "9" * 30, "9" * 400, "9" * 5000, "9223372036854775807", "18446744073709551616", "٣", "²",
    "½", "é", "\u202e", "\ufeff", "\U0001f600", "\n", "\t", "\0", "%s", "{}", "{0.x}", "a", "None", "true", "a" * 3000, "=",
    ",", ":", "@", ",,", "/", "..", "~", "/dev/null", "/proc/self/mem", "[" * 3000, "{" * 3000, "(" * 300, "\\", "'", '"', "*",
)  # fmt: skip


@st.composite
def damaged(draw, content):
    """Bytes that differ from `content` in a few places, are a part of it, or are anything."""
    if draw(st.integers(0, 19)) == 0:
        return draw(st.binary(max_size=200))
    for _ in range(draw(st.integers(1, AT_MOST))):
        content = draw(st.sampled_from((cut, flipped, inserted, overwritten, field, repeated, left_out)))(draw, content)
    return content


def place(draw, content):
    """A position in `content`, in every second case one near its beginning."""
    last = max(len(content) - 1, 0)
    return draw(st.integers(0, draw(st.sampled_from((min(last, HEAD), last)))))


def cut(draw, content):
    return content[: place(draw, content)]


def flipped(draw, content):
    """Some bits are the other way round."""
    found = bytearray(content)
    for _ in range(draw(st.integers(1, 8)) if found else 0):
        found[place(draw, found)] ^= 1 << draw(st.integers(0, 7))
    return bytes(found)


def inserted(draw, content):
    at = place(draw, content)
    return content[:at] + draw(st.binary(min_size=1, max_size=16)) + content[at:]


def overwritten(draw, content):
    """A run of one byte."""
    at, length = place(draw, content), draw(st.sampled_from((1, 4, 16, 512)))
    return content[:at] + bytes([draw(st.sampled_from((0, 255, 32, 48)))]) * length + content[at + length :]


def field(draw, content):
    """A number of 1, 2, 4 or 8 bytes, as a header's, gets an extreme value."""
    size, at = draw(st.sampled_from((1, 2, 4, 8))), place(draw, content)
    number = draw(st.sampled_from(FIELDS)) % 2 ** (8 * size)
    return content[:at] + number.to_bytes(size, draw(st.sampled_from(("little", "big")))) + content[at + size :]


def repeated(draw, content):
    start, length = place(draw, content), draw(st.sampled_from((1, 16, len(content))))
    return content[:start] + content[start : start + length] * draw(st.sampled_from((2, 3, 50))) + content[start + length :]


def left_out(draw, content):
    start = place(draw, content)
    return content[:start] + content[start + draw(st.sampled_from((1, 2, 8, 100))) :]


@st.composite
def damaged_text(draw, content):
    """A text, as bytes, with other words or marks between them; or damaged as any bytes."""
    if draw(st.integers(0, 3)) == 0:
        return draw(damaged(content))
    parts = MARKS.split(content.decode())
    for _ in range(draw(st.integers(1, AT_MOST))):
        at = draw(st.integers(0, max(len(parts) - 1, 0)))
        word = draw(st.one_of(st.sampled_from(ODD_WORDS), st.sampled_from(parts or [""]), st.text(max_size=5)))
        kind = draw(st.sampled_from(("replaced", "inserted", "left out", "repeated")))
        if kind == "repeated":
            parts[at:at] = parts[at : at + draw(st.sampled_from((1, 2, 4)))] * draw(st.sampled_from((1, 2, 200)))
        else:
            parts[at : at + (kind != "inserted")] = [] if kind == "left out" else [word]
    return "".join(parts).encode(errors="surrogateescape")


@st.composite
def damaged_argument(draw, content):
    """A text like those of command lines, which hold no zero bytes."""
    return draw(damaged_text(content)).replace(b"\0", b"")
