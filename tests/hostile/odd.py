"""What people have: tables, arrays and images that are not as usual, each with what is right: its numbers, or a refusal.

An image must have the colours that Pillow finds.
"""

import io
from functools import partial

import numpy as np
from PIL import Image

from gridgrad import datasets
from tests.fuzz.targets_data import beside, written
from tests.hostile.case import Case

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


def same(rows, folder):
    """Whether these are the rows, in any order."""
    rows, wanted = (one[np.lexsort(one.round(6).T)] for one in (rows, ROWS))
    return rows.shape == wanted.shape and bool(np.allclose(rows, wanted, rtol=1e-6, atol=1e-6))


def table(answer, label, content):
    """A Case of a text. content: bytes. answer: RIGHT, EITHER or REFUSED."""
    right = None if answer == REFUSED else same
    read = partial(found, "table:t.csv")
    return Case("tables", label, partial(beside, {"t.csv": content}), read, right, may_refuse=answer != RIGHT)


def text(mark=",", head="a,b,y", end="\n", word=repr):
    lines = [head.replace(",", mark)] * bool(head) + [mark.join(map(word, row)) for row in ROWS.tolist()]
    return (end.join(lines) + end).encode()


def once(word, of=b"3.0", head="a,b,y"):
    """A table in which one number is something else."""
    return text(head=head).replace(of, word.encode(), 1)


USUAL, FIRST = text(), text(head="")
WORDS = "NA", "", "nan", "2023_1", "2020-01-01", "1e999", "\0"  # which are no numbers
TEXTS = {
    RIGHT: {
        **{f"'{mark}' between": text(mark) for mark in ";\t "}, "no names": FIRST, "umlauts": text(head="ä,ö,ß"),
        "a comment of names": text(" ", "# a b y"), "Windows' line ends": text(end="\r\n"),
        "a mark of UTF-8": b"\xef\xbb\xbf" + USUAL, "quoted names with commas": USUAL.replace(b"a,b", b'"a, m/s",b'),
        "quoted numbers": text(word=lambda value: f'"{value}"'), "blanks around": text(word=lambda value: f"  {value} "),
        "no end of the last line": USUAL.rstrip(), "empty lines at the end": USUAL + b"\n\n\n",
        "UTF-16": USUAL.decode().encode("utf-16"),
        "Fortran's powers of ten": text(word=lambda value: f"{value:.9E}".replace("E", "D")),
    },
    EITHER: {
        "line ends of old Macs": text(end="\r"), "Latin-1": text(head="\xe4,b,y").decode().encode("latin-1"),
        "empty lines between": USUAL.replace(b"\n", b"\n\n"), "a title above": b"my table\n" + USUAL,
        "two equal names": text(head="a,a,y"), "decimal commas": text(";", word=lambda value: repr(value).replace(".", ",")),
    },
    REFUSED: {
        **{f"{word!a} in a row": once(word) for word in WORDS}, "'NA' in the first row": once("NA", b"0.0", ""),
        "thousands with commas": text(word=lambda value: f'"{value + 1000:,}"'), "two heads": b"a,b,y\nm,s,kg\n" + FIRST,
    },
}  # fmt: skip


def picture(mode, value, form="PNG", size=8, **options):
    return written(lambda file, image: image.save(file, form, **options), Image.new(mode, (size, size), value))


def pixels(folder):
    """(the mean colour of the first training image, how many images there are)."""
    datasets.prepare("images:photos,size=8", folder)
    data = datasets.load("images:photos,size=8", folder)
    return np.asarray(data.train.x[0]).reshape(-1, 3).mean(axis=0), len(data.train)


def image(name, label, content, near=1, grey=None):
    """A Case of an image that must have what Pillow finds. near: how far it may be off. grey: its level, where Pillow cuts."""
    colours = np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).reshape(-1, 3)
    expected = colours.mean(axis=0) if grey is None else grey
    plain = picture("RGB", 9)
    files = {f"photos/train/a/{name}": content, "photos/train/b/1.png": plain, "photos/test/a/0.png": plain}

    def right(value, folder):
        return value[1] == 2 and bool(np.abs(value[0] - expected).max() <= near)

    return Case("folders of images", label, partial(beside, files), pixels, right, may_refuse=False)


COLOUR = (10, 20, 30)
(TURNED := Image.Exif())[274] = 6  # which says that the picture is to be turned
FRAMES = {"save_all": True, "append_images": [Image.new("L", (8, 8), 200)]}
IMAGES = (
    ("0.png", "transparent colours", picture("RGBA", (*COLOUR, 40))), ("0.png", "a palette", picture("P", 9)),
    ("0.png", "turned by EXIF", picture("L", 100, exif=TURNED)), ("0.png", "16 bits", picture("I;16", 20000), 1, 78),
    ("0.png", "dark, 16 bits", picture("I;16", 200), 1, 0.78), ("0.png", "1 x 1", picture("L", 100, size=1)),
    ("0.jpg", "CMYK", picture("CMYK", (0, 0, 0, 155), "JPEG"), 4), ("0.gif", "frames", picture("L", 100, "GIF", **FRAMES), 3),
    ("0.jpg", "another format than its ending", picture("RGB", COLOUR)), ("0.tif", "TIFF", picture("RGB", COLOUR, "TIFF")),
)  # fmt: skip


def cases():
    """All of them."""
    yield from (table(answer, *row) for answer, rows in TEXTS.items() for row in rows.items())
    yield from (image(*row) for row in IMAGES)
