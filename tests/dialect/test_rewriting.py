"""Rewrite patterns over a module, and over operations in Python."""

import re
from dataclasses import replace

import pytest

import dnnc
from dnnc import DnncError, compiler, mlir, passes
from dnnc.dialect import dnn
from dnnc.dialect.ops import BY_NAME, Pointwise, Transpose
from dnnc.dialect.patterns import Pattern, expansions, rewritten
from dnnc.dialect.rewriting import rewrite
from tests.dialect.examples import EXAMPLES

EXPAND = passes.parse_pipeline("expand-composites")


def live(graph):
    """The operations that run, with what is said of their tensors but uids."""
    places = {}

    def told(tensor):
        return (
            places.setdefault(tensor, len(places)), tensor.shape, tensor.layout, tensor.type,
            tensor.is_virtual, tensor.is_by_value, tensor.value, tensor.alignment,
        )  # fmt: skip

    return [
        (op.label, op.attributes(), [*map(told, op.operands)], [*map(told, op.results)])
        for op in graph.live_ops
    ]


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_module_expands_as_a_graph_does(name):
    for build in EXAMPLES[name][::2]:
        graph = build().graph.finalize()
        with dnn.context():
            module = dnn.to_mlir(graph)
            passes.run(module, EXPAND)
            found = dnn.from_mlir(module)
        patterns = {pattern.kind for pattern in expansions()}
        assert not any(op.is_composite for op in found.ops)
        assert all(op.expand() is None for op in found.ops if type(op) in patterns)
        assert live(found) == live(graph)
        assert found.must_repeat == graph.must_repeat


def test_there_is_a_pattern_for_each_operation_that_stands_for_others():
    kinds = {pattern.kind for pattern in expansions()}
    assert {kind for kind in BY_NAME.values() if kind.is_composite} <= kinds


def test_an_expanded_text_is_compiled_to_the_same_kernels():
    g = dnnc.pygraph("norm", io_data_type="f16", intermediate_data_type="f32")
    rows = dnnc.Dim("rows", max=4096)
    x, scale = g.tensor([rows, 64], name="x"), g.tensor([1, 64], name="scale")
    y = g.softmax(g.relu(x), axis=1)
    g.mul(y, scale).set_output()
    graph = g.graph.finalize()
    with dnn.context():
        module = dnn.to_mlir(graph)
        whole = compiler.advance(compiler.resume(str(module)), "ptx")
        passes.run(module, EXPAND)
        text = str(module)
        assert '"dnn.softmax"' not in text
        parts = compiler.advance(compiler.resume(text), "ptx")
    assert parts.ptx == whole.ptx


# ---- patterns of another kind


def quotients(*, is_read_twice=False):
    """x / sqrt(y)."""
    g = dnnc.pygraph("quotient", io_data_type="f32", intermediate_data_type="f32")
    x, y = g.tensor([4, 8], name="x"), g.tensor([4, 8], name="y")
    root = g.sqrt(y, name="root")
    g.div(x, root, name="share").set_output()
    if is_read_twice:
        root.set_output()
    return g.graph.finalize()


def as_product(op, producer):
    """div(x, sqrt(y)) -> mul(x, rsqrt(y))"""
    root = producer(op.b) if op.mode == "div" else None
    if not isinstance(root, Pointwise) or root.mode != "sqrt":
        return None
    inverse = root.with_tensors({root.y: replace(root.y, uid=None, is_virtual=True)})
    inverse.mode = "rsqrt"
    return [inverse, Pointwise(mode="mul", x=op.x, b=inverse.y, y=op.y, name=op.name)]


def modes(module):
    return re.findall(r'mode = "(\w+)"', str(module))


@pytest.mark.parametrize("is_read_twice", [False, True])
def test_a_pattern_sees_what_makes_operands(is_read_twice):
    graph = quotients(is_read_twice=is_read_twice)
    patterns = [Pattern(Pointwise, as_product)]
    with dnn.context():
        module = dnn.to_mlir(graph)
        rewrite(dnn.graph_function(module), patterns)
        mlir.verify(module)
        kept = ["sqrt"] if is_read_twice else []
        assert modes(module) == [*kept, "rsqrt", "mul"]
        dnn.from_mlir(module)
    assert [op.mode for op in rewritten(graph.ops, patterns)] == ["sqrt", "rsqrt", "mul"]


def test_what_a_pattern_gives_wrongly_is_refused():
    def nothing(op, producer):
        return [] if op.mode == "sqrt" else None

    def narrow(op, producer):
        if op.mode != "sqrt" or op.name == "narrow":
            return None
        made = Pointwise(mode="sqrt", x=op.x, y=op.y, name="narrow")
        made.y.strides = made.y.strides[::-1]
        return [made]

    def again(op, producer):
        return [op.with_tensors({})]

    found = {}
    for pattern in (nothing, narrow, again):
        with dnn.context():
            module = dnn.to_mlir(quotients())
            with pytest.raises(DnncError) as error:
                rewrite(dnn.graph_function(module), [Pattern(Pointwise, pattern)])
            found[pattern.__name__] = str(error.value)
    assert "leaves a result out" in found["nothing"]
    assert "gives tensor<4x8xf32, #dnn.layout" in found["narrow"]
    assert "still match after 200 rewrites" in found["again"]
    with pytest.raises(DnncError, match="still match pointwise:sqrt 'root' after 100"):
        rewritten(quotients().ops, [Pattern(Pointwise, again)])


def test_an_operation_of_another_class_stays():
    patterns = [Pattern(Transpose, lambda op, producer: pytest.fail("no transpose"))]
    with dnn.context():
        module = dnn.to_mlir(quotients())
        before = str(module)
        rewrite(dnn.graph_function(module), patterns)
        assert str(module) == before
