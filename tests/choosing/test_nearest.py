"""Which engine that declines a fusion is named first, and in what words."""

import pytest

import dnnc
from dnnc import target as targets
from dnnc.choosing import nearest
from dnnc.choosing.choice import Refusal
from dnnc.dialect.fusion import partition
from dnnc.dialect.ops import OPS
from dnnc.engines import ENGINES
from dnnc.engines.engine import Reason
from dnnc.errors import Status

SM80, SM90A = targets.of("sm_80"), targets.of("sm_90a")


def graph(io="HALF"):
    return dnnc.pygraph("g", io_data_type=io, intermediate_data_type="FLOAT")


def fusion_of(g):
    whole = g.graph.finalize()
    (fusion,) = partition(whole, [whole.live_ops])
    return fusion


def product(io="HALF", types=(None, None), after=lambda g, c: c):
    g = graph(io)
    a, b = (g.tensor([1, 64, 64], data_type=type_) for type_ in types)
    after(g, g.matmul(a, b)).set_output()
    return g


def convolution(gradient=False):
    g = graph()
    x, w = g.tensor([2, 8, 8, 8]), g.tensor([8, 8, 1, 1])
    y = g.conv_dgrad(x, w).set_dim([2, 8, 8, 8]) if gradient else g.conv_fprop(x, w)
    y.set_output()
    return g


def attention():
    g = graph()
    g.sdpa(*(g.tensor([1, 2, 64, 64]) for _ in "qkv"), generate_stats=False)[0].set_output()
    return g


def filter_gradient():
    g = graph()
    dw = g.conv_wgrad(g.tensor([2, 8, 8, 8]), g.tensor([2, 8, 8, 8])).set_dim([8, 8, 1, 1])
    dw.set_output()
    return g


def attention_gradient():
    g = graph()
    tensors = (g.tensor([1, 2, 64, 64]) for _ in range(5))
    stats = g.tensor([1, 2, 64, 1], data_type="FLOAT")
    for tensor in g.sdpa_backward(*tensors, stats):
        tensor.set_output()
    return g


def reduced():
    g = graph()
    g.reduction(g.tensor([4, 64]), "add").set_dim([4, 1]).set_output()
    return g


def pooled():
    g = graph()
    g.resample(g.tensor([1, 8, 8, 8]), "MAXPOOL", [0, 0], [0, 0], [2, 2], [2, 2])[0].set_output()
    return g


def relu():
    g = graph()
    g.relu(g.tensor([4, 64])).set_output()
    return g


def softmax_of_product():
    return product(after=lambda g, c: g.softmax(c))


@pytest.mark.parametrize(
    ("made", "families"),
    [
        (relu, {"pointwise"}),
        (reduced, {"reduction"}),
        (product, {"product"}),
        (softmax_of_product, {"product"}),
        (attention, {"product", "attention"}),
        (convolution, {"convolution"}),
        (pooled, {"resampling"}),
        (lambda: convolution(gradient=True), {"convolution gradient"}),
        (attention_gradient, {"product", "attention gradient"}),
    ],
)
def test_families(made, families):
    assert nearest.families_of(fusion_of(made())) == families


def test_every_heavy_operation_has_a_family():
    heavy = {op for op in OPS if op.role == "anchor" and not op.is_composite}
    assert set(nearest._FAMILY_OF_HEAVY) == heavy


def test_every_engine_has_a_family_that_a_fusion_may_have():
    known = {
        "pointwise",
        "reduction",
        "attention",
        "attention gradient",
        *nearest._FAMILY_OF_HEAVY.values(),
    }
    for engine in ENGINES:
        assert engine.families
        assert known.issuperset(engine.families)


def test_an_engine_that_is_only_for_a_target_says_so():
    """An engine's `only_target` agrees with what its support surface refuses."""
    graphs = (product(), convolution(), filter_gradient(), attention(), attention_gradient())
    fusions = [fusion_of(g) for g in graphs]
    for engine in ENGINES:
        clauses = {r.clause for fusion in fusions for r in engine.supports(fusion, SM80)}
        assert ("architecture" in clauses) == bool(engine.only_target)


def named(*engines_and_reasons, fusion=None, target=SM80):
    """The engines that say these things, nearest first."""
    by_name = {engine.name: engine for engine in ENGINES}
    found = [
        Refusal(by_name[name], fusion or fusion_of(product()), target, reasons)
        for name, *reasons in engines_and_reasons
    ]
    return [refusal.engine.name for refusal in nearest.nearest_first(found)]


def reason(clause, kind):
    return Reason(Status[f"NOT_SUPPORTED_{kind}"], clause, "this", "that")


OPERATIONS = reason("operations", "GRAPH_PATTERN")
TYPES = reason("operand types", "DATA_TYPE")
SIZE = reason("size", "SHAPE")
CONFIGURATIONS = reason("configurations", "SHARED_MEMORY_INSUFFICIENT")


def test_the_graphs_family_comes_first():
    assert named(("pointwise", SIZE), ("matmul_sm80", OPERATIONS)) == ["matmul_sm80", "pointwise"]


def test_then_engines_of_the_target():
    said = ("matmul_sm90", CONFIGURATIONS), ("fallback", OPERATIONS)
    assert named(*said) == ["fallback", "matmul_sm90"]
    assert named(*said, target=SM90A) == ["matmul_sm90", "fallback"]


@pytest.mark.parametrize(
    ("near", "far"),
    [
        ([CONFIGURATIONS], [SIZE]),
        ([SIZE], [TYPES]),
        ([TYPES], [OPERATIONS]),
        ([SIZE, SIZE, SIZE], [TYPES]),  # which is read first, however many follow
        ([TYPES], [TYPES, SIZE]),
        ([SIZE, SIZE], [SIZE, TYPES]),
    ],
)
def test_then_what_got_further_and_then_what_has_fewer_clauses(near, far):
    assert named(("matmul_sm80", *far), ("fallback", *near)) == ["fallback", "matmul_sm80"]
    assert named(("matmul_sm80", *near), ("fallback", *far)) == ["matmul_sm80", "fallback"]


def test_engines_of_an_attentions_gradient_come_before_others():
    """Engines of attention are unrelated; those of products have no clause of a gradient."""
    said = ("sdpa_sm80", OPERATIONS), ("matmul_sm80", OPERATIONS), ("sdpa_bwd_sm80", TYPES, SIZE)
    fusion = fusion_of(attention_gradient())
    assert named(*said, fusion=fusion) == ["sdpa_bwd_sm80", "matmul_sm80", "sdpa_sm80"]
    same = (*said[:2], ("sdpa_bwd_sm80", OPERATIONS, SIZE))
    assert named(*same, fusion=fusion) == ["sdpa_bwd_sm80", "matmul_sm80", "sdpa_sm80"]


def test_ties_stay_in_the_order_of_engines():
    assert named(("matmul_sm80", SIZE), ("fallback", SIZE)) == ["matmul_sm80", "fallback"]


# ---- in words


def error_of(g, target):
    from dnnc.choosing import heuristics

    with pytest.raises(dnnc.cudnnGraphNotSupportedError) as error:
        heuristics.best_config(g.graph.finalize(), target)
    return error.value


def test_a_type_that_an_architecture_lacks():
    error = error_of(product(types=("FP8_E4M3", "FP8_E4M3")), SM80)
    assert error.status is Status.NOT_SUPPORTED_ARCH_MISMATCH
    assert error.what.startswith(
        "no engine for sm_80 takes matmul: matmul_sm80, the nearest, declines"
    )
    assert error.supported.startswith("sm_89, sm_90")
    assert len(error.details.splitlines()) > len(ENGINES)  # an engine may have several clauses


def test_what_every_engine_says():
    g = graph("INT8")
    g.relu(g.tensor([1, 64, 4, 4], reordering_type="INT8x32")).set_output()
    error = error_of(g, SM90A)
    assert "takes pointwise:relu_fwd: every engine declines reordering: tensor" in error.what


def test_several_operations_that_no_engine_takes():
    g = graph()
    x = g.tensor([1 << 18, 1 << 18], name="x")
    g.exp(g.relu(x, name="first"), name="second").set_output()
    error = error_of(g, SM90A)
    assert "takes pointwise:relu_fwd 'first' (nor 1 other operation): pointwise," in error.what
    assert "may have 68719476736 elements (also" in error.what
    assert error.supported == "fewer than 17179869184"
    for name in ("pointwise:relu_fwd 'first':", "pointwise:exp 'second':"):
        assert name in error.details.splitlines()


def test_operations_that_have_engines_but_not_together():
    """The operation that is in the way has its line, not the one that the fusion grew around."""
    g = graph()
    first = g.matmul(g.tensor([8, 16]), g.tensor([16, 16]), name="first")
    second = g.matmul(first, g.tensor([16, 16]), name="second").set_output()
    error = nearest.no_config_error(g.graph.finalize(), SM90A)
    assert error.what == (
        "no engine for sm_90a takes both operations together: matmul_sm90, the nearest, declines "
        "operations: matmul 'second' needs another product"
    )
    assert error.made_at == second.made_at != first.made_at
