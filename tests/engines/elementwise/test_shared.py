"""Costly functions of broadcast tensors: a thread's fragments lie where they are the same."""

import pytest

import dnnc
from tests.support.checked import check

REDUCED = "0f3F22F983"  # 2 / pi, by which the argument of a cosine and a sine is multiplied once


def rope(dims, batch, **attributes):
    g = dnnc.pygraph(io_data_type="bf16", compute_data_type="f32", intermediate_data_type="f32")
    width = attributes.get("rope_dim") or dims[3]
    angles = g.tensor([batch, 1, dims[2], width], data_type="f32")
    g.rope(g.tensor(dims), angles, **attributes).set_output()
    return g


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("dims", "batch", "attributes", "places", "reduced"),
    [
        ([2, 8, 3, 32], 2, {"rope_dim": 16, "output_scale": 0.5}, 8, 8),
        ([4, 1, 3, 32], 1, {}, 4, 8),  # of sequences
        ([1, 6, 3, 32], 1, {}, 2, 8),
        ([1, 8, 2, 24], 1, {}, 8, 16),  # halves are no whole fragments
        ([1, dnnc.Dim("heads", max=64, multiple_of=4), 3, 32], 1, {}, 4, 8),
        ([1, 8, dnnc.Dim("rows", max=64), 32], 1, {}, 8, 8),
    ],
)
def test_heads_share_cosines(dims, batch, attributes, places, reduced):
    sizes = {"heads": 12, "rows": 7}
    sizes = {n.name: sizes[n.name] for n in dims if isinstance(n, dnnc.Dim)}
    plan = check(
        rope(dims, batch, **attributes), sizes, target="sm_80", engine="pointwise",
        knobs={"LOAD_SIZE": 16, "ARRAY_SIZE_PER_THREAD": 8}, allowance=0.01,
    )  # fmt: skip
    ptx = plan.text(plan.programs[0].modules[0].ptx)
    assert (ptx.count("st.global.v4"), ptx.count(REDUCED)) == (places, reduced)
