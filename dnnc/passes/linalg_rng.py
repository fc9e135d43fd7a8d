# pyright: basic
"""Random numbers as linalg: each element works out its own words of Philox 4x32-10.

    %y = linalg.generic ins(%seed, %offset : maps () -> (0, ..., 0)) outs(%empty)
         { %i = the row-major number of the element; rounds of muli, xori; ... }

Neighbours of four share all rounds; what is equal in the lanes of a fragment is computed once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import dtypes
from ..codegen.scalars.scalar import Scalars, constant, convert, element_type
from ..dialect import philox, structure
from ..dialect.approximation import approximation
from ..dialect.ops.rng import FRACTION_BITS, Rng
from ..dialect.tensor import Tensor
from ..expr import Expr, product
from ..mlir import arith, ir, linalg

_I = arith.CmpIPredicate


def rng(low: Any, op: Rng) -> None:
    """Puts the value of Y in `low`."""
    sizes = [structure.emit_size(extent, low.symbols) for extent in op.y.shape]

    def body(*given: Any) -> Any:
        rest = list(given)
        seed, offset = (low.scalar(source, rest, dtypes.i64) for source in op.operands)
        group, place = _place(op.y, sizes)
        words = _words((*group, *_halves(offset)), _halves(seed))
        return _drawn(low, op, words, place)

    zero = ir.AffineExpr.get_constant(0)
    operands = [
        (low.value(source), ir.AffineMap.get(op.y.rank, 0, [zero] * source.rank))
        for source in op.operands
        if not source.is_constant
    ]
    low.values[op.y] = low.generic(op.y, op.y.type, operands, body)


# ---- places


def _place(y: Tensor, sizes: list[Any]) -> tuple[tuple[Any, Any], Any]:
    """((low and high word of i // 4), i % 4 as an i32) of the element at the loops' indices."""
    i32, i64 = element_type(dtypes.i32), element_type(dtypes.i64)
    start = _first_inner(y.shape)
    four = constant(4, ir.IndexType.get())
    inner = _number([linalg.IndexOp(axis).result for axis in range(start, y.rank)], sizes[start:])
    if start and product(y.shape[start:]).known_divisor() % 4:
        start, inner = y.rank, None  # groups of four may lie in two rows
    if not start:
        group = arith.IndexCastOp(i32, arith.DivUIOp(inner, four).result).result
        place = arith.IndexCastOp(i32, arith.RemUIOp(inner, four).result).result
        return (group, constant(0, i32)), place

    def wide(index: Any) -> Any:
        return arith.IndexCastOp(i64, index).result

    outer = _number(
        [wide(linalg.IndexOp(axis).result) for axis in range(start)], list(map(wide, sizes[:start]))
    )
    if inner is None:
        group = arith.ShRUIOp(outer, constant(2, i64)).result
        rest = arith.AndIOp(outer, constant(3, i64)).result
        return _halves(group), arith.TruncIOp(i32, rest).result
    for size in sizes[start:]:
        outer = arith.MulIOp(outer, wide(size)).result
    outer = arith.ShRUIOp(outer, constant(2, i64)).result
    group = arith.AddIOp(outer, wide(arith.DivUIOp(inner, four).result)).result
    rest = arith.RemUIOp(inner, four).result
    return _halves(group), arith.IndexCastOp(i32, rest).result


def _first_inner(dims: Sequence[Expr]) -> int:
    """The first axis whose elements, with those of the axes after it, fit 31 bits."""
    start = len(dims)
    while start and product(dims[start - 1 :]).bounds()[1] < 1 << 31:
        start -= 1
    return start


def _number(indices: Sequence[Any], sizes: Sequence[Any]) -> Any:
    """The row-major number of an element."""
    number = indices[0]
    for index, size in zip(indices[1:], sizes[1:], strict=True):
        number = arith.AddIOp(arith.MulIOp(number, size).result, index).result
    return number


def _halves(number: Any) -> tuple[Any, Any]:
    """The low and high i32 of an i64."""
    i32 = element_type(dtypes.i32)
    high = arith.ShRUIOp(number, constant(32, number.type)).result
    return arith.TruncIOp(i32, number).result, arith.TruncIOp(i32, high).result


# ---- the generator


def _words(counter: tuple[Any, ...], key: tuple[Any, ...]) -> tuple[Any, ...]:
    a, b, c, d = counter
    k, m = key
    for number in range(philox.ROUNDS):
        if number:
            k, m = (_grown(word, s) for word, s in zip((k, m), philox.KEY_STEPS, strict=True))
        first, second = _product(a, philox.MULTIPLIERS[0]), _product(c, philox.MULTIPLIERS[1])
        a = arith.XOrIOp(arith.XOrIOp(second[1], b).result, k).result
        c = arith.XOrIOp(arith.XOrIOp(first[1], d).result, m).result
        b, d = second[0], first[0]
    return a, b, c, d


def _signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word


def _grown(word: Any, step: int) -> Any:
    return arith.AddIOp(word, constant(_signed(step), word.type)).result


def _product(word: Any, factor: int) -> tuple[Any, Any]:
    """The low and high word of a product of two."""
    i64 = element_type(dtypes.i64)
    wide = arith.ExtUIOp(i64, word).result
    return _halves(arith.MulIOp(wide, constant(factor, i64)).result)


# ---- distributions


def _chosen(place: Any, values: list[Any]) -> Any:
    """The value of a place among four."""
    chosen = values[-1]
    for number, value in reversed(list(enumerate(values[:-1]))):
        is_here = arith.CmpIOp(_I.eq, place, constant(number, place.type)).result
        chosen = arith.SelectOp(is_here, value, chosen).result
    return chosen


def _shifted(word: Any) -> Any:
    return arith.ShRUIOp(word, constant(32 - FRACTION_BITS, word.type)).result


def _drawn(low: Any, op: Rng, words: tuple[Any, ...], place: Any) -> Any:
    values = op.parameters()
    scalars = Scalars(dtypes.f32, approximation(op, low.fusion, low.marks.scores))
    if op.distribution == "BERNOULLI":
        word = _shifted(_chosen(place, list(words)))
        is_one = arith.CmpIOp(_I.ult, word, constant(op.threshold, word.type)).result
        return convert(is_one, dtypes.i1, op.y.type)
    if op.distribution == "UNIFORM":
        start, end = values["uniform_minimum"], values["uniform_maximum"]
        fraction = _fraction(scalars, _chosen(place, list(words)))
        value = scalars.fma(fraction, scalars.const(end - start), scalars.const(start))
        return convert(value, dtypes.f32, op.y.type)
    pairs = [(words[0], words[1]), (words[2], words[3])]
    is_second = arith.CmpIOp(_I.uge, place, constant(2, place.type)).result
    first, second = (
        _fraction(scalars, arith.SelectOp(is_second, b, a).result)
        for a, b in zip(*pairs, strict=True)
    )
    above_zero = scalars.add(first, scalars.const(1 / (1 << FRACTION_BITS)))
    radius = scalars.sqrt(scalars.mul(scalars.const(-2), scalars.log(above_zero)))
    angle = scalars.mul(scalars.const(2 * math.pi), second)
    odd = arith.AndIOp(place, constant(1, place.type)).result
    is_odd = arith.CmpIOp(_I.ne, odd, constant(0, place.type)).result
    side = scalars.select(is_odd, scalars.sin(angle), scalars.cos(angle))
    deviation = scalars.const(values["normal_standard_deviation"])
    number = scalars.fma(scalars.mul(deviation, radius), side, scalars.const(values["normal_mean"]))
    return convert(number, dtypes.f32, op.y.type)


def _fraction(scalars: Scalars, word: Any) -> Any:
    """u(w), exact in f32."""
    whole = arith.UIToFPOp(scalars.type, _shifted(word)).result
    return scalars.mul(whole, scalars.const(1 / (1 << FRACTION_BITS)))
