"""Scales and biases of fewer dims than what they apply to: NumPy's rule, as in pointwise work.

Engines see the operations that they see of operands with leading dims of 1.
"""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.dialect.reference import reference
from tests.support.checked import random_inputs


def graph():
    return dnnc.pygraph(
        "fewer", io_data_type=dtypes.f32, intermediate_data_type=dtypes.f32,
        compute_data_type=dtypes.f32, target="sm_80",
    )  # fmt: skip


def norm(method, **options):
    def build(g, scale):
        x, operands = g.tensor([3, 4, 6]), {"scale": scale([1, 1, 6])}
        if method == "layernorm":
            operands["bias"] = scale([1, 1, 6])
        return getattr(g, method)(
            norm_forward_phase="TRAINING", input=x, epsilon=1e-3, **operands, **options
        )

    return build


def gradient(method, *statistics, **options):
    def build(g, scale):
        given = dict(zip(statistics, (g.tensor([3, 4, 1]) for _ in statistics), strict=True))
        x, dy = g.tensor([3, 4, 6]), g.tensor([3, 4, 6])
        return getattr(g, method)(grad=dy, input=x, scale=scale([1, 1, 6]), **given, **options)

    return build


def attention(dims):
    def build(g, scale):
        q, k, v = (g.tensor([2, 3, 4, 8]) for _ in range(3))
        return g.sdpa(q, k, v, generate_stats=True, attn_scale=0.5, bias=scale(dims))

    return build


def attention_gradient(g, scale):
    q, k, v, o, do = (g.tensor([2, 3, 4, 8]) for _ in range(5))
    dbias = g.tensor([1, 3, 4, 4])
    stats, bias = g.tensor([2, 3, 4, 1]), scale([1, 3, 4, 4])
    return (*g.sdpa_backward(q, k, v, o, do, stats, attn_scale=0.5, bias=bias, dBias=dbias), dbias)


CASES = {
    "layernorm": norm("layernorm"),
    "rmsnorm": norm("rmsnorm"),
    "adalayernorm": norm("adalayernorm", bias=None),
    "layernorm_backward": gradient("layernorm_backward", "mean", "inv_variance"),
    "rmsnorm_backward": gradient("rmsnorm_backward", "inv_variance", has_dbias=True),
    "adalayernorm_backward": gradient("adalayernorm_backward", "mean", "inv_variance"),
    "sdpa, rows and keys": attention([1, 1, 4, 4]),
    "sdpa, heads": attention([1, 3, 4, 4]),
    "sdpa_backward": attention_gradient,
}


def built(name, has_fewer):
    g = graph()

    def scale(dims):
        first = next(axis for axis, n in enumerate(dims) if n != 1)
        return g.tensor(dims[first:] if has_fewer else dims)

    for tensor in CASES[name](g, scale):
        tensor.set_output(True)
    return g.graph.finalize()


def seen(graph):
    return [(op.op_name, *(t.shape for t in (*op.operands, *op.results))) for op in graph.live_ops]


@pytest.mark.parametrize("name", CASES)
def test_leading_dims_of_1_may_be_left_out(name):
    fewer, whole = built(name, True), built(name, False)
    assert {t.rank for t in fewer.inputs} != {t.rank for t in whole.inputs}
    assert seen(fewer) == seen(whole)
    given = random_inputs(fewer, {})
    same = {
        mine.uid: np.reshape(given[other.uid], [n.constant for n in mine.shape])
        for mine, other in zip(whole.inputs, fewer.inputs, strict=True)
    }
    pairs = zip(fewer.outputs, whole.outputs, strict=True)
    found, wanted = reference(fewer, given), reference(whole, same)
    for one, other in pairs:
        assert one.shape == other.shape
        np.testing.assert_array_equal(found[one.uid], wanted[other.uid])


def test_channels_are_not_the_last_axis():
    """A scale of [C] would be along W: what to write is said."""
    g = graph()
    x, channels = g.tensor([2, 3, 4, 3]), g.tensor([3])
    with pytest.raises(ValueError, match=r"dims \[3\]; accepted: \[1, 3, 1, 1\]"):
        g.batchnorm_inference(x, channels, channels, channels, channels)
