"""Engine pointwise in the interpreter: every mode, layout, access, view and type."""

import itertools
import re

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.dialect.pointwise_modes import MODES
from dnnc.dialect.reference import reference
from dnnc.interpreter.plans import run_plan
from tests.dialect.examples import ALL_EXAMPLES, IDS
from tests.support import machine
from tests.support.checked import check, random_inputs

M = dnnc.Dim("M", max=4096)


def new_graph(io=dtypes.f16, **options):
    defaults = {
        "io_data_type": io,
        "intermediate_data_type": dtypes.f32,
        "compute_data_type": dtypes.f32,
        "target": "sm_80",
    }
    return dnnc.pygraph("pointwise", **{**defaults, **options})


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(("op", "number", "build"), ALL_EXAMPLES, ids=IDS)
def test_examples_of_every_operation(op, number, build):
    """Whatever engine comes first: the examples of all operations, through PTX."""
    sizes = {"M": 5, "B": 4}
    g = build()
    graph = g.graph.finalize()
    options = {"target": "sm_90"} if any(t.type.is_fp8 for t in graph.tensors) else {}
    # The probabilities of fp8 are rounded to it, not in the reference of the one operation: a row
    # whose largest are dropped may lose all that is left.  Of its gradient f32 may round one to the
    # next number of fp8, and what is left of sums that nearly cancel may be as large: 42 seeds gave
    # up to 0.93.  The gradient of attention has exponentials of scores up to 128, too.
    rounded = {"sdpa_fp8": 0.13, "sdpa_fp8_backward": 0.25}
    allowance = {**rounded, "sdpa_backward": 4e-5}.get(op, 1e-6)
    check(g, sizes, inputs=random_inputs(graph, sizes, low=0.25, high=2.0), slack=6.0,
          allowance=allowance, **options)  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("mode", [m for m in MODES if m.domain == "float"], ids=lambda m: m.name)
@pytest.mark.parametrize("io", [dtypes.f16, dtypes.bf16], ids=str)
def test_float_modes_on_16_bit_types(mode, io):
    """Approximate instructions are allowed here, and stay within the type's unit."""
    g = new_graph(io)
    tensors = [g.tensor([9, 40]) for _ in range(mode.arity)]
    getattr(g, mode.methods[0][0])(*tensors).set_output()
    graph = g.graph.finalize()
    positive = mode.name in ("log", "sqrt", "rsqrt", "pow", "reciprocal", "div")
    inputs = random_inputs(graph, {}, low=0.25 if positive else -4.0, high=4.0)
    check(g, inputs=inputs, slack=1.5)


@pytest.mark.rotating
@pytest.mark.parametrize("io", [t for t in dtypes.ALL if t.kind != "b"], ids=str)
def test_types_in_and_out(io):
    g = new_graph(io, target="sm_90")
    compute = dtypes.f64 if io.bits == 64 else dtypes.f32
    g.add(g.tensor([7, 24]), g.tensor([1, 24]), compute_data_type=compute).set_output()
    check(g, target="sm_90", slack=1.0)


@pytest.mark.rotating
@pytest.mark.parametrize("io", [t for t in dtypes.ALL if t.is_float], ids=str)
def test_double_arithmetic_on_every_float_type(io):
    g = new_graph(io, target="sm_90")
    x, z = g.tensor([7, 24]), g.tensor([1, 24])
    g.exp(g.mul(x, z, compute_data_type=dtypes.f64), compute_data_type=dtypes.f64).set_output()
    check(g, target="sm_90", slack=1.0)


@pytest.mark.rotating
@pytest.mark.parametrize("kind", ["COMPILE_TIME_CONST", "RUNTIME_PARAM"])
@pytest.mark.parametrize("scalar", [t for t in dtypes.ALL if t.bits <= 8], ids=str)
def test_scalars_of_a_byte(kind, scalar):
    """Numbers that their own type alone holds: 200 is no i8."""
    g = new_graph(dtypes.f32, target="sm_90")
    value = 0.3125 if scalar.is_float else {"i8": -77, "ui8": 200, "i1": 1}[scalar.name]
    x, s = g.tensor([3, 8]), g.tensor_scalar(value, kind, scalar)
    y = g.mul(x, s.set_dim([1, 1]).set_stride([1, 1]))
    y.set_output()
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {})
    inputs.update({t.uid: np.full([1, 1], value) for t in graph.inputs if t.is_by_value})
    check(g, inputs=inputs, target="sm_90")


@pytest.mark.rotating
@pytest.mark.parametrize("narrow", [dtypes.f16, dtypes.bf16, dtypes.f8e4m3, dtypes.f8e5m2], ids=str)
def test_double_to_narrow_floats_rounds_once(narrow):
    """Numbers beside a tie, which f32 in between would take for the tie itself."""
    digits = {"f16": 11, "bf16": 8, "f8E4M3FN": 4, "f8E5M2": 3}[narrow.name]
    tie = 1 + 2.0**-digits
    x = np.array([tie, tie + 2.0**-40, tie - 2.0**-40, -tie - 2.0**-40, np.inf, np.nan, 0.0, 1e300])
    g = new_graph(dtypes.f64, target="sm_90")
    y = g.identity(g.tensor([8]), compute_data_type=dtypes.f64).set_data_type(narrow).set_output()
    graph = g.graph.finalize()
    plan = compile_graph(graph, "sm_90")
    (out,) = machine.current().run(plan, {graph.inputs[0].uid: x}).values()
    wanted = reference(graph, {graph.inputs[0].uid: x})[y.uid]
    np.testing.assert_array_equal(out.astype(np.float64), wanted.astype(np.float64))


@pytest.mark.rotating
@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 7, 8, 12, 16, 24, 31, 64, 100])
def test_odd_sizes_contiguous_and_broadcast(n):
    g = new_graph()
    g.add(g.tensor([5, n]), g.tensor([5, n])).set_output()
    check(g)
    g = new_graph()
    g.mul(g.add(g.tensor([5, n]), g.tensor([1, n])), g.tensor([5, 1])).set_output()
    check(g)


@pytest.mark.rotating
@pytest.mark.parametrize("elements", [1, 7, 8, 2047, 2048, 2049, 8192, 9001])
@pytest.mark.parametrize("unroll", [1, 4])
def test_ends_of_blocks(elements, unroll):
    g = new_graph()
    g.add(g.tensor([M]), g.tensor([M])).set_output()
    if elements <= 4096:
        check(g, {"M": elements}, engine="pointwise", knobs={"ARRAY_SIZE_PER_THREAD": unroll})
    g = new_graph()
    g.add(g.tensor([elements]), g.tensor([elements])).set_output()
    check(g, engine="pointwise", knobs={"ARRAY_SIZE_PER_THREAD": unroll})


ORDERS = list(itertools.permutations(range(3)))


def permuted_strides(dims, order, pad=0):
    strides, running = [0] * len(dims), 1
    for axis in reversed(order):
        strides[axis] = running
        running *= dims[axis] + pad
    return strides


@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("out", ORDERS, ids=str)
@pytest.mark.parametrize("pad", [0, 1])
def test_layouts(out, pad):
    """Three inputs in different orders, one with gaps, and any order of the output."""
    dims = [3, 4, 10]
    g = new_graph()
    a = g.tensor(dims, permuted_strides(dims, (0, 1, 2), pad))
    b = g.tensor(dims, permuted_strides(dims, (0, 2, 1)))
    c = g.tensor(dims, permuted_strides(dims, (2, 1, 0), pad))
    y = g.add(g.mul(a, b), c).set_output()
    y.set_stride(permuted_strides(dims, out, pad))
    check(g)


def test_rank_eight():
    dims = [2, 1, 3, 2, 1, 2, 2, 3]
    g = new_graph()
    x = g.tensor(dims, permuted_strides(dims, (7, 0, 3, 1, 2, 6, 4, 5)))
    y = g.tensor([1, 1, 3, 1, 1, 2, 1, 3])
    g.sub(x, y).set_output()
    check(g)


def test_several_outputs_of_different_types():
    g = new_graph()
    x = g.tensor([6, 32])
    g.relu(x).set_output().set_data_type(dtypes.bf16)
    g.mul(x, x).set_output().set_data_type(dtypes.f32)
    g.mul(x, 10.0).set_output().set_data_type(dtypes.i8)
    check(g)


@pytest.mark.rotating
@pytest.mark.parametrize("n", [1, 5, 8, 13, 64, 100, 4099])
def test_packed_booleans_out_and_in(n):
    g = new_graph()
    x, mask = g.tensor([3, n]), g.tensor([3, n], data_type=dtypes.i1)
    g.cmp_gt(x, 0.5).set_output().set_data_type(dtypes.i1)
    g.binary_select(x, g.neg(x), mask).set_output()
    check(g, inputs=random_inputs(g.graph.finalize(), {}))


@pytest.mark.in_turn
def test_packed_booleans_in_another_order():
    g = new_graph()
    x, y = g.tensor([3, 5, 7], [35, 1, 5]), g.tensor([3, 5, 7])
    g.cmp_lt(x, y).set_output().set_data_type(dtypes.i1)
    check(g)


def test_virtual_tensors_are_rounded_in_the_kernel():
    g = new_graph(dtypes.f32, intermediate_data_type=dtypes.f16)
    x = g.tensor([4])
    g.add(g.add(x, 2048.0), -2048.0).set_output()
    inputs = {x.uid or 1: np.array([1.3, 2.6, 3.1, -0.4], np.float32)}
    check(g, inputs={g.graph.finalize().inputs[0].uid: next(iter(inputs.values()))})


def test_scalars_by_value_and_fixed():
    g = new_graph()
    x, s = g.tensor([40]), g.tensor_scalar(1.5, "RUNTIME_PARAM")
    g.mul(g.add(x, s), 0.25).set_output()
    graph = g.graph.finalize()
    plan = check(g, inputs=random_inputs(graph, {}))
    kinds = [a.kind for a in plan.programs[0].variants[0].steps[0].launch.args]
    assert kinds.count("by_value") == 1


@pytest.mark.parametrize("byte", [dtypes.i8, dtypes.ui8], ids=str)
def test_relu_to_bytes(byte):
    """Without a maximum before bytes without sign: ptxas makes an illegal instruction of both."""
    g = new_graph(dtypes.f32, target="sm_90")
    x = g.tensor([4, 8])
    g.relu(x).set_data_type(byte).set_output()
    graph = g.graph.finalize()
    values = np.linspace(-300, 300, 32, dtype=np.float32).reshape(4, 8)
    values[0, :6] = np.nan, np.inf, -np.inf, 0.5, 1.5, -0.0
    plan = check(g, inputs={graph.inputs[0].uid: values}, target="sm_90")
    text = plan.blobs[plan.programs[0].modules[0].ptx].decode()
    assert "cvt.pack.sat" in text
    assert ("max." in text) == (byte == dtypes.i8)


def test_index_generation_and_masks():
    g = new_graph(dtypes.f32)
    x = g.tensor([2, M, 12])
    row, column = g.gen_index(x, 1), g.gen_index(x, 2)
    mask = g.cmp_ge(row, column, compute_data_type=dtypes.i32)
    g.binary_select(x, g.mul(x, 0.0), mask).set_output()
    check(g, {"M": 9})


@pytest.mark.parametrize("io", [dtypes.f16, dtypes.f32, dtypes.i8], ids=str)
def test_views_in_a_chain(io):
    g = new_graph(io)
    compute = dtypes.i32 if io.is_integer else dtypes.f32
    x = g.tensor([4, 6, 8])
    transposed = g.transpose(x, [1, 0, 2])
    flat = g.reshape(transposed, "LOGICAL").set_dim([24, 8])
    part = g.slice(flat, [slice(2, 20, 3), slice(1, 7)])
    g.add(part, part, compute_data_type=compute).set_output()
    check(g)


def test_reshape_of_symbols_divides_by_sizes():
    g = new_graph()
    x = g.tensor([M, 6, 4])
    g.relu(g.reshape(x, "LOGICAL").set_dim([M * 3, 8])).set_output()
    check(g, {"M": 7})


def test_concatenate_of_different_sizes():
    g = new_graph()
    parts = [g.tensor([3, n, 8]) for n in (1, 4, 2)]
    g.relu(g.concatenate(parts, 1)).set_output()
    check(g)
    g = new_graph()
    parts = [g.tensor([5, n]) for n in (8, 3, 16)]
    g.concatenate(parts, 1).set_output()
    check(g)


@pytest.mark.rotating
@pytest.mark.parametrize("io", [dtypes.f16, dtypes.i8])
def test_parts_of_whole_fragments_are_read_as_such(io):
    """Parts of 8 elements and their multiples, each at an offset that is none of its size's; of
    bytes, a fragment lies in two of them."""
    g = new_graph(io, target=machine.current().target)
    parts = [g.tensor([3, n], [n + 16, 1]) for n in (24, 8, 40, 16)]
    g.identity(g.concatenate(parts, 1)).set_output()
    plan = check(g)
    ptx = plan.text(plan.programs[0].modules[0].ptx)
    assert ("ld.global.nc.v4.b32" in ptx) == (io is dtypes.f16)


def test_wide_accesses_are_used():
    g = new_graph()
    g.add(g.tensor([M, 64]), g.tensor([1, 64])).set_output()
    ptx = check(g, {"M": 33}).blobs[1].decode()
    assert ptx.count("ld.global.v4.b32") + ptx.count("ld.global.nc.v4.b32") >= 2
    assert "st.global.v4.b32" in ptx


def test_low_alignment_is_respected():
    g = new_graph()
    x = g.tensor([M, 64], alignment_value=4)
    g.exp(x).set_output()
    ptx = check(g, {"M": 3}).blobs[1].decode()
    assert "v4" not in ptx.split("st.global")[0]


def test_more_than_two_to_the_31_elements_use_64_bit_offsets():
    g = new_graph()
    big = dnnc.Dim("R", max=1 << 22)
    x = g.tensor([big, 64], [1 << 12, 1])
    g.relu(x).set_output()
    check(g, {"R": 3})


def test_outputs_of_different_dims_are_split_with_the_reason():
    g = new_graph()
    x, y = g.tensor([3, 8]), g.tensor([1, 8])
    small = g.relu(y).set_output()
    g.add(x, small).set_output()
    plan = check(g)
    program = plan.programs[0]
    assert len(program.fusions) == 2
    assert "outputs of dims" in program.split_reason


# Halves, the ends of both ranges and their neighbours, what is far outside, and no numbers.
ROUNDED = np.float32([
    0.0, -0.0, 0.5, 1.5, -0.5, -1.5, 2.5, 126.5, 127.49, 127.5, 128.5, -127.5, -128.5, -128.51,
    254.5, 255.49, 255.5, 256.0, 1e-40, -1e-40, 1e9, -1e9, 3e9, -3e9, 1e38, -1e38,
    np.inf, -np.inf, np.nan, 77.0, -77.0,
])  # fmt: skip


@pytest.mark.rotating
@pytest.mark.parametrize("to", [dtypes.i8, dtypes.ui8], ids=str)
@pytest.mark.parametrize("source", [dtypes.f32, dtypes.f16], ids=str)
@pytest.mark.parametrize("pad", [0, 1])
def test_floats_to_bytes(to, source, pad):
    """In fragments, and the last one by itself."""
    values = np.tile(ROUNDED, 33)[: 31 * 33 // 16 * 16 + pad]
    g = new_graph(source)
    g.mul(g.tensor([1, len(values)]), 1.0).set_output().set_data_type(to)
    graph = g.graph.finalize()
    with np.errstate(over="ignore"):
        inputs = {graph.inputs[0].uid: values[None].astype(source.numpy)}
    plan = check(g, inputs=inputs, engine="pointwise")
    ptx = plan.blobs[plan.programs[0].modules[0].ptx].decode()
    assert "cvt.pack.sat" in ptx
    assert "setp.nan" not in ptx


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("to", [dtypes.f32, dtypes.f16, dtypes.bf16], ids=str)
@pytest.mark.parametrize("source", [dtypes.i8, dtypes.ui8], ids=str)
@pytest.mark.parametrize("pad", [0, 2, 5])
def test_bytes_to_floats(source, to, pad, target):
    """Every byte, alone and beside others, as it is and multiplied."""
    every = np.arange(256, dtype=np.uint8)
    values = np.concatenate([every, every[::-1], np.roll(every, 1)[: 64 + pad]])
    g = new_graph(source, target=target)
    x = g.tensor([1, len(values)])
    g.identity(x).set_output().set_data_type(to)
    g.mul(x, g.tensor([1, 1], data_type=to)).set_output().set_data_type(to)
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {})
    inputs[graph.inputs[0].uid] = values.view(source.numpy)[None]
    plan = check(g, inputs=inputs, engine="pointwise", target=target)
    if source == dtypes.i8 and pad == 0:
        ptx = plan.blobs[plan.programs[0].modules[0].ptx].decode()
        assert not re.search(r"cvt\.rn\.\w+\.s(8|16|32)", ptx)


def test_infinities_of_e5m2_are_read_as_they_are():
    """A view keeps them, a wider type has them, and what is computed saturates (docs/numerics)."""
    kind = dtypes.f8e5m2
    g = new_graph(kind)
    x = g.tensor([2, 3])
    g.transpose(x, [1, 0]).set_output()
    g.identity(x).set_output().set_data_type(dtypes.f32)
    g.mul(x, 1.0).set_output()
    graph = g.graph.finalize()
    values = np.array([[np.inf, -np.inf, 57344.0], [np.nan, 1.5, -0.0]])
    inputs = {graph.inputs[0].uid: values.astype(kind.numpy)}
    found = run_plan(compile_graph(graph, "sm_90a"), inputs)
    wanted = reference(graph, inputs)
    expected = (values.T, values, np.clip(values, -57344, 57344))  # NaN stays
    for tensor, one in zip(graph.outputs, expected, strict=True):
        for made in (found, wanted):
            np.testing.assert_array_equal(made[tensor.uid].astype(np.float64), one)
