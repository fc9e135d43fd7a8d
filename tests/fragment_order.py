"""Where cuDNN 9.19 stored the elements of an F16x16 tensor on an H100, as it was measured."""

import numpy as np


def place(i, j, n):
    """The offset of element (i, j) in a matrix of n columns, in elements from its first."""
    tile = (i // 16) * (n // 16) + j // 16
    lane = (i % 8) * 4 + (j % 8) // 2
    return tile * 256 + lane * 8 + (i % 16 // 8) * 4 + (j % 16 // 8) * 2 + j % 2


def buffer_of(matrices):
    """The elements of [B, H, M, N] in the order of memory."""
    *_, m, n = matrices.shape
    i, j = np.indices((m, n))
    found = np.empty((matrices[..., 0, 0].size, m * n), matrices.dtype)
    found[:, place(i, j, n).ravel()] = matrices.reshape(-1, m * n)
    return found.ravel()


def in_memory(array, strides):
    """The elements of an array in the order that strides give them in memory."""
    at = np.indices(array.shape)
    places = sum(axis * stride for axis, stride in zip(at, strides, strict=True))
    assert np.array_equal(np.sort(places, axis=None), np.arange(array.size))
    found = np.empty(array.size, array.dtype)
    found[places.ravel()] = array.ravel()
    return found


def as_bound(buffer, dims, strides):
    """The array of these dims whose elements lie so in memory."""
    at = np.indices(dims)
    return buffer[sum(axis * stride for axis, stride in zip(at, strides, strict=True))]
