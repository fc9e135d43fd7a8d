"""An operation, a pass and rewrite patterns of another package, as docs/extending.md says it.

`Centre`, `AsRelu`, `Reciprocals` and `one_axis` are all that one takes;
tests/engines/test_outside.py has an engine.
"""

import re
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

import dnnc
from dnnc import compiler, engines, mlir, operations, outside, passes, worker
from dnnc.dialect import dnn, structure
from dnnc.dialect.graph import OperationGraph
from dnnc.dialect.json_form import from_json, to_json
from dnnc.dialect.ops import BY_NAME, Pointwise
from dnnc.dialect.tensor import packed_strides
from dnnc.engines.elementwise.pointwise import PointwiseEngine
from dnnc.expr import Expr, product
from dnnc.mlir import arith, ir
from dnnc.operations import Op, Steps, attribute, operand, result
from dnnc.options import Options
from dnnc.passes import Pass

from .cli.commands import dnnc as command
from .support.checked import check

pytestmark = pytest.mark.assembled  # plans, which go through files


# ---- an operation


class Centre(Op):
    """Y = X - mean(X), the mean over one axis.

    X, Y [d0, ..., dn].

    Constraints:
    (C1) the axis is one of X's.
    """

    op_name = "centre"
    is_composite = True

    x = operand("[d0, ..., dn]")
    y = result("[d0, ..., dn]")
    axis: int = attribute("of the mean", int)
    compute_type = attribute(
        "of the arithmetic", dnnc.dtypes.DType, dnnc.dtypes.f32, frontend="compute_data_type"
    )

    def infer(self):
        self.y.dims = self.y.dims or self.x.shape
        self.y.strides = self.y.strides or self.x.layout

    def verify(self):
        if not 0 <= self.axis < self.x.rank:
            raise self.error("C1", f"axis={self.axis}", f"0 to {self.x.rank - 1}")

    def expand(self):
        steps = Steps(self.name, self.compute_type, self.x.rank)
        mean = steps.reduction("avg", self.x, (self.axis,))
        steps.output(steps.pointwise("sub", self.x, mean), self.y)
        return steps.ops

    def reference(self, x, **context):
        return x - np.mean(x, self.axis, keepdims=True)


def centred():
    g = dnnc.pygraph("centred", io_data_type="f16", intermediate_data_type="f32")
    x = g.tensor([6, dnnc.Dim("N", max=64), 40], name="x")
    g.relu(g.centre(x, axis=2)).set_output()
    return g


def test_an_operation_is_compiled_and_runs_as_its_reference(monkeypatch):
    monkeypatch.setattr(worker.Worker, "_started", None)  # which knows the package's alone
    with operations.registered(Centre):
        plan = check(centred(), {"N": 5}, target="sm_80")
        again = dnnc.compile(centred(), "sm_80")
    assert "rows" in [fusion.engine for fusion in plan.programs[0].fusions]
    assert again.programs[0].fusions == plan.programs[0].fusions


def test_an_operation_has_its_text_in_every_form():
    with operations.registered(Centre):
        graph = centred().graph.finalize()
        with dnn.context():
            text = str(dnn.to_mlir(graph))
            read = dnn.from_mlir(mlir.parse(text))
        assert '"dnn.centre"(%arg0) {axis = 2' in text
        for other in (read, from_json(to_json(graph))):
            assert isinstance(other, OperationGraph)
            assert other.finalize().canonical_text() == graph.canonical_text()
        assert "of the mean" in dnnc.pygraph.centre.__doc__
        g = dnnc.pygraph("wrong", io_data_type="f16", intermediate_data_type="f32")
        g.centre(g.tensor([2, 3, 4]), axis=3).set_output()
        with pytest.raises(dnnc.DnncError, match="axis=3; accepted: 0 to 2"):
            g.graph.finalize()
    assert not hasattr(dnnc.pygraph, "centre")
    assert "centre" not in BY_NAME
    assert not outside.is_used()
    with dnn.context(), pytest.raises(dnnc.DnncError, match=r"operation 'dnn\.centre'"):
        dnn.from_mlir(mlir.parse(text))


class Taken(Centre):
    op_name = "softmax"


class Method(Centre):
    op_name = "tensor"


class Whole(Centre):
    op_name = "whole"
    is_composite = False


@pytest.mark.parametrize(
    ("kind", "what"),
    [(Taken, "'softmax'"), (Whole, "operation whole"), (Expr, "Expr"), (Method, "'tensor'")],
)
def test_what_is_no_operation(kind, what):
    with pytest.raises(dnnc.DnncError, match=what):
        operations.register(kind)
    assert not outside.is_used()


# ---- a pass


@dataclass(frozen=True)
class AsRelu(Pass):
    """as-relu: replaces exp(x) by max(x, 0) in the bodies of a lowered graph.

    %1 = math.exp %x : f32   ->   %1 = arith.maximumf %x, %zero : f32
    """

    name: ClassVar[str] = "as-relu"
    takes: ClassVar[str] = "linalg"
    makes: ClassVar[str] = "linalg"

    def run(self, module):
        found = [op for op in passes.stages.inside_of(module.operation) if op.name == "math.exp"]
        for op in found:
            with ir.InsertionPoint(op), op.location:
                x = op.operands[0]
                zero = arith.ConstantOp(x.type, 0.0).result
                op.results[0].replace_all_uses_with(arith.MaximumFOp(x, zero).result)
            op.erase()


LOWERED = "fuse,select-engine,prepare-fusions,lower-to-linalg"


def exponentials():
    g = dnnc.pygraph("exponentials", io_data_type="f32", target="sm_80")
    g.exp(g.tensor([4, 32], name="x")).set_output()
    return g


def written(g, tmp_path):
    """The path of a graph's file."""
    path = tmp_path / "g.json"
    path.write_text(g.graph.finalize().canonical_text())
    return str(path)


def ptx_of(text):
    """The PTX of a stage's text."""
    with dnn.context():
        return compiler.advance(compiler.resume(text), "ptx").ptx


def test_a_pass_has_its_name_in_pipelines_and_what_it_wrote_is_compiled(tmp_path):
    path = written(exponentials(), tmp_path)
    with passes.registered(AsRelu):
        made = command("opt", path, "-t", "sm_80", "-p", f"{LOWERED},as-relu,tile")
        early = command("opt", path, "-t", "sm_80", "-p", "fuse,as-relu")
    assert "arith.maximumf" in made.stdout
    assert "math.exp" not in made.stdout
    assert "pass as-relu: a module at stage fused; accepted: one at stage linalg" in early.stderr
    ptx = ptx_of(made.stdout)
    assert "max.NaN.f32" in ptx
    assert "ex2" not in ptx
    assert "'as-relu'" in command("opt", path, "-p", "as-relu").stderr


# ---- a rewrite pattern


def as_product(op, producer):
    """div(x, sqrt(y)) -> mul(x, rsqrt(y))"""
    root = producer(op.b) if op.mode == "div" else None
    if root is None or root.title != "pointwise:sqrt":
        return None
    inverse = passes.in_place_of(root, mode="rsqrt")
    return [inverse, Pointwise(mode="mul", x=op.x, b=inverse.y, y=op.y, name=op.name)]


@dataclass(frozen=True)
class Reciprocals(Pass):
    """reciprocals: multiplies by 1 / sqrt(y) where a graph divides by sqrt(y)."""

    name: ClassVar[str] = "reciprocals"
    takes: ClassVar[str] = "graph"
    makes: ClassVar[str] = "graph"

    def run(self, module):
        passes.rewrite(dnn.graph_function(module), [passes.Pattern(Pointwise, as_product)])


def shares(divided):
    """softmax(x) / sqrt(y), or the same as a product."""
    g = dnnc.pygraph("shares", io_data_type="f32", intermediate_data_type="f32", target="sm_80")
    of_row, y = g.softmax(g.tensor([4, 32], name="x"), axis=1), g.tensor([4, 32], name="y")
    made = g.div(of_row, g.sqrt(y)) if divided else g.mul(of_row, g.rsqrt(y))
    made.set_output()
    return g


def test_a_graph_that_was_rewritten_runs_as_the_one_that_was_written():
    g = shares(divided=True)
    with passes.registered(Reciprocals), dnn.context():
        module = dnn.to_mlir(g.graph.finalize())
        passes.run(module, passes.parse_pipeline("expand-composites,reciprocals"))
        graph = dnn.from_mlir(module)
    assert [op.title for op in graph.ops][-2:] == ["pointwise:rsqrt", "pointwise:mul"]
    plan = dnnc.compile(graph, "sm_80", in_process=True, cache=False)
    rng = np.random.default_rng(0)
    inputs = {t.uid: rng.uniform(0.5, 2, (4, 32)).astype(np.float32) for t in g.graph.inputs}
    check(g, plan=plan, inputs=inputs)


def test_a_pattern_rewrites_what_a_composite_operation_stands_for(tmp_path):
    path = written(shares(divided=True), tmp_path)
    with passes.registered(Reciprocals):
        made = command("opt", path, "-t", "sm_80", "-p", "expand-composites,reciprocals")
    modes = ["max", "sub", "exp", "add", "reciprocal", "mul", "rsqrt", "mul"]
    assert re.findall(r'mode = "(\w+)"', made.stdout) == modes
    by_hand = compiler.compile_graph(shares(divided=False).graph, "sm_80")
    assert ptx_of(made.stdout).encode() in by_hand.blobs


@dataclass(frozen=True)
class NoExponentials(Pass):
    """no-exponentials: max(x, 0) in place of exp(x), in fusions that have their engines."""

    name: ClassVar[str] = "no-exponentials"
    takes: ClassVar[str] = "fused"
    makes: ClassVar[str] = "fused"

    def run(self, module):
        for function in structure.fusion_functions(module):
            passes.rewrite(function, [passes.Pattern(Pointwise, as_relu)])


def as_relu(op, producer):
    """exp(x) -> relu(x)"""
    if op.mode != "exp":
        return None
    return [Pointwise(mode="relu_fwd", x=op.x, y=op.y, compute_type=op.compute_type)]


@pytest.mark.parametrize(
    "order", ["no-exponentials,prepare-fusions", "prepare-fusions,no-exponentials"]
)
def test_a_pattern_rewrites_fusions_whose_kernels_follow(order, tmp_path):
    path = written(exponentials(), tmp_path)
    kernels = "lower-to-linalg,tile,lower-to-kernels,assign-workspace"
    with passes.registered(NoExponentials):
        steps = f"fuse,select-engine,{order}"
        fused = command("opt", path, "-t", "sm_80", "-p", steps)
        made = command("opt", path, "-t", "sm_80", "-p", f"{steps},{kernels}")
    assert 'mode = "relu_fwd"' in fused.stdout
    assert 'role = "g2"' in fused.stdout
    ptx = ptx_of(made.stdout)
    with dnn.context(), pytest.raises(dnnc.DnncError, match="change the graph"):
        compiler.resume(fused.stdout)
    assert "max.NaN.f32" in ptx
    assert "ex2" not in ptx


# ---- a rewrite pattern of fusions


def one_axis(fusion):
    """Pointwise work on packed tensors of the same dims is over one axis."""
    if any(op.role != "pointwise" or op.mode == "gen_index" for op in fusion.ops):
        return None
    dims = fusion.outputs[0].shape
    wanted = dims, packed_strides(dims)
    if len(dims) == 1 or any((t.shape, t.layout) != wanted for t in fusion.tensors):
        return None
    whole = (product(dims),)
    flat = {t: replace(t, dims=whole, strides=packed_strides(whole)) for t in fusion.tensors}
    ops = [op.with_tensors(flat) for op in fusion.ops]
    return fusion.with_ops(ops, [flat[t] for t in fusion.outputs])


@dataclass(frozen=True)
class OneAxis(PointwiseEngine):
    """Engine pointwise, over one axis where that is possible."""

    name: str = "one_axis"
    index: int = 1001
    patterns: tuple[passes.AnyPattern, ...] = (
        passes.FusionPattern(one_axis),
        *PointwiseEngine.patterns,
    )


def sums():
    g = dnnc.pygraph("sums", io_data_type="f32", intermediate_data_type="f32", target="sm_80")
    dims = [3, dnnc.Dim("N", max=64), 8]
    x, y = g.tensor(dims, name="x"), g.tensor(dims, name="y")
    g.exp(g.add(x, y)).set_output()
    return g


def test_an_engine_lists_a_pattern_of_fusions(tmp_path):
    path = tmp_path / "g.json"
    path.write_text(sums().graph.finalize().canonical_text())
    chosen = "fuse,select-engine{choices=one_axis},prepare-fusions"
    with engines.registered(OneAxis()):
        made = command("opt", str(path), "-t", "sm_80", "-p", chosen)
        listed = command("opt", "--list-passes")
        check(sums(), {"N": 5}, target="sm_80", engine="one_axis")
    _, _, fusion = made.stdout.partition("private")
    assert re.findall(r"%arg\d: tensor<([\w?]+)", fusion) == ["?xf32", "?xf32"]
    assert "packed tensors of the same dims is over one axis (one_axis)" in listed.stdout


def test_a_pattern_of_fusions_is_registered_and_applied_by_name(tmp_path):
    path = tmp_path / "g.json"
    path.write_text(sums().graph.finalize().canonical_text())
    kernels = "prepare-fusions,lower-to-linalg,tile,lower-to-kernels,assign-workspace"
    steps = f"fuse,select-engine{{choices=pointwise}},apply-patterns{{patterns=one-axis}},{kernels}"
    with passes.registered(passes.FusionPattern(one_axis)):
        made = command("opt", str(path), "-t", "sm_80", "-p", steps)
    with dnn.context():
        ptx = compiler.advance(compiler.resume(made.stdout), "ptx").ptx
    with engines.registered(OneAxis()):
        by_engine = compiler.compile_graph(sums().graph, "sm_80", Options(engine="one_axis"))
    assert ptx.replace("fusion0_pointwise", "fusion0_one_axis").encode() in by_engine.blobs
    assert "one-axis" not in passes.all_patterns()


def test_what_is_no_pass():
    @dataclass(frozen=True)
    class Tiles(AsRelu):
        name: ClassVar[str] = "tile"

    @dataclass(frozen=True)
    class Nowhere(AsRelu):
        name: ClassVar[str] = "nowhere"
        makes: ClassVar[str] = "sass"

    for kind, what in ((Tiles, "'tile'"), (Nowhere, "stage 'sass'"), (Expr, "Expr")):
        with pytest.raises(dnnc.DnncError, match=what):
            passes.register(kind)
