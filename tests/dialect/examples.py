"""Small graphs of every operation, and for each constraint a graph that breaks it.

EXAMPLES: operation -> functions that build a valid pygraph.
BROKEN: (operation, constraint) -> function that builds one whose validation must fail there.
"""

import dnnc
from dnnc import dtypes
from dnnc.dialect.pointwise_modes import MODES

M = dnnc.Dim("M", min=1, max=512)
B = dnnc.Dim("B", min=1, max=64, multiple_of=2)


def new_graph(**options):
    defaults = {
        "io_data_type": dtypes.f32,
        "intermediate_data_type": dtypes.f32,
        "compute_data_type": dtypes.f32,
        "target": "sm_90",
    }
    return dnnc.pygraph("example", **{**defaults, **options})


def finish(graph, *outputs):
    for tensor in outputs:
        tensor.set_output(True)
    return graph


# ---- valid


def matmul_plain():
    g = new_graph()
    return finish(g, g.matmul(g.tensor([2, 3, 4]), g.tensor([2, 4, 5]), name="mm"))


def matmul_broadcast_batch():
    g = new_graph()
    return finish(g, g.matmul(g.tensor([1, 3, M, 4]), g.tensor([B, 1, 4, 5])))


def matmul_integers():
    g = new_graph(io_data_type=dtypes.i32)
    a, b = (g.tensor(dims, data_type=dtypes.i8) for dims in ([3, 4], [4, 5]))
    return finish(g, g.matmul(a, b, compute_data_type=dtypes.i32))


def matmul_half_compute():
    g = new_graph(io_data_type=dtypes.f16)
    c = g.matmul(g.tensor([3, 4]), g.tensor([4, 5]), compute_data_type=dtypes.f16)
    return finish(g, c)


def matmul_of_fp8(compute=None):
    def build():
        g = new_graph(io_data_type=dtypes.f16)
        a = g.tensor([3, M, 24], data_type=dtypes.f8e4m3)
        b = g.tensor([1, 24, 5], data_type=dtypes.f8e5m2)
        return finish(g, g.matmul(a, b, compute_data_type=compute))

    return build


def grouped_matmul(token, weight, first=None, **options):
    """A graph of moe_grouped_matmul; first: its offsets' dims (default: the right ones)."""

    def build():
        g = new_graph()
        offsets = g.tensor(first or [weight[0], 1, 1], data_type=dtypes.i32)
        return finish(
            g, g.moe_grouped_matmul(g.tensor(token), g.tensor(weight), offsets, **options)
        )

    return build


def grouped_matmul_of_tokens():
    g = new_graph(io_data_type=dtypes.bf16)
    token = g.tensor([1, M, 6])
    weight = g.tensor([3, 6, 4], [24, 1, 6])  # columns are contiguous, as cuDNN wants them
    first = g.tensor([3, 1, 1], data_type=dtypes.i32)
    y = g.moe_grouped_matmul(token, weight, first, mode=dnnc.moe_grouped_matmul_mode.NONE)
    return finish(g, g.relu(y))


def pointwise_of(mode, name, operands):
    def build():
        g = new_graph()
        kinds = [dtypes.i1 if n == "mask" else dtypes.f32 for n in operands]
        if mode.domain == "any" and mode.result == "bool":
            kinds = [dtypes.i1] * len(operands)
        shapes = ([2, M, 6], [1, M, 6], [2, M, 1])
        tensors = [g.tensor(s, data_type=k) for s, k in zip(shapes, kinds, strict=False)]
        extra = {"axis": 1} if mode.name == "gen_index" else {}
        y = getattr(g, name)(*tensors, **extra)
        if mode.result == "bool":
            y.set_data_type(dtypes.i1)
        elif mode.name == "gen_index":
            y.set_data_type(dtypes.i32)
        return finish(g, y)

    return build


def relu_with_parameters():
    g = new_graph()
    y = g.relu(g.tensor([4, 5]), negative_slope=0.1, lower_clip=-1.0, upper_clip=3.0)
    return finish(g, y)


def scalar_operands():
    g = new_graph()
    x = g.tensor([4, 5])
    by_value = g.tensor_scalar(2.5, "RUNTIME_PARAM")
    return finish(g, g.mul(g.add(x, 1.5), by_value))


def integer_arithmetic():
    g = new_graph(io_data_type=dtypes.i32, compute_data_type=dtypes.i32)
    x, y = g.tensor([4, 5]), g.tensor([4, 5])
    return finish(g, g.mod(g.mul(x, y), g.add(y, x)))


def strided_operands():
    g = new_graph()
    x = g.tensor([2, 3, 4], [12, 1, 3])
    y = g.add(x, g.tensor([1, 3, 1], [3, 1, 1]))
    return finish(g, y.set_stride([24, 2, 6]))


def reduction_of(mode):
    def build():
        g = new_graph()
        x = g.tensor([3, M, 4])
        return finish(g, g.reduction(x, mode).set_dim([3, 1, 4]))

    return build


def reduction_of_integers():
    g = new_graph(io_data_type=dtypes.i32, compute_data_type=dtypes.i32)
    return finish(g, g.reduction(g.tensor([3, 5]), "add").set_dim([1, 1]))


def transpose():
    g = new_graph()
    return finish(g, g.transpose(g.tensor([2, M, 4]), [2, 0, 1]))


def slice_with_steps():
    g = new_graph()
    return finish(g, g.slice(g.tensor([6, M, 9]), [slice(1, 5), slice(None), slice(0, 9, 2)]))


def reshape_views():
    g = new_graph()
    x = g.tensor([B, 6, 4], [24, 1, 6])
    return finish(g, g.reshape(x, "VIEW_ONLY").set_dim([B * 4, 2, 3]))


def reshape_logical():
    g = new_graph()
    x = g.tensor([B, 6, 4], [24, 1, 6])
    return finish(g, g.reshape(x, "LOGICAL").set_dim([B * 2, 12]))


def concatenate():
    g = new_graph()
    parts = [g.tensor([2, n, 4]) for n in (3, 1, 5)]
    return finish(g, g.concatenate(parts, 1))


def concatenate_symbols():
    g = new_graph()
    return finish(g, g.concatenate([g.tensor([M, 4]), g.tensor([B, 4])], 0))


def conv_2d():
    g = new_graph()
    x, w = g.tensor([2, 4, 7, 6]), g.tensor([6, 2, 3, 2])
    y = g.conv_fprop(x, w, pre_padding=[1, 0], post_padding=[2, 1], stride=[2, 1], dilation=[1, 2])
    return finish(g, y)


def conv_1d_turned():
    g = new_graph()
    x, w = g.tensor([2, 3, 9]), g.tensor([4, 3, 3])
    return finish(g, g.conv_fprop(x, w, padding=[1], convolution_mode="CONVOLUTION"))


def layernorm_training():
    g = new_graph()
    x, scale, bias = g.tensor([5, 8]), g.tensor([1, 8]), g.tensor([1, 8])
    epsilon = g.tensor_scalar(1e-5)
    results = g.layernorm("TRAINING", x, scale, bias, epsilon, name="ln")
    return finish(g, *results)


def layernorm_inference():
    g = new_graph()
    x, scale = g.tensor([5, 2, 8]), g.tensor([1, 2, 8])
    epsilon = g.tensor_scalar(1e-5, "RUNTIME_PARAM")
    y, _, _ = g.layernorm("INFERENCE", x, scale, None, epsilon)
    return finish(g, y)


EXAMPLES = {
    "matmul": [
        matmul_plain,
        matmul_broadcast_batch,
        matmul_integers,
        matmul_half_compute,
        matmul_of_fp8(),
        matmul_of_fp8(dtypes.fast_float_for_fp8),
    ],
    "moe_grouped_matmul": [
        grouped_matmul([1, 7, 5], [4, 5, 3], name="experts"),
        grouped_matmul([1, M, 4], [1, 4, 2]),
        grouped_matmul_of_tokens,
    ],
    "pointwise": [
        *(pointwise_of(mode, *mode.methods[0]) for mode in MODES),
        relu_with_parameters,
        scalar_operands,
        integer_arithmetic,
        strided_operands,
    ],
    "reduction": [
        *(reduction_of(m.value) for m in dnnc.reduction_mode),
        reduction_of_integers,
    ],
    "transpose": [transpose],
    "slice": [slice_with_steps],
    "reshape": [reshape_views, reshape_logical],
    "concatenate": [concatenate, concatenate_symbols],
    "conv_fprop": [conv_2d, conv_1d_turned],
    "layernorm": [layernorm_training, layernorm_inference],
}

ALL_EXAMPLES = [(op, i, build) for op, builds in EXAMPLES.items() for i, build in enumerate(builds)]
IDS = [f"{op}-{i}" for op, i, _ in ALL_EXAMPLES]


# ---- broken, one a constraint


def broken(build):
    """A builder that gets a graph and may leave results open or wrong."""

    def make():
        g = new_graph()
        made = build(g)
        for tensor in made if isinstance(made, list) else [made]:
            if tensor is not None:
                tensor.set_output(True)
        return g

    return make


def matmul(g, a, b, dims=None, **kwargs):
    c = g.matmul(g.tensor(a), g.tensor(b), **kwargs)
    return c.set_dim(dims).set_stride([1] * len(dims)) if dims else c


def edit_last(g, **changes):
    """Changes attributes of the last operation behind the method's back."""
    op = g.graph.ops[-1]
    for name, value in changes.items():
        setattr(op, name, value)
    return op.results[0]


def edited(build, **changes):
    return broken(lambda g: (build(g), edit_last(g, **changes))[1])


def add(g):
    return g.add(g.tensor([4, 5]), g.tensor([4, 5]))


def conv(g, x=(2, 4, 7, 7), w=(6, 4, 3, 3), **kwargs):
    return g.conv_fprop(g.tensor(list(x)), g.tensor(list(w)), **kwargs)


def layernorm(g, scale=(1, 8), bias=(1, 8), epsilon=(1, 1), phase="INFERENCE", **kwargs):
    tensors = [g.tensor(list(d)) for d in ((5, 8), scale, bias, epsilon)]
    return g.layernorm(phase, *tensors, **kwargs)[0]


def transpose_of(g, permutation):
    return g.transpose(g.tensor([2, 3, 4]), permutation)


def slice_of(g, *slices):
    return g.slice(g.tensor([6, M]), list(slices))


def reshape_of(g, dims, strides=None, mode="LOGICAL"):
    return g.reshape(g.tensor([4, 6], strides), mode).set_dim(dims)


def concatenate_of(g, shapes, axis, types=None, **kwargs):
    parts = [
        g.tensor(s, data_type=t)
        for s, t in zip(shapes, types or [dtypes.f32] * len(shapes), strict=True)
    ]
    return g.concatenate(parts, axis, **kwargs)


def edited_grouped_matmul():
    """An output that holds a row more."""
    g = grouped_matmul([1, 7, 5], [3, 5, 4])()
    edit_last(g).set_dim([1, 8, 4])
    return g


def wide(tensor):
    return tensor.set_data_type(dtypes.f64)


BROKEN = {
    ("matmul", "C1"): broken(lambda g: matmul(g, [2, 3, 4], [4, 5])),
    ("matmul", "C2"): broken(lambda g: matmul(g, [3, 4], [5, 6])),
    ("matmul", "C3"): broken(lambda g: matmul(g, [2, 3, 4], [3, 4, 5])),
    ("matmul", "C4"): broken(lambda g: matmul(g, [3, 4], [4, 5], [3, 6])),
    ("matmul", "C5"): broken(lambda g: matmul(g, [3, 4], [4, 5], compute_data_type=dtypes.i32)),
    ("moe_grouped_matmul", "C1"): grouped_matmul([2, 7, 5], [3, 5, 4]),
    ("moe_grouped_matmul", "C2"): grouped_matmul([1, 7, 5], [3, 5, 4], mode="GATHER"),
    ("moe_grouped_matmul", "C3"): grouped_matmul([1, 7, 5], [3, 6, 4]),
    ("moe_grouped_matmul", "C4"): grouped_matmul([1, 7, 5], [3, 5, 4], [4, 1, 1]),
    ("moe_grouped_matmul", "C5"): broken(
        lambda g: g.moe_grouped_matmul(*(g.tensor(d) for d in ([1, 7, 5], [3, 5, 4], [3, 1, 1])))
    ),
    ("moe_grouped_matmul", "C6"): edited_grouped_matmul,
    ("moe_grouped_matmul", "C7"): grouped_matmul(
        [1, 7, 5], [3, 5, 4], compute_data_type=dtypes.f16
    ),
    ("pointwise", "C1"): edited(add, b=None),
    ("pointwise", "C2"): broken(lambda g: g.add(g.tensor([4, 5]), g.tensor([3, 5]))),
    ("pointwise", "C3"): broken(lambda g: add(g).set_dim([4, 6]).set_stride([6, 1])),
    ("pointwise", "C4"): edited(lambda g: g.exp(g.tensor([4])), compute_type=dtypes.i32),
    ("pointwise", "C5"): broken(lambda g: g.gen_index(g.tensor([4, 5]), 2)),
    ("pointwise", "C6"): edited(add, elu_alpha=1.0),
    ("reduction", "C1"): broken(lambda g: g.reduction(g.tensor([4, 5]), "add").set_dim([1])),
    ("reduction", "C2"): broken(lambda g: g.reduction(g.tensor([4, 5]), "add").set_dim([2, 1])),
    ("reduction", "C3"): broken(
        lambda g: g.reduction(g.tensor([4]), "avg", compute_data_type=dtypes.i32).set_dim([1])
    ),
    ("transpose", "C1"): broken(lambda g: transpose_of(g, [0, 0, 1]).set_dim([2, 2, 3])),
    ("transpose", "C2"): broken(lambda g: transpose_of(g, [1, 0, 2]).set_dim([2, 3, 4])),
    ("transpose", "C3"): broken(lambda g: wide(transpose_of(g, [1, 0, 2]))),
    ("slice", "C1"): broken(lambda g: slice_of(g, slice(None), slice(0, 4))),
    ("slice", "C2"): edited(lambda g: slice_of(g, slice(0, 4)), starts=(5, 0), stops=(3, -1)),
    ("slice", "C3"): broken(lambda g: slice_of(g, slice(0, 4)).set_dim([5, M])),
    ("slice", "C4"): broken(lambda g: wide(slice_of(g, slice(0, 4)))),
    ("reshape", "C1"): broken(lambda g: reshape_of(g, [5, 5])),
    ("reshape", "C2"): broken(lambda g: reshape_of(g, [24], [12, 1], "VIEW_ONLY")),
    ("reshape", "C3"): broken(lambda g: wide(reshape_of(g, [24]))),
    ("concatenate", "C1"): broken(lambda g: concatenate_of(g, [[2, 3], [2, 3]], 2)),
    ("concatenate", "C2"): broken(lambda g: concatenate_of(g, [[2, 3], [4, 3]], 1)),
    ("concatenate", "C3"): broken(lambda g: concatenate_of(g, [[2, 3], [4, 3]], 0).set_dim([5, 3])),
    ("concatenate", "C4"): broken(
        lambda g: concatenate_of(g, [[2, 3], [2, 3]], 0, [dtypes.f32, dtypes.f16])
    ),
    ("concatenate", "C5"): broken(
        lambda g: concatenate_of(g, [[2, 3], [2, 3]], 0, in_place_index=0)
    ),
    ("conv_fprop", "C1"): broken(lambda g: conv(g, stride=[1])),
    ("conv_fprop", "C2"): broken(lambda g: conv(g, stride=[1, 0])),
    ("conv_fprop", "C3"): broken(lambda g: conv(g, w=(6, 3, 3, 3))),
    ("conv_fprop", "C4"): broken(lambda g: conv(g).set_dim([2, 6, 7, 7])),
    ("conv_fprop", "C5"): broken(lambda g: conv(g, compute_data_type=dtypes.i32)),
    ("layernorm", "C1"): broken(lambda g: layernorm(g, scale=(1, 1), bias=(1, 1))),
    ("layernorm", "C2"): broken(lambda g: layernorm(g, bias=(5, 8))),
    ("layernorm", "C3"): broken(lambda g: layernorm(g, epsilon=(1, 8))),
    ("layernorm", "C4"): edited(layernorm, norm_forward_phase="TRAINING"),
    ("layernorm", "C5"): broken(lambda g: layernorm(g, compute_data_type=dtypes.i32)),
}
