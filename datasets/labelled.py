"""Labelled images in HDF5: what data sets of images are converted to, once. uint8, channels last, mapped by each rank."""

import os

import numpy as np

from gridgrad.datasets import rows
from gridgrad.datasets.part import Dataset, Part


class ChannelMoments:
    """Mean and deviation of each channel over all pixels, added up in whole numbers: exact, however images are cut."""

    def __init__(self, channels):
        self.count, self.sums, self.squares = 0, np.zeros(channels, np.int64), np.zeros(channels, np.int64)

    def add(self, images):
        """images: (n, height, width, channels) of uint8."""
        self.count += images[..., 0].size
        for channel in range(images.shape[-1]):
            values = np.ascontiguousarray(images[..., channel])
            self.sums[channel] += values.sum(dtype=np.int64)
            self.squares[channel] += np.square(values, dtype=np.uint32).sum(dtype=np.int64)

    def result(self):
        """(mean, deviation), the latter 1 where a channel is constant: float64."""
        spread = [self.count * int(q) - int(s) ** 2 for s, q in zip(self.sums, self.squares)]  # Python's: no overflow
        return self.sums / self.count, np.array([v**0.5 / self.count if v else 1.0 for v in spread])


def write(path, source, classes, shape, halves, note=""):
    """Write all images and labels, a chunk at a time, with the moments of the training images.

    source: as `rows.is_current` compares it. classes: names, in the order of the labels. shape: of an image.
    halves: {"train" or "test": (number of images, iterable of (images, labels))}. note: of the Dataset.
    """
    moments = ChannelMoments(shape[-1])
    arrays = {f"{half}/x": ((count, *shape), np.uint8) for half, (count, _) in halves.items()}
    arrays |= {f"{half}/y": ((count,), np.int32) for half, (count, _) in halves.items()}
    with rows.creating(path, arrays) as file:
        for half, (_, chunks) in halves.items():
            x, y, start = file[f"{half}/x"], file[f"{half}/y"], 0
            for images, labels in chunks:
                stop = start + len(images)
                x[start:stop], y[start:stop] = images, labels
                start = stop
                if half == "train":
                    moments.add(images)
        mean, std = moments.result()
        classes = [os.fsencode(name).decode(errors="backslashreplace") for name in classes]  # of folders, which may be no UTF-8
        file.attrs.update({"source": source, "classes": classes, "x_mean": mean, "x_std": std, "note": note})


def load(path, name, shape, dtype):
    """The Dataset that was written; its images are mapped, and standardised by channel.

    ValueError if anything in the file is not as `write` makes it for images of that shape.
    """
    known = rows.attributes(path)
    classes, note = np.asarray(known.get("classes")), known.get("note", "")
    if classes.ndim != 1 or not len(classes) or not all(isinstance(label, str) for label in classes):
        raise ValueError(f"{path}: the names of the classes are missing or damaged; delete the file, and it is made anew")
    if not isinstance(note, str):
        raise ValueError(f"{path}: its note is damaged; delete the file, and it is made anew")
    mean, std = rows.vectors(path, {"x_mean": shape[-1], "x_std": shape[-1]})
    parts = []
    for half in ("train", "test"):
        x, y = rows.map_pair(path, half, (shape, np.uint8), ((), np.int32))
        if y.min() < 0 or y.max() >= len(classes):
            raise ValueError(f"{path}: {half}/y has labels that are none of {len(classes)} classes; delete the file")
        parts.append(Part(x, y, mean, std, dtype=dtype))
    return Dataset(name, *parts, "cross-entropy", len(classes), "", note=note, classes=classes.tolist())
