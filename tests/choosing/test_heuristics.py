"""Which knobs an engine gets when they are asked for in part or not at all."""

import pytest

import dnnc
from dnnc import dtypes
from dnnc import target as targets
from dnnc.choosing import heuristics, hints
from dnnc.choosing.choice_text import choice_of_text
from dnnc.choosing.declined import reasons_without_choice
from dnnc.choosing.info import info
from dnnc.dialect.fusion import partition
from dnnc.engines import engine_named

from ..engines.product.test_matmul_sm80 import product

TARGET = targets.of("sm_90")


def long_and_narrow():
    """A product whose largest tiles are the worst choice."""
    return product(dtypes.f16, 16, 64, 4096)[0].graph.finalize()


def test_an_engine_asked_for_by_name_gets_its_best_knobs():
    graph = long_and_narrow()
    free = heuristics.best_config(graph, TARGET)
    named = heuristics.best_config(graph, TARGET, engine="matmul_sm80")
    assert named.choices[0].knobs == free.choices[0].knobs


@pytest.mark.parametrize(
    "knobs", [{}, {"STAGES": 3}, {"STAGES": 6}, {"TILE_M": 64}, {"TILE_N": 128}], ids=str
)
def test_products_of_f32_are_not_rounded_to_tf32_unless_that_is_asked_for(knobs):
    graph = product(dtypes.f32, 512, 512, 512)[0].graph.finalize()
    quiet = heuristics.best_config(graph, TARGET, engine="matmul_sm80", knobs=knobs)
    assert "DOWN_CONVERT_INPUTS" not in quiet.notes
    asked = heuristics.best_config(graph, TARGET, knobs={**knobs, "TF32": 1})
    assert "DOWN_CONVERT_INPUTS" in asked.notes
    assert knobs.items() <= asked.knobs.items()


@pytest.mark.parametrize("knobs", [{"TILEK": 32}, {"TILE_M": 256}], ids=str)
def test_knobs_that_three_products_lack_are_refused(knobs):
    graph = product(dtypes.f32, 512, 512, 512)[0].graph.finalize()
    with pytest.raises(dnnc.DnncError, match=r"TF32=1|x64, "):
        heuristics.best_config(graph, TARGET, engine="matmul_sm80", knobs=knobs)


def test_knobs_left_open_are_those_of_the_best_candidate_that_fits():
    graph = long_and_narrow()
    asked = {"TILE_M": 64, "TILE_N": 64}
    made = heuristics.best_config(graph, TARGET, engine="matmul_sm80", knobs=asked).choices[0]
    fitting = [
        config.choices[0]
        for config in heuristics.configs(graph, TARGET, ["A"])
        if asked.items() <= config.choices[0].knobs.items()
    ]
    assert made.knobs == fitting[0].knobs


# ---- modes

SM90A = targets.of("sm_90a")


def names(graph, mode, target=SM90A):
    return [config.name for config in heuristics.configs(graph, target, [mode])]


def two_products():
    g = dnnc.pygraph("twice", io_data_type="HALF", compute_data_type="FLOAT")
    x, w = g.tensor([8, 16]), g.tensor([16, 16])
    g.matmul(g.matmul(x, w), w).set_output()
    return g.graph.finalize()


def test_mode_b_looks_at_more():
    """All that A has, and schedules that predictions can't tell apart."""
    graph = product(dtypes.f16, 512, 512, 512)[0].graph.finalize()
    of_a, of_b = names(graph, "A"), names(graph, "B")
    assert of_b[: len(of_a)] == of_a
    more = " ".join(of_b[len(of_a) :])
    assert "SWIZZLE=512" in more


def test_mode_b_has_legal_choices_that_round_no_more():
    graph = product(dtypes.f32, 64, 64, 64)[0].graph.finalize()
    first = next(heuristics.configs(graph, SM90A, ["B"]))
    assert "DOWN_CONVERT_INPUTS" not in first.notes
    for config in heuristics.configs(graph, SM90A, ["B"]):
        (choice,) = config.choices
        assert not choice.engine.legal(choice.knobs, choice.fusion, SM90A)


@pytest.mark.parametrize("size", [64, 512, 4096])
def test_instant_gives_one_config_that_a_has_too(size):
    graph = product(dtypes.f16, size, size, size)[0].graph.finalize()
    (only,) = names(graph, "INSTANT")
    assert only in names(graph, "A")
    assert only.startswith("eng5_")


def test_instant_splits_where_nothing_takes_the_graph_whole():
    (only,) = heuristics.configs(two_products(), SM90A, ["INSTANT"])
    assert len(only.choices) == 2
    assert "no engine takes the graph as one fusion" in only.split_reason


def test_instant_does_not_round_operands():
    graph = product(dtypes.f32, 64, 64, 64)[0].graph.finalize()
    (only,) = heuristics.configs(graph, SM90A, ["INSTANT"])
    assert "DOWN_CONVERT_INPUTS" not in only.notes


def test_modes_go_on_where_another_ends():
    graph = two_products()
    found = list(heuristics.configs(graph, SM90A, ["A", "INSTANT", "FALLBACK"]))
    assert len({config.name for config in found}) == len(found) >= 1


def test_a_mode_that_there_is_not():
    with pytest.raises(dnnc.DnncError, match="heuristic mode 'C'; accepted: INSTANT, A, B, FALL"):
        list(heuristics.configs(two_products(), SM90A, ["C"]))


# ---- products beside work that their engine does not take


def first_engines(g):
    (config, *_) = heuristics.configs(g.graph.finalize(), targets.of("sm_90a"), ["A"])
    return [choice.engine.name for choice in config.choices]


def plain(n=2048):
    g = dnnc.pygraph(io_data_type="bf16", intermediate_data_type="f32", compute_data_type="f32")
    x, w = g.tensor([1, n, n]), g.tensor([1, n, n])
    return g, x, g.matmul(x, w)


def test_a_view_after_a_product_does_not_make_it_run_element_by_element():
    g, _, y = plain(2048)
    halves = g.slice(y, [slice(0, 1), slice(0, 2048, 2), slice(0, 2048)])
    g.transpose(halves, [0, 2, 1]).set_output().set_stride([2048 * 1024, 1024, 1])
    assert first_engines(g) == ["matmul_sm90", "pointwise"]


def test_independent_work_does_not_make_a_product_run_element_by_element():
    g, x, y = plain()
    g.relu(y).set_output()
    g.relu(x).set_output()
    assert sorted(first_engines(g)) == ["matmul_sm90", "pointwise"]


def test_small_products_stay_one_kernel():
    g, x, y = plain(16)
    g.relu(y).set_output()
    g.relu(x).set_output()
    assert first_engines(g) == ["fallback"]


def behind_relu(n, c, size, *, adds_pixels=False):
    """A 3x3 convolution of relu(x), channels last, then ReLU."""
    g = dnnc.pygraph(io_data_type="HALF", intermediate_data_type="FLOAT", target="sm_90a")
    dims, w = [n, c, size, size], [c, c, 3, 3]
    x = g.tensor(dims, [c * size * size, 1, c * size, c])
    x = g.add(x, g.tensor([1, 1, size, size])) if adds_pixels else x
    x = g.relu(x).set_data_type(dtypes.f16)
    y = g.conv_fprop(x, g.tensor(w, [9 * c, 1, 3 * c, c]), padding=[1, 1])
    g.relu(y).set_output()
    return g.graph.finalize()


def engines_of(graph, target):
    config = heuristics.best_config(graph, targets.of(target), ("A",))
    return [choice.engine.name for choice in config.choices]


def test_a_convolution_behind_pointwise_work_computes_x_on_the_way():
    for target in ("sm_80", "sm_89", "sm_90"):
        assert engines_of(behind_relu(32, 64, 28), target) == ["conv_sm80"]


def test_convolutions_behind_pointwise_work_run_on_hoppers_own_engine():
    for sizes in ((256, 512, 14), (32, 64, 56), (32, 128, 28)):
        assert engines_of(behind_relu(*sizes), "sm_90a") == ["conv_sm90"]
        assert engines_of(behind_relu(*sizes), "sm_90") == ["conv_sm80"]


def test_a_large_convolution_that_its_engine_computes_nothing_for_stores_x():
    """A number of each pixel is added to X: X is stored, in mode A too."""
    graph = behind_relu(256, 512, 14, adds_pixels=True)
    assert engines_of(graph, "sm_90a") == ["pointwise", "conv_sm90"]


@pytest.mark.parametrize(("size", "about"), [(4096, "41.3 ms"), (256, "22 us"), (64, "")])
@pytest.mark.parametrize(
    ("types", "why"),
    [
        (("INT8", "INT8"), "matmul_sm90: compute type: FLOAT for i8; accepted: INT32"),
        (("HALF", "INT8"), "matmul_sm80: operand types: A f16, B i8; accepted: both f16"),
    ],
)
def test_products_that_run_element_by_element_are_told(types, why, size, about, caplog):
    """Unless launches differ by as much as they take."""
    g = dnnc.pygraph("m", io_data_type="FLOAT", compute_data_type="FLOAT", target="sm_90a")
    a, b = (g.tensor([1, size, size], data_type=type_) for type_ in types)
    g.matmul(a, b).set_output()
    config = heuristics.best_config(g.graph.finalize(), SM90A)
    assert config.choices[0].engine.name == "fallback"
    told = hints.warned(hints.slow_products(config, SM90A))
    assert [record.getMessage() for record in caplog.records] == list(told)
    assert len(told) == bool(about)
    assert all(f"(fallback, about {about})" in text and why in text for text in told)


def products_without_a_config():
    """Two products of computed operands that lie along rows, which are reduced 256 wide: the tiles
    that hold a row hold too many sums."""
    g = dnnc.pygraph("m", io_data_type="f16", intermediate_data_type="bf16", target="sm_90a")
    a = g.identity(g.tensor([1, 64, 64], [4096, 1, 64]))
    b, d = (g.identity(g.tensor([1, 64, 256])) for _ in range(2))
    c = g.mul(g.matmul(a, b), g.matmul(a, d))
    squares = g.reduction(g.mul(c, c), "add").set_dim([1, 64, 1])
    g.mul(c, g.rsqrt(squares)).set_output()
    return g.graph.finalize()


def test_an_engine_without_a_config_says_what_rules_them_out():
    graph = products_without_a_config()
    (whole,) = partition(graph, [graph.live_ops])
    engine = engine_named("matmul_sm90")
    assert not engine.supports(whole, SM90A)
    assert not engine.candidates(whole, SM90A)
    (refusal,) = (r for r in heuristics.refusals(whole, SM90A) if r.engine is engine)
    assert refusal.reasons[0].clause == "configurations"
    assert "sums in two rows of a thread; accepted: up to 256" in str(refusal.reasons[0])
    assert info(engine, whole, SM90A).reasons == refusal.reasons
    assert not info(engine, whole, SM90A).knobs
    with pytest.raises(dnnc.DnncError, match=r"no configuration .* sums in two rows of a thread"):
        heuristics.best_config(graph, SM90A, engine="matmul_sm90")
    said = "matmul_sm90, the nearest, declines configurations: "
    assert said in heuristics.best_config(graph, SM90A).split_reason


def test_knobs_of_which_some_are_legal_are_worth_naming(monkeypatch):
    """Where an engine's candidates leave out what is legal, that is said with an example."""
    graph = long_and_narrow()
    (whole,) = partition(graph, [graph.live_ops])
    engine = engine_named("matmul_sm80")
    assert not reasons_without_choice(engine, whole, SM90A)
    monkeypatch.setattr(type(engine), "candidates", lambda *_: [])
    (reason,) = reasons_without_choice(engine, whole, SM90A)
    assert reason.what == "none of matmul_sm80 is worth a look"
    choice = reason.supported.split()[-1]
    assert not engine.legal(choice_of_text(choice)[1], whole, SM90A)


@pytest.mark.parametrize("kind", ["softmax", "attention"])
def test_products_of_f32_are_split_rather_than_rounded(kind):
    """One fusion of matmul_sm90 would take tf32: it comes last, and to whoever asks for it."""
    g = dnnc.pygraph(io_data_type="f32", intermediate_data_type="f32", target="sm_90a")
    if kind == "attention":
        g.sdpa(*(g.tensor([1, 2, 64, 64]) for _ in "qkv"), generate_stats=False)[0].set_output()
    else:
        c = g.matmul(g.tensor([1, 256, 64]), g.tensor([1, 64, 256]))
        g.softmax(c).set_output()
    graph = g.graph.finalize()
    found = list(heuristics.configs(graph, SM90A))
    assert not found[0].rounds_operands
    assert len(found[0].choices) > 1
    assert "rounds operands" in found[0].split_reason or kind == "attention"
    rounds = [config.rounds_operands for config in found]
    assert rounds == sorted(rounds)
    (instant,) = heuristics.configs(graph, SM90A, ["INSTANT"])
    assert not instant.rounds_operands
    if kind != "attention":
        best = heuristics.best_config(graph, SM90A, engine="matmul_sm90")
        assert best.rounds_operands


def test_every_mode_splits_a_graph_that_no_engine_takes_whole_and_the_split_says_why():
    g = dnnc.pygraph("rows", dtypes.bf16, dtypes.f32, dtypes.f32, target="sm_90a")
    a, b = g.tensor([1, 4096, 512]), g.tensor([1, 512, 1024], [512 * 1024, 1, 512])
    c = g.matmul(a, b)
    g.mul(c, g.rsqrt(g.reduction(g.mul(c, c), "avg").set_dim([1, 4096, 1]))).set_output()
    graph = g.graph.finalize()
    target = targets.of("sm_90a")
    (split,) = heuristics.configs(graph, target, ["A", "FALLBACK"])
    for mode in ("A", "B", "FALLBACK"):
        assert [c.name for c in heuristics.configs(graph, target, [mode])] == [split.name]
    said, *details = split.split_reason.splitlines()
    assert "matmul_sm90, the nearest, declines operations: reduction:avg" in said
    assert said.endswith("accepted: reductions of rows of up to 768 elements")
    assert "matmul_sm80" not in said
    assert details[1].startswith("matmul_sm80: operations: ")
