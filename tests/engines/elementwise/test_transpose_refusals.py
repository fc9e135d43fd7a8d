"""Graphs that engine transpose refuses, each with its clause."""

import dnnc
from dnnc import dtypes
from dnnc.engines import engine_named
from dnnc.target import of
from tests.engines.elementwise.test_transpose import (
    clauses,
    new_graph,
    row_major,
    strides,
    transposed,
    whole,
)


def test_graphs_without_a_transposed_input_are_refused():
    g = new_graph()
    row_major(g.add(g.tensor([40, 48]), g.tensor([1, 48])))
    assert clauses(g) == ["transposed inputs"]
    g = new_graph()  # a column, which each row reads one element of
    row_major(g.add(g.tensor([40, 48]), g.tensor([40, 1])))
    assert clauses(g) == ["transposed inputs"]
    g = new_graph()  # every row of the last axis is whole in both
    g.identity(g.tensor([4, 5, 8])).set_output().set_stride([8, 32, 1])
    assert clauses(g) == ["transposed inputs"]


def test_inputs_that_run_along_several_axes_are_refused():
    g = new_graph()
    dims = [16, 24, 32]
    x, z = (g.tensor(dims, strides(dims, order)) for order in ((0, 2, 1), (1, 2, 0)))
    row_major(g.add(x, z))
    assert clauses(g) == ["transposed inputs"]
    (reason,) = engine_named("transpose").supports(whole(g), of("sm_90"))
    assert reason.what == "inputs that run along axes 0 and 1"


def test_outputs_that_run_along_several_axes_are_refused():
    g = new_graph()
    x = g.tensor([16, 24])
    row_major(g.relu(x))
    g.neg(x).set_output().set_stride([1, 16])
    assert clauses(g) == ["output order"]


def test_boolean_outputs_and_other_operations_are_refused():
    g = new_graph()
    row_major(g.cmp_gt(transposed(g, [16, 24]), 0.5)).set_data_type(dtypes.i1)
    assert clauses(g) == ["boolean output"]
    g = new_graph()
    total = g.reduction(transposed(g, [16, 24]), "add").set_dim([16, 1])
    total.set_output()
    assert "operations" in clauses(g)


def test_boolean_inputs_are_not_transposed():
    g = new_graph()
    mask = transposed(g, [16, 24], data_type=dtypes.i1)
    row_major(g.binary_select(g.tensor([16, 24]), g.tensor([1, 24]), mask))
    assert clauses(g) == ["transposed inputs"]


def test_more_tiles_than_shared_memory_holds_are_refused():
    g = new_graph(dtypes.f64)
    total = g.tensor([64, 64])
    for _ in range(7):
        total = g.add(total, transposed(g, [64, 64]))
    row_major(total)
    assert clauses(g) == ["shared memory"]


def test_too_many_blocks_are_refused():
    g = new_graph(dtypes.i8)
    dims = [dnnc.Dim("B", max=1 << 30), 2, 2]
    row_major(g.identity(transposed(g, dims)))
    assert clauses(g) == []
    g = new_graph(dtypes.i8)
    dims = [dnnc.Dim("B", max=1 << 16), dnnc.Dim("C", max=1 << 15), 2, 2]
    row_major(g.identity(transposed(g, dims)))
    assert clauses(g) == ["size"]
