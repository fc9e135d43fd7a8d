"""`dnnc.torch.sdpa` on the CPU beside torch's own, and its gradients beside differences."""

import math

import pytest

torch = pytest.importorskip("torch")

from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

import dnnc  # noqa: E402
import dnnc.torch  # noqa: E402

pytestmark = pytest.mark.torch

HEADS, ROWS, COLUMNS = 4, 5, 7


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def tensors(*lead, heads=HEADS, dtype=torch.float64, last=(8, 8, 6)):
    sizes = zip((HEADS, heads, heads), (ROWS, COLUMNS, COLUMNS), last, strict=True)
    return [torch.randn(*lead, *size, dtype=dtype, requires_grad=True) for size in sizes]


def assert_as_torch(given, tolerance=1e-12, **options):
    ours = dnnc.torch.sdpa(*given, **options)
    theirs = scaled_dot_product_attention(*given, **options)
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    gradient = torch.randn_like(theirs)
    pairs = zip(*(torch.autograd.grad(o, given, gradient) for o in (ours, theirs)), strict=True)
    for own, wanted in pairs:
        torch.testing.assert_close(own, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"scale": 0.3},
        {"attn_mask": torch.tril(torch.ones(ROWS, COLUMNS, dtype=torch.bool), 1)},
        {"attn_mask": torch.linspace(-2, 2, COLUMNS, dtype=torch.float64)[None]},
        {"attn_mask": torch.ones(2, 1, ROWS, 1, dtype=torch.float64)},
    ],
    ids=["plain", "causal", "scale", "booleans", "columns", "batches"],
)
def test_as_torch(options):
    assert_as_torch(tensors(2), **options)


def test_heads_that_share_keys():
    assert_as_torch(tensors(2, heads=2), enable_gqa=True)


@pytest.mark.parametrize("lead", [(), (2, 1), (1, 2, 3)], ids=str)
def test_other_ranks(lead):
    assert_as_torch(tensors(*lead))


def test_heads_behind_rows():
    """Heads lie as a projection gives them: [B, S, H, D] in memory."""
    given = [t.transpose(-3, -2).contiguous().transpose(-3, -2) for t in tensors(2)]
    result = dnnc.torch.sdpa(*given)
    assert result.transpose(1, 2).is_contiguous()
    assert_as_torch([t.detach().requires_grad_() for t in given])


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 3e-2)], ids=str
)
def test_other_types(dtype, tolerance):
    assert_as_torch(tensors(2, dtype=dtype), tolerance)


def test_gradients_are_differences():
    bias = torch.randn(1, HEADS, 1, COLUMNS, dtype=torch.float64, requires_grad=True)

    def made(q, k, v, bias):
        return dnnc.torch.sdpa(q, k, v, bias, is_causal=True, window=3)

    assert torch.autograd.gradcheck(made, (*tensors(2), bias))


def test_gradients_of_dropout_are_differences():
    def made(*given):
        torch.manual_seed(1)
        return dnnc.torch.sdpa(*given, dropout_p=0.4)

    assert torch.autograd.gradcheck(made, tensors(1))


def test_dropout_draws_anew():
    q, k, v = tensors(2)
    first, second = (dnnc.torch.sdpa(q, k, v, dropout_p=0.5) for _ in range(2))
    assert not torch.equal(first, second)
    ones = torch.ones_like(v)
    kept = dnnc.torch.sdpa(torch.zeros_like(q), k, ones, dropout_p=0.5)[..., 0] * COLUMNS / 2
    torch.testing.assert_close(kept, kept.round())  # so many of the equal weights, each doubled


def test_rows_that_see_nothing_are_zeros():
    q, k, v = tensors(1)
    mask = torch.ones(ROWS, COLUMNS, dtype=torch.bool)
    mask[2] = False
    result = dnnc.torch.sdpa(q, k, v, mask)
    assert not result[:, :, 2].any()
    result.sum().backward()
    assert not q.grad[:, :, 2].any()
    assert torch.isfinite(torch.cat([t.grad.flatten() for t in (q, k, v)])).all()


def test_one_graph_for_each_kind_of_call(monkeypatch):
    from dnnc.torch import calls

    built = []
    graph = calls.Kind.graph
    monkeypatch.setattr(calls.Kind, "graph", lambda kind: built.append(kind) or graph(kind))
    calls._graph.cache_clear()
    for _ in range(2):
        dnnc.torch.sdpa(*tensors(2))
    assert len(built) == 1
    dnnc.torch.sdpa(*tensors(3))
    assert len(built) == 2


WRONG = {
    "types": lambda q, k, v: (q, k, v.float()),
    "ranks": lambda q, k, v: (q, k[0], v),
    "depth": lambda q, k, v: (q, k[..., :3], v),
    "columns": lambda q, k, v: (q, k, v[..., :3, :]),
    "heads": lambda q, k, v: (q, k[:, :3], v[:, :3]),
    "heads that divide, unasked": lambda q, k, v: (q, k[:, :2], v[:, :2]),
    "mask": lambda q, k, v: (q, k, v, torch.ones(3, 3)),
    "a mask of integers": lambda q, k, v: (q, k, v, torch.ones(ROWS, COLUMNS, dtype=torch.int32)),
    "no rows": lambda q, k, v: (q[:, :, :0], k, v),
    "probability": lambda q, k, v: (q, k, v, None, 1.0),
    "one row": lambda q, k, v: (q[0, 0], k[0, 0], v[0, 0]),
    "a list": lambda q, k, v: (q, k, v.tolist()),
    "a scale of text": lambda q, k, v: (q, k, v, None, 0.0, False, "1"),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_refusals(change):
    with pytest.raises(ValueError, match="sdpa") as caught:
        dnnc.torch.sdpa(*change(*tensors(2)))
    assert isinstance(caught.value, dnnc.DnncError)
    assert caught.value.supported


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("window", value) for value in (0, -1, 2.5, "3", True)),
        *(("dropout_p", value) for value in ("x", 1, -0.5, [0.1])),
        *(("scale", value) for value in ("x", [1], float("nan"))),
    ],
)
def test_arguments_that_can_not_be(name, value):
    with pytest.raises(dnnc.DnncError, match=f"sdpa: {name}="):
        dnnc.torch.sdpa(*tensors(2), **{name: value})


def test_errors_of_the_graph_name_the_line_of_the_call(monkeypatch):
    """The line is the caller's, not one of torch, which calls what builds the graph."""
    from dnnc.torch import attention

    monkeypatch.setattr(attention, "_verify", lambda *given: None)
    with pytest.raises(dnnc.DnncError, match=r"^BAD_PARAM: test_sdpa\.py:\d+: sdpa \(C8\)"):
        dnnc.torch.sdpa(*tensors(2), window=0)


def test_scale_is_that_of_the_depth():
    q, k, v = tensors(1)
    given = dnnc.torch.sdpa(q, k, v, scale=1 / math.sqrt(8))
    assert torch.equal(dnnc.torch.sdpa(q, k, v), given)
