"""Attention of no keys or no queries, on the device; and of torch's empty tensors, at address 0."""

import pytest

import dnnc
from tests.attention_graphs import Pattern
from tests.engines.attention.test_nothing import *  # noqa: F403

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("engine", "target"),
    [("sdpa_sm80", "sm_80"), pytest.param("sdpa_fwd_sm90", "sm_90a", marks=pytest.mark.sm90)],
)
def test_empty_tensors_of_torch(engine, target):
    g = Pattern(queries=70, keys=dnnc.Dim("Skv", min=0, max=300), depth=64).g
    plan = dnnc.load(dnnc.compile(g, target, engine=engine))
    q = torch.randn(1, 2, 70, 64, device="cuda", dtype=torch.bfloat16)
    for keys in (0, 33):
        k, v = (torch.randn(1, 2, keys, 64, device="cuda", dtype=q.dtype) for _ in range(2))
        o, stats = torch.full_like(q, 7.0), torch.full((1, 2, 70, 1), 7.0, device="cuda")
        pack = {"q": q, "k": k, "v": v, "o": o, "stats": stats}
        needed = plan.workspace_size({"Skv": keys})
        workspace = torch.empty(needed, dtype=torch.uint8, device="cuda") if needed else None
        plan.execute(pack, workspace)
        torch.cuda.synchronize()
        scores = q.double() @ k.double().transpose(2, 3) / 8
        exact = torch.softmax(scores, -1) @ v.double()
        torch.testing.assert_close(o.double(), exact, rtol=2e-2, atol=2e-2)
        torch.testing.assert_close(
            stats.double(), torch.logsumexp(scores, -1, keepdim=True), rtol=1e-4, atol=1e-4
        )
