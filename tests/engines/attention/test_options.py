"""Lengths of INT64, ALiBi with any bounds, statistics of 16 bits, pages without lengths."""

import numpy as np
import pytest

import dnnc
from dnnc.dialect.reference import reference
from tests.support.checked import check, random_inputs

KV = [("k", [6, 2, 4, 16]), ("v", [6, 2, 4, 16])]


@pytest.mark.in_turn
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


@pytest.mark.in_turn
def test_pages_without_lengths():
    g = dnnc.pygraph("pages", io_data_type="HALF", intermediate_data_type="FLOAT", target="sm_80")
    q, k, v = g.tensor([2, 4, 3, 16]), g.tensor([6, 2, 4, 16]), g.tensor([6, 2, 4, 16])
    tables = {
        f"paged_attention_{side}_table": g.tensor([2, 1, 2, 1], data_type="INT32") for side in "kv"
    }
    o, _ = g.sdpa(q, k, v, generate_stats=False, paged_attention_max_seq_len_kv=7, **tables)
    o.set_output()
    check(g, target="sm_80")


@pytest.mark.in_turn
@pytest.mark.parametrize("is_shared", [True, False])
def test_a_packed_page_table(is_shared):
    """Each sequence's pages follow those of the sequence before, in a table that is ragged."""

    def graph(is_packed):
        g = dnnc.pygraph("pages", io_data_type="HALF", intermediate_data_type="FLOAT")
        q, k, v = (g.tensor(d, name=n) for n, d in (("q", [2, 4, 3, 16]), *KV))
        kind = "INT64" if is_packed else "INT32"
        tables = [g.tensor([2, 1, 3, 1], data_type=kind, name=n) for n in ("of_k", "of_v")]
        tables[1] = tables[1 - is_shared]
        if is_packed:
            for table in dict.fromkeys(tables):
                table.set_ragged_offset(g.tensor([3, 1, 1, 1], data_type="INT32", name="first"))
        lengths = [g.tensor([2, 1, 1, 1], data_type="INT32", name=s) for s in ("rows", "keys")]
        o, _ = g.sdpa(
            q, k, v, generate_stats=False, use_padding_mask=True, seq_len_q=lengths[0],
            seq_len_kv=lengths[1], paged_attention_k_table=tables[0],
            paged_attention_v_table=tables[1], paged_attention_max_seq_len_kv=11,
        )  # fmt: skip
        o.set_output().set_name("o")
        g.validate()
        return g

    packed, whole = graph(True), graph(False)
    given = {t.name: x for t, x in zip(whole.graph.inputs,
             random_inputs(whole.graph.finalize(), {}).values(), strict=True)}  # fmt: skip
    given["rows"], given["keys"] = (np.reshape(n, (2, 1, 1, 1)) for n in ([3, 2], [5, 11]))
    wanted = dnnc.reference(whole, given)["o"]
    for name in ("of_k", "of_v"):
        if name in given:  # two pages of the first sequence, three of the second
            rows = given[name].reshape(2, 3)
            given[name] = np.reshape([*rows[0, :2], *rows[1], 0], (1, 1, 6, 1))
    inputs = {t.uid: given.get(t.name) for t in packed.graph.inputs}
    first = np.reshape([0, 2, 5], (3, 1, 1, 1))
    inputs = {uid: first if x is None else x for uid, x in inputs.items()}
    (found,) = reference(packed.graph.finalize(), inputs).values()
    np.testing.assert_array_equal(found, wanted)
    check(packed, inputs=inputs, target="sm_80")
