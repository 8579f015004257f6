"""What `bench` compares, with the bounds: training steps, convolutions, memory."""

from collections.abc import Callable
from dataclasses import dataclass

from gridgrad.nn import AvgPool2d, BatchNorm, Conv2d, MaxPool2d, ReLU, Sequential
from gridgrad.nn.zoo import network_names
from gridgrad.nn.zoo.network_names import dense

BATCH_NORM_BOUND = 1.15  # of networks with BatchNorm, where PyTorch is at its best
MEMORY_BOUND = 1.1


@dataclass
class StepCase:
    """A comparison of training steps, or of inference."""

    name: str
    net: str | Callable  # as `network_names.build` takes it, or a function of shape and outputs that makes layers
    shape: int | tuple
    outputs: int
    batch_size: int
    loss: str = "cross-entropy"
    bound: float | None = 1.0  # the ratio to stay under; None where nothing is promised
    best_bound: float | None = 1.0  # the one where PyTorch is at its best
    work: str = "sgd"  # or "adam", for a training step; "inference" for a forward pass
    large: bool = False  # it takes seconds, and so is no part of a quick run

    def network(self):
        """The Sequential of this case. It takes no memory yet."""
        if isinstance(self.net, str):
            return network_names.build(self.net, self.shape, self.outputs)
        return Sequential(self.net(self.shape, self.outputs), input_shape=self.shape)


@dataclass(frozen=True)
class Shape:
    """A convolution of square images, forward and backward."""

    inputs: int
    outputs: int
    kernel: int
    size: int
    batch_size: int
    stride: int = 1
    padding: int = 0

    @property
    def name(self):
        stride = f", stride {self.stride}" if self.stride > 1 else ""
        padding = f", padding {self.padding}" if self.padding else ""
        window = f"{self.kernel}x{self.kernel} on {self.size}x{self.size}"
        return f"{self.inputs}-{self.outputs} {window}, batch {self.batch_size}{stride}{padding}"

    @property
    def large(self):
        return self.size > 32


def conv_batch_norm(shape, outputs):
    layers, channels = [], shape[2]
    for width in (48, 96, 96):
        layers += [Conv2d(channels, width, 3, padding=1, bias=False), BatchNorm(width), ReLU()]
        channels = width
    return dense([*layers, MaxPool2d(4)], shape, [], None, outputs)


def pointwise(shape, outputs):
    """Convolutions of 1x1, and the mean over the image."""
    layers, channels = [], shape[2]
    for width in (64, 128, 64):
        layers += [Conv2d(channels, width, 1), ReLU()]
        channels = width
    return dense([*layers, AvgPool2d(shape[:2])], shape, [], None, outputs)


MNIST, CIFAR, IMAGENET = (28, 28, 1), (32, 32, 3), (224, 224, 3)

# Small networks come first: they leave malloc as it is at the start of a program, and leave time for the large ones.
SERIAL = [
    StepCase("16-32-32-2 tanh, batch 100", "mlp:32,32,tanh", 16, 2, 100, "mse"),
    StepCase("784-512-512-10 relu, batch 128, inference", "mlp:512,512,relu", 784, 10, 128, work="inference"),
    StepCase("784-512-512-10 relu, batch 128", "mlp:512,512,relu", 784, 10, 128),
    StepCase("784-512-512-10 relu, batch 128, Adam", "mlp:512,512,relu", 784, 10, 128, work="adam"),
    StepCase("300-700-900-20 relu, batch 96", "mlp:700,900,relu", 300, 20, 96),
    StepCase("16-1024-1024-1024-2 tanh, batch 100", "mlp:1024,1024,1024,tanh", 16, 2, 100, "mse"),
    StepCase("1024-2048-1024-10 tanh, batch 100", "mlp:2048,1024,tanh", 1024, 10, 100),
    StepCase("lenet5, batch 64", "lenet5", MNIST, 10, 64),
    StepCase("mnist-cnn, batch 64, inference", "mnist-cnn", MNIST, 10, 64, work="inference"),
    StepCase("mnist-cnn, batch 64", "mnist-cnn", MNIST, 10, 64),
    StepCase("mnist-cnn, batch 64, Adam", "mnist-cnn", MNIST, 10, 64, work="adam"),
    StepCase("cifar-cnn, batch 64", "cifar-cnn", CIFAR, 10, 64),
    StepCase("1x1 convolutions, batch 64", pointwise, (16, 16, 32), 10, 64),
    StepCase("resnet20, batch 32, inference", "resnet20", CIFAR, 10, 32, best_bound=BATCH_NORM_BOUND, work="inference"),
    StepCase("16-1024-1024-1024-2 tanh, batch 1000", "mlp:1024,1024,1024,tanh", 16, 2, 1000, "mse"),
    StepCase("1024-2048-1024-10 tanh, batch 1000", "mlp:2048,1024,tanh", 1024, 10, 1000),
    StepCase("resnet20, batch 32", "resnet20", CIFAR, 10, 32, best_bound=BATCH_NORM_BOUND),
    StepCase("3-48-96-96 convolutions with BatchNorm, batch 32", conv_batch_norm, CIFAR, 10, 32, best_bound=BATCH_NORM_BOUND),
    StepCase("marques-50-500, batch 64", "marques-50-500", CIFAR, 10, 64, large=True),
    StepCase("resnet18, batch 2", "resnet18", IMAGENET, 1000, 2, best_bound=BATCH_NORM_BOUND, large=True),
    StepCase("alexnet, batch 8", "alexnet", IMAGENET, 1000, 8, large=True),
    StepCase("vgg16, batch 2", "vgg16", IMAGENET, 1000, 2, large=True),
]

MEMORY = [
    StepCase(f"memory of {net}, batch {batch_size}", net, shape, outputs, batch_size, bound=MEMORY_BOUND, large=large)
    for nets, shape, outputs, batch_size, large in (
        ("lenet5 mnist-cnn", MNIST, 10, 64, False),
        ("cifar-cnn", CIFAR, 10, 64, False),
        ("resnet20", CIFAR, 10, 32, False),
        ("mlp2 mlp3", 1024, 10, 128, False),
        ("marques-50-500 marques-150-800", CIFAR, 10, 64, True),
        ("marques-300-1000 marques-500-1500", CIFAR, 10, 16, True),
        ("resnet18 googlenet alexnet vgg16", IMAGENET, 1000, 8, True),
    )
    for net in nets.split()
]

SHAPES = [
    Shape(1, 32, 5, 28, 64),
    Shape(3, 64, 5, 32, 64),
    Shape(3, 50, 5, 32, 64),
    Shape(32, 64, 5, 8, 64),
    Shape(32, 64, 5, 12, 64),
    Shape(64, 64, 5, 10, 64),
    Shape(64, 64, 5, 32, 32, 1, 2),
    Shape(50, 500, 5, 14, 64),
    Shape(3, 64, 3, 224, 2, 1, 1),
    Shape(64, 64, 3, 224, 4, 1, 1),
    Shape(128, 128, 3, 112, 4, 1, 1),
    Shape(256, 256, 3, 56, 4, 1, 1),
    Shape(512, 512, 3, 28, 4, 1, 1),
    Shape(512, 512, 3, 14, 8, 1, 1),
    Shape(3, 64, 11, 224, 8, 4, 2),
    Shape(64, 128, 3, 56, 8, 2, 1),
    Shape(64, 64, 3, 32, 32, 1, 1),
]

# bound: of 2 ranks over 1; best_bound: of 2 ranks over DistributedDataParallel on 2.
TWO_RANKS = [
    StepCase("1024-2048-1024-10 tanh, batch 128", "mlp:2048,1024,tanh", 1024, 10, 128, bound=1 / 1.5),
    StepCase("1024-2048-1024-10 tanh, batch 1024", "mlp:2048,1024,tanh", 1024, 10, 1024, bound=1 / 1.85, large=True),
    StepCase("cifar-cnn, batch 64", "cifar-cnn", CIFAR, 10, 64, bound=1 / 1.85, large=True),
    StepCase("cifar-cnn, batch 128", "cifar-cnn", CIFAR, 10, 128, bound=1 / 1.9, large=True),
]

# On a GPU. Steps of small and deep networks wait for Python where no graph starts their kernels.
GPU = [
    StepCase(f"{net}, batch {batch_size}", net, shape, outputs, batch_size, bound=bound)
    for bound, shape, outputs, nets in (
        (0.6, 784, 10, {"mlp:512,512,relu": 128}),
        (1.5, 1024, 10, {"mlp:4096,4096,4096,relu": 1024}),
        (0.6, MNIST, 10, {"mnist-cnn": 256, "lenet5": 256}),
        (1.5, CIFAR, 10, {"cifar-cnn": 256}),
        (0.6, CIFAR, 10, {"resnet20": 128}),
        (1.5, IMAGENET, 1000, {"alexnet": 64, "resnet18": 32, "vgg16": 32}),
    )
    for net, batch_size in nets.items()
]
PYDTNN = [
    StepCase("mnist-cnn, batch 64", "mnist-cnn", MNIST, 10, 64, bound=0.5),
    StepCase("cifar-cnn, batch 64", "cifar-cnn", CIFAR, 10, 64, bound=0.5, large=True),
]

SCALING = [  # the networks of experiments/settings/cores16.sh, on any number of ranks
    StepCase("mlp, batch 1024", "mlp:2048,2048,2048,relu", 1024, 10, 1024),
    StepCase("mnist-cnn, batch 512", "mnist-cnn", MNIST, 10, 512),
    StepCase("cifar-cnn, batch 512", "cifar-cnn", CIFAR, 10, 512),
    StepCase("resnet20, batch 256", "resnet20", CIFAR, 10, 256),
    StepCase("vgg-style, batch 128", "vgg-style:32,64,128,256", CIFAR, 10, 128),
]


def named(cases, name):
    """The case with this name; ValueError if there is none."""
    for case in cases:
        if case.name == name:
            return case
    raise ValueError(f"there is no comparison '{name}'; they are called such as '{cases[0].name}'")


def step_case(name):
    """The StepCase of several processes with this name; ValueError if there is none."""
    return named((*TWO_RANKS, *PYDTNN, *SCALING), name)
