"""A strategy that damages HDF5 files: their bytes, or with h5py what is in them: types, shapes, layouts, links, attributes."""

import contextlib
import io

import h5py
import numpy as np
from hypothesis import strategies as st

from tests.fuzz.damage import AT_MOST, damaged

REFUSED = KeyError, OSError, RuntimeError, TypeError, ValueError  # by h5py, of a change after another one
HUGE = 1 << 50  # elements: chunks that were never written take no place in a file
ATTRIBUTES = (
    None, -1, np.uint64(2**64 - 1), np.nan, np.inf, "", "é\n", "x" * 3000, b"\xff", True, np.zeros(0), np.full(3, np.nan),
    np.ones((3, 1)), np.ones(3, np.complex64), np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]), ["a", "b"], h5py.Empty("f8"),
)  # fmt: skip
TYPES = "u1", ">i4", "u8", ">f8", "c8", "?", h5py.string_dtype(), h5py.vlen_dtype("i4"), h5py.ref_dtype, [("a", "i4")], "(3,)f4"
LINKS = h5py.SoftLink("/"), h5py.SoftLink("nowhere"), h5py.ExternalLink("nowhere.h5", "/")
KINDS = "nothing", "group", "type", "shape", "huge", "link", "circle", "values", "external", "virtual"


@st.composite
def damaged_hdf5(draw, content):
    """The bytes of a damaged file; content: those of a valid one."""
    if draw(st.integers(0, 2)) == 0:
        return draw(damaged(content))
    buffer = io.BytesIO(content)
    with h5py.File(buffer, "r+", libver="v110") as file:
        for _ in range(draw(st.integers(1, AT_MOST))):
            names = ["/"]
            file.visit(names.append)
            name = draw(st.sampled_from(names))
            attributes = list(file[name].attrs)
            with contextlib.suppress(*REFUSED):
                if attributes and (name == "/" or draw(st.booleans())):
                    change_attribute(file[name].attrs, draw(st.sampled_from(attributes)), draw(st.sampled_from(ATTRIBUTES)))
                elif name != "/":
                    replace(draw, file, name)
    return buffer.getvalue()


def change_attribute(attributes, name, value):
    if value is None:
        del attributes[name]
    else:
        attributes[name] = value


def replace(draw, file, name):
    """Put something else in the place of a data set or a group."""
    old = file[name]
    is_data = isinstance(old, h5py.Dataset)
    shape, kind = (old.shape or (3,), old.dtype) if is_data else ((3,), np.dtype("i4"))
    readable = is_data and old.size and old.size < 1 << 20 and not old.is_virtual and not old.external
    values = old[...] if readable else None
    del file[name]
    match draw(st.sampled_from(KINDS)):
        case "group":
            file.create_group(name)
        case "type":
            file.create_dataset(name, shape, draw(st.sampled_from(TYPES)))
        case "shape":
            others = (), (0,), (1,), (*shape, 1), shape[::-1], shape[1:], (0, *shape[1:]), (shape[0] + 1,)
            file.create_dataset(name, draw(st.sampled_from(others)), kind)
        case "huge":
            other = draw(st.sampled_from(((HUGE,), (1 << 20, *shape[1:]), (HUGE, *shape[1:]), (*shape[:-1], HUGE))))
            file.create_dataset(name, other, kind, chunks=tuple(min(length, 1 << 10) for length in other))
        case "link":
            file[name] = draw(st.sampled_from(LINKS))
        case "circle":
            file[name] = h5py.SoftLink(f"/{name}")
        case "values" if values is not None and kind.kind in "iuf":
            odd = (np.nan, np.inf, -np.inf, -1.0, 1e308) if kind.kind == "f" else (0, np.iinfo(kind).min, np.iinfo(kind).max)
            with np.errstate(over="ignore"):
                values.flat[draw(st.integers(0, values.size - 1))] = draw(st.sampled_from(odd))
            file[name] = values
        case "external":
            file.create_dataset(name, shape, kind, external=[("nowhere", 0, h5py.h5f.UNLIMITED)])
        case "virtual":
            virtual(file, name, shape, kind, draw(st.sampled_from(("nowhere.h5", "."))))
        case _:
            pass  # nothing is in its place


def virtual(file, name, shape, kind, source):
    """Make a data set whose elements come from a file. From this one, ".", they would come from themselves."""
    layout = h5py.VirtualLayout(shape, kind)
    layout[...] = h5py.VirtualSource(source, name, shape)
    file.create_virtual_dataset(name, layout)
