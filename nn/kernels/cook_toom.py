"""Convolutions in one dimension with few products: the transforms of Winograd's algorithm (Lavin and Gray 2016, section 4).

m outputs of a kernel of r elements are y = A^T ((G g) * (B^T d)): n = m + r - 1 products instead of m r.
"""

from fractions import Fraction
from functools import lru_cache

import numpy as np

from gridgrad.nn.device import to_device

# The finite points at which Cook-Toom evaluates polynomials, for transforms with n points: of many sets of small fractions,
# those with the smallest rounding errors.
POINTS = {
    4: (0, 1, -1),
    5: (0, Fraction(3, 4), Fraction(-3, 4), Fraction(5, 3)),
    6: (0, Fraction(2, 3), Fraction(-2, 3), Fraction(3, 2), Fraction(-3, 2)),
    7: (0, 1, -1, Fraction(7, 4), Fraction(-7, 4), Fraction(1, 3)),
}


OUTPUT, KERNEL, INPUT = range(3)  # the matrices of `transforms`


@lru_cache
def transforms(m, r):
    """The matrices of Winograd's F(m, r): (A^T, G, B^T) such that y = A^T ((G g) * (B^T d)).

    g: a kernel of r elements; d: m + r - 1 inputs; y: m outputs; *: elementwise. The matrices are (m, n), (n, r) and (n, n)
    with n = m + r - 1, computed exactly as rationals and rounded once to float64. n: a key of POINTS.

    Cook-Toom's construction: polynomials of degree < m and < r are evaluated at n points, the last of which is infinity.
    B^T is the transposed inverse of the evaluation, scaled so that its entries stay small.
    """
    n = m + r - 1
    points = POINTS[n]

    def evaluation(degree):
        return [[Fraction(p) ** k for k in range(degree)] for p in points] + [
            [Fraction(k == degree - 1) for k in range(degree)]
        ]

    inverse = _inverted(evaluation(n))
    scales = []
    for p in points:
        scale = Fraction(1)
        for q in points:
            scale *= p - q if p != q else 1
        scales.append(scale)
    scales.append(Fraction(1))
    b = [[inverse[k][i] * scales[i] for k in range(n)] for i in range(n)]
    g = [[value / scale for value in row] for row, scale in zip(evaluation(r), scales)]
    a = [list(column) for column in zip(*evaluation(m))]
    return tuple(np.array([[float(v) for v in row] for row in matrix]) for matrix in (a, g, b))


def _inverted(matrix):
    """The inverse of a square matrix of Fractions, by Gauss-Jordan elimination."""
    n = len(matrix)
    rows = [list(row) + [Fraction(i == j) for j in range(n)] for i, row in enumerate(matrix)]
    for i in range(n):
        pivot = next(k for k in range(i, n) if rows[k][i])
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [v / rows[i][i] for v in rows[i]]
        for k in range(n):
            if k != i and rows[k][i]:
                rows[k] = [v - rows[k][i] * u for v, u in zip(rows[k], rows[i])]
    return [row[n:] for row in rows]


@lru_cache
def transform(m, r, which, dtype):
    """A matrix of `transforms`, rounded to `dtype` and contiguous, on the device. which: OUTPUT, KERNEL or INPUT."""
    return to_device(np.ascontiguousarray(transforms(m, r)[which], dtype))
