"""Lengths of INT64, ALiBi with any bounds, statistics of 16 bits, pages without lengths."""

import pytest

import dnnc
from tests.support.checked import check


@pytest.mark.parametrize("target", [pytest.param("sm_90a", marks=pytest.mark.sm90), "sm_80"])
def test_lengths_of_int64_alibi_without_a_bound_and_statistics_of_bf16(target):
    """All in one kernel."""
    g = dnnc.pygraph("options", io_data_type="HALF", intermediate_data_type="FLOAT", target=target)
    q, k, v = (g.tensor([2, 4, 72, 64]) for _ in "qkv")
    given = {
        name: g.tensor([2, 1, 1, 1], data_type="INT64") for name in ("seq_len_q", "seq_len_kv")
    }
    o, stats = g.sdpa(
        q, k, v, generate_stats=True, use_alibi_mask=True, use_padding_mask=True, **given
    )  # fmt: skip
    o.set_output()
    stats.set_output().set_data_type("BFLOAT16")
    plan = check(g, target=target)
    assert len(plan.programs[0].kernels) == 1


def test_pages_without_lengths():
    g = dnnc.pygraph("pages", io_data_type="HALF", intermediate_data_type="FLOAT", target="sm_80")
    q, k, v = g.tensor([2, 4, 3, 16]), g.tensor([6, 2, 4, 16]), g.tensor([6, 2, 4, 16])
    tables = {
        f"paged_attention_{side}_table": g.tensor([2, 1, 2, 1], data_type="INT32") for side in "kv"
    }
    o, _ = g.sdpa(q, k, v, generate_stats=False, paged_attention_max_seq_len_kv=7, **tables)
    o.set_output()
    check(g, target="sm_80")
