"""PyDTNN's side of `bench`: two networks of `nn/zoo/network_names.py`, written as a PyDTNN user would; prints seconds a step as
JSON.

A program of its own, for the interpreter of an environment that has PyDTNN: PYTHON -P pydtnn_peer.py --net mnist-cnn
--batch-size 64 --steps 15. It imports nothing of ours, and nothing of ours imports it.

PyDTNN runs its Cython kernels in its two layouts of images by turns; the faster one counts. (Its kernels "gemm", "direct"
and "winograd" are libraries that do not come with it.)
"""

import argparse
import json
import time
from importlib.metadata import version
from statistics import median

import numpy as np
from pydtnn.activations.log_softmax import LogSoftmax
from pydtnn.activations.relu import Relu
from pydtnn.activations.tanh import Tanh
from pydtnn.layers.conv_2d import Conv2D
from pydtnn.layers.dropout import Dropout
from pydtnn.layers.fc import FC
from pydtnn.layers.flatten import Flatten
from pydtnn.layers.identity import Identity
from pydtnn.layers.max_pool_2d import MaxPool2D
from pydtnn.model import Model

CLASSES = 10


def mnist_cnn():
    convolutions = [
        Conv2D(32, 5, padding=2, activation=Tanh), MaxPool2D(3, padding=1, stride=3),
        Conv2D(64, 5, activation=Tanh), MaxPool2D(2, stride=2),
    ]  # fmt: skip
    return [*convolutions, Flatten(), FC((200,), activation=Tanh), FC((CLASSES,), activation=LogSoftmax)]


def cifar_cnn():
    convolutions = [
        Conv2D(64, 5, activation=Relu), MaxPool2D(3, stride=3),
        Conv2D(64, 5, activation=Relu), MaxPool2D(3, stride=3),
    ]  # fmt: skip
    return [*convolutions, Flatten(), Dropout(0.5), FC((100,), activation=Relu), FC((CLASSES,), activation=LogSoftmax)]


NETS = {"mnist-cnn": (mnist_cnn, (1, 28, 28)), "cifar-cnn": (cifar_cnn, (3, 32, 32))}


def step(net, batch_size, tensor_format):
    """A function that does one step of SGD with momentum on made-up data, as PyDTNN's own `train` does for each minibatch."""
    layers, shape = NETS[net]
    model = Model(
        dataset_name="synthetic",  # for its shapes: it has zeros only
        synthetic_input_shape=shape,
        synthetic_output_shape=(CLASSES,),
        batch_size=batch_size,
        tensor_format=tensor_format,
        optimizer_name="sgd",
        optimizer_momentum=0.9,
        learning_rate=1e-6,  # what 3.11.0 takes for the derivative of tanh is none: larger steps would leave ordinary numbers
    )
    model.add_layers([Identity(model.encode_shape(shape)), *layers()])
    model._ensure_runnable()
    rng = np.random.default_rng(0)
    x = rng.standard_normal((batch_size, *model.encode_shape(shape)), np.float32)
    y = np.eye(CLASSES, dtype=np.float32)[rng.integers(0, CLASSES, batch_size)]
    return lambda: model._train_batch(x, y)


def main():
    parser = argparse.ArgumentParser(prog="pydtnn_peer", description="Time training steps of PyDTNN on made-up data.")
    parser.add_argument("--net", choices=NETS, required=True)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=15, help="steps that are timed in each layout, after 3 steps of warm-up")
    args = parser.parse_args()
    steps = {name: step(args.net, args.batch_size, name) for name in ("nhwc", "nchw")}
    seconds, cpu_seconds = ({name: [] for name in steps} for _ in range(2))
    for _ in range(args.steps + 3):
        for name, one in steps.items():
            start, cpu_start = time.perf_counter(), time.process_time()
            one()
            seconds[name].append(time.perf_counter() - start)
            cpu_seconds[name].append(time.process_time() - cpu_start)
    layout = min(steps, key=lambda name: median(cpu_seconds[name][3:]))
    found = {"seconds": median(seconds[layout][3:]), "cpu_seconds": median(cpu_seconds[layout][3:])}
    print(json.dumps(found | {"layout": layout, "version": version("pydtnn")}))


if __name__ == "__main__":
    main()
