"""Random variations of images: each is shifted and mirrored, differently in every epoch.

What happens to an image is a function of the seed, the epoch and the index of the image in its Part, and of nothing
else. So ranks that hold blocks of the same image hold blocks of the same variation of it, on every grid.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gridgrad.nn.random import random_block

HELP = "shift=PIXELS (at most so many, in both directions), flip (mirrors half of the images), or both: shift=4,flip"


@dataclass(frozen=True)
class Augment:
    """How images are varied: shifted by at most so many pixels, where 0, the mean, comes in; and half of them mirrored."""

    shift: int = 4
    flip: bool = True
    seed: int = 0

    def inputs(self, part, indices, block, epoch):
        """`part.inputs(indices, block)` of images, (height, width, channels), as they are varied in `epoch`."""
        height, width, _ = part.sample_shape
        (top, bottom, _), (left, right, _) = block[0].indices(height), block[1].indices(width)
        margin, above, below = self.shift, max(top - self.shift, 0), min(bottom + self.shift, height)
        # All columns, since an image may be mirrored; then zeros wherever a shift may reach beyond the image.
        source = part.inputs(indices, (slice(above, below), slice(0, width), block[2]))
        padding = (above - top + margin, bottom + margin - below), (margin, margin)
        source = np.pad(source, ((0, 0), *padding, (0, 0)))
        out = np.empty((len(source), bottom - top, right - left, source.shape[3]), source.dtype)
        for image, target, down, along, mirror in zip(source, out, *self.draws(indices, len(part), epoch)):
            image = image[:, ::-1] if mirror else image
            target[:] = image[margin + down :, margin + left + along :][: bottom - top, : right - left]
        return out

    def draws(self, indices, samples, epoch):
        """The rows and the columns by which to shift each of the images `indices`, and whether to mirror it: (n,) each."""
        drawn = _epoch(self.seed, epoch, samples)[indices]
        shifts = (drawn[:, :2] * np.uint64(2 * self.shift + 1) >> np.uint64(32)).astype(np.int64) - self.shift
        return shifts[:, 0], shifts[:, 1], (drawn[:, 2] & np.uint64(1)).astype(bool) & self.flip


@lru_cache(maxsize=2)
def _epoch(seed, epoch, samples):
    """Three random words of 32 bits for each sample. Drawing those of a whole epoch costs less than 128 single draws."""
    return random_block(seed, "augment", 3, slice(0, samples), slice(None), np.uint32, epoch).astype(np.uint64)


def parse(text, seed=0):
    """The Augment that the command line names, such as "shift=4,flip" or "flip"; ValueError with what is accepted."""
    found = {}
    for word in text.split(","):
        key, _, value = word.partition("=")
        if key in found or not (word == "flip" or key == "shift"):
            raise ValueError(f"augment '{text}': '{word}' is unknown or said twice: use {HELP}")
        if key == "shift" and not (value.isascii() and value.isdigit() and len(value) < 6):
            raise ValueError(f"augment '{text}': the shift must be a whole number of pixels, not '{value}': use {HELP}")
        found[key] = int(value) if key == "shift" else True
    return Augment(found.get("shift", 0), found.get("flip", False), seed)
