"""Chains of elementwise operations as one kernel each, for GPUs.

There each operation on arrays is a kernel, which takes some microseconds to start, and a pass over memory. So what is done to
each element stands here once more, in the C++ of CUDA, for CuPy to compile. A CPU does not need it: layers work there in pieces
that stay in the cache.

Above each operation are the name of the kernel, its inputs, and its outputs, which it may read, too. An input may be the same
memory as an output, so it is read first. `T` is the type of the network. Vectors of a BatchNorm are float64, and are cast to
it. Arrays that are `raw` are indexed; i is the number of the element.
"""

import re
from functools import cache
from typing import Any

from gridgrad.nn.device import xp

TEXT = """
ReLU_slope(T y -> T dy)  dy = y > 0 ? dy : 0
Tanh_slope(T y -> T dy)  dy *= 1 - y * y
Sigmoid_slope(T y -> T dy)  dy *= y - y * y
gelu(T x, T linear, T cubic -> T y, T slope)
    T value = x, square = value * value, half = tanh((linear + cubic * square) * value);
    slope = ((1 - half * half) * (linear + 3 * cubic * square) * value + half + 1) * (T) 0.5;
    y = value * (half + 1) * (T) 0.5
dropout(T x, uint16 bits, int32 threshold, T scale -> T mask, T y)
    mask = bits < threshold ? 0 : scale; y = x * mask

normalise(T x, float64 scale, float64 shift, int32 rectified -> T y)
    T value = x * (T) scale + (T) shift; y = rectified && value <= 0 ? 0 : value
terms_of_sums(T x, float64 mean, float64 scale, float64 minus_shift, int32 rectified -> T dy, T product)
    if (rectified && !(x * (T) scale - (T) minus_shift > 0)) dy = 0; product = (x - (T) mean) * dy
normalise_gradient(T x, T dy, float64 scale, float64 slope, float64 constant -> T dx)
    dx = (T) scale * dy - ((T) slope * x + (T) constant)

totals(raw float64 sums, raw T near, int64 rows -> float64 total)
    total = i < _ind.size() - 1 ? sums[i] + rows * (double) near[i] : rows
moments(float64 total, float64 count, T near, float64 sum, float64 square, int64 rows -> float64 mean, float64 squares)
    double apart = total / count - near; mean = total / count;
    squares = square - 2 * apart * sum + rows * apart * apart
running(float64 mean, float64 squares, float64 count, float64 momentum -> T running_mean, T running_variance, float64 variance)
    running_mean += (T) momentum * ((T) mean - running_mean);
    running_variance += (T) momentum * ((T) (squares / (count > 2 ? count - 1 : 1)) - running_variance);
    variance = squares < 0 ? 0 : squares / count
affine(float64 mean, float64 variance, T gamma, T beta, float64 eps -> float64 inverse, float64 scale, float64 shift)
    inverse = 1 / sqrt(variance + eps); scale = gamma * inverse; shift = beta - mean * scale
coefficients(raw float64 sums, float64 count, float64 mean, float64 inverse, float64 scale -> float64 slope, float64 constant)
    slope = scale * inverse * sums[i + _ind.size()] / count; constant = scale * sums[i] / count - slope * mean

penalties(T p, T l1, T l2 -> T g)  g += l1 * ((p > 0) - (p < 0)) + l2 * p
sgd(T g, T scale, T momentum, T rescaled, int32 moves, int32 nesterov -> T p)  p -= scale * g
momentum(T g, T scale, T momentum, T rescaled, int32 moves, int32 nesterov -> T p, T v)
    v = rescaled * v + scale * g; if (moves) p -= nesterov ? scale * g + momentum * v : v
adam(T g, T beta1, T beta2, T lr, T eps, T shrinkage -> T p, T m, T s)
    m = beta1 * m + g; s = beta2 * s + g * g; p = shrinkage * p - lr * m / (sqrt(s) + eps)

max_pool(raw T x, IMAGES -> T y, U place)
    T largest = 0; int at = -1; EACH_PIXEL
        if (at < 0 || value > largest || value != value) { largest = value; at = down * kw + across; }
    } y = largest; place = at
max_pool_gradient(raw T dy, raw U place, IMAGES -> T dx)
    EACH_WINDOW if (place[output] == (row - p * sh) * kw + column - q * sw) sum += dy[output]; } dx = sum
average_pool(raw T x, IMAGES -> T y)  T sum = 0; EACH_PIXEL sum += value; } y = sum / (kh * kw)
average_pool_gradient(raw T dy, IMAGES -> T dx)  EACH_WINDOW sum += dy[output]; } dx = sum / (kh * kw)
"""
POOLING = {  # words above, and what they stand for; divisions of 64 bits would take longer than all else
    "IMAGES": "int32 H, int32 W, int32 C, int32 P, int32 Q, int32 kh, int32 kw, int32 sh, int32 sw, int32 top, int32 left",
    # For each value in the window of this output, column by column. `values` are those of its channel in its image.
    "EACH_PIXEL": """unsigned element = i;
    int p = element / C / Q % P, q = element / C % Q;
    long long values = (long long) (element / C / Q / P) * H * W * C + element % C;
    for (int down, across = 0; across < kw; ++across) for (down = 0; down < kh; ++down) {
        int row = p * sh - top + down, column = q * sw - left + across;
        if (row < 0 || row >= H || column < 0 || column >= W) continue;
        T value = x[values + ((long long) row * W + column) * C];""",
    # For each output whose window has this value. Rows and columns are counted from the padding.
    "EACH_WINDOW": """unsigned element = i;
    int row = element / C / W % H + top, column = element / C % W + left;
    long long outputs = (long long) (element / C / W / H) * P * Q * C + element % C;
    T sum = 0; for (int p = row < kh ? 0 : (row - kh) / sh + 1; p < P && p * sh <= row; ++p)
        for (int q = column < kw ? 0 : (column - kw) / sw + 1; q < Q && q * sw <= column; ++q) {
            long long output = outputs + ((long long) p * Q + q) * C;""",
}
_TEXT = re.sub("|".join(POOLING), lambda word: POOLING[word[0]], TEXT)
KERNELS = {
    name: row for name, *row in re.findall(r"^(\w+)\((.*?)\s+-> (.*?)\)(.*?)(?=^\w|\Z)", _TEXT, re.DOTALL | re.MULTILINE)
}


def fused(name: str, *arguments: Any) -> Any:
    """Run a kernel. arguments: its inputs, which broadcast, and its outputs, or without them for new ones; returns these."""
    return _kernel(name, xp.ElementwiseKernel)(*arguments)


@cache
def _kernel(name, make):
    """`make`: the class of a library whose kernels compile themselves for the types of arrays with which they are called."""
    return make(*KERNELS[name], f"gridgrad_{name}")
