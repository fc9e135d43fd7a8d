"""Candidates of matmul_sm90: graphs whose shared memory is hard to count, and what is refused.

As code of "sm_90a".
"""

import pytest

import dnnc
from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.compiler import compile_graph
from dnnc.dialect.fusion import partition
from dnnc.engines import engine_named
from dnnc.engines.product.knobs_sm90 import across_tiles
from dnnc.options import Options
from dnnc.target import of

from .test_matmul_sm90 import new_graph, softmax


def experts(token_layout, residual_layout, weights):
    """Grouped products, of weights of 8 bits or not, with a residual."""
    g = new_graph(dtypes.bf16)
    strides = {"row": [96 * 64, 64, 1], "column": [96 * 64, 1, 96]}
    token = g.tensor([1, 96, 64], strides[token_layout])
    w = g.tensor([3, 64, 64], [64 * 64, 1, 64], data_type=weights)
    if weights != dtypes.bf16:
        w = g.mul(w, g.tensor([3, 1, 64])).set_data_type(dtypes.bf16)
    y = g.moe_grouped_matmul(token, w, g.tensor([3, 1, 1], data_type=dtypes.i32))
    g.add(y, g.tensor([1, 96, 64], strides[residual_layout])).set_output()
    return g


def rows_of(n, dtype):
    g = new_graph(dtype)
    c = g.matmul(g.tensor([1, 64, 128]), g.tensor([1, 128, n], [128 * n, 1, 128]))
    softmax(g, c, [1, 64, 1]).set_output().set_data_type(dtypes.bf16)
    return g


def scaled(m):
    g = new_graph(dtypes.f16)
    a = g.mul(g.tensor([1, m, 256]), g.tensor([1, 1, 256])).set_data_type(dtypes.f16)
    y = g.add(g.matmul(a, g.tensor([1, 256, 512])), g.tensor([1, m, 512]))
    g.gelu(y).set_output()
    return g


def residual(dtype, largest=False, again=False):
    """Beside it: a reduction of all, which stages no load; A, read again as a residual."""
    g = new_graph(dtypes.f16)
    a = g.tensor([1, 512, 512])
    y = g.matmul(a, g.tensor([1, 512, 512], [512 * 512, 1, 512]))
    y = g.add(g.add(y, a) if again else y, g.tensor([1, 512, 512], data_type=dtype))
    y = g.relu(y).set_output()
    if largest:
        g.reduction(y, "amax").set_dim([1, 1, 1]).set_output().set_data_type(dtypes.f32)
    return g


GRAPHS = {
    "residual": lambda: residual(dtypes.f32),
    "residual beside a reduction": lambda: residual(dtypes.f32, largest=True),
    "residual beside an operand": lambda: residual(dtypes.f16, again=True),
    **{
        f"experts {token} {residual} {weights}": lambda t=token, r=residual, w=weights: experts(
            t, r, w
        )
        for token in ("row", "column")
        for residual in ("row", "column")
        for weights in (dtypes.bf16, dtypes.i8)
    },
    "softmax": lambda: rows_of(700, dtypes.bf16),
    "softmax of fp8": lambda: rows_of(500, dtypes.f8e4m3),
    "scaled, few rows": lambda: scaled(16),
    "scaled": lambda: scaled(1024),
}


@pytest.mark.in_turn
def test_groups_side_by_side_with_residuals_fit_shared_memory():
    """Rows of their filters are a part of a panel, and stages smaller than with whole ones."""
    g = new_graph(dtypes.f16)
    dims = [8, 512, 28, 28]
    x = g.tensor([8, 256, 56, 56], [56 * 56 * 256, 1, 56 * 256, 256])
    y = g.conv_fprop(x, g.tensor([512, 16, 3, 3], [144, 1, 48, 16]), padding=[1, 1], stride=[2, 2])
    for _ in range(2):
        y = g.add(y, g.tensor(dims, [28 * 28 * 512, 1, 28 * 512, 512]))
    y.set_output()
    plan = compile_graph(g.graph.finalize(), "sm_90a", Options(engine="conv_sm90"))
    (step,) = plan.programs[0].variants[0].steps
    needed = plan.expression(step.launch.dynamic_smem_bytes).evaluate({})
    assert needed <= of("sm_90a").limits.smem_block_bytes


def test_tiles_fill_the_rounds_that_they_take():
    """4 x 32 and 5 x 24 tiles in one round of 132 SMs; listed tiles fill 128 of them as well."""
    target = of("sm_90a")
    assert across_tiles((777, 4096, 1), target) == ((128, 200),)
    assert across_tiles((389, 3000, 1), target) == ((128, 80),)
    assert across_tiles((1024, 4096, 1), target) == ()


def test_rows_that_no_tile_holds_are_refused_with_a_reason():
    engine, target = engine_named("matmul_sm90"), of("sm_90a")
    for n, dtype in ((600, dtypes.f8e4m3), (776, dtypes.bf16)):
        graph = rows_of(n, dtype).graph.finalize()
        (fusion,) = partition(graph, [graph.live_ops])
        (reason,) = engine.supports(fusion, target)
        assert "reductions of rows of up to" in reason.supported
        assert heuristics.best_config(graph, target).split_reason


@pytest.mark.in_turn
def test_a_workspace_limit_leaves_the_plan_that_fits():
    """In a plan of several configs, one may need more than the limit."""
    g = dnnc.pygraph("sums", io_data_type="f32", target="sm_90a")
    x = g.tensor([1, dnnc.Dim("M", max=1 << 20), 64])
    g.reduction(x, "add").set_dim([1, 1, 64]).set_output()
    g.validate()
    g.build_operation_graph()
    g.create_execution_plans([dnnc.heur_mode.A])
    g.deselect_workspace_greater_than(40000)
    g.build_plans()
    assert g.get_workspace_size() <= 40000
