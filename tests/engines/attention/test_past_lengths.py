"""Memory past the lengths of padded sequences changes nothing, whatever it holds; interpreted."""

import numpy as np
import pytest

import dnnc
from dnnc.choosing import heuristics
from dnnc.compiler import compile_graph
from dnnc.dialect.fusion import partition
from dnnc.engines import engine_named
from dnnc.options import Options
from dnnc.target import of
from tests.attention_graphs import Pattern
from tests.past_lengths import attention, in_single_operations, inputs_of
from tests.support import machine
from tests.support.checked import check

HOPPER = {"TILE_M": 64, "TILE_N": 64, "STAGES": 2, "KERNEL_CFG": 2, "SCHED_POLICY": 1}
ANY = {"TILE_M": 32, "TILE_N": 32, "STAGES": 2, "PACK_GQA": 0, "SPLIT_KV": 1}
FP8 = {"dtype": "FP8_E4M3", "keys": 130}
INFINITE, NAN = float("inf"), float("nan")
pytestmark = pytest.mark.registers


def run(engine, target, knobs, g, given, allowance=1e-5):
    options = {"target": target} if target else {}
    plan = check(
        g, engine=engine, knobs=knobs, slack=4.0, allowance=allowance, inputs=given, **options
    )
    for kernel in plan.programs[0].kernels:
        assert (kernel.spill_store_bytes, kernel.spill_load_bytes) == (0, 0)


# name -> (dims and options, lengths of queries, lengths of keys, what lies past them, knobs)
OF_HOPPER = {
    "tail": ({"keys": 100, "bias": True}, (40, 33), (100, 37), NAN, {}),
    "infinities": ({"key_heads": 1, "keys": 64}, (40, 40), (0, 63), -INFINITE, {}),
    "odd steps": (
        {"keys": 125, "depth": 128, "heads": 1},
        (40, 3),
        (115, 111),
        NAN,
        {"TILE_N": 112},
    ),
    "mask of dropout": ({"dropout": True, "keys": 128, "heads": 1}, (40, 20), (65, 90), NAN, {}),
    "pages of keys": ({"pages": 14, "heads": 1}, (40, 9), (83, 100), NAN, {}),
    "fp8": (FP8 | {"heads": 1}, (40, 30), (127, 61), NAN, {}),
}
OF_ANY = {
    "tail": ({"keys": 90, "gates": True}, (40, 33), (90, 37), NAN, {}),
    "whole steps": ({"keys": 96, "bias": True}, (1, 40), (95, 64), NAN, {"STAGES": 3}),
    "infinities": ({"dtype": "BFLOAT16"}, (40, 40), (0, 99), INFINITE, {}),
    "few queries": (
        {"heads": 4, "key_heads": 1, "queries": 3, "keys": 256}, (3, 1), (200, 15), NAN,
        {"TILE_M": 16, "PACK_GQA": 1, "SPLIT_KV": 4},
    ),
    "mask of dropout": ({"dropout": True, "keys": 96}, (40, 20), (65, 40), NAN, {}),
    "pages of keys": ({"pages": 14}, (40, 9), (83, 100), NAN, {}),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.sm90
@pytest.mark.parametrize("name", OF_HOPPER)
def test_on_hopper(name):
    shape, rows, columns, garbage, knobs = OF_HOPPER[name]
    g = attention(**shape)
    given = inputs_of(g, rows, columns, garbage)
    allowance = 0.04 if "dtype" in shape else 1e-5
    run("sdpa_fwd_sm90", "sm_90a", HOPPER | knobs, g, given, allowance)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("name", OF_ANY)
def test_on_any_architecture(name):
    shape, rows, columns, garbage, knobs = OF_ANY[name]
    g = attention(**shape)
    run("sdpa_sm80", None, ANY | knobs, g, inputs_of(g, rows, columns, garbage))


@pytest.mark.in_turn
@pytest.mark.sm90
@pytest.mark.parametrize("parts", [1, 2])
def test_of_fp8_on_any_architecture_that_has_it(parts):
    g = attention(**FP8, queries=3, key_heads=1)
    knobs = ANY | {"TILE_M": 16, "PACK_GQA": 1, "SPLIT_KV": parts}
    run("sdpa_sm80", "sm_90a", knobs, g, inputs_of(g, (3, 1), (129, 33)), 0.04)


@pytest.mark.in_turn
@pytest.mark.parametrize("is_stored", [False, True])
def test_values_that_a_graph_selects(is_stored):
    """In single operations, the kernel of the weights that are stored among them."""
    g = in_single_operations(is_stored=is_stored, queries=20, keys=70)
    assert _reasons("sdpa_sm80", g, "sm_80") == ()
    run("sdpa_sm80", None, ANY, g, inputs_of(g, None, (37, 69)), 2.0**-8)


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "shape", [{"width": 264, "dropout": True}, {"dtype": "FLOAT", "bias": True, "depth": 8}]
)
def test_several_kernels(shape):
    """No engine of attention takes values so wide, or of FLOAT."""
    g = attention(queries=20, keys=40, heads=1, **shape)
    graph = g.graph.finalize()
    found = heuristics.best_config(graph, of("sm_80"), ["A", "FALLBACK"])
    assert not any("sdpa" in choice.engine.name for choice in found.choices)
    check(g, target="sm_80", slack=4.0, allowance=2.0**-9, inputs=inputs_of(g, (20, 7), (40, 19)))


@pytest.mark.in_turn
def test_the_same_bits_whatever_is_there():
    """In all of the outputs."""

    g = attention(queries=20, bias=True)
    graph, where = g.graph.finalize(), machine.current()
    options = Options(engine="sdpa_sm80", knobs=tuple(ANY.items()))
    plan = compile_graph(graph, where.target, options)
    found = [
        where.run(plan, inputs_of(g, (20, 7), (83, 40), garbage))
        for garbage in (0.0, NAN, INFINITE, 6e4)
    ]
    for other in found[1:]:
        for uid, array in found[0].items():
            np.testing.assert_array_equal(array, other[uid])


def test_rows_and_keys_past_the_lengths_in_the_reference():
    """The reference computes what NumPy does from the rows and keys that the lengths leave."""
    g = attention(batch=1, heads=1, queries=6, keys=9, depth=8, dtype="FLOAT", bias=True)
    given = inputs_of(g, (4,), (5,))
    found = dnnc.reference(g, given)
    named = {t.name: given[t.uid][0, 0] for t in g.graph.inputs}
    s = named["q"][:4] @ named["k"][:5].T * 8**-0.5 + named["bias"][:4, :5]
    e = np.exp(s)
    wanted = np.zeros((6, 8))
    wanted[:4] = e / e.sum(axis=1, keepdims=True) @ named["v"][:5]
    stats = np.concatenate([np.log(e.sum(axis=1)), [-np.inf] * 2])
    (o, made) = (found[t.uid][0, 0] for t in g.graph.outputs)
    np.testing.assert_allclose(o, wanted, atol=1e-5)
    np.testing.assert_allclose(made[:, 0], stats, atol=1e-5)


# ---- what is no selection of values past lengths


def _reasons(engine, g, target):
    graph = g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    return engine_named(engine).supports(fusion, of(target))


def _selected(test, **options):
    """A graph whose values are those of a test(p, v) that holds, else 0."""

    def values(p, v):
        return p.g.binary_select(v, 0.0, test(p, v), **options).set_data_type("BFLOAT16")

    return Pattern(batch=(2, 2), queries=20, keys=40, values=values).g


def _lengths(p, dims):
    return p.g.tensor(dims, name="lengths", data_type="INT32")


OTHERS = {
    "elements": lambda p, v: p.integer("cmp_lt", p.index(v, 3), _lengths(p, [2, 1, 1, 1])),
    "up to": lambda p, v: p.integer("cmp_le", p.index(v, 2), _lengths(p, [2, 1, 1, 1])),
    "from": lambda p, v: p.integer("cmp_gt", p.index(v, 2), _lengths(p, [2, 1, 1, 1])),
    "of keys": lambda p, v: p.integer("cmp_lt", p.index(v, 2), _lengths(p, [2, 1, 40, 1])),
    "not a flag": lambda p, v: p.integer(
        "cmp_lt", p.index(v, 2), _lengths(p, [2, 1, 1, 1])
    ).set_data_type("FLOAT"),
    "an index of floats": lambda p, v: p.integer(
        "cmp_lt", p.index(v, 2).set_data_type("FLOAT"), _lengths(p, [2, 1, 1, 1])
    ),
    "floats": lambda p, v: p.flag(p.g.cmp_lt(p.index(v, 2), _lengths(p, [2, 1, 1, 1]))),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_selections_are_declined(name):
    (reason,) = _reasons("sdpa_sm80", _selected(OTHERS[name]), "sm_80")
    assert "is computed by pointwise:binary_select" in str(reason)


def test_selections_that_round_are_declined():
    g = _selected(
        lambda p, v: p.integer("cmp_lt", p.index(v, 2), _lengths(p, [2, 1, 1, 1])),
        compute_data_type="INT32",
    )
    (reason,) = _reasons("sdpa_sm80", g, "sm_80")
    assert "is computed by pointwise:binary_select" in str(reason)


@pytest.mark.in_turn
def test_lengths_of_each_head():
    """Each head has lengths, of queries alone, by a selection that no mask stands beside."""
    g = _selected(lambda p, v: p.integer("cmp_lt", p.index(v, 2), _lengths(p, [1, 2, 1, 1])))
    run("sdpa_sm80", None, ANY, g, inputs_of(g, None, (37, 0)), 2.0**-8)


# ---- registers


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("shape", "threads"),
    [
        ({"depth": 64}, 512),
        ({"depth": 128, "use_causal_mask": True, "key_heads": 4}, 384),
        ({"depth": 128, "dtype": "FP8_E4M3"}, 384),
    ],
)
def test_best_choices_on_hopper_spill_nothing(shape, threads):
    g = attention(**{"batch": 4, "heads": 16, "queries": 1024, "keys": 1024} | shape)
    graph = g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    best = heuristics.choices(fusion, of("sm_90a"), [engine_named("sdpa_fwd_sm90")])[0]
    options = Options(engine="sdpa_fwd_sm90", knobs=tuple(best.knobs.items()))
    (kernel,) = compile_graph(graph, "sm_90a", options).programs[0].kernels
    assert (kernel.threads, kernel.spill_store_bytes, kernel.spill_load_bytes) == (threads, 0, 0)
