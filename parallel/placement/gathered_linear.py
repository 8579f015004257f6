"""A Linear layer whose input is still on its way when it begins to multiply."""

from nn.device import xp
from nn.gemm import column_sums, matmul
from nn.layer import Layer
from nn.workspace import gradient_space
from parallel.placement.partition import size


class GatheredLinear(Layer):
    """A Redistribute `Shard(C) -> Replicate` and the Linear behind it: the same numbers but for the order of sums.

    Blocks of features are multiplied as they lie, so that nothing is packed: forward, y = sum_r x_r W_r, beginning with
    the own block while the others arrive; backward, the gradients dy W_r^T of the others' blocks are on their way to
    them (the reduce-scatter) while the gradient of the weights is computed.

    move: the Redistribute. linear: this rank's block of a Linear that has all rows.
    """

    output_is_free = True

    def __init__(self, move, linear):
        self.move, self.linear, self.group, self.parameters = move, linear, move.group, linear.parameters

    def give_name(self, name):
        self.name = self.move.name = self.linear.name = name

    def begin(self, seed, step, batch_size, first=0):
        self.move.begin(seed, step, batch_size, first)

    @property
    def parts(self):
        """The slices of the features, those of one rank each."""
        return self.move.source.partition.parts

    def forward(self, x, training=False):
        me, weight, bias = self.group.rank, self.linear.weight.value, self.linear.bias.value
        self.blocks = [self.workspace(f"x {rank}", (len(x), size(part)), x.dtype) for rank, part in enumerate(self.parts)]
        xp.copyto(self.blocks[me], x)
        transfer = self.group.start_point_to_point([self.blocks[me]] * self.group.size, self.blocks, self.name, "all-gather")
        y = self.workspace("y", (len(x), weight.shape[1]), x.dtype)
        matmul(self.blocks[me], weight[self.parts[me]], y)
        transfer.wait()
        term = self.workspace("term", y.shape, y.dtype)
        for rank, part in enumerate(self.parts):
            if rank != me:
                xp.add(y, matmul(self.blocks[rank], weight[part], term), out=y)
        return xp.add(y, bias, out=y)

    def gradients(self, dy, progress=lambda: None):
        """progress: called between products."""
        for block, part in zip(self.blocks, self.parts):
            matmul(block.T, dy, self.linear.weight.grad[part])
            progress()
        column_sums(dy, self.linear.bias.grad)

    def input_gradient(self, dy):
        return self._finish(self._start(dy))

    def backward(self, dy):
        transfer = self._start(dy)
        self.gradients(dy, transfer.test)
        self.written()
        return self._finish(transfer)

    def _start(self, dy):
        shapes = [(len(dy), size(part)) for part in self.parts]
        self._sent = [self.workspace(f"to {rank}", shape, dy.dtype) for rank, shape in enumerate(shapes)]
        self._terms = [self.workspace(f"of {rank}", shapes[self.group.rank], dy.dtype) for rank in range(self.group.size)]
        for part, block in zip(self.parts, self._sent):
            matmul(dy, self.linear.weight.value[part].T, block)
        self._terms[self.group.rank] = self._sent[self.group.rank]
        return self.group.start_point_to_point(self._sent, self._terms, self.name, "reduce-scatter")

    def _finish(self, transfer):
        transfer.wait()
        dx = gradient_space(self._terms[0].shape, self._terms[0])
        xp.copyto(dx, self._terms[0])
        for term in self._terms[1:]:
            xp.add(dx, term, out=dx)
        return dx

    def __repr__(self):
        return f"GatheredLinear({self.linear!r}, {self.group.size} ranks)"
