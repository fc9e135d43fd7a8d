"""Comparison and selection (PTX ISA, "Comparison and Selection Instructions")."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..decode import PRED, Decoder, PoisonRule, Read, Run, decodes
from ..floats import flush
from ..formats import decode
from ..ptx import Negated, Operand
from ..ptxtypes import TYPES, Array, PtxType
from .bits import shadow_or_zero, source_slot
from .half import format_of

if TYPE_CHECKING:
    from ..machine import Machine

_ORDERED: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_COMBINE: dict[str, Callable[[Array, Array], Array]] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}
_NAMES = (
    *_ORDERED,
    *_UNSIGNED,
    *(f"{name}u" for name in _ORDERED),
    "num",
    "nan",
)


def _unordered(a: Array, b: Array) -> Array:
    return np.isnan(a) | np.isnan(b)


def _float_comparison(name: str) -> Callable[[Array, Array], Array]:
    """NumPy's comparisons are false for NaN, but for `ne`, which PTX wants false too."""
    if name == "num":
        return lambda a, b: ~_unordered(a, b)
    if name == "nan":
        return _unordered
    ordered = _ORDERED[name.removesuffix("u")]
    if name == "ne":
        return lambda a, b: ordered(a, b) & ~_unordered(a, b)
    if name.endswith("u") and name != "neu":
        return lambda a, b: ordered(a, b) | _unordered(a, b)
    return ordered


def comparison(d: Decoder, name: str, of: PtxType, ftz: bool) -> Callable[[Array, Array], Array]:
    """The comparison of two arrays of the type's view."""
    if of.kind != "f":
        if _UNSIGNED.get(name, name) not in _ORDERED or (name in _UNSIGNED and of.kind != "u"):
            raise d.error(f"comparison {name} of type {of.name}")
        return _ORDERED[_UNSIGNED.get(name, name)]
    if name in _UNSIGNED:
        raise d.error(f"comparison {name} of type {of.name}")
    compare = _float_comparison(name)
    if of.name == "bf16":
        fmt = format_of(of)
        return lambda a, b: compare(decode(a, fmt), decode(b, fmt))
    return (lambda a, b: compare(flush(a), flush(b))) if ftz and of.name == "f32" else compare


@decodes("setp")
def set_predicate(d: Decoder) -> Run:
    """setp.cmp{.bool}: p = (a cmp b) bool c, and q = !(a cmp b) bool c."""
    name = d.choose(_NAMES)
    combine = _COMBINE.get(d.choose(tuple(_COMBINE)))
    ftz = d.take("ftz")
    of = d.only_type()
    d.expect(4 if combine else 3)
    if of.name in ("f16x2", "bf16x2"):
        return _packed(d, name, of)
    compare = comparison(d, name, of, ftz)
    a, b = d.read(d.operands[1], of), d.read(d.operands[2], of)
    c = d.read(d.operands[3], PRED) if combine else None
    first, second = d.pair(d.operands[0])
    p, q = d.write(first, PRED), d.write(second, PRED)

    if c is None and first is d.operands[0]:
        return lambda m: p(m, compare(a(m), b(m)))

    def run(m: Machine) -> None:
        out = compare(a(m), b(m))
        other = ~out
        if combine is not None and c is not None:
            condition = c(m)
            out, other = combine(out, condition), combine(other, condition)
        p(m, out)
        q(m, other)

    return run


def _packed(d: Decoder, name: str, of: PtxType) -> Run:
    """setp.f16x2 p|q: p compares the low halves, q the high ones."""
    fmt = format_of(of)
    compare = _float_comparison(name)
    bits = TYPES["b32"]
    a, b = d.read(d.operands[1], bits), d.read(d.operands[2], bits)
    first, second = d.pair(d.operands[0])
    p, q = d.write(first, PRED), d.write(second, PRED)

    def run(m: Machine) -> None:
        x, y = np.broadcast_arrays(a(m), b(m))
        pairs = [np.ascontiguousarray(v).view(np.uint16).reshape(-1, 2) for v in (x, y)]
        low, high = (compare(*(decode(v[:, k], fmt) for v in pairs)) for k in (0, 1))
        p(m, low)
        q(m, high)

    return run


@decodes("set")
def set_value(d: Decoder) -> Run:
    """set.cmp{.bool}.dtype.stype: all ones (integers) or 1.0 (floats) where true."""
    name = d.choose(_NAMES)
    combine = _COMBINE.get(d.choose(tuple(_COMBINE)))
    ftz = d.take("ftz")
    result = d.take_type()
    of = d.only_type()
    if "x2" in of.name or result.name not in ("u32", "s32", "f32", "b32"):
        raise d.error(f"set from {of.name} to {result.name} is not modelled")
    compare = comparison(d, name, of, ftz)
    a, b = d.read(d.operands[1], of), d.read(d.operands[2], of)
    c = d.read(d.operands[3], PRED) if combine else None
    write = d.write(d.operands[0], result)
    true = np.array(1.0 if result.kind == "f" else -1).astype(result.dtype)
    false = np.zeros_like(true)

    def run(m: Machine) -> None:
        out = compare(a(m), b(m))
        if combine is not None and c is not None:
            out = combine(out, c(m))
        write(m, np.where(out, true, false))

    return run


@decodes("selp")
def select(d: Decoder) -> Run:
    of = d.only_type()
    d.expect(4)
    a, b = (d.read(operand, of) for operand in d.operands[1:3])
    condition = d.read(d.operands[3], PRED)
    d.poison = _chosen(d, d.operands[1:3], of, d.operands[3], condition)
    write = d.write(d.operands[0], of)
    return lambda m: write(m, np.where(condition(m), a(m), b(m)))


def _chosen(
    d: Decoder, choices: tuple[Operand, ...], of: PtxType, chooser: Operand, condition: Read
) -> PoisonRule:
    """Only the chosen value's poison counts; where the choice itself is poisoned, all bits are."""
    slots = [source_slot(d, operand) for operand in choices]
    deciding = source_slot(d, chooser.operand if isinstance(chooser, Negated) else chooser)

    def rule(m: Machine) -> list[Array | None]:
        a, b = (shadow_or_zero(m, slot, of) for slot in slots)
        out = np.where(condition(m), a, b)
        unknown = None if deciding is None else m.shadow_of(deciding)
        if unknown is not None:
            out = np.where(unknown != 0, ~np.zeros_like(out), out)
        return [out]

    return rule


@decodes("slct")
def select_by_sign(d: Decoder) -> Run:
    """slct: a where c >= 0, else b (also where c is NaN)."""
    ftz = d.take("ftz")
    of = d.take_type()
    by = d.only_type()
    a, b = (d.read(operand, of) for operand in d.operands[1:3])
    c = d.read(d.operands[3], by)
    write = d.write(d.operands[0], of)
    zero = by.dtype.type(0)

    def run(m: Machine) -> None:
        value = flush(c(m)) if ftz else c(m)
        write(m, np.where(value >= zero, a(m), b(m)))

    return run
