# pyright: basic
"""Whether a text that is read still is what its graph and its choices give.

What a text of the stages fused and linalg computes is its graph's.  The passes are run anew from
the graph, with the partition, engines and knobs of the text, and the outcome is compared with it,
operation by operation: a fusion, an anchor or a tile that differs is refused by its name, instead
of being dropped by an engine that knows its operations from their attributes.

What may be changed is what engines read: the engine and the knobs of a fusion and, at linalg, the
scalar arithmetic in bodies of pointwise operations.  An attention's belong to its anchor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..choosing import explicit
from ..choosing.heuristics import parsed_partition
from ..codegen.region import Region
from ..dialect import dnn, structure
from ..dialect.attributes import typed
from ..dialect.difference import Difference, first_difference, has_only
from ..dialect.fusion import Fusion, partition
from ..dialect.graph import OperationGraph
from ..engines import engine_named
from ..engines.plain_data import plain, record_of
from ..errors import DnncError, Status
from ..mlir import ir, located, place_of, run_pipeline
from . import stages
from .fuse import target_of, write_fusions
from .lower_to_linalg import LowerToLinalg
from .prepare_fusions import PrepareFusions

_BODY = frozenset((*stages.SCALAR, "linalg.yield"))
# What may have stood after our passes, each of which leaves a module that computes the same.
_SIMPLIFICATIONS = ("cse", "canonicalize", "canonicalize,cse", "cse,canonicalize")
_REVISED = "what its graph gives; change the graph, and lower that"


def verify(module: Any, stage: str) -> None:
    """BAD_PARAM where a module, as its text was read, is not what its graph and choices give."""
    stages.verify(module, stage)
    if stage == "graph":
        return
    graph = dnn.from_mlir(module)
    _verify_digest(module, graph)
    if stage not in ("fused", "linalg"):
        return
    functions = list(structure.fusion_functions(module))
    fusions = _fusions(graph, functions)
    wanted = _made_anew(module, graph, functions, fusions, stage)
    strict = {function.name.value for function in functions if _is_strict(function)}
    ignored = ("dnn.tile",) if stage == "linalg" else ()  # `_verify_tile` compares it there
    found = _differing(module, wanted, strict, ignored)
    if found is not None and all(
        _differing(module, _after(wanted, passes), strict, ignored) for passes in _SIMPLIFICATIONS
    ):
        raise _error(*found, stage)
    if stage == "linalg":
        for function, made in zip(functions, structure.fusion_functions(wanted), strict=True):
            with located(function.operation):
                _verify_tile(function, made)


def _verify_digest(module: Any, graph: OperationGraph) -> None:
    """The graph and the reason of its split are those that `fuse` saw."""
    attributes = module.operation.attributes
    for key in (structure.DIGEST, structure.SPLIT_REASON):
        if key not in attributes:
            what = f"the module has no {key}"
            raise DnncError(Status.BAD_PARAM, what, "a text as dnnc prints it")
    wanted = structure.digest_of(graph, ir.StringAttr(attributes[structure.SPLIT_REASON]).value)
    if ir.StringAttr(attributes[structure.DIGEST]).value != wanted:
        raise DnncError(
            Status.BAD_PARAM,
            f"the graph is not the one that was fused: its {structure.DIGEST} is {wanted}",
            "fuse after changes of the graph",
        )


def _fusions(graph: OperationGraph, functions: list[Any]) -> tuple[Fusion, ...]:
    texts = []
    for function in functions:
        attributes = function.operation.attributes
        with located(function.operation):
            if structure.PLACES not in attributes:
                what = f"@{function.name.value} has no {structure.PLACES}"
                raise DnncError(Status.BAD_PARAM, what, "the places of its operations in the graph")
            places = typed(attributes[structure.PLACES], ir.DenseI64ArrayAttr, structure.PLACES)
        texts.append(" ".join(map(str, places)))
    return partition(graph, parsed_partition("|".join(texts), graph))


def _is_strict(function: Any) -> bool:
    """Whether no body may change, since the engine knows them by their places."""
    if "dnn.engine" not in function.operation.attributes:
        return False
    return engine_named(structure.engine_of(function)[0]).has_fixed_bodies


def _made_anew(
    module: Any,
    graph: OperationGraph,
    functions: list[Any],
    fusions: tuple[Fusion, ...],
    stage: str,
) -> Any:
    """A module of the same graph, target and choices, by our own passes."""
    made = dnn.to_mlir(graph)
    attributes = module.operation.attributes
    for key in attributes:
        made.operation.attributes[key] = attributes[key]
    new = write_fusions(made, graph, fusions)
    for function, fusion, old in zip(new, fusions, functions, strict=True):
        if "dnn.engine" not in old.operation.attributes:
            continue
        with located(old.operation):
            name, knobs = structure.engine_of(old)
            engine = engine_named(name)
            explicit.verify_choice(engine, fusion, knobs, target_of(module))
        structure.set_engine(function, name, knobs, engine.notes(fusion, knobs))
    is_prepared = any(structure.PREPARED in each.operation.attributes for each in functions)
    if is_prepared or stage == "linalg":
        PrepareFusions().run(made)
    if stage == "linalg":
        LowerToLinalg().run(made)
        for function, old in zip(structure.fusion_functions(made), functions, strict=True):
            engine = engine_named(structure.engine_of(function)[0])
            if engine.inlines_anchors and not structure.calls_anchors(old):
                structure.inline_anchors(made, function)
    return made


def _differing(
    actual: Any, wanted: Any, strict: set[str], ignored: Sequence[str]
) -> tuple[str, Difference] | None:
    """(name of the function, difference) of the first function that differs.

    ignored: attributes of functions.
    """
    mine, theirs = (
        {view.name.value: view.operation for view in each.body.operations}
        for each in (actual, wanted)
    )
    for name in (*theirs, *mine):
        if name not in mine or name not in theirs:
            return name, Difference(None, "is there" if name in mine else "is missing", "")
        is_strict = name in strict or "dnn.anchor" in mine[name].attributes

        def is_free(a: Any, b: Any, is_strict: bool = is_strict) -> bool:
            return not is_strict and _is_pointwise(a) and _is_pointwise(b)

        found = first_difference(mine[name], theirs[name], ignored, is_free)
        if found is not None:
            return name, found
    return None


def _is_pointwise(operation: Any) -> bool:
    """Whether it is a generic of scalar arithmetic alone, in parallel loops."""
    if operation.name != "linalg.generic":
        return False
    attributes = operation.attributes
    if any(key.startswith("dnn.") and key != "dnn.role" for key in attributes):
        return False
    if ir.StringAttr(attributes["dnn.role"]).value == "anchor":
        return False
    if "reduction" in str(attributes["iterator_types"]):
        return False
    result = operation.regions[0].blocks[0].arguments[-1]  # before it is written
    return has_only(operation, _BODY) and not list(result.uses)


def _after(module: Any, passes: str) -> Any:
    """A copy after passes of MLIR."""
    text = module.operation.get_asm(assume_verified=True, print_generic_op_form=True)
    copy = ir.Module.parse(text)
    run_pipeline(copy, f"builtin.module({passes})")
    return copy


def _verify_tile(function: Any, made: Any) -> None:
    """made: the function as it was made anew."""
    if "dnn.tile" not in function.operation.attributes:
        return
    name, mine = structure.engine_of(function)[0], function.attributes["dnn.tile"]
    if mine == made.attributes["dnn.tile"]:
        return
    engine = engine_named(name)
    tile = record_of(engine.tiling, structure.tile_of(made))
    wanted = structure.to_attribute(plain(engine.completed(tile, Region.of(function))))
    if mine != wanted:
        mine, theirs = (structure.from_attribute(tile) for tile in (mine, wanted))
        keys = [k for k in (*theirs, *mine) if mine.get(k) != theirs.get(k)]
        raise DnncError(
            Status.BAD_PARAM,
            f"dnn.tile of @{function.name.value}: {keys[0]} = {mine.get(keys[0])}",
            f"{theirs.get(keys[0])}, as engine {name} makes it of dnn.knobs",
        )


def _error(name: str, found: Difference, stage: str) -> DnncError:
    made_at = None if found.operation is None else place_of(found.operation.location)
    accepted = f"{found.wanted}, {_REVISED}" if found.wanted else _REVISED
    what, where = f"@{name}: {found.what}", f"stage {stage}"
    return DnncError(Status.BAD_PARAM, what, accepted, where, made_at=made_at)
