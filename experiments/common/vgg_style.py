"""Networks in the style of VGG16, as `vgg-style:WIDTH,WIDTH,..` names them, with the weights with which they begin to learn."""

from gridgrad.nn.zoo.network_names import VGG_STYLE as PREFIX
from gridgrad.nn.zoo.network_names import build, vgg_style

__all__ = ["GAIN", "HELP", "PREFIX", "build", "vgg_style", "with_he_weights"]

GAIN = 6**0.5  # of the weights of He et al. (2015) over those of `nn`
HELP = "vgg-style:WIDTH,WIDTH,.. for two 3x3 convolutions of each width, each pair with a pooling, and 256 hidden neurons"


def with_he_weights(net):
    """The network itself, in memory, with weights as large as He et al. (2015) have them for layers with ReLU.

    With the smaller ones of `nn` a VGG-like network without normalisation hardly begins to learn in the first epoch.
    """
    for _, parameter in net.parameters:
        if parameter.name == "weight":
            parameter.value *= GAIN
    return net
