# pyright: basic
"""Named stretches of a kernel: `with stretch("softmax"):`, and what is emitted inside has the name.

A stretch is a location of MLIR: a function of that name, in a file of that name, that was inlined.
PTX shows it as `.loc`, so that profilers can tell stretches apart.  Stretches nest.  Instructions
are the same without.  PTX before 7.2 knows no inlined functions: it has the inner name alone.

    .loc  3 1 1, function_name $L__info_string3, inlined_at 1 1 1 // softmax

The text of a module has no locations.  `marked` gives the text with an attribute instead, where
one stretch ends and another begins, and `read_marks` makes locations of it again:

    %5 = arith.addf %3, %4 {dnn.stretch = "mainloop/softmax"} : f32
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from typing import Any

from ..errors import DnncError, Status
from ..mlir import ir

MARK = "dnn.stretch"

NAMES = (
    "set up", "load", "transform operand", "mainloop", "softmax", "mask", "query-key product",
    "value product", "score gradient", "gradient product", "sum of rows", "sum of parts",
    "epilogue",
)  # fmt: skip

# The whole of it is one text: `distinct` of two texts would be two compile units.
_UNIT = (
    '<id = distinct[0]<>, sourceLanguage = DW_LANG_C, file = <"{file}" in "">, '
    'producer = "dnnc", isOptimized = true, emissionKind = DebugDirectivesOnly>'
)
_SCOPE = (
    "#llvm.di_subprogram<id = distinct[{number}]<>, compileUnit = {unit}, scope = "
    '#llvm.di_file<"{name}" in "">, name = "{name}", linkageName = "{name}", file = <"{name}" '
    'in "">, line = 1, scopeLine = 1, subprogramFlags = "Definition|Optimized", '
    "type = <callingConvention = DW_CC_normal>>"
)

_open: ContextVar[Mapping[str, Any]] = ContextVar("locations of the kernel that is emitted")


@contextmanager
def kernel_locations(kernel: str) -> Iterator[None]:
    """Gives what is emitted inside the location of a kernel, whose stretches may be named there."""
    places = _locations(kernel)
    token = _open.set(places)
    try:
        with places[""]:
            yield
    finally:
        _open.reset(token)


@contextmanager
def stretch(name: str) -> Iterator[None]:
    """Names what is emitted inside; as a decorator, what a function emits.  name: one of NAMES."""
    if name not in NAMES:
        raise ValueError(f"stretch {name!r}: accepted: {', '.join(NAMES)}")
    with ir.Location.callsite(_open.get()[name], [ir.Location.current]):
        yield


def _locations(kernel: str) -> dict[str, Any]:
    """The locations of a kernel, "", and of each stretch."""
    unit, names = _UNIT.format(file=kernel), (kernel, *NAMES)
    scopes = ", ".join(
        _SCOPE.format(number=number, unit=unit, name=name) for number, name in enumerate(names, 1)
    )
    made = ir.ArrayAttr(ir.Attribute.parse(f"[{scopes}]"))
    return {
        key: ir.Location.fused([ir.Location.file(name, 1, 1)], scope)
        for key, name, scope in zip(("", *NAMES), names, made, strict=True)
    }


_FILE = re.compile(r'^\t\.file\t(\d+) "([^"]*)"', re.MULTILINE)
_PLACE = re.compile(r"^(\t\.loc\t(\d+) .*)$", re.MULTILINE)


def commented(ptx: str) -> str:
    """PTX with a comment at each location: the stretch's name."""
    names = dict(_FILE.findall(ptx))
    return _PLACE.sub(lambda found: f"{found[1]} // {names[found[2]]}", ptx)


# ---- text


def marked(module: Any, **form: bool) -> str:
    """The text of a module, with marks at its kernels' stretches; form: how MLIR prints it."""
    added = []
    for function in chain.from_iterable(map(_kernels_of, _kernel_modules(module))):
        now, paths = None, {}
        for operation in _operations(function):
            if _is_implicit(operation):
                continue
            path = _path(operation.location, paths)
            if path is not None and path != now:
                operation.attributes[MARK] = ir.StringAttr.get(path)
                added.append(operation)
                now = path
    text = _BARRIER.sub(_generic_barrier, module.operation.get_asm(**form))
    for operation in added:
        del operation.attributes[MARK]
    return text


def read_marks(module: Any) -> None:
    """Makes locations of the marks of a module that was parsed; a mark that none is: BAD_PARAM.

    PTX is kept by what it is made of, locations too: kernels with marks have no others, such as
    those in the text's file.
    """
    for part in _kernel_modules(module):
        if not any(MARK in operation.attributes for operation in _operations(part)):
            continue
        _forget_locations(part)
        for function in _kernels_of(part):
            _read_marks_of(function)


def _read_marks_of(function: Any) -> None:
    places = _locations(ir.StringAttr(function.attributes["sym_name"]).value)
    function.location = places[""]
    now, made = None, {"": places[""]}
    for operation in _operations(function):
        if _is_implicit(operation):
            operation.location = operation.parent.location
            continue
        if MARK in operation.attributes:
            path = _path_of(operation.attributes[MARK])
            del operation.attributes[MARK]
            now = made.setdefault(path, _at(path, places))
        if now is not None:  # before the first mark are constants of no location
            operation.location = now


def _forget_locations(part: Any) -> None:
    unknown = ir.Location.unknown()
    for operation in (part, *_operations(part)):
        operation.location = unknown
        for region in operation.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    argument.set_location(unknown)


def _path_of(attribute: Any) -> str:
    """The path of a mark.  A name that is none of NAMES is BAD_PARAM."""
    path = attribute.value if isinstance(attribute, ir.StringAttr) else str(attribute)
    for name in filter(None, path.split("/")):
        if name not in NAMES:
            what = f"attribute {MARK}: {name!r:.80}"
            raise DnncError(Status.BAD_PARAM, what, f"names of {', '.join(NAMES)}, with / between")
    return path


def _at(path: str, places: Mapping[str, Any]) -> Any:
    """The location of stretches in one another."""
    made = places[""]
    for name in filter(None, path.split("/")):
        made = ir.Location.callsite(places[name], [made])
    return made


def _is_implicit(operation: Any) -> bool:
    """Whether a text does not show an operation, which then belongs to its parent's stretch."""
    return operation.name == "scf.yield" and not len(operation.operands)


def _path(location: Any, known: dict[Any, str | None]) -> str | None:
    """The names of the stretches of a location, from the outer one on; None: it has none of ours,
    as constants that passes moved."""
    if location in known:
        return known[location]
    if isinstance(location, ir.CallSiteLoc):
        outer, inner = _path(location.caller, known), _path(location.callee, known)
        found = None if outer is None or inner is None else f"{outer}/{inner}".strip("/")
    elif isinstance(location, ir.FusedLoc) and len(location.locations) == 1:
        name = location.locations[0].filename
        found = name if name in NAMES else ""
    else:
        found = None
    known[location] = found
    return found


def _kernel_modules(module: Any) -> Iterator[Any]:
    for part in module.body.operations:
        if part.operation.name == "gpu.module":
            yield part.operation


def _kernels_of(part: Any) -> Iterator[Any]:
    for function in part.regions[0].blocks[0].operations:
        if function.operation.name == "llvm.func" and function.operation.regions[0].blocks:
            yield function.operation


def _operations(operation: Any) -> Iterator[Any]:
    """The operations inside another one, in the order of the text."""
    for region in operation.regions:
        for block in region.blocks:
            for view in block.operations:
                yield view.operation
                yield from _operations(view.operation)


# The bindings' own form of a barrier with attributes does not parse: they are taken for another.
_BARRIER = re.compile(
    r"nvvm\.barrier(?: id = (%\w+))?(?: number_of_threads = (%\w+))? (\{" + MARK + r"[^}]*\})"
)


def _generic_barrier(found: re.Match[str]) -> str:
    given = [name for name in found.groups()[:2] if name]
    counts = ", ".join(str(int(name is not None)) for name in found.groups()[:2])
    types = ", ".join(["i32"] * len(given))
    return (
        f'"nvvm.barrier"({", ".join(given)}) <{{operandSegmentSizes = array<i32: {counts}, 0>}}> '
        f"{found[3]} : ({types}) -> ()"
    )
