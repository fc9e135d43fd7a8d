"""Moves: registers, constants, addresses, packing and unpacking; address space conversion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..decode import Decoder, Run, decodes
from ..memory import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW_SHIFT
from ..ptx import Operand, Register, Sink, Vector
from ..ptxtypes import TYPES, Array, PtxType
from .bits import shadow_or_zero, source_slot

if TYPE_CHECKING:
    from ..machine import Machine


@decodes("mov")
def move(d: Decoder) -> Run:
    of_name = d.modifiers[0] if d.modifiers else ""
    if of_name == "b128":
        return _move128(d)
    of = d.only_type()
    d.expect(2)
    target, source = d.operands
    if isinstance(source, Vector):
        return _pack(d, target, source, of)
    if isinstance(target, Vector):
        return _unpack(d, target, source, of)
    slot = source_slot(d, source)
    d.poison = lambda m: [shadow_or_zero(m, slot, of)]
    read = d.read(source, of)
    write = d.write(target, of)
    return lambda m: write(m, read(m))


def _pieces(of: PtxType, count: int) -> PtxType:
    return TYPES[f"b{of.width // count}"]


def _pack(d: Decoder, target: Operand, source: Vector, of: PtxType) -> Run:
    """`mov.b32 d, {low, high}`: the first item is the lowest."""
    piece = _pieces(of, len(source.items))
    reads = [d.read(item, piece) for item in source.items]
    slots = [source_slot(d, item) for item in source.items]
    write = d.write(target, of)
    wide = of.unsigned

    def combine(parts: list[Array]) -> Array:
        out = parts[0].astype(wide)
        for at, part in enumerate(parts[1:], 1):
            out = out | (part.astype(wide) << wide.type(at * piece.width))
        return out

    d.poison = lambda m: [combine([shadow_or_zero(m, slot, piece) for slot in slots])]
    return lambda m: write(m, combine([read(m) for read in reads]).view(of.dtype))


def _unpack(d: Decoder, target: Vector, source: Operand, of: PtxType) -> Run:
    """`mov.b32 {low, high}, a`."""
    bits = TYPES[f"b{of.width}"]
    piece = _pieces(of, len(target.items))
    read = d.read(source, bits)
    slot = source_slot(d, source)
    writes = [d.write(item, piece) for item in target.items]
    wanted = [at for at, item in enumerate(target.items) if not isinstance(item, Sink)]

    def part(value: Array, at: int) -> Array:
        return (value >> bits.dtype.type(at * piece.width)).astype(piece.dtype)

    def rule(m: Machine) -> list[Array | None]:
        shadow = shadow_or_zero(m, slot, bits)
        return [part(shadow, at) for at in wanted]

    def run(m: Machine) -> None:
        # A copy: a target may be the source itself.
        value = read(m).copy()
        for at in wanted:
            writes[at](m, part(value, at))

    d.poison = rule
    return run


def _move128(d: Decoder) -> Run:
    """128-bit registers are two of 64 bits, so these are plain moves."""
    d.expect(2)
    of = TYPES["b64"]
    targets, sources = (halves(d, operand) for operand in d.operands)
    slots = [source_slot(d, source) for source in sources]
    reads = [d.read(source, of) for source in sources]
    writes = [d.write(target, of) for target in targets]
    wanted = [
        slot for slot, target in zip(slots, targets, strict=True) if isinstance(target, Register)
    ]

    def rule(m: Machine) -> list[Array | None]:
        return [shadow_or_zero(m, slot, of) for slot in wanted]

    def run(m: Machine) -> None:
        values = [read(m).copy() for read in reads]
        for write, value in zip(writes, values, strict=True):
            write(m, value)

    d.poison = rule
    return run


def halves(d: Decoder, operand: Operand) -> tuple[Operand, Operand]:
    """The 64-bit halves of a 128-bit register, or the two items of a vector."""
    if isinstance(operand, Vector):
        low, high = d.vector(operand, 2)
        return low, high
    slot = d.slot(operand)
    if slot.width != 128 or not isinstance(operand, Register):
        raise d.error("a 128-bit register is needed")
    names = f"{operand.name} low", f"{operand.name} high"
    for at, name in enumerate(names):
        d.scope.slots.setdefault(
            name, slot._replace(width=64, number=slot.number + at, key=slot.key + at)
        )
    return Register(names[0]), Register(names[1])


# Address spaces ---------------------------------------------------------------------------

_WINDOWS = {
    "global": 0,
    "const": 0,
    "shared": SHARED_WINDOW,
    "local": LOCAL_WINDOW,
    "param": PARAM_WINDOW,
}


@decodes("cvta")
def convert_address(d: Decoder) -> Run:
    """cvta.space: to a generic address; cvta.to.space: back from one."""
    back = d.take("to")
    space = d.choose((*_WINDOWS, "shared::cta", "shared::cluster"))
    of = d.only_type()
    if not space or of.width != 64:
        raise d.error("address space and type are not known")
    window = np.uint64(_WINDOWS[space.partition("::")[0]])
    u64 = TYPES["u64"]
    read, write = d.read(d.operands[1], u64), d.write(d.operands[0], u64)
    slot = source_slot(d, d.operands[1])
    d.poison = lambda m: [shadow_or_zero(m, slot, u64)]
    if window == 0:
        return lambda m: write(m, read(m))
    return lambda m: write(m, read(m) - window if back else read(m) + window)


@decodes("isspacep")
def is_space(d: Decoder) -> Run:
    space = d.choose((*_WINDOWS, "shared::cta", "shared::cluster")).partition("::")[0]
    d.finish()
    read = d.read(d.operands[1], TYPES["u64"])
    write = d.write(d.operands[0], TYPES["pred"])
    number = np.uint64(_WINDOWS[space] >> WINDOW_SHIFT)
    return lambda m: write(m, (read(m) >> np.uint64(WINDOW_SHIFT)) == number)
