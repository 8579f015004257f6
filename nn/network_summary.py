"""A summary of a network: output shapes, parameters, operations and bytes of each layer."""

from dataclasses import dataclass
from math import prod

from gridgrad.nn.layers.conv import Conv2d
from gridgrad.nn.layers.linear import Linear, TiedAutoencoder
from gridgrad.nn.sequence import shapes


@dataclass
class SummaryRow:
    """One layer. shape: of one output sample. parameters: their number. flops: see `flops`, for one sample."""

    name: str
    layer: str
    shape: tuple
    parameters: int
    flops: int

    @property
    def elements(self):
        """The number of elements of one output sample."""
        return prod(self.shape)


def rows(net, shape):
    """[SummaryRow] for input samples of `shape`; a branching layer follows its branches. ValueError for an unfit shape."""
    return [
        SummaryRow(layer.name, layer.description, after, sum(p.size for p in layer.parameters), flops(layer, after))
        for layer, _, after in shapes(net.layers, shape)
    ]


def flops(layer, shape):
    """The multiplications and additions of a layer's matrix products in a forward pass. shape: that of one output sample."""
    if isinstance(layer, Conv2d):
        return 2 * prod(layer.window.kernel) * layer.inputs * prod(shape)
    if isinstance(layer, TiedAutoencoder):
        return 4 * layer.inputs * layer.hidden
    return 2 * layer.inputs * layer.outputs if isinstance(layer, Linear) else 0


def table(net, shape, batch_size):
    """The rows as a text table, with the operations and the bytes of the outputs of a forward pass of `batch_size` samples."""
    mebibytes = net.dtype.itemsize / 2**20  # of a number

    def numbers(some):
        flops, elements = sum(row.flops for row in some) * batch_size, sum(row.elements for row in some) * batch_size
        return f"{sum(row.parameters for row in some):,}", f"{flops / 1e9:.3f}", f"{elements * mebibytes:.2f}"

    layers = rows(net, shape)
    lines = [("layer", "", "output", "parameters", "GFLOP", "output MiB")]
    lines += [(row.name, row.layer, "x".join(map(str, row.shape)), *numbers([row])) for row in layers]
    parameters = f"{sum(row.parameters for row in layers) * mebibytes:.1f} MiB of parameters"
    return aligned([*lines, ("total", parameters, "", *numbers(layers))], "<<>>>>")


def aligned(lines, sides):
    """Lines of cells, which are texts, as one text with straight columns. sides: "<" or ">" for each column."""
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join("  ".join(f"{cell:{side}{w}}" for cell, side, w in zip(line, sides, widths)).rstrip() for line in lines)
