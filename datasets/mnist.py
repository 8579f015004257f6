"""MNIST (LeCun, Cortes and Burges 1998) and Fashion-MNIST (Xiao, Rasul and Vollgraf 2017): IDX files, plain or gzipped.

They lie in DIR/mnist or DIR, and in DIR/fashion-mnist; or as torchvision puts them, in DIR/MNIST/raw and DIR/FashionMNIST/raw.
"""

import gzip
import hashlib
import math
import struct
import zlib

import numpy as np

from gridgrad.datasets.files import download, find
from gridgrad.datasets.part import Dataset, Part

SOURCES = {
    "mnist": "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "fashion-mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
}
FOLDERS = {"mnist": ("mnist", ".", "MNIST/raw"), "fashion-mnist": ("fashion-mnist", "FashionMNIST/raw")}
CLASSES = {
    "mnist": list("0123456789"),
    "fashion-mnist": ["T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"],
}
LARGEST = 64 << 20  # bytes of a file, unpacked; those published have 47 million
LENGTHS = {"train": 60_000, "t10k": 10_000}  # of the published files
FILES = "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
PACKED = {  # MD5 of the published FILES, gzipped
    "mnist": ("f68b3c2dcbeaaa9fbdd348bbdeb94873", "d53e105ee54ea40749a09fcbcd1e9432",
              "9fb629c4189551a2d022fa330f9573f3", "ec29112dd5afa0611ce80d1b7f02629c"),
    "fashion-mnist": ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "25c81989df183df01b3e8a0aad5dffbe",
                      "bef4ecab320f06d8554ea6380940ec79", "bb300cfdad3c16e7a12a480ee83cd310"),
}  # fmt: skip
PLAIN = {  # SHA-256 of what is in them, as far as it is known
    "mnist": ("ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
              "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
              "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
              "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
    "fashion-mnist": (None, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                      None, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
}  # fmt: skip


def locate(directory, file, name="mnist"):
    """The file, gzipped or plain, also as some programs unpack it, with a dot in its name; or None."""
    dotted = file.replace("-idx", ".idx")
    return find([directory / folder for folder in FOLDERS[name]], [file + ".gz", file, dotted, dotted + ".gz"])


def prepare(directory, name):
    """Download what is missing, and check every file."""
    for file, md5, sha256 in zip(FILES, PACKED[name], PLAIN[name]):
        if not (path := locate(directory, file, name)):
            path = directory / name / (file + ".gz")
            download(SOURCES[name] + path.name, f"md5:{md5}", path, name)
        content = read_bytes(path)
        if len(parse_idx(path, content)) == LENGTHS[file.partition("-")[0]]:
            if sha256:
                is_published = hashlib.sha256(content).hexdigest() == sha256
            else:
                is_published = path.suffix != ".gz" or hashlib.md5(path.read_bytes()).hexdigest() == md5
            if not is_published:
                raise ValueError(f"{path}: the checksum differs from that of the published file; fetch it anew")
    load(directory, np.float32, name)


def load(directory, dtype, name):
    """The Dataset: images of (28, 28, 1) pixels, standardised by the moments of all training pixels; labels 0 to 9."""
    parts, moments = [], None
    for half in LENGTHS:
        x_path, y_path = (locate(directory, file, name) for file in FILES if file.startswith(half))
        if x_path is None or y_path is None:
            raise OSError(f"{name}: no files {half}-* in {directory}; put them there, on every node")
        images, labels = (parse_idx(path, read_bytes(path)) for path in (x_path, y_path))
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
            raise ValueError(f"{x_path} holds {images.shape} and {y_path} {labels.shape}: not images and their labels")
        if not len(images):
            raise ValueError(f"{x_path} holds no images")
        if labels.max() >= len(CLASSES[name]):
            raise ValueError(f"{y_path}: label {labels.max()} is not one of 0 to 9")
        x = images[..., np.newaxis]
        if parts and x.shape[1:] != parts[0].sample_shape:
            raise ValueError(f"{x_path}: images of {images.shape[1:]}, unlike those to train on")
        moments = moments or (np.mean(x, dtype=np.float64), np.std(x, dtype=np.float64) or np.float64(1))
        parts.append(Part(x, labels, *moments, dtype=dtype))
    return Dataset(name, *parts, "cross-entropy", len(CLASSES[name]), "", classes=CLASSES[name])


def read_bytes(path):
    """The content of a file, unzipped if its name ends in .gz; ValueError if it is empty, damaged or too large."""
    if path.stat().st_size == 0:
        raise ValueError(f"{path}: the file is empty; fetch it anew")
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            content = file.read(LARGEST + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: truncated or damaged gzip file ({error}); fetch it anew") from None
    if len(content) > LARGEST:
        raise ValueError(f"{path}: more than {LARGEST} bytes, larger than any published file; fetch it anew")
    return content


def parse_idx(path, content):
    """The array in an IDX file: two zeros, the type (8), the number of dimensions, their sizes, the data."""
    if len(content) < 4 or content[:3] != b"\0\0\x08" or not 1 <= content[3] <= 3:
        raise ValueError(f"{path}: wrong magic number {content[:4].hex()}: not an IDX file of unsigned bytes")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise ValueError(f"{path}: truncated within its header; fetch it anew")
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    if (found := len(content) - start) != math.prod(shape):
        raise ValueError(f"{path}: {found} bytes of data where its header promises {math.prod(shape)}: truncated or damaged")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
