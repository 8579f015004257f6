"""Layers that compute while their input arrives: a Redistribute and the layer behind it as one. All passes are collective.

In backward the gradient of the input travels back while the gradients of the parameters are computed.
"""

from dataclasses import replace
from math import prod

from gridgrad.nn.device import xp
from gridgrad.nn.kernels.gemm import matmul
from gridgrad.nn.kernels.workspace import column_sums
from gridgrad.nn.layer import Layer
from gridgrad.parallel.placement.partition import positions, size


class Overlapped(Layer):
    """move: the Redistribute. layer: the one behind it, with this rank's block of the weights."""

    # `start_back` computes the gradient of what has arrived and begins to send it back. `finish_back` takes what that returned,
    # and returns the gradient of what this rank had before the move.

    output_may_be_overwritten = True

    def __init__(self, move, layer):
        self.move, self.layer, self.group, self.parameters = move, layer, move.group, layer.parameters
        self.kind = layer.kind

    def give_name(self, name):
        self.name = self.move.name = self.layer.name = name

    def input_gradient(self, dy, context):
        return self.finish_back(self.start_back(dy, context), context)

    def backward(self, dy, context):
        context.begin_pass(self, "input_gradient")
        started = self.start_back(dy, context)
        context.end_pass(self, "input_gradient")
        context.run(self, "gradients", dy)
        return self.finish_back(started, context)


class HaloConv2d(Overlapped):
    """A Conv2d of a rank's rows or columns of images, padded as within the whole images. The move brings the halo: from the
    rows that each rank owns to those that its outputs need."""

    def __init__(self, move, layer):
        super().__init__(move, layer)
        window, rank, self.dim = layer.window, self.group.rank, move.source.dim
        owned, needed = move.source.partition, move.target.partition
        kept = owned.intersection(rank, needed, rank)
        own = positions(kept, needed.part(rank))  # the owned rows, counted from the first needed row
        dim, length = self.dim, needed.size(rank)
        looks = [window.input_part(dim, slice(i, i + 1), length) for i in range(window.outputs(dim, length))]
        inside = [i for i, seen in enumerate(looks) if size(kept) and seen.start >= own.start and seen.stop <= own.stop]
        # this rank's output rows, or columns, whose windows cover only input rows that it owns itself
        self.inner = slice(inside[0], inside[-1] + 1) if inside else slice(0, 0)

    def forward(self, x, context):
        """Computes the outputs that need no halo while it arrives, then those at the borders."""
        halo, space = self.move.step("forward", x.shape, context.batch_size), context[self.move, "forward"].workspace
        x = xp.ascontiguousarray(x)
        extended = space("out", halo.there, x.dtype)
        halo.keep(x, extended)
        transfer = halo.start(x, space, self.name)
        y, dim = self.layer.begin_forward(extended, context), self.dim
        self.layer.compute(y, dim, self.inner, context)
        halo.finish(transfer, extended)
        self.layer.compute(y, dim, slice(0, self.inner.start), context)
        self.layer.compute(y, dim, slice(self.inner.stop, y.shape[dim]), context)
        return y

    def gradients(self, dy, context):
        self.layer.gradients(dy, context)

    def start_back(self, dy, context):
        extended = self.layer.input_gradient(dy, context)  # of all rows that were needed
        halo = self.move.step("backward", extended.shape, context.batch_size)
        return halo, extended, halo.start(extended, context[self.move, "backward"].workspace, self.name)

    def finish_back(self, started, context):
        halo, extended, transfer = started
        dx = context.gradient_space(halo.there, extended)
        halo.keep(extended, dx)
        halo.finish(transfer, dx)
        return dx

    def work(self, workload):
        before = workload.shape
        workload.shape = self.move.step("forward", before, workload.batch_size).there
        forward, *_ = workload.add(self.layer)
        after, workload.shape = workload.shape, before
        share = size(self.inner) / max(after[self.dim], 1)  # of the outputs that need no halo; the others are another call
        if 0 < share < 1 and len(forward.sizes) == 4:
            n, pixels, *channels = forward.sizes
            parts = [
                replace(forward, sizes=(n, pixels * p, *channels), flops=forward.flops * p, nbytes=forward.nbytes * p)
                for p in (share, 1 - share)
            ]
            workload.works[workload.works.index(forward)] = parts[0]
            workload.works.append(parts[1])
        workload.add(self.move)
        workload.keep(0 if workload.first else -prod(before))  # the gradient of the input is passed on
        workload.shape = after

    def __repr__(self):
        return f"HaloConv2d({self.layer!r}, {self.move!r})"


class GatheredLinear(Overlapped):
    """A Linear whose input an all-gather brings, `Shard(C) -> Replicate`. It sums in another order, y = sum_r x_r W_r, each
    block from the buffer in which it arrived."""

    @property
    def parts(self):
        """For each rank, the slice of the features that it holds."""
        return self.move.source.partition.parts

    def forward(self, x, context):
        """Multiplies the own block while the blocks of the other ranks arrive."""
        workspace, parts = context[self].workspace, self.parts
        context[self].transfer = None  # backward puts its reduce-scatter here: `gradients` tests it, so that it makes progress
        me, weight, bias = self.group.rank, self.layer.weight.value, self.layer.bias_value
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
            matmul(block.T, dy, self.layer.weight.grad[part], context.progress)
            if kept.transfer:
                kept.transfer.test()
        if self.layer.has_bias:
            column_sums(dy, self.layer.bias.grad)

    def start_back(self, dy, context):
        """The terms of the gradient: partial sums dy W_r^T, which a reduce-scatter brings."""
        kept, parts = context[self], self.parts
        shapes = [(len(dy), size(part)) for part in parts]
        sent = [kept.workspace(f"to {rank}", shape, dy.dtype) for rank, shape in enumerate(shapes)]
        terms = [kept.workspace(f"of {rank}", shapes[self.group.rank], dy.dtype) for rank in range(self.group.size)]
        for part, block in zip(parts, sent, strict=True):
            matmul(dy, self.layer.weight.value[part].T, block, context.progress)
        terms[self.group.rank] = sent[self.group.rank]
        kept.transfer = self.group.start_point_to_point(sent, terms, self.name, "reduce-scatter")
        return terms

    def finish_back(self, terms, context):
        context[self].pop("transfer").wait()
        dx = context.gradient_space(terms[0].shape, terms[0])
        xp.copyto(dx, terms[0])
        for term in terms[1:]:
            xp.add(dx, term, out=dx)
        return dx

    def work(self, workload):
        forward = self.move.step("forward", workload.shape, workload.batch_size)
        workload.shape = forward.there
        workload.communicate("forward", forward.kind, self.group, forward.sent)
        _, *back = workload.add(self.layer)
        # The gathered blocks, the product with one of them, and the terms of the gradient that are sent and received.
        workload.keep((1 if workload.first else 3) * prod(forward.there) + prod(workload.shape))
        if not workload.first:
            backward = self.move.step("backward", forward.there, workload.batch_size)
            workload.communicate("backward", backward.kind, self.group, backward.sent, tuple(back[:1]))

    def __repr__(self):
        return f"GatheredLinear({self.layer!r}, {self.group.size} ranks)"
