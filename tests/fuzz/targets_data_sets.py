"""Targets: the published forms of the data sets, and folders of images."""

import gzip
import io
import struct
import zipfile
from functools import cache, partial
from pathlib import Path

import numpy as np
from PIL import Image

from gridgrad import datasets
from gridgrad.datasets import uci
from gridgrad.datasets.augment import Augment
from tests.datasets.test_cifar10 import published
from tests.fuzz.damage import damaged, damaged_text
from tests.fuzz.target import Target

IMAGES = "images:photos,size=8"


def used(data):
    """Take samples of both parts as a training program does."""
    for part in (data.train, data.test):
        indices, whole = np.arange(min(len(part), 5)), tuple(slice(0, length) for length in part.sample_shape)
        inputs, targets = part.inputs(indices, whole), part.targets(indices)
        assert len(inputs) == len(targets) == len(indices) and inputs.dtype == np.float32
        if len(part.sample_shape) == 3:
            Augment().inputs(part, indices, whole, 0)


def prepared(name, depth=0):
    """A reader that prepares and loads a data set. depth: of the file in the data directory."""

    def read(path):
        directory = path.parents[depth]
        datasets.prepare(name, directory)
        used(datasets.load(name, directory))

    return read


def idx(array):
    """An array of bytes as an IDX file."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


@cache
def digits():
    """{name: content} of the files of MNIST, with few and small images."""
    random = np.random.default_rng(0)
    found = {}
    for half, count in (("train", 9), ("t10k", 6)):
        found[f"{half}-images-idx3-ubyte"] = idx(random.integers(0, 256, (count, 5, 4), np.uint8))
        found[f"{half}-labels-idx1-ubyte"] = idx(random.integers(0, 10, count, np.uint8))
    return found


def around_digits(folder, besides):
    for name, content in digits().items():
        if name != besides:
            (folder / name).write_bytes(content)


def mnist(name, ending="", packed=bytes, examples=tuple):
    """A Target of one of the files of MNIST."""
    return Target(
        f"mnist {name.split('-')[1]}{ending}", lambda: (packed(digits()[name]),), damaged, prepared("mnist"),
        f"{name}{ending}", partial(around_digits, besides=name), examples=examples,
    )  # fmt: skip


def batch(ending):
    """A file of CIFAR-10 of two images, in the binary form or as a pickle."""
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3072), np.uint8)
    if ending:
        return np.column_stack([np.array([3, 9], np.uint8), pixels]).tobytes()
    return published(pixels, (3, 9))


def cifar10(what, folder, ending):
    """A Target of one of the files of CIFAR-10."""
    names = [f"data_batch_{number}{ending}" for number in range(1, 6)] + [f"test_batch{ending}"]

    def around(directory):
        (directory / folder).mkdir()
        for name in names:
            (directory / folder / name).write_bytes(batch(ending))

    read = prepared("cifar10", depth=1)
    return Target(f"cifar10 {what}", lambda: (batch(ending),), damaged, read, f"{folder}/{names[2]}", around)


@cache
def own_copy():
    """The text of the airfoil that comes with the project."""
    return Path(uci.__file__).with_name(uci.AIRFOIL).read_bytes()


@cache
def gas_rows(count=30):
    """The beginning of the text of the gas sensors."""
    numbers = np.random.default_rng(0).normal(100, 5, (count, uci.COLUMNS)).round(2)
    return ("Time, Methane, Ethylene, sensors\n" + "\n".join(" ".join(map(str, row)) for row in numbers) + "\n").encode()


@cache
def zipped():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("readme.txt", "About the sensors.")
        file.writestr(uci.ETHYLENE, gas_rows())
    return buffer.getvalue()


def picture(form, **options):
    buffer = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (11, 13, 3), np.uint8)
    Image.fromarray(pixels).convert(options.pop("mode", "RGB")).save(buffer, form, **options)
    return buffer.getvalue()


@cache
def pictures():
    """An image in each of the formats, and some of their variants."""
    options = {"quality": 90}, {"progressive": True}, {"mode": "L"}, {"mode": "CMYK"}
    found = [picture("JPEG", **some) for some in options]
    found += [picture("PNG"), picture("PNG", mode="P"), picture("PNG", mode="I;16"), picture("BMP"), picture("GIF", mode="P")]
    return (*found, picture("WEBP"), picture("WEBP", lossless=True))


def around_pictures(folder):
    for name in ("train/a/0.png", "train/b/0.png", "test/a/0.png"):
        path = folder / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pictures()[4])


def bomb():
    """A gzip file of less than 2 MB that unpacks to 1.5 GiB of zeros: many archives, one after another."""
    return gzip.compress(bytes(1 << 26), 9, mtime=0) * 24


def other_zips():
    """Archives that say of all files in them that they are encrypted, or packed in a way that nobody knows."""
    found = []
    for offset, value in (
        (6, b"\1\0"),
        (8, b"\x63\0"),
    ):  # of an entry before its file; in the table at the end it is 2 further on
        content = zipped()
        for mark, further in ((b"PK\3\4", 0), (b"PK\1\2", 2)):
            parts = content.split(mark)
            at = offset + further - len(mark)
            content = mark.join([parts[0], *(part[:at] + value + part[at + 2 :] for part in parts[1:])])
        found.append(content)
    return found


ZIP = "ethylene/ethylene.zip"
TARGETS = (
    mnist("train-images-idx3-ubyte"),
    mnist("t10k-labels-idx1-ubyte"),
    mnist("t10k-images-idx3-ubyte", ".gz", partial(gzip.compress, mtime=0), lambda: (bomb(),)),
    cifar10("records", "cifar-10-batches-bin", ".bin"),
    cifar10("pickle", "cifar-10-batches-py", ""),
    Target("airfoil text", lambda: (own_copy(),), damaged_text, prepared("airfoil"), uci.AIRFOIL),
    Target("ethylene text", lambda: (gas_rows(),), damaged_text, prepared("ethylene"), uci.ETHYLENE),
    Target("ethylene zip", lambda: (zipped(),), damaged, prepared("ethylene", depth=1), ZIP, says=(uci.ETHYLENE,),
           examples=other_zips),
    Target("image files", pictures, damaged, prepared(IMAGES, depth=3), "photos/train/a/1.jpg", around_pictures),
)  # fmt: skip
