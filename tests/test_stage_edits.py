"""An edit of a stage's text is never ignored: the PTX changes, or the text is refused."""

import random

import pytest

import dnnc
from dnnc import compiler, mlir
from dnnc.dialect import dnn
from dnnc.errors import DnncError
from dnnc.passes import PrepareFusions, run
from dnnc.target import of

from .cli.commands import dnnc as dnnc_command
from .cli.commands import error_of
from .stage_edits import edited, edits_of, outcome
from .support import seeds


def graph(name, **types):
    return dnnc.pygraph(name, **{"io_data_type": "f16", "intermediate_data_type": "f32", **types})


def norm():
    g = graph("norm")
    x, scale, bias = g.tensor([64, 256]), g.tensor([1, 256]), g.tensor([1, 256])
    y, *_ = g.layernorm("INFERENCE", x, scale, bias, 1e-5)
    y.set_output()
    return g, "sm_80"


def matmul():
    g = graph("mm")
    x, w, b = g.tensor([1, 64, 128]), g.tensor([1, 128, 64]), g.tensor([1, 1, 64])
    g.gelu(g.bias(g.matmul(x, w), b)).set_output()
    return g, "sm_90a"


def conv():
    g = graph("conv")
    x = g.tensor([2, 32, 8, 8], [2048, 1, 256, 32])
    w = g.tensor([32, 32, 3, 3], [288, 1, 96, 32])
    y = g.conv_fprop(x, w, padding=[1, 1], stride=[1, 1], dilation=[1, 1])
    g.relu(g.bias(y, g.tensor([1, 32, 1, 1]))).set_output()
    return g, "sm_80"


def attention():
    g = graph("attention")
    q, k, v = (g.tensor([1, 2, 128, 64]) for _ in range(3))
    o, _ = g.sdpa(q=q, k=k, v=v, attn_scale=0.125, use_causal_mask=True, is_inference=True)
    o.set_output()
    return g, "sm_90a"


def reduction():
    g = graph("sums")
    g.reduction(g.mul(g.tensor([64, 32]), 3.0), "add").set_dim([64, 1]).set_output()
    return g, "sm_80"


def pointwise():
    g = graph("points")
    x, b = g.tensor([64, 48], name="x"), g.tensor([1, 48], data_type="i32")
    g.relu(g.add(g.swish(x), b), lower_clip=0.5).set_output().set_name("y")
    return g, "sm_80"


def resample():
    g = graph("pool")
    x = g.tensor([2, 8, 8, 8])
    y, _ = g.resample(
        x, "MAXPOOL", window=[2, 2], stride=[2, 2], pre_padding=[0, 0], post_padding=[0, 0]
    )
    y.set_output()
    return g, "sm_80"


def split():
    g = graph("twice")
    x, w = g.tensor([64, 64]), g.tensor([64, 64])
    g.matmul(g.relu(g.matmul(x, w)), w).set_output()
    return g, "sm_80"


def fp8():
    g = graph("fp8", io_data_type="FP8_E4M3")
    x = g.tensor([1, 64, 128])
    w = g.tensor([1, 128, 64], [8192, 1, 128])
    scale = g.tensor([1, 1, 1], data_type="f32")
    g.mul(g.matmul(x, w), scale).set_output().set_data_type("f16")
    return g, "sm_90a"


def dynamic():
    g = graph("rows")
    rows = dnnc.Dim("rows", max=4096, multiple_of=2)
    x = g.tensor([rows, 64])
    g.mul(g.exp(x), g.reduction(x, "max").set_dim([rows, 1])).set_output()
    return g, "sm_80"


def gradient():
    g = graph("gradient", io_data_type="bf16")
    q, k, v, o, do = (g.tensor([1, 2, 128, 64]) for _ in range(5))
    stats = g.tensor([1, 2, 128, 1], data_type="f32")
    for made in g.sdpa_backward(q, k, v, o, do, stats, attn_scale=0.125, use_causal_mask=True)[:3]:
        made.set_output().set_dim([1, 2, 128, 64])
    return g, "sm_90a"


GRAPHS = {
    made.__name__: made
    for made in (
        *(norm, matmul, conv, attention, reduction),
        *(pointwise, resample, split, fp8, dynamic),
    )
}
STAGES = ("fused", "prepared", "linalg")  # prepared: at stage fused, as engines compute fusions


def text_of(make, stage):
    g, target = make()
    g.build_operation_graph()
    with dnn.context():
        work = compiler.start(g.graph, of(target))
        compiler.advance(work, "fused" if stage == "prepared" else stage)
        if stage == "prepared":
            run(work.module, [PrepareFusions()])
        return work.text()


def assert_not_ignored(name, stage, edits):
    text = text_of(GRAPHS[name], stage)
    before = outcome(text)
    assert before[0] == "ptx", before[1]
    for edit in edits(text):
        made = edited(text, edit)
        if made is not None:
            assert outcome(made) != before, f"{name} {stage}: {edit}"


CASES = [(name, stage) for name in GRAPHS for stage in STAGES]


@pytest.mark.rotating
@pytest.mark.parametrize(("name", "stage"), CASES)
def test_some_edits(name, stage):
    rng = random.Random(f"{seeds.BASE} {name} {stage}")
    assert_not_ignored(name, stage, lambda text: rng.sample(edits_of(text), 3))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "stage"), CASES)
def test_every_edit(name, stage):
    assert_not_ignored(name, stage, edits_of)


@pytest.mark.parametrize(
    ("name", "stage", "found", "put", "said"),
    [
        ("matmul", "linalg", "fma %3, %4, %out", "fma %3, %3, %out", "operand 1 of math.fma"),
        ("matmul", "linalg", "math.fma", "arith.select", ""),
        ("matmul", "linalg", 'dnn.anchor = "matmul"', 'dnn.anchor = "gemm"', "dnn.anchor"),
        ("matmul", "linalg", 'dnn.role = "g2"', 'dnn.role = "epilogue"', "dnn.role"),
        ("matmul", "linalg", "dnn.engine =", "dnn.motor =", "dnn.motor"),
        ("matmul", "linalg", "pixels = {beside = 1", "pixels = {beside = 2", "dnn.tile"),
        ("matmul", "linalg", "stages = ", "stage = ", "dnn.tile"),
        ("matmul", "fused", 'role = "anchor"', 'role = "ancor"', "role = 'ancor'"),
        ("matmul", "fused", 'role = "anchor"', 'role = "g1a"', "role"),
        ("matmul", "fused", 'role = "anchor"', "role = 7 : i64", "role = 7"),
        ("matmul", "fused", "{compute_type = f32, ", "{compute_typ = f32, ", ""),
        ("matmul", "fused", '"gelu_fwd"', '"relu_fwd"', "fuse after changes of the graph"),
        ("split", "fused", "dnn.fusion = 0 : i64", 'dnn.fusion = "first"', "a int"),
        ("split", "fused", "dnn.places = array<i64: 0", "dnn.places = array<i64: 1", "partition"),
        ("attention", "linalg", "arith.maximumf %out, %in", "arith.addf %out, %in", "arith.addf"),
        ("attention", "linalg", "math.exp %in", "math.sin %in", "math.sin"),
        ("attention", "linalg", 'dnn.parts = ["total"]', 'dnn.parts = ["share"]', "dnn.parts"),
        ("conv", "linalg", "dnn.pre_padding = array<i64: 1,", "dnn.pre_padding = array<i64: 0,",
         "dnn.pre_padding"),
        ("reduction", "linalg", "arith.addf %out, %in", "arith.mulf %out, %in", "arith.mulf"),
        ("norm", "linalg", "arith.subf", "arith.addf", "arith.addf"),
        ("norm", "linalg", "arith.mulf %in, %in_", "arith.addf %in, %in_", "arith.addf"),
        ("norm", "linalg", "dnn.fixed, ", "", "dnn.fixed"),
        ("norm", "prepared", "is_fixed", "is_mixed", "is_mixed"),
        ("pointwise", "linalg", "fastmath<afn>", "fastmath<fast>", "fastmath"),
    ],
)  # fmt: skip
def test_edits_are_refused_by_name(name, stage, found, put, said):
    text = text_of(GRAPHS[name], stage)
    assert found in text
    kind, message = outcome(text.replace(found, put, 1))
    assert kind == "refused"
    assert said in message


@pytest.mark.parametrize(
    ("found", "put"),
    [("arith.mulf %5, %8", "arith.addf %5, %8"), ("5.000000e-01", "2.500000e-01"),
     (" fastmath<contract,afn>", "")],
)  # fmt: skip
def test_arithmetic_of_an_epilogue_may_be_changed(found, put):
    text = text_of(matmul, "linalg")
    assert found in text
    before, after = outcome(text), outcome(text.replace(found, put, 1))
    assert before[0] == after[0] == "ptx"
    assert before != after


@pytest.mark.parametrize("passes", ["cse", "canonicalize", "canonicalize,cse"])
def test_passes_of_mlir_may_have_run(passes):
    text = text_of(norm, "linalg")
    with dnn.context():
        module = mlir.parse(text)
        mlir.run_pipeline(module, f"builtin.module({passes})")
        assert str(module) != text
        assert outcome(str(module))[0] == "ptx"


def test_a_pipeline_of_an_edited_text_is_refused(tmp_path):
    text = text_of(matmul, "linalg").replace("math.fma %3, %4, %out", "math.fma %3, %3, %out")
    (tmp_path / "g.mlir").write_text(text)
    said = error_of(dnnc_command("opt", tmp_path / "g.mlir", "-p", "lower-to-kernels"))
    assert "g.mlir:" in said
    assert "operand 1 of math.fma" in said


@pytest.mark.parametrize("stage", ["kernel", "nvvm"])
def test_later_stages_hold_nothing_unknown(stage):
    text = text_of(pointwise, stage)
    for found, put, said in (
        ("dnn.target = ", "dnn.tarket = ", "dnn.tarket"),
        ("attributes {dnn.graph,", "attributes {dnn.graph, dnn.other = 1 : i64,", "dnn.other"),
        ('{dnn.name = "x"', '{dnn.nom = "x"', "dnn.nom"),
    ):
        assert found in text
        kind, message = outcome(text.replace(found, put, 1))
        assert (kind, said in message) == ("refused", True)


@pytest.mark.parametrize("make", [attention, gradient])
def test_bodies_that_an_engine_knows_by_their_places_are_not_changed(make):
    text = text_of(make, "linalg")
    renamed = [edit for edit in edits_of(text) if edit.kind == "rename"]
    for edit in random.Random(seeds.BASE).sample(renamed, 2):
        with dnn.context(), pytest.raises(DnncError, match="stage linalg"):
            compiler.resume(edited(text, edit))
