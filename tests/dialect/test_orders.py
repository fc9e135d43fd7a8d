"""Tensors in cuDNN's order F16x16: where elements lie, what stands for it, what is refused."""

import json

import numpy as np
import pytest

import dnnc
from dnnc import DnncError, Status
from dnnc.compiler import compile_graph
from dnnc.dialect.json_form import from_json
from dnnc.interpreter.plans import run_plan
from dnnc.options import Options
from tests.fragment_order import as_bound, buffer_of, in_memory


def numbers(sizes):
    return [size.constant for size in sizes]


def matrices(dims, seed=0):
    return np.random.default_rng(seed).integers(-99, 100, dims).astype(np.float64)


def copy(dims, *, stride=None, ordered="y", dtype="f16"):
    """x -> y, of which one is in this order."""
    g = dnnc.pygraph("copy", io_data_type=dtype, intermediate_data_type="f32")
    x = g.tensor(dims, stride, name="x")
    y = g.neg(x).set_output().set_name("y")
    {"x": x, "y": y}[ordered].set_reordering_type("F16x16")
    return g, x, y


def reversed_order(dims):
    _, h, n, m = dims
    return [h * n * m, n * m, 1, n]


SHAPES = [[1, 2, 64, 64], [1, 2, 64, 128], [2, 1, 16, 48], [1, 1, 32, 16]]


@pytest.mark.parametrize("dims", SHAPES, ids=str)
def test_elements_lie_where_cudnn_stores_them(dims):
    g, _, y = copy(dims)
    given = matrices(dims)
    (found,) = dnnc.reference(g, {"x": given}).values()
    np.testing.assert_array_equal(in_memory(found, numbers(y.strides)), buffer_of(-given))
    np.testing.assert_array_equal(found.reshape(dims), -given)  # dims of tiles lie side by side


@pytest.mark.parametrize("dims", SHAPES, ids=str)
def test_elements_are_read_from_where_cudnn_stores_them(dims):
    g, x, _ = copy(dims, ordered="x")
    g.graph.finalize()
    given = matrices(dims)
    bound = as_bound(buffer_of(given), numbers(x.dims), numbers(x.strides))
    (found,) = dnnc.reference(g, {"x": bound}).values()
    np.testing.assert_array_equal(found, -given)


@pytest.mark.parametrize("ordered", ["x", "y"])
def test_a_matrix_that_is_read_across_is_the_same_memory(ordered):
    dims = [1, 2, 48, 32]
    g, x, y = copy(dims, stride=reversed_order(dims), ordered=ordered)
    y.set_stride(reversed_order(dims))
    g.graph.finalize()
    given = matrices([1, 2, 32, 48])
    across = given.swapaxes(-1, -2)
    if ordered == "x":
        bound = as_bound(buffer_of(given), numbers(x.dims), numbers(x.strides))
        np.testing.assert_array_equal(dnnc.reference(g, {"x": bound})[y.uid], -across)
        return
    (found,) = dnnc.reference(g, {"x": across}).values()
    np.testing.assert_array_equal(in_memory(found, numbers(y.strides)), buffer_of(-given))


def test_what_lies_in_memory_has_the_dims_of_tiles_and_its_uid():
    g, x, y = copy([3, 2, 32, 64])
    y.set_uid(7)
    graph = g.graph.finalize()
    assert [op.title for op in graph.ops] == ["pointwise:neg", "reshape"]
    assert (graph.inputs, graph.outputs, y.uid) == ((x,), (y,), 7)
    assert numbers(y.dims) == [6, 2, 2, 8, 4, 2, 4, 2]
    assert numbers(y.strides) == [2048, 1024, 4, 32, 256, 2, 8, 1]
    assert y.get_reordering_type() is dnnc.tensor_reordering.F16x16
    elements = graph.ops[0].y
    assert elements.is_virtual
    assert numbers(elements.shape) == [3, 2, 32, 64]


def test_one_that_is_made_and_read_is_unfolded_once():
    g, _, y = copy([1, 1, 16, 16])
    g.relu(y).set_output().set_name("z")
    assert [op.title for op in g.graph.finalize().ops].count("reshape") == 1
    found = dnnc.reference(g, {"x": (given := matrices([1, 1, 16, 16]))})
    np.testing.assert_array_equal(found[g.graph.tensor("z").uid], np.maximum(-given, 0))


def test_texts_and_drafts_have_the_order_once():
    g, _, y = copy([1, 2, 32, 64])
    shown = repr(g)
    g.validate()
    assert numbers(y.dims) == [1, 2, 32, 64]
    assert [op.title for op in g.graph.ops] == ["pointwise:neg"]
    text = g.graph.finalize().canonical_text()
    assert from_json(json.loads(text)).finalize().canonical_text() == text
    assert from_json(json.loads(shown)) == g.graph


def test_batches_may_be_symbols_and_sizes_16_times_one():
    b, h, n = (dnnc.Dim(name, max=9) for name in "BHN")
    g, x, y = copy([b, h, 32, 16 * n])
    g.graph.finalize()
    assert [str(size) for size in y.dims] == ["B*H", "2", "2", "8", "N", "2", "4", "2"]
    given = matrices([2, 3, 32, 48])
    plan = compile_graph(g.graph, "sm_80", Options())
    (found,) = run_plan(plan, {x.uid: given}, sizes={"B": 2, "H": 3, "N": 3}).values()
    strides = [size.evaluate({"N": 3}) for size in y.strides]
    np.testing.assert_array_equal(in_memory(found, strides), buffer_of(-given))


@pytest.mark.rotating
@pytest.mark.parametrize("ordered", ["x", "y"])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_kernels_move_elements_there(ordered, dtype):
    dims = [1, 2, 32, 48]
    g, x, y = copy(dims, ordered=ordered, dtype=dtype)
    plan = compile_graph(g.graph.finalize(), "sm_80", Options())
    given = matrices(dims)
    bound = given
    if ordered == "x":
        bound = as_bound(buffer_of(given), numbers(x.dims), numbers(x.strides))
    found = np.float64(run_plan(plan, {x.uid: bound})[y.uid])
    wanted = buffer_of(-given) if ordered == "y" else -given.ravel()
    np.testing.assert_array_equal(in_memory(found, numbers(y.strides)), wanted)


REFUSED = {
    "rank": ({"dims": [1, 16, 16]}, "rank 3; accepted: F16x16 of rank 4"),
    "type": ({"dims": [1, 1, 16, 16], "dtype": "f32"}, "f32; accepted: F16x16 of f16 or bf16"),
    "rows": ({"dims": [1, 1, 24, 16]}, r"dims \[1, 1, 24, 16\]; accepted: .* multiples of 16"),
    "columns": ({"dims": [1, 1, 16, 40]}, "multiples of 16"),
    "a symbol": ({"dims": [1, 1, 16, dnnc.Dim("N", multiple_of=16)]}, "16 times a size where"),
    "gaps": (
        {"dims": [1, 2, 16, 32], "stride": [2048, 1024, 64, 1], "ordered": "x"},
        r"strides \[2048, 1024, 64, 1\]; accepted: \[1024, 512, 32, 1\], or \[1024, 512, 1, 16\]",
    ),
    "heads last": (
        {"dims": [2, 2, 16, 16], "stride": [256, 512, 16, 1], "ordered": "x"}, "strides",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("ordered", ["x", "y"])
def test_what_is_refused(name, ordered):
    options, said = REFUSED[name]
    g, *_ = copy(**{"ordered": ordered, **options})
    ops = list(g.graph.ops)
    with pytest.raises(DnncError, match=f"is reordered as F16x16, and of .*{said}") as caught:
        g.graph.finalize()
    assert caught.value.status is Status.NOT_SUPPORTED_LAYOUT
    assert g.graph.ops == ops


def test_vectors_are_refused():
    g, _, y = copy([1, 1, 64, 64])
    y.set_vector_count_and_dimension(4, 1)
    with pytest.raises(DnncError, match="of vectors; accepted: F16x16 of elements"):
        g.graph.finalize()


def test_dims_that_are_not_those_of_tiles_are_refused():
    g, x, _ = copy([1, 1, 2, 8, 1, 2, 4, 2], ordered="x")
    with pytest.raises(DnncError, match="rank 8; accepted: F16x16 of rank 4"):
        g.graph.finalize()
    assert x.rank == 8
