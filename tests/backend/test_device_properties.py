"""Descriptors of device properties: of a target, a device that is here, or one elsewhere."""

import json

import dnnc
from dnnc import DnncError, Status
from dnnc import backend as b
from tests.backend.building import (
    I64,
    D,
    device,
    got,
    made,
    opened,
    plan_of,
)
from tests.backend.test_plans import config, ffn, json_of, refused
from tests.runtime.fake_driver import FakeDriver


def test_device_properties_are_of_one_source():
    kind, name = b.CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, b.CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION
    text = (name, b.CUDNN_TYPE_CHAR, '{"dnnc_device": 1, "target": "sm_90a"}')
    number = (b.CUDNN_ATTR_DEVICEPROP_DEVICE_ID, b.CUDNN_TYPE_INT32, [0])
    assert refused(made, kind, text, number).status is Status.BAD_PARAM
    assert refused(device, "sm_35").status is Status.NOT_SUPPORTED_ARCH_MISMATCH
    for given in ("x", "[1]", '{"dnnc_device": 2, "target": "sm_90"}', '{"target": "sm_90"}',
                  '{"dnnc_device": 1, "target": 90}'):  # fmt: skip
        error = refused(made, kind, (name, b.CUDNN_TYPE_CHAR, given))
        assert error.status is Status.BAD_PARAM


def test_device_properties_of_a_device_that_is_here(monkeypatch):
    FakeDriver((9, 0)).install(monkeypatch)
    name = b.CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION
    for way in (
        [(b.CUDNN_ATTR_DEVICEPROP_DEVICE_ID, b.CUDNN_TYPE_INT32, [0])],
        [(b.CUDNN_ATTR_DEVICEPROP_HANDLE, b.CUDNN_TYPE_HANDLE, [dnnc.create_handle()])],
        [],  # the current one
    ):
        here = made(b.CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, *way)
        assert json.loads(got(here, name, b.CUDNN_TYPE_CHAR))["capability"] == [9, 0]
    # Engines take it from the device, too, if nothing else says it.
    found = made(
        b.CUDNN_BACKEND_ENGINE_DESCRIPTOR,
        (b.CUDNN_ATTR_ENGINE_OPERATION_GRAPH, D, [ffn()]),
        (b.CUDNN_ATTR_ENGINE_GLOBAL_INDEX, I64, [5]),
    )
    assert got(found, b.CUDNN_ATTR_ENGINE_GLOBAL_INDEX, I64) == [5]
    FakeDriver((7, 5)).install(monkeypatch)
    old = opened(
        b.CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR,
        (b.CUDNN_ATTR_DEVICEPROP_DEVICE_ID, b.CUDNN_TYPE_INT32, [0]),
    )
    assert refused(b.finalize, old).status is Status.NOT_SUPPORTED_ARCH_MISMATCH


def test_without_a_device_the_properties_are_asked_for(monkeypatch):
    from dnnc.runtime import driver

    def none(ordinal=None):
        raise DnncError(Status.NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER, "no driver")

    monkeypatch.setattr(driver, "device", none)
    open_ = opened(
        b.CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
        (b.CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, D, [ffn()]),
        (b.CUDNN_ATTR_ENGINEHEUR_MODE, b.CUDNN_TYPE_HEUR_MODE, [b.CUDNN_HEUR_MODE_A]),
    )
    error = refused(b.finalize, open_)
    assert "DEVICEPROP" in error.where
    assert "JSON" in error.supported
    here = opened(
        b.CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR,
        (b.CUDNN_ATTR_DEVICEPROP_DEVICE_ID, b.CUDNN_TYPE_INT32, [0]),
    )
    assert refused(b.finalize, here).status is Status.NOT_INITIALIZED


def test_properties_that_a_device_wrote_down_elsewhere():
    text = (
        '{"capability": [8, 6], "dnnc_device": 1, "max_dynamic_smem_bytes": 101376, '
        '"name": "NVIDIA A10", "sm_count": 72}'
    )
    name = b.CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION
    there = made(b.CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, (name, b.CUDNN_TYPE_CHAR, text))
    assert got(there, name, b.CUDNN_TYPE_CHAR) == text
    assert dnnc.create_device_properties(text).serialize() == text
    found = made(
        b.CUDNN_BACKEND_ENGINE_DESCRIPTOR,
        (b.CUDNN_ATTR_ENGINE_OPERATION_GRAPH, D, [ffn()]),
        (b.CUDNN_ATTR_ENGINE_GLOBAL_INDEX, I64, [4]),
        (b.CUDNN_ATTR_ENGINE_DEVICEPROP, D, [there]),
    )
    plan = plan_of(config(found), (b.CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, D, [there]))
    assert json.loads(json_of(plan))["targets"] == ["sm_86"]
