"""Targets: the published forms of the data sets, folders of images and tables of one's own."""

import gzip
import io
import struct
import tempfile
import zipfile
from functools import cache, partial
from pathlib import Path

import h5py
import numpy as np
from PIL import Image

from gridgrad import datasets
from gridgrad.datasets import uci
from gridgrad.datasets.augment import Augment
from tests.datasets.test_cifar10 import published
from tests.fuzz.damage import damaged, damaged_text
from tests.fuzz.damage_hdf5 import damaged_hdf5
from tests.fuzz.target import Target

IMAGES = "images:photos,size=8"
RANDOM = np.random.default_rng(0)
X, LABELS = RANDOM.normal(size=(12, 3)).round(3), RANDOM.permutation(np.arange(12) % 3)
PIXELS = RANDOM.integers(0, 256, (11, 32, 32, 3), np.uint8)


def once(make, *arguments):
    """A function to a tuple: what `make` returns, or a tuple of that; it is made when it is needed."""

    @cache
    def made():
        found = make(*arguments)
        return found if isinstance(found, tuple) else (found,)

    return made


def written(save, *arrays, **named):
    """What is written to a file, as bytes."""
    buffer = io.BytesIO()
    save(buffer, *arrays, **named)
    return buffer.getvalue()


def at_path(write):
    """The bytes that `write` writes to a path."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "made.h5")
        return (Path(folder) / "made.h5").read_bytes()


def used(data):
    """Take samples of both parts as a training program does."""
    for part in (data.train, data.test):
        indices, whole = np.arange(min(len(part), 5)), tuple(slice(0, length) for length in part.sample_shape)
        inputs, targets = part.inputs(indices, whole), part.targets(indices)
        assert len(inputs) == len(targets) == len(indices) and inputs.dtype == np.float32
        if len(part.sample_shape) == 3:
            Augment().inputs(part, indices, whole, 0)


def prepared(name, depth=0):
    """A reader that prepares and loads a data set. depth: of the file in that folder."""

    def read(path):
        datasets.prepare(name, path.parents[depth])
        used(datasets.load(name, path.parents[depth]))

    return read


def beside(contents, folder):
    """Write files, {path: content}, into a folder."""
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def idx(array):
    """An array of bytes as an IDX file."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


DIGITS = {
    f"{half}-{name}": idx(array[:count])
    for half, count in (("train", 9), ("t10k", 6))
    for name, array in (("images-idx3-ubyte", PIXELS[:, :5, :4, 0]), ("labels-idx1-ubyte", LABELS.astype(np.uint8)))
}


def mnist(name, ending="", packed=bytes):
    """A Target of one of the files of MNIST."""
    others = {other: content for other, content in DIGITS.items() if other != name}
    return Target(f"mnist {name.split('-')[1]}{ending}", once(packed, DIGITS[name]), damaged, prepared("mnist"),
                  f"{name}{ending}", partial(beside, others))  # fmt: skip


def of_cifar10(what, folder, ending, content):
    """A Target of one of the files of CIFAR-10, each of two images."""
    names = [f"{folder}/data_batch_{number}{ending}" for number in range(1, 6)] + [f"{folder}/test_batch{ending}"]
    around = partial(beside, dict.fromkeys(names, content))
    return Target(f"cifar10 {what}", lambda: (content,), damaged, prepared("cifar10", depth=1), names[2], around)


def gas_rows(count=30):
    """The beginning of the text of the gas sensors."""
    rows = np.random.default_rng(0).normal(100, 5, (count, uci.COLUMNS)).round(2)
    return ("Time, Methane, Ethylene, sensors\n" + "\n".join(" ".join(map(str, row)) for row in rows) + "\n").encode()


def zipped():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("readme.txt", "About the sensors.")
        file.writestr(uci.ETHYLENE, gas_rows())
    return buffer.getvalue()


def pictures():
    """An image in each of the formats, and some of their variants."""
    forms = (
        ("JPEG", "RGB", {}), ("JPEG", "L", {"progressive": True}), ("JPEG", "CMYK", {}), ("PNG", "RGB", {}), ("PNG", "P", {}),
        ("PNG", "I;16", {}), ("BMP", "RGB", {}), ("GIF", "P", {}), ("WEBP", "RGB", {}), ("WEBP", "RGB", {"lossless": True}),
    )  # fmt: skip
    image = Image.fromarray(PIXELS[0, :11, :13])
    return tuple(written(image.convert(mode).save, form, **options) for form, mode, options in forms)


def around_pictures(folder):
    content = written(Image.fromarray(PIXELS[0]).save, "PNG")
    beside({f"photos/{name}": content for name in ("train/a/0.png", "train/b/0.png", "test/a/0.png")}, folder)


def texts():
    """Tables with different marks between the numbers."""
    rows = np.column_stack([X, LABELS]).tolist()
    heads = (",", "a,b,c,kind\n"), (";", '"a";"b";"c, d";kind\n'), ("\t", ""), (" ", "# a b c kind\n")
    return tuple((head + "\n".join(mark.join(map(repr, row)) for row in rows)).encode() for mark, head in heads)


def npy_files():
    whole = np.column_stack([X, LABELS])
    return tuple(written(np.save, array) for array in (whole, np.asfortranarray(whole), whole.astype(">f4")))


def npz_files():
    plain = written(np.savez, x=X, y=LABELS, names=np.array(["a", "b"]))
    return plain, written(np.savez_compressed, x=X, y=LABELS), written(np.savez, x=np.asfortranarray(X), y=LABELS)


def hdf5_files():
    found = []
    for options in ({}, {"chunks": (5, 2), "compression": "gzip"}):
        buffer = io.BytesIO()
        with h5py.File(buffer, "w", libver="v110") as file:
            file.create_dataset("x", data=X, **options)
            file["y"] = LABELS
        found.append(buffer.getvalue())
    return tuple(found)


def in_hdf5(name, write, read, file):
    return Target(name, once(at_path, write), damaged_hdf5, read, file)


RECORDS = np.column_stack([[3, 9], PIXELS[:2].reshape(2, -1)]).astype(np.uint8).tobytes()
TARGETS = (
    mnist("train-images-idx3-ubyte"),
    mnist("t10k-images-idx3-ubyte", ".gz", partial(gzip.compress, mtime=0)),
    of_cifar10("records", "cifar-10-batches-bin", ".bin", RECORDS),
    of_cifar10("pickle", "cifar-10-batches-py", "", published(PIXELS[:2].reshape(2, -1), (3, 9))),
    Target("airfoil text", once(Path(uci.__file__).with_name(uci.AIRFOIL).read_bytes), damaged_text, prepared("airfoil"),
           uci.AIRFOIL),
    Target("ethylene text", once(gas_rows), damaged_text, prepared("ethylene"), uci.ETHYLENE),
    Target("ethylene zip", once(zipped), damaged, prepared("ethylene", depth=1), "ethylene/ethylene.zip", says=(uci.ETHYLENE,)),
    Target("image files", once(pictures), damaged, prepared(IMAGES, depth=3), "photos/train/a/1.jpg", around_pictures),
    Target("table csv", once(texts), damaged_text, prepared("table:mine.csv"), "mine.csv"),
    Target("table npy", once(npy_files), damaged, prepared("table:mine.npy"), "mine.npy"),
    Target("table npz", once(npz_files), damaged, prepared("table:mine.npz"), "mine.npz"),
    Target("table hdf5", once(hdf5_files), damaged_hdf5, prepared("table:mine.h5"), "mine.h5"),
)  # fmt: skip
