"""The graph as a whole: what it refuses, infers, orders and hashes."""

import pytest

import dnnc
from dnnc import dtypes
from dnnc.dialect.graph import OperationGraph
from dnnc.dialect.ops import Pointwise
from dnnc.dialect.tensor import Tensor, dense_order, packed_strides, sizes, stride_order
from dnnc.errors import DnncError, Status

from .example_parts import finish, new_graph


def tensor(dims, **fields):
    return Tensor(dims=sizes(dims), strides=packed_strides(sizes(dims)), **fields)


def refused(graph):
    with pytest.raises(DnncError) as caught:
        graph.finalize()
    return caught.value


def refused_tensor(*given, **named):
    """The error of a tensor of a pygraph, which is refused where it is made."""
    with pytest.raises(DnncError) as caught:
        new_graph().tensor(*given, **named)
    return caught.value


def test_what_was_inferred_follows_later_changes():
    g = new_graph()
    x = g.tensor([4], name="x")
    y = finish(g, g.exp(x)).graph.ops[0].results[0]
    x.set_dim([5])
    g.validate()
    assert y.get_dim() == [5]
    y.set_dim([4])
    with pytest.raises(ValueError, match="Y has dims"):
        g.validate()


def test_operations_in_any_order_are_put_in_order():
    graph = OperationGraph(io_type=dtypes.f32)
    x, y, z = tensor([4]), Tensor(is_virtual=True), Tensor()
    second = graph.add(Pointwise(mode="exp", x=y, y=z))
    first = graph.add(Pointwise(mode="neg", x=x, y=y))
    assert graph.finalize().ops == [first, second]
    assert z.dims == sizes([4])


def test_a_cycle_is_refused():
    graph = OperationGraph(io_type=dtypes.f32)
    x, y = tensor([4]), tensor([4])
    graph.add(Pointwise(mode="exp", x=x, y=y, name="down"))
    graph.add(Pointwise(mode="neg", x=y, y=x, name="up"))
    error = refused(graph)
    assert error.status is Status.NOT_SUPPORTED_GRAPH_PATTERN
    assert "'down'" in error.what
    assert "'up'" in error.what


def test_a_uid_given_twice_is_refused():
    g = new_graph()
    x, y = g.tensor([4], uid=7, name="x"), g.tensor([4], uid=7, name="y")
    finish(g, g.add(x, y))
    error = refused(g.graph)
    assert error.status is Status.BAD_PARAM_DUPLICATED_ENTRIES
    assert "uid 7" in error.what


def test_an_unknown_uid_is_refused():
    g = finish_one()
    with pytest.raises(ValueError, match="0 tensors are called 99"):
        g.query_tensor_attributes_of_uid(99)


def finish_one():
    g = new_graph()
    return finish(g, g.exp(g.tensor([4], name="x")))


def test_a_tensor_that_two_operations_make_is_refused():
    graph = OperationGraph(io_type=dtypes.f32)
    x, y = tensor([4]), tensor([4])
    graph.add(Pointwise(mode="exp", x=x, y=y, name="one"))
    graph.add(Pointwise(mode="neg", x=x, y=y, name="two"))
    assert "made by pointwise:exp 'one' and by pointwise:neg 'two'" in refused(graph).what


def test_a_virtual_tensor_that_nothing_makes_is_refused():
    g = new_graph()
    finish(g, g.exp(g.tensor([4], is_virtual=True)))
    assert "no operation makes it" in refused(g.graph).what


def test_a_graph_without_operations_or_outputs_is_refused():
    assert "no operations" in refused(OperationGraph()).what
    g = new_graph()
    g.exp(g.tensor([4]))
    assert "every result is virtual" in refused(g.graph).what


@pytest.mark.parametrize("dims", [[0, 4], [-1, 4], [4, 0]])
def test_dims_below_one_are_refused(dims):
    assert "dim" in refused_tensor(dims, [4, 1]).what


def test_negative_strides_are_refused():
    error = refused_tensor([3, 4], [-4, 1])
    assert "stride -4" in error.what
    assert error.supported == "strides of at least 0"


@pytest.mark.parametrize("is_output", [True, False])
@pytest.mark.parametrize("dims", [[3, 4], [dnnc.Dim("M"), 4]])
def test_results_of_stride_0_are_refused(dims, is_output):
    g = new_graph()
    y = g.exp(g.tensor(dims)).set_stride([0, 1])
    finish(g, y if is_output else g.exp(y))
    error = refused(g.graph)
    assert error.status is Status.NOT_SUPPORTED_LAYOUT
    assert "two elements in one place" in error.what


@pytest.mark.parametrize(
    ("strides", "order"),
    [
        ([0, 8, 1], (0, 1, 2)),
        ([8, 0, 1], (0, 1, 2)),
        ([1, 8, 0], (1, 2, 0)),
        ([0, 1, 4], (0, 2, 1)),
    ],
)
def test_results_of_inputs_of_stride_0_are_packed(strides, order):
    """An axis that repeats lies behind the one before it; the first is outermost."""
    g = new_graph()
    x = g.tensor([2, 3, 4], strides)
    y = g.exp(x)
    finish(g, y)
    g.graph.finalize()
    assert y.strides == packed_strides(x.shape, order)


def test_operations_that_need_axes_refuse_rank_0():
    g = new_graph()
    finish(g, g.softmax(g.tensor([])))
    error = refused(g.graph)
    assert error.status is Status.NOT_SUPPORTED_SHAPE
    assert "rank 0" in error.what


def test_more_dims_than_strides_are_refused():
    assert refused_tensor([3, 4], [1]).status is Status.BAD_PARAM_SHAPE_MISMATCH


def test_rank_nine_is_refused():
    assert refused_tensor([1] * 9).status is Status.NOT_SUPPORTED_SHAPE


@pytest.mark.parametrize("kind", ["io_data_type", "intermediate_data_type"])
def test_a_tensor_of_a_compute_type_is_refused(kind):
    g = new_graph(**{kind: dtypes.fast_float_for_fp8})
    finish(g, g.exp(g.exp(g.tensor([4]))))
    error = refused(g.graph)
    assert error.status is Status.NOT_SUPPORTED_DATA_TYPE
    assert "data type FAST_FLOAT_FOR_FP8, which is a compute type only" in error.what
    assert error.supported.startswith("f32, f64, f16")
    assert "fast" not in error.supported


def test_an_output_that_overlaps_itself_is_refused():
    g = new_graph()
    finish(g, g.exp(g.tensor([3, 4])).set_stride([2, 1]))
    assert refused(g.graph).status is Status.NOT_SUPPORTED_LAYOUT


def test_an_alignment_that_is_no_power_of_two_is_refused():
    assert "alignment 12" in refused_tensor([4], alignment_value=12).what


def test_one_name_for_two_symbols_is_refused():
    g = new_graph()
    x, y = g.tensor([dnnc.Dim("M", max=8)]), g.tensor([dnnc.Dim("M", max=16)])
    finish(g, g.exp(x), g.exp(y))
    assert refused(g.graph).status is Status.BAD_PARAM_DUPLICATED_ENTRIES


def test_dims_that_may_differ_do_not_fit():
    g = new_graph()
    x, y = g.tensor([dnnc.Dim("M"), 4]), g.tensor([dnnc.Dim("N"), 4])
    with pytest.raises(DnncError, match="N, not M"):
        g.add(x, y)


def test_a_finalized_graph_does_not_change():
    graph = finish_one().graph.finalize()
    with pytest.raises(RuntimeError, match="finalized"):
        graph.add(graph.ops[0])


def test_hash_and_key_follow_the_content():
    one, same, other = (finish_one() for _ in range(3))
    other.graph.tensor("x").set_dim([5]).set_stride([1])
    for g in (one, same, other):
        g.build_operation_graph()
    graphs = [g.graph for g in (one, same, other)]
    assert graphs[0] == graphs[1]
    assert hash(graphs[0]) == hash(graphs[1])
    assert graphs[0].key() != graphs[2].key()


def test_inferred_strides_follow_the_operand_of_the_same_dims():
    g = new_graph()
    channels_last = g.tensor([2, 3, 4, 5], [60, 1, 15, 3])
    y = g.add(g.tensor([1, 3, 1, 1]), channels_last)
    assert y.get_stride() == [60, 1, 15, 3]


def test_comparisons_are_boolean_unless_said_otherwise():
    g = new_graph()
    x = g.tensor([4])
    mask = g.cmp_gt(x, 0.0)
    finish(g, g.binary_select(x, g.neg(x), mask))
    g.validate()
    assert mask.dtype is dtypes.i1


def test_stride_order_and_density():
    dims, strides = sizes([2, 3, 4, 5]), sizes([60, 1, 15, 3])
    assert stride_order(dims, strides) == (0, 2, 3, 1)
    assert dense_order(dims, strides) == (0, 2, 3, 1)
    assert dense_order(dims, sizes([120, 1, 30, 3])) is None
    assert dense_order(sizes([1, 3]), sizes([77, 1])) is not None


K, LONG = dnnc.Dim("k", min=1, max=64), dnnc.Dim("ld", min=1, max=4096)


@pytest.mark.parametrize(
    ("dims", "strides", "wanted"),
    [
        ([8, K], [2, 1], [K, 1]),  # windows, which overlap from 3 elements on
        ([33, K], [1, 1], [K, 1]),
        ([8, 1, K, 1], [1, K, 1, 1], [K, K, 1, 1]),
        ([8, K], [LONG, 1], [LONG, 1]),
        ([K, 8], [8, 1], [8, 1]),
    ],
    ids=["windows", "one stride", "one stride beside a symbol", "own stride", "packed"],
)
def test_results_take_no_strides_that_may_overlap(dims, strides, wanted):
    g = dnnc.pygraph(io_data_type="f16")
    y = g.relu(g.tensor(dims, strides)).set_output()
    g.graph.finalize()
    assert [str(s) for s, n in zip(y.get_stride(), dims, strict=True) if n != 1] == [
        str(s) for s, n in zip(wanted, dims, strict=True) if n != 1
    ]
