"""Bounds of products of sizes: what follows of them, and every form that carries them."""

import itertools
import random

import numpy as np
import pytest

import dnnc
from dnnc.cli.arrays import sizes_of
from dnnc.compiler import compile_graph
from dnnc.dialect import dnn
from dnnc.dialect.json_form import from_json, to_json
from dnnc.errors import DnncError, Status
from dnnc.expr import (
    Bound,
    Dim,
    bound_of,
    bounded,
    bounds_of,
    ceildiv,
    maximum,
    minimum,
    parse,
    typical,
    typical_sizes,
)
from dnnc.options import DEFAULTS
from dnnc.passes.fuse import Fuse
from dnnc.passes.lower_to_linalg import LowerToLinalg
from dnnc.passes.prepare_fusions import PrepareFusions
from dnnc.tuning.search import _every_size

BATCH, LENGTH, HEADS = Dim("batch", max=512), Dim("length", 8, 8192, 8), Dim("heads", 0, 9)
MOST = 1 << 16
BOUND = bound_of(BATCH * LENGTH, MOST)[0]
_DIMS = {dim.name: dim for dim in (BATCH, LENGTH, HEADS)}
B, L, H = bounded(_DIMS, [BOUND]).values()


@pytest.mark.parametrize(
    ("expr", "most"),
    [
        (B * L, MOST),
        (64 * B * L * H, 64 * 9 * MOST),
        (ceildiv(B * L, 128) * 3, 3 * 512),
        (B * ceildiv(L, 64), (MOST + 63 * 512) // 64),
        (B * (L // 64), MOST // 64),
        (minimum(B, 4) * L, 4 * 8192),
        (maximum(B, 4) * L, MOST),
        (B * B, 512 * 512),
        (BATCH * LENGTH, 512 * 8192),
    ],
    ids=str,
)
def test_the_largest_value(expr, most):
    assert expr.bounds()[1] == most


def test_no_value_is_outside_the_bounds():
    terms = [
        B * L, B * ceildiv(L, 48), ceildiv(B, 7) * ceildiv(L, 24), (B - 1) * (L - 8) * 2,
        maximum(B, H) * L, minimum(B * 3, L) * B, (B * L) % 7 * B, (L // 3) * (B // 2) * H,
        ceildiv(L, 64) * B * ceildiv(L, 128), (B * L + 5) // 4 - B,
    ]  # fmt: skip
    rng = random.Random(5)
    sums = [*terms, *(a - 3 * b for a, b in itertools.pairwise(terms))]
    bounds = [expr.bounds() for expr in sums]
    for _ in range(200):
        batch = rng.choice([1, 2, 8, 512, rng.randint(1, 512)])
        most = MOST // batch // 8 * 8
        length = rng.choice([8, most if most < 8192 else 8192, rng.randrange(8, 129, 8)])
        sizes = {"batch": batch, "length": length, "heads": rng.choice([0, 1, 9])}
        for expr, (low, high) in zip(sums, bounds, strict=True):
            assert low <= expr.evaluate(sizes) <= high, (str(expr), sizes)


@pytest.mark.parametrize(
    ("product", "most", "said"),
    [
        (BATCH, 8, "of one size: dnnc.Dim"),
        (BATCH + LENGTH, 8, "a product of sizes"),
        (BATCH * (LENGTH // 2), 8, "a product of sizes"),
        (BATCH * LENGTH, 7, "at least 8, its least"),
        (BATCH * LENGTH, "8", "an integer"),
        (BATCH * LENGTH, True, "an integer"),
    ],
)
def test_what_is_no_bound_of_a_product(product, most, said):
    with pytest.raises(DnncError, match=said) as caught:
        bound_of(product, most)
    assert caught.value.status is Status.BAD_PARAM


def test_factors_may_be_numbers_and_squares():
    assert bound_of(4 * BATCH * LENGTH, 99)[0] == Bound(("batch", "length"), 24)
    assert bound_of(LENGTH * BATCH * LENGTH, 999)[0] == Bound(("batch", "length", "length"), 999)


def test_typical_sizes_keep_to_the_bounds():
    dims = {"batch": B, "length": L}
    found = typical_sizes(dims, {})
    assert 0 < found["batch"] * found["length"] <= MOST
    assert found["length"] % 8 == 0
    assert typical_sizes(dims, {"length": 8192})["batch"] <= 8
    assert typical(B * L) == MOST


# ---- graphs


def layer(most=None, batch=1 << 16, length=1 << 16):
    g = dnnc.pygraph("layer", io_data_type="f16", intermediate_data_type="f32")
    batch, length = dnnc.Dim("batch", max=batch), dnnc.Dim("length", max=length)
    if most is not None:
        g.bound(batch * length, max=most)
    x = g.tensor([batch, length, 64], name="x")
    g.relu(g.add(x, g.tensor([64], name="b"))).set_output().set_name("y")
    return g


def test_two_sizes_do_not_refuse_each_other():
    with pytest.raises(DnncError, match="or a bound of their product"):
        compile_graph(layer().graph.finalize(), "sm_80", DEFAULTS)
    plan = compile_graph(layer(1 << 20).graph.finalize(), "sm_80", DEFAULTS)
    assert [(b.product, b.max) for b in plan.bounds] == [("batch*length", 1 << 20)]
    (step,) = plan.programs[0].variants[0].steps
    assert all(arg.type != "i64" for arg in step.launch.args if arg.value == "batch*length*64")


def test_texts_carry_the_bounds():
    graph = layer(1 << 20).graph.finalize()
    again = from_json(to_json(graph))
    assert again == graph
    assert again.key() != layer(1 << 19).graph.finalize().key()
    with dnn.context():
        module = dnn.to_mlir(graph)
        assert 'dnn.bounds = [#dnn.bound<["batch", "length"], 1048576 : i64>]' in str(module)
        Fuse().run(module)
        PrepareFusions().run(module)
        LowerToLinalg().run(module)
        read = dnn.from_mlir(dnn.ir.Module.parse(str(module)))
        (function, *_) = dnn_functions(module)
    assert read == graph
    assert {bound for dim in read.symbols.values() for bound in dim.within} == {
        Bound(("batch", "length"), 1 << 20)
    }
    assert "dnn.bounds" in function.attributes


def dnn_functions(module):
    return [op for op in module.body.operations if "dnn.fusion" in op.operation.attributes]


def test_graphs_without_bounds_have_no_field_of_them():
    assert "bounds" not in to_json(layer(None, 8, 8).graph.finalize())


def test_a_graph_may_go_on_after_it_was_validated():
    g = layer(1 << 20)
    g.validate()
    length = dnnc.Dim("length", max=1 << 16)
    y = g.query_tensor_attributes_of_uid(next(t.uid for t in g.graph.tensors if t.name == "y"))
    g.mul(y, g.tensor([1, length, 64])).set_output()
    g.validate()
    g.build_operation_graph()
    assert len({dim for t in g.graph.tensors for n in t.shape for dim in n.dims()}) == 2


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        (("batch", "width"), "a bound of batch\\*width"),
        (("batch", "length"), "Dim\\(name='length', min=1, max=65536"),
    ],
)
def test_bounds_are_of_sizes_of_the_graph(sizes, said):
    g = layer()
    one, other = (dnnc.Dim(name, max=1 << 16 if name == "batch" else 99) for name in sizes)
    g.bound(one * other, max=1 << 20)
    with pytest.raises(DnncError, match=said):
        g.validate()


def test_runs_refuse_larger_products():
    graph = layer(64).graph.finalize()
    uid = next(t.uid for t in graph.inputs if t.name == "x")
    assert sizes_of(graph, {uid: np.ones((8, 8, 64))}, {}) == {"batch": 8, "length": 8}
    with pytest.raises(DnncError, match="batch\\*length = 72") as caught:
        sizes_of(graph, {uid: np.ones((9, 8, 64))}, {})
    assert caught.value.status is Status.BAD_PARAM_OUT_OF_BOUND
    with pytest.raises(DnncError, match="batch\\*length = 72"):
        _every_size(graph, {"batch": 9, "length": 8})
    (assumed,) = _every_size(graph, None)
    assert assumed["batch"] * assumed["length"] <= 64


def test_unfinished_graphs_show_their_bounds():
    g = layer(64)
    g.exp(g.tensor([3], name="unused"))
    assert '"bounds": [{"product": "batch*length", "max": 64}]' in repr(g)


def test_a_parsed_product_is_the_same_bound():
    dims = {"batch": BATCH, "length": LENGTH}
    assert bound_of(parse(str(BOUND), dims), BOUND.max)[0] == BOUND


def test_a_part_with_one_of_the_factors_has_no_bound():
    """A fusion of a graph may have one of the sizes only."""
    assert bounds_of([B, L]) == (BOUND,)
    assert bounds_of([B, H]) == ()
