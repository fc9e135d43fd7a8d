"""Descriptors of engines: engine, knob info, knob choice, layout info, config and heuristics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import Status
from . import compiled, engines
from .attributes import Elements
from .descriptor import Given, Kind, Record
from .devices import require_all_processors, target_of
from .engines import Config, KnobRange
from .enums import cudnnBackendAttributeType_t as Type
from .enums import cudnnBackendHeurMode_t as HeurMode
from .graphs import GraphPayload
from .tables import ANY, BOOLEAN, DESCRIPTOR, INT32, INT64, Row, kind


def _record(made: Kind, values: dict[str, tuple[Type, Sequence[Any]]], payload: Any) -> Record:
    """A descriptor that dnnc finalizes: end of an attribute's name -> its values."""
    elements = {made.name_of(end): Elements(t, tuple(v)) for end, (t, v) in values.items()}
    return Record(made, elements, payload)


# ---- knobs

_KNOB_TYPE = Type.CUDNN_TYPE_KNOB_TYPE


def _knob_choice(given: Given) -> tuple[Any, int]:
    return given.one("KNOB_TYPE"), given.one("KNOB_VALUE")


KNOB_CHOICE = kind(
    "KNOB_CHOICE",
    "KNOB_CHOICE",
    [Row("KNOB_TYPE", _KNOB_TYPE, required=True), Row("KNOB_VALUE", INT64, required=True)],
    _knob_choice,
)

KNOB_INFO = kind(
    "KNOB_INFO",
    "KNOB_INFO",
    [
        Row("TYPE", _KNOB_TYPE, access="read-only"),
        Row("MAXIMUM_VALUE", INT64, access="read-only"),
        Row("MINIMUM_VALUE", INT64, access="read-only"),
        Row("STRIDE", INT64, access="read-only"),
    ],
)


def _knob_info(knob: KnobRange) -> Record:
    values: dict[str, tuple[Type, Sequence[Any]]] = {
        "TYPE": (_KNOB_TYPE, [knob.type]),
        "MAXIMUM_VALUE": (INT64, [knob.maximum]),
        "MINIMUM_VALUE": (INT64, [knob.minimum]),
        "STRIDE": (INT64, [knob.stride]),
    }
    return _record(KNOB_INFO, values, knob)


# ---- layouts

LAYOUT_INFO = kind(
    "LAYOUT_INFO",
    "LAYOUT_INFO",
    [
        Row("TENSOR_UID", INT64, access="read-only"),
        Row("TYPES", Type.CUDNN_TYPE_LAYOUT_TYPE, ANY, access="read-only"),
    ],
)


def _layout_info(uid: int) -> Record:
    """No preference: engines of dnnc take any strides."""
    values: dict[str, tuple[Type, Sequence[Any]]] = {
        "TENSOR_UID": (INT64, [uid]),
        "TYPES": (Type.CUDNN_TYPE_LAYOUT_TYPE, []),
    }
    return _record(LAYOUT_INFO, values, uid)


# ---- engines


def _engine(given: Given) -> Config:
    """An engine, with the config that it has unless knobs are set."""
    require_all_processors(given)
    if given.one("DISABLE_CLUSTER_COOPERATIVE"):
        raise given.error(
            "DISABLE_CLUSTER_COOPERATIVE", "True",
            "False; the knobs TILE_CGA, TILE_CGA_M, TILE_CGA_N and SPLIT_K_SLC of 1",
            Status.NOT_SUPPORTED,
        )  # fmt: skip
    payload: GraphPayload = given.payload("OPERATION_GRAPH")
    index, count = given.one("GLOBAL_INDEX"), engines.engine_count()
    if not 0 <= index < count:
        raise given.error("GLOBAL_INDEX", f"{index}", f"0 to {count - 1}", Status.NOT_SUPPORTED)
    return engines.default_config(payload.graph, target_of(given, payload.handle), index)


def _knobs_of_engine(record: Record) -> Sequence[Record]:
    config: Config = record.payload
    found = engines.knob_ranges(config.graph, config.target, config.index)
    return [_knob_info(knob) for knob in found]


def _layouts_of_engine(record: Record) -> Sequence[Record]:
    graph = record.payload.graph
    tensors = [t for t in (*graph.inputs, *graph.outputs) if not t.is_by_value]
    return [_layout_info(uid) for uid in dict.fromkeys(t.memory_uid for t in tensors)]


ENGINE = kind(
    "ENGINE",
    "ENGINE",
    [
        Row("OPERATION_GRAPH", DESCRIPTOR, of="OPERATIONGRAPH", required=True),
        Row("GLOBAL_INDEX", INT64, required=True),
        Row("KNOB_INFO", DESCRIPTOR, ANY, of="KNOB_INFO", access="read-only"),
        Row("NUMERICAL_NOTE", Type.CUDNN_TYPE_NUMERICAL_NOTE, ANY, access="read-only"),
        Row("LAYOUT_INFO", DESCRIPTOR, ANY, of="LAYOUT_INFO", access="read-only"),
        Row("BEHAVIOR_NOTE", Type.CUDNN_TYPE_BEHAVIOR_NOTE, ANY, access="read-only"),
        Row("SM_COUNT_TARGET", INT32, default=0),
        Row("DEVICEPROP", DESCRIPTOR, of="DEVICEPROP"),
        Row("DISABLE_CLUSTER_COOPERATIVE", BOOLEAN, default=False),
    ],
    _engine,
    {
        "KNOB_INFO": _knobs_of_engine,
        "NUMERICAL_NOTE": lambda record: record.payload.numerical_notes,
        "LAYOUT_INFO": _layouts_of_engine,
        "BEHAVIOR_NOTE": lambda record: record.payload.behavior_notes,
    },
)


# ---- configs


def _engine_config(given: Given) -> Config:
    engine: Config = given.payload("ENGINE")
    chosen: list[tuple[Any, int]] = [record.payload for record in given.all("KNOB_CHOICES")]
    knobs = dict(chosen)
    if len(knobs) != len(chosen):
        raise given.error(
            "KNOB_CHOICES", "one knob has two values", "each knob once",
            Status.BAD_PARAM_DUPLICATED_ENTRIES,
        )  # fmt: skip
    if not knobs:
        return engine
    return engines.config_with(engine.graph, engine.target, engine.index, knobs)


ENGINECFG = kind(
    "ENGINECFG",
    "ENGINECFG",
    [
        Row("ENGINE", DESCRIPTOR, of="ENGINE", required=True),
        Row(
            "INTERMEDIATE_INFO",
            DESCRIPTOR,
            of="INTERMEDIATE_INFO",
            access="unsupported",
            why="plans keep no intermediates from one execution to the next",
        ),
        Row("KNOB_CHOICES", DESCRIPTOR, ANY, of="KNOB_CHOICE"),
        Row("WORKSPACE_SIZE", INT64, access="read-only"),
        Row("SHARED_MEMORY_USED", INT32, access="read-only"),
    ],
    _engine_config,
    {
        "WORKSPACE_SIZE": lambda record: (compiled.workspace_bytes(_plan_of(record)),),
        "SHARED_MEMORY_USED": lambda record: (compiled.shared_bytes(_plan_of(record)),),
    },
)


def _plan_of(record: Record) -> Any:
    """Compiled to be asked; an execution plan of the same config finds it made."""
    return compiled.plan_of(record.payload)


INTERMEDIATE_INFO = kind(
    "INTERMEDIATE_INFO",
    "INTERMEDIATE_INFO",
    [
        Row("UNIQUE_ID", INT64, access="read-only"),
        Row("SIZE", INT64, access="read-only"),
        Row("DEPENDENT_DATA_UIDS", INT64, ANY, access="read-only"),
        Row("DEPENDENT_ATTRIBUTES", Type.CUDNN_TYPE_ATTRIB_NAME, ANY, access="read-only"),
    ],
)


# ---- heuristics


def _heuristics(given: Given) -> Sequence[Config]:
    require_all_processors(given)
    payload: GraphPayload = given.payload("OPERATION_GRAPH")
    mode: HeurMode = given.one("MODE")
    name = mode.name.removeprefix("CUDNN_HEUR_MODE_")
    return engines.ranked(payload.graph, target_of(given, payload.handle), name)


def _results(record: Record) -> Sequence[Record]:
    """Configs as descriptors, each with its engine and knobs."""
    graph = record.values[record.kind.name_of("OPERATION_GRAPH")]
    return [_config_record(config, graph) for config in record.payload]


def _config_record(config: Config, graph: Elements) -> Record:
    of_engine: dict[str, tuple[Type, Sequence[Any]]] = {
        "OPERATION_GRAPH": (DESCRIPTOR, graph.values),
        "GLOBAL_INDEX": (INT64, [config.index]),
        "SM_COUNT_TARGET": (INT32, [0]),
    }
    knobs = [_knob_record(knob, value) for knob, value in config.knobs.items()]
    values: dict[str, tuple[Type, Sequence[Any]]] = {
        "ENGINE": (DESCRIPTOR, [_record(ENGINE, of_engine, config)]),
        "KNOB_CHOICES": (DESCRIPTOR, knobs),
    }
    return _record(ENGINECFG, values, config)


def _knob_record(knob: Any, value: int) -> Record:
    values: dict[str, tuple[Type, Sequence[Any]]] = {
        "KNOB_TYPE": (_KNOB_TYPE, [knob]),
        "KNOB_VALUE": (INT64, [value]),
    }
    return _record(KNOB_CHOICE, values, (knob, value))


ENGINEHEUR = kind(
    "ENGINEHEUR",
    "ENGINEHEUR",
    [
        Row("MODE", Type.CUDNN_TYPE_HEUR_MODE, required=True),
        Row("OPERATION_GRAPH", DESCRIPTOR, of="OPERATIONGRAPH", required=True),
        Row("RESULTS", DESCRIPTOR, ANY, of="ENGINECFG", access="read-only"),
        Row("SM_COUNT_TARGET", INT32, default=0),
        Row("DEVICEPROP", DESCRIPTOR, of="DEVICEPROP"),
    ],
    _heuristics,
    {"RESULTS": _results},
)
