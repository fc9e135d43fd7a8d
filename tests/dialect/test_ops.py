"""Derived from the list of operations: round trips, constraints, references, methods."""

import json
import re

import numpy as np
import pytest

import dnnc
from dnnc import dtypes, mlir
from dnnc.dialect import dnn, json_form
from dnnc.dialect.ops import OPS, ConvDgrad, ConvFprop, ConvWgrad, Matmul, SdpaFp8
from dnnc.dialect.reference import drawn, reference
from dnnc.errors import DnncError, Status

from .broken_examples import BROKEN
from .example_parts import finish, new_graph
from .examples import ALL_EXAMPLES, EXAMPLES, IDS

CONSTRAINT = re.compile(r"^\s*\((C\d+)\)", re.MULTILINE)


@pytest.mark.parametrize(("op", "number", "build"), ALL_EXAMPLES, ids=IDS)
def test_json_round_trip(op, number, build):
    graph = build().graph.finalize()
    data = json.loads(json.dumps(json_form.to_json(graph)))
    assert json_form.from_json(data) == graph


@pytest.fixture(scope="module")
def context():
    """One for all tests: to make it takes longer than most of them."""
    with dnn.context():
        yield


@pytest.mark.usefixtures("context")
@pytest.mark.parametrize(("op", "number", "build"), ALL_EXAMPLES, ids=IDS)
def test_what_a_pygraph_builds_is_a_valid_module(op, number, build):
    """Outputs have the types that a pygraph gives them: a view's may be numbers for bits."""
    g = build()
    g.build_operation_graph()
    module = dnn.to_mlir(g.graph)
    mlir.verify(module)
    assert dnn.from_mlir(module) == g.graph


@pytest.mark.usefixtures("context")
@pytest.mark.parametrize(("op", "number", "build"), ALL_EXAMPLES, ids=IDS)
def test_mlir_round_trip(op, number, build):
    graph = build().graph.finalize()
    module = dnn.to_mlir(graph)
    mlir.verify(module)
    text = str(module)
    parsed = mlir.parse(text)
    assert str(parsed) == text
    assert dnn.from_mlir(parsed) == graph


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.op_name)
def test_every_op_is_in_the_examples_and_every_constraint_broken(op):
    assert EXAMPLES[op.op_name]
    stated = CONSTRAINT.findall(op.__doc__)
    tested = [constraint for name, constraint in BROKEN if name == op.op_name]
    assert stated == tested


@pytest.mark.parametrize(("op", "constraint"), BROKEN, ids=lambda value: str(value))
def test_each_constraint_rejects(op, constraint):
    build = BROKEN[(op, constraint)]
    with pytest.raises(DnncError) as caught:
        build().validate()
    assert f"({constraint})" in caught.value.where
    assert caught.value.supported


@pytest.mark.usefixtures("context")
@pytest.mark.parametrize(("op", "constraint"), BROKEN, ids=lambda value: str(value))
def test_each_constraint_rejects_in_mlir_too(op, constraint):
    """The verifier of the `dnn` op is the same function: it is given the op as it stands."""
    graph = BROKEN[(op, constraint)]
    try:
        made = graph().graph
    except DnncError:
        pytest.skip("refused while it was built")
    for tensor in made.tensors:
        tensor.dtype = tensor.dtype or dnnc.data_type.FLOAT
        if tensor.dims is None or tensor.strides is None:
            pytest.skip("the broken op leaves dims open, which the IR can't hold")
    module = mlir.ir.Module.create()
    with mlir.ir.InsertionPoint(module.body):
        function = dnn.begin_function("g", made.inputs, made.outputs, made.symbols)
    with mlir.ir.InsertionPoint(function.entry_block):
        values = dict(zip(made.inputs, function.arguments, strict=True))
        dnn.emit_ops(made.ops, values, list(made.symbols))
        mlir.func.ReturnOp([values[t] for t in made.outputs])
    with pytest.raises(mlir.ir.MLIRError) as caught:
        mlir.verify(module)
    assert f"({constraint})" in mlir.message(caught.value)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.op_name)
def test_docstrings_state_shapes_source_and_constraints(op):
    assert "[" in op.__doc__
    assert "Source:" in op.__doc__
    assert "(C1)" in op.__doc__
    for field in op.fields:
        assert field.doc


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.op_name)
def test_descriptor_names_are_unique(op):
    # cuDNN 9.19 has no descriptor of them; of sdpa_fp8 it has sdpa's, with attributes we don't know
    ours = (
        "broadcast", "causal_conv1d", "causal_conv1d_backward", "rope", "rope_backward",
        "softmax_backward", "block_mask_load", "peer_reduction", "ragged_load",
        "ragged_store", "sdpa_fp8", "sdpa_fp8_backward",
    )  # fmt: skip
    assert op.backend.startswith("OPERATION_") or op.op_name in ours
    names = [field.backend for field in op.fields if field.backend]
    assert len(set(names)) == len(names)


def test_wrong_calls_read_well():
    g = dnnc.pygraph(target="sm_90")
    with pytest.raises(
        TypeError, match=r"matmul\(\): missing a required argument: 'B'; accepted: A, B, "
    ):
        g.matmul(g.tensor([2, 2]))
    with pytest.raises(TypeError, match="no tensor of the graph"):
        g.relu("x")


def random_inputs(graph, sizes, seed=0):
    rng = np.random.default_rng(seed)
    inputs = {}
    for tensor in graph.inputs:
        dims = [n.evaluate(sizes) for n in tensor.shape]
        shape = [1 if axis in tensor.repeated_axes else n for axis, n in enumerate(dims)]
        restricted = drawn(graph, tensor, rng, sizes)
        if restricted is not None:
            inputs[tensor.uid] = restricted
        elif tensor.type.kind == "b":
            inputs[tensor.uid] = rng.integers(0, 2, shape).astype(bool)
        elif tensor.type.is_integer:
            inputs[tensor.uid] = rng.integers(-9, 10, shape)
        else:
            inputs[tensor.uid] = rng.uniform(0.25, 2.0, shape)
        if tensor.repeated_axes:
            inputs[tensor.uid] = np.broadcast_to(inputs[tensor.uid], dims)
    return inputs


@pytest.mark.parametrize(("op", "number", "build"), ALL_EXAMPLES, ids=IDS)
def test_reference_gives_the_inferred_dims_and_types(op, number, build):
    graph = build().graph.finalize()
    sizes = {"M": 5, "B": 4}
    outputs = reference(graph, random_inputs(graph, sizes), sizes=sizes)
    for tensor in graph.outputs:
        assert outputs[tensor.uid].shape == tuple(n.evaluate(sizes) for n in tensor.shape)
        assert outputs[tensor.uid].dtype == tensor.type.numpy


FP8_MATMULS = [
    (a, b, dtypes.of("FAST_FLOAT_FOR_FP8"))
    for a in (dtypes.f8e4m3, dtypes.f8e5m2)
    for b in (dtypes.f8e4m3, dtypes.f8e5m2)
]


def product(a, b, compute):
    g = new_graph()
    x, y = g.tensor([3, 4], data_type=a), g.tensor([4, 5], data_type=b)
    return finish(g, g.matmul(x, y, compute_data_type=compute))


def convolution(a, b, compute):
    g = new_graph()
    x, w = g.tensor([2, 4, 6], data_type=a), g.tensor([3, 4, 2], data_type=b)
    return finish(g, g.conv_fprop(x, w, compute_data_type=compute))


@pytest.mark.parametrize("of", [product, convolution])
@pytest.mark.parametrize(("a", "b", "compute"), FP8_MATMULS, ids=str)
def test_fast_products_of_fp8_are_those_of_float(a, b, compute, of):
    fast, plain = (of(a, b, t).graph.finalize() for t in (compute, dtypes.f32))
    assert fast.ops[0].compute_type is compute
    assert fast.key() != plain.key()
    inputs = random_inputs(fast, {})
    (found,), (wanted,) = (reference(graph, inputs).values() for graph in (fast, plain))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("of", [product, convolution])
@pytest.mark.parametrize(
    ("a", "b", "accepted"),
    [
        (dtypes.f32, dtypes.f32, "FLOAT, HALF, DOUBLE"),
        (dtypes.f16, dtypes.f8e4m3, "FLOAT, HALF, DOUBLE"),
        (dtypes.f8e5m2, dtypes.bf16, "FLOAT, HALF, DOUBLE"),
        (dtypes.i8, dtypes.f8e5m2, "FLOAT, HALF, DOUBLE"),
        (dtypes.i8, dtypes.i8, "FLOAT, HALF, DOUBLE, INT32"),
    ],
    ids=str,
)
def test_fast_products_are_of_fp8_only(a, b, accepted, of):
    with pytest.raises(DnncError, match=f"FAST_FLOAT_FOR_FP8 for {a} and {b}") as caught:
        of(a, b, dtypes.fast_float_for_fp8).validate()
    assert caught.value.status is Status.NOT_SUPPORTED_DATA_TYPE
    assert caught.value.supported == accepted


def test_a_product_of_fp8_says_what_it_computes_in():
    with pytest.raises(DnncError) as caught:
        product(dtypes.f8e4m3, dtypes.f8e5m2, dtypes.bf16).validate()
    assert caught.value.supported == "FLOAT, HALF, DOUBLE, FAST_FLOAT_FOR_FP8"


COMPUTING = [op for op in OPS if any(f.name == "compute_type" for f in op.fields)]
OF_PRODUCTS = (Matmul, ConvFprop, ConvDgrad, ConvWgrad, SdpaFp8)


@pytest.mark.parametrize("op", [op for op in COMPUTING if op not in OF_PRODUCTS], ids=str)
def test_other_operations_have_no_fast_products(op):
    for build in EXAMPLES[op.op_name]:
        g = build()
        for made in g.graph.ops:
            made.compute_type = dtypes.fast_float_for_fp8
        with pytest.raises(DnncError, match="compute type FAST_FLOAT_FOR_FP8") as caught:
            g.validate()
        assert caught.value.status is Status.NOT_SUPPORTED_DATA_TYPE
        assert "FLOAT" in caught.value.supported.split(", ")


def test_a_missing_operand_is_named():
    from dnnc import mlir

    text = (
        "func.func @f(%a: tensor<2x3xf32>) -> tensor<2x3xf32> {\n"
        '  %y = "dnn.matmul"(%a) {compute_type = f32} : (tensor<2x3xf32>) -> tensor<2x3xf32>\n'
        "  return %y : tensor<2x3xf32>\n}"
    )
    with dnn.context(), pytest.raises(DnncError, match="no operand b; accepted: a, b"):
        mlir.parse(text)
