"""Attentions inside larger graphs: fusions of their own, whatever stands around them."""

import pytest

import dnnc
from dnnc.choosing import heuristics
from dnnc.choosing.attention_groups import in_order
from dnnc.target import of
from tests.support.checked import check

TARGETS = ["sm_80", pytest.param("sm_90a", marks=pytest.mark.sm90)]
ROUNDED = 2.0**-9  # of the attention's result, which is stored as f16


def new_graph(target="sm_90a"):
    return dnnc.pygraph("around", io_data_type="f16", intermediate_data_type="f32", target=target)


def qkv(g, heads=2, rows=40, depth=16):
    return [g.tensor([1, heads, rows, depth]) for _ in "qkv"]


def attention(g, q, k, v, **options):
    o, stats = g.sdpa(q, k, v, attn_scale=0.25, generate_stats=bool(options.pop("stats", 0)),
                      **options)  # fmt: skip
    return (o.set_data_type("f16"), stats) if stats is not None else o.set_data_type("f16")


def transposed(g):
    g.transpose(attention(g, *qkv(g), use_causal_mask=True), [0, 2, 1, 3]).set_output()


def projected_with_statistics(g):
    o, stats = attention(g, *qkv(g), stats=True)
    stats.set_output().set_data_type("FLOAT")
    g.matmul(o, g.tensor([1, 1, 16, 24])).set_output()


def of_rotated_queries(g):
    q, k, v = qkv(g)
    q = g.mul(q, g.tensor([1, 1, 40, 16])).set_data_type("f16")
    attention(g, q, k, v).set_output()


def of_slices(g):
    q, both = g.tensor([1, 2, 40, 16]), g.tensor([1, 4, 40, 16])
    k, v = (g.slice(both, [slice(None), part]) for part in (slice(0, 2), slice(2, 4)))
    attention(g, q, k, v).set_output()


def two_in_a_row(g):
    q, k, v = qkv(g)
    attention(g, attention(g, q, k, v), k, v, use_causal_mask=True).set_output()


def two_of_one_mask(g):
    bias = g.tensor([1, 1, 40, 40])
    both = [attention(g, *qkv(g), bias=bias) for _ in range(2)]
    g.add(*both).set_output()


def layer(g):
    x = g.tensor([1, 40, 32])
    heads = []
    for _ in "qkv":
        y = g.matmul(x, g.tensor([1, 32, 32])).set_data_type("f16")
        y = g.reshape(y, "LOGICAL").set_dim([1, 40, 2, 16])
        heads.append(g.transpose(y, [0, 2, 1, 3]))
    g.transpose(attention(g, *heads), [0, 2, 1, 3]).set_output()


def engines_of(g, target):
    config = heuristics.best_config(g.graph.finalize(), of(target))
    return [choice.engine.name for choice in config.choices]


GRAPHS = {
    transposed: 1, projected_with_statistics: 1, of_rotated_queries: 1, of_slices: 1,
    two_in_a_row: 2, two_of_one_mask: 2, layer: 1,
}  # fmt: skip


@pytest.mark.rotating
@pytest.mark.parametrize("build", GRAPHS, ids=lambda build: build.__name__)
@pytest.mark.parametrize("target", TARGETS)
def test_every_attention_is_a_fusion(build, target):
    g = new_graph(target)
    build(g)
    engine = "sdpa_fwd_sm90" if target == "sm_90a" else "sdpa_sm80"
    assert engines_of(g, target).count(engine) == GRAPHS[build]


@pytest.mark.rotating
@pytest.mark.parametrize(
    "build",
    [b if b in (projected_with_statistics, two_of_one_mask)
     else pytest.param(b, marks=pytest.mark.slow) for b in GRAPHS],
    ids=lambda build: build.__name__,
)  # fmt: skip
def test_results(build):
    g = new_graph()
    build(g)
    check(g, target="sm_90a", slack=6.0, allowance=ROUNDED)


def test_products_without_a_softmax_between_are_no_attention():
    g = new_graph()
    q, k, v = qkv(g)
    s = g.relu(g.matmul(q, g.transpose(k, [0, 1, 3, 2]))).set_data_type("f16")
    g.matmul(s, v).set_output()
    assert "sdpa_fwd_sm90" not in engines_of(g, "sm_90a")


def test_groups_that_others_come_between_are_taken_apart():
    g = new_graph()
    x = g.tensor([4, 8])
    first = g.relu(x)
    second = g.exp(first)
    g.add(second, first).set_output()
    graph = g.graph.finalize()
    one, other, last = graph.live_ops
    assert in_order(graph, [[one, other]]) == [[one, other], [last]]
    assert in_order(graph, [[one, last]]) == [[one], [other], [last]]


def of_shared_heads(g):
    """Views stand on both sides of the products."""
    q = g.tensor([1, 4, 40, 16])
    k, v = (g.tensor([1, 2, 40, 16]) for _ in "kv")
    g.transpose(attention(g, q, k, v), [0, 2, 1, 3]).set_output()


def of_a_computed_bias(g):
    """Which two attentions and the caller read."""
    bias = g.mul(g.tensor([1, 1, 40, 40]), g.tensor([1, 1, 1, 1])).set_output()
    for o in [attention(g, *qkv(g), bias=bias) for _ in range(2)]:
        o.set_output()


def of_single_operations(g):
    """The pattern, whose mask is an output too."""
    q, k, v = qkv(g)
    mask = g.mul(g.tensor([1, 1, 40, 40]), g.tensor([1, 1, 1, 1])).set_output()
    s = g.add(g.matmul(q, g.transpose(k, [0, 1, 3, 2])), mask)
    e = g.exp(g.sub(s, g.reduction(s, "max").set_dim([1, 2, 40, 1])))
    p = g.div(e, g.reduction(e, "add").set_dim([1, 2, 40, 1])).set_data_type("f16")
    g.transpose(g.matmul(p, v).set_data_type("f16"), [0, 2, 1, 3]).set_output()


@pytest.mark.parametrize(
    ("build", "count"), [(of_shared_heads, 1), (of_a_computed_bias, 2), (of_single_operations, 1)],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
@pytest.mark.parametrize("target", TARGETS)
def test_views_and_what_others_read_are_no_hindrance(build, count, target):
    g = new_graph(target)
    build(g)
    engine = "sdpa_fwd_sm90" if target == "sm_90a" else "sdpa_sm80"
    assert engines_of(g, target).count(engine) == count


@pytest.mark.slow
@pytest.mark.parametrize("build", [of_shared_heads, of_a_computed_bias, of_single_operations])
def test_results_beside_what_others_read(build):
    g = new_graph()
    build(g)
    check(g, target="sm_90a", slack=6.0, allowance=ROUNDED)


def test_fp8_attention_is_a_fusion():
    g = dnnc.pygraph("around", io_data_type="FP8_E4M3", intermediate_data_type="f32",
                     compute_data_type="f32", target="sm_90a")  # fmt: skip
    ones = {
        name: g.tensor([1, 1, 1, 1], data_type="f32")
        for name in ("descale_q", "descale_k", "descale_v", "descale_s", "scale_s", "scale_o")
    }
    q, k, v = qkv(g)
    o = g.sdpa_fp8(q, k, v, attn_scale=0.25, generate_stats=False, **ones)[0]
    g.transpose(o.set_data_type("FP8_E4M3"), [0, 2, 1, 3]).set_output()
    assert "sdpa_fwd_sm90" in engines_of(g, "sm_90a")


def test_one_group_that_others_come_between_costs_no_other_group():
    g = new_graph()
    x, other = g.tensor([4, 8]), g.tensor([4, 8])
    first = g.relu(x)
    g.add(g.exp(first), first).set_output()
    g.exp(g.relu(other)).set_output()
    graph = g.graph.finalize()
    one, two, last, *pair = graph.live_ops
    assert in_order(graph, [[one, last], pair]) == [[one], [two], [last], pair]
