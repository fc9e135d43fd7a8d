# pyright: basic
"""Descriptors of execution plans and variant packs, and executing them."""

from __future__ import annotations

import base64
import json
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import DnncError, Status
from ..frontends.handle import Handle, get_stream
from ..plan import format
from ..plan.plan import Plan
from . import caches, compiled
from .descriptor import Given, Record, require_descriptor
from .devices import Device
from .engines import Config
from .tables import ANY, CHAR, DESCRIPTOR, HANDLE, INT64, VOID_PTR, Row, kind, kind_of

_VERSION = 1


# ---- the text of a plan


def plan_to_json(plan: Plan) -> str:
    """A plan as text: what it is, and the bytes of its `.dnnplan` file in base 64."""
    data = base64.b64encode(format.to_bytes(plan)).decode()
    head = {"dnnc_plan": _VERSION, "name": plan.name, "targets": [p.target for p in plan.programs]}
    return json.dumps({**head, "data": data})


def plan_from_json(text: str) -> Plan:
    """The plan of such text; BAD_PARAM where it is not whole."""

    def error(what: str) -> DnncError:
        return DnncError(
            Status.BAD_PARAM, what, "text that JSON_REPRESENTATION gave", "execution plan"
        )

    try:
        record: Any = json.loads(text)
        if not isinstance(record, dict) or record.get("dnnc_plan") != _VERSION:
            raise error(f"{text:.60}")
        data = base64.b64decode(record["data"], validate=True)
    except (ValueError, KeyError, TypeError, RecursionError) as reason:
        if isinstance(reason, DnncError):
            raise
        raise error(f"{type(reason).__name__}: {reason}") from None
    return format.read(data)


# ---- execution plans


def _build(given: Given) -> Any:
    """A `dnnc.runtime.ExecutionPlan`, compiled here, taken from a cache, or read from text."""
    from ..runtime import ExecutionPlan

    if given.all("RUN_ONLY_INTERMEDIATE_UIDS"):
        raise given.error(
            "RUN_ONLY_INTERMEDIATE_UIDS", "some intermediates", "none: plans have no such",
            Status.NOT_SUPPORTED,
        )  # fmt: skip
    text, config = given.one("JSON_REPRESENTATION"), given.payload("ENGINE_CONFIG")
    if (text is None) == (config is None):
        raise given.error(
            "ENGINE_CONFIG", "neither is set" if text is None else "both are set",
            "it or JSON_REPRESENTATION",
        )  # fmt: skip
    if text is not None:
        return ExecutionPlan(plan_from_json(text))
    _verify_device(given, config)
    cache: caches.KernelCache | None = given.payload("KERNEL_CACHE")
    return ExecutionPlan(compiled.plan_of(config) if cache is None else cache.plan_of(config))


def _verify_device(given: Given, config: Config) -> None:
    device: Device | None = given.payload("DEVICEPROP")
    if device is not None and device.target.name != config.target.name:
        raise given.error(
            "DEVICEPROP", f"{device.target}", f"{config.target}, as of the engine config"
        )


def _workspace(record: Record) -> Sequence[int]:
    from ..runtime import driver

    plan = record.payload
    if driver.is_available():
        handle: Handle | None = Given(record.kind, record.values).one("HANDLE")
        return (plan.workspace_size(device=None if handle is None else handle.device),)
    return (compiled.workspace_bytes(plan.plan),)


EXECUTION_PLAN = kind(
    "EXECUTION_PLAN",
    "EXECUTION_PLAN",
    [
        Row("HANDLE", HANDLE),
        Row("ENGINE_CONFIG", DESCRIPTOR, of="ENGINECFG"),
        Row("WORKSPACE_SIZE", INT64, access="read-only"),
        Row(
            "COMPUTED_INTERMEDIATE_UIDS",
            INT64,
            ANY,
            access="unsupported",
            why="plans keep no intermediates from one execution to the next",
        ),
        Row("RUN_ONLY_INTERMEDIATE_UIDS", INT64, ANY),
        Row("JSON_REPRESENTATION", CHAR),
        Row("KERNEL_CACHE", DESCRIPTOR, of="KERNEL_CACHE"),
        Row("DEVICEPROP", DESCRIPTOR, of="DEVICEPROP"),
    ],
    _build,
    {
        "WORKSPACE_SIZE": _workspace,
        "JSON_REPRESENTATION": lambda record: (plan_to_json(record.payload.plan),),
    },
)


# ---- variant packs


class VariantPack:
    """pack: uid -> buffer or number.  overrides: uid -> (dims, strides)."""

    def __init__(self, pack: Mapping[int, Any], workspace: Any, overrides: Mapping[int, Any]):
        self.pack, self.workspace, self.overrides = dict(pack), workspace, dict(overrides)


def _build_pack(given: Given) -> VariantPack:
    uids, pointers = given.all("UNIQUE_IDS"), given.all("DATA_POINTERS")
    if len(uids) != len(pointers):
        raise given.error(
            "DATA_POINTERS", f"{len(pointers)} pointers of {len(uids)} tensors", "one a tensor"
        )
    if len(set(uids)) != len(uids):
        raise given.error(
            "UNIQUE_IDS", f"{list(uids)}", "each uid once", Status.BAD_PARAM_DUPLICATED_ENTRIES
        )
    workspace = given.one("WORKSPACE")
    is_null = workspace is None or (type(workspace) is int and workspace == 0)
    pack = dict(zip(uids, pointers, strict=True))
    return VariantPack(pack, None if is_null else workspace, _overrides(given))


def _overrides(given: Given) -> dict[int, tuple[list[int], list[int] | None]]:
    """uid -> the dims, and the strides if they are given, that stand for those of the plan."""
    uids = given.all("OVERRIDE_UNIQUE_IDS")
    shapes = _rows(given, "OVERRIDE_SHAPES", len(uids))
    strides = _rows(given, "OVERRIDE_STRIDES", len(uids))
    if uids and not shapes:
        raise given.error("OVERRIDE_SHAPES", "it is not set", f"dims of {len(uids)} tensors")
    return {
        uid: (shapes[place], strides[place] if strides else None) for place, uid in enumerate(uids)
    }


def _rows(given: Given, suffix: str, count: int) -> list[list[int]]:
    """The rows of integers that the one pointer stands for."""
    if suffix not in given:
        return []
    rows = given.one(suffix)
    try:
        found = [[operator.index(value) for value in row] for row in rows or ()]
    except TypeError:
        raise given.error(suffix, f"{rows!r:.40}", "a list of lists of integers") from None
    if len(found) != count:
        raise given.error(suffix, f"{len(found)} rows", f"{count}, one a uid")
    return found


VARIANT_PACK = kind(
    "VARIANT_PACK",
    "VARIANT_PACK",
    [
        Row("UNIQUE_IDS", INT64, ANY, required=True),
        Row("DATA_POINTERS", VOID_PTR, ANY, required=True),
        Row(
            "INTERMEDIATES",
            VOID_PTR,
            ANY,
            access="unsupported",
            why="plans keep no intermediates from one execution to the next",
        ),
        Row("WORKSPACE", VOID_PTR, required=True),
        Row("OVERRIDE_UNIQUE_IDS", INT64, ANY),
        Row("OVERRIDE_SHAPES", VOID_PTR),
        Row("OVERRIDE_STRIDES", VOID_PTR),
    ],
    _build_pack,
)


# ---- executing


def run(handle: Any, execution_plan: Any, variant_pack: Any) -> None:
    """Launches a plan on the handle's stream; see `dnnc.backend.execute`."""
    if handle is None:
        raise DnncError(Status.BAD_PARAM_NULL_POINTER, "no handle", "dnnc.create_handle()")
    if not isinstance(handle, Handle):
        raise DnncError(Status.BAD_PARAM, f"{handle!r:.40}", "a handle of dnnc.create_handle()")
    stream = get_stream(handle)
    plan_record = require_descriptor(execution_plan, [kind_of("EXECUTION_PLAN")]).record("execute")
    pack_record = require_descriptor(variant_pack, [kind_of("VARIANT_PACK")]).record("execute")
    pack: VariantPack = pack_record.payload
    plan = plan_record.payload
    _use_device(handle)
    sizes = _sizes_of(plan.plan, pack.overrides)
    plan.execute(pack.pack, pack.workspace, stream=stream, sizes=sizes)


def _use_device(handle: Handle) -> None:
    """Addresses alone do not say where they are; the handle's device does."""
    from ..runtime import driver

    if handle.device is not None:
        driver.make_current(driver.device(handle.device))


def _sizes_of(plan: Plan, overrides: Mapping[int, Any]) -> dict[str, int] | None:
    """The values of the plan's symbols that dims give; fixed sizes can't change."""
    found: dict[str, int] = {}
    for uid, (dims, strides) in overrides.items():
        record = plan.tensor(uid)
        if record is None:
            raise _override_error(f"tensor {uid}", "a tensor of the plan")
        for text, actual in _pairs(uid, record.dims, dims):
            if text in plan.dims:
                if found.setdefault(text, actual) != actual:
                    raise _override_error(f"{text} = {found[text]} and {actual}", "one value")
            elif plan.expression(text).constant != actual:
                raise _override_error(f"{actual} for a size of {text}", "sizes of dnnc.Dim")
        for text, actual in _pairs(uid, record.strides, strides) if strides else ():
            names = {dim.name for dim in plan.expression(text).dims()}
            if not names <= found.keys() or plan.expression(text).evaluate(found) != actual:
                raise _override_error(f"{actual} for a stride of {text}", "what the sizes give")
    return found or None


def _pairs(uid: int, texts: Sequence[str], values: Sequence[int]) -> list[tuple[str, int]]:
    if len(texts) != len(values):
        raise _override_error(f"{len(values)} values of tensor {uid}", f"{len(texts)}")
    return list(zip(texts, values, strict=True))


def _override_error(what: str, supported: str) -> DnncError:
    return DnncError(Status.BAD_PARAM_SHAPE_MISMATCH, what, supported, "override")
