"""The im2col matrix of a convolution, tap by tap, in NumPy."""

import itertools

import numpy as np

from dnnc.expr import product


def output_pixels(box):
    """Output pixels of all images: rows of the matrix that the boxes are of."""
    return product((box.tensor.shape[0], *box.outputs))


def im2col(x, windows):
    """[taps, output pixels of all images, C] of x [N, C, spatial ...], padded with zeros."""
    padded = np.pad(x, [(0, 0), (0, 0), *((w.pre, w.post) for w in windows)])
    found = []
    for tap in itertools.product(*(range(w.taps) for w in windows)):
        places = [
            slice(t * w.dilation, extent - (w.taps - 1 - t) * w.dilation, w.stride)
            for t, w, extent in zip(tap, windows, padded.shape[2:], strict=True)
        ]
        met = np.moveaxis(padded[:, :, *places], 1, -1)
        found.append(met.reshape(-1, x.shape[1]))
    return np.stack(found)
