"""Pickles of data are read; those that would do something do nothing, and are refused in one line."""

import os
import pickle
import struct

import numpy as np
import pytest

from gridgrad.datasets import pickles
from gridgrad.datasets.pickles import Array, parse
from gridgrad.nn.files import limits

PIXELS = np.arange(24, dtype=np.uint8).reshape(4, 6)


def text(value, long=False):
    """An instruction of Python 2 for a string."""
    return (b"T" + struct.pack("<i", len(value)) if long else b"U" + bytes([len(value)])) + value


def published(pixels=PIXELS, labels=(6, 9, 0, 3), kind=b"u1", shape=None, raw=None):
    """A file of the published form: what Python 2 and NumPy 1 wrote, protocol 2, instruction by instruction."""
    rows, columns = shape or pixels.shape
    return (
        b"\x80\x02}q\x01(" + text(b"batch_label") + b"q\x02" + text(b"training batch 1 of 5") + b"q\x03"
        + text(b"labels") + b"q\x04]q\x05(" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
        + text(b"data") + b"q\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85" + text(b"b")
        + b"\x87Rq\t(K\x01M" + struct.pack("<H", rows) + b"M" + struct.pack("<H", columns) + b"\x86cnumpy\ndtype\nq\n"
        + text(kind) + b"K\x00K\x01\x87Rq\x0b(K\x03" + text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        + text(pixels.tobytes() if raw is None else raw, long=True) + b"tb"
        + text(b"filenames") + b"q\x0c]q\r(" + text(b"leptodactylus_pentadactylus_s_000004.png") + b"q\x0eeu."
    )  # fmt: skip


def test_the_published_form_is_read():
    data = parse("file", published())
    assert data["labels"] == [6, 9, 0, 3] and data["batch_label"] == "training batch 1 of 5"
    assert data["filenames"] == ["leptodactylus_pentadactylus_s_000004.png"]
    assert np.array_equal(data["data"].value, PIXELS) and data["data"].value.dtype == np.uint8
    there = pickle.loads(published(), encoding="latin1")  # it is what Python reads, too
    assert np.array_equal(there["data"], PIXELS) and there["labels"] == data["labels"]


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("keys", [str, str.encode])
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_python_3_writes_is_read(protocol, keys, order):
    value = {
        keys("data"): PIXELS.copy(order),
        keys("labels"): [1, 200, 70_000, -1],
        keys("more"): ((), (1, 2, 3, 4), None, True),
    }
    data = parse("file", pickle.dumps(value, protocol))
    assert np.array_equal(data["data"].value, PIXELS)
    assert data["labels"] == [1, 200, 70_000, -1] and data["more"] == ((), (1, 2, 3, 4), None, True)


class Calls:
    """Pickles as a call of `function`."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def hostile(path):
    """(name, pickle that would make the file `path` if anything in it were run, what is said)."""
    touch = f"touch {path}"
    python = f"open({str(path)!r}, 'w')"
    system = b"cos\nsystem\n(" + text(touch.encode()) + b"tR."
    made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"

    yield "os.system", b"\x80\x02" + system, "it names os system"
    yield "by Python's pickler", pickle.dumps({"data": Calls(os.system, touch)}), "it names posix system"
    yield "eval", pickle.dumps([Calls(eval, python)], 2), "it names __builtin__ eval"
    yield "eval, new names", pickle.dumps([Calls(eval, python)], 4), "it names builtins eval"
    yield "getattr", b"\x80\x04\x8c\x08builtins\x8c\x07getattr\x93.", "it names builtins getattr"
    yield "a submodule by dots", b"\x80\x04\x8c\x05numpy\x8c\x0adtype.type\x93.", "it names numpy dtype.type"
    yield "numpy's own exec", b"cnumpy.testing\nruncstring\n(" + text(python.encode()) + b"}tR.", "it names numpy"
    yield "names made of numbers", b"\x80\x04K\x01K\x02\x93.", "not a pickle of plain data"
    yield "protocol 0", f"cos\nsystem\n(S'{touch}'\ntR.".encode(), "it names os system"
    yield "INST", f"(S'{touch}'\nios\nsystem\n.".encode(), "instruction STRING"
    yield "INST alone", b"(ios\nsystem\n.", "instruction INST"
    yield "OBJ", b"(K\x01o.", "instruction OBJ"
    yield "NEWOBJ", b"\x80\x02cnumpy\nndarray\n)\x81.", "instruction NEWOBJ"
    yield "NEWOBJ_EX", b"\x80\x04cnumpy\nndarray\n)}\x92.", "instruction NEWOBJ_EX"
    yield "an extension's number", b"\x80\x02\x82\x01.", "instruction EXT1"
    yield "persistent id as text", b"Psomewhere\n.", "instruction PERSID"
    yield "persistent id", b"\x80\x02K\x01Q.", "instruction BINPERSID"
    yield "a call of another kind", b"cnumpy\nndarray\nK\x02\x85R.", "a call that makes no array"
    yield "another type", b"cnumpy\ndtype\n" + text(b"O8") + b"\x85R.", "a call that makes no array"
    yield "_reconstruct of another class", made.replace(b"cnumpy\nndarray\n", b"cnumpy\ndtype\n") + b".", "a call that"
    yield "another codec", b"c_codecs\nencode\nX\x01\0\0\0aX\x03\0\0\0zip\x86R.", "a call that makes no array"
    yield "a text is called", text(b"os.system") + text(touch.encode()) + b"\x85R.", "a call that makes no array"
    yield "__setstate__ of a dict", b"}}" + text(b"a") + b"K\x01sb.", "a state for what is no array"
    yield "attributes of an array", made + b"}" + text(b"__class__") + b"K\x01sb.", "a state for what is no array"
    yield "attributes of a function", b"cnumpy.core.multiarray\n_reconstruct\n}" + text(b"a") + b"K\x01sb.", "a state for"
    yield "slots", made + b"N}" + text(b"value") + b"K\x01s\x86b.", "a state for what is no array"
    yield "an array of objects", published(kind=b"O8"), "a call that makes no array"
    yield "more than there is", published(shape=(60_000, 60_000)), "another type or size"
    yield "less than there is", published(shape=(1, 6)), "another type or size"
    yield (
        "a negative size",
        made + b"(K\x01J\xff\xff\xff\xffK\x06\x86cnumpy\ndtype\n" + text(b"u1") + b"\x85R\x89U\x00tb.",
        "another",
    )
    yield "many empty lists", b"\x80\x02" + b"]" * 1100 + b".", "more than 1000 instructions"
    yield "no end", published()[:-1], "pickle exhausted"
    yield "cut short", published()[:200], "not a pickle of plain data"
    yield "empty", b"", "pickle exhausted"
    yield "no pickle", b"\x89PNG\r\n\x1a\n", "not a pickle of plain data"
    yield "nothing to take", b"0.", "instruction POP"
    yield "nothing on the stack", b"\x86.", "nothing on the stack"
    yield "no mark", b"K\x01t.", "not a pickle of plain data"
    yield "unknown memo", b"h\x05.", "not a pickle of plain data"
    yield "a list as a key", b"}]K\x01s.", "keys that are no text"
    yield "a call as a key", b"}cnumpy\ndtype\nK\x01s.", "keys that are no text"
    yield "items of a number", b"K\x01K\x02a.", "items for what is no list"
    yield "a big number", b"\x8a\xff" + b"\x01" * 255 + b".", "instruction LONG1"


NAMES = [name for name, _, _ in hostile("nothing")]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_runs(name, tmp_path, monkeypatch):
    path = tmp_path / "ran"
    content, message = next((content, message) for found, content, message in hostile(path) if found == name)
    monkeypatch.setattr(pickles, "INSTRUCTIONS", 1000)
    # Whatever would import, were it to run, would fail the test.
    monkeypatch.setattr("builtins.__import__", _no_import)
    with pytest.raises(ValueError, match=message) as error:
        parse("folder/data_batch_1", content)
    monkeypatch.undo()
    assert str(error.value).startswith("folder/data_batch_1: not a pickle of plain data (")
    assert "\n" not in str(error.value) and len(str(error.value)) < 260
    assert not path.exists()


def _no_import(name, *_, **__):
    raise AssertionError(f"{name} is imported")


def test_the_hostile_pickles_do_run_elsewhere(tmp_path):
    """That the tests above would notice: Python's own reader runs them."""
    path = tmp_path / "ran"
    for name, content, _ in hostile(path):
        if name in ("os.system", "by Python's pickler", "eval", "eval, new names", "protocol 0", "INST"):
            pickle.loads(content)
            assert path.exists(), name
            path.unlink()


def test_damage_anywhere_is_an_error_or_data():
    """Every byte of a file changed in turn, and every length: nothing but ValueError, and arrays are whole."""
    good = published()
    cases = [good[:length] for length in range(len(good))]
    cases += [good[:at] + bytes([good[at] ^ flip]) + good[at + 1 :] for at in range(len(good)) for flip in (1, 32, 128, 255)]
    for content in cases:
        try:
            data = parse("file", content)
        except ValueError as error:
            assert "\n" not in str(error)
            continue
        found = data.get("data") if type(data) is dict else None
        assert type(found) is not Array or found.value is None or found.value.size == 24


LONG = struct.pack("<I", 100) + b"a" * 100
AGAIN = {  # a text of 100 letters, which is encoded n times, or decoded
    "encoded": lambda n: b"(X" + LONG + b"q\0" + (b"c_codecs\nencode\nh\0" + text(b"latin1") + b"\x86R") * n + b"t.",
    "a key": lambda n: b"(B" + LONG + b"q\0}(" + b"h\0N" * n + b"ut.",
}


@pytest.mark.parametrize("name", AGAIN)
def test_a_text_that_is_turned_over_and_over_does_not_fill_the_memory(monkeypatch, name):
    monkeypatch.setattr(limits, "BUDGET", 1000)
    parse("file", AGAIN[name](10))
    with pytest.raises(ValueError, match="more than 1000 bytes of text"):
        parse("file", AGAIN[name](11))


def test_an_array_has_few_dimensions():
    shape = b"(" + b"K\x01" * 100_000 + b"t"  # their product would take hours if they were large
    with pytest.raises(ValueError, match="an array of another type or size than it says"):
        parse("file", published().replace(b"K\x01M\x04\x00M\x06\x00\x86", b"K\x01" + shape))
