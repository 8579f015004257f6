"""Strategies that damage HDF5 files: their bytes, or what is in them, with h5py: types, shapes, layouts, links, attributes."""

import contextlib
import io

import h5py
import numpy as np
from hypothesis import strategies as st

from tests.fuzz.damage import AT_MOST, damaged

REFUSED = KeyError, OSError, RuntimeError, TypeError, ValueError  # by h5py, of a change after another one
HUGE = 1 << 50  # elements: chunks that were never written take no place in a file
ATTRIBUTES = (
    0, -1, 1, np.uint64(2**64 - 1), 0.5, np.nan, np.inf, np.float32(1), np.float64(1), "", "a", "é\n", "x" * 3000, b"\xff",
    np.bytes_(b"a\0b"), True, np.zeros(0), np.zeros(1), np.ones(3), np.full(3, np.nan), np.ones((3, 1)), np.ones(16, ">f8"),
    np.ones(3, np.float16), np.ones(3, np.complex64), np.array([1, 2, 3]), np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
    ["a", "b"], [b"\xff"], h5py.Empty("f8"), np.array("a", h5py.string_dtype("ascii")), np.zeros((2, 0)),
)  # fmt: skip
TYPES = ("u1", "i1", "i4", ">i4", "i8", "u8", "f4", "f8", ">f8", "c8", "?", h5py.string_dtype(), h5py.vlen_dtype("i4"),
         h5py.ref_dtype, [("a", "i4"), ("b", "f8")], h5py.enum_dtype({"A": 1}), "(3,)f4")  # fmt: skip


@st.composite
def damaged_hdf5(draw, content):
    """The bytes of a damaged file; content: those of a valid one."""
    if draw(st.integers(0, 2)) == 0:
        return draw(damaged(content))
    buffer = io.BytesIO(content)
    with h5py.File(buffer, "r+", libver="v110") as file:
        for _ in range(draw(st.integers(1, AT_MOST))):
            owner, attribute = draw(st.sampled_from(places(file)))
            with contextlib.suppress(*REFUSED):
                if attribute is None:
                    change_object(draw, file, owner)
                else:
                    change_attribute(draw, file[owner].attrs, attribute)
    return buffer.getvalue()


def places(file):
    """[(name of an object, name of an attribute of it or None for itself)] of a file."""
    names = ["/"]
    file.visit(names.append)
    pairs = [(name, None) for name in names[1:]]
    return pairs + [(name, attribute) for name in names for attribute in file[name].attrs] or [("/", "a")]


def change_attribute(draw, attributes, name):
    value = draw(st.sampled_from((None, *ATTRIBUTES)))
    if value is None:
        attributes.pop(name, None)
    elif isinstance(value, int) and isinstance(attributes.get(name), np.integer) and value >= 0:
        attributes[name] = np.uint64(value)  # a number of the right kind
    else:
        attributes[name] = value


def change_object(draw, file, name):
    """Put something else in the place of a data set or a group."""
    old = file[name]
    shape = old.shape if isinstance(old, h5py.Dataset) and old.shape else (3,)
    kind = old.dtype if isinstance(old, h5py.Dataset) else np.dtype("i4")
    readable = isinstance(old, h5py.Dataset) and old.size and old.size < 1 << 20 and not old.is_virtual and not old.external
    values = old[...] if readable else None  # a virtual one can be its own source
    del file[name]
    match draw(
        st.sampled_from(("nothing", "group", "type", "shape", "huge", "link", "values", "layout", "external", "virtual"))
    ):
        case "group":
            file.create_group(name)
        case "type":
            file.create_dataset(name, shape, draw(st.sampled_from(TYPES)))
        case "shape":
            other = draw(
                st.sampled_from(((), (0,), (1,), (*shape, 1), shape[::-1], shape[1:], (0, *shape[1:]), (shape[0] + 1,)))
            )
            file.create_dataset(name, other, kind)
        case "huge":
            other = draw(st.sampled_from(((HUGE,), (1 << 20, *shape[1:]), (HUGE, *shape[1:]), (*shape[:-1], HUGE))))
            file.create_dataset(name, other, kind, chunks=tuple(min(length, 1 << 10) for length in other))
        case "link":
            other = draw(st.sampled_from(("/", name, "nowhere", "/nowhere")))
            file[name] = draw(st.sampled_from((h5py.SoftLink(other), h5py.ExternalLink("nowhere.h5", other))))
        case "values" if values is not None and kind.kind in "iuf":
            odd = (np.nan, np.inf, -np.inf, -1.0, 1e308) if kind.kind == "f" else (0, np.iinfo(kind).min, np.iinfo(kind).max)
            flat = values.reshape(-1).copy()
            with np.errstate(over="ignore"):
                flat[draw(st.integers(0, len(flat) - 1))] = draw(st.sampled_from(odd))
            file[name] = flat.reshape(shape)
        case "layout" if values is not None:
            filters = draw(st.sampled_from(({"chunks": True}, {"compression": "gzip"}, {"shuffle": True},
                                            {"fletcher32": True}, {"maxshape": (None,) * len(shape)})))  # fmt: skip
            file.create_dataset(name, data=values.reshape(shape), **filters)
        case "external":
            file.create_dataset(name, shape, kind, external=[("nowhere", 0, h5py.h5f.UNLIMITED)])
        case "virtual":
            layout = h5py.VirtualLayout(shape, kind)
            layout[...] = h5py.VirtualSource(draw(st.sampled_from(("nowhere.h5", "."))), name, shape)
            file.create_virtual_dataset(name, layout)
        case _:
            pass  # nothing is in its place
