"""Images to be freed of noise: quarters of those of CIFAR-10 in grey, with Gaussian noise, and without it as the target.

A quarter has 16 x 16 pixels. The noise has a deviation of 30 grey levels of 255, which is one of the usual ones, and is drawn
once for each quarter. The noisy grey levels are rounded and cut off at 0 and 255, like those of a camera, and stored as bytes.
"""

import numpy as np

from gridgrad.datasets import cifar10, rows
from gridgrad.datasets.labelled import ChannelMoments
from gridgrad.datasets.part import regression

SIDE, PIXELS = 16, 16 * 16  # of a quarter
NOISE = 30  # grey levels
CHUNK = 4000  # the quarters that are converted at a time


def prepare(directory):
    """Convert CIFAR-10, once, and download it if need be; by one process, before the others load."""
    cifar10.prepare(directory)
    target = converted(directory)
    source = f"{rows.attributes(cifar10.converted(directory)).get('source')}, noise {NOISE}, side {SIDE}"
    if rows.is_current(target, source):
        return
    data, random = cifar10.load(directory, np.float32), np.random.default_rng(0)
    moments = {"x": ChannelMoments(1), "y": ChannelMoments(1)}
    halves = {"train": data.train, "test": data.test}
    arrays = {f"{half}/{name}": ((4 * len(part), PIXELS), np.uint8) for half, part in halves.items() for name in "xy"}
    with rows.creating(target, arrays) as file:
        for half, part in halves.items():
            for start in range(0, 4 * len(part), CHUNK):
                grey = quarters(part.x[start // 4 : (start + CHUNK) // 4].mean(axis=3))
                noisy = np.clip(np.rint(grey + NOISE * random.standard_normal(grey.shape)), 0, 255)
                for name, images in (("x", noisy), ("y", grey)):
                    images = images.astype(np.uint8)
                    file[f"{half}/{name}"][start : start + len(images)] = images
                    if half == "train":
                        moments[name].add(images[..., np.newaxis])
        for name, of_pixels in moments.items():
            file.attrs[f"{name}_mean"], file.attrs[f"{name}_std"] = of_pixels.result()
        file.attrs["source"] = source


def quarters(grey):
    """(4 n, 256): the four quarters of each image, one after another, in whole grey levels. grey: (n, 32, 32)."""
    return np.rint(grey).reshape(-1, 2, SIDE, 2, SIDE).transpose(0, 1, 3, 2, 4).reshape(-1, PIXELS)


def load(directory, dtype, name="denoise"):
    """The Dataset: the 256 noisy grey levels of a quarter to those without noise. Rows are mapped, not read."""
    path = converted(directory)
    train, test = (rows.map_pair(path, half, *[((PIXELS,), np.uint8)] * 2) for half in ("train", "test"))
    fitted = rows.vectors(path, dict.fromkeys(("x_mean", "x_std", "y_mean", "y_std"), 1))
    return regression(name, train, test, "grey levels", dtype, fitted=fitted)


def converted(directory):
    return directory / "cifar10" / "denoise.h5"
