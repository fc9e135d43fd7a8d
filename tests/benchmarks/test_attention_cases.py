"""Cases of attention, small and on the CPU: graphs and torch spellings give what is exact."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
from torch.nn import functional  # noqa: E402

from benchmarks.cases import kinds  # noqa: E402
from benchmarks.cases.attention import (  # noqa: E402
    MODIFIED,
    attention,
    attention_of,
    decoding,
    documents_of,
    few_queries,
    is_seen,
    listed,
    seen,
)
from benchmarks.cases.attention_blocks import mask_bytes, seen_blocks  # noqa: E402
from benchmarks.compilers import our_graph  # noqa: E402
from benchmarks.peers import attention as attention_peers  # noqa: E402
from benchmarks.peers import contestants, torch_columns  # noqa: E402
from dnnc.choosing.heuristics import configs  # noqa: E402
from dnnc.dialect.fusion import partition  # noqa: E402
from dnnc.engines.attention.fwd_sm90 import SDPA_FWD_SM90  # noqa: E402
from dnnc.target import of  # noqa: E402

from .test_cases import is_close  # noqa: E402
from .test_memory_cases import run_reference  # noqa: E402

pytestmark = pytest.mark.torch

SCORES = ("full", "causal", "causal_softcap2", "causal_documents20", "documents20", "causal_alibi",
          "causal_window9", "band1", "random50")  # fmt: skip


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch):
    monkeypatch.setattr(kinds, "DEVICE", "cpu")
    torch.manual_seed(0)


def small(scores="causal", **more):
    """Rows of which some are not computed exactly."""
    return attention(more.pop("dtype", "bf16"), scores, 2, 4, 130, 16, **more)


def are_close(case, made, exact):
    """made: o and stats of all rows."""
    for name, tensor in zip(exact, made, strict=True):
        wanted = exact[name]
        tensor = tensor.reshape(*wanted.shape[:2], case.p["q"], -1)[..., :: case.row_step, :]
        assert tensor.shape == wanted.shape
        assert is_close(case, tensor, wanted), name


SPELLED = [
    *({"scores": scores} for scores in SCORES),
    {"groups": 4}, {"layout": "bshd"}, {"dv": 24}, {"dtype": "fp16", "layout": "bshd", "groups": 2},
]  # fmt: skip


@pytest.mark.parametrize("spelled", SPELLED, ids=str)
def test_graph_is_the_case(spelled):
    case = small(**spelled)
    assert case.row_step > 1
    buffers = case.make()
    exact = case.exact(buffers)
    run_reference(case, buffers)
    are_close(case, (buffers["o"], buffers["stats"]), exact)


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_graph_of_fewer_queries_than_keys_is_the_case(layout):
    case = small("full", queries=1, groups=2, layout=layout)
    buffers = case.make()
    assert buffers["q"].shape == (2, 4, 1, 16)
    assert buffers["k"].shape == (2, 2, 130, 16)
    exact = case.exact(buffers)
    run_reference(case, buffers)
    are_close(case, (buffers["o"], buffers["stats"]), exact)


def test_exact_is_what_torch_computes():
    """All rows are built by the function that its users call."""
    case = small(groups=2)
    buffers = case.make()
    wide = {name: buffers[name].double() for name in "qkv"}
    o = functional.scaled_dot_product_attention(**_named(wide), is_causal=True, enable_gqa=True)
    wanted = case.exact(buffers)["o"]
    torch.testing.assert_close(o[..., :: case.row_step, :], wanted, rtol=1e-9, atol=1e-9)


def _named(tensors):
    return {"query": tensors["q"], "key": tensors["k"], "value": tensors["v"]}


@pytest.mark.parametrize("scores", ["causal_softcap2", "documents20", "causal_alibi", "band1"])
def test_flex_attention_is_the_case(scores):
    case = small(scores)
    buffers = case.make()
    are_close(case, attention_peers.flex(case, buffers)(buffers), case.exact(buffers))


def test_columns_of_torch():
    assert set(contestants.torch_columns(small(), [{}], None)) == {"torch", "torch_cudnn"}
    assert not contestants.torch_columns(small(MODIFIED[0]), [{}], None)
    assert torch_columns.inductor(small(), {}) is None


def test_the_engine_takes_all_as_one():
    for case in listed():
        graph, _ = our_graph(case)
        (fusion,) = partition(graph, [graph.live_ops])
        assert not SDPA_FWD_SM90.supports(fusion, of("sm_90a")), case.id


def test_few_queries_read_each_key_once():
    """Heads that share keys are rows of one tile, of one query up to 16 queries of 8 heads."""
    for case in [*decoding(), *few_queries()]:
        graph, _ = our_graph(case)
        (choice,) = next(iter(configs(graph, of("sm_90a")))).choices
        assert (choice.engine.name, choice.knobs["PACK_GQA"]) == ("sdpa_fwd_sm90", 1), case.id


@pytest.mark.parametrize("scores", SCORES)
def test_what_is_seen_is_what_is_counted(scores):
    """Half the diagonals may differ: everybody counts a causal mask without them."""
    case = small(scores)
    rows = torch.arange(130)
    count = int(is_seen(case.p, rows[:, None], rows, case.make()).sum())
    pairs = 2 * (16 + 16) * 2 * 4
    assert case.flops == pairs * seen(case.p)
    assert abs(count - seen(case.p)) <= 130 / 2


def test_masks_of_blocks_are_as_their_names_say():
    band, half = (attention("bf16", scores, 4, 16, 4096, 128) for scores in ("band8", "random50"))
    rows = [sum(row) for row in seen_blocks(band.p)]
    assert rows == [*range(1, 8), *[8] * 25]
    assert band.flops == 4 * 128 * 4 * 16 * 128 * 128 * sum(rows)
    assert {sum(row) for row in seen_blocks(half.p)} == {16}
    assert half.flops == listed_id(half.dense).flops / 2
    bytes_of_rows = mask_bytes(band.p)
    assert bytes_of_rows[0] == [1, 0, 0, 0]
    assert bytes_of_rows[9] == [0b11111100, 0b11, 0, 0]


def listed_id(id_):
    (found,) = (case for case in listed() if case.id == id_)
    return found


def test_documents_are_as_long_as_their_name_says():
    for s in (4096, 16384):
        lengths = documents_of(s, 1024)
        assert sum(lengths) == s
        assert len(lengths) > 1
        assert all(1024 <= length <= 3 * 1024 for length in lengths)


def test_what_is_counted():
    case = attention_of("attention/bf16/causal/4x16x4096-d192v128/gqa8/bshd")
    assert case.flops == 2 * (192 + 128) * 4 * 16 * 4096 * 4096 / 2
    tensors = 16 * 192 + 2 * 192 + 2 * 128 + 16 * 128
    assert case.bytes == 4 * 4096 * (2 * tensors + 4 * 16)
    assert math.isclose(case.rate(1e-3), case.flops / 1e9)


def test_what_is_counted_of_one_query():
    case = attention_of("attention/bf16/full/2x32x4096-d128/gqa8/q1")
    assert case.bytes == 2 * (2 * (2 * 4 * 4096 * 128 + 2 * 32 * 128) + 4 * 32)
    assert case.unit == "GB/s"
    assert math.isclose(case.rate(1e-3), case.bytes / 1e6)


@pytest.mark.parametrize(
    "id_",
    [
        "bf16/full/4x16x4096",
        "fp32/full/1x1x64-d64",
        "bf16/full_causal/1x1x64-d64",
        "bf16/causal_softcap/1x1x64-d64",
        "bf16/softcap5_softcap5/1x1x64-d64",
        "bf16/window8/1x1x64-d64",
        "bf16/full/1x1x64-d64v64",
        "bf16/full/1x3x64-d64/gqa2",
        "bf16/full/1x1x64-d64/sbhd",
        "bf16/full/1x1x64-d64/q64",
        "bf16/causal/1x1x64-d64/q1",
        "bf16/causal_band2/1x1x512-d64",
    ],
)
def test_other_ids_are_errors(id_):
    with pytest.raises(ValueError, match="attention"):
        attention_of(f"attention/{id_}")
