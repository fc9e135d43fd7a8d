"""`dnn.tile` has the fields of its engine's record: all of them, no others, of their types."""

import dataclasses
from functools import cache

import pytest

from dnnc import compiler, mlir
from dnnc.dialect import dnn, structure
from dnnc.engines import ENGINES, engine_named, plain_data
from dnnc.errors import DnncError
from dnnc.options import Options
from dnnc.passes import stages
from dnnc.target import of

from .golden_ptx import sources

# Engine -> a graph that it takes, as `golden_ptx` names it, and a target.
GRAPHS = {
    "pointwise": ("example reshape-2", "sm_89"),
    "transpose": ("case memory/int8/nchw4_to_nchw/128x7x7x2048", "sm_80"),
    "reduction": ("inside reduction 17", "sm_100"),
    "rows": ("example adalayernorm-1", "sm_90a"),
    "grid": ("example adalayernorm-1", "sm_90a"),
    "sdpa_fwd_sm90": ("fp8_attention 9", "sm_90a"),
    "sdpa_sm80": ("fp8_attention 9", "sm_90a"),
    "sdpa_bwd_sm90": ("case attention_backward/bf16/full/4x16x4096-d96", "sm_90a"),
    "sdpa_bwd_sm80": ("case attention_backward/bf16/full/4x16x4096-d96", "sm_80"),
    "matmul_sm90": ("product 19", "sm_90a"),
    "matmul_sm80": ("product 33", "sm_80"),
    "conv_product_sm90": ("example conv_fprop-2", "sm_90a"),
    "conv_sm90": ("convolution 35", "sm_90a"),
    "conv_stem_sm90": ("case conv/bf16/scale_bias_relu/64x224x224x3-64x3x3-s1p1", "sm_90a"),
    "conv_sm80": ("conv conv_sm80 16", "sm_80"),
    "conv_grouped_sm80": ("conv conv_grouped_sm80 17", "sm_80"),
    "conv_depthwise": ("conv conv_product_sm90 10", "sm_100"),
    "conv_wgrad_sm90": ("wgrad conv_wgrad_sm80 18", "sm_90a"),
    "conv_wgrad_sm80": ("wgrad conv_wgrad_sm80 2", "sm_80"),
    "conv_wgrad_depthwise": ("wgrad conv_wgrad_depthwise 10", "sm_100"),
    "resample": ("example resample_backward-4", "sm_90a"),
    "peers": ("peers moments 2", "sm_90a"),
    "fallback": ("inside fallback 5", "sm_100"),
}


@cache
def text_of(engine):
    """A fusion of an engine at stage linalg, with its tiling."""
    name, target = GRAPHS[engine]
    graph = sources()[name]()
    while hasattr(graph, "graph"):
        if hasattr(graph, "build_operation_graph"):
            graph.build_operation_graph()
        graph = graph.graph
    with dnn.context():
        work = compiler.start(graph.finalize(), of(target))
        return compiler.advance(work, "linalg", Options(engine=engine)).text()


def changed(data, path, change):
    """Data in which one mapping, at the end of a path, is another."""
    if not path:
        return change(data)
    first, *others = path
    if isinstance(data, dict):
        return {**data, first: changed(data[first], others, change)}
    return [changed(v, others, change) if i == first else v for i, v in enumerate(data)]


def mappings(data, path=()):
    """(path, mapping) of every record that data has."""
    if isinstance(data, dict):
        yield path, data
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in items:
        if isinstance(value, dict | list):
            yield from mappings(value, (*path, key))


def edits(data):
    """(what is edited, the data after it)."""
    for path, mapping in mappings(data):
        for key, value in mapping.items():
            others = {k: v for k, v in mapping.items() if k != key}
            # An empty record stands for none, where there may be none.
            dropped = [others] if others else []
            for put in (*dropped, {**others, f"{key}_": value}, {**mapping, key: 1.5}):
                yield key, changed(data, path, lambda _, put=put: put)
            if type(value) in (int, bool):  # neither stands for the other
                other = bool(value) if type(value) is int else int(value)
                yield key, changed(data, path, lambda m, k=key, o=other: {**m, k: o})


def test_every_engine_has_a_graph():
    assert set(GRAPHS) == {engine.name for engine in ENGINES}


@pytest.mark.parametrize("engine", GRAPHS)
def test_a_tiling_is_of_its_record(engine):
    kind = engine_named(engine).tiling
    with dnn.context():
        module = mlir.parse(text_of(engine))
        (function,) = structure.fusion_functions(module)
        assert structure.engine_of(function)[0] == engine
        data = structure.tile_of(function)
        stages.verify(module, "linalg")
        plain_data.verify(kind, data, "dnn.tile")
        assert plain_data.plain(plain_data.record_of(kind, data)) == data
        refused = 0
        for key, edited in edits(data):
            with pytest.raises(DnncError, match=f"dnn.tile.*{key}") as error:
                plain_data.verify(kind, edited, "dnn.tile")
            assert error.value.supported
            refused += 1
        if engine == "matmul_sm90":
            with pytest.raises(
                DnncError, match=r"tile\.types.0. = f17; accepted: one of f32, f64, f16"
            ):
                plain_data.verify(kind, {**data, "types": ["f17", "f16"]}, "dnn.tile")
            with pytest.raises(DnncError, match=r"tile\.types = .*; accepted: a list of 2"):
                plain_data.verify(kind, {**data, "types": ["f16"]}, "dnn.tile")
        assert refused >= 3 * len(dataclasses.fields(kind))


@pytest.mark.parametrize("engine", GRAPHS)
def test_a_stage_does_not_hold_another(engine):
    with dnn.context():
        module = mlir.parse(text_of(engine))
        (function,) = structure.fusion_functions(module)
        data = structure.tile_of(function)
        first = next(iter(data))
        for edited in ({**data, "more": 1}, {k: v for k, v in data.items() if k != first}):
            function.attributes["dnn.tile"] = structure.to_attribute(edited)
            with pytest.raises(DnncError, match=r"stage linalg: @.*_fusion0: dnn\.tile"):
                stages.verify(module, "linalg")
        function.attributes["dnn.tile"] = structure.to_attribute(list(data))
        with pytest.raises(DnncError, match=r"dnn\.tile = .*; accepted: a dictionary of"):
            stages.verify(module, "linalg")
