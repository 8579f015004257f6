"""MNIST (LeCun, Cortes and Burges 1998): IDX files, plain or gzipped, in DIR/mnist or DIR."""

import hashlib
import io
import math
import struct
import zlib

import numpy as np

from gridgrad.datasets.files import download, find
from gridgrad.datasets.part import Dataset, Part

MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
CLASSES = 10
LARGEST = 64 << 20  # bytes of a file, unpacked; those published have 47 million
PIECE = 1 << 14  # bytes of a packed file that are unpacked at a time
# name: (MD5 of the published .gz, SHA-256 of its content, shape of its content)
FILES = {
    "train-images-idx3-ubyte": (
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        (60000, 28, 28),
    ),
    "train-labels-idx1-ubyte": (
        "d53e105ee54ea40749a09fcbcd1e9432",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        (60000,),
    ),
    "t10k-images-idx3-ubyte": (
        "9fb629c4189551a2d022fa330f9573f3",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        (10000, 28, 28),
    ),
    "t10k-labels-idx1-ubyte": (
        "ec29112dd5afa0611ce80d1b7f02629c",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        (10000,),
    ),
}


def locate(directory, name):
    """The file, gzipped or plain, or None."""
    return find([directory / "mnist", directory], [name + ".gz", name])


def prepare(directory):
    """Download what is missing, and check every file; by one process, before the others load."""
    for name, (md5, sha256, shape) in FILES.items():
        if not locate(directory, name):
            target = directory / "mnist" / (name + ".gz")
            download(MIRROR + target.name, f"md5:{md5}", target, "MNIST")
        path = locate(directory, name)
        content = read_bytes(path)
        array = parse_idx(path, content)
        if array.shape == shape and hashlib.sha256(content).hexdigest() != sha256:
            raise ValueError(f"{path}: the checksum differs from that of the published file; fetch it anew")
    load(directory, np.float32)


def load(directory, dtype, name="mnist"):
    """The Dataset: images of (28, 28, 1) pixels, standardised by the mean and deviation of all training pixels; labels 0 to 9.

    ValueError, naming the file, if one is not IDX, is cut short, or does not fit the others.
    """
    parts = {}
    moments = None
    for half, prefix in (("train", "train"), ("test", "t10k")):
        x_path, y_path = (locate(directory, f"{prefix}-{kind}") for kind in ("images-idx3-ubyte", "labels-idx1-ubyte"))
        if x_path is None or y_path is None:
            raise OSError(f"MNIST: no files {prefix}-* in {directory}; put them there, on every node")
        images, labels = (parse_idx(path, read_bytes(path)) for path in (x_path, y_path))
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
            raise ValueError(f"{x_path} holds {images.shape} and {y_path} {labels.shape}: not images and their labels")
        if not len(images):
            raise ValueError(f"{x_path} holds no images")
        if labels.max() >= CLASSES:
            raise ValueError(f"{y_path}: label {labels.max()} is not one of the digits 0 to 9")
        x = images[..., np.newaxis]
        if moments is None:
            std = np.std(x, dtype=np.float64)
            moments = np.mean(x, dtype=np.float64), std if std > 0 else np.float64(1)
        elif x.shape[1:] != parts["train"].sample_shape:
            raise ValueError(f"{x_path}: images of {images.shape[1:]}, unlike those to train on")
        parts[half] = Part(x, labels, *moments, dtype=dtype)
    return Dataset(name, parts["train"], parts["test"], "cross-entropy", CLASSES, "", classes=list("0123456789"))


def read_bytes(path):
    """The content of a file, unzipped if its name ends in .gz; ValueError if it is empty, damaged or too large."""
    if path.stat().st_size == 0:
        raise ValueError(f"{path}: the file is empty; fetch it anew")
    try:
        with open(path, "rb") as file:
            content = unpacked(file) if path.suffix == ".gz" else file.read(LARGEST + 1)
    except (EOFError, zlib.error) as error:
        raise ValueError(f"{path}: truncated or damaged gzip file ({error}); fetch it anew") from None
    if len(content) > LARGEST:
        raise ValueError(f"{path}: more than {LARGEST} bytes, larger than any published file; fetch it anew")
    return content


def unpacked(file):
    """The content of an open gzip file, but at most one byte more than LARGEST. EOFError or zlib.error if it is damaged.

    Python's gzip goes byte by byte through the zeros that may lie behind the content, and through the name in front of it.
    """
    found, unpack, packed = io.BytesIO(), None, b""
    while packed := packed or file.read(PIECE):
        if unpack is None and found.tell():
            packed = packed.lstrip(b"\0")
        if not packed:
            continue
        unpack = unpack or zlib.decompressobj(wbits=31)
        found.write(unpack.decompress(packed, LARGEST + 1 - found.tell()))
        if found.tell() > LARGEST:
            break
        packed, unpack = unpack.unused_data, None if unpack.eof else unpack
    if unpack is not None and found.tell() <= LARGEST:
        raise EOFError("it ends too early")
    return found.getvalue()


def parse_idx(path, content):
    """The array of unsigned bytes of an IDX file; ValueError for a wrong magic number or a wrong length.

    Two zero bytes, the type (8: unsigned byte), the number of dimensions, their sizes (big-endian), the data.
    """
    if len(content) < 4 or content[:3] != b"\0\0\x08" or not 1 <= content[3] <= 3:
        raise ValueError(f"{path}: wrong magic number {content[:4].hex()}: not an IDX file of unsigned bytes")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise ValueError(f"{path}: truncated within its header; fetch it anew")
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    if len(content) - start != math.prod(shape):
        found, promised = len(content) - start, math.prod(shape)
        raise ValueError(f"{path}: {found} bytes of data where its header promises {promised}: truncated or damaged")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
