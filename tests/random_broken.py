"""Broken graphs: a drawn graph in which one thing is wrong, and what that is.

A breakage takes the builder of a valid graph and spoils it: it changes a tensor or an operation,
or adds an operation that can't be.  It raises Untenable where the graph has nothing to spoil.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dnnc
from dnnc import dtypes
from dnnc.dialect.ops import Concatenate, Matmul, Pointwise, Reduction, Reshape, Slice, Transpose
from dnnc.dialect.tensor import packed_strides
from dnnc.expr import Expr

from .breakages import BREAKAGES, adding, an_input, an_op, an_output, breakage, setting, with_dims
from .random_builder import VIEWS, Builder
from .random_nodes import Drawn, Untenable, describe, pick

_VIEWS = (Transpose, Slice, Reshape, Concatenate)


@dataclass
class Broken:
    """A broken graph.

    kind: the name of the breakage.  spoil: applies it; it may itself be refused.
    """

    seed: int
    kind: str
    drawn: Drawn
    spoil: Callable[[], None]

    def run(self) -> None:
        """Breaks the graph and verifies it: a DnncError, sooner or later."""
        self.spoil()
        self.drawn.pygraph.graph.finalize()

    @property
    def description(self) -> str:
        return f"{self.kind} in\n{describe(self.drawn)}"


def draw_broken(seed: int) -> Broken:
    """A valid graph and a breakage that fits it; the breakages take turns."""
    kinds = list(BREAKAGES)
    for attempt in range(200):
        builder = Builder([9, seed, attempt])
        kind = kinds[seed % len(kinds)]
        try:
            for _ in range(pick(builder.rng, (1, 2, 3, 4))):
                builder.step()
            builder.set_outputs([n for n in builder.results() if not n.uses], prune=False)
            spoil = BREAKAGES[kind](builder)
        except Untenable:
            continue
        return Broken(seed, kind, builder.drawn(seed), spoil)
    raise AssertionError(f"seed {seed} has nothing to spoil by {kind}")


# ---- tensors


@breakage
def _dim_of_zero_or_less(builder: Builder) -> Callable[[], None]:
    x = an_input(builder)
    dims = list(x.shape)
    dims[int(builder.rng.integers(0, len(dims)))] = Expr.of(pick(builder.rng, (0, -1, -7)))
    return setting(x, dims=tuple(dims))


@breakage
def _dim_past_31_bits(builder: Builder) -> Callable[[], None]:
    size = pick(builder.rng, (1 << 31, 1 << 40, dnnc.Dim("Huge", max=1 << 31)))
    return adding(builder, lambda g: g.abs(g.tensor([size])))


@breakage
def _stride_below_zero(builder: Builder) -> Callable[[], None]:
    x = an_input(builder, lambda t: any(n.constant not in (None, 1) for n in t.shape))
    axes = [axis for axis, n in enumerate(x.shape) if n.constant not in (None, 1)]
    strides = list(x.layout)
    strides[pick(builder.rng, axes)] = Expr.of(pick(builder.rng, (-1, -3, -64)))
    return setting(x, strides=tuple(strides))


@breakage
def _strides_of_another_rank(builder: Builder) -> Callable[[], None]:
    x = an_input(builder)
    return setting(x, strides=(*x.layout, Expr.of(1)))


@breakage
def _result_of_stride_zero(builder: Builder) -> Callable[[], None]:
    y = an_output(builder, lambda t: t.dims and any(n.constant not in (None, 1) for n in t.dims))
    axes = [axis for axis, n in enumerate(y.shape) if n.constant not in (None, 1)]
    strides = list(packed_strides(y.shape))
    strides[pick(builder.rng, axes)] = Expr.of(0)
    return setting(y, strides=tuple(strides))


@breakage
def _rank_of_nine(builder: Builder) -> Callable[[], None]:
    rank = pick(builder.rng, (9, 12))
    return adding(builder, lambda g: g.abs(g.tensor([2] * rank)))


@breakage
def _axes_of_rank_none(builder: Builder) -> Callable[[], None]:
    make = pick(
        builder.rng,
        (
            lambda g: g.softmax(g.tensor([])),
            lambda g: g.transpose(g.tensor([]), []),
            lambda g: g.slice(g.tensor([]), []),
            lambda g: g.gen_index(g.tensor([]), 0),
            lambda g: g.concatenate([g.tensor([]), g.tensor([])], 0),
            lambda g: g.matmul(g.tensor([]), g.tensor([3, 4])),
            lambda g: g.conv_fprop(g.tensor([]), g.tensor([4, 4, 1, 1])),
            lambda g: g.rmsnorm("INFERENCE", g.tensor([]), g.tensor([]), epsilon=1e-5)[0],
            lambda g: g.sdpa(*(g.tensor([]) for _ in range(3)), generate_stats=False)[0],
            lambda g: g.genstats(g.tensor([]))[0],
            lambda g: g.rng(1, 2, dim=[]),
        ),
    )
    return adding(builder, make)


@breakage
def _uid_given_twice(builder: Builder) -> Callable[[], None]:
    first, second = _two_tensors(builder)

    def spoil() -> None:
        first.set_uid(5)
        second.set_uid(5)

    return spoil


def _two_tensors(builder: Builder) -> tuple[Any, Any]:
    tensors = builder.g.graph.tensors
    first, second = builder.rng.choice(len(tensors), 2, replace=False)
    return tensors[first], tensors[second]


@breakage
def _uid_out_of_range(builder: Builder) -> Callable[[], None]:
    uid = pick(builder.rng, (-2, 1 << 63, 1 << 70))
    return lambda: an_input(builder).set_uid(uid) and None


@breakage
def _alignment_that_is_no_power_of_two(builder: Builder) -> Callable[[], None]:
    return setting(an_input(builder), alignment=pick(builder.rng, (0, 3, 24, -16)))


@breakage
def _type_not_set(builder: Builder) -> Callable[[], None]:
    x = an_input(builder)

    def spoil() -> None:
        builder.g.graph.io_type = None
        x.set_data_type(None)

    return spoil


@breakage
def _unknown_data_type(builder: Builder) -> Callable[[], None]:
    return lambda: an_input(builder).set_data_type("f12") and None


@breakage
def _scalar_of_several_elements(builder: Builder) -> Callable[[], None]:
    x = an_input(builder, lambda t: any(n.constant != 1 for n in t.shape))
    is_by_value = builder.chance(0.5)
    return setting(x, value=1.0, is_by_value=is_by_value)


@breakage
def _by_value_tensor_of_several_elements(builder: Builder) -> Callable[[], None]:
    x = an_input(builder, lambda t: any(n.constant != 1 for n in t.shape))
    return setting(x, is_by_value=True)


@breakage
def _symbol_of_two_ranges(builder: Builder) -> Callable[[], None]:
    low, high = dnnc.Dim("Z", max=100), dnnc.Dim("Z", max=200)
    return adding(builder, lambda g: g.add(g.tensor([low, 3]), g.tensor([high, 3])))


@breakage
def _unknown_reordering(builder: Builder) -> Callable[[], None]:
    return setting(an_input(builder), reordering="F16x17")


# ---- the graph


@breakage
def _no_operations(builder: Builder) -> Callable[[], None]:
    return setting(builder.g.graph, ops=[])


@breakage
def _no_output(builder: Builder) -> Callable[[], None]:
    def spoil() -> None:
        for tensor in builder.g.graph.outputs:
            tensor.set_output(False)

    return spoil


@breakage
def _cycle(builder: Builder) -> Callable[[], None]:
    """An operation reads what another one makes of its result."""
    ops = builder.g.graph.ops
    pairs = [(a, b) for a in ops for b in ops if set(a.results) & set(b.operands)]
    unary = [(a, b) for a, b in pairs if not isinstance(a, Concatenate)]
    if not unary:
        raise Untenable("no chain")
    first, second = pick(builder.rng, unary)
    slot = first.fields_of("operand")[0].name
    return setting(first, **{slot: second.results[0]})


@breakage
def _own_result_as_operand(builder: Builder) -> Callable[[], None]:
    op = an_op(builder, Pointwise)
    return setting(op, x=op.y)


@breakage
def _two_producers(builder: Builder) -> Callable[[], None]:
    ops = builder.g.graph.ops
    if len(ops) < 2:
        raise Untenable("one operation")
    first, second = (ops[i] for i in builder.rng.choice(len(ops), 2, replace=False))
    return setting(second, **{second.fields_of("result")[0].name: first.results[0]})


@breakage
def _virtual_input(builder: Builder) -> Callable[[], None]:
    return lambda: an_input(builder).set_is_virtual(True) and None


@breakage
def _scalar_that_is_made(builder: Builder) -> Callable[[], None]:
    made = pick(builder.rng, [op.results[0] for op in builder.g.graph.ops])
    return setting(made, **pick(builder.rng, ({"value": 1.0}, {"is_by_value": True})))


@breakage
def _output_on_top_of_itself(builder: Builder) -> Callable[[], None]:
    """Two axes of more than one element have one stride."""

    def is_wide(tensor: Any) -> bool:
        constant = all(n.constant is not None for n in tensor.shape)
        return constant and sum(n.constant != 1 for n in tensor.shape) >= 2

    output = an_output(builder, is_wide)
    if any(isinstance(op, Reshape) and output in op.operands for op in builder.g.graph.ops):
        raise Untenable("a reshape asks for more")
    return lambda: output.set_stride([1] * output.rank) and None


@breakage
def _tensor_of_another_graph(builder: Builder) -> Callable[[], None]:
    other = dnnc.pygraph(io_data_type=dtypes.f32)
    x = other.tensor([2, 3])
    return adding(builder, lambda g: g.add(g.tensor([2, 3]), x))


# ---- operations in general


@breakage
def _result_of_other_dims(builder: Builder) -> Callable[[], None]:
    op = an_op(builder, Pointwise, Matmul, Reduction, *_VIEWS)
    y = op.results[0]
    dims = list(y.shape)
    axis = int(builder.rng.integers(0, len(dims)))
    dims[axis] = dims[axis] + pick(builder.rng, (1, 5))
    return with_dims(y, dims)


@breakage
def _result_of_another_rank(builder: Builder) -> Callable[[], None]:
    op = an_op(builder, Pointwise, Matmul, Reduction, Transpose, Slice, Concatenate)
    y = op.results[0]
    return with_dims(y, [2, *y.shape][-8:] if y.rank < 8 else y.shape[1:])


@breakage
def _view_that_changes_the_type(builder: Builder) -> Callable[[], None]:
    y = an_op(builder, *_VIEWS).results[0]
    other = dtypes.i32 if y.type != dtypes.i32 else dtypes.i64
    return lambda: y.set_data_type(other) and None


@breakage
def _impossible_compute_type(builder: Builder) -> Callable[[], None]:
    op = an_op(builder, Pointwise, Matmul, Reduction)
    return setting(op, compute_type=pick(builder.rng, (dtypes.i8, dtypes.bf16, dtypes.ui8)))


@breakage
def _integer_compute_type_of_a_float_function(builder: Builder) -> Callable[[], None]:
    op = an_op(builder, Pointwise, accept=lambda op: op.row.domain == "float")
    return setting(op, compute_type=pick(builder.rng, (dtypes.i32, dtypes.i1)))


@breakage
def _compute_type_that_is_no_type(builder: Builder) -> Callable[[], None]:
    return setting(an_op(builder, Pointwise, Matmul, Reduction), compute_type="FLOAT")


@breakage
def _missing_operand(builder: Builder) -> Callable[[], None]:
    op = an_op(builder, Pointwise, Matmul, Reduction, Transpose, Slice, Reshape)
    fields = [f for f in op.fields_of("operand") if getattr(op, f.name) is not None]
    return setting(op, **{pick(builder.rng, fields).name: None})


@breakage
def _missing_result(builder: Builder) -> Callable[[], None]:
    op = an_op(builder, Pointwise, Matmul, Reduction, Transpose, Slice, Reshape, Concatenate)
    return setting(op, **{op.fields_of("result")[0].name: None})


@breakage
def _missing_attribute(builder: Builder) -> Callable[[], None]:
    op = an_op(builder, Pointwise, Matmul, Reduction, *_VIEWS)
    fields = [f for f in op.fields_of("attribute") if not f.optional]
    return setting(op, **{pick(builder.rng, fields).name: None})


# ---- pointwise


@breakage
def _unknown_mode(builder: Builder) -> Callable[[], None]:
    op = an_op(builder, Pointwise, Reduction)
    return setting(op, mode=pick(builder.rng, ("sinh", "", "ADD", 3)))


@breakage
def _unknown_reshape_mode(builder: Builder) -> Callable[[], None]:
    return setting(an_op(builder, Reshape), reshape_mode="PHYSICAL")


@breakage
def _operand_too_many(builder: Builder) -> Callable[[], None]:
    op = an_op(builder, Pointwise, accept=lambda op: op.t is None)
    return setting(op, t=op.x)


@breakage
def _operands_that_do_not_broadcast(builder: Builder) -> Callable[[], None]:
    n = int(builder.rng.integers(2, 20))
    return adding(builder, lambda g: g.add(g.tensor([3, n]), g.tensor([3, n + 1])))


@breakage
def _operands_that_do_not_broadcast(builder: Builder) -> Callable[[], None]:
    return adding(builder, lambda g: g.mul(g.tensor([3, 4]), g.tensor([3])))


@breakage
def _symbols_that_differ(builder: Builder) -> Callable[[], None]:
    one, two = dnnc.Dim("P"), dnnc.Dim("Q")
    return adding(builder, lambda g: g.mul(g.tensor([3, one]), g.tensor([3, two])))


@breakage
def _index_axis_out_of_range(builder: Builder) -> Callable[[], None]:
    axis = pick(builder.rng, (2, 5, -1, None))
    return adding(builder, lambda g: g.gen_index(g.tensor([3, 4]), axis))


@breakage
def _foreign_parameter(builder: Builder) -> Callable[[], None]:
    op = an_op(builder, Pointwise, accept=lambda op: "elu_alpha" not in op.row.parameters)
    return setting(op, elu_alpha=1.0)


@breakage
def _parameter_that_is_no_number(builder: Builder) -> Callable[[], None]:
    value = pick(builder.rng, ("1", [1.0], True))
    return adding(builder, lambda g: g.elu(g.tensor([3]), elu_alpha=value))


@breakage
def _beta_of_zero(builder: Builder) -> Callable[[], None]:
    return adding(builder, lambda g: g.softplus(g.tensor([3]), softplus_beta=0.0))


# ---- sums


@breakage
def _product_of_unequal_depths(builder: Builder) -> Callable[[], None]:
    a, b = (int(n) for n in builder.rng.choice(30, 2, replace=False) + 1)
    return adding(builder, lambda g: g.matmul(g.tensor([3, a]), g.tensor([b, 4])))


@breakage
def _product_of_unequal_batches(builder: Builder) -> Callable[[], None]:
    return adding(builder, lambda g: g.matmul(g.tensor([2, 3, 4]), g.tensor([3, 4, 5])))


@breakage
def _product_of_vectors(builder: Builder) -> Callable[[], None]:
    shapes = pick(builder.rng, (([3, 4], [2, 5, 5]), ([4], [4]), ([3, 4], [4])))
    return adding(builder, lambda g: g.matmul(*(g.tensor(s) for s in shapes)))


@breakage
def _integer_sums_of_floats(builder: Builder) -> Callable[[], None]:
    return adding(
        builder,
        lambda g: g.matmul(g.tensor([3, 4]), g.tensor([4, 5]), compute_data_type=dtypes.i32),
    )


@breakage
def _reduction_of_another_rank(builder: Builder) -> Callable[[], None]:
    dims = pick(builder.rng, ([3], [3, 1, 1]))
    return adding(builder, lambda g: g.reduction(g.tensor([3, 4]), "add").set_dim(dims))


@breakage
def _integer_average(builder: Builder) -> Callable[[], None]:
    mode = pick(builder.rng, ("avg", "norm2"))
    return adding(
        builder,
        lambda g: g.reduction(g.tensor([3, 4]), mode, compute_data_type=dtypes.i32).set_dim([3, 1]),
    )


# ---- views


@breakage
def _bad_permutation(builder: Builder) -> Callable[[], None]:
    op = an_op(builder, Transpose)
    rank = op.x.rank
    wrong = [(*op.permutation, rank), op.permutation[:-1], (*op.permutation[:-1], rank)]
    if rank > 1:
        wrong.append((op.permutation[0],) * rank)
    return setting(op, permutation=pick(builder.rng, wrong))


@breakage
def _permutation_of_something_else(builder: Builder) -> Callable[[], None]:
    wrong = pick(builder.rng, ("01", [0], 3, ("a", "b")))
    return setting(an_op(builder, Transpose), permutation=wrong)


@breakage
def _slice_out_of_range(builder: Builder) -> Callable[[], None]:
    op = an_op(builder, Slice, accept=lambda op: op.x.shape[0].constant is not None)
    extent = op.x.shape[0].constant
    start, stop, step = pick(
        builder.rng, ((0, extent + 1, 1), (extent, extent, 1), (0, extent, 0), (-1, extent, 1))
    )
    starts, stops, steps = (start, *op.starts[1:]), (stop, *op.stops[1:]), (step, *op.steps[1:])
    return setting(op, starts=starts, stops=stops, steps=steps)


@breakage
def _slice_of_a_symbol(builder: Builder) -> Callable[[], None]:
    size = dnnc.Dim("S", max=64)
    return adding(builder, lambda g: g.slice(g.tensor([3, size]), [slice(None), slice(0, 2)]))


@breakage
def _slice_of_too_few_axes(builder: Builder) -> Callable[[], None]:
    op = an_op(builder, Slice)
    name = pick(builder.rng, ("starts", "stops", "steps"))
    return setting(op, **{name: getattr(op, name)[:-1]})


@breakage
def _reshape_of_other_size(builder: Builder) -> Callable[[], None]:
    n = int(builder.rng.integers(2, 9))
    return adding(
        builder,
        lambda g: g.reshape(g.tensor([3, n]), reshape_mode="LOGICAL").set_dim([2, n]),
    )


@breakage
def _reshape_without_dims(builder: Builder) -> Callable[[], None]:
    return adding(builder, lambda g: g.reshape(g.tensor([3, 4])))


@breakage
def _view_of_gaps(builder: Builder) -> Callable[[], None]:
    return adding(builder, lambda g: g.reshape(g.tensor([3, 4], [5, 1]), "VIEW_ONLY").set_dim([12]))


@breakage
def _concatenation_axis_out_of_range(builder: Builder) -> Callable[[], None]:
    axis = pick(builder.rng, (2, 9, -1))
    return adding(builder, lambda g: g.concatenate([g.tensor([3, 4]), g.tensor([3, 4])], axis))


@breakage
def _concatenation_of_nothing(builder: Builder) -> Callable[[], None]:
    return adding(builder, lambda g: g.concatenate([], 0))


@breakage
def _concatenation_of_too_many(builder: Builder) -> Callable[[], None]:
    return adding(builder, lambda g: g.concatenate([g.tensor([1, 2]) for _ in range(33)], 0))


@breakage
def _concatenation_of_other_dims(builder: Builder) -> Callable[[], None]:
    shapes = pick(builder.rng, (([3, 4], [3, 5]), ([3, 4], [3, 4, 1])))
    return adding(builder, lambda g: g.concatenate([g.tensor(s) for s in shapes], 0))


@breakage
def _concatenation_of_other_types(builder: Builder) -> Callable[[], None]:
    return adding(
        builder,
        lambda g: g.concatenate(
            [g.tensor([3, 4], data_type=t) for t in (dtypes.f32, dtypes.i32)], 0
        ),
    )


@breakage
def _concatenation_in_place(builder: Builder) -> Callable[[], None]:
    index = pick(builder.rng, (0, 1, 7))
    return adding(
        builder,
        lambda g: g.concatenate([g.tensor([3]), g.tensor([4])], 0, in_place_index=index),
    )


assert set(VIEWS) == {kind.op_name for kind in _VIEWS}
