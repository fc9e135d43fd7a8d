"""Gradients of attention leave out blocks that numbers, or bits of blocks, hide."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.options import Options
from tests.checked_gradient import run
from tests.support import machine
from tests.support.checked import check, random_inputs

CAUSAL = {"use_causal_mask": True}
REPEATED = {"use_deterministic_algorithm": True}


def documents(dims, kv_heads, numbered_heads, **options):
    """(a graph whose masks compare numbers of rows and columns, its tensors by name)."""
    batch, heads, rows, depth = dims
    g = dnnc.pygraph(
        io_data_type=dtypes.bf16, intermediate_data_type=dtypes.f32, compute_data_type=dtypes.f32
    )
    shared = [batch, kv_heads, rows, depth]
    shapes = {"q": dims, "k": shared, "v": shared, "o": dims, "do": dims}
    t = {name: g.tensor(list(shape), name=name) for name, shape in shapes.items()}
    t["stats"] = g.tensor([batch, heads, rows, 1], data_type=dtypes.f32, name="stats")
    t["own"] = g.tensor([batch, numbered_heads, rows, 1], data_type=dtypes.i32, name="own")
    t["other"] = g.tensor([batch, 1, 1, rows], data_type=dtypes.i32, name="other")

    def mask(g, s):
        is_same = g.cmp_eq(t["own"], t["other"], compute_data_type=dtypes.i32)
        return g.binary_select(s, float("-inf"), is_same.set_data_type(dtypes.i1))

    operands = [t[name] for name in ("q", "k", "v", "o", "do", "stats")]
    made = g.sdpa_backward(*operands, score_mod=mask, attn_scale=0.3, **options)
    for name, tensor in zip(("dq", "dk", "dv"), made, strict=True):
        t[name] = tensor.set_output().set_name(name).set_data_type(dtypes.bf16)
    return g, t


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("kv_heads", "numbered_heads", "options"),
    [(2, 1, {}), (1, 2, CAUSAL), (1, 1, {**CAUSAL, **REPEATED})],
    ids=["full", "causal_of_heads", "ordered"],
)
def test_documents(kv_heads, numbered_heads, options):
    """Queries of blocks that no key's document has are not read: they may be no numbers."""
    rows = 330
    g, t = documents((1, 2, rows, 64), kv_heads, numbered_heads, **options)
    graph = g.graph.finalize()
    given = random_inputs(graph, {})
    own = np.sort(np.random.default_rng(machine.current().seed).integers(0, 3, rows))
    own[128:192] = 7
    given[t["own"].uid] = np.broadcast_to(own[:, None], (1, numbered_heads, rows, 1)).copy()
    given[t["other"].uid] = np.where(own == 7, 1, own)[None, None, None]
    given[t["stats"].uid] = np.full((1, 2, rows, 1), 4.0, np.float32)
    knobs = {"TILE_M": 64, "SPLIT_H": 1}
    plan = check(g, engine="sdpa_bwd_sm90", target="sm_90a", knobs=knobs, inputs=given, slack=4.0)
    assert len(plan.programs[0].kernels) == 3
    given[t["q"].uid][:, :, 128:192] = np.nan
    found = machine.current().run(plan, given)
    assert all(np.isfinite(np.asarray(found[t[n].uid], np.float32)).all() for n in ("dk", "dv"))
    assert not found[t["dq"].uid][:, :, 128:192].any()


@pytest.mark.in_turn
@pytest.mark.parametrize("options", [{}, {**CAUSAL, **REPEATED}], ids=["full", "ordered"])
def test_block_masks(options):
    mask = np.array([[[[0b0011], [0b0110], [0b0000]], [[0b1000], [0b0001], [0b0101]]]], np.uint8)

    def arguments(g):
        return {"block_mask": g.tensor([1, 2, 3, 1], data_type=dtypes.ui8), **options}

    run(
        arguments, dtypes.f16, known={"block_mask": mask}, rows=384, columns=500, batch=1, heads=2,
        kv_heads=1, depth=64, value_depth=64, options=Options(knobs={"TILE_M": 64, "SPLIT_H": 1}),
    )  # fmt: skip
