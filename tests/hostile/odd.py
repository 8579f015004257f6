"""What people have: tables, arrays and images that are not as usual, each with what is right: its numbers, or a refusal.

What NumPy, h5py and Pillow can read is read by them too, and must be the same.
"""

import io
from functools import partial

import h5py
import numpy as np
from PIL import Image

from gridgrad import datasets
from tests.fuzz.targets_table import written
from tests.hostile.case import Case, said

X = np.column_stack([np.arange(12), 2 * np.arange(12) + 1]).astype(float)
Y = np.arange(12) / 8 + 0.25
ROWS = np.column_stack([X, Y])
RIGHT, EITHER, REFUSED = "these numbers", "these numbers, or a refusal", "a refusal"


def found(name, folder):
    """All samples with their targets, as rows in the units of the file."""
    datasets.prepare(name, folder)
    data, rows = datasets.load(name, folder, np.float64), []
    for part in (data.train, data.test):
        every = np.arange(len(part))
        inputs = part.inputs(every, tuple(slice(0, length) for length in part.sample_shape)) * part.x_std + part.x_mean
        rows.append(np.column_stack([inputs.reshape(len(part), -1), part.unstandardise(part.targets(every))]))
    return np.concatenate(rows)


def same(expected, rows, folder):
    """Whether these are the rows, in any order; where a library reads the file, its rows are expected."""
    for path in folder.glob("t.*"):
        if path.suffix != ".csv":
            with (h5py.File if path.suffix == ".h5" else np.load)(path) as file:
                expected = np.column_stack([np.asarray(file["x"], float).reshape(len(Y), -1), file["y"]])
    if rows.shape != expected.shape:
        return False
    rows, wanted = (one[np.lexsort(one.round(6).T)] for one in (rows, expected))
    return bool(np.allclose(rows, wanted, rtol=1e-6, atol=1e-6))


def table(file, answer, label, content):
    """A Case. content: bytes, or a maker of the file at a path. answer: RIGHT, EITHER or REFUSED."""

    def make(folder):
        content(folder / file) if callable(content) else (folder / file).write_bytes(content)

    name, check = f"table:{file}{'' if file == 't.csv' else ',x=x,y=y'}", None if answer == REFUSED else partial(same, ROWS)
    return Case(f"tables: {file[2:]}", label, make, partial(found, name), check, may_refuse=answer != RIGHT)


def text(mark=",", head="a,b,y", end="\n", word=repr):
    lines = [head.replace(",", mark)] * bool(head) + [mark.join(map(word, row)) for row in ROWS.tolist()]
    return (end.join(lines) + end).encode()


def once(word, of=b"3.0", head="a,b,y"):
    """A table in which one number is something else."""
    return text(head=head).replace(of, word.encode(), 1)


USUAL, FIRST = text(), text(head="")
WORDS = ("?", "NA", "", "12%", "-", "nan", "inf", "2023_1", "0x10", "1 000", "True", "2020-01-01", "1.2.3", "--1", "red",
    "=1+2", "1e300", "1e999", "\0")  # fmt: skip # which are no numbers
TEXTS = {
    RIGHT: {
        **{f"'{mark}' between": text(mark) for mark in ";\t, "}, "no names": FIRST, "umlauts": text(head="ä,ö,ß"),
        "spaces": text("   ", "a,b,y"), "a comment of names": text(" ", "# a b y"), "Windows' line ends": text(end="\r\n"),
        "a mark of UTF-8": b"\xef\xbb\xbf" + USUAL, "quoted names with commas": USUAL.replace(b"a,b", b'"a, m/s",b'),
        "quoted numbers": text(word=lambda value: f'"{value}"'), "blanks around": text(word=lambda value: f"  {value} "),
        "empty lines at the end": USUAL + b"\n\n\n", "no end of the last line": USUAL.rstrip(),
        "signs and bare points": text(word=lambda value: f"+{value:g}" if value % 1 else f"{value:g}."),
        "powers of ten": text(word=lambda value: f"{value:.9E}"), "UTF-16": USUAL.decode().encode("utf-16"),
        "Fortran's powers of ten": text(word=lambda value: f"{value:.9E}".replace("E", "D")),
    },
    EITHER: {
        "'|' between": text("|"), "line ends of old Macs": text(end="\r"),
        "Latin-1": text(head="\xe4,b,y").decode().encode("latin-1"), "empty lines between": USUAL.replace(b"\n", b"\n\n"),
        "a title above": b"my table\n" + USUAL, "years as names": text(head="2019,2020,2021"), "first empty": b"\n" + USUAL,
        "two equal names": text(head="a,a,y"), "decimal commas": text(";", word=lambda value: repr(value).replace(".", ",")),
        "digits of another script": once("٣"),
        "a comma at each end": text(head="a,b,y,").replace(b"\n", b",\n").replace(b",,\n", b",\n"),
    },
    REFUSED: {
        **{f"{word!a} in the first row": once(word, b"0.0", "") for word in (*WORDS[:5], "null", "1,5e")}, "nothing": b"",
        **{f"{word!a} in a row": once(word) for word in WORDS}, "one row": b"a,b,y\n1,2,3\n", "names alone": b"a,b,y\n",
        "thousands with commas": text(word=lambda value: f'"{value + 1000:,}"'), "one column": b"y\n1.5\n2\n3\n",
        "two lines of names": b"a,b,y\nm,s,kg\n" + FIRST, "a short row": USUAL + b"1,2\n", "a long row": USUAL + b"1,2,3,4\n",
        "a comment between": USUAL + b"# end\n", "blank but for names": b"a,b,y\n" + b" \n" * 9, "only a mark": b"\xef\xbb\xbf",
    },
}  # fmt: skip


def hdf5(x=X, y=Y):
    def make(path):
        with h5py.File(path, "w", libver="v110") as file:
            file["y"], file["more"] = y, np.ones(999)
            x(file) if callable(x) else file.create_dataset("x", data=x)

    return make


def stored(data=X, **options):
    return hdf5(lambda file: file.create_dataset("x", data=data, **options))


def own_type(base, change, memory="f8"):
    """A dataset of a type that NumPy does not have; the library converts the numbers on their way."""

    def make(file):
        change(kind := base.copy())
        data = h5py.h5d.create(file.id, b"x", kind, h5py.h5s.create_simple(X.shape))
        data.write(h5py.h5s.ALL, h5py.h5s.ALL, np.ascontiguousarray(X, memory))

    return hdf5(make)


def bits(count, offset=0):
    return lambda kind: (kind.set_precision(count), kind.set_offset(offset))


HDF5 = {
    RIGHT: {
        **{f"type {kind}": hdf5(X.astype(kind)) for kind in ("f4", ">f8", "i1", ">i4", "u2", "u8", "f2")},
        "chunks": stored(chunks=(5, 1)), "packed": stored(compression="gzip", shuffle=True, fletcher32=True),
        "rows of 1 x 2 x 1": hdf5(X.reshape(12, 1, 2, 1)),
    },
    EITHER: {
        "type f16": hdf5(X.astype(np.longdouble)), "truths": hdf5(X % 2 > 0), "a column of targets": hdf5(y=Y[:, None]),
        "12 bits in 16": own_type(h5py.h5t.STD_U16LE, bits(12), "u2"),
        "bfloat16": own_type(h5py.h5t.IEEE_F16LE, lambda kind: (kind.set_fields(15, 7, 8, 0, 7), kind.set_ebias(127))),
        "12 bits on the left": own_type(h5py.h5t.STD_U16LE, bits(12, 4), "u2"),
        "12 signed bits": own_type(h5py.h5t.STD_I16LE, bits(12), "i2"),
        "scale and offset": stored(X.astype("i4"), scaleoffset=0),
        "an enumeration": stored(X.astype("i4"), dtype=h5py.enum_dtype({"A": 1})),
        "never written": hdf5(lambda file: file.create_dataset("x", (12, 2), "f8", fillvalue=3)),
    },
    REFUSED: {
        "complex": hdf5(X + 0j), "texts": hdf5(X.astype("S4")), "records": hdf5(np.zeros(12, [("a", "f4")])),
        "no rows": hdf5(X[:0], Y[:0]), "fewer targets": hdf5(y=Y[:11]), "NaN": hdf5(X * np.nan), "one row": hdf5(X[:1], Y[:1]),
        "one number": hdf5(np.float64(1)),
    },
}  # fmt: skip


def npz(x=X, y=Y, save=np.savez, **more):
    return written(save, x=x, y=y, **more)


NPZ = {
    RIGHT: {
        **{f"type {kind}": npz(X.astype(kind)) for kind in ("f4", ">f8", "i1", "u8", "f2")},
        "Fortran's order": npz(np.asfortranarray(X)), "more arrays": npz(z=np.array(["a"])),
        "packed": npz(save=np.savez_compressed),
    },
    EITHER: {
        "type f16": npz(X.astype("f16")), "truths": npz(X % 2 > 0),
    },
    REFUSED: {
        "objects": npz(X.astype(object)), "complex": npz(X + 0j), "dates": npz(X.astype("M8[s]")), "texts": npz(X.astype("U4")),
        "NaN": npz(X * np.nan), "one number": npz(np.float64(1)), "no rows": npz(X[:0], Y[:0]),
        "rows of nothing": npz(X[:, :0]),
    },
}  # fmt: skip


def picture(mode, value, form="PNG", size=8, **options):
    image = Image.new(mode, (size, size), value)
    return written(lambda file, one: one.save(file, form, **options), image)


def pixels(folder):
    """(the mean colour of the first training image, how many images there are)."""
    datasets.prepare("images:photos,size=8", folder)
    data = datasets.load("images:photos,size=8", folder)
    print(data.note)
    return np.asarray(data.train.x[0]).reshape(-1, 3).mean(axis=0).round(2).tolist(), len(data.train)


def image(name, content, label, near=1, grey=None):
    """A Case of an image that is the first one, and must have what Pillow finds; or, of another name, be mentioned.

    near: how far it may be off. grey: its level, where Pillow cuts it off.
    """
    first = name.startswith("0.")

    def make(folder):
        for place in (*["train/a/0.png"] * (not first), "train/b/1.png", "test/a/0.png", f"train/a/{name}"):
            path = folder / "photos" / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if place.endswith(f"train/a/{name}") else picture("RGB", 9))

    def right(value, folder):
        if not first:  # a line names what was not read, or all was read
            return value[1] == 3 or ("more" if "/" in name else name.rpartition(".")[2].lower()) in said(folder)
        colours = np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).reshape(-1, 3)
        expected = colours.mean(axis=0) if grey is None else grey
        return value[1] == 2 and bool(np.abs(np.array(value[0]) - expected).max() <= near)

    return Case("folders of images", label, make, pixels, right, may_refuse=not first)


COLOUR = (10, 20, 30)
(TURNED := Image.Exif())[274] = 6  # which says that the picture is to be turned
IMAGES = (
    ("0.png", picture("L", 100), "grey"), ("0.png", picture("LA", (100, 128)), "transparent grey"),
    ("0.png", picture("1", 1), "1 bit"), ("0.png", picture("RGBA", (*COLOUR, 40)), "transparent colours"),
    ("0.png", picture("L", 100, exif=TURNED), "turned by EXIF"), ("0.png", picture("I;16", 20000), "16 bits", 1, 78),
    ("0.png", picture("I;16", 200), "dark, 16 bits", 1, 0.78), ("0.png", picture("P", 9), "a palette"),
    ("0.png", picture("L", 100, size=1), "1 x 1"), ("0.bmp", picture("RGB", COLOUR, "BMP"), "BMP"),
    ("0.jpg", picture("CMYK", (0, 0, 0, 155), "JPEG"), "CMYK", 4), ("0.tif", picture("RGB", COLOUR, "TIFF"), "TIFF"),
    ("0.JPG", picture("L", 100, "JPEG", progressive=True), "grey JPEG", 2), ("9.jfif", picture("L", 100, "JPEG"), "JFIF"),
    ("0.gif", picture("L", 100, "GIF", save_all=True, append_images=[Image.new("L", (8, 8), 200)]), "an animation", 3),
    ("0.webp", picture("RGB", COLOUR, "WEBP", lossless=True), "WebP"), ("9.png.bak", picture("L", 100), "BAK"),
    ("0.jpg", picture("RGB", COLOUR), "another format than its ending"), ("more/9.png", picture("L", 100), "a folder"),
    ("0.tif", picture("I;16", 20000, "TIFF"), "16 bits of TIFF", 1, 78),
)  # fmt: skip


def cases():
    """All of them."""
    for file, answers in (("t.csv", TEXTS), ("t.h5", HDF5), ("t.npz", NPZ)):
        yield from (table(file, answer, *row) for answer, rows in answers.items() for row in rows.items())
    yield from (image(*row) for row in IMAGES)
