"""Fusions as their engines compute them, in the text of stage fused."""

import pytest

import dnnc
from dnnc import DnncError, compiler, mlir, passes
from dnnc.dialect import dnn, structure
from dnnc.target import of
from tests.dialect.examples import EXAMPLES

PREPARE = passes.parse_pipeline("fuse,select-engine,prepare-fusions")
# Convolutions whose operands are cast, views at borders, finer axes, attention, rows, no inputs.
OPERATIONS = ("matmul", "conv_fprop", "reshape", "layernorm", "sdpa", "causal_conv1d", "rng")


def prepared(graph, target):
    """The text of stage fused, of fusions as their engines compute them."""
    work = compiler.start(graph.finalize(), of(target))
    passes.run(work.module, PREPARE)
    return work.text()


def lowered(work):
    return compiler.advance(work, "linalg").text()


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_prepared_text_goes_on_as_the_graph_does(name):
    for build in EXAMPLES[name][:2]:
        graph = build().graph
        with dnn.context():
            text = prepared(graph, "sm_90a")
            assert "dnn.prepared" in text
            assert lowered(compiler.resume(text)) == lowered(compiler.start(graph, of("sm_90a")))


def cast():
    g = dnnc.pygraph("cast", io_data_type="f16", intermediate_data_type="f32")
    x = g.tensor([8, 64, 28, 28], [50176, 1, 1792, 64])
    w = g.tensor([64, 64, 3, 3], [576, 1, 192, 64], data_type="i8")
    g.conv_fprop(x, w, padding=[1, 1], stride=[1, 1], dilation=[1, 1]).set_output()
    return g.graph


def attention():
    g = dnnc.pygraph("attention", io_data_type="f16", intermediate_data_type="f32")
    q, k, v = (g.tensor([1, 2, 128, 64]) for _ in range(3))
    o, _ = g.sdpa(q=q, k=k, v=v, attn_scale=0.125, is_inference=True)
    o.set_output()
    return g.graph


@pytest.mark.parametrize(
    ("build", "old", "new", "named"),
    [
        (cast, 'mode = "identity"', 'mode = "neg"', "mode"),
        (cast, "access_bytes = 16", "access_bytes = 8", "dnn.tile"),
        (attention, ', parts = ["maximum"', ', parts = ["total"', "parts"),
        (attention, "is_score, ", "", "is_score"),
        (attention, "reduces_rows, ", "", "reduces_rows"),
    ],
)
def test_a_prepared_text_that_was_changed_is_refused(build, old, new, named):
    with dnn.context():
        text = prepared(build(), "sm_80")
        assert old in text
        changed = text.replace(old, new, 1)
        with pytest.raises(DnncError, match="what its graph gives") as error:
            compiler.resume(changed)
        assert named in str(error.value)


@pytest.mark.parametrize(
    ("attribute", "accepted"),
    [("is_score = 1 : i64", "builtin.unit"), ("parts = [1]", "string"), ("parts = 1", "array")],
)
def test_marks_have_their_types(attribute, accepted):
    with dnn.context():
        text = prepared(attention(), "sm_80").replace("is_score, ", f"{attribute}, ", 1)
        with pytest.raises(DnncError, match=accepted):
            compiler.resume(text)


def test_a_fusion_without_an_engine_is_what_every_engine_sees():
    with dnn.context():
        work = compiler.start(heads().finalize(), of("sm_80"))
        passes.run(work.module, passes.parse_pipeline("fuse,prepare-fusions"))
        text = work.text()
        assert "dnn.prepared" in text
        assert text.count("dnn.transpose") == 1  # the graph's
        assert "dnn.tile" not in text
        passes.run(work.module, [passes.LowerToLinalg()])
        assert "linalg.generic" in work.text()
        with pytest.raises(DnncError, match="heads_fusion0 is prepared; accepted: select-engine"):
            passes.run(compiler.resume(text).module, passes.parse_pipeline("select-engine"))


@pytest.mark.parametrize("steps", ["fuse", "fuse,select-engine"])
def test_a_fusion_that_is_not_prepared_is_not_lowered(steps):
    with dnn.context():
        work = compiler.start(heads().finalize(), of("sm_80"))
        passes.run(work.module, passes.parse_pipeline(steps))
        before = work.text()
        wanted = "@heads_fusion0 has no dnn.prepared; accepted: prepare-fusions first"
        with pytest.raises(DnncError, match=wanted) as caught:
            passes.run(work.module, [passes.LowerToLinalg()])
        assert caught.value.status is dnnc.Status.BAD_PARAM
        assert work.text() == before


def heads():
    """A product whose result is stored transposed."""
    g = dnnc.pygraph("heads", io_data_type="f16", intermediate_data_type="f32")
    rows = g.matmul(g.tensor([1, 64, 128]), g.tensor([1, 128, 64]))
    g.transpose(rows, [0, 2, 1]).set_output()
    return g.graph


def test_places_stay_where_other_operations_take_the_place_of_some():
    with dnn.context():
        work = compiler.start(heads().finalize(), of("sm_80"))
        passes.run(work.module, passes.parse_pipeline("fuse,select-engine"))
        (before,) = structure.fusion_functions(work.module)
        place, had = mlir.place_of(before.operation.location), str(before)
        passes.run(work.module, [passes.PrepareFusions()])
        (after,) = structure.fusion_functions(work.module)
        assert "dnn.transpose" in had
        assert "dnn.transpose" not in str(after)
        assert place is not None
        assert mlir.place_of(after.operation.location) == place


@pytest.mark.parametrize("mark", ['role = "g2"', 'parts = ["maximum"]', "is_score", "reduces_rows"])
def test_an_operation_of_a_graph_has_no_marks(mark):
    with dnn.context():
        text = compiler.start(attention().finalize(), of("sm_80")).text()
        old = "compute_type = f32, "
        assert text.count(old) == 1
        with pytest.raises(DnncError, match=f"attribute {mark.split()[0]} in a graph"):
            compiler.resume(text.replace(old, f"{old}{mark}, "))


def test_what_is_missing_or_too_much_is_said():
    with dnn.context():
        text = prepared(attention(), "sm_80")
        with pytest.raises(DnncError, match=r"dnn.tile of func.* accepted: no dnn.tile, what its"):
            compiler.resume(text.replace("dnn.prepared, ", "", 1))
        with pytest.raises(DnncError, match="without is_score; accepted: is_score = unit, what"):
            compiler.resume(text.replace("is_score, ", "", 1))


def test_another_engine_is_not_selected_for_a_prepared_fusion():
    """Its operations and its tile are those of the engine that it was prepared for."""
    with dnn.context():
        work = compiler.resume(prepared(cast(), "sm_80"))
        other = passes.parse_pipeline(
            "select-engine{choices=fallback},prepare-fusions,lower-to-linalg"
        )
        with pytest.raises(DnncError, match="@cast_fusion0 is prepared for engine conv_sm80"):
            passes.run(work.module, other)


def test_fusions_of_a_graph_that_repeats_repeat():
    """Passes see it: choices are checked, and made, for such results."""
    g = dnnc.pygraph("wgrad", io_data_type="f16", intermediate_data_type="f32")
    x = g.tensor([2, 64, 6, 7], [2688, 1, 448, 64])
    dy = g.tensor([2, 64, 6, 7], [2688, 1, 448, 64])
    window = {"padding": [1, 1], "stride": [1, 1], "dilation": [1, 1]}
    g.conv_wgrad(x, dy, **window).set_dim([64, 64, 3, 3]).set_output()
    g.graph.repeats = True
    adding = "conv_wgrad_sm80:SPLIT_K_BUF=2:REDUCTION_MODE=1"
    adds = passes.parse_pipeline(f"fuse,select-engine{{choices={adding}}}")
    with dnn.context():
        work = compiler.start(g.graph.finalize(), of("sm_80"))
        with pytest.raises(DnncError, match="REDUCTION_MODE=1 of results that repeat"):
            passes.run(work.module, adds)
        text = prepared(g.graph, "sm_80")
        assert text.count("dnn.repeats") == 2
        assert lowered(compiler.resume(text)) == lowered(compiler.start(g.graph, of("sm_80")))
        place = text.rindex("dnn.repeats, ")
        with pytest.raises(DnncError, match="what its graph gives"):
            compiler.resume(text[:place] + text[place:].replace("dnn.repeats, ", "", 1))
