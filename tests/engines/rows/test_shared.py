"""Rows of engine rows that warps share, of a block or a cluster: they meet once a row."""

import re

import numpy as np
import pytest

from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.engines.rows.choice import RowsChoice
from dnnc.engines.rows.shared_layout import SharedLayout
from dnnc.engines.rows.tiling import tiling_of
from dnnc.options import Options
from dnnc.target import of
from tests.support import machine, multiprocessors
from tests.support.checked import random_inputs

from .test_engine import SMALL, layernorm, new_graph, run, softmax, whole

ACROSS = pytest.mark.exchange  # of totals between the blocks of a cluster
SHARED = {**SMALL, "CTA_COUNT": 1, "STAGES": 2, "KERNEL_CFG": 2, "TILE_ROWS": 1}


def knobs_of(threads, held, blocks, **more):
    rows = max(1, 128 // threads)
    sizes = {"TILE_COLS": threads, "TILE_ROWS": rows, "ARRAY_SIZE_PER_THREAD": held}
    return {**SHARED, **sizes, "TILE_CGA": blocks, **more}


def norm_of_rows(rows, columns, io):
    """With statistics, of rows to each of which a number is added."""
    g = new_graph(io)
    x, scale, bias = g.tensor([rows, columns]), g.tensor([1, columns]), g.tensor([1, columns])
    moved = g.add(x, g.tensor([rows, 1], data_type=dtypes.f32))
    results = g.layernorm("TRAINING", moved, scale, bias, g.tensor_scalar(1e-3))
    for tensor in results:
        tensor.set_output()
    results[0].set_data_type(io)
    return g


def special_rows(g, rows):
    """Inputs: rows far from 0, of one value, with an element far from all others, with NaN, inf."""
    inputs = random_inputs(g.graph.finalize(), {})
    x, added = inputs[1], inputs[4]
    added[:] = np.linspace(-2.0, 2.0, rows)[:, None]
    added[1] = 1e4
    x[2] = 0.375
    x[3, 0] = 1e4
    x[4, 7] = np.inf
    x[5, -1] = np.nan
    return inputs


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("columns", "io", "threads", "held", "blocks"),
    [
        (1024, dtypes.bf16, 128, 8, 1),
        pytest.param(2048, dtypes.bf16, 128, 8, 2, marks=ACROSS),
        pytest.param(1560, dtypes.f16, 64, 8, 4, marks=ACROSS),
        pytest.param(1000, dtypes.f32, 64, 8, 2, marks=ACROSS),
    ],
    ids=str,
)
def test_norms_with_statistics(columns, io, threads, held, blocks, monkeypatch):
    """An odd number of rows; of the ragged ones some warps have a part, or nothing."""
    rows = 2 * multiprocessors.few(monkeypatch, 5) + 1
    g = norm_of_rows(rows, columns, io)
    knobs = knobs_of(threads, held, blocks)
    with np.errstate(invalid="ignore"):
        run(g, inputs=special_rows(g, rows), knobs=knobs, allowance=1e-3)


@pytest.mark.in_turn
@ACROSS
def test_variances_are_as_if_their_elements_were_gone_through_again(monkeypatch):
    """To f32's accuracy of the mean, of rows whose deviation is a few units of their elements."""
    multiprocessors.few(monkeypatch, 5)
    graph = norm_of_rows(5, 1000, dtypes.f32).graph.finalize()
    inputs = random_inputs(graph, {})
    rng = np.random.default_rng(3)
    deviation = np.array([1.0, 0.1, 1e-2, 1e-2, 0.0])
    values = np.array([1e4, 1e4, 1e4, -300.0, 12345.678])
    x = values[:, None] + deviation[:, None] * rng.standard_normal((5, 1000))
    inputs[1], inputs[4] = x.astype(np.float32), np.zeros((5, 1), np.float32)
    knobs = tuple(knobs_of(64, 8, 2).items())
    plan = compile_graph(graph, "sm_90a", Options(engine="rows", knobs=knobs))
    found = machine.current().run(plan, inputs)[9].reshape(-1)  # 1 / sqrt(variance + 1e-3)
    variance = np.var(inputs[1].astype(np.float64), axis=1)
    np.testing.assert_allclose(
        found.astype(np.float64) ** -2 - 1e-3, variance, rtol=2e-5, atol=1e-6
    )


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("blocks", [1, pytest.param(4, marks=ACROSS)])
def test_results_repeat_bit_for_bit(blocks, monkeypatch):
    """In whatever order warps run and their parts arrive."""
    rows = multiprocessors.few(monkeypatch, 5)
    graph = norm_of_rows(rows, 1560, dtypes.f16).graph.finalize()
    knobs = tuple(knobs_of(64, 32 // blocks, blocks).items())
    plan = compile_graph(graph, "sm_90a", Options(engine="rows", knobs=knobs))
    inputs = random_inputs(graph, {})
    first, second = (machine.current().run(plan, inputs, seed=seed) for seed in (1, 2))
    for uid in first:
        np.testing.assert_array_equal(first[uid], second[uid])


def ptx_of(g, knobs):
    options = Options(engine="rows", knobs=tuple(knobs.items()))
    plan = compile_graph(g.graph.finalize(), "sm_90a", options)
    return plan, plan.blobs[plan.programs[0].modules[0].ptx].decode()


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("build", "meetings"), [(layernorm, 1), (lambda r, c: softmax([r, c], [1]), 2)]
)
@pytest.mark.parametrize("blocks", [1, 4])
def test_meetings_of_a_row(build, meetings, blocks):
    """A barrier in each of four slots: of a norm the mean and the squares together.

    Nobody waits until what was stored to global memory is seen by the cluster, but at the ends.
    """
    threads, held = (128, 16) if blocks == 1 else (64, 8)
    _, ptx = ptx_of(build(64, 2048), knobs_of(threads, held, blocks))
    assert set(re.findall(r"level(\d)_barriers", ptx)) == set(map(str, range(meetings)))
    assert ptx.count("barrier.cluster.arrive") == (2 if blocks > 1 else 0)
    assert "arrive.release.cluster" not in ptx
    assert "acquire.cluster" not in ptx
    assert ("st.async" in ptx) == (blocks > 1)


def gradient_of_rows(rows, columns):
    g = new_graph(dtypes.bf16)
    dy, x, scale = (g.tensor([n, columns]) for n in (rows, rows, 1))
    mean, inverse = (g.tensor([rows, 1], data_type=dtypes.f32) for _ in range(2))
    for tensor in g.layernorm_backward(dy, x, scale, mean, inverse):
        tensor.set_output()
    return g


@pytest.mark.in_turn
@pytest.mark.registers
def test_shared_memory_is_what_legal_counts():
    for g, blocks in (
        (norm_of_rows(64, 2048, dtypes.bf16), 2),
        (softmax([64, 2048], [1]), 4),
        (gradient_of_rows(64, 1800), 1),
    ):
        knobs = knobs_of(64, 32 // blocks, blocks)
        plan, _ = ptx_of(g, knobs)
        kernel = plan.programs[0].kernels[0]
        layout = SharedLayout(tiling_of(whole(g), RowsChoice.of(knobs), of("sm_90a")))
        step = plan.programs[0].variants[0].steps[0]
        dynamic = int(step.launch.dynamic_smem_bytes)
        assert dynamic == layout.dynamic_bytes
        assert kernel.static_smem_bytes + dynamic == layout.assembled_bytes > dynamic


@pytest.mark.in_turn
@pytest.mark.parametrize(("threads", "held"), [(512, 32), (256, 64)])
@pytest.mark.registers
def test_norms_of_65536_elements_spill_nothing(threads, held):
    g = new_graph(dtypes.bf16)
    x, scale, bias = g.tensor([8192, 65536]), g.tensor([1, 65536]), g.tensor([1, 65536])
    for tensor in g.layernorm("TRAINING", x, scale, bias, g.tensor_scalar(1e-5)):
        tensor.set_output()
    plan, _ = ptx_of(g, {**knobs_of(threads, held, 4), "STAGES": 3})
    (kernel,) = plan.programs[0].kernels
    assert (kernel.spill_store_bytes, kernel.spill_load_bytes, kernel.local_bytes) == (0, 0, 0)
    assert kernel.registers * kernel.threads <= 65536


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("columns", "threads", "held", "blocks"),
    [
        (16384, 512, 32, 1),
        (65536, 512, 32, 4),
        # Counts of elements that are no powers of two, and rows that end within a fragment.
        (12288, 256, 64, 1),
        (15000, 512, 32, 1),
        (100000, 256, 64, 8),
    ],
)
@pytest.mark.registers
def test_gradients_of_long_norms_spill_nothing(columns, threads, held, blocks):
    g, knobs = gradient_of_rows(8192, columns), {**knobs_of(threads, held, blocks), "STAGES": 3}
    plan, ptx = ptx_of(g, knobs)
    kernel = plan.programs[0].kernels[0]
    assert (kernel.spill_store_bytes, kernel.spill_load_bytes, kernel.local_bytes) == (0, 0, 0)
    assert set(re.findall(r"level(\d)_barriers", ptx)) == {"0"}  # both sums in one meeting
