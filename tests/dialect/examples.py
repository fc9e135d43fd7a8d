"""Small graphs of every operation, and for each constraint a graph that breaks it.

EXAMPLES: operation -> functions that build a valid pygraph.
BROKEN: (operation, constraint) -> function that builds one whose validation must fail there.
"""

import dnnc
from dnnc import dtypes
from dnnc.dialect.pointwise_modes import MODES

from . import (
    attention_examples,
    attention_gradient_examples,
    broadcast_examples,
    conv_gradient_examples,
    rope_examples,
)

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


def conv_1d_turned():
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


def norm(method, x, scale, phase="TRAINING", bias=True, io=dtypes.f32, strides=None, **kinds):
    """A graph of a norm with a phase; scale, bias and epsilon of FLOAT."""

    def build():
        g = new_graph(io_data_type=io)
        small = [g.tensor(list(scale), data_type=dtypes.f32) for _ in range(1 + bias)]
        epsilon = g.tensor_scalar(1e-3, "RUNTIME_PARAM" if bias else "COMPILE_TIME_CONST")
        image = g.tensor(list(x), strides)
        given = {"bias": small[1]} if bias else {}
        made = getattr(g, method)(
            phase, input=image, scale=small[0], epsilon=epsilon, name="norm", **given, **kinds
        )
        return finish(g, *(tensor for tensor in made if tensor is not None))

    return build


def norm_backward(method, x, scale, statistics, io=dtypes.f32, strides=None, **kinds):
    """A graph of a norm's gradients; scale and statistics of FLOAT."""

    def build():
        g = new_graph(io_data_type=io)
        dy, image = g.tensor(list(x)), g.tensor(list(x), strides)
        count = 1 if method == "rmsnorm_backward" else 2
        small = [g.tensor(list(d), data_type=dtypes.f32) for d in (scale, *[statistics] * count)]
        made = getattr(g, method)(dy, image, *small, name="grad", **kinds)
        return finish(g, *(tensor for tensor in made if tensor is not None))

    return build


def peers_of(g, channels, devices, rank=3, dims=None):
    """A tensor of each device, to exchange statistics of channels through."""
    dims = dims or [devices, 4 * channels, *[1] * (rank - 2)]
    return [g.tensor(list(dims), data_type=dtypes.f32) for _ in range(devices)]


def peer_reduction(dims=(1, 6, 1), devices=2, rank=0, mode="moments", peer_dims=None, **options):
    def build():
        g = new_graph()
        a, b = g.tensor(list(dims)), g.tensor(list(dims))
        peers = peers_of(g, dims[1], devices, len(dims), peer_dims)
        return finish(g, *g.peer_reduction(a, b, peers, mode, rank, name="all", **options))

    return build


def batchnorm(x, is_running=True, momentum=0.1, strides=None, devices=0, rank=None, peer_dims=None):
    """devices: how many have a part of the statistics, by tensors of peer_dims; 0: this one."""

    def build():
        g = new_graph()
        channels = [1, x[1], *[1] * (len(x) - 2)]
        scale, bias, mean, variance = (g.tensor(channels) for _ in range(4))
        old = (mean, variance) if is_running else (None, None)
        factor = g.tensor_scalar(momentum, "RUNTIME_PARAM") if is_running else None
        epsilon = g.tensor_scalar(1e-3)
        peers = peers_of(g, x[1], devices, len(x), peer_dims)
        image = g.tensor(list(x), strides)
        made = g.batchnorm(
            image, scale, bias, *old, epsilon, factor, peer_stats=peers, peer_rank=rank
        )
        return finish(g, *(tensor for tensor in made if tensor is not None))

    return build


def batchnorm_backward(x, devices, rank, strides=None, io=dtypes.f32, peer_dims=None):
    """A graph of the gradients of a batch norm over several devices."""

    def build():
        g = new_graph(io_data_type=io)
        channels = [1, x[1], *[1] * (len(x) - 2)]
        dy, image = g.tensor(list(x), strides), g.tensor(list(x), strides)
        small = [g.tensor(channels, data_type=dtypes.f32) for _ in range(3)]
        peers = peers_of(g, x[1], devices, len(x), peer_dims)
        return finish(g, *g.batchnorm_backward(dy, image, *small, peer_stats=peers, peer_rank=rank))

    return build


def batchnorm_inference(x, strides=None):
    def build():
        g = new_graph()
        channels = [1, x[1], *[1] * (len(x) - 2)]
        small = [g.tensor(channels) for _ in range(4)]
        return finish(g, g.batchnorm_inference(g.tensor(list(x), strides), *small))

    return build


def genstats(x, strides=None, io=dtypes.f32):
    def build():
        g = new_graph(io_data_type=io)
        return finish(g, *g.genstats(g.tensor(list(x), strides), name="stats"))

    return build


def bn_finalize(dims=(1, 6, 1, 1), is_running=True):
    def build():
        g = new_graph()
        total, squares, scale, bias, mean, variance = (g.tensor(list(dims)) for _ in range(6))
        count = g.tensor_scalar(32, "RUNTIME_PARAM", dtypes.i64) if is_running else 32.0
        old = (mean, variance, 0.25) if is_running else ()
        made = g.bn_finalize(total, squares, scale, bias, 1e-3, count, *old)
        return finish(g, *(tensor for tensor in made if tensor is not None))

    return build


def dbn_weight(x, strides=None):
    def build():
        g = new_graph()
        channels = [1, x[1], *[1] * (len(x) - 2)]
        small = [g.tensor(channels) for _ in range(3)]
        return finish(g, *g.dbn_weight(g.tensor(list(x)), g.tensor(list(x), strides), *small))

    return build


def softmax(x, axis=-1, algorithm="ACCURATE", io=dtypes.f32, strides=None):
    def build():
        g = new_graph(io_data_type=io)
        return finish(g, g.softmax(g.tensor(list(x), strides), axis, algorithm))

    return build


def softmax_backward(x, axis=-1, algorithm="ACCURATE", io=dtypes.f32):
    def build():
        g = new_graph(io_data_type=io)
        dy, y = g.tensor(list(x)), g.tensor(list(x))
        return finish(g, g.softmax_backward(dy, y, axis, algorithm))

    return build


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
        conv_1d_turned,
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
    **conv_gradient_examples.EXAMPLES,
    **attention_examples.EXAMPLES,
    **attention_gradient_examples.EXAMPLES,
}

ALL_EXAMPLES = [(op, i, build) for op, builds in EXAMPLES.items() for i, build in enumerate(builds)]
IDS = [f"{op}-{i}" for op, i, _ in ALL_EXAMPLES]


# ---- broken, one a constraint


def broken(build):
    """A builder that gets a graph and may leave results open or wrong."""

    def make():
        g = new_graph()
        made = build(g)
        for tensor in made if isinstance(made, tuple) else [made]:
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


def changed(build, field="", dims=None, **changes):
    """A valid graph whose last operation is changed behind the method's back.

    field: an operand or result that gets other dims, None for one that was absent a new tensor.
    """

    def make():
        g = build()
        op = g.graph.ops[-1]
        for name, value in changes.items():
            setattr(op, name, value)
        if field:
            tensor = getattr(op, field) or g.tensor([1])
            setattr(op, field, tensor.set_dim(dims).set_stride([int(d != 1) for d in dims]))
        return g

    return make


INTEGERS = {"compute_type": dtypes.i32}
ROWS = {
    "layernorm": norm("layernorm", [5, 8], [1, 8]),
    "rmsnorm": norm("rmsnorm", [5, 8], [1, 8]),
    "adalayernorm": norm("adalayernorm", [5, 3, 8], [5, 1, 8]),
    "instancenorm": norm("instancenorm", [5, 3, 8], [1, 3, 1]),
    "layernorm_backward": norm_backward("layernorm_backward", [5, 8], [1, 8], [5, 1]),
    "rmsnorm_backward": norm_backward("rmsnorm_backward", [5, 8], [1, 8], [5, 1], has_dbias=True),
    "adalayernorm_backward": norm_backward(
        "adalayernorm_backward", [5, 3, 8], [5, 1, 8], [5, 3, 1]
    ),
    "instancenorm_backward": norm_backward(
        "instancenorm_backward", [5, 3, 8], [1, 3, 1], [5, 3, 1]
    ),
    "batchnorm_backward": norm_backward("batchnorm_backward", [5, 3, 8], [1, 3, 1], [1, 3, 1]),
}
BN, BN_PLAIN = batchnorm([5, 3, 8]), batchnorm([5, 3, 8], False)
PEER_ROW = [2, 3, 1]  # of one number a channel, of which there must be four


def broken_norm(name, scale, bias, missing):
    """The constraints of a norm with a phase."""
    build = ROWS[name]
    return {
        (name, "C1"): changed(build, "scale", scale),
        (name, "C2"): changed(build, "bias", bias),
        (name, "C3"): changed(build, "y", bias),
        (name, "C4"): changed(build, **{missing: None}),
        (name, "C5"): changed(build, **INTEGERS),
    }


def broken_norm_backward(name, scale, dy, statistics, dscale):
    build = ROWS[name]
    return {
        (name, "C1"): changed(build, "scale", scale),
        (name, "C2"): changed(build, "dy", dy),
        (name, "C3"): changed(build, "inv_variance", statistics),
        (name, "C4"): changed(build, "dscale", dscale),
        (name, "C5"): changed(build, **INTEGERS),
    }


def transpose_of(g, permutation):
    return g.transpose(g.tensor([2, 3, 4]), permutation)


def slice_of(g, *slices):
    return g.slice(g.tensor([6, M]), list(slices))


def reshape_of(g, dims, strides=None, mode="LOGICAL"):
    return g.reshape(g.tensor([4, 6], strides), mode).set_dim(dims)


def pooled_to(g, dims):
    y, _ = g.resample(g.tensor([1, 2, 2]), "MAXPOOL", [0], [0], [1], [2])
    return y.set_dim(dims)


def unpool(g, mode="AVGPOOL_INCLUDE_PADDING", dims=(1, 2, 4, 5), **options):
    parameters = {
        "pre_padding": [0, 0], "post_padding": [0, 1], "stride": [2, 2], "window": [2, 2],
    }  # fmt: skip
    dy = g.tensor([1, 2, 2, 3])
    return g.resample_backward(dy, mode, **{**parameters, **options}).set_dim(list(dims))


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
    ("matmul", "C1"): broken(lambda g: matmul(g, [4], [4, 5], [5])),
    ("matmul", "C2"): broken(lambda g: matmul(g, [3, 4], [5, 6])),
    ("matmul", "C3"): broken(lambda g: matmul(g, [2, 3, 4], [3, 4, 5])),
    ("matmul", "C4"): broken(lambda g: matmul(g, [3, 4], [4, 5], [3, 6])),
    ("matmul", "C5"): broken(lambda g: matmul(g, [3, 4], [4, 5], compute_data_type=dtypes.i32)),
    ("matmul", "C6"): broken(
        lambda g: matmul(g, [6, 4, 1, 1, 1, 1, 3, 4], [3, 4, 1, 1, 1, 1, 4, 5])
    ),
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
    ("reduction", "C4"): reduction_with_index([4, 5], [1], "add"),
    ("reduction", "C5"): reduction_with_index([4, dnnc.Dim("Z", min=0)], [1]),
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
        lambda g: concatenate_of(g, [[2, 3], [2, 3]], 0, [dtypes.f32, dtypes.i32])
    ),
    ("concatenate", "C5"): broken(
        lambda g: concatenate_of(g, [[2, 3], [2, 3]], 0, in_place_index=0)
    ),
    ("broadcast", "C1"): broken(lambda g: g.broadcast(g.tensor([2, 4]), [3, 4])),
    ("broadcast", "C2"): broken(lambda g: wide(g.broadcast(g.tensor([4]), [3, 4]))),
    ("conv_fprop", "C1"): broken(lambda g: conv(g, stride=[1])),
    ("conv_fprop", "C2"): broken(lambda g: conv(g, stride=[1, 0])),
    ("conv_fprop", "C3"): broken(lambda g: conv(g, w=(6, 3, 3, 3))),
    ("conv_fprop", "C4"): broken(lambda g: conv(g).set_dim([2, 6, 7, 7])),
    ("conv_fprop", "C5"): broken(lambda g: conv(g, compute_data_type=dtypes.i32)),
    ("resample", "C1"): pool(stride=[1]),
    ("resample", "C2"): pool(pre_padding=[3, 0]),
    ("resample", "C3"): pool(padding_mode="ZERO_PAD"),
    ("resample", "C4"): broken(lambda g: pooled_to(g, [1, 2, 2])),
    ("resample", "C5"): edited(
        lambda g: g.resample(g.tensor([1, 2, 4]), "MAXPOOL", [0], [0], [1], [2])[0],
        generate_index=True,
    ),
    ("resample", "C6"): pool(compute_data_type=dtypes.f16),
    ("resample_backward", "C1"): broken(lambda g: unpool(g, stride=[2])),
    ("resample_backward", "C2"): broken(lambda g: unpool(g, pre_padding=[2, 0])),
    ("resample_backward", "C3"): broken(lambda g: unpool(g, padding_mode="EDGE_VAL_PAD")),
    ("resample_backward", "C4"): broken(lambda g: unpool(g, dims=(1, 2, 4, 7))),
    ("resample_backward", "C5"): broken(lambda g: unpool(g, mode="MAXPOOL")),
    ("resample_backward", "C6"): broken(lambda g: unpool(g, compute_data_type=dtypes.i32)),
    ("rng", "C1"): broken(lambda g: g.rng(g.tensor([1]), 2, "UNIFORM", dim=[4])),
    ("rng", "C2"): rng_of("BERNOULLI", bernoulli_probability=1.5),
    ("layernorm", "C1"): broken(lambda g: layernorm(g, scale=(1, 1), bias=(1, 1))),
    ("layernorm", "C2"): broken(lambda g: layernorm(g, bias=(5, 8))),
    ("layernorm", "C3"): broken(lambda g: layernorm(g, epsilon=(1, 8))),
    ("layernorm", "C4"): edited(layernorm, norm_forward_phase="TRAINING"),
    ("layernorm", "C5"): broken(lambda g: layernorm(g, compute_data_type=dtypes.i32)),
    **broken_norm("rmsnorm", [1, 4], [1, 4], "inv_variance"),
    **broken_norm("adalayernorm", [5, 1, 1], [1, 1, 8], "mean"),
    **broken_norm("instancenorm", [5, 3, 1], [1, 3, 8], "mean"),
    ("batchnorm", "C1"): changed(BN, "scale", [5, 3, 1]),
    ("batchnorm", "C2"): changed(BN, "in_running_var", [1, 1, 1]),
    ("batchnorm", "C3"): changed(BN_PLAIN, "y", [5, 3, 4]),
    ("batchnorm", "C4"): changed(BN, next_running_var=None),
    ("batchnorm", "C5"): changed(BN, **INTEGERS),
    ("batchnorm", "C6"): batchnorm([5, 3, 8], devices=2, rank=0, peer_dims=PEER_ROW),
    ("batchnorm", "C7"): batchnorm([5, 3, 8], devices=2, rank=2),
    ("batchnorm_inference", "C1"): changed(batchnorm_inference([5, 3, 8]), "mean", [5, 3, 1]),
    ("batchnorm_inference", "C2"): changed(batchnorm_inference([5, 3, 8]), "y", [5, 3, 4]),
    ("batchnorm_inference", "C3"): changed(batchnorm_inference([5, 3, 8]), **INTEGERS),
    **broken_norm_backward("layernorm_backward", [1, 1], [5, 1], [5, 8], [5, 8]),
    **broken_norm_backward("rmsnorm_backward", [1, 4], [5, 4], [1, 1], [1, 1]),
    **broken_norm_backward("adalayernorm_backward", [5, 1, 1], [5, 1, 8], [5, 1, 1], [1, 1, 8]),
    **broken_norm_backward("instancenorm_backward", [5, 3, 1], [5, 1, 8], [1, 3, 1], [5, 3, 1]),
    **broken_norm_backward("batchnorm_backward", [1, 1, 8], [5, 3, 1], [5, 3, 1], [1, 1, 1]),
    ("batchnorm_backward", "C6"): batchnorm_backward([5, 3, 8], 2, 0, peer_dims=PEER_ROW),
    ("batchnorm_backward", "C7"): batchnorm_backward([5, 3, 8], 2, None),
    ("genstats", "C1"): broken(lambda g: g.genstats(g.tensor([8]))),
    ("genstats", "C2"): changed(genstats([5, 3, 8]), "sq_sum", [5, 3, 1]),
    ("genstats", "C3"): changed(genstats([5, 3, 8]), **INTEGERS),
    ("bn_finalize", "C1"): changed(bn_finalize(), "eq_bias", [1, 1, 1, 1]),
    ("bn_finalize", "C2"): broken(
        lambda g: g.bn_finalize(*(g.tensor([1, 6]) for _ in range(6)), name="bn")
    ),
    ("bn_finalize", "C3"): changed(bn_finalize(), momentum=None),
    ("bn_finalize", "C4"): changed(bn_finalize(), **INTEGERS),
    ("dbn_weight", "C1"): changed(dbn_weight([5, 3, 8]), "dy", [5, 3, 4]),
    ("dbn_weight", "C2"): changed(dbn_weight([5, 3, 8]), "eq_bias", [5, 3, 1]),
    ("dbn_weight", "C3"): changed(dbn_weight([5, 3, 8]), **INTEGERS),
    ("peer_reduction", "C1"): changed(peer_reduction(), "d", [1, 3, 1]),
    ("peer_reduction", "C2"): peer_reduction(compute_data_type=dtypes.f64),
    ("peer_reduction", "C3"): peer_reduction(peer_dims=[2, 6, 1]),
    ("peer_reduction", "C4"): peer_reduction(devices=2, rank=-1),
    ("softmax", "C1"): softmax([5, 8], [1, -1]),
    ("softmax", "C2"): changed(softmax([5, 8]), "y", [5, 4]),
    ("softmax", "C3"): changed(softmax([5, 8]), **INTEGERS),
    ("softmax_backward", "C1"): softmax_backward([5, 8], 2),
    ("softmax_backward", "C2"): changed(softmax_backward([5, 8]), "dy", [5, 1]),
    ("softmax_backward", "C3"): changed(softmax_backward([5, 8]), **INTEGERS),
    **rope_examples.BROKEN,
    **conv_gradient_examples.BROKEN,
    **attention_examples.BROKEN,
    **attention_gradient_examples.BROKEN,
}
