"""Networks with the structure of VGG16 (Simonyan and Zisserman 2015, column D), with fewer layers and channels."""

from nn import Conv2d, MaxPool2d, ReLU, Sequential
from nn.zoo import dense

BLOCKS = (32, 2), (64, 2), (128, 3), (256, 3)


def vgg_style(shape, outputs, blocks=BLOCKS, hidden=(512,), seed=0, dtype="float32"):
    """A Sequential: blocks of 3x3 convolutions, each followed by a max-pooling, and fully connected layers.

    shape: of a sample. blocks: for each (channels, number of convolutions). hidden: the widths of the hidden dense layers.
    """
    layers, channels = [], shape[2]
    for width, number in blocks:
        for _ in range(number):
            layers += [Conv2d(channels, width, 3, padding=1), ReLU()]
            channels = width
        layers.append(MaxPool2d(2))
    return Sequential(dense(layers, shape, hidden, ReLU, outputs), seed, dtype, shape)
