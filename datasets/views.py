"""Views of a Part: some of its samples, or all of them with random variations."""

import numpy as np

from gridgrad.nn.random import permutation


def _of_the_part(name):
    return property(lambda view: getattr(view.part, name))


class View:
    """A view of a Part, with the types, shapes and scales of the Part."""

    sample_shape, features, input_type = map(_of_the_part, ("sample_shape", "features", "input_type"))
    target_type, target_shape = map(_of_the_part, ("target_type", "target_shape"))
    target_width, target_scale = map(_of_the_part, ("target_width", "target_scale"))

    def __init__(self, part):
        self.part = part

    def __len__(self):
        return len(self.part)

    def inputs(self, indices, block):
        """See `Part.inputs`."""
        return self.part.inputs(indices, block)

    def targets(self, indices):
        """See `Part.targets`."""
        return self.part.targets(indices)


class Subset(View):
    """Some samples of a Part.

    part: a Part or a View. chosen: (n,) which of its samples; sample i here is sample chosen[i] there.
    """

    def __init__(self, part, chosen):
        super().__init__(part)
        self.chosen = np.asarray(chosen)

    def __len__(self):
        return len(self.chosen)

    def inputs(self, indices, block):
        return self.part.inputs(self.chosen[indices], block)

    def targets(self, indices):
        return self.part.targets(self.chosen[indices])

    def reshaped(self, sample_shape):
        """See `Part.reshaped`."""
        return Subset(self.part.reshaped(sample_shape), self.chosen)


class Held(View):
    """Some samples of a larger data set, known by their numbers there.

    part: a Part of these samples alone. indices: (n,) their numbers, which increase.
    """

    def __init__(self, part, indices):
        super().__init__(part)
        self.indices = indices

    def inputs(self, indices, block):
        return self.part.inputs(np.searchsorted(self.indices, indices), block)

    def targets(self, indices):
        return self.part.targets(np.searchsorted(self.indices, indices))


class Reconstruction(View):
    """The samples of a Part, each its own target: what an autoencoder is trained on.

    part: a Part or a Subset, whose samples have one dimension.
    """

    target_type, target_shape, target_width = map(_of_the_part, ("input_type", "sample_shape", "features"))

    def targets(self, indices):
        return self.part.inputs(indices, (slice(0, self.features),))


class Augmented(View):
    """The samples of a Part, varied anew in each epoch. The training program sets `epoch`.

    part: a Part or a Subset, of images or of the same numbers in a row, as a network of Linear layers takes them.
    augment: what `gridgrad.datasets.augment.parse` makes. image_shape: (height, width, channels); ValueError for any other.
    """

    def __init__(self, part, augment, image_shape):
        super().__init__(part)
        if len(image_shape) != 3:
            raise ValueError(f"--augment varies images, and the samples are no images: their shape is {tuple(image_shape)}")
        self.augment, self.images, self.epoch = augment, part.reshaped(image_shape), 0

    def inputs(self, indices, block):
        if self.sample_shape == self.images.sample_shape:
            return self.augment.inputs(self.images, indices, block, self.epoch)
        whole = tuple(slice(0, length) for length in self.images.sample_shape)
        varied = self.augment.inputs(self.images, indices, whole, self.epoch)
        return np.ascontiguousarray(varied.reshape(len(varied), *self.sample_shape)[(slice(None), *block)])


def hold_out(part, fraction, seed):
    """(training, validation): all samples of `part`, `fraction` of them in the second, drawn by `seed` alone.

    Both stay standardised by their common moments. ValueError if either would be empty.
    """
    count = round(fraction * len(part))
    if not 0 < count < len(part):
        raise ValueError(f"--validation {fraction} of {len(part)} training samples would be {count} of them")
    order = permutation(seed, 0, len(part), "validation")
    return Subset(part, np.sort(order[count:])), Subset(part, np.sort(order[:count]))  # in the order of a mapped file
