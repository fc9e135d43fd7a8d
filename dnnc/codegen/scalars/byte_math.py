# pyright: basic
"""Elements of 8 bits: floats of integers and fp8, and those of floats, to nearest even, saturating.

fp8 is carried as i8 and keeps NaN, of which integers are 0.  Two elements go through an instruction
together where there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...mlir import arith, ir, llvm
from ...mlir import math as mlir_math
from .. import ops
from ..value import wrapped
from .defined_by import integer_behind, operands_of, repeated

F8 = {"f8E4M3FN": "e4m3x2", "f8E5M2": "e5m2x2"}
_BYTES: dict[tuple[int | None, int | None], str] = {(-128, 127): "s8", (0, 255): "u8"}


def lower(op: Any, source: Any, value: Any, width: int) -> Any:
    """`op` of a body on a fragment, if it converts to or from 8 bits in its own way; else None.

    source: the type of its first operand, as a scalar; value: that operand.
    """
    result = str(op.results[0].type)
    if op.name == "arith.extf" and str(source) in F8:
        return from_f8(value, str(source), width)
    if op.name == "arith.truncf" and result in F8:
        return _to_f8(value, result, width)
    if op.name == "arith.fptosi" and (clipped := _clipped(value)) is not None:
        x, low, high = clipped
        return _to_nearest(_before_relu(x) if low == 0 else x, low, high)
    if width % 2:
        return None
    if op.name == "arith.trunci" and result == "i8":
        saturated = _saturated(value)
        return None if saturated is None else _packed_bytes(*saturated)
    return _from_bytes(op, source, value, width)


# ---- integers of 8 bits


def _from_bytes(op: Any, source: Any, value: Any, width: int) -> Any:
    """Floats of signed bytes, where `op` of a body makes those; else None.

    Not by the conversions of an H100, which are a quarter as fast as what these take: a byte is put
    below the exponent of a number whose last bits it then is, from which that number is taken.
    bf16 and f16 have them all; of bf16 the back end multiplies pairs, where it may.
    """
    element = str(op.results[0].type)
    if op.name == "arith.sitofp" and str(source) == "i8" and element == "f32":
        if _becomes_f16(op):
            return None
        f32 = ops.vector_type(ops.f32_type(), width)
        return arith.ExtFOp(f32, _bf16_of_bytes(value, width)).result
    if op.name == "arith.truncf" and element == "f16":
        integer = operands_of(value, "arith.sitofp")
        if integer and str(integer[0].type.element_type) == "i8":
            return _f16_of_bytes(integer[0], width)
    return None


def _becomes_f16(op: Any) -> bool:
    """Whether what an operation of a body gives is only made f16."""
    users = [use.owner for use in op.results[0].uses]
    return all(u.name == "arith.truncf" and str(u.results[0].type) == "f16" for u in users)


def _permuted(word: Any, other: int, selector: int) -> Any:
    """Bytes of a word (0 to 3) and a number (4 to 7): `prmt`."""
    text = f"prmt.b32 $0, $1, {other:#x}, {selector:#x};"
    return wrapped(llvm.inline_asm(ops.i32_type(), [word], text, "=r,r"))


def _words_of_bytes(value: Any, width: int) -> list[tuple[Any, int]]:
    """For each pair of bytes (the i32 that has it, the first one's place there)."""
    if width % 4 == 0:
        words = ops.elements(
            llvm.BitcastOp(ops.vector_type(ops.i32_type(), width // 4), value).result
        )
        return [(word, place) for word in words for place in (0, 2)]
    halves = ops.vector_type(ir.IntegerType.get_signless(16), width // 2)
    found = ops.elements(llvm.BitcastOp(halves, value).result)
    return [(arith.ExtUIOp(ops.i32_type(), half).result, 0) for half in found]


def _pairs_of(type_: Any, words: Sequence[Any], width: int) -> Any:
    """A fragment of 16-bit elements, two to a word."""
    whole = ops.from_elements(list(words))
    return llvm.BitcastOp(ops.vector_type(type_, width), whole).result


def _f16_of_bytes(value: Any, width: int) -> Any:
    """2**10 + byte + 128, less that."""
    pair = ops.vector_type(ir.F16Type.get(), 2)
    one = arith.ConstantOp(pair, ir.Attribute.parse(f"dense<1.152000e+03> : {pair}")).result
    words: list[Any] = []
    for word, place in _words_of_bytes(value, width):
        shifted = ops.xor(word, 0x80808080 - (1 << 32))
        bits = _permuted(shifted, 0x64646464, 0x4040 + place + ((place + 1) << 8))
        number = llvm.BitcastOp(pair, bits).result
        words.append(llvm.BitcastOp(ops.i32_type(), arith.SubFOp(number, one).result).result)
    return _pairs_of(ir.F16Type.get(), words, width)


def _bf16_of_bytes(value: Any, width: int) -> Any:
    """128 + the byte's lower seven bits, less 128 or, of a negative byte, 256.

    The last bit of the exponent of those two is where the byte has its sign.
    """
    pair = ops.vector_type(ir.BF16Type.get(), 2)
    one = arith.ConstantOp(pair, ir.Attribute.parse(f"dense<1.0> : {pair}")).result
    words: list[Any] = []
    for word, place in _words_of_bytes(value, width):
        bits = _permuted(word, 0x43434343, 0x4040 + place + ((place + 1) << 8))
        low = bits & (0xFF7FFF7F - (1 << 32))
        base = (bits & (0xFF80FF80 - (1 << 32))) ^ (0x80008000 - (1 << 32))
        numbers = [llvm.BitcastOp(pair, half).result for half in (low, base)]
        whole = mlir_math.FmaOp(numbers[0], one, numbers[1]).result
        words.append(llvm.BitcastOp(ops.i32_type(), whole).result)
    return _pairs_of(ir.BF16Type.get(), words, width)


def _clipped(value: Any) -> tuple[Any, int, int] | None:
    """(x, low, high) of a fragment of f32 that `scalar.convert` has rounded and clipped for a type
    of 8 bits, NaN to 0; None: it is another."""
    chosen = operands_of(value, "arith.select")
    below = operands_of(chosen[2], "arith.minimumf") if chosen else None
    above = operands_of(below[0], "arith.maximumf") if below else None
    rounded = operands_of(above[0], "math.roundeven") if above else None
    if chosen is None or below is None or above is None or rounded is None:
        return None
    unordered = operands_of(chosen[0], "arith.cmpf")
    zero, low, high = (repeated(of) for of in (chosen[1], above[1], below[1]))
    is_whole = unordered is not None and all(of == above[0] for of in unordered)
    element = rounded[0].type.element_type if isinstance(value.type, ir.VectorType) else value.type
    if not is_whole or zero != 0.0 or low is None or high is None or element != ops.f32_type():
        return None
    return rounded[0], int(low), int(high)


def _before_relu(x: Any) -> Any:
    """The fragment that one is the ReLU of, if it is: a range from 0 clips the same, NaN to 0 too.

    ptxas makes one instruction of a ReLU and the conversion of two numbers to bytes without sign
    (F2IP.U8.F32.NTZ.RELU), which an H200 refuses as illegal.
    """
    above = operands_of(x, "arith.maximumf")
    return above[0] if above and repeated(above[1]) == 0.0 else x


def _to_nearest(x: Any, low: int, high: int) -> Any:
    """i32 of f32, to nearest even, in a range; of NaN 0.  Source: PTX ISA, "cvt", which saturates
    from floats to integers, and of NaN gives 0 in 32 bits."""
    text = "cvt.rni.s32.f32 $0, $1;"
    width = ops.width_of(x)
    numbers = [llvm.inline_asm(ops.i32_type(), [e], text, "=r,f") for e in ops.elements(x)]
    bounds = [ops.splat(ops.const(bound), width) for bound in (low, high)]
    at_least = arith.MaxSIOp(ops.from_elements(numbers), bounds[0]).result
    return arith.MinSIOp(at_least, bounds[1]).result


def _saturated(value: Any) -> tuple[Any, str] | None:
    """(x, "s8" or "u8") of a fragment of i32 that is x in the range of that type."""
    below = operands_of(value, "arith.minsi")
    above = operands_of(below[0], "arith.maxsi") if below else None
    if below is None or above is None or value.type.element_type != ops.i32_type():
        return None
    kind = _BYTES.get((integer_behind(above[1]), integer_behind(below[1])))
    return None if kind is None else (above[0], kind)


def _packed_bytes(x: Any, kind: str) -> Any:
    """i8 of i32, saturating, two an instruction."""
    text = f"cvt.pack.sat.{kind}.s32.b32 $0, $1, $2, 0;"
    pairs = [
        llvm.inline_asm(ops.i32_type(), [high, low], text, "=r,r,r")
        for low, high in _pairs(x, ops.width_of(x))
    ]
    i16 = ir.IntegerType.get_signless(16)
    return _bytes_of([arith.TruncIOp(i16, pair).result for pair in pairs], ops.width_of(x))


# ---- fp8, two at a time


def _pairs(value: Any, width: int) -> list[tuple[Any, Any]]:
    """(low, high) pairs of a fragment; an odd one is paired with itself."""
    scalars = ops.elements(value)
    return [(scalars[i], scalars[min(i + 1, width - 1)]) for i in range(0, width, 2)]


def _halfword(low: Any, high: Any) -> Any:
    """Two bytes as an i16."""
    i16 = ir.IntegerType.get_signless(16)
    wide = [wrapped(arith.ExtUIOp(i16, byte)) for byte in (low, high)]
    return wide[0] | (wide[1] << 8)


def _f16_word(pair: Any, kind: str) -> Any:
    """Two fp8 of an i16 as f16, exactly, in an i32."""
    text = f"cvt.rn.f16x2.{F8[kind]} $0, $1;"
    return llvm.inline_asm(ops.i32_type(), [pair], text, "=r,h")


def from_f8(value: Any, kind: str, width: int) -> Any:
    """f32 of fp8 elements, through f16, which holds every one of them."""
    f16 = ir.F16Type.get()
    found: list[Any] = []
    for low, high in _pairs(value, width):
        halves = _f16_word(_halfword(low, high), kind)
        both = llvm.BitcastOp(ir.VectorType.get([2], f16), halves).result
        found += ops.elements(both)
    halves = ops.from_elements(found[:width])
    return arith.ExtFOp(ops.vector_type(ir.F32Type.get(), width), halves).result


def f16_words(word: Any, kind: str) -> tuple[Any, Any]:
    """Four fp8 of an i32 as f16, exactly: the lower two, and the upper two."""
    i16 = ir.IntegerType.get_signless(16)
    low, high = (
        _f16_word(arith.TruncIOp(i16, half).result, kind) for half in (word, ops.shr(word, 16))
    )
    return low, high


def f16_word_of_fp8(low: Any, high: Any, kind: str) -> Any:
    """Two f32, or fp8 in i8, as f16 in an i32, rounded to fp8 on the way, to nearest even,
    saturating."""
    i16 = ir.IntegerType.get_signless(16)
    if str(low.type) == "i8":
        packed = _halfword(low, high)
    else:
        text = f"cvt.rn.satfinite.{F8[kind]}.f32 $0, $1, $2;"
        packed = llvm.inline_asm(i16, [high, low], text, "=h,f,f")
    return _f16_word(packed, kind)


def _to_f8(value: Any, kind: str, width: int) -> Any:
    """fp8 of f32 elements, to nearest even, saturating."""
    text = f"cvt.rn.satfinite.{F8[kind]}.f32 $0, $1, $2;"
    i16 = ir.IntegerType.get_signless(16)
    return _bytes_of(
        [llvm.inline_asm(i16, [high, low], text, "=h,f,f") for low, high in _pairs(value, width)],
        width,
    )


def _bytes_of(pairs: Sequence[Any], width: int) -> Any:
    """A fragment of bytes, of which there are two in each i16; the last may be half used.

    As a whole: bytes that are taken apart the back end puts together again one by one.
    """
    i8 = ir.IntegerType.get_signless(8)
    found = llvm.BitcastOp(ops.vector_type(i8, 2 * len(pairs)), ops.from_elements(pairs)).result
    return found if width % 2 == 0 else ops.from_elements(ops.elements(found)[:width])


def f8_word(values: Sequence[Any], kind: str) -> Any:
    """Four f32 as fp8, to nearest even, saturating, in an i32; the first is the lowest byte."""
    name = F8[kind]
    text = (
        "{ .reg .b16 low, high; "
        f"cvt.rn.satfinite.{name}.f32 low, $2, $1; cvt.rn.satfinite.{name}.f32 high, $4, $3; "
        "mov.b32 $0, {low, high}; }"
    )
    return llvm.inline_asm(ops.i32_type(), list(values), text, "=r,f,f,f,f")
