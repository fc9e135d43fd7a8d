"""Chosen configs do not spill registers; the assembler says so."""

import pytest

import dnnc
from dnnc import dtypes
from dnnc.choosing import spills
from dnnc.engines import engine_named
from dnnc.plan.plan import Plan

pytestmark = pytest.mark.registers


def gradient(n=4096):
    """The backward pass of matmul + GELU, the bias's gradient and more statistics: too much beside
    256 columns."""
    g = dnnc.pygraph("dgelu", io_data_type="bf16", intermediate_data_type="f32", target="sm_90a")
    dy, w, x = g.tensor([1, n, n]), g.tensor([1, n, n], [n * n, 1, n]), g.tensor([1, n, n])
    d = g.gelu_backward(g.matmul(dy, w), x).set_output()
    for mode, dims in (*((m, [1, 1, n]) for m in ("add", "max", "min")), ("add", [1, n, 1])):
        g.reduction(d, mode).set_dim(dims).set_output().set_data_type(dtypes.f32)
    return g


def test_a_choice_that_spills_gives_way_to_the_next():
    graph = gradient()
    graph.create_execution_plans(["A"])
    first = graph._plans.configs[0].choices[0]
    explicit = dnnc.compile(gradient(), "sm_90a", engine=first.engine.name, knobs=first.knobs)
    assert spills.spilling_choices(explicit) == (first.text,)
    chosen = dnnc.compile(gradient(), "sm_90a")
    assert spills.spilled_bytes(chosen) == 0
    assert chosen.programs[0].fusions[0].engine == first.engine.name


def test_a_pygraph_passes_over_plans_that_spill():
    graph = gradient()
    graph.build(["A"])
    assert spills.spilled_bytes(graph._plans.selected().plan) == 0
    assert graph._plans.selected_index() > 0
    assert 0 not in graph._plans.barred  # it may be asked for


def wide_rows(io="bf16", n=768):
    """A residual and rms-norm after a product, and the sum: too much beside 192 columns."""
    g = dnnc.pygraph("wide", io_data_type=io, intermediate_data_type="f32", target="sm_90a")
    h = g.matmul(g.tensor([1, 4096, 1024]), g.tensor([1, 1024, n]))
    h = g.add(h, g.tensor([1, 4096, n])).set_output()
    squares = g.reduction(g.mul(h, h), "avg").set_dim([1, 4096, 1])
    g.mul(g.mul(h, g.rsqrt(squares)), g.tensor([1, 1, n])).set_output()
    return g


def test_a_fusion_all_of_whose_choices_spill_is_split():
    plan = dnnc.compile(wide_rows(), "sm_90a")
    assert spills.spilled_bytes(plan) == 0
    assert len(plan.programs[0].fusions) > 1
    assert "spills registers" in plan.programs[0].split_reason
    graph = wide_rows()
    graph.build(["A", "FALLBACK"])
    assert spills.spilled_bytes(graph._plans.selected().plan) == 0


def test_a_fusion_of_which_no_choice_is_legal_is_split():
    """f32 rows of 768 need more shared memory than there is."""
    plan = dnnc.compile(wide_rows("f32"), "sm_90a")
    assert len(plan.programs[0].fusions) > 1


@pytest.mark.parametrize(
    ("knobs", "is_like"),
    [({"TILE_N": 256}, True), ({"TILE_N": 192}, False), ({"TILE_M": 256, "TILE_N": 128}, True)],
    ids=str,
)
def test_choices_with_as_many_accumulators_are_like_it(knobs, is_like):
    base = {
        "TILE_M": 128, "TILE_N": 256, "SWAP_AB": 0, "STAGES": 4, "WARP_SPEC_CFG": 1,
        "TILE_CGA_M": 1, "TILE_CGA_N": 1, "SPLIT_K_SLC": 1, "SWIZZLE": 2048,
    }  # fmt: skip
    text = "matmul_sm90:" + ":".join(f"{name}={value}" for name, value in base.items())
    engine = engine_named("matmul_sm90")
    assert spills.is_like(engine, base | {"STAGES": 3} | knobs, [text]) is is_like
    assert not spills.is_like(engine_named("matmul_sm80"), base, [text])


@pytest.mark.parametrize(
    ("knobs", "is_like"),
    [({"TILE_ROWS": 8}, True), ({"OCCUPANCY": 2}, False), ({"TILE_COLS": 2}, False)],
    ids=str,
)
def test_depthwise_tiles_of_fewer_blocks_are_not_like_one_that_spills(knobs, is_like):
    base = {
        "LOAD_SIZE": 8, "BLOCK_SIZE": 128, "ARRAY_SIZE_PER_THREAD": 1, "TILE_ROWS": 4,
        "TILE_COLS": 4, "OCCUPANCY": 3, "SPECFILT": 0,
    }  # fmt: skip
    text = "conv_depthwise:" + ":".join(f"{name}={value}" for name, value in base.items())
    assert spills.is_like(engine_named("conv_depthwise"), {**base, **knobs}, [text]) is is_like


def test_a_plan_without_kernels_spills_nothing():
    empty = Plan("none", {}, (), (), ())
    assert spills.spilling_choices(empty) == ()
    assert spills.spilled_bytes(empty) == 0


def test_attention_by_fewer_keys_is_not_like_one_that_spills():
    base = {"TILE_M": 128, "TILE_N": 64, "STAGES": 2, "PACK_GQA": 0, "SPLIT_KV": 1}
    text = "sdpa_sm80:" + ":".join(f"{name}={value}" for name, value in base.items())
    assert spills.is_like(engine_named("sdpa_sm80"), base | {"STAGES": 3}, [text])
    assert not spills.is_like(engine_named("sdpa_sm80"), base | {"TILE_N": 32}, [text])


@pytest.mark.parametrize(
    ("rows", "keys", "is_like"),
    [(128, 128, True), (128, 112, False), (192, 96, True), (192, 80, False), (64, 160, False)],
)
def test_attention_of_hopper_by_what_its_warpgroups_have(rows, keys, is_like):
    base = {
        "TILE_M": 128, "TILE_N": 128, "STAGES": 2, "KERNEL_CFG": 3, "SCHED_POLICY": 1,
        "PACK_GQA": 0, "SPLIT_KV": 1,
    }  # fmt: skip
    text = "sdpa_fwd_sm90:" + ":".join(f"{name}={value}" for name, value in base.items())
    knobs = base | {"TILE_M": rows, "TILE_N": keys, "STAGES": 3}
    assert spills.is_like(engine_named("sdpa_fwd_sm90"), knobs, [text]) is is_like


def attention(depth, *, drops=True, **features):
    g = dnnc.pygraph("attention", io_data_type="bf16", intermediate_data_type="f32")
    dims, options = [2, 8, 2048, depth], dict(features)
    q, k, v = (g.tensor(dims) for _ in range(3))
    if drops:
        options["dropout"] = (0.1, *(g.tensor([1, 1, 1, 1], data_type="i64") for _ in range(2)))
    if options.pop("bias", False):
        options["bias"] = g.tensor([1, 8, 2048, 2048])
    if options.pop("lengths", False):
        lengths = (g.tensor([2, 1, 1, 1], data_type="i32") for _ in range(2))
        options |= zip(("seq_len_q", "seq_len_kv"), lengths, strict=True)
        options["use_padding_mask"] = True
    o, *_ = g.sdpa(q, k, v, attn_scale=0.1, generate_stats=False, **options)
    o.set_output().set_dim(dims)
    return g


def packed(depth, queries=96, keys=96, *, drops=True):
    """Rows by cumulative lengths, heads that share."""
    g = dnnc.pygraph("packed", io_data_type="f16", intermediate_data_type="f32")
    q, k, v = (
        g.tensor([3, heads, rows, depth], [rows * heads * depth, depth, heads * depth, 1])
        for heads, rows in ((8, queries), (2, keys), (2, keys))
    )
    starts = [g.tensor([4, 1, 1, 1], data_type="i32") for _ in range(2)]
    drawn = (0.1, *(g.tensor([1, 1, 1, 1], data_type="i64") for _ in range(2)))
    o, stats = g.sdpa(
        q, k, v, attn_scale=0.1, generate_stats=True, use_causal_mask=True,
        dropout=drawn if drops else None, cu_seq_len_q=starts[0], cu_seq_len_kv=starts[1],
    )  # fmt: skip
    o.set_output().set_dim(q.get_dim()).set_stride(q.get_stride())
    stats.set_output().set_data_type("f32")
    return g


def fp8_with_amax(depth):
    g = dnnc.pygraph("fp8", io_data_type="FP8_E4M3", intermediate_data_type="f32")
    dims = [4, 16, 4096, depth]
    q, k, v = (g.tensor(dims) for _ in range(3))
    names = ("descale_q", "descale_k", "descale_v", "descale_s", "scale_s", "scale_o")
    numbers = {name: g.tensor([1, 1, 1, 1], data_type="f32") for name in names}
    o, stats, *largest = g.sdpa_fp8(
        q, k, v, **numbers, attn_scale=0.1, generate_stats=True, right_bound=0
    )
    o.set_output().set_dim(dims)
    stats.set_output().set_data_type("f32")
    for tensor in largest:
        tensor.set_output().set_data_type("f32")
    return g


def soft_cap(g, scores):
    return g.mul(g.tanh(g.mul(scores, 0.02)), 50.0)


def few_channels_of_bytes(taps, channels=64):
    """Channels first, which lanes load one by one."""
    g = dnnc.pygraph("bytes", io_data_type="i8", compute_data_type="i32")
    x, w = g.tensor([32, channels, 28, 28]), g.tensor([channels, 16, *taps])
    padding = [extent // 2 for extent in taps]
    g.conv_fprop(x, w, padding=padding).set_output().set_data_type("i32")
    return g


def statistics_of_one_channel():
    g = dnnc.pygraph("one", io_data_type="f16", intermediate_data_type="f32")
    x = g.tensor([32, 16, 7, 21], [2352, 1, 336, 16])
    y = g.conv_fprop(x, g.tensor([1, 16, 3, 3], [144, 1, 48, 16]), padding=[1, 1])
    for tensor in (y.set_output(), *g.genstats(y)):
        tensor.set_output()
    return g


def norm_gradients(columns):
    """Gradients of a layer norm, its scale's and its bias's."""
    g = dnnc.pygraph("gradients", io_data_type="bf16", intermediate_data_type="f32")
    dy, x = (g.tensor([4096, columns]) for _ in range(2))
    scale = g.tensor([1, columns], data_type="f32")
    rows = [g.tensor([4096, 1], data_type="f32") for _ in range(2)]
    dx, *sums = g.layernorm_backward(dy, x, scale, *rows)
    dx.set_output()
    for total in sums:
        total.set_output().set_data_type("f32")
    return g


DEFAULTS = {
    "dropout": (lambda: attention(128), "sm_90a"),
    "dropout, heads of 64": (
        lambda: attention(64, use_causal_mask=True, bias=True), "sm_90a"),
    "dropout, heads of 192": (lambda: attention(192, use_causal_mask=True), "sm_90a"),
    "dropout, heads of 224": (lambda: attention(224, lengths=True), "sm_90a"),
    "dropout, heads of 256": (
        lambda: attention(256, use_causal_mask=True, bias=True), "sm_90a"),
    "norm gradients of 16384 columns, scale in f32": (lambda: norm_gradients(16384), "sm_90a"),
    "norm gradients of 16400 columns": (lambda: norm_gradients(16400), "sm_90a"),
    "few packed queries, whose keys are split": (
        lambda: packed(256, queries=1, keys=8192, drops=False), "sm_80"),
    "fp8 and both amax": (lambda: fp8_with_amax(256), "sm_89"),
    "packed dropout, heads of 256": (lambda: packed(256), "sm_80"),
    "packed dropout, heads of 256 on Hopper": (lambda: packed(256), "sm_90a"),
    "soft-cap and bias": (
        lambda: attention(
            256, drops=False, use_causal_mask=True, bias=True, score_mod=soft_cap), "sm_90a"),
    "7x7 of bytes": (lambda: few_channels_of_bytes([7, 7]), "sm_80"),
    "5x9 of bytes": (lambda: few_channels_of_bytes([5, 9]), "sm_90"),
    "3x3 of bytes": (lambda: few_channels_of_bytes([3, 3]), "sm_80"),
    "statistics of one channel": (statistics_of_one_channel, "sm_80"),
}  # fmt: skip


SLOW = {
    "dropout, heads of 64", "dropout, heads of 224", "soft-cap and bias", "7x7 of bytes",
    "packed dropout, heads of 256 on Hopper",
}  # fmt: skip


@pytest.mark.rotating
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in DEFAULTS]
)
def test_what_is_chosen_by_default_spills_nothing(name):
    make, target = DEFAULTS[name]
    plan = dnnc.compile(make(), target)
    for program in plan.programs:
        for kernel in program.kernels:
            assert kernel.spill_store_bytes == kernel.spill_load_bytes == 0
