"""Small graphs of causal convolutions and their gradients, and for each constraint one that breaks
it.

EXAMPLES, BROKEN: as in `examples`.
"""

import dnnc
from dnnc import dtypes

from .rope_examples import changed

T = dnnc.Dim("M", min=1, max=512)


def strides_of(dims, is_last):
    """Strides of [B, D, T], with channels last or first in memory."""
    _, channels, size = dims
    return [channels * size, 1, channels] if is_last else [channels * size, size, 1]


def new_graph(io):
    return dnnc.pygraph(
        "causal", io_data_type=io, intermediate_data_type=dtypes.f32,
        compute_data_type=dtypes.f32, target="sm_90",
    )  # fmt: skip


def causal(
    x=(2, 6, 9), w=None, bias=None, states=None, is_last=True, io=dtypes.f32, type_=None, **rest
):
    def build():
        g = new_graph(io)
        given = [g.tensor(list(x), strides_of(x, is_last)), g.tensor(list(w or (x[1], 4)))]
        more = {"bias": bias, "initial_states": states}
        tensors = {name: g.tensor(list(dims)) for name, dims in more.items() if dims}
        given[1].set_data_type(type_ or io)
        g.causal_conv1d(*given, **tensors, **rest).set_output()
        return g

    return build


def causal_backward(x=(2, 6, 9), w=None, bias=None, dy=None, io=dtypes.f32, type_=None, **rest):
    def build():
        g = new_graph(io)
        given = [g.tensor(list(dims), strides_of(dims, is_last=True)) for dims in (dy or x, x)]
        weight = g.tensor(list(w or (x[1], 4)), data_type=type_ or io)
        own = g.tensor(list(bias)) if bias else None
        for tensor in g.causal_conv1d_backward(*given, weight, own, **rest):
            if tensor is not None:
                tensor.set_output()
        return g

    return build


EXAMPLES = {
    "causal_conv1d": [
        causal(),
        causal((2, 6, T), bias=[6], activation="silu", io=dtypes.bf16),
        causal(states=[2, 6, 3], bias=[6], is_last=False, activation="silu", io=dtypes.f16),
    ],
    "causal_conv1d_backward": [
        causal_backward(),
        causal_backward(bias=[6], activation="silu", io=dtypes.bf16),
    ],
}
BROKEN = {
    ("causal_conv1d", "C1"): causal(w=[5, 4]),
    ("causal_conv1d", "C2"): causal(bias=[1]),
    ("causal_conv1d", "C3"): causal(states=[2, 6, 4]),
    ("causal_conv1d", "C4"): changed(causal(), y=[2, 6, 8]),
    ("causal_conv1d", "C5"): causal(type_=dtypes.i32),
    ("causal_conv1d_backward", "C1"): causal_backward(w=[5, 4]),
    ("causal_conv1d_backward", "C2"): changed(causal_backward(bias=[6]), dbias=None),
    ("causal_conv1d_backward", "C3"): causal_backward(dy=[2, 6, 8]),
    ("causal_conv1d_backward", "C4"): causal_backward(type_=dtypes.i32),
}
