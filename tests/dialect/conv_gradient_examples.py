"""Small graphs of a convolution's gradients, and for each constraint one that breaks it.

EXAMPLES, BROKEN: as in `examples`.
"""

import dnnc
from dnnc import dtypes

M = dnnc.Dim("M", min=1, max=512)
B = dnnc.Dim("B", min=1, max=64, multiple_of=2)

CONVOLUTION = {"convolution_mode": "CONVOLUTION"}


def new_graph(io=dtypes.f32):
    return dnnc.pygraph(
        "gradient",
        io_data_type=io,
        intermediate_data_type=dtypes.f32,
        compute_data_type=dtypes.f32,
        target="sm_90",
    )


def response_dims(x, w, parameters):
    """The dims of Y forward, which DY has."""
    g = new_graph()
    return g.conv_fprop(g.tensor(list(x)), g.tensor(list(w)), **parameters).get_dim()


def dgrad_of(g, x, w, types=(None, None), y=None, compute_data_type=None, **parameters):
    """DX of DY and W of some types, where X and W have dims x and w forward."""
    dims = (y or response_dims(x, w, parameters), w)
    dy, taps = (g.tensor(list(n), data_type=t) for n, t in zip(dims, types, strict=True))
    dx = g.conv_dgrad(dy, taps, compute_data_type=compute_data_type, **parameters)
    return dx.set_dim(list(x))


def wgrad_of(g, x, w, types=(None, None), y=None, compute_data_type=None, **parameters):
    """DW of X and DY of some types, where X and W have dims x and w forward."""
    dims = (x, y or response_dims(x, w, parameters))
    image, dy = (g.tensor(list(n), data_type=t) for n, t in zip(dims, types, strict=True))
    dw = g.conv_wgrad(image, dy, compute_data_type=compute_data_type, **parameters)
    return dw.set_dim(list(w))


GRADIENTS = {"conv_dgrad": dgrad_of, "conv_wgrad": wgrad_of}

# X, W, parameters of the forward convolution.
FORWARD = {
    "strided, dilated, uneven groups": (
        [2, 4, 7, 6], [6, 2, 3, 2],
        {"pre_padding": [1, 0], "post_padding": [2, 1], "stride": [2, 1], "dilation": [1, 2]},
    ),
    "flipped": ([2, 3, 9], [4, 3, 3], {"padding": [1], "stride": [2], **CONVOLUTION}),
    "volumes, depthwise": (
        [1, 4, 3, 4, 2], [4, 1, 2, 3, 1], {"padding": [0, 1, 0], "stride": [1, 2, 1]}
    ),
    "one tap": ([2, 8, 4, 5], [6, 8, 1, 1], {}),
    "pixels that no window reaches": ([1, 2, 8, 7], [3, 2, 1, 2], {"stride": [3, 4]}),
    "symbols": ([B, 4, M, M + 1], [2, 4, 2, 3], {"padding": [1, 1], "stride": [1, 2]}),
}  # fmt: skip

# Where libraries have given wrong gradients: pixels past the last window (pytorch #25101), a volume
# of groups whose strides are beyond its filter (#68868), filters of groups (#51430), depthwise
# filters of 24 channels (#50042).
PEERS = {
    "pixels past the last window": (
        [1, 3, 11, 11], [2, 3, 5, 5], {"padding": [1, 1], "stride": [3, 3]}
    ),
    "volume of groups, wide strides": (
        [1, 6, 5, 5, 3], [6, 2, 2, 2, 2], {"padding": [1, 1, 1], "stride": [4, 4, 1]}
    ),
    "filters of groups": ([2, 6, 8], [4, 3, 3], {"padding": [1], "dilation": [2]}),
    "24 channels, depthwise": (
        [1, 24, 6, 6], [24, 1, 3, 3], {"padding": [1, 1], "stride": [2, 2]}
    ),
}  # fmt: skip


def example(gradient, name):
    def build():
        g = new_graph()
        x, w, parameters = FORWARD[name]
        gradient(g, x, w, **parameters).set_output()
        return g

    return build


def of_fp8(gradient):
    def build():
        g = new_graph(dtypes.f16)
        types = (dtypes.f8e4m3, dtypes.f8e5m2)
        gradient(
            g, [2, 4, 3, 6], [3, 4, 2, 3], types, compute_data_type=dtypes.fast_float_for_fp8
        ).set_output()
        return g

    return build


EXAMPLES = {
    name: [*(example(gradient, case) for case in FORWARD), of_fp8(gradient)]
    for name, gradient in GRADIENTS.items()
}


# ---- broken


def broken(gradient, **changes):
    """A gradient whose graph is made with other dims or parameters than fit."""
    fitting = {"x": [2, 4, 7, 7], "w": [6, 4, 3, 3], "y": [2, 6, 5, 5]}

    def build():
        g = new_graph()
        gradient(g, **{**fitting, **changes}).set_output()
        return g

    return build


BROKEN = {
    (name, constraint): broken(gradient, **changes)
    for name, gradient in GRADIENTS.items()
    for constraint, changes in {
        "C1": {"stride": [1]},
        "C2": {"dilation": [1, 0]},
        "C3": {"w": [6, 3, 3, 3]},
        "C4": {"y": [2, 6, 7, 7]},
        "C5": {"compute_data_type": dtypes.i32},
    }.items()
}
