"""Reductions over more axes than what they reduce was reduced over: two steps."""

import pytest

import dnnc
from dnnc import dtypes
from dnnc.dialect.ops import Reduction
from dnnc.expr import Expr


def normalised(rows=6, columns=16, **options):
    """(a graph, an rms norm's y in it, before that is an output)."""
    g = dnnc.pygraph("nested", io_data_type="f16", intermediate_data_type="f32", **options)
    x, scale = g.tensor([rows, columns], name="x"), g.tensor([1, columns])
    y, _ = g.rmsnorm("INFERENCE", x, scale, None, g.tensor_scalar(1e-3))
    return g, y


def reductions(g):
    """(mode, axes) of what is run, the norm's own one apart."""
    found = [op for op in g.graph.finalize().live_ops if isinstance(op, Reduction) and op.axes]
    return [(op.mode, op.axes) for op in found[1:]]


SECOND = {"add": "add", "norm1": "add", "mul": "mul", "min": "min", "max": "max", "amax": "amax",
          "mul_no_zeros": "mul"}  # fmt: skip


@pytest.mark.parametrize("mode", SECOND)
def test_what_a_norm_gives_is_reduced_by_rows_first(mode):
    g, y = normalised()
    total = g.reduction(y, mode).set_dim([1, 1]).set_output()
    y.set_output()
    assert reductions(g) == [(mode, (1,)), (SECOND[mode], (0,))]
    first = next(op for op in g.graph.live_ops if op.op_name == "reduction" and op.mode == mode)
    assert first.y.shape == (Expr.of(6), Expr.of(1))
    assert first.y.is_virtual
    assert first.y.type == dtypes.f32
    assert total.uid != first.y.uid


def left_alone():
    g, y = normalised()
    y.set_output()
    g.reduction(y, "avg").set_dim([1, 1]).set_output()
    yield pytest.param(g, [("avg", (0, 1))], id="of a mode that counts")
    g, y = normalised()
    y.set_output()
    g.reduction(y, "add").set_dim([1, 16]).set_output()
    yield pytest.param(g, [("add", (0,))], id="over other axes")
    g, y = normalised()
    y.set_output()
    x = next(t for t in g.graph.tensors if t.name == "x")
    g.reduction(x, "add").set_dim([1, 1]).set_output()
    yield pytest.param(g, [("add", (0, 1))], id="of what is not made of rows' totals")
    g, y = normalised()
    product = g.matmul(g.add(y, 1.0), g.tensor([16, 16]))
    product.set_output()
    g.reduction(product, "amax").set_dim([1, 1]).set_output()
    yield pytest.param(g, [("amax", (0, 1))], id="behind a product")


@pytest.mark.parametrize(("g", "wanted"), list(left_alone()))
def test_other_reductions_are_one_step(g, wanted):
    assert reductions(g) == wanted
