"""What one minibatch, or one micro-batch, leaves behind on its way through a network: the context of its passes.

A layer keeps nothing of a minibatch in itself. What its backward pass needs, and the arrays in which it works, belong to a
`Context`, which the caller owns. So several micro-batches can be under way through one network at once, each in a context of
its own, with their passes in any order.
"""

from nn.device import xp
from nn.workspace import Workspace


class Kept:
    """What one layer keeps in one context: whatever attributes it sets, and its workspaces.

    The two halves of a layer's backward pass come in either order. Where they share work, the first one leaves for the other
    what it needs: `for_gradients` or `for_input_gradient`, which the other takes away.
    """

    for_gradients = for_input_gradient = None
    dy = None  # the gradient of the output, where the parameters' gradients are computed later

    def __init__(self):
        self.workspace = Workspace()  # workspace(name, shape, dtype): an uninitialised array that lives as long as the context

    def take(self, name):
        """The value of an attribute, None from now on."""
        value = getattr(self, name)
        if value is not None:
            setattr(self, name, None)
        return value

    def arrays(self):
        """All arrays here that hold memory of their own."""
        yield from self.workspace.arrays()
        for value in vars(self).values():
            for array in value if isinstance(value, list | tuple) else [value]:
                if isinstance(array, xp.ndarray) and array.base is None:
                    yield array


class Context(dict):
    """The context of one minibatch, or one micro-batch: `context[layer]` is the `Kept` of a layer (or of a loss).

    training: whether this is training; otherwise nothing is kept for a backward pass that costs anything.
    seed, step: of the network: random numbers depend on them. batch_size: samples of the global minibatch, or of the global
    micro-batch, which begins at sample `first` of the minibatch. minibatch_size: samples of the whole minibatch, over which
    losses take the mean. A network writes them down here at the beginning of a forward pass.

    observer: told of the passes of the layers, see `nn/observer.py`. progress: called between the pieces of the work of a
    layer, where there is something to be done meanwhile; otherwise None, and the work is not cut into pieces for it.

    A context serves one minibatch after another; its arrays are allocated once.
    """

    observer = progress = None

    def __init__(self, training=True, seed=0, step=0, batch_size=None, first=0, minibatch_size=None):
        super().__init__()
        self.training = training
        self.begin(seed, step, batch_size, first, minibatch_size)
        self._gradients = Workspace(), Workspace()

    def begin(self, seed, step, batch_size, first=0, minibatch_size=None):
        """The next minibatch begins: this is what the layers may ask about it."""
        self.seed, self.step, self.batch_size, self.first = seed, step, batch_size, first
        self.minibatch_size = batch_size if minibatch_size is None else minibatch_size

    def __missing__(self, layer):
        kept = self[layer] = Kept()
        return kept

    def gradient_space(self, shape, dy):
        """An array for the gradient of an input, computed from that of the output, `dy`.

        Two buffers serve all layers by turns, since a gradient is of no use once the layer before has its own: whoever
        needs one for longer copies it.
        """
        for buffer in self._gradients:
            space = buffer("gradient", shape, dy.dtype)
            if not xp.may_share_memory(space, dy):
                return space
        raise AssertionError("a gradient lies in both buffers")

    @property
    def nbytes(self):
        """Bytes of all arrays that live here: workspaces, and others that a layer keeps, each once."""
        arrays = [array for buffer in self._gradients for array in buffer.arrays()]
        arrays += [array for kept in self.values() for array in kept.arrays()]
        return sum({id(array): array.nbytes for array in arrays}.values())

    # ----- passes of layers: all go through `run`, or between `begin_pass` and `end_pass`

    def run(self, layer, phase, array):
        """One pass of a layer: call its method `phase`, of which the observer is told if there is one."""
        if self.observer is None:
            return getattr(layer, phase)(array, self)
        reported = layer.reported
        self.observer.begin(reported, phase, self)
        result = getattr(layer, phase)(array, self)
        self.observer.end(reported, phase, self)
        return result

    def begin_pass(self, layer, phase):
        """A pass that is no call of `run` begins, such as that of a pooling over a block of images."""
        if self.observer is not None:
            self.observer.begin(layer, phase, self)

    def end_pass(self, layer, phase, share=1.0):
        """It ends. share: of the work of the phase, where there are several such passes."""
        if self.observer is not None:
            self.observer.end(layer, phase, self, share)

    def worked(self, layer, phase, share):
        """Within a pass, this share of its work is done: told before the layer waits for communication."""
        if self.observer is not None:
            self.observer.worked(layer, phase, self, share)

    def written(self, layer):
        """The gradients of a layer's parameters are final."""
        if self.observer is not None:
            self.observer.written(layer.reported)

    def __repr__(self):
        kind = "training" if self.training else "evaluation"
        return f"Context({kind}, step {self.step}, {self.batch_size} samples from {self.first}, {self.nbytes} bytes)"
