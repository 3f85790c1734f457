"""Products of a few or of many rows with a matrix of weights, in the way BLAS does each fastest.

Shapes: T rows, K inputs, N outputs. A matrix is [N, K]: an output's weights are one run of memory, so that one thread
reads them as fast as memory gives them.

OpenBLAS first copies a matrix into the order its kernel likes. For many rows that is nothing; for a few it costs
several times the product. It leaves the copy out for products of up to a million multiply-adds (kernels for AVX-512),
so a few rows are multiplied with some rows of the matrix at a time, all in one call of NumPy. A single row is a dot
product with each row of the matrix: BLAS's own matrix-vector product reads at two thirds of the speed.

The copy of a matrix [N, K] is faster when it stands at the left, as in [N, K] @ [K, T], than when it stands transposed
at the right. So where columns will do for many rows, that is the better product: by a tenth with 64 rows, by a fiftieth
with 512.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

FEW = 16  # rows up to which the copy costs more than it brings
SMALL = 1_000_000  # multiply-adds of one product without the copy
SMALL_OUT = 1200  # and the most results it may have


def project(x: Array, matrix: Array, out: Array) -> None:
    """Fill out [T, N] with x [T, K] @ matrix [N, K] transposed. The last axis of each must be contiguous."""
    T, K = x.shape
    if T == 1:
        np.vecdot(matrix, x[0], out=out[0])
    elif T > FEW:
        np.matmul(x, matrix.T, out=out)
    else:
        rows = max(min(SMALL // (T * max(K, 1)), SMALL_OUT // T), 1)
        whole = len(matrix) // rows  # blocks of rows
        cut = whole * rows
        blocks = matrix[:cut].reshape(whole, rows, K, copy=False)
        into = out[:, :cut].reshape(T, whole, rows, copy=False)
        np.matmul(x, blocks.swapaxes(1, 2), out=into.swapaxes(0, 1))  # [T, K] @ [whole, K, rows] -> [whole, T, rows]
        if cut < len(matrix):
            np.matmul(x, matrix[cut:].T, out=out[:, cut:])
