"""Descriptors on a device: plans and the page's example, executed by the descriptors' own call."""

import pytest

import dnnc
from dnnc import backend as b
from tests.backend.building import D, heuristics, plan_of
from tests.backend.test_docs import CODE
from tests.backend.test_plans import (
    TOKENS,
    ffn,
    override,
    pack,
    test_a_graph_that_needs_several_engines_is_one_config_of_each_mode,
    test_a_plan_is_text_and_the_text_a_plan,
    test_a_plan_of_sizes_that_come_later,
    test_factors_scale_what_they_belong_to,
    test_matmul_bias_gelu,
)
from tests.backend.test_use_cases import GROUPED, PACKED, convolved
from tests.support import device

__all__ = [
    "test_a_graph_that_needs_several_engines_is_one_config_of_each_mode",
    "test_a_plan_is_text_and_the_text_a_plan",
    "test_a_plan_of_sizes_that_come_later",
    "test_factors_scale_what_they_belong_to",
    "test_matmul_bias_gelu",
]

torch = pytest.importorskip("torch")


def exact(x, w, bias):
    return torch.nn.functional.gelu(x.double() @ w.double() + bias.double())


def test_the_page_s_example_runs():
    """Its plan is for sm_80, whose PTX later devices take; here it is made for this device."""
    names = {}
    code = CODE[0].replace('"target": "sm_80"', f'"target": "{device.target()}"')
    exec(compile(code, "docs/backend.md", "exec"), names)
    exec(compile(CODE[1], "docs/backend.md", "exec"), names)
    torch.cuda.synchronize()
    x, w, bias, y = names["buffers"]
    torch.testing.assert_close(y.double(), exact(x, w, bias), rtol=2e-3, atol=2e-3)


def test_a_stream_sizes_and_addresses():
    plan = plan_of(heuristics(ffn(TOKENS), target=device.target())[0])
    stream = torch.cuda.Stream()
    handle = dnnc.create_handle(0)
    dnnc.set_stream(handle, stream.cuda_stream)
    w, bias = (torch.randn(s, device="cuda", dtype=torch.float16) for s in ((64, 48), (48,)))
    size = b.get_attribute(
        plan, b.CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, b.CUDNN_TYPE_INT64
    ).elements[0]
    workspace = torch.empty(size, device="cuda", dtype=torch.uint8) if size else None
    for tokens in (5, 700):
        x = torch.randn(1, tokens, 64, device="cuda", dtype=torch.float16)
        y = torch.full((1, tokens, 48), float("nan"), device="cuda", dtype=torch.float16)
        torch.cuda.synchronize()
        uids, addresses = [1, 2, 3, 6], [t.data_ptr() for t in (x, w, bias, y)]
        rows = override([1], [[1, tokens, 64]])
        b.execute(handle, plan, pack(uids, addresses, *rows, workspace=workspace))
        stream.synchronize()
        torch.testing.assert_close(y.double(), exact(x, w, bias), rtol=4e-3, atol=4e-3)


def test_beta_adds_what_y_held():
    """Twice: the second time to what the first has written."""
    plan = plan_of(heuristics(convolved(GROUPED, 0.5, 2.5), target=device.target())[0])
    x, w, y = buffers = [torch.randn(shape, device="cuda") for shape in PACKED]
    product = torch.conv3d(x.double(), w.double().flip(2, 3, 4), groups=GROUPED[0][1])
    wanted = y.double()
    name = b.CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE
    (size,) = b.get_attribute(plan, name, b.CUDNN_TYPE_INT64).elements
    workspace = torch.empty(size, device="cuda", dtype=torch.uint8) if size else None
    given = pack([ord(uid) for uid in "xwy"], buffers, workspace=workspace)
    torch.cuda.synchronize()
    for _ in range(2):
        wanted = 2.5 * product + 0.5 * wanted
        b.execute(dnnc.create_handle(), plan, given)
    torch.cuda.synchronize()
    torch.testing.assert_close(y.double(), wanted, rtol=1e-4, atol=1e-4)


def test_a_device_tells_its_properties():
    here = b.create_descriptor(b.CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)
    b.set_attribute(here, b.CUDNN_ATTR_DEVICEPROP_DEVICE_ID, b.CUDNN_TYPE_INT32, 1, 0)
    b.finalize(here)
    name = b.CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION
    text = b.get_attribute(here, name, b.CUDNN_TYPE_CHAR).elements
    assert text == dnnc.create_device_properties(0).serialize()


def test_without_properties_the_device_is_planned_for():
    found = b.create_descriptor(b.CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)
    b.set_attribute(found, b.CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, D, 1, ffn())
    mode = b.CUDNN_HEUR_MODE_A
    b.set_attribute(found, b.CUDNN_ATTR_ENGINEHEUR_MODE, b.CUDNN_TYPE_HEUR_MODE, 1, mode)
    b.finalize(found)
    count, (first,) = b.get_attribute(found, b.CUDNN_ATTR_ENGINEHEUR_RESULTS, D, 1)
    assert count >= 1
    shapes = {1: (1, 40, 64), 2: (1, 64, 48), 3: (1, 1, 48), 6: (1, 40, 48)}
    buffers = {u: torch.randn(s, device="cuda", dtype=torch.float16) for u, s in shapes.items()}
    b.execute(dnnc.create_handle(), plan_of(first), pack(list(buffers), list(buffers.values())))
    torch.cuda.synchronize()
    x, w, bias, y = buffers.values()
    torch.testing.assert_close(y.double(), exact(x, w, bias), rtol=4e-3, atol=4e-3)
