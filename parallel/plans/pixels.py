"""The plans "height" and "width": each rank computes its part of the rows or columns of every image."""

from gridgrad.parallel.grid.process_grid import LAYER_AXES, MODEL
from gridgrad.parallel.placement.placements import H, W
from gridgrad.parallel.placement.plan import Plan


class ShardPixels(Plan):
    """Only convolutions can have it. word: "height" or "width". dim: H or W. lines: what these are called."""

    kinds = ("conv",)

    def __init__(self, word, dim, lines):
        self.word, self.use = word, f"split the {lines} of each image"
        self.input = self.output = dim
        self.axes = tuple(axis for axis in LAYER_AXES if axis != word)

    def refusal(self, layer):
        if layer.kind != "conv":
            return f"has no {self.word} to split: use conv={self.word},linear=.."

    def is_tried(self, kinds, sizes, shape):
        """With more ranks than an image has rows it would be possible too, but ranks without a row only add collectives."""
        return self.input == H and kinds == {"conv"} and self.fits(sizes) and sizes[MODEL] <= shape[0]

    def check(self, text, grid):
        if grid.sizes.get(self.word, 1) > 1:
            raise ValueError(
                f"plan '{text}': the axis {self.word} splits the images already: leave {self.word} out of one of the two"
            )


HEIGHT, WIDTH = ShardPixels("height", H, "rows"), ShardPixels("width", W, "columns")
