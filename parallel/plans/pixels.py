"""The plans "height" and "width": each rank computes its part of the rows or columns of every image."""

from gridgrad.parallel.placement.placements import H, W
from gridgrad.parallel.placement.plan import Plan


class ShardPixels(Plan):
    """Only convolutions can have it. word: "height" or "width". dim: H or W. lines: what these are called."""

    kinds = ("conv",)

    def __init__(self, word, dim, lines):
        self.word, self.use = word, f"split the {lines} of each image"
        self.input = self.output = dim

    def refusal(self, layer):
        if layer.kind != "conv":
            return f"has no {self.word} to split: use conv={self.word},linear=.."

    def check(self, text, grid):
        if grid.sizes.get(self.word, 1) > 1:
            raise ValueError(
                f"plan '{text}': the axis {self.word} splits the images already: leave {self.word} out of one of the two"
            )


HEIGHT, WIDTH = ShardPixels("height", H, "rows"), ShardPixels("width", W, "columns")
