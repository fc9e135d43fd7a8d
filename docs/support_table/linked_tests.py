"""Which tests belong to which row: TESTS."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from tests.support.machine import INTERPRETER

# Of the device that tests/gpu have run on, Hopper, where a test names none.  Code of sm_90a has run
# there too: that of tests which name it.
RUN_TARGET = "sm_90"
HOPPER = "sm_90a"


@dataclass(frozen=True)
class LinkedTest:
    """A test file, or a function of it.

    target: of the code that is run, interpreted or assembled ("" = the usual one, or every one
    that the test is parametrized by).
    """

    path: str
    function: str = ""
    target: str = ""

    @property
    def kind(self) -> str:
        """The kind: run, interpreted, assembled, refused; graph where no engine has a part."""
        name = f"{self.path}::{self.function}"
        return next((kind for start, kind in _KINDS if name.startswith(start)), "graph")

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets whose code it looks at."""
        if self.kind not in ("run", "interpreted", "assembled"):
            return ()
        if self.target:
            return (self.target,)
        if self.kind == "assembled":
            return parametrized(self.path, self.function, "target")
        return (RUN_TARGET if self.kind == "run" else INTERPRETER.target,)

    @property
    def link(self) -> str:
        """It as a Markdown link from the folder of the table."""
        return f"[{self.function or self.path.removeprefix('tests/')}](../{self.path})"


_REDUCTION = "tests/engines/elementwise/test_reduction.py"
_MUTATION = "tests/engines/test_mutation"
_ASSEMBLY = "tests/engines/test_assembly.py"
_CONV_ASSEMBLY = "tests/engines/conv/test_assembly.py"
_CONV_ASSEMBLY_SM90 = "tests/engines/conv/test_assembly_sm90.py"
_FP8 = "test_fp8_below_sm_89_is_refused_with_the_targets_that_have_it"
_REFUSED = "tests/test_support_table.py"

# The first that a test's name starts with.
_KINDS = (
    ("tests/gpu/", "run"),
    (f"{_ASSEMBLY}::{_FP8}", "refused"),
    (_ASSEMBLY, "assembled"),
    ("tests/engines/conv/test_assembly", "assembled"),
    ("tests/engines/", "interpreted"),
    ("tests/choosing/", "interpreted"),
    ("tests/test_random_graphs.py", "interpreted"),
    (_REFUSED, "refused"),
)


def parametrized(path: str, function: str, name: str) -> tuple[Any, ...]:
    """The values that a test function is given for a parameter."""
    module = import_module(path.removesuffix(".py").replace("/", "."))
    marks = getattr(module, function).pytestmark
    given = next(m.args[1] for m in marks if m.args and m.args[0] == name)
    # Those with a mark of their own, as `slow`, are wrapped.
    return tuple(value.values[0] if hasattr(value, "marks") else value for value in given)


def _both(path: str, *functions: str, target: str = "") -> tuple[LinkedTest, ...]:
    """Test functions that run on a device and in the interpreter; none: the whole file."""
    return tuple(
        LinkedTest(f"tests/{folder}/{path}", function, target)
        for folder in ("gpu", "engines")
        for function in functions or ("",)
    )


# What every engine has.
_RANDOM = "test_graphs_of_a_support_surface_compute_what_the_reference_computes"
_RANDOM_SM90 = "test_graphs_of_matmul_sm90_compute_what_the_reference_computes"
_COMMON = (
    LinkedTest("tests/gpu/test_random_graphs.py", _RANDOM),
    LinkedTest("tests/test_random_graphs.py", _RANDOM),
    LinkedTest(_ASSEMBLY, "test_every_engine_on_every_architecture"),
)
_VIEWS = (
    *_both("elementwise/test_pointwise.py", "test_views_in_a_chain"),
    *_both("product/test_matmul_sm80.py", "test_transposed_and_sliced_operands"),
)
_CONV_GRADIENTS = (
    *_both("conv/test_gradients.py"),
    *_both("conv/test_random_conv_gradients.py"),
    LinkedTest("tests/dialect/test_conv_gradients.py"),
    LinkedTest("tests/backend/test_conv_gradients.py"),
)
_NORMS = (
    *_both("elementwise/test_pointwise.py", "test_examples_of_every_operation"),
    LinkedTest("tests/dialect/test_norm_references.py"),
)
_CAUSAL = (
    *_both("elementwise/test_pointwise.py", "test_examples_of_every_operation"),
    LinkedTest("tests/engines/conv/test_causal_conv1d.py"),
)
_ROPE = (
    *_both("elementwise/test_pointwise.py", "test_examples_of_every_operation"),
    LinkedTest("tests/dialect/test_rope.py"),
)

TESTS: dict[str, tuple[LinkedTest, ...]] = {
    "engine pointwise": (
        *_both("elementwise/test_pointwise.py"),
        LinkedTest("tests/gpu/test_large.py", "test_pointwise_beyond_two_to_the_31_elements"),
        LinkedTest("tests/engines/elementwise/test_pointwise.py", "test_types_in_and_out", "sm_90"),
        *_COMMON,
    ),
    "engine transpose": (
        *_both("elementwise/test_transpose.py", target=RUN_TARGET),
        LinkedTest(_ASSEMBLY, "test_every_engine_on_every_architecture"),
    ),
    "engine reduction": (
        *_both("elementwise/test_reduction.py"),
        LinkedTest("tests/gpu/test_large.py", "test_reductions"),
        LinkedTest(f"{_MUTATION}.py", "test_each_wait_is_needed"),
        *_COMMON,
    ),
    "engine rows": (
        *_both("rows/test_engine.py", target=HOPPER),
        *_both("rows/test_shared.py", target=HOPPER),
        *_both("rows/test_extremes.py", target=HOPPER),
        *_both("rows/test_long_rows.py", target=HOPPER),
        *_both("rows/test_dropout_norms.py", target=HOPPER),
        LinkedTest("tests/gpu/test_large.py", "test_norms_of_long_rows"),
        LinkedTest(_ASSEMBLY, "test_every_engine_on_every_architecture"),
        LinkedTest(_ASSEMBLY, "test_no_rows_are_spilled", "sm_90a"),
        LinkedTest(f"{_MUTATION}_rows.py", "test_each_wait_of_rows_is_needed", "sm_90a"),
        *_COMMON,
    ),
    "engine grid": (
        *_both("rows/test_grid.py", target=HOPPER),
        *_both("rows/test_long_rows.py", target=HOPPER),
        LinkedTest("tests/gpu/test_large.py", "test_norms_of_long_rows"),
        LinkedTest(_ASSEMBLY, "test_every_engine_on_every_architecture"),
    ),
    "engine sdpa_fwd_sm90": (
        *_both("attention/test_fwd_sm90.py", target=HOPPER),
        LinkedTest("tests/engines/attention/test_block_mask.py", target=HOPPER),
        *_both("attention/test_past_lengths.py", target=HOPPER),
        LinkedTest(
            "tests/engines/attention/test_fwd_sm90.py", "test_best_choices_spill_nothing", HOPPER
        ),
        *_both("attention/test_fp8_sm90.py", target=HOPPER),
        LinkedTest("tests/engines/attention/test_random_attention.py", "test_on_hopper", HOPPER),
        LinkedTest(
            "tests/engines/attention/test_random_attention.py", "test_of_fp8_on_hopper", HOPPER
        ),
        LinkedTest(f"{_MUTATION}_attention.py", "test_waits_of_attention_are_needed", HOPPER),
        LinkedTest(
            f"{_MUTATION}_attention.py", "test_waits_of_transposed_values_are_needed", HOPPER
        ),
    ),
    "engine sdpa_sm80": (
        *_both("attention/test_sm80.py"),
        *_both("attention/test_kept.py"),
        LinkedTest("tests/engines/attention/test_block_mask.py"),
        *_both("attention/test_past_lengths.py"),
        LinkedTest("tests/engines/attention/test_fp8_sm80.py", target=HOPPER),
        LinkedTest("tests/engines/attention/test_random_attention.py", "test_on_any_architecture"),
        LinkedTest(f"{_MUTATION}.py", "test_each_wait_is_needed"),
        LinkedTest(_ASSEMBLY, "test_every_engine_on_every_architecture"),
    ),
    "engine sdpa_bwd_sm90": (
        *_both("attention/test_bwd_sm90.py", target=HOPPER),
    ),
    "engine sdpa_bwd_sm80": (
        *_both("attention/test_bwd_sm80.py"),
        *_both("attention/test_bwd_kept.py"),
        LinkedTest(_ASSEMBLY, "test_every_engine_on_every_architecture"),
    ),
    "engine matmul_sm90": (
        *_both("product/test_matmul_sm90.py", target=HOPPER),
        *_both("product/test_booleans_sm90.py", target=HOPPER),
        *_both("product/test_fragments_sm90.py", target=HOPPER),
        *_both("product/test_grouped_sm90.py", target=HOPPER),
        *_both("product/test_ping_pong_sm90.py", target=HOPPER),
        *_both("rows/test_wide_rows_sm90.py", target=HOPPER),
        LinkedTest("tests/gpu/test_variants.py", target=HOPPER),
        LinkedTest("tests/choosing/test_variants.py", target=HOPPER),
        LinkedTest(f"{_MUTATION}_hopper.py", "test_each_wait_of_hopper_is_needed", HOPPER),
        LinkedTest("tests/gpu/test_random_graphs.py", _RANDOM_SM90, HOPPER),
        LinkedTest("tests/test_random_graphs.py", _RANDOM_SM90, HOPPER),
        LinkedTest(_ASSEMBLY, "test_matmul_sm90_fits_its_registers", HOPPER),
    ),
    "engine matmul_sm80": (
        *_both("product/test_matmul_sm80.py"),
        LinkedTest("tests/gpu/test_large.py", "test_every_tile_at_sizes_that_fill_the_device"),
        LinkedTest(f"{_MUTATION}.py", "test_each_wait_is_needed"),
        *_COMMON,
    ),
    "engine conv_product_sm90": (
        *_both("conv/test_product_sm90.py", target=HOPPER),
        LinkedTest(_CONV_ASSEMBLY_SM90, "test_products_of_images_fit_their_registers", HOPPER),
    ),
    "engine conv_sm90": (
        *_both("conv/test_sm90.py", target=HOPPER),
        *_both("conv/test_dgrad_sm90.py", target=HOPPER),
        *_both("conv/test_swapped_sm90.py", target=HOPPER),
        *_both("conv/test_halo_sm90.py", target=HOPPER),
        *_both("conv/test_columns_sm90.py", target=HOPPER),
        *_both("conv/test_before_sm90.py", target=HOPPER),
        *_both("conv/test_exits_sm90.py", target=HOPPER),
        *_both("conv/test_beside_sm90.py", target=HOPPER),
        *_both("conv/test_ping_pong_sm90.py", target=HOPPER),
        *_both("conv/test_layouts.py", target=HOPPER),
        *_both("conv/test_types.py", target=HOPPER),
        LinkedTest(_CONV_ASSEMBLY_SM90, "test_conv_sm90_fits_its_registers", HOPPER),
    ),
    "engine conv_stem_sm90": (
        *_both("conv/test_stem_sm90.py", target=HOPPER),
        *_both("conv/test_layouts.py", "test_first_layer", target=HOPPER),
        LinkedTest(_CONV_ASSEMBLY_SM90, "test_first_layers_fit_their_registers", HOPPER),
    ),
    "engine conv_sm80": (
        *_both("conv/test_sm80.py"),
        *_both("conv/test_dgrad_sm80.py"),
        *_both("conv/test_exits_sm80.py"),
        *_both("conv/test_types.py"),
        *_both("conv/test_beside_sm80.py"),
        LinkedTest("tests/gpu/conv/test_large_conv_sm80.py"),
        LinkedTest(f"{_MUTATION}.py", "test_each_wait_is_needed"),
        LinkedTest(_CONV_ASSEMBLY, "test_conv_sm80_on_every_architecture"),
        LinkedTest(_CONV_ASSEMBLY, "test_no_gather_spills", "sm_80"),
    ),
    "engine conv_grouped_sm80": (
        *_both("conv/test_grouped_sm80.py"),
        *_both("conv/test_few_channels.py"),
        LinkedTest(_CONV_ASSEMBLY, "test_filters_of_groups_fit_their_registers"),
        LinkedTest(_ASSEMBLY, "test_every_engine_on_every_architecture"),
    ),
    "engine conv_depthwise": (
        *_both("conv/test_depthwise.py"),
        *_both("conv/test_dgrad.py"),
        LinkedTest("tests/engines/conv/test_few_channels.py"),
        LinkedTest("tests/gpu/conv/test_large_conv_depthwise.py"),
        LinkedTest("tests/engines/conv/test_depthwise.py", "test_fp8", "sm_90"),
        LinkedTest(f"{_MUTATION}.py", "test_each_wait_is_needed"),
        LinkedTest(_ASSEMBLY, "test_every_engine_on_every_architecture"),
    ),
    "engine conv_wgrad_sm90": (
        *_both("conv/test_wgrad_sm90.py", target=HOPPER),
        LinkedTest(_CONV_ASSEMBLY_SM90, "test_filter_gradients_fit_their_registers", HOPPER),
    ),
    "engine conv_wgrad_sm80": (
        LinkedTest("tests/engines/conv/test_wgrad_sm80.py"),
        LinkedTest(_ASSEMBLY, "test_every_engine_on_every_architecture"),
    ),
    "engine conv_wgrad_depthwise": (
        LinkedTest("tests/engines/conv/test_wgrad_depthwise.py"),
        LinkedTest(_ASSEMBLY, "test_every_engine_on_every_architecture"),
    ),
    "engine resample": (
        *_both("elementwise/test_resample.py"),
        LinkedTest("tests/engines/elementwise/test_resample.py", "test_other_types", "sm_90"),
        LinkedTest(_ASSEMBLY, "test_every_engine_on_every_architecture"),
    ),
    "engine peers": (
        *_both("elementwise/test_peers.py"),
        LinkedTest(_ASSEMBLY, "test_every_engine_on_every_architecture"),
    ),
    "engine fallback": (
        *_both("elementwise/test_reduction.py", "test_fallback_takes_mixed_types_and_any_strides"),
        LinkedTest(_REDUCTION, "test_fallback_multiplies_every_type", "sm_90"),
        *_both("conv/test_pattern.py"),
        *_both("conv/test_gradients.py"),
        *_COMMON,
    ),
    "operation matmul": (
        *_both("product/test_matmul_sm80.py"),
        *_both("product/test_matmul_sm90.py", target=HOPPER),
        LinkedTest("tests/gpu/test_large.py", "test_ffn_by_the_engine_that_is_chosen"),
    ),
    "operation moe_grouped_matmul": (
        *_both("product/test_grouped_matmul.py"),
        *_both("product/test_grouped_sm90.py", target=HOPPER),
    ),
    "operation pointwise": _both("elementwise/test_pointwise.py"),
    "operation reduction": (
        *_both("elementwise/test_reduction.py"), *_both("elementwise/test_reduction_index.py"),
    ),
    "operation transpose": _VIEWS,
    "operation slice": _VIEWS,
    "operation reshape": _both(
        "elementwise/test_pointwise.py",
        "test_views_in_a_chain", "test_reshape_of_symbols_divides_by_sizes",
    ),
    "operation concatenate": _both(
        "elementwise/test_pointwise.py", "test_concatenate_of_different_sizes"
    ),
    "operation broadcast": (LinkedTest("tests/engines/elementwise/test_broadcasts.py"),),
    "operation conv_fprop": (
        *_both("conv/test_pattern.py"),
        *_both("conv/test_sm80.py"),
        *_both("conv/test_sm90.py", target=HOPPER),
        *_both("conv/test_product_sm90.py", target=HOPPER),
        *_both("conv/test_depthwise.py"),
        *_both("conv/test_grouped_sm80.py"),
    ),
    "operation conv_dgrad": (
        *_CONV_GRADIENTS,
        *_both("conv/test_dgrad.py"),
        *_both("conv/test_dgrad_sm80.py"),
        *_both("conv/test_dgrad_sm90.py", target=HOPPER),
    ),
    "operation conv_wgrad": (
        *_CONV_GRADIENTS,
        LinkedTest("tests/engines/conv/test_random_wgrads.py"),
    ),
    "operation causal_conv1d": _CAUSAL,
    "operation causal_conv1d_backward": _CAUSAL,
    "operation resample": (
        *_both("elementwise/test_resample.py"),
        LinkedTest("tests/dialect/test_resample.py"),
    ),
    "operation resample_backward": (
        *_both("elementwise/test_resample.py"),
        LinkedTest("tests/dialect/test_resample.py"),
    ),
    "operation rng": (
        *_both("elementwise/test_rng.py"),
        *_both("rows/test_dropout_norms.py", target=HOPPER),
        LinkedTest("tests/dialect/test_rng.py"),
    ),
    "operation layernorm": _NORMS,
    "operation rmsnorm": _NORMS,
    "operation adalayernorm": _NORMS,
    "operation instancenorm": _NORMS,
    "operation batchnorm": (*_NORMS, *_both("elementwise/test_peers.py")),
    "operation batchnorm_inference": _NORMS,
    "operation layernorm_backward": _NORMS,
    "operation rmsnorm_backward": _NORMS,
    "operation adalayernorm_backward": _NORMS,
    "operation instancenorm_backward": _NORMS,
    "operation batchnorm_backward": (*_NORMS, *_both("elementwise/test_peers.py")),
    "operation genstats": _NORMS,
    "operation bn_finalize": _NORMS,
    "operation dbn_weight": _NORMS,
    "operation peer_reduction": _both("elementwise/test_peers.py"),
    "operation softmax": _NORMS,
    "operation softmax_backward": _NORMS,
    "operation rope": _ROPE,
    "operation rope_backward": _ROPE,
    "operation sdpa": (
        *_both("attention/test_pattern.py", target=HOPPER),
        LinkedTest("tests/dialect/test_attention.py"),
    ),
    "operation sdpa_backward": (
        *_both("attention/test_bwd_sm90.py", target=HOPPER),
        *_both("attention/test_bwd_sm80.py"),
        LinkedTest("tests/engines/attention/test_attention_gradient.py", target=HOPPER),
        LinkedTest("tests/dialect/test_attention_gradient.py"),
    ),
    "operation sdpa_fp8": (
        *_both("attention/test_fp8_sm90.py", target=HOPPER),
        LinkedTest("tests/engines/attention/test_fp8_sm80.py", target=HOPPER),
        LinkedTest("tests/dialect/test_attention_fp8.py"),
    ),
    "operation sdpa_fp8_backward": (
        LinkedTest("tests/gpu/attention/test_bwd_fp8.py", target=HOPPER),
        LinkedTest("tests/engines/attention/test_bwd_fp8_sm90.py", target=HOPPER),
        LinkedTest("tests/engines/attention/test_bwd_fp8_sm80.py", target=HOPPER),
        LinkedTest("tests/dialect/test_attention_fp8_backward.py"),
    ),
    "operation paged_cache_load": (
        *_both("attention/test_pattern.py", "test_a_paged_cache"),
        LinkedTest("tests/dialect/test_attention.py"),
    ),
    "operation block_mask_load": (LinkedTest("tests/engines/attention/test_block_mask.py"),),
    "operation ragged_load": _both("attention/test_pattern.py", "test_packed_sequences"),
    "operation ragged_store": _both("attention/test_pattern.py", "test_packed_sequences"),
    "outputs that are added to what they held": (
        LinkedTest("tests/gpu/test_priors.py"),
        LinkedTest("tests/choosing/test_priors.py"),
    ),
    "operations that an engine takes": (
        *_both("elementwise/test_pointwise.py", "test_examples_of_every_operation"),
        LinkedTest("tests/dialect/test_linalg_cpu.py", "test_examples"),
    ),
    "all operations": tuple(
        LinkedTest("tests/dialect/test_ops.py", function)
        for function in (
            "test_each_constraint_rejects",
            "test_json_round_trip",
            "test_mlir_round_trip",
            "test_reference_gives_the_inferred_dims_and_types",
        )
    ),
    "pointwise modes": (
        *_both("elementwise/test_pointwise.py",
            "test_examples_of_every_operation",
            "test_float_modes_on_16_bit_types",
        ),
        LinkedTest("tests/dialect/test_linalg_cpu.py", "test_special_values"),
    ),
    "reduction modes": (
        *_both("elementwise/test_reduction.py", "test_modes", "test_integers"),
        *_both("elementwise/test_reduction_index.py"),
    ),
    "data types": (
        *_both("elementwise/test_pointwise.py", "test_types_in_and_out"),
        *_both("elementwise/test_reduction.py", "test_fallback_multiplies_every_type"),
        *_both("product/test_matmul_sm80.py", "test_types_and_operand_layouts"),
        *_both("product/test_matmul_sm90.py", "test_types_and_operand_layouts", target=HOPPER),
        LinkedTest(_ASSEMBLY, _FP8),
        LinkedTest("tests/dialect/test_linalg_cpu.py", "test_conversions"),
    ),
}  # fmt: skip


def links(*keys: str) -> str:
    """The tests of rows, by kind."""
    groups: dict[str, list[str]] = {}
    for test in (test for key in keys for test in TESTS[key]):
        groups.setdefault(test.kind, []).append(test.link)
    return "; ".join(f"{kind}: {', '.join(found)}" for kind, found in groups.items())
