"""Convolutions whose operands have two types, or one that tensor cores do not multiply."""

import itertools

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.dialect.fusion import partition
from dnnc.dialect.reference import reference
from dnnc.engines import engine_named
from dnnc.engines.views.operand_types import shared_type
from dnnc.rounding import round_to, widen
from dnnc.target import of
from tests.support.checked import check, random_inputs

from .convs import around, image, packed, ptx_of
from .test_before_sm90 import some
from .test_halo_sm90 import with_halo
from .test_sm90 import SMALL as HOPPER

GATHERED = {"TILE_M": 32, "TILE_N": 64}
FLOATS = ("f32", "f16", "bf16")
BYTES = ("i8", "ui8", "f8E4M3FN", "f8E5M2")

# X, W, how they are multiplied, the instruction's types.
PAIRS = {
    "f16 by i8": ("f16", "i8", "f16"),
    "i8 by bf16": ("i8", "bf16", "bf16"),
    "f16 by fp8": ("f16", "f8E4M3FN", "f16"),
    "fp8 by ui8": ("f8E5M2", "ui8", "f16"),
    "i8 by i8, FLOAT": ("i8", "i8", "f16"),
    "bf16 by f16": ("bf16", "f16", "tf32"),
}
WIDE = {"f32 by f16": ("f32", "f16", "tf32"), "fp8 by f32": ("f8E4M3FN", "f32", "tf32")}


def new_graph(**options):
    return dnnc.pygraph(
        "conv", io_data_type="f16", intermediate_data_type="f32", compute_data_type="f32", **options
    )


DIMS = ([1, 16, 4, 5], [24, 16, 3, 2])


def of_types(x, w, dims=DIMS, strides=(None, None), output=dtypes.f32, **options):
    """The convolution of an image and a filter of some types, in FLOAT."""
    g = new_graph()
    tensors = [
        image(g, each, data_type=dtypes.of(type_))
        if own is None
        else g.tensor(each, own, data_type=dtypes.of(type_))
        for each, own, type_ in zip(dims, strides, (x, w), strict=True)
    ]
    y = g.conv_fprop(*tensors, **{**around(1), **options})
    y.set_output().set_data_type(output)
    return g


def gathered(g, **options):
    return check(g, engine="conv_sm80", knobs=GATHERED, target="sm_90", **options)


def by_tma(g, knobs=HOPPER, **options):
    return check(g, engine="conv_sm90", knobs=knobs, target="sm_90a", **options)


def notes_of(plan):
    return plan.programs[0].fusions[0].notes


def fusion_of(g):
    (fusion,) = partition(g.graph.finalize(), [g.graph.live_ops])
    return fusion


# ---- the rule


@pytest.mark.parametrize(
    ("a", "b"), list(itertools.combinations_with_replacement((*FLOATS, *BYTES), 2)), ids=str
)
def test_the_shared_type_holds_every_number_of_both(a, b):
    found = shared_type(dtypes.of(a), dtypes.of(b))
    assert found == shared_type(dtypes.of(b), dtypes.of(a))
    for type_ in (dtypes.of(a), dtypes.of(b)):
        if type_.bits == 32:
            assert found == dtypes.f32
            continue
        bits = np.arange(1 << type_.bits, dtype=f"u{type_.bits // 8}")
        with np.errstate(invalid="ignore"):
            numbers = widen(bits.view(type_.numpy))
        np.testing.assert_array_equal(widen(round_to(numbers, found)), numbers)


def test_the_shared_type_is_the_narrowest():
    assert shared_type(dtypes.i8, dtypes.f8e4m3) == dtypes.f16
    assert shared_type(dtypes.bf16, dtypes.ui8) == dtypes.bf16
    assert shared_type(dtypes.f16, dtypes.bf16) == dtypes.f32


@pytest.mark.parametrize("type_", [dtypes.f64, dtypes.i32, dtypes.i64, dtypes.i1], ids=str)
def test_wider_types_have_none(type_):
    assert shared_type(type_, dtypes.f16) is None


def test_tf32_holds_what_has_16_bits():
    """A product of f16 by bf16 as tf32 is exact: ten bits of mantissa, eight of exponent."""
    for type_ in (dtypes.f16, dtypes.bf16):
        numbers = np.arange(1 << 16, dtype="u2").view(type_.numpy).astype(np.float32)
        mantissa, _ = np.frexp(numbers[np.isfinite(numbers)])
        assert not (mantissa * (1 << 11) % 1).any()


# ---- what engines make of it


@pytest.mark.rotating
@pytest.mark.parametrize("name", [some(name, "f16 by fp8", "bf16 by f16") for name in PAIRS])
def test_pairs_on_any_architecture(name):
    x, w, kind = PAIRS[name]
    plan = gathered(of_types(x, w), allowance=2e-6)
    assert f".f32.{kind}.{kind}.f32" in ptx_of(plan)
    assert "DOWN_CONVERT_INPUTS" not in notes_of(plan)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.sm90
@pytest.mark.parametrize("name", [some(name, "i8 by i8, FLOAT", "bf16 by f16") for name in PAIRS])
def test_pairs_on_hopper(name):
    x, w, kind = PAIRS[name]
    plan = by_tma(of_types(x, w), allowance=2e-6)
    assert f".f32.{kind}.{kind}" in ptx_of(plan)
    assert "DOWN_CONVERT_INPUTS" not in notes_of(plan)
    multiplied = {"tf32": "f32"}.get(kind, kind)
    copies = len(plan.programs[0].kernels) - 1
    assert copies == (w != multiplied)


@pytest.mark.rotating
@pytest.mark.parametrize("name", WIDE)
def test_f32_beside_another_type_is_three_products(name):
    x, w, _ = WIDE[name]
    g = of_types(x, w)
    plan = gathered(g, allowance=2.0**-20)
    assert "DOWN_CONVERT_INPUTS" not in notes_of(plan)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.sm90
@pytest.mark.parametrize("name", WIDE)
def test_f32_beside_another_type_as_tf32_has_a_note(name):
    x, w, _ = WIDE[name]
    plan = by_tma(of_types(x, w), allowance=2e-3)
    assert "DOWN_CONVERT_INPUTS" in notes_of(plan)


@pytest.mark.parametrize("target", ["sm_90", "sm_90a"])
def test_what_rounds_f32_comes_after_what_does_not(target):
    g = of_types("f32", "f16", ([8, 64, 28, 28], [64, 64, 3, 3]))
    ranked = heuristics.choices(fusion_of(g), of(target))
    is_rounded = [choice.rounds_operands for choice in ranked]
    assert not is_rounded[0]
    assert is_rounded == sorted(is_rounded)
    assert ranked[0].engine.name == "conv_sm80"


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    "dims",
    [([2, 3, 5, 6], [8, 3, 3, 3]), ([1, 12, 4, 5], [16, 6, 3, 3]), ([1, 32, 4, 5], [24, 8, 3, 2])],
    ids=str,
)
def test_few_channels_and_groups(dims):
    gathered(of_types("i8", "f16", dims), allowance=2e-6)


@pytest.mark.in_turn
def test_channels_first():
    x, w = [1, 8, 5, 6], [16, 8, 3, 3]
    gathered(of_types("f16", "i8", (x, w), (packed(x), packed(w))), allowance=2e-6)


@pytest.mark.in_turn
def test_fast_sums_of_fp8_are_f32_where_fp8_is_not_multiplied():
    g = of_types("f8E4M3FN", "f8E5M2", compute_data_type="FAST_FLOAT_FOR_FP8")
    assert "REDUCED_PRECISION_REDUCTION" not in notes_of(gathered(g, allowance=2e-6))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.sm90
@pytest.mark.parametrize("form", ["swapped", "halo"])
def test_other_forms_on_hopper(form):
    """With a halo a computed X is rewritten in place, so that W alone may be converted."""
    g = of_types("f16", "f8E4M3FN", ([2, 16, 4, 7], [24, 16, 3, 3]), output=dtypes.f16)
    by_tma(g, {**HOPPER, "SWAP_AB": 1} if form == "swapped" else with_halo(g, 4))


@pytest.mark.in_turn
@pytest.mark.sm90
def test_filters_that_lie_otherwise_are_converted_where_they_are_moved():
    x, w = [1, 16, 5, 6], [24, 16, 3, 3]
    g = of_types("f16", "i8", (x, w), (None, packed(w)))
    assert len(by_tma(g, allowance=2e-6).programs[0].kernels) == 2


@pytest.mark.in_turn
@pytest.mark.sm90
def test_a_filter_that_is_cast_by_hand_is_a_copy_too():
    g = new_graph()
    w = g.identity(image(g, [24, 16, 3, 3], data_type=dtypes.i8)).set_data_type(dtypes.f16)
    g.conv_fprop(image(g, [2, 16, 5, 6]), w, **around(1)).set_output()
    names = [kernel.name for kernel in by_tma(g).programs[0].kernels]
    assert any("copy" in name for name in names)


@pytest.mark.in_turn
@pytest.mark.sm90
def test_a_filter_that_is_read_elsewhere_keeps_its_type_there():
    g = new_graph()
    w = image(g, [16, 16, 3, 3], data_type=dtypes.i8)
    y = g.conv_fprop(image(g, [16, 16, 3, 3]), w, **around(1))
    g.add(y, w).set_output()
    by_tma(g, allowance=2e-5)


@pytest.mark.in_turn
@pytest.mark.sm90
def test_two_converted_groups_keep_infinities_apart():
    g = of_types("bf16", "f16", ([1, 32, 4, 4], [32, 16, 1, 1]), padding=[0, 0])
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {}, low=1.0, high=2.0)
    inputs[graph.inputs[0].uid][0, 16] = np.inf
    values = reference(graph, inputs)[graph.outputs[0].uid]
    assert np.isfinite(values[:, :16]).all()
    assert not np.isfinite(values[:, 16:]).any()
    gathered(g, inputs=inputs)
    by_tma(g, inputs=inputs)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("io", [dtypes.f16, dtypes.bf16], ids=str)
def test_a_virtual_x_of_f32_takes_the_filters_16_bits(io):
    g = new_graph()
    x = g.relu(image(g, [2, 16, 5, 6], data_type=io)).set_data_type(dtypes.f32)
    w = image(g, [24, 16, 3, 3], data_type=io)
    g.conv_fprop(x, w, **around(1)).set_output().set_data_type(dtypes.f32)
    plan = gathered(g, allowance=2e-6)  # relu of 16 bits has 16 bits
    assert "DOWN_CONVERT_INPUTS" in notes_of(plan)
    assert ".f32.tf32" not in ptx_of(plan)


# ---- refusals


@pytest.mark.parametrize("engine", ["conv_sm80", "conv_sm90"])
@pytest.mark.parametrize(("x", "w"), [("f64", "f16"), ("i32", "i8"), ("f16", "i64")])
def test_types_that_no_instruction_holds_are_refused(engine, x, w):
    reasons = engine_named(engine).supports(fusion_of(of_types(x, w)), of("sm_90a"))
    (reason,) = [r for r in reasons if r.clause == "operand types"]
    assert f"X {x}" in reason.what
    assert "ui8" in reason.supported


def test_integers_whose_sums_are_integers_are_not_cast():
    g = of_types("i8", "ui8", compute_data_type="INT32")
    (reason,) = engine_named("conv_sm80").supports(fusion_of(g), of("sm_90"))
    assert reason.what == "X i8, W ui8"


def test_fp8_asks_for_an_architecture_that_converts_it():
    g = of_types("f8E4M3FN", "f8E5M2")
    (reason,) = engine_named("conv_sm80").supports(fusion_of(g), of("sm_80"))
    assert reason.clause == "fp8"
