"""A Linear layer whose input is still on its way when it begins to multiply."""

from nn.device import xp
from nn.gemm import column_sums, matmul
from nn.layer import Layer
from parallel.placement.partition import size


class GatheredLinear(Layer):
    """A Redistribute `Shard(C) -> Replicate` and the Linear behind it: the same numbers but for the order of sums.

    Blocks of features are multiplied as they lie, so that nothing is packed: forward, y = sum_r x_r W_r, beginning with
    the own block while the others arrive; backward, the gradients dy W_r^T of the others' blocks are on their way to
    them (the reduce-scatter) while the gradient of the weights is computed.

    move: the Redistribute. linear: this rank's block of a Linear that has all rows.
    """

    output_may_be_overwritten = True
    has_fused_backward = True

    def __init__(self, move, linear):
        self.move, self.linear, self.group, self.parameters = move, linear, move.group, linear.parameters

    def give_name(self, name):
        self.name = self.move.name = self.linear.name = name

    @property
    def parts(self):
        """The slices of the features, those of one rank each."""
        return self.move.source.partition.parts

    def forward(self, x, context):
        workspace, parts = context[self].workspace, self.parts
        context[self].transfer = None  # the one that is under way while the weights' gradients are computed
        me, weight, bias = self.group.rank, self.linear.weight.value, self.linear.bias.value
        blocks = [workspace(f"x {rank}", (len(x), size(part)), x.dtype) for rank, part in enumerate(parts)]
        context[self].blocks = blocks
        xp.copyto(blocks[me], x)
        transfer = self.group.start_point_to_point([blocks[me]] * self.group.size, blocks, self.name, "all-gather")
        y = workspace("y", (len(x), weight.shape[1]), x.dtype)
        matmul(blocks[me], weight[parts[me]], y, context.progress)
        transfer.wait()
        term = workspace("term", y.shape, y.dtype)
        for rank, part in enumerate(parts):
            if rank != me:
                xp.add(y, matmul(blocks[rank], weight[part], term, context.progress), out=y)
        return xp.add(y, bias, out=y)

    def gradients(self, dy, context):
        kept = context[self]
        for block, part in zip(kept.blocks, self.parts):
            matmul(block.T, dy, self.linear.weight.grad[part], context.progress)
            if kept.transfer:
                kept.transfer.test()
        column_sums(dy, self.linear.bias.grad)

    def input_gradient(self, dy, context):
        self._start(dy, context)
        return self._finish(context)

    def backward(self, dy, context):
        self._start(dy, context)
        context.run(self, "gradients", dy)
        context.written(self)
        return self._finish(context)

    def _start(self, dy, context):
        kept, parts = context[self], self.parts
        shapes = [(len(dy), size(part)) for part in parts]
        sent = [kept.workspace(f"to {rank}", shape, dy.dtype) for rank, shape in enumerate(shapes)]
        kept.terms = [kept.workspace(f"of {rank}", shapes[self.group.rank], dy.dtype) for rank in range(self.group.size)]
        for part, block in zip(parts, sent, strict=True):
            matmul(dy, self.linear.weight.value[part].T, block, context.progress)
        kept.terms[self.group.rank] = sent[self.group.rank]
        kept.transfer = self.group.start_point_to_point(sent, kept.terms, self.name, "reduce-scatter")

    def _finish(self, context):
        kept = context[self]
        kept.pop("transfer").wait()
        dx = context.gradient_space(kept.terms[0].shape, kept.terms[0])
        xp.copyto(dx, kept.terms[0])
        for term in kept.terms[1:]:
            xp.add(dx, term, out=dx)
        return dx

    def __repr__(self):
        return f"GatheredLinear({self.linear!r}, {self.group.size} ranks)"
