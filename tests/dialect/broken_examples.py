"""Graphs that break a constraint of an operation each.

BROKEN: (operation, constraint) -> function that builds one whose validation must fail there.
"""

import dnnc
from dnnc import dtypes
from tests.dialect import (
    attention_examples,
    attention_gradient_examples,
    causal_conv1d_examples,
    conv_gradient_examples,
    rope_examples,
)
from tests.dialect.example_parts import M, new_graph
from tests.dialect.examples import grouped_matmul, pool, reduction_with_index, rng_of
from tests.dialect.norm_examples import (
    batchnorm,
    batchnorm_backward,
    batchnorm_inference,
    bn_finalize,
    dbn_weight,
    genstats,
    norm,
    norm_backward,
    peer_reduction,
    softmax,
    softmax_backward,
)


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
    **causal_conv1d_examples.BROKEN,
    **conv_gradient_examples.BROKEN,
    **attention_examples.BROKEN,
    **attention_gradient_examples.BROKEN,
}
