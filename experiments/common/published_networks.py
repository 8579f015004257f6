"""The networks of the zoo as they were published: with the shape of their samples and the number of classes."""

from gridgrad.nn.zoo import network_names

# Shapes of samples as published, where they are not 32,32,3.
SHAPES = dict.fromkeys(("alexnet", "vgg16", "resnet18", "googlenet"), (224, 224, 3))
SHAPES |= dict.fromkeys(("mnist-cnn", "lenet5"), (28, 28, 1)) | dict.fromkeys(("mlp2", "mlp3"), (32, 32, 1))


def published(net, shape=None, outputs=None, dtype="float32"):
    """The network of a spec, for samples of the published shape and for as many classes where nothing else is said."""
    shape = shape or SHAPES.get(net.partition(",")[0], (32, 32, 3))
    return network_names.build(net, tuple(shape), outputs or (1000 if shape[0] == 224 else 10), dtype=dtype)
