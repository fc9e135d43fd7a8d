"""Parts of tests of convolutions: images with channels last, parameters, shapes."""

import numpy as np

import dnnc

from ..elementwise.test_resample import channels_last

N = dnnc.Dim("N", max=64)
H = dnnc.Dim("H", min=4, max=64)
W = dnnc.Dim("W", min=4, max=64)


def packed(dims):
    return [int(np.prod(dims[axis + 1 :])) for axis in range(len(dims))]


def around(padding, stride=1, dilation=1, spatial=2, **more):
    return {
        "padding": [padding] * spatial,
        "stride": [stride] * spatial,
        "dilation": [dilation] * spatial,
        **more,
    }


def image(g, dims, **options):
    """A tensor with the channels last."""
    return g.tensor(dims, channels_last(dims), **options)


def convolved(g, x, w, **parameters):
    """Y of tensors of some dims, channels last."""
    return g.conv_fprop(image(g, x), image(g, w), **parameters)


def ptx_of(plan):
    return plan.blobs[1].decode()


# X, W, parameters.
CASES = {
    "3x3": ([2, 64, 5, 6], [64, 64, 3, 3], around(1)),
    "1x1": ([2, 72, 7, 5], [40, 72, 1, 1], around(0)),
    "1x1 stride 2": ([1, 64, 9, 8], [64, 64, 1, 1], around(0, 2)),
    "channels past a panel": ([1, 72, 5, 4], [24, 72, 3, 2], around(1)),
    "few channels": ([1, 8, 9, 10], [16, 8, 5, 5], around(2, 2)),
    "uneven": ([2, 16, 9, 7], [72, 16, 2, 3], {
        "pre_padding": [0, 2], "post_padding": [3, 1], "stride": [2, 1], "dilation": [1, 3]}),
    "odd outputs": ([1, 16, 6, 6], [37, 16, 3, 3], around(1)),
    "one pixel": ([3, 64, 3, 3], [64, 64, 3, 3], around(0)),
    "no padding, stride beyond the filter": ([2, 16, 11, 11], [16, 16, 2, 2], around(0, 4)),
}  # fmt: skip


MORE = {
    "1D": ([3, 24, 37], [40, 24, 5], around(2, 2, spatial=1)),
    "1D of groups": ([2, 32, 21], [48, 16, 3], around(1, spatial=1)),
    "3D": ([2, 16, 4, 5, 6], [24, 16, 2, 3, 3], {
        "pre_padding": [0, 1, 2], "post_padding": [1, 1, 0], "stride": [1, 2, 1],
        "dilation": [2, 1, 1]}),
    "3D flipped": ([1, 8, 3, 4, 5], [8, 8, 3, 2, 2], {
        **around(1, spatial=3), "convolution_mode": "CONVOLUTION"}),
    "3D of groups of whole panels": ([1, 128, 3, 4, 3], [48, 64, 2, 2, 2], around(1, spatial=3)),
    "groups": ([2, 48, 5, 6], [80, 24, 3, 3], around(1)),
    "groups, uneven": ([3, 32, 7, 5], [48, 8, 3, 2], {
        "pre_padding": [2, 0], "post_padding": [1, 3], "stride": [2, 1], "dilation": [1, 2]}),
    "groups of whole panels": ([2, 128, 4, 5], [144, 64, 3, 3], around(1)),
    "groups of odd outputs": ([2, 32, 4, 5], [22, 16, 3, 3], around(1)),
}  # fmt: skip
