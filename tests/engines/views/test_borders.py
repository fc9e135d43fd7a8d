"""Views around products: no kernels of their own, and the reference's numbers."""

import pytest

import dnnc
from dnnc import target as targets
from dnnc.choosing import heuristics
from dnnc.dialect.tensor import packed_strides
from tests.support.checked import check

HALVES = {"io_data_type": "f16", "intermediate_data_type": "f16", "compute_data_type": "f32"}


def reshaped(g, x, dims):
    y = g.reshape(x, reshape_mode=dnnc.reshape_mode.LOGICAL)
    return y.set_dim(dims).set_stride(list(packed_strides(dims)))


def linear(g, x, depth, columns, *, bias=True):
    y = g.matmul(x, g.tensor([1, depth, columns], [depth * columns, 1, depth]))
    return g.bias(y, g.tensor([1, 1, columns])) if bias else y


def heads(g, x, batch, tokens, count, size):
    return g.transpose(reshaped(g, x, [batch, tokens, count, size]), [0, 2, 1, 3])


def columns_of(g, x, rows, first, end):
    return g.slice(x, [slice(0, 1), slice(0, rows), slice(first, end)])


def fusions(g, target="sm_90a"):
    config = heuristics.best_config(g.graph.finalize(), targets.of(target))
    return [choice.engine.name for choice in config.choices]


def engines_of(plan):
    return [fusion.engine for fusion in plan.programs[0].fusions]


def maps_of(plan):
    """Tensors that TMA moves in a plan of one launch."""
    (step,) = plan.programs[0].variants[0].steps
    maps = (arg.tensor_map for arg in step.launch.args)
    return {(m.uid, m.offset) for m in maps if m}


# ---- products


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_heads_that_share_keys_are_stored_where_they_lie(target):
    g = dnnc.pygraph(**HALVES)
    g.matmul(g.tensor([2, 8, 24, 16]), g.tensor([2, 2, 16, 40])).set_output()
    assert len(engines_of(check(g, target=target))) == 1


@pytest.mark.parametrize(("target", "columns"), [("sm_90a", 56), ("sm_80", 37)])
def test_a_residual_behind_a_reshape(target, columns):
    g = dnnc.pygraph(**HALVES)
    y = linear(g, g.tensor([1, 39, 32]), 32, columns)
    y = g.add(reshaped(g, y, [3, 13, columns]), g.tensor([3, 13, columns]))
    g.transpose(g.relu(y), [2, 0, 1]).set_output().set_stride([40, 13, 1])
    assert engines_of(check(g, target=target)) == [f"matmul_{target.replace('_', '')[:4]}"]


@pytest.mark.in_turn
def test_any_batch_of_transposed_rows():
    batch = dnnc.Dim("batch", max=64)
    g = dnnc.pygraph(**HALVES)
    x = g.transpose(g.tensor([batch, 24, 16]), [0, 2, 1])
    y = reshaped(g, linear(g, x, 24, 40), [batch * 16, 1, 40])
    g.transpose(y, [1, 0, 2]).set_output()
    plan = check(g, {"batch": 1}, target="sm_90a")
    assert engines_of(plan) == ["matmul_sm90"]
    check(g, {"batch": 3}, plan=plan)


def test_a_part_that_begins_inside_16_bytes():
    g = dnnc.pygraph(**HALVES)
    x = g.slice(g.tensor([1, 20, 40]), [slice(0, 1), slice(0, 20), slice(3, 35)])
    g.matmul(x, g.tensor([1, 32, 24])).set_output()
    for target in ("sm_90a", "sm_80"):
        assert len(engines_of(check(g, target=target))) == 1


# Views change the order in which a fusion reads its inputs.
PLAIN_TILES = {"SWAP_AB": 0, "TILE_M": 64, "TILE_N": 64}


def test_raw_tiles_beside_a_transposed_tensor():
    g = dnnc.pygraph(**HALVES)
    transposed = g.transpose(g.tensor([1, 40, 48], data_type="i64"), [0, 2, 1])
    b = g.min(g.tensor([1, 48, 40]), transposed)
    g.matmul(g.relu(g.tensor([1, 24, 48])), b).set_output()
    assert engines_of(check(g, target="sm_90a", knobs=PLAIN_TILES)) == ["matmul_sm90"]


def with_a_transposed_residual(g):
    residual = g.transpose(g.tensor([24, 1, 40]), [1, 0, 2])
    return g.add(g.matmul(g.tensor([1, 24, 16]), g.tensor([1, 16, 40])), residual)


def with_parts_of_one_tensor(g):
    x = g.tensor([1, 24, 64])
    left, right = (columns_of(g, x, 24, first, first + 32) for first in (0, 32))
    return g.add(g.matmul(left, g.tensor([1, 32, 32])), right)


@pytest.mark.parametrize("build", [with_a_transposed_residual, with_parts_of_one_tensor])
def test_residuals_that_views_give_come_by_tma(build):
    g = dnnc.pygraph(**HALVES)
    build(g).set_output()
    plan = check(g, target="sm_90a", knobs=PLAIN_TILES)
    assert len(maps_of(plan)) == 4  # A, B, the residual, the output


def test_an_output_and_a_view_of_it():
    g = dnnc.pygraph(**HALVES)
    y = linear(g, g.tensor([2, 24, 16]), 16, 40).set_output()
    g.transpose(y, [0, 2, 1]).set_output().set_stride([24 * 40, 24, 1])
    check(g, target="sm_90a")


def test_neighbours_in_memory_are_neighbours_in_a_tile():
    """Batches that lie side by side would be stored element by element."""
    g = dnnc.pygraph(**HALVES)
    y = g.matmul(g.tensor([64, 256, 256]), g.tensor([1, 256, 256]))
    g.transpose(y, [1, 2, 0]).set_output().set_stride([256 * 64, 64, 1])
    assert fusions(g) == ["matmul_sm90", "transpose"]


@pytest.mark.in_turn
def test_images_with_channels_last_in_dims():
    def graph(n, size, c, k):
        g = dnnc.pygraph(**HALVES)
        x = g.transpose(g.tensor([n, size, size + 1, c]), [0, 3, 1, 2])
        w = g.tensor([k, c, 3, 3], [9 * c, 1, 3 * c, c])
        y = g.conv_fprop(
            x, w, pre_padding=[1, 1], post_padding=[1, 1], stride=[1, 1], dilation=[1, 1]
        )
        y = g.transpose(g.bias(y, g.tensor([1, k, 1, 1])), [0, 2, 3, 1])
        g.add(y, g.tensor([n, size, size + 1, k])).set_output()
        return g

    assert fusions(graph(16, 56, 64, 64)) == ["conv_sm90"]
    assert engines_of(check(graph(2, 5, 16, 24), target="sm_80")) == ["conv_sm80"]


# ---- attention


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_queries_keys_and_values_of_one_product(target):
    batch, tokens, count, size = 2, 24, 2, 32
    hidden, rows = count * size, batch * tokens
    g = dnnc.pygraph(**HALVES)
    packed = linear(g, g.tensor([1, rows, 32]), 32, 3 * hidden)
    parts = [columns_of(g, packed, rows, i * hidden, (i + 1) * hidden) for i in range(3)]
    q, k, v = (heads(g, part, batch, tokens, count, size) for part in parts)
    o, _ = g.sdpa(q, k, v, attn_scale=0.2, generate_stats=False)
    o = reshaped(g, g.transpose(o, [0, 2, 1, 3]), [1, rows, hidden])
    o.set_output()
    names = engines_of(check(g, target=target, allowance=0.01))
    assert len(names) == 2, names
    assert names[1].startswith("sdpa")


def layer_norm(g, x, hidden):
    phase = dnnc.norm_forward_phase.INFERENCE
    scale, bias = (g.tensor([1, 1, hidden]) for _ in range(2))
    return g.layernorm(phase, x, scale, bias, g.tensor_scalar(1e-5))[0]


def rms_norm(g, x, hidden):
    phase = dnnc.norm_forward_phase.INFERENCE
    return g.rmsnorm(phase, x, g.tensor([1, 1, hidden]), None, g.tensor_scalar(1e-5))[0]


@pytest.mark.in_turn
def test_a_layer_of_bert_is_nine_kernels():
    batch, tokens, count, size, inner = 8, 128, 16, 64, 4096
    hidden, rows = count * size, batch * tokens
    g = dnnc.pygraph(**HALVES)
    x = g.tensor([1, rows, hidden])
    q, k, v = (heads(g, linear(g, x, hidden, hidden), batch, tokens, count, size) for _ in range(3))
    o, _ = g.sdpa(q, k, v, attn_scale=size**-0.5, generate_stats=False)
    o = reshaped(g, g.transpose(o, [0, 2, 1, 3]), [1, rows, hidden])
    y = layer_norm(g, g.add(linear(g, o, hidden, hidden), x), hidden)
    z = linear(g, g.gelu(linear(g, y, hidden, inner)), inner, hidden)
    layer_norm(g, g.add(z, y), hidden).set_output()
    assert fusions(g) == [
        *["matmul_sm90"] * 3, "sdpa_fwd_sm90", "matmul_sm90", "rows", *["matmul_sm90"] * 2, "rows",
    ]  # fmt: skip
    assert len(fusions(g, "sm_80")) == 9


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_a_norm_behind_a_product_is_two_launches(target):
    """The sum of a row that a tile does not hold is left to the norm's kernel: at the product's
    exit it would take partials, and a launch that combines them."""
    g = dnnc.pygraph(**HALVES)
    y = g.add(linear(g, g.tensor([1, 24, 32]), 32, 1024), g.tensor([1, 24, 1024]))
    layer_norm(g, y, 1024).set_output()
    plan = check(g, target=target, allowance=0.01)
    assert [name.split("_")[0] for name in engines_of(plan)] == ["matmul", "rows"]
    assert len(plan.programs[0].variants[0].steps) == 2


def test_row_sums_that_a_graph_asks_for_are_at_the_exit():
    g = dnnc.pygraph(**HALVES)
    y = linear(g, g.tensor([1, 512, 256]), 256, 1024).set_output()
    total = g.reduction(y, mode=dnnc.reduction_mode.ADD).set_dim([1, 512, 1]).set_output()
    total.set_stride([512, 1, 1]).set_data_type("FLOAT")
    assert fusions(g) == ["matmul_sm90"]


def rotated(g, x, dims, cos, sin):
    half = dims[3] // 2
    low, high = (
        g.slice(x, [*(slice(0, n) for n in dims[:3]), slice(at, at + half)]) for at in (0, half)
    )
    first = g.sub(g.mul(low, cos), g.mul(high, sin))
    return g.concatenate([first, g.add(g.mul(high, cos), g.mul(low, sin))], axis=3)


@pytest.mark.in_turn
def test_a_layer_of_llama_copies_no_heads():
    batch, tokens, count, shared, size, inner = 2, 512, 16, 4, 64, 2816
    hidden, rows = count * size, batch * tokens
    g = dnnc.pygraph(**HALVES)
    x = g.tensor([1, rows, hidden])
    cos, sin = (g.tensor([1, 1, tokens, size // 2]) for _ in range(2))
    n = rms_norm(g, x, hidden)
    q, k, v = (
        heads(g, linear(g, n, hidden, own * size, bias=False), batch, tokens, own, size)
        for own in (count, shared, shared)
    )
    q = rotated(g, q, [batch, count, tokens, size], cos, sin)
    k = rotated(g, k, [batch, shared, tokens, size], cos, sin)
    o, _ = g.sdpa(q, k, v, attn_scale=size**-0.5, use_causal_mask=True, generate_stats=False)
    o = reshaped(g, g.transpose(o, [0, 2, 1, 3]), [1, rows, hidden])
    y = g.add(linear(g, o, hidden, hidden, bias=False), x)
    n = rms_norm(g, y, hidden)
    gate, up = (linear(g, n, hidden, inner, bias=False) for _ in range(2))
    g.add(linear(g, g.mul(g.swish(gate), up), inner, hidden, bias=False), y).set_output()
    names = fusions(g)
    assert len(names) == 11, names
    assert names.count("rows") == 2  # what is squared and added up is left to the norms' kernels
    assert names.count("pointwise") == 1  # the rotation of keys; attention has that of queries


def parts_of_a_product(tokens, size, counts, *, is_flat=True, depth=16):
    """Queries, keys and values of some heads each, [B, H, S, D]."""
    batch, g = 2, dnnc.pygraph(**HALVES)
    rows = batch * tokens
    x = g.tensor([1, rows, depth] if is_flat else [batch, tokens, depth])
    packed = linear(g, x, depth, sum(counts) * size)
    for i, count in enumerate(counts):
        first = sum(counts[:i]) * size
        part = g.slice(packed, [slice(None), slice(None), slice(first, first + count * size)])
        heads(g, part, batch, tokens, count, size).set_output().set_stride(
            list(packed_strides([batch, count, tokens, size]))
        )
    return g


# Graphs, and how many of their outputs leave by TMA.
PARTS = [
    (lambda: parts_of_a_product(64, 64, (2, 1)), 2),
    (lambda: parts_of_a_product(40, 64, (2, 1, 1), is_flat=False), 3),
    (lambda: parts_of_a_product(40, 32, (2, 1)), 0),  # a tile has rows of two sequences
    (lambda: parts_of_a_product(20, 4, (2, 4)), 0),  # heads of 8 bytes
]


@pytest.mark.rotating
@pytest.mark.parametrize(("graph", "moved"), PARTS)
def test_outputs_that_are_parts_of_a_product(graph, moved):
    plan = check(graph(), target="sm_90a", knobs=PLAIN_TILES)
    assert len(maps_of(plan)) == 2 + moved


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(("graph", "moved"), PARTS)
def test_parts_of_a_swapped_product(graph, moved):
    plan = check(graph(), target="sm_90a", knobs={"SWAP_AB": 1, "TILE_M": 128, "TILE_N": 128})
    assert len(maps_of(plan)) == 2 + moved


@pytest.mark.in_turn
def test_outputs_that_are_parts_of_a_product_on_ampere():
    plan = check(parts_of_a_product(20, 24, (2, 1, 1)), target="sm_80")
    assert engines_of(plan) == ["matmul_sm80"]


def test_a_result_and_parts_of_it():
    g = dnnc.pygraph(**HALVES)
    y = linear(g, g.tensor([1, 24, 16]), 16, 48).set_output()
    for first in (0, 8):
        columns_of(g, y, 24, first, first + 40).set_output().set_stride([24 * 40, 40, 1])
    assert engines_of(check(g, target="sm_80")) == ["matmul_sm80"]
