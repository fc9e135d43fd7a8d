"""The target where none is named: the device that is here, else any card."""

import logging

import pytest

import dnnc
from dnnc.frontends import default_target
from dnnc.target import of


def product(dtype="f16"):
    g = dnnc.pygraph("product", io_data_type=dtype, intermediate_data_type="f32")
    x, w = g.tensor([1, 64, 64], name="x"), g.tensor([1, 64, 64], name="w")
    g.matmul(x, w).set_output().set_name("y").set_data_type("f16")
    return g


def named(plan):
    return [program.target for program in plan.programs]


def test_a_device_that_is_here_decides(monkeypatch):
    monkeypatch.setattr(default_target, "_row_here", lambda: of("sm_90a"))
    assert default_target.single_target() == "sm_90a"
    assert named(dnnc.compile(product())) == ["sm_90a"]


def test_without_a_device_one_plan_is_for_any_card():
    assert default_target.single_target() == "sm_90a"
    plan = dnnc.compile(product())
    assert named(plan) == ["sm_80", "sm_90a"]
    oldest, hopper = plan.programs
    assert plan.blobs[oldest.modules[0].ptx].startswith(b"//")
    assert (oldest.exact, hopper.exact) == (False, True)


def attention_of_fp8():
    g = dnnc.pygraph("fp8", io_data_type="FP8_E4M3", intermediate_data_type="f32")
    q, k, v = (g.tensor([1, 2, 64, 64], name=name) for name in "qkv")
    scales = [g.tensor([1, 1, 1, 1], data_type="f32", name=f"s{i}") for i in range(6)]
    o, *_ = g.sdpa_fp8(q, k, v, *scales, attn_scale=0.125, generate_stats=False)
    o.set_output().set_name("o").set_data_type("f16")
    return g


def test_what_sm_80_lacks_is_compiled_for_sm_89(caplog):
    with caplog.at_level(logging.WARNING, "dnnc"):
        plan = dnnc.compile(attention_of_fp8())
    assert named(plan) == ["sm_89", "sm_90a"]
    (said,) = [r.getMessage() for r in caplog.records if "no engine for sm_80" in r.getMessage()]
    assert "fp8" in said


def test_what_nothing_runs_is_an_error_of_the_last_target():
    g = dnnc.pygraph("refused", io_data_type="f16", intermediate_data_type="f32")
    x = g.tensor([4, 4], [8, 2], name="x")
    g.cmp_gt(x, x).set_output().set_name("y").set_data_type("BOOLEAN").set_stride([8, 2])
    with pytest.raises(dnnc.cudnnGraphNotSupportedError, match="no engine for sm_90a"):
        dnnc.compile(g)
