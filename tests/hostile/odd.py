"""What people have: tables, images and arrays that are not as usual, each with what is right: its numbers, or a refusal."""

import io
from functools import partial

import h5py
import numpy as np
from PIL import Image

from gridgrad import datasets
from tests.hostile.case import Case
from tests.hostile.malicious import npy, zipped

X = np.column_stack([np.arange(12), 2 * np.arange(12) + 1]).astype(float)
Y = np.arange(12) / 8 + 0.25
ROWS = np.column_stack([X, Y])
EITHER = object()  # these numbers, or a refusal


def found(name, folder):
    """(all samples with their targets, as rows in the units of the file; the note)."""
    datasets.prepare(name, folder)
    data, rows = datasets.load(name, folder, np.float64), []
    for part in (data.train, data.test):
        every = np.arange(len(part))
        inputs = part.inputs(every, tuple(slice(0, length) for length in part.sample_shape))
        targets = part.unstandardise(part.targets(every)).reshape(len(part), -1)
        rows.append(np.column_stack([(inputs * part.x_std + part.x_mean).reshape(len(part), -1), targets]))
    print(data.note)
    return np.concatenate(rows), data.note


def same(expected, value, folder):
    """Whether these are the rows, in any order."""
    rows = value[0]
    if rows.shape != expected.shape:
        return False
    rows, wanted = (found[np.lexsort(found.round(6).T)] for found in (rows, expected))
    return bool(np.allclose(rows, wanted, rtol=1e-6, atol=1e-6))


def table(kind, label, file, content, right=ROWS, options="", refused=False):
    """A Case. right: the rows, or None where the file must be refused. refused: whether that is right, too."""
    make = lambda folder: content(folder / file) if callable(content) else (folder / file).write_bytes(content)  # noqa: E731
    name = f"table:{file}{options or (',x=x,y=y' if kind in ('HDF5', 'NPZ') else '')}"
    check = None if right is None else partial(same, right)
    return Case(kind, label, make, partial(found, name), check, may_refuse=refused or right is None)


def text(mark=",", head="a,b,y", end="\n", word=repr, rows=ROWS):
    lines = [head.replace(",", mark)] * bool(head) + [mark.join(map(word, row)) for row in rows.tolist()]
    return (end.join(lines) + end).encode()


FIRST = text(head="")
INDEXED = text(head=",a,b,y", rows=np.column_stack([np.arange(12.0), ROWS]))
TEXTS = (  # (what it is, bytes, the rows or None, whether it may be refused)
    *((f"'{mark}' between", text(mark), ROWS, mark == "|") for mark in ";\t, |"), ("no names", FIRST, ROWS, False),
    ("a comment of names", text(" ", "# a b y"), ROWS, False),
    ("Windows' line ends", text(end="\r\n"), ROWS, False), ("line ends of old Macs", text(end="\r"), ROWS, True),
    ("a mark of UTF-8", b"\xef\xbb\xbf" + text(), ROWS, False), ("UTF-16", text().decode().encode("utf-16"), ROWS, True),
    ("names in Latin-1", text(head="\xe4,b,y").decode().encode("latin-1"), ROWS, True),
    ("names with umlauts", text(head="ä,ö,ß"), ROWS, False),
    ("quoted names with commas", text().replace(b"a,b", b'"a, m/s",b'), ROWS, False),
    ("quoted numbers", text(word=lambda value: f'"{value}"'), ROWS, False),
    ("blanks around", text(word=lambda value: f"  {value} "), ROWS, False),
    ("columns by blanks", text("   ", "a,b,y"), ROWS, False), ("tabs and blanks", text(" \t", ""), ROWS, True),
    ("empty lines at the end", text() + b"\n\n\n", ROWS, False),
    ("empty lines between", text().replace(b"\n", b"\n\n"), ROWS, True), ("an empty first line", b"\n" + text(), ROWS, True),
    ("two lines of names", b"a,b,y\nm,s,kg\n" + FIRST, None, False), ("a title above", b"my table\n" + text(), ROWS, True),
    ("no end of the last line", text().rstrip(), ROWS, False), ("years as names", text(head="2019,2020,2021"), ROWS, True),
    ("years as names, names=yes", text(head="2019,2020,2021"), ROWS, True, ",names=yes"),
    ("names=no", FIRST, ROWS, True, ",names=no"), ("an index of pandas", INDEXED, np.column_stack([np.arange(12.0), ROWS]),
    True),
    *((f"{word or 'nothing'} in the first row", text(head="").replace(b"0.0", word.encode(), 1), None, False) for word in ("?",
    "NA", "", "12%", "-", "null", "1,5e")), *((f"{word or 'nothing'} in a row", text().replace(b"3.0", word.encode(), 1), None,
    False) for word in ("?", "NA", "", "12%", "nan", "inf", "2023_1", "0x10", "1d3", "1 000", "True", "2020-01-01", "1.2.3",
    "--1")),
    ("decimal commas", text(";", word=lambda value: repr(value).replace(".", ",")), ROWS, True),
    ("thousands with commas", text(word=lambda value: f'"{value + 1000:,}"', rows=ROWS), None, False),
    ("signs and bare points", text(word=lambda value: f"+{value:g}" if value % 1 else f"{value:g}."), ROWS, False),
    ("powers of ten", text(word=lambda value: f"{value:.9E}"), ROWS, False),
    ("digits of another script", text().replace(b"3.0", "٣".encode(), 1), ROWS, True),
    ("two equal names", text(head="a,a,y"), ROWS, True), ("a comma at each end",
    text(head="a,b,y,").replace(b"\n", b",\n").replace(b",,\n", b",\n"), ROWS, True),
    ("one column", b"y\n1.5\n2\n3\n", None, False), ("names alone", b"a,b,y\n", None, False),
    ("one row", b"a,b,y\n1,2,3\n", None, False), ("a short row", text() + b"1,2\n", None, False),
    ("a long row", text() + b"1,2,3,4\n", None, False),
    ("texts in a column", text().replace(b"3.0", b"red"), None, False), ("a comment between", text() + b"# end\n", None, False),
    ("a zero byte", text() + b"\0\n", None, False), ("a formula", text().replace(b"3.0", b"=1+2", 1), None, False),
    ("1e300", text().replace(b"3.0", b"1e300", 1), None, False), ("blank but for names", b"a,b,y\n" + b" \n" * 9, None, False),
)  # fmt: skip


def hdf5(**arrays):
    def make(path):
        with h5py.File(path, "w", libver="v110") as file:
            for name, value in ({"y": Y} | arrays | {"more": np.ones(999)}).items():
                value(file, name) if callable(value) else file.create_dataset(name, data=value)

    return make


def stored(**options):
    return lambda file, name: file.create_dataset(name, data=X, **options)


def own_type(base, bits=None, offset=0, fields=None, bias=None, memory="f8"):
    """A dataset of a type that NumPy does not have; the library converts the numbers on their way."""

    def make(file, name):
        kind = base.copy()
        if fields:
            kind.set_fields(*fields)
            kind.set_ebias(bias)
        else:
            kind.set_precision(bits)
            kind.set_offset(offset)
        data = h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create_simple(X.shape))
        data.write(h5py.h5s.ALL, h5py.h5s.ALL, np.ascontiguousarray(X, memory))

    return make


def within(file, name):
    layout = h5py.VirtualLayout(X.shape, "f8")
    file["whole"] = X
    layout[...] = h5py.VirtualSource(".", "whole", X.shape)
    file.create_virtual_dataset(name, layout)


T = h5py.h5t
HDF5 = (  # (what it is, a maker, the rows or None, whether it may be refused)
    *((f"type {kind}", hdf5(x=X.astype(kind)), ROWS, False) for kind in ("f4", ">f8", ">f4", "i1", ">i4", "u2", "u8", "i8",
    "f2")), ("type f16", hdf5(x=X.astype(np.longdouble)), ROWS, True),
    ("truths", hdf5(x=X % 2 > 0), np.column_stack([X % 2 > 0, Y]), True), ("complex", hdf5(x=X + 0j), None, False),
    ("texts", hdf5(x=X.astype("S4")), None, False), ("records", hdf5(x=np.zeros(12, [("a", "f4"), ("b", "f4")])), None, False),
    ("bfloat16", hdf5(x=own_type(T.IEEE_F16LE, fields=(15, 7, 8, 0, 7), bias=127)), ROWS, True),
    ("12 bits in 16", hdf5(x=own_type(T.STD_U16LE, 12, memory="u2")), ROWS, True),
    ("12 bits in 16, on the left", hdf5(x=own_type(T.STD_U16LE, 12, 4, memory="u2")), ROWS, True),
    ("signed 12 bits in 16", hdf5(x=own_type(T.STD_I16LE, 12, memory="i2")), ROWS, True),
    ("another bias", hdf5(x=own_type(T.IEEE_F32LE, fields=(31, 23, 8, 0, 23), bias=120)), ROWS, True),
    ("an enumeration", hdf5(x=lambda file, name: file.create_dataset(name, data=X.astype("i4"),
    dtype=h5py.enum_dtype({"A": 1}))), ROWS, True),
    ("chunks", hdf5(x=stored(chunks=(5, 1))), ROWS, False),
    ("gzip, shuffled, checked", hdf5(x=stored(compression="gzip", shuffle=True, fletcher32=True)), ROWS, False),
    ("lzf", hdf5(x=stored(compression="lzf")), ROWS, False),
    ("scale and offset", hdf5(x=lambda file, name: file.create_dataset(name, data=X.astype("i4"), scaleoffset=0)), ROWS, True),
    ("that may grow", hdf5(x=stored(maxshape=(None, 2))), ROWS, False), ("a view of itself", hdf5(x=within), ROWS, True),
    ("a soft link", hdf5(z=X, x=lambda file, name: file.__setitem__(name, h5py.SoftLink("/z"))), ROWS, True),
    ("in a group", hdf5(**{"a/b/x": X}), ROWS, False, ",x=a/b/x,y=y"), ("targets as a column", hdf5(y=Y[:, None]), ROWS, True),
    ("rows of 1 x 2 x 1", hdf5(x=X.reshape(12, 1, 2, 1)), ROWS, False),
    ("never written", hdf5(x=lambda file, name: file.create_dataset(name, (12, 2), "f8", fillvalue=3)),
    np.column_stack([X * 0 + 3, Y]), True), ("fewer targets", hdf5(y=Y[:11]), None, False),
    ("NaN", hdf5(x=np.where(X == 3, np.nan, X)), None, False), ("one number", hdf5(x=np.float64(1)), None, False),
)  # fmt: skip
NPZ = (
    *((f"type {kind}", {"x": X.astype(kind), "y": Y}, ROWS, kind == "f16") for kind in ("f4", ">f8", "i1", "u8", "f2", "f16")),
    ("Fortran's order", {"x": np.asfortranarray(X), "y": Y}, ROWS, False),
    ("truths", {"x": X % 2 > 0, "y": Y}, np.column_stack([X % 2 > 0, Y]), True),
    ("objects", {"x": X.astype(object), "y": Y}, None, False), ("complex", {"x": X + 0j, "y": Y}, None, False),
    ("dates", {"x": X.astype("M8[s]"), "y": Y}, None, False), ("texts", {"x": X.astype("U4"), "y": Y}, None, False),
    ("NaN", {"x": X * np.nan, "y": Y}, None, False), ("one number", {"x": np.float64(1), "y": Y}, None, False),
    ("other names", {"images": X, "labels": Y}, ROWS, False, ",x=images,y=labels"),
    ("names with blanks", {"my x": X, "y": Y}, ROWS, False, ",x=my x,y=y"), ("no rows", {"x": X[:0], "y": Y[:0]}, None, False),
    ("more arrays", {"x": X, "y": Y, "z": np.array(["a"])}, ROWS, False),
)  # fmt: skip


def picture(mode, value, form="PNG", size=8, **options):
    buffer = io.BytesIO()
    image = Image.new("RGB", (size, size), value) if mode == "P" else Image.new(mode, (size, size), value)
    (image.convert("P") if mode == "P" else image).save(buffer, form, **options)
    return buffer.getvalue()


def animated():
    buffer = io.BytesIO()
    Image.new("L", (8, 8), 100).save(buffer, "GIF", save_all=True, append_images=[Image.new("L", (8, 8), 200)])
    return buffer.getvalue()


def pixels(folder):
    """(the mean colour of the first training image, all words that were said)."""
    datasets.prepare("images:photos,size=8", folder)
    data = datasets.load("images:photos,size=8", folder)
    print(data.note)
    return np.asarray(data.train.x[0]).reshape(-1, 3).mean(axis=0).round(2).tolist(), len(data.train)


def coloured(expected, near, value, folder):
    return value[1] == 2 and bool(np.abs(np.array(value[0]) - expected).max() <= near)


def mentioned(word, value, folder):
    """Whether a line names what was not read, or all was read."""
    return value[1] == 3 or word in (folder.parent / "printed").read_text()


def image(label, name, content, check, refused=False):
    def make(folder):
        for place in ("train/a/0.png", "train/b/1.png", "test/a/0.png"):
            path = folder / "photos" / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(picture("RGB", (9, 9, 9)))
        if isinstance(check, partial) and check.func is coloured:
            (folder / "photos/train/a/0.png").unlink()
        path = folder / "photos/train/a" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)

    return Case("images", label, make, pixels, check, may_refuse=refused)


def grey(value, near=1):
    return partial(coloured, np.broadcast_to(value, 3), near)


IMAGES = (
    ("grey", "0.png", picture("L", 100), grey(100)), ("grey with transparency", "0.png", picture("LA", (100, 128)), grey(100)),
    ("black and white", "0.png", picture("1", 1), grey(255)),
    ("a palette", "0.png", picture("P", (10, 20, 30)), grey((10, 20, 30), 30)),
    ("colours with transparency", "0.png", picture("RGBA", (10, 20, 30, 40)), grey((10, 20, 30))),
    ("16 bits of grey", "0.png", picture("I;16", 20000), grey(78), True),
    ("16 bits of grey, dark", "0.png", picture("I;16", 200), grey(0.78), True),
    ("CMYK", "0.jpg", picture("CMYK", (0, 0, 0, 155), "JPEG"), grey(100, 4)),
    ("grey JPEG", "0.JPG", picture("L", 100, "JPEG"), grey(100, 2)),
    ("a progressive JPEG", "0.jpeg", picture("RGB", (100,) * 3, "JPEG", progressive=True), grey(100, 2)),
    ("an animation", "0.gif", animated(), grey(100, 3)), ("BMP", "0.bmp", picture("RGB", (10, 20, 30), "BMP"),
    grey((10, 20, 30))), ("WebP", "0.webp", picture("RGB", (10, 20, 30), "WEBP", lossless=True), grey((10, 20, 30))),
    ("another format than its ending", "0.jpg", picture("RGB", (10, 20, 30)), grey((10, 20, 30)), True),
    ("YCbCr", "0.jpg", picture("YCbCr", (100, 128, 128), "JPEG"), grey(100, 2)),
    ("a picture of 1 x 1", "0.png", picture("L", 100, size=1), grey(100)),
    *((f"an ending {ending}", f"9{ending}", picture(mode, 100, form), partial(mentioned, ending.lower().strip(".")),
    True) for ending, form, mode in ((".tif", "TIFF", "L"), (".TIFF", "TIFF", "L"), (".ppm", "PPM", "L"),
    (".jfif", "JPEG", "L"), (".avif.png.bak", "PNG", "L"), (".npy", "PNG", "L"), ("", "PNG", "L"))),
    ("a folder in a class", "more/9.png", picture("L", 100), partial(mentioned, "more"), True),
)  # fmt: skip


def written_npz(arrays):
    return zipped(**{f"{name}.npy": npy(value) for name, value in arrays.items()})


def cases():
    """All of them."""
    found = [table("text tables", label, "t.csv", content, right, *options, refused=refused) for label, content, right, refused,
        *options in TEXTS]  # fmt: skip
    found += [table("HDF5", label, "t.h5", content, right, *options, refused=refused) for label, content, right, refused,
        *options in HDF5]  # fmt: skip
    found += [table("NPZ", label, "t.npz", written_npz(arrays), right, *options, refused=refused) for label, arrays, right,
        refused, *options in NPZ]  # fmt: skip
    return found + [image(*row) for row in IMAGES]
