"""Products of fp8 by matmul_sm80: `mma.sync` of fp8 on sm_89, two of f16 on sm_90."""

import pytest

import dnnc
from dnnc import dtypes
from dnnc.dialect.fusion import partition
from dnnc.engines.product.matmul_sm80 import MATMUL_SM80
from dnnc.target import of
from tests.support.checked import check

from .test_matmul_sm80 import depth_allowance, strides

E4, E5 = dtypes.f8e4m3, dtypes.f8e5m2
SMALL = {"TILE_M": 32, "TILE_N": 64, "TILEK": 64}
# A, B, whether each has contiguous columns.
OPERANDS = {
    "e4m3": (E4, E4, "row", "column"),
    "e4m3 by e5m2": (E4, E5, "column", "row"),
    "e5m2 by e4m3": (E5, E4, "row", "row"),
}
M = dnnc.Dim("M", max=4096)


def new_graph(compute="FLOAT"):
    return dnnc.pygraph("fp8", io_data_type=E4, compute_data_type=compute)


def product(operands, m, n, k, compute="FLOAT"):
    a_type, b_type, *layouts = OPERANDS[operands]
    g = new_graph(compute)
    a = g.tensor([1, m, k], strides(m, k, layouts[0]), data_type=a_type, name="a")
    b = g.tensor([1, k, n], strides(k, n, layouts[1]), data_type=b_type)
    g.matmul(a, b).set_output().set_data_type(dtypes.f32)
    return g


def instructions(plan):
    """[(name, its accumulators)] of the products of the first kernel."""
    text = plan.blobs[plan.programs[0].modules[0].ptx].decode()
    found = [part.split(";")[0] for part in text.split("mma.sync.aligned.")[1:]]
    return [(part.split()[0], part.rsplit("{", 1)[1].rstrip("}").split(", ")) for part in found]


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("target", ["sm_89", "sm_90"])
@pytest.mark.parametrize("operands", OPERANDS)
def test_types_and_layouts_of_odd_sizes(operands, target):
    g = product(operands, 37, 45, 101)
    plan = check(g, engine="matmul_sm80", target=target, knobs=SMALL,
                 allowance=depth_allowance(101))  # fmt: skip
    a, b = ("f16", "f16") if target == "sm_90" else (f"e{t.name[3]}m{t.name[5]}" for t in types(g))
    assert {name.split(".")[-3:-1] == [a, b] for name, _ in instructions(plan)} == {True}


def types(g):
    return [tensor.type for tensor in g.graph.inputs]


@pytest.mark.in_turn
def test_sums_are_apart_unless_fewer_bits_are_asked_for():
    for compute, is_apart in (("FLOAT", True), ("FAST_FLOAT_FOR_FP8", False)):
        g = product("e4m3", 40, 64, 256, compute)
        plan = check(g, engine="matmul_sm80", target="sm_89", knobs=SMALL,
                     allowance=depth_allowance(256))  # fmt: skip
        starts = {len(set(sums)) == 1 for _, sums in instructions(plan)}
        assert starts == {is_apart}, compute
        notes = plan.programs[0].fusions[0].notes
        assert ("REDUCED_PRECISION_REDUCTION" in notes) == (not is_apart)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("target", ["sm_89", "sm_90"])
def test_scales_and_amax_in_one_fusion(target):
    g = new_graph()
    a, b = g.tensor([2, M, 48]), g.tensor([2, 48, 40], strides(48, 40, "column"), data_type=E5)
    scales = [g.tensor([1, 1, 1], data_type=dtypes.f32) for _ in range(3)]
    c = g.mul(g.mul(g.matmul(a, b), scales[0]), scales[1]).set_data_type(dtypes.f32)
    g.reduction(c, "amax").set_dim([1, 1, 1]).set_output().set_data_type(dtypes.f32)
    g.mul(c, scales[2]).set_output()
    plan = check(g, {"M": 70}, target=target, allowance=depth_allowance(48))
    assert [fusion.engine for fusion in plan.programs[0].fusions] == ["matmul_sm80"]


def refused(g, target="sm_89", knobs=None):
    graph = g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    if knobs is not None:
        return {r.clause: r.what for r in MATMUL_SM80.legal(knobs, fusion, of(target))}
    return {r.clause: r.what for r in MATMUL_SM80.supports(fusion, of(target))}


def test_refusals():
    g = product("e4m3", 64, 64, 256)
    assert "on sm_86" in refused(g, "sm_86")["fp8"]
    deep = {**SMALL, "TILEK": 128, "STAGES": 2}
    assert "stages of 128" in refused(g, knobs=deep)["knobs"]
    assert not refused(g, "sm_90", deep)
    g = new_graph()
    g.matmul(g.tensor([1, 32, 32]), g.tensor([1, 32, 32], data_type=dtypes.f16)).set_output()
    assert "operand types" in refused(g)
