"""Graphs of the rows of docs/convolution.md: what the guide restricts, and this does not."""

import itertools

import dnnc
from dnnc import dtypes

N, C, K, EDGE = 32, 64, 64, 28


def new_graph(io="f16", **options):
    kept = {"intermediate_data_type": "f32", "compute_data_type": "f32", **options}
    return dnnc.pygraph("conv", io_data_type=io, **kept)


def last(dims):
    """Strides with the channels last."""
    strides, running = [0] * len(dims), 1
    for axis in (1, *reversed(range(2, len(dims))), 0):
        strides[axis], running = running, running * dims[axis]
    return strides


def tensor(g, dims, dtype=None, strides=None, **options):
    return g.tensor(dims, strides or last(dims), data_type=dtype, **options)


def channels(g, count=K, dtype=None, rank=4):
    return g.tensor([1, count, *[1] * (rank - 2)], data_type=dtype)


def around(size, spatial=2, **options):
    ones = [1] * spatial
    return {"padding": [size // 2] * spatial, "stride": ones, "dilation": ones, **options}


def plain(
    x=(N, C, EDGE, EDGE), w=(K, C, 3, 3), *, types=("f16", "f16"), output="f16", compute="f32",
    x_strides=None, w_strides=None, y_strides=None, before=None, after=None, alignment=None,
    before_w=None, **parameters,
):  # fmt: skip
    """A convolution; before, before_w(graph, tensor), after(graph, Y): what is around it."""
    g = new_graph(compute_data_type=compute)
    ends = [
        tensor(g, list(dims), dtypes.of(type_), strides)
        for dims, type_, strides in zip((x, w), types, (x_strides, w_strides), strict=True)
    ]
    if alignment:
        ends[0].set_alignment(alignment)
    image = before(g, ends[0]) if before else ends[0]
    filter_ = before_w(g, ends[1]) if before_w else ends[1]
    y = g.conv_fprop(image, filter_, **{**around(w[2], len(x) - 2), **parameters})
    y.set_data_type("i32" if compute == "i32" else "f32" if after else dtypes.of(output))
    made = after(g, y) if after else y
    if made is not None:
        made.set_output().set_data_type(dtypes.of(output))
        if y_strides:
            made.set_stride(y_strides(made.get_dim()))
    return g


def first(dims):
    """Strides with the channels first."""
    return list(reversed([*itertools.accumulate(reversed(dims[1:]), int.__mul__, initial=1)]))


# ---- what is around convolutions


def relu_of_scaled(g, x):
    made = g.add(g.mul(x, channels(g, x.get_dim()[1])), channels(g, x.get_dim()[1]))
    return g.relu(made).set_data_type("f16")


def gated(g, x):
    """x times a factor of each image and channel, as squeeze-and-excitation has it."""
    n, c = x.get_dim()[:2]
    return g.mul(x, g.tensor([n, c, 1, 1])).set_data_type("f16")


def three_images(g, x):
    others = [tensor(g, x.get_dim()) for _ in range(2)]
    return g.add(g.add(x, others[0]), others[1]).set_data_type("f16")


def of_doubled(g, w):
    return g.mul(w, 2.0).set_data_type("f16")


def fused(g, y):
    residual = tensor(g, y.get_dim())
    return g.relu(g.add(g.add(g.mul(y, channels(g)), channels(g)), residual))


def sums(g, y, *, dims=(1, K, 1, 1), dtype="f32", more=True):
    g.reduction(y, "add").set_dim(list(dims)).set_output().set_data_type(dtype)
    return g.relu(y) if more else None


def statistics(g, y):
    for each in g.genstats(y):
        each.set_output().set_data_type("f32")
    return y


def both_sums(g, y):
    sums(g, y, more=False)
    g.reduction(y, "amax").set_dim([1, K, 1, 1]).set_output().set_data_type("f32")
    return g.relu(y)


def centered(g, y):
    """The reduction's result flows on."""
    return g.sub(y, g.reduction(y, "avg").set_dim([1, K, 1, 1]))


def subtracted(g, y):
    """The broadcast tensor comes first."""
    return g.sub(channels(g), y)


def of_each_image(g, y):
    return g.mul(y, g.tensor([N, K, 1, 1]))


def masked(g, y):
    g.cmp_gt(y, 0).set_output().set_data_type("i1")
    return g.relu(y)


def pooled(g, y):
    size = {"window": [2, 2], "stride": [2, 2], "pre_padding": [0, 0], "post_padding": [0, 0]}
    return g.resample(y, "MAXPOOL", **size)[0]


def kept(g, x):
    """An X that is an output, too."""
    return g.relu(x).set_data_type("f16").set_output()


def with_mask(g, y):
    return g.binary_select(y, g.mul(y, 0.5), tensor(g, y.get_dim(), dtypes.i1))


def in_double(g, y):
    return g.add(y, channels(g), compute_data_type="f64").set_data_type("f64")


def as_integers(g, y):
    return g.max(y, channels(g, dtype=dtypes.i32), compute_data_type="i32")


def concatenated():
    """Two images along the channels, before the convolution."""
    g = new_graph()
    x = [tensor(g, [N, C // 2, EDGE, EDGE]) for _ in range(2)]
    joined = g.concatenate(x, axis=1).set_data_type("f16")
    y = g.conv_fprop(joined, tensor(g, FILTER), **around(3))
    y.set_output().set_data_type("f16")
    return g


def vectors(count):
    """The guide's ConvScaleBiasAct, of NC/4HW4 or NC/32HW32."""
    g = new_graph("i8")
    x, w, z = (
        g.tensor([dims[0], dims[1] // count, *dims[2:]], vector_count=count, vector_dimension=1)
        for dims in (IMAGE, FILTER, IMAGE)
    )
    sums = g.conv_fprop(x, w, **around(3), compute_data_type="i32").set_data_type("i32")
    scales = [channels(g, dtype=dtypes.f32) for _ in range(3)]
    y = g.add(g.add(g.mul(sums, scales[0]), g.mul(z, scales[1])), scales[2])
    y = g.relu(y).set_output().set_data_type("i8")
    y.set_vector_count_and_dimension(count, 1)
    return g


def reordered():
    g = new_graph("i8")
    x, w = (tensor(g, dims).set_reordering_type("INT8x32") for dims in (IMAGE, FILTER))
    y = g.conv_fprop(x, w, **around(3), compute_data_type="i32")
    y.set_output().set_data_type("i32")
    return g


def bias_act():
    """The guide's ConvBiasAct: alpha1 * Y + alpha2 * Z + bias, by numbers; any activation."""

    def after(g, y):
        ones = [g.tensor([1] * 4, data_type="f32", is_pass_by_value=True) for _ in range(2)]
        z = tensor(g, y.get_dim())
        return g.swish(g.add(g.add(g.mul(y, ones[0]), g.mul(z, ones[1])), channels(g)))

    return plain(after=after)


def dual(g, x):
    """The guide's DBARCS before its convolution: two images, scales, biases, ReLU, an output."""
    c = x.get_dim()[1]
    one, other = (g.add(g.mul(t, channels(g, c)), channels(g, c))
                  for t in (x, tensor(g, x.get_dim())))  # fmt: skip
    return g.relu(g.add(one, other)).set_data_type("f16").set_output()


def dual_of(w, *, act="relu", scales=True):
    def before(g, x):
        y = tensor(g, x.get_dim())
        if scales:
            x, y = (g.mul(t, channels(g, C)) for t in (x, y))
        return getattr(g, act)(g.add(x, y)).set_data_type("f16").set_output()

    return plain(w=w, before=before, after=statistics)


IMAGE, FILTER = [N, C, EDGE, EDGE], [K, C, 3, 3]
HEAD = [N, C, 8, EDGE, EDGE]
GROUPS = ((N, 256, EDGE, EDGE), (256, 32, 3, 3))

# Row of a table -> its graph.
ROWS = {
    # general
    "2D, 3x3": plain,
    "volumes": lambda: plain(HEAD, (K, C, 3, 3, 3)),
    "one spatial dim": lambda: plain((N, C, EDGE), (K, C, 3)),
    "groups": lambda: plain(*GROUPS),
    "groups of 8": lambda: plain((N, 256, EDGE, EDGE), (256, 8, 3, 3)),
    "depthwise": lambda: plain((N, 192, EDGE, EDGE), (192, 1, 3, 3)),
    "stride and dilation": lambda: plain(stride=[3, 2], dilation=[2, 1]),
    "wide strides": lambda: plain(stride=[9, 9]),
    "uneven paddings": lambda: plain(
        padding=None, pre_padding=[0, 1], post_padding=[2, 1], convolution_mode="CONVOLUTION"
    ),
    "first layer": lambda: plain((N, 3, 224, 224), (K, 3, 7, 7), stride=[2, 2]),
    # types
    "bfloat16": lambda: plain(types=("bf16", "bf16"), output="bf16"),
    "float": lambda: plain(types=("f32", "f32"), output="f32"),
    "bytes": lambda: plain(types=("i8", "i8"), output="i32", compute="i32"),
    "bytes in FLOAT": lambda: plain(types=("i8", "ui8")),
    "fp8": lambda: plain(types=("f8E4M3FN", "f8E5M2")),
    "fp8, fast sums": lambda: plain(
        types=("f8E4M3FN", "f8E4M3FN"), compute="FAST_FLOAT_FOR_FP8"
    ),
    "HALF sums": lambda: plain(types=("bf16", "bf16"), compute="f16"),
    "DOUBLE": lambda: plain(types=("f64", "f64"), output="f64", compute="f64"),
    "INT32": lambda: plain(types=("i32", "i32"), output="i32", compute="i32"),
    "mixed, W of bytes": lambda: plain(types=("f16", "i8")),
    "mixed, X of fp8": lambda: plain(types=("f8E4M3FN", "bf16")),
    "mixed, f32": lambda: plain(types=("f32", "f16")),
    "mixed, by identity": lambda: plain(
        types=("i8", "f16"), before=lambda g, x: g.identity(x).set_data_type("f16")
    ),
    "outputs": lambda: plain(output="f8E5M2"),
    "boolean outputs": lambda: plain(after=masked),
    "boolean inputs": lambda: plain(after=with_mask),
    "INT32 after": lambda: plain(
        types=("i8", "i8"), output="i32", compute="i32", after=as_integers
    ),
    "DOUBLE after": lambda: plain(after=in_double),
    # layouts
    "channels first": lambda: plain(x_strides=first(IMAGE), y_strides=first),
    "1x1, channels first": lambda: plain(
        w=(K, C, 1, 1), x_strides=first(IMAGE), y_strides=first
    ),
    "filters, channels first": lambda: plain(w_strides=first(FILTER)),
    "gaps": lambda: plain(x_strides=[EDGE * EDGE * 80, 1, EDGE * 80, 80]),
    "alignment": lambda: plain(alignment=2),
    "66 channels": lambda: plain((N, 66, EDGE, EDGE), (K, 66, 3, 3)),
    "groups of 18": lambda: plain((N, 144, EDGE, EDGE), (144, 18, 3, 3)),
    "NC/4HW4": lambda: vectors(4),
    "NC/32HW32": lambda: vectors(32),
    "INT8x32": reordered,
    # before
    "scale, bias, ReLU": lambda: plain(before=relu_of_scaled),
    "scale of groups": lambda: plain(*GROUPS, before=relu_of_scaled),
    "other dims": lambda: plain(before=gated),
    "three images": lambda: plain(before=three_images),
    "before W": lambda: plain(before_w=of_doubled),
    "identity before W": lambda: plain(
        types=("f16", "i8"), before_w=lambda g, w: g.identity(w).set_data_type("f16")
    ),
    "X kept": lambda: plain(before=kept),
    "concatenation": concatenated,
    # after
    "scale, bias, residual, ReLU": lambda: plain(after=fused),
    "broadcasts first": lambda: plain(after=subtracted),
    "a factor of each image": lambda: plain(after=of_each_image),
    "genstats": lambda: plain(after=statistics),
    "several reductions": lambda: plain(after=both_sums),
    "sums in f16": lambda: plain(after=lambda g, y: sums(g, y, dtype="f16")),
    "sums of groups": lambda: plain(
        (N, 256, EDGE, EDGE), (K, C, 3, 3), after=statistics
    ),
    "sum of channels": lambda: plain(after=lambda g, y: sums(g, y, dims=(N, 1, EDGE, EDGE))),
    "sum of all": lambda: plain(after=lambda g, y: sums(g, y, dims=(1, 1, 1, 1))),
    "sum of an image": lambda: plain(after=lambda g, y: sums(g, y, dims=(N, K, 1, 1))),
    "reduction that flows on": lambda: plain(after=centered),
    "Y, channels first": lambda: plain(y_strides=first),
    "pooling": lambda: plain(after=pooled),
    # the guide's patterns
    "ConvBNfprop": lambda: plain(before=relu_of_scaled, after=statistics),
    "ConvBNfprop, parts": lambda: plain(before=lambda g, x: g.swish(x).set_data_type("f16"),
                                        after=statistics),
    "DBARCS": lambda: plain(w=(K, C, 1, 1), before=dual, after=statistics),
    "DBARCS, parts": lambda: dual_of((K, C, 1, 1), act="gelu", scales=False),
    "DBARCS, 3x3": lambda: dual_of((K, C, 3, 3)),
    "ConvBiasAct": bias_act,
    "ConvScaleBiasAct": lambda: plain(
        types=("i8", "i8"), output="i8", compute="i32",
        after=lambda g, y: g.gelu(g.mul(y, channels(g, dtype=dtypes.f32))),
    ),
}  # fmt: skip
