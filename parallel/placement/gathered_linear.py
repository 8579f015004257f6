"""A Linear layer that overlaps the all-gather of its input with its matrix products."""

from math import prod

from gridgrad.nn.device import xp
from gridgrad.nn.kernels.gemm import matmul
from gridgrad.nn.kernels.workspace import column_sums
from gridgrad.nn.layer import Layer
from gridgrad.parallel.placement.partition import size


class GatheredLinear(Layer):
    """A Redistribute `Shard(C) -> Replicate`, `move`, and this rank's block of the Linear behind it as one layer. It sums in
    another order, y = sum_r x_r W_r, each block from the buffer in which it arrived. All passes are collective."""

    kind = "linear"
    output_may_be_overwritten = True

    def __init__(self, move, linear):
        self.move, self.linear, self.group, self.parameters = move, linear, move.group, linear.parameters

    def give_name(self, name):
        self.name = self.move.name = self.linear.name = name

    @property
    def parts(self):
        """For each rank, the slice of the features that it holds."""
        return self.move.source.partition.parts

    def forward(self, x, context):
        """Multiplies the own block while the blocks of the other ranks arrive."""
        workspace, parts = context[self].workspace, self.parts
        context[self].transfer = None  # backward puts its reduce-scatter here: `gradients` tests it, so that it makes progress
        me, weight, bias = self.group.rank, self.linear.weight.value, self.linear.bias_value
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
        return xp.add(y, bias, out=y) if bias.size else y

    def gradients(self, dy, context):
        kept = context[self]
        for block, part in zip(kept.blocks, self.parts):
            matmul(block.T, dy, self.linear.weight.grad[part], context.progress)
            if kept.transfer:
                kept.transfer.test()
        if self.linear.has_bias:
            column_sums(dy, self.linear.bias.grad)

    def input_gradient(self, dy, context):
        self._start(dy, context)
        return self._finish(context)

    def backward(self, dy, context):
        """Computes the gradient of the weights during the reduce-scatter of the partial sums dy W_r^T."""
        self._start(dy, context)
        context.run(self, "gradients", dy)
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

    def work(self, workload):
        forward = self.move.step("forward", workload.shape, workload.batch_size)
        workload.shape = forward.there
        workload.communicate("forward", forward.kind, self.group, forward.sent)
        _, *back = workload.add(self.linear)
        # The gathered blocks, the product with one of them, and the terms of the gradient that are sent and received.
        workload.keep((1 if workload.first else 3) * prod(forward.there) + prod(workload.shape))
        if not workload.first:
            backward = self.move.step("backward", forward.there, workload.batch_size)
            workload.communicate("backward", backward.kind, self.group, backward.sent, tuple(back[:1]))

    def __repr__(self):
        return f"GatheredLinear({self.linear!r}, {self.group.size} ranks)"
