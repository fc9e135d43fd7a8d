"""Rewrite patterns of whole fusions: in Python, over a module, by name, and what is refused."""

from dataclasses import replace
from functools import partial

import pytest

import dnnc
from dnnc import DnncError, compiler, mlir, passes
from dnnc.dialect import dnn, structure
from dnnc.dialect.fusion import partition, rewritten_fusion
from dnnc.dialect.fusion_borders import BORDER_VIEWS
from dnnc.dialect.fusion_key import key_of
from dnnc.dialect.patterns import FusionPattern, Pattern, expansions, in_steps
from dnnc.dialect.rewriting import rewrite, rewrite_fusion
from dnnc.engines import all_engines
from dnnc.passes import all_patterns
from dnnc.target import of
from tests.dialect.examples import EXAMPLES

from .cli.commands import dnnc as command

TARGET = of("sm_90a")


def fusion_of(g):
    graph = g.graph.finalize()
    return partition(graph, [graph.live_ops])[0]


def vectors():
    """A reshape joins vectors of 4 with their elements; a transpose moves the channels."""
    g = dnnc.pygraph("vectors", io_data_type="f16", intermediate_data_type="f16")
    x = g.tensor([2, 8, 6, 4], name="x")
    moved = g.reshape(g.transpose(x, [0, 2, 1, 3]), reshape_mode="LOGICAL")
    moved.set_dim([2, 6, 32]).set_stride([192, 32, 1]).set_output()
    return g


def pointwise(mode="relu"):
    g = dnnc.pygraph("pointwise", io_data_type="f32", intermediate_data_type="f32")
    x, y = g.tensor([4, 6, 8], name="x"), g.tensor([4, 6, 8], name="y")
    g.add(getattr(g, mode)(x), y).set_output()
    return g


def one_tap():
    """A convolution of one tap, of images with channels first."""
    g = dnnc.pygraph("one_tap", io_data_type="f16", intermediate_data_type="f32")
    x, w = g.tensor([2, 64, 8, 8], name="x"), g.tensor([32, 64, 1, 1], name="w")
    window = {"padding": [0, 0], "stride": [1, 1], "dilation": [1, 1]}
    g.relu(g.conv_fprop(x, w, **window)).set_output()
    return g


def views():
    """A product between views."""
    g = dnnc.pygraph("views", io_data_type="f16", intermediate_data_type="f32")
    a = g.transpose(g.tensor([1, 128, 64], name="a"), [0, 2, 1])
    c = g.matmul(a, g.tensor([1, 128, 96], name="b"))
    g.transpose(c, [0, 2, 1]).set_output()
    return g


def fused(g):
    """A module of one fusion, which has no engine; inside a `dnn.context()`."""
    graph = g.graph.finalize()
    work = compiler.start(graph, TARGET)
    places = " ".join(map(str, range(len(graph.live_ops))))
    passes.run(work.module, passes.parse_pipeline(f'fuse{{partition="{places}"}}'))
    return work.module


# ---- one list, in two places


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_module_is_rewritten_as_a_fusion_is(name):
    """The patterns are those of every engine that has some and takes the fusion."""
    build = EXAMPLES[name][0]
    graph = build().graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    for engine in all_engines():
        if not engine.patterns or engine.supports(fusion, TARGET):
            continue
        with dnn.context():
            module = fused(build())
            (function,) = structure.fusion_functions(module)
            wanted = key_of(engine.rewritten(structure.read_fusion(function)))
            function, found = rewrite_fusion(function, (*BORDER_VIEWS, *engine.patterns))
            read = structure.read_as_written(function)
            mlir.verify(module)
        assert key_of(found) == wanted
        assert key_of(read) == wanted
        assert engine.rewritten(read) is read


@pytest.mark.parametrize(
    ("build", "engine", "names"),
    [
        (vectors, "transpose", {"finer-axes", "wide-elements"}),
        (one_tap, "conv_product_sm90", {"images-as-products"}),
        (views, "matmul_sm90", {"border-views"}),
        (pointwise, "pointwise", set()),
    ],
)
def test_which_patterns_match(build, engine, names):
    fusion = fusion_of(build()).in_graph
    found, (one,) = set(), [e for e in all_engines() if e.name == engine]
    for pattern in (*BORDER_VIEWS, *one.patterns):
        made = rewritten_fusion(fusion, (pattern,))
        if made is not fusion:
            found.add(pattern.name)
            assert made.in_graph is fusion.in_graph
            fusion = made
    assert found == names


def test_patterns_of_a_kind_that_follow_each_other_are_one_step():
    one, two = expansions()[:2]
    (view,) = BORDER_VIEWS
    assert in_steps((one, two, view, view, one)) == [(one, two), (view, view), (one,)]


def test_a_fusion_that_repeats_repeats_when_it_was_rewritten():
    for build, engine in ((vectors, "transpose"), (one_tap, "conv_product_sm90")):
        g = build()
        g.graph.repeats = True
        fusion = fusion_of(g)
        (one,) = [e for e in all_engines() if e.name == engine]
        assert one.rewritten(fusion) is not fusion
        assert one.rewritten(fusion).must_repeat


# ---- by name


def test_each_pattern_has_a_name_and_is_listed():
    known = all_patterns()
    for engine in all_engines():
        assert all(known[pattern.name] == pattern for pattern in engine.patterns)
    said = command("opt", "--list-passes").stdout
    lines = {line.split()[0]: line for line in said.splitlines() if line.startswith("  ")}
    (pipeline,) = [line for line in lines if "," in line]
    del lines[pipeline]
    assert set(lines) == {*passes.all_passes(), *known}
    assert lines["tile"].split()[1:4] == ["linalg", "->", "linalg"]
    assert "dnn.softmax" in lines["expand-softmax"]
    assert "func.func" in lines["finer-axes"]
    assert "(pointwise, transpose)" in lines["finer-axes"]
    assert all(len(line.split()) > 3 for line in lines.values())


def test_the_list_has_the_first_sentence_of_a_docstring():
    def merged(fusion):
        """Merges views, by 1 / n. of
        what they share.  Others stay.

        And more."""

    with passes.registered(FusionPattern(merged)):
        said = command("opt", "--list-passes").stdout
    (line,) = [line for line in said.splitlines() if line.startswith("  merged ")]
    assert line.endswith("  Merges views, by 1 / n. of what they share (registered)")


@pytest.mark.parametrize(
    ("build", "name", "before", "after"),
    [
        (vectors, "finer-axes", "-> (tensor<2x6x32xf16", "-> (tensor<2x6x8x4xf16"),
        (one_tap, "images-as-products", "%arg0: tensor<2x64x8x8xf16", "tensor<2x64x64xf16"),
        (views, "border-views", "dnn.transpose", "%arg0: tensor<1x64x128xf16"),
    ],
)
def test_a_pattern_is_applied_alone(build, name, before, after, tmp_path):
    path = tmp_path / "g.json"
    path.write_text(build().graph.finalize().canonical_text())
    count = len(build().graph.finalize().live_ops)
    fuse = f'fuse{{partition="{" ".join(map(str, range(count)))}"}}'
    found = [
        command("opt", str(path), "-t", "sm_90a", "-p", steps).stdout.partition("private")[2]
        for steps in (fuse, f"{fuse},apply-patterns{{patterns={name}}}")
    ]
    assert before in found[0]
    assert before not in found[1]
    assert after in found[1]


def test_patterns_of_operations_rewrite_a_graph(tmp_path):
    g = dnnc.pygraph("two", io_data_type="f32", intermediate_data_type="f32")
    g.softmax(g.relu(g.softmax(g.tensor([4, 32]), axis=1)), axis=1).set_output()
    path = tmp_path / "g.json"
    path.write_text(g.graph.finalize().canonical_text())
    made = command("opt", str(path), "-p", "apply-patterns{patterns=expand-softmax}").stdout
    assert "dnn.softmax" not in made
    other = command("opt", str(path), "-p", 'apply-patterns{patterns="expand-sdpa merge-slices"}')
    assert other.stdout.count("dnn.softmax") == 2


@pytest.mark.parametrize(
    ("pipeline", "said"),
    [
        ("apply-patterns", "without a pattern; accepted: apply-patterns{patterns=NAME}"),
        ("apply-patterns{patterns=finest-axes}", "rewrite pattern 'finest-axes'; accepted: expand"),
        ("apply-patterns{patterns=finer-axes}", "on @pointwise, a graph; accepted: the functions"),
        (
            "fuse,select-engine,prepare-fusions,apply-patterns{patterns=finer-axes}",
            "is prepared for engine pointwise; accepted: apply-patterns ahead of prepare-fusions",
        ),
    ],
)
def test_patterns_that_can_not_be_applied(pipeline, said, tmp_path):
    path = tmp_path / "g.json"
    path.write_text(pointwise().graph.finalize().canonical_text())
    assert said in " ".join(command("opt", str(path), "-p", pipeline).stderr.split())


# ---- what a pattern gives wrongly


def without_outputs(fusion):
    return fusion.with_ops(fusion.ops, [])


def with_other_inputs(fusion):
    x = fusion.inputs[0]
    other = replace(x, uid=77)
    return fusion.with_ops([op.with_tensors({x: other}) for op in fusion.ops])


def backwards(fusion):
    return fusion.with_ops(fusion.ops[::-1])


def without_operations(fusion):
    return fusion.with_ops([])


def operations_alone(fusion):
    return fusion.ops


@pytest.mark.parametrize(
    ("rewriting", "said"),
    [
        (backwards, "patterns backwards give pointwise:add ahead of what makes its operands"),
        (without_operations, r"without-operations give no operation that makes outputs \[\d+\]"),
        (operations_alone, r"operations-alone of .* gives \(.*; accepted: a fusion, by Fusion"),
        (without_outputs, r"patterns without-outputs of <fusion 0: .*> give outputs \[\]"),
        (with_other_inputs, r"patterns with-other-inputs of .* read \[77\]; accepted: inputs of"),
    ],
)
def test_what_a_pattern_of_fusions_gives_wrongly_is_refused(rewriting, said):
    pattern = FusionPattern(rewriting)
    with dnn.context():
        module = fused(pointwise())
        before = str(module)
        (function,) = structure.fusion_functions(module)
        with pytest.raises(DnncError, match=said):
            rewrite(function, [pattern])
        assert str(module) == before


def test_a_pattern_of_fusions_is_asked_once():
    """In either place: what it gives stays, even where it would match again."""
    asked = []

    def again(fusion):
        asked.append(fusion)
        return fusion.with_ops(fusion.ops)

    pattern = FusionPattern(again)
    fusion = fusion_of(pointwise())
    made = rewritten_fusion(fusion, (pattern,))
    assert made is not fusion
    with dnn.context():
        module = fused(pointwise())
        (function,) = structure.fusion_functions(module)
        before = structure.read_as_written(function)
        _, found = rewrite_fusion(function, [pattern], before)
    assert found is not before
    assert key_of(found) == key_of(before)
    assert len(asked) == 2


def test_what_has_no_name_of_its_own_has_its_types():
    assert FusionPattern(partial(without_outputs)).name == "partial"
    assert FusionPattern(partial(without_outputs), "named").name == "named"


def test_names_of_patterns_differ():
    other = Pattern(type(fusion_of(pointwise()).ops[0]), lambda op, producer: None, "finer-axes")
    strange = Pattern(other.kind, other.rewrite)
    for pattern, what in ((other, "'finer-axes'"), (strange, "'<lambda>'")):
        with pytest.raises(DnncError, match=rf"name {what}; accepted: .* no other pattern's"):
            passes.register(pattern)
