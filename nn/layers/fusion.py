"""Which neighbouring layers run as one, so that an array is not written to memory and read again between them."""

from gridgrad.nn.layers.activations import ReLU
from gridgrad.nn.layers.batch_norm import BatchNorm, RectifiedBatchNorm
from gridgrad.nn.layers.conv import Conv2d
from gridgrad.nn.layers.conv_pool import PooledConv2d
from gridgrad.nn.layers.pool import MaxPool2d


def fuse(layers):
    """The layers as they run: a Conv2d with the MaxPool2d behind it, and a BatchNorm with the ReLU behind it, are one layer."""
    fused = []
    for layer in layers:
        before = fused[-1] if fused else None
        if type(layer) is MaxPool2d and type(before) is Conv2d:
            fused[-1] = PooledConv2d(before, layer)
        elif type(layer) is ReLU and isinstance(before, BatchNorm):
            fused[-1] = RectifiedBatchNorm(before, layer)
        else:
            fused.append(layer)
    return fused
