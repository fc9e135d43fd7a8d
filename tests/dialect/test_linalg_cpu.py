"""The linalg stage, run on the CPU, against the reference: two statements of each operation."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.dialect.pointwise_modes import MODES
from dnnc.dialect.reference import reference
from tests.support import linalg_cpu
from tests.support.compare import assert_close

from .example_parts import finish, new_graph
from .examples import ALL_EXAMPLES, IDS
from .test_ops import random_inputs

SIZES = {"M": 5, "B": 4}


def check(graph, inputs, slack=4.0):
    expected = reference(graph, inputs)
    actual = linalg_cpu.run(graph, inputs)
    exact = reference(graph, inputs, exact_outputs=True)
    for tensor in graph.outputs:
        wanted = exact if tensor.type.is_float else expected
        assert_close(actual[tensor.uid], wanted[tensor.uid], tensor.type, slack=slack)


@pytest.mark.rotating
@pytest.mark.parametrize(("op", "number", "build"), ALL_EXAMPLES, ids=IDS)
def test_examples(op, number, build):
    graph = linalg_cpu.with_sizes(build().graph, SIZES)
    if any(tensor.type.is_fp8 for tensor in graph.tensors):
        pytest.skip("the CPU converts no fp8; tests/engines runs it")
    # Exponentials of scores up to 128, and a difference of sums that nearly cancel.
    check(graph, random_inputs(graph, {}), slack=340.0 if op == "sdpa_backward" else 4.0)


SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, 88.0, -88.0, 1e-3, -1e4, np.inf, -np.inf, np.nan]
)
FLOAT_MODES = [m for m in MODES if m.result == "compute" and m.name != "gen_index"]


@pytest.mark.parametrize("arity", sorted({mode.arity for mode in FLOAT_MODES}))
def test_special_values(arity):
    """NaN and infinities fall where the reference has them, for every pair of special values.

    All modes of so many operands are one graph, compiled once.
    """
    g = new_graph()
    shapes = [[len(SPECIAL), 1], [1, len(SPECIAL)], [len(SPECIAL), len(SPECIAL)]]
    tensors = [g.tensor(s) for s in shapes[:arity]]
    names = [mode.methods[0][0] for mode in FLOAT_MODES if mode.arity == arity]
    made = [getattr(g, name)(*tensors) for name in names]
    graph = finish(g, *made).graph.finalize()
    values = [SPECIAL[:, None], SPECIAL[None, :], SPECIAL[:, None] * np.ones(len(SPECIAL))]
    inputs = {t.get_uid(): v for t, v in zip(tensors, values, strict=False)}
    wanted, found = reference(graph, inputs), linalg_cpu.run(graph, inputs)
    for name, tensor in zip(names, made, strict=True):
        expected, actual = wanted[tensor.get_uid()], found[tensor.get_uid()]
        np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected), err_msg=name)
        infinite = np.isinf(expected)
        np.testing.assert_array_equal(actual[infinite], expected[infinite], err_msg=name)
        finite = np.isfinite(expected)
        # 1 - tanh(x)**2 cancels in f32, hence no tighter.
        np.testing.assert_allclose(
            actual[finite], expected[finite], rtol=1e-4, atol=1e-6, err_msg=name
        )


CONVERTED = [t for t in dtypes.ALL if t.bits != 8 or not t.is_float]


@pytest.mark.parametrize("source", CONVERTED, ids=str)
def test_conversions(source):
    """identity to every type, on values at and past the ends of their ranges."""
    g = new_graph(io_data_type=source)
    compute = dtypes.f64 if source.kind != "b" else dtypes.f32
    x = g.tensor([23])
    made = [g.identity(x, compute_data_type=compute).set_data_type(t) for t in CONVERTED]
    graph = finish(g, *made).graph.finalize()
    values = np.array(
        [0, 1, -1, 2, 127, 128, 129, -128, -129, 255, 256, 32767, -32769, 65504, 65536, 2**31 - 1,
         -(2**31), 2**31, 2**40, -(2**40), 0.5, 1.5, -2.5]
    )  # fmt: skip
    inputs = {graph.inputs[0].uid: np.clip(values, -3e4, 3e4) if source.bits == 16 else values}
    check(graph, inputs, slack=1.0)


def test_int32_arithmetic_wraps():
    g = new_graph(io_data_type=dtypes.i32, compute_data_type=dtypes.i32)
    x, y = g.tensor([6]), g.tensor([6])
    graph = finish(g, g.add(g.mul(x, y), y), g.div(x, y), g.mod(x, y)).graph.finalize()
    low = -(2**31)
    inputs = {1: [2**31 - 1, low, low, 7, -7, 5], 2: [2, -1, 3, -2, 2, 0]}
    expected = reference(graph, inputs)
    actual = linalg_cpu.run(graph, inputs)
    for tensor in graph.outputs:
        np.testing.assert_array_equal(actual[tensor.uid], expected[tensor.uid])
    assert expected[graph.outputs[1].uid].tolist() == [2**30 - 1, low, -715827882, -3, -3, 0]
    assert expected[graph.outputs[2].uid].tolist() == [1, 0, -2, 1, -1, 5]


def test_virtual_tensors_are_rounded():
    g = new_graph(intermediate_data_type=dtypes.f16)
    x = g.tensor([1])
    graph = finish(g, g.add(g.add(x, 2048.0), -2048.0)).graph.finalize()
    inputs = {x.uid: np.array([1.3])}
    actual = linalg_cpu.run(graph, inputs)[graph.outputs[0].uid]
    assert reference(graph, inputs)[graph.outputs[0].uid] == actual == 2.0


def test_reduction_of_packed_booleans_counts():
    g = dnnc.pygraph(target="sm_90", io_data_type=dtypes.f32)
    x = g.tensor([3, 5], data_type=dtypes.i1)
    graph = finish(g, g.reduction(x, "add").set_dim([3, 1])).graph.finalize()
    inputs = {x.uid: np.arange(15).reshape(3, 5) % 2 == 0}
    check(graph, inputs)
