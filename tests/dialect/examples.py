"""Small graphs of every operation.

EXAMPLES: operation -> functions that build a valid pygraph.
"""

import dnnc
from dnnc import dtypes
from dnnc.dialect.pointwise_modes import MODES
from tests.dialect import (
    attention_examples,
    attention_gradient_examples,
    broadcast_examples,
    causal_conv1d_examples,
    conv_gradient_examples,
    rope_examples,
)
from tests.dialect.example_parts import B, M, finish, new_graph
from tests.dialect.norm_examples import (
    batchnorm,
    batchnorm_backward,
    batchnorm_inference,
    bn_finalize,
    dbn_weight,
    genstats,
    layernorm_inference,
    layernorm_training,
    norm,
    norm_backward,
    peer_reduction,
    softmax,
    softmax_backward,
)


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


def matmul_of_shared_matrices():
    """Six matrices share two, and one axis broadcasts beside."""
    g = new_graph()
    a, b = g.tensor([1, 6, M, 4], [24 * M, 4, 24, 1]), g.tensor([B, 2, 4, 5])
    return finish(g, g.relu(g.matmul(a, b)))


def matmul_of_shared_integers():
    """Two axes, each shared by another operand."""
    g = new_graph(io_data_type=dtypes.i32)
    a, b = g.tensor([2, 6, 3, 4], data_type=dtypes.i8), g.tensor([4, 3, 4, 5], data_type=dtypes.i8)
    return finish(g, g.matmul(a, b, compute_data_type=dtypes.i32))


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


def reduction_with_index(dims, axes, mode="max", io=dtypes.f32, index=None, compute=None):
    """A graph of a reduction and the places of what it found; index: their type."""

    def build():
        g = new_graph(io_data_type=io)
        x = g.tensor(list(dims))
        y, places = g.reduction(x, mode, compute, name="best", generate_index=True)
        y.set_dim([1 if axis in axes else n for axis, n in enumerate(dims)])
        return finish(g, y, places.set_data_type(index) if index else places)

    return build


def transpose():
    g = new_graph()
    y = g.transpose(g.tensor([2, M, 4]), [2, 0, 1])
    return finish(g, y.set_stride([2 * M, M, 1]))


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


def concatenate_types():
    """Two types, converted to that of the result."""
    g = new_graph(io_data_type=dtypes.f16)
    parts = [g.tensor([2, n, 4], data_type=kind) for n, kind in ((3, dtypes.f32), (2, dtypes.bf16))]
    return finish(g, g.concatenate(parts, 1))


def transpose_of_a_comparison():
    """Bits inside, numbers of the graph's type as an output."""
    g = new_graph(io_data_type=dtypes.f16)
    x = g.tensor([2, M, 4])
    return finish(g, g.transpose(g.cmp_gt(x, x), [2, 0, 1]))


def reshape_to_another_type():
    """A view of an intermediate result, as an output of the graph's type."""
    g = new_graph(io_data_type=dtypes.f16)
    x = g.relu(g.tensor([4, 6], [1, 4]))
    return finish(g, g.reshape(x).set_dim([2, 12]))


def concatenate_symbols():
    g = new_graph()
    return finish(g, g.concatenate([g.tensor([M, 4]), g.tensor([B, 4])], 0))


def conv_2d():
    g = new_graph()
    x, w = g.tensor([2, 4, 7, 6]), g.tensor([6, 2, 3, 2])
    y = g.conv_fprop(x, w, pre_padding=[1, 0], post_padding=[2, 1], stride=[2, 1], dilation=[1, 2])
    return finish(g, y)


def conv_with_channels_last():
    g = new_graph()
    x, w = g.tensor([2, 4, 5, 6], [120, 1, 24, 4]), g.tensor([8, 4, 3, 3], [36, 1, 12, 4])
    return finish(g, g.conv_fprop(x, w, padding=[1, 1]))


def conv_of_fp8():
    g = new_graph(io_data_type=dtypes.f16)
    x = g.tensor([2, 4, M, 6], data_type=dtypes.f8e4m3)
    w = g.tensor([3, 4, 2, 3], data_type=dtypes.f8e5m2)
    return finish(g, g.conv_fprop(x, w, compute_data_type=dtypes.fast_float_for_fp8))


def conv_of_one_tap():
    """Channels first, where images are matrices."""
    g = new_graph(io_data_type=dtypes.f16)
    y = g.conv_fprop(g.tensor([2, 8, 4, 6]), g.tensor([6, 8, 1, 1]))
    return finish(g, y.set_stride([144, 24, 6, 1]))


def conv_1d_flipped():
    g = new_graph()
    x, w = g.tensor([2, 3, 9]), g.tensor([4, 3, 3])
    return finish(g, g.conv_fprop(x, w, padding=[1], convolution_mode="CONVOLUTION"))


def conv_3d_of_groups():
    g = new_graph()
    x, w = g.tensor([1, 4, 3, 4, 2]), g.tensor([4, 1, 2, 3, 1])
    padding, stride = [0, 1, 0], [1, 2, 1]
    return finish(g, g.conv_fprop(x, w, padding=padding, stride=stride, dilation=[1, 1, 1]))


def conv_of_small_groups():
    g = new_graph(io_data_type=dtypes.f16)
    x, w = g.tensor([2, 16, 4, 5], [320, 1, 80, 16]), g.tensor([16, 8, 3, 3], [72, 1, 24, 8])
    return finish(g, g.conv_fprop(x, w, padding=[1, 1]))


def conv_of_symbols():
    g = new_graph()
    x, w = g.tensor([B, 4, M, M + 1]), g.tensor([2, 4, 2, 3])
    return finish(g, g.conv_fprop(x, w, padding=[1, 1], stride=[1, 2], dilation=[1, 1]))


def pool(mode="MAXPOOL", dims=(2, 3, 7, 6), **options):
    """A graph of one resample; the first result, and the index if there is one, are outputs."""
    parameters = {
        "pre_padding": [1, 0], "post_padding": [1, 1], "stride": [2, 1], "window": [3, 2],
    }  # fmt: skip

    def build():
        g = new_graph()
        y, index = g.resample(g.tensor(list(dims)), mode, **{**parameters, **options})
        return finish(g, *(t for t in (y, index) if t is not None))

    return build


def pool_1d():
    return pool("AVGPOOL_EXCLUDE_PADDING", [3, 2, M], pre_padding=[1], post_padding=[2],
                stride=[1], window=[3])()  # fmt: skip


def pool_3d():
    return pool(dims=[1, 2, 3, 4, 5], pre_padding=[0] * 3, post_padding=[1] * 3,
                stride=[1, 2, 2], window=[2] * 3)()  # fmt: skip


def upsample(mode, dims=(2, 2, 3, 4), window=(1, 2), **options):
    """Twice the size along each spatial dim; windows of half an element, unless said."""
    spatial = len(dims) - 2
    return pool(mode, dims, **{
        "pre_padding": [0] * spatial, "post_padding": [0] * spatial,
        "stride": [(1, 2)] * spatial, "window": [window] * spatial, **options,
    })  # fmt: skip


def bilinear_as_cudnn_has_it():
    return upsample("BILINEAR", window=2, pre_padding=[0.5] * 2, post_padding=[1] * 2)()


def pool_backward(mode="MAXPOOL", dims=(2, 3, 7, 6), given=("index",), **options):
    """A graph of one resample_backward; given: the optional operands that it has."""
    parameters = {
        "pre_padding": [1, 0], "post_padding": [1, 1], "stride": [2, 1], "window": [3, 2],
    }  # fmt: skip

    def build():
        g = new_graph()
        parts = {**parameters, **options}
        small = g.resample(g.tensor(list(dims)), mode, **parts)[0].get_dim()
        g = new_graph()
        made = {
            "input": lambda: g.tensor(list(dims)),
            "output": lambda: g.tensor(small),
            "index": lambda: g.tensor(small, data_type=dtypes.i8),
        }
        operands = {name: made[name]() for name in given}
        dx = g.resample_backward(g.tensor(small), mode, **parts, **operands)
        return finish(g, dx if "input" in given else dx.set_dim(list(dims)))

    return build


def rng_of(distribution, dims=(3, 5, 7), data_type=dtypes.f32, seed=1234567890123, **parameters):
    def build():
        g = new_graph()
        y = g.rng(seed, 5, distribution, dim=dims, **parameters)
        return finish(g, y.set_data_type(data_type))

    return build


def rng_with_seeds_at_execution():
    g = new_graph()
    seed = g.tensor_scalar(7, "RUNTIME_PARAM", dtypes.i64)
    offset = g.tensor([1, 1, 1], data_type=dtypes.i64)
    y = g.rng(seed, offset, dnnc.rng_distribution.UNIFORM, dim=[2, M, 6])
    return finish(g, y)


def dropout():
    g = new_graph()
    x = g.tensor([4, M, 6])
    kept = g.rng(3, 0, "BERNOULLI", bernoulli_probability=0.75, dim=[4, M, 6])
    return finish(g, g.mul(g.mul(x, kept), 1 / 0.75))


EXAMPLES = {
    "matmul": [
        matmul_plain,
        matmul_broadcast_batch,
        matmul_integers,
        matmul_half_compute,
        matmul_of_fp8(),
        matmul_of_fp8(dtypes.fast_float_for_fp8),
        matmul_of_shared_matrices,
        matmul_of_shared_integers,
        *broadcast_examples.MATMUL,
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
        *broadcast_examples.POINTWISE,
    ],
    "reduction": [
        *(reduction_of(m.value) for m in dnnc.reduction_mode),
        reduction_of_integers,
        reduction_with_index([3, M, 4], [1]),
        reduction_with_index([M, 3, B], [0, 2], "min", dtypes.f16, dtypes.i64),
        reduction_with_index([4, 5, 6], [0, 1, 2], "amax", dtypes.bf16),
        reduction_with_index([4, 6], [0], "max", dtypes.i32, compute=dtypes.i32),
        reduction_with_index([4, 1, 6], [1], "min"),
        *broadcast_examples.REDUCTION,
    ],
    "transpose": [transpose, transpose_of_a_comparison],
    "slice": [slice_with_steps],
    "reshape": [reshape_views, reshape_logical, reshape_to_another_type],
    "concatenate": [concatenate, concatenate_symbols, concatenate_types],
    "broadcast": broadcast_examples.EXAMPLES,
    "conv_fprop": [
        conv_2d,
        conv_1d_flipped,
        conv_of_one_tap,
        conv_with_channels_last,
        conv_3d_of_groups,
        conv_of_small_groups,
        conv_of_symbols,
        conv_of_fp8,
    ],
    "resample": [
        pool(),
        pool(generate_index=True),
        pool("AVGPOOL_INCLUDE_PADDING"),
        pool("AVGPOOL_EXCLUDE_PADDING", name="pool"),
        pool_1d,
        pool_3d,
        upsample("BILINEAR"),
        upsample("NEAREST", [B, 2, 3]),
        bilinear_as_cudnn_has_it,
    ],
    "resample_backward": [
        pool_backward(),
        pool_backward(given=["input", "output"]),
        pool_backward("AVGPOOL_INCLUDE_PADDING", given=["input"]),
        pool_backward("AVGPOOL_EXCLUDE_PADDING", given=[]),
        pool_backward(
            "BILINEAR",
            given=[],
            window=[2, 2],
            stride=[0.5, 0.25],
            pre_padding=[0.5, 3.5],
            post_padding=[1, 4],
        ),
        pool_backward(
            "NEAREST",
            given=[],
            window=[1, 0.5],
            stride=[0.75, 0.5],
            pre_padding=[2, 0],
            post_padding=[1.5, 3],
        ),
    ],
    "rng": [
        rng_of("BERNOULLI", bernoulli_probability=0.3, data_type=dtypes.i1),
        rng_of("UNIFORM", uniform_minimum=-1.0, uniform_maximum=3.0),
        rng_of("NORMAL", normal_mean=0.5, normal_standard_deviation=2.0, seed=-1),
        rng_with_seeds_at_execution,
        dropout,
    ],
    "layernorm": [
        layernorm_training,
        layernorm_inference,
        norm("layernorm", [M, 24, 1, 1], [1, 24, 1, 1], io=dtypes.bf16),
        norm("layernorm", [2, 6, 3, 4], [1, 6, 3, 4], bias=False, strides=[72, 1, 24, 6]),
    ],
    "rmsnorm": [
        norm("rmsnorm", [5, 8], [1, 8]),
        norm("rmsnorm", [M, 24, 1, 1], [1, 24, 1, 1], bias=False, io=dtypes.f16),
        norm("rmsnorm", [3, 4, 6], [1, 1, 6], "INFERENCE", strides=[1, 3, 12]),
        norm("rmsnorm", [5, 8], [1, 8], compute_data_type=dtypes.f64),
    ],
    "adalayernorm": [
        norm("adalayernorm", [B, 5, 8], [B, 1, 8]),
        norm("adalayernorm", [2, 3, 4, 6], [2, 1, 4, 6], "INFERENCE", bias=False),
        norm("adalayernorm", [2, M, 8], [1, 1, 8], io=dtypes.f16),
    ],
    "instancenorm": [
        norm("instancenorm", [2, 3, 4, 5], [1, 3, 1, 1]),
        norm("instancenorm", [2, 6, 4, 3], [1, 6, 1, 1], strides=[72, 1, 18, 6], io=dtypes.f16),
        norm("instancenorm", [B, 3, 8], [1, 3, 1], "INFERENCE", bias=False),
        norm("instancenorm", [2, 3, 2, 4, 3], [1, 3, 1, 1, 1]),
    ],
    "batchnorm": [
        batchnorm([4, 6, 2, 8]),
        batchnorm([4, 6, 3, 2], False, strides=[36, 1, 12, 6]),
        batchnorm([M, 6]),
        batchnorm([1, 6, 1, 1]),
        batchnorm([4, 6, 3], devices=2, rank=1),
        batchnorm([4, 6, 3, 2], False, strides=[36, 1, 12, 6], devices=3, rank=0),
        batchnorm([B, 6], devices=1, rank=0),
    ],
    "batchnorm_inference": [
        batchnorm_inference([2, 6, 3, 4]),
        batchnorm_inference([M, 6, 4, 2], [48, 1, 12, 6]),
    ],
    "layernorm_backward": [
        norm_backward("layernorm_backward", [5, 8], [1, 8], [5, 1]),
        norm_backward("layernorm_backward", [1, M, 24], [1, 1, 24], [1, M, 1], dtypes.f16),
        norm_backward(
            "layernorm_backward",
            [2, 3, 4],
            [1, 3, 4],
            [2, 1, 1],
            strides=[1, 8, 2],
            compute_data_type=dtypes.f64,
        ),
    ],
    "rmsnorm_backward": [
        norm_backward("rmsnorm_backward", [5, 8], [1, 8], [5, 1], has_dbias=True),
        norm_backward("rmsnorm_backward", [B, M, 8], [1, 1, 8], [B, M, 1], has_dbias=False),
    ],
    "adalayernorm_backward": [
        norm_backward("adalayernorm_backward", [2, 5, 8], [2, 1, 8], [2, 5, 1]),
        norm_backward("adalayernorm_backward", [B, 3, 8], [1, 1, 8], [B, 3, 1], dtypes.bf16),
    ],
    "instancenorm_backward": [
        norm_backward("instancenorm_backward", [2, 3, 4, 5], [1, 3, 1, 1], [2, 3, 1, 1]),
        norm_backward("instancenorm_backward", [3, 4, M], [1, 4, 1], [3, 4, 1]),
    ],
    "batchnorm_backward": [
        norm_backward("batchnorm_backward", [4, 6, 3, 2], [1, 6, 1, 1], [1, 6, 1, 1]),
        norm_backward(
            "batchnorm_backward", [B, 6, 2, 2], [1, 6, 1, 1], [1, 6, 1, 1], strides=[24, 1, 12, 6]
        ),
        batchnorm_backward([4, 6, 3], 2, 0),
        batchnorm_backward([B, 6, 2, 2], 3, 2, [24, 1, 12, 6], dtypes.f16),
    ],
    "genstats": [
        genstats([4, 6, 3, 2]),
        genstats([M, 6, 2, 2], [24, 1, 12, 6], dtypes.f16),
    ],
    "bn_finalize": [bn_finalize(), bn_finalize((1, 5), False)],
    "dbn_weight": [
        dbn_weight([4, 6, 3, 2]),
        dbn_weight([B, 6, 2, 2], [24, 1, 12, 6]),
    ],
    "peer_reduction": [
        peer_reduction(),
        peer_reduction((1, 5, 1, 1), 3, 2, "gradients"),
        peer_reduction((1, M), 32, 7),
        peer_reduction((1, 300, 1), 8, 1),
    ],
    "softmax": [
        softmax([5, 8]),
        softmax([2, 6, 3, 4], 1, "LOG", strides=[72, 1, 24, 6]),
        softmax([B, 4, 3, 2], [1, 2, 3], "FAST"),
        softmax([3, M, 8], io=dtypes.f16),
        softmax([3, 4], 1, "LOG"),
    ],
    "softmax_backward": [
        softmax_backward([5, 8]),
        softmax_backward([M, 4, 3], [-1, 1], "LOG"),
        softmax_backward([3, 8, 2], 1, "FAST", io=dtypes.bf16),
    ],
    **rope_examples.EXAMPLES,
    **causal_conv1d_examples.EXAMPLES,
    **conv_gradient_examples.EXAMPLES,
    **attention_examples.EXAMPLES,
    **attention_gradient_examples.EXAMPLES,
}
ALL_EXAMPLES = [(op, i, build) for op, builds in EXAMPLES.items() for i, build in enumerate(builds)]
IDS = [f"{op}-{i}" for op, i, _ in ALL_EXAMPLES]
