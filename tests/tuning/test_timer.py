"""The device's timer, on the interpreter: what it binds, shares and frees; random values."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.dialect.reference import reference
from dnnc.interpreter.plans import element_places
from dnnc.options import Options
from dnnc.runtime import driver
from dnnc.tuning import DeviceTimer, autotune
from dnnc.tuning.race import Rules
from dnnc.tuning.values import of_plan, stored

from .fakes import CountingClock, ffn


def plans_of(graph, *choices):
    partition = " ".join(str(i) for i in range(len(graph.live_ops)))
    return [
        compile_graph(graph, "sm_80", Options(partition=partition, choices=text))
        for text in choices
    ]


def test_plans_of_a_graph_share_their_buffers(gpu):
    graph = ffn().graph.finalize()
    one, other = plans_of(graph, "fallback", "matmul_sm80:TILE_M=32:TILE_N=64")
    clock = CountingClock()
    with DeviceTimer(clock=clock) as timer:
        assert (timer.device, timer.driver, timer.l2) == ("an interpreted device", "13.0", "warm")
        first = timer.load(one, {"M": 3})
        held = set(gpu.live)
        second = timer.load(other, {"M": 3})
        assert gpu.live == held
        first(1)
        second(2)
        assert gpu.launches == 3
        timer.load(one, {"M": 5})
        assert len(gpu.live) == len(held)
    assert clock.is_closed
    assert not gpu.live


def test_what_it_times_computes_the_graph(gpu):
    """The values that plans run on are those that a seed gives; both plans agree."""
    graph = ffn().graph.finalize()
    results = []
    for plan in plans_of(graph, "fallback", "matmul_sm80:TILE_M=32:TILE_N=64"):
        with DeviceTimer(clock=CountingClock()) as timer:
            timer.load(plan, {"M": 3})(1)
            (output,) = (t for t in plan.tensors if t.role == "output")
            data = np.empty((1, 3, 64), np.float16)
            driver.download(data, timer._buffers.pack[output.uid])
            results.append(data)
    inputs = {
        uid: value.view(np.float16).reshape([n.evaluate({"M": 3}) for n in tensor.shape])
        for uid, value in of_plan(plan, {"M": 3})
        for tensor in graph.inputs
        if tensor.uid == uid
    }
    (wanted,) = reference(graph, inputs).values()
    for data in results:
        np.testing.assert_allclose(data.astype(float), wanted.astype(float), rtol=2e-3, atol=1e-2)


def test_the_whole_way(gpu):
    found = autotune(
        ffn(3), "sm_80", modes=["A"], most=2, timer=DeviceTimer(clock=CountingClock()),
        rules=Rules(rounds=1, warm_calls=1),
    )  # fmt: skip
    (entry,) = found.record.entries
    assert (entry.device, entry.seconds) == ("an interpreted device", 1.0)


# ---- values


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "f8E4M3FN", "f8E5M2"])
def test_floats_are_of_moderate_size(dtype):
    g = dnnc.pygraph("g", io_data_type=dtype, intermediate_data_type="FLOAT", target="sm_90")
    g.relu(g.tensor([3, 100], [128, 1])).set_output()
    (plan,) = plans_of(g.graph.finalize(), "pointwise") if "f8" not in dtype else [
        compile_graph(g.graph.finalize(), "sm_90", Options())
    ]  # fmt: skip
    values = dict(of_plan(plan, {}))[plan.tensors[0].uid]
    assert values.nbytes == (2 * 128 + 100) * dtypes.of(dtype).bits // 8
    floats = values.view(dtypes.of(dtype).numpy).astype(np.float64)
    assert np.isfinite(floats).all()
    assert 0.5 < np.abs(floats).max() <= 2.0
    assert floats.min() < -0.5
    assert len(set(floats)) > 8


def test_offsets_of_groups_suit_the_operation():
    """They lie where the strides say."""
    g = dnnc.pygraph("moe", io_data_type="HALF", intermediate_data_type="FLOAT")
    token, weight = g.tensor([1, 64, 32]), g.tensor([4, 32, 16])
    offsets = g.tensor([4, 1, 1], [2, 2, 1], data_type="INT32", name="offsets")
    g.moe_grouped_matmul(token, weight, offsets).set_output()
    plan = compile_graph(g.graph.finalize(), "sm_80")
    record = plan.tensor("offsets")
    data = dict(of_plan(plan, {}))[record.uid]
    places = element_places([4, 1, 1], [2, 2, 1])
    starts = data[places].ravel()
    assert starts[0] == 0
    assert (np.diff(starts) >= 0).all()
    assert starts[-1] <= 64
    assert data.size == 7


def test_bf16_needs_no_package():
    exact = np.array([1.0, -0.15625, 2.0, 0.0], np.float32)
    assert stored(exact, dtypes.bf16).tolist() == [0x3F80, 0xBE20, 0x4000, 0]
