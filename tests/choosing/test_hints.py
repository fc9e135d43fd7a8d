"""Hints say what a graph leaves unused with the predicted gain, and nothing where nothing is."""

import re

import pytest

import dnnc
from dnnc.choosing import heuristics, hints
from dnnc.target import of


def product(k=4096, n=4096):
    g = dnnc.pygraph("product", io_data_type="f16", intermediate_data_type="f32")
    x = g.tensor([1, 1024, k], name="x")
    g.relu(g.matmul(x, g.tensor([1, k, n], name="w"))).set_output().set_name("y")
    return g


def attention(alignment):
    g = dnnc.pygraph("attention", io_data_type="f16", intermediate_data_type="f32")
    q, k, v = (g.tensor([2, 8, 2048, 64], name=name) for name in "qkv")
    v.alignment = alignment
    g.sdpa(q, k, v, attn_scale=0.125, generate_stats=False)[0].set_output().set_name("o")
    return g


def layer(strides_of=lambda dims: None):
    g = dnnc.pygraph("layer", io_data_type="f16", intermediate_data_type="f32")
    x, w = (
        g.tensor(dims, strides_of(dims), name=name)
        for name, dims in (("x", [32, 256, 28, 28]), ("w", [256, 256, 3, 3]))
    )
    y = g.conv_fprop(x, w, padding=[1, 1], stride=[1, 1], dilation=[1, 1])
    y.set_output().set_name("y")
    return g


def channels_last(dims):
    _, c, h, w = dims
    return [c * h * w, 1, w * c, c]


def said(g, target="sm_90a"):
    graph = g.graph.finalize()
    config = heuristics.best_config(graph, of(target))
    return hints.hints(graph, config, of(target))


@pytest.mark.parametrize(
    ("g", "target", "says"),
    [
        (product(), "sm_90", "target sm_90a runs on the same cards as sm_90"),
        (product(k=4095), "sm_90a", "with strides 'x' [4194304, 4096, 1]"),
        (product(n=4095), "sm_80", "'w' [16777216, 4096, 1], 'y' [4194304, 4096, 1]"),
        (product(k=dnnc.Dim("K", max=8192)), "sm_90a", 'dnnc.Dim("K", multiple_of=8)'),
        (attention(8), "sm_90a", "'v' may begin anywhere; aligned to 16 bytes"),
        (layer(), "sm_90a", "'x', 'w' have channels first; with channels last"),
    ],
)
def test_what_is_left_unused_is_said_with_its_gain(g, target, says):
    (hint,) = said(g, target)
    assert says in hint
    gain, changed, own = re.search(r"([0-9.]+)x faster \((\d+) us, not (\d+) us\)", hint).groups()
    assert float(gain) >= 1.15
    assert float(gain) == pytest.approx(int(own) / int(changed), rel=0.1)


@pytest.mark.parametrize(
    ("g", "target"),
    [
        (product(), "sm_90a"),
        (product(), "sm_80"),
        (product(k=dnnc.Dim("K", max=8192, multiple_of=8)), "sm_90a"),
        (attention(16), "sm_90a"),
        (layer(channels_last), "sm_90a"),
    ],
)
def test_nothing_is_said_where_nothing_is_left_unused(g, target):
    assert said(g, target) == ()


def test_a_plan_keeps_its_hints_and_the_log_has_them(caplog):
    plan = dnnc.compile(product(k=4095), "sm_90a", variants=1)
    (hint,) = plan.programs[0].warnings
    assert "with strides 'x' [4194304, 4096, 1]" in hint
    assert hint in [record.getMessage() for record in caplog.records]
