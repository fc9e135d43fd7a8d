"""Small graphs of rotary embedding and its gradient, and for each constraint one that breaks it.

EXAMPLES, BROKEN: as in `examples`.
"""

import dnnc
from dnnc import dtypes

S = dnnc.Dim("M", min=1, max=512)
METHODS = ("rope", "rope_backward")


def rope(method, x=(2, 2, 3, 8), freqs=None, strides=None, io=dtypes.f32, type_=None, **parameters):
    def build():
        g = dnnc.pygraph(
            "rope", io_data_type=io, intermediate_data_type=dtypes.f32,
            compute_data_type=dtypes.f32, target="sm_90",
        )  # fmt: skip
        given = g.tensor(list(x), strides)
        width = parameters.get("rope_dim") or x[3]
        angles = g.tensor(list(freqs or (1, 1, x[2], width)), data_type=type_ or dtypes.f32)
        getattr(g, method)(given, angles, **parameters).set_output()
        return g

    return build


def changed(build, **changes):
    """A valid graph whose operation is changed behind the method's back."""

    def made():
        g = build()
        for name, value in changes.items():
            if isinstance(value, list):
                value = getattr(g.graph.ops[-1], name).set_dim(value).set_stride([1] * len(value))
            setattr(g.graph.ops[-1], name, value)
        return g

    return made


EXAMPLES = {
    "rope": [
        rope("rope"),
        rope("rope", [2, 2, S, 8], output_scale=0.25, rope_dim=4, io=dtypes.bf16),
        rope("rope", freqs=[3, 1, 1, 8], strides=[48, 8, 16, 1], io=dtypes.f16),
    ],
    "rope_backward": [
        rope("rope_backward", freqs=[2, 1, 3, 6], output_scale=2.0, rope_dim=6),
        rope("rope_backward", [1, 3, 2, 4], io=dtypes.f16),
    ],
}
BROKEN = {
    **{(m, "C1"): rope(m, [2, 2, 3, dnnc.Dim("D", max=64)]) for m in METHODS},
    **{(m, "C2"): rope(m, freqs=[1, 1, 3, 3], rope_dim=3) for m in METHODS},
    **{(m, "C3"): rope(m, freqs=[1, 2, 3, 8]) for m in METHODS},
    ("rope", "C4"): changed(rope("rope"), y=[2, 2, 3, 4]),
    ("rope_backward", "C4"): changed(rope("rope_backward"), dx=[2, 2, 3, 4]),
    **{(m, "C5"): rope(m, type_=dtypes.i32) for m in METHODS},
}
