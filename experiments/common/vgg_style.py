"""Networks with the structure of VGG16, but with fewer layers and channels."""

import argparse

from gridgrad.experiments.common.options import whole_list
from gridgrad.nn import Conv2d, MaxPool2d, ReLU, Sequential
from gridgrad.nn.zoo import network_names
from gridgrad.nn.zoo.network_names import dense

PREFIX = "vgg-style:"
HIDDEN = 256  # neurons of the hidden layer of a network that is named by its widths
GAIN = 6**0.5  # of the weights of He et al. (2015) over those of `nn`
HELP = f"{PREFIX}WIDTH,WIDTH,.. for two 3x3 convolutions of each width, each pair with a pooling, and {HIDDEN} hidden neurons"


def vgg_style(shape, outputs, widths, hidden):
    """The layers: for each width two 3x3 convolutions and a pooling, then dense layers of the sizes `hidden`, and the outputs.

    shape: that of a sample, (height, width, channels). ValueError if it is too small for so many poolings.
    """
    layers, channels = [], shape[2]
    for width in widths:
        for _ in range(2):
            layers += [Conv2d(channels, width, 3, padding=1), ReLU()]
            channels = width
        layers.append(MaxPool2d(2))
    return dense(layers, shape, hidden, ReLU, outputs)


def build(spec, shape, outputs, seed=0):
    """The Sequential that a text names: "vgg-style:32,64", or what `network_names.build` takes. ValueError for others."""
    if not spec.startswith(PREFIX):
        return network_names.build(spec, shape, outputs, seed)
    if len(shape) != 3:
        raise ValueError(f"net '{spec}' takes images, but a sample is {' x '.join(map(str, shape))} numbers: use another net")
    try:
        widths = whole_list(spec.removeprefix(PREFIX))
        return Sequential(vgg_style(shape, outputs, widths, [HIDDEN]), seed, input_shape=shape)
    except (ValueError, argparse.ArgumentTypeError) as error:
        raise ValueError(f"net '{spec}' on images of {'x'.join(map(str, shape))}: {error}") from None


def with_he_weights(net):
    """The network itself, in memory, with weights as large as He et al. (2015) have them for layers with ReLU.

    With the smaller ones of `nn` a VGG-like network without normalisation hardly begins to learn in the first epoch. net: a
    Sequential that was not used yet.
    """
    for _, parameter in net.parameters:
        if parameter.name == "weight":
            parameter.value *= GAIN
    return net
