"""Data that is laid out like MNIST."""

import struct
from pathlib import Path

import numpy as np


def idx(array):
    """An array of bytes in the IDX format."""
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(np.uint8).tobytes()


def write_mnist(directory, **parts):
    """Write DIRECTORY/mnist. parts: (images, labels) of `train` and of `t10k`, which is for tests."""
    folder = Path(directory) / "mnist"
    folder.mkdir(parents=True)
    for prefix, (images, labels) in parts.items():
        (folder / f"{prefix}-images-idx3-ubyte").write_bytes(idx(images))
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(idx(labels))


def blocks(random, count):
    """(images, labels) that a network can learn: each image has a block of pixels at a place that its label says."""
    labels, images = random.integers(0, 10, count), random.integers(0, 30, (count, 28, 28))
    for image, label in zip(images, labels, strict=True):
        image[2 * label : 2 * label + 6, 5:20] = 255
    return images, labels
