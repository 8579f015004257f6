"""PowerSGD: sums of gradients that are sent as products of two thin matrices (Vogels, Karimireddy and Jaggi, NeurIPS 2019).

The gradient of a parameter that no other rank holds needs no sum and is not compressed. What is left out depends on how a
gradient is divided among ranks, so results differ from grid to grid.

A parameter with two or more dimensions is seen as a matrix: its last dimension, the outputs of a layer, against all others.
Where that is taller than wide it is transposed, so that it has m rows and n >= m columns. W ranks hold the parameter, and rank
w has a partial sum G_w of its gradient. In each step (Algorithm 1 of the paper, with the error feedback of Algorithm 2; the
paper averages where we sum) they compute

    M_w = G_w + E_w                what this rank has to pass on, where E_w is left from earlier steps
    P = orthonormal(sum_w M_w Q)   an all-reduce of m numbers for each column of P
    Q = sum_w M_w^T P              an all-reduce of n numbers for each column of Q; the next step begins with this Q
    D = P Q^T                      the gradient that the optimizers of all ranks use
    E_w = M_w - D / W              what was not passed on

so that nothing is lost: sum_w (G_w + E_w) before a step is D + sum_w E_w after it. This is one power iteration towards the
largest singular vectors of sum_w M_w. With m columns D is the exact sum whatever Q was, since P is then square. Vectors, and
matrices that have no more elements than P and Q together, are sent as they are.

Each step has two messages for all parameters that the same ranks sum and hold, however many layers there are: the P of
all matrices, and the Q of all matrices with what is sent as it is.
"""

import math
from functools import cached_property

import numpy as np

from gridgrad.nn.device import empty, to_device, to_host, xp
from gridgrad.nn.kernels.gemm import matmul
from gridgrad.nn.observer import Observer
from gridgrad.nn.random import uniform_block
from gridgrad.parallel.grid.group import pieces
from gridgrad.parallel.sync.reduction import GRADIENTS, BlockingReduction

UNCOMPRESSED_STEPS = 10  # the gradients change most in the first steps, and averages that an optimizer keeps begin with them
NEGLIGIBLE = 1e-280  # a square of a length in float64 below which digits are lost


class PowerSGDReduction(BlockingReduction, Observer):
    """Sums gradients after backward; after UNCOMPRESSED_STEPS sums, matrices as products of two matrices of `rank` columns.
    ValueError for a sharded update and for float16."""

    # error: what was not passed on yet, laid out as `grads`; None before anything was compressed. When the network gets other
    # shares, it moves with the parameters, and Q is drawn anew. sums: how many there were, compressed or not.
    further_buffers = 1

    def __init__(self, net, rank, update="whole", reduce_dtype="same"):
        super().__init__(net, update, reduce_dtype)
        if self.sharded:
            raise ValueError("with --reduction powersgd every rank updates all its parameters: leave out --update sharded")
        if self.float16_gradients:
            raise ValueError("--reduction powersgd does not send gradients in float16: leave out --reduce-dtype float16")
        self.rank, self.error, self.sums = rank, None, 0
        net.observe(self)

    def __str__(self):
        return f"powersgd:{self.rank}"

    def again(self):
        new = type(self)(self.net, self.rank)
        new.error, new.sums = self.error, self.sums  # `relocated` moves the error
        return new

    def relocated(self, relocation):
        if self.error is not None:
            self.error = relocation.flat(self.error)

    def finish(self):
        if self.sums < UNCOMPRESSED_STEPS:
            super().finish()
        else:
            self.take_accumulated(slice(0, self.grads.size))
            for one in self._compressed:
                one.reduce()
        self.sums += 1

    def factors(self):
        """The flat arrays of all Q of this rank, a list; afterwards there is an error too."""
        return [matrix.q.reshape(-1) for one in self._compressed for matrix in one.matrices]

    def drain(self):
        super().drain()
        if self.error is not None:  # after gradients that are not finite, neither it nor Q is
            self.error.fill(0)
            vars(self).pop("_compressed", None)

    @cached_property
    def _compressed(self):
        """A CompressedSum of all parameters that the same ranks sum and hold, in the same order on all ranks."""
        if self.error is None:
            self.error = xp.zeros_like(self.grads)
        held = {}
        for layer, p, where in self.places:
            arrays = [flat[where].reshape(p.block_shape) for flat in (self.grads, self.error)]
            held.setdefault(p.layout.sharing, []).append((f"{layer.name}.{p.name}", *arrays))
        found = []
        for (summed, _), parameters in held.items():
            group = self.net.grid.group(*summed)
            parameters = [(name, gradient, error) for name, gradient, error in parameters if gradient.size]
            if group.size > 1 and parameters:
                found.append(CompressedSum(group, self.rank, self.net.seed, parameters))
        return found


class CompressedSum:
    """The sums over one group of the gradients of all parameters that it holds. rank: the most columns of P and Q.
    parameters: (name, gradient, error) of each; the arrays are this rank's blocks, row-major and not empty."""

    def __init__(self, group, rank, seed, parameters):
        self.group, self.matrices, self.whole, dtype = group, [], [], parameters[0][1].dtype
        for name, gradient, error in parameters:
            rows, columns = math.prod(gradient.shape[:-1]), gradient.shape[-1]
            few = min(rank, rows, columns)
            if few * (rows + columns) < rows * columns:  # P and Q have fewer elements
                matrices = (array.reshape(rows, columns) for array in (gradient, error))
                self.matrices.append(LowRankMatrix(name, *matrices, few))
            else:
                self.whole.append((gradient, error))
        self._first, all_p = message([matrix.shapes[0] for matrix in self.matrices], dtype)
        all_q = [matrix.shapes[1] for matrix in self.matrices]
        self._second, parts = message(all_q + [gradient.shape for gradient, _ in self.whole], dtype)
        self._whole_sent = parts[len(self.matrices) :]
        for matrix, p, q in zip(self.matrices, all_p, parts):
            drawn = uniform_block(seed, f"{matrix.name}, Q of PowerSGD", q.shape[1], slice(0, len(q)), slice(None), 1.0)
            q[...] = to_device(drawn.astype(dtype))  # the same on all ranks
            matrix.p, matrix.q = p, q

    def reduce(self):
        """Replace the gradients by their sums, or D, and each error by what that leaves out. Collective over the group."""
        for matrix in self.matrices:
            xp.add(matrix.gradient, matrix.error, out=matrix.gradient)
            matmul(matrix.oriented, matrix.q, matrix.p)  # this rank's term of P
        if self.matrices:
            self.group.all_reduce(self._first, GRADIENTS)
            on_host = to_host(self._first)
            for p in views(on_host, [matrix.p.shape for matrix in self.matrices]):
                p[...] = orthonormal(p)
            to_device(on_host, self._first)
        for matrix in self.matrices:
            matmul(matrix.oriented.T, matrix.p, matrix.q)  # this rank's term of Q
        for (gradient, error), sent in zip(self.whole, self._whole_sent, strict=True):
            xp.add(gradient, error, out=sent)  # there is an error after a block has become too small to be compressed
            error.fill(0)
        self.group.all_reduce(self._second, GRADIENTS)
        for matrix in self.matrices:
            matrix.multiply(self.group.size)
        for (gradient, _), sent in zip(self.whole, self._whole_sent, strict=True):
            gradient[...] = sent


class LowRankMatrix:
    """One matrix of a CompressedSum. gradient, error: as matrices. few: columns of P and Q, which are sent, as `p` and `q`.
    oriented: what is compressed, the gradient or its transpose, which has no more rows than columns."""

    def __init__(self, name, gradient, error, few):
        self.name, self.gradient, self.error = name, gradient, error
        self.is_transposed = gradient.shape[0] > gradient.shape[1]
        self.oriented = gradient.T if self.is_transposed else gradient
        self.shapes = [(length, few) for length in self.oriented.shape]  # of P and Q

    def multiply(self, ranks):
        """Write D and the error that it leaves. ranks: how many have a term of it."""
        self.error[...] = self.gradient
        left, right = (self.q, self.p) if self.is_transposed else (self.p, self.q)
        matmul(left, right.T / ranks, self.gradient)
        xp.subtract(self.error, self.gradient, out=self.error)
        xp.multiply(self.gradient, ranks, out=self.gradient)


def message(shapes, dtype):
    """(a new flat array, views of it in these shapes): what is sent at once."""
    flat = empty(sum(map(math.prod, shapes)), dtype)
    return flat, views(flat, shapes)


def views(flat, shapes):
    """Views, in these shapes, of consecutive blocks of a flat array."""
    return [block.reshape(shape) for block, shape in zip(pieces(flat, list(map(math.prod, shapes))), shapes)]


def orthonormal(matrix):
    """Orthonormal columns that span the columns of a matrix, (rows, columns) with columns <= rows, on the host.
    Householder's QR factorization (Golub and Van Loan 2013, sections 5.1.6 and 5.2.2) in float64."""
    # Unlike the paper's Gram-Schmidt process it finds orthonormal columns also where those of the matrix depend on one another
    # or are zero. The order of all additions is fixed, which a library's is not, so that ranks with different processors
    # compute the same bits: a column that is nothing but rounding could otherwise be another one on another rank.
    vectors = np.array(matrix.T, np.float64, order="C")
    reflections = []
    for number, vector in enumerate(vectors):
        normal = vector[number:].copy()
        normal[0] += math.copysign(math.sqrt(np.square(normal).sum()), normal[0])
        square = np.square(normal).sum()
        normal *= 0 if square < NEGLIGIBLE else math.sqrt(2 / square)
        reflect(vectors[number + 1 :, number:], normal)
        reflections.append(normal)
    found = np.eye(*vectors.shape)
    for number in reversed(range(len(reflections))):
        reflect(found[number:, number:], reflections[number])
    return found.T


def reflect(vectors, normal):
    """Reflect vectors, the rows of an array, in place at the plane whose normal of length sqrt(2), or 0, is given."""
    vectors -= (vectors * normal).sum(axis=1, keepdims=True) * normal
