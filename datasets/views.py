"""Views of a Part: some of its samples, or all of them with random variations."""

from collections.abc import Sequence
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from gridgrad.datasets.augment import Augment
from gridgrad.datasets.part import Part
from gridgrad.nn.random import permutation


class View:
    """A view of a Part, with the types, shapes and scales of the Part. part: a Part or a View."""

    def __init__(self, part: "Part | View"):
        self.part = part

    def __len__(self) -> int:
        return len(self.part)

    def within(self, indices: np.ndarray) -> np.ndarray:
        """The indices of these samples in `part`."""
        return indices

    def inputs(self, indices: np.ndarray, block: tuple[slice, ...]) -> np.ndarray:
        """See `Part.inputs`."""
        return self.part.inputs(self.within(indices), block)

    def targets(self, indices: np.ndarray) -> np.ndarray:
        """See `Part.targets`."""
        return self.part.targets(self.within(indices))

    sample_shape, features, input_type = (
        property(attrgetter(f"part.{it}")) for it in ("sample_shape", "features", "input_type")
    )
    target_type, target_shape = (property(attrgetter(f"part.{it}")) for it in ("target_type", "target_shape"))
    target_width, target_scale = (property(attrgetter(f"part.{it}")) for it in ("target_width", "target_scale"))


class Subset(View):
    """Some samples of a Part or a Subset: sample i here is sample chosen[i] there."""

    part: "Part | Subset"

    def __init__(self, part: "Part | Subset", chosen: npt.ArrayLike):
        super().__init__(part)
        self.chosen = np.asarray(chosen)

    def __len__(self) -> int:
        return len(self.chosen)

    def within(self, indices: np.ndarray) -> np.ndarray:
        return self.chosen[indices]

    def reshaped(self, sample_shape: Sequence[int]) -> "Subset":
        return Subset(self.part.reshaped(sample_shape), self.chosen)


class Held(View):
    """Some samples of a larger data set, known by their numbers there, which increase. part: a Part of these samples alone."""

    def __init__(self, part: Part, indices: np.ndarray):
        super().__init__(part)
        self.indices = indices

    def within(self, indices: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.indices, indices)


class Reconstruction(View):
    """The samples of a Part or a Subset with one dimension, each its own target: what an autoencoder is trained on."""

    target_type, target_shape, target_width = View.input_type, View.sample_shape, View.features

    def targets(self, indices: np.ndarray) -> np.ndarray:
        return self.part.inputs(indices, (slice(0, self.features),))


class Augmented(View):
    """The samples of a Part, varied anew in each epoch. The training program sets the attribute `epoch`.

    Parameters
    ----------
    part : Part
        Images, or the same numbers in a row, as a network of Linear layers takes them; or what `hold_out` returns of them.
    augment : Augment
        What `gridgrad.datasets.augment.parse` makes of a text such as "shift=4,flip".
    image_shape : tuple of int
        (height, width, channels) of an image; ValueError if it is no such shape.

    Examples
    --------
    >>> import numpy as np
    >>> from gridgrad.datasets import Augmented, Part, augment
    >>> part = Part(np.arange(12.0).reshape(2, 2, 3, 1), np.array([0, 1]), np.array(0.0), np.array(1.0))
    >>> varied = Augmented(part, augment.parse("flip"), (2, 3, 1))
    >>> varied.epoch = 1
    >>> varied.inputs(np.array([0, 1]), (slice(0, 2), slice(0, 3), slice(0, 1))).shape
    (2, 2, 3, 1)
    """

    def __init__(self, part: Part | Subset, augment: Augment, image_shape: Sequence[int]):
        super().__init__(part)
        if len(image_shape) != 3:
            raise ValueError(f"--augment is for images, and samples have the shape {tuple(image_shape)}; leave it out")
        self.augment, self.images, self.epoch = augment, part.reshaped(image_shape), 0

    def inputs(self, indices: np.ndarray, block: tuple[slice, ...]) -> np.ndarray:
        if self.sample_shape == self.images.sample_shape:
            return self.augment.inputs(self.images, indices, block, self.epoch)
        whole = tuple(slice(0, length) for length in self.images.sample_shape)
        varied = self.augment.inputs(self.images, indices, whole, self.epoch)
        return np.ascontiguousarray(varied.reshape(len(varied), *self.sample_shape)[(slice(None), *block)])


def hold_out(part: Part | Subset, fraction: float, seed: int) -> tuple[Subset, Subset]:
    """Hold out some samples for validation. Both halves stay standardised by their common moments.

    Parameters
    ----------
    part : Part
        The samples to train on, or what this function has returned.
    fraction : float
        The share of them that is held out; ValueError if either half would be empty.
    seed : int
        Draws them, and nothing else does.

    Returns
    -------
    training, validation : Subset
        All samples of `part`, in its order, which are taken from it like those of a Part.

    Examples
    --------
    >>> from gridgrad.datasets import hold_out, load
    >>> training, validation = hold_out(load("airfoil").train, 0.1, seed=0)
    >>> len(training), len(validation)
    (1082, 120)
    """
    count = round(fraction * len(part))
    if not 0 < count < len(part):
        raise ValueError(f"--validation {fraction} of {len(part)} training samples would be {count} of them")
    order = permutation(seed, 0, len(part), "validation")
    return Subset(part, np.sort(order[count:])), Subset(part, np.sort(order[:count]))  # in the order of a mapped file
