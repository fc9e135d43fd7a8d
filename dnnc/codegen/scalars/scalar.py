# pyright: basic
"""Scalar code of operations, as `arith` and `math` operations.

`Scalars` is the builder that a pointwise mode's `emit` is given; it works in one compute type.
`convert` is the one place where scalar code changes a value's data type; its rules are those of
`rounding.py`, and docs/numerics.md states them.

Integers are signless in the IR: signed or not is decided by the operations used.
"""

from __future__ import annotations

from typing import Any

from ... import dtypes
from ...dtypes import DType
from ...mlir import arith, ir, linalg, math

_APPROXIMATE = ("fast", "exponent", "capped", "coarse")

_P = arith.CmpFPredicate
_I = arith.CmpIPredicate


def element_type(dtype: DType) -> Any:
    """The MLIR type of a value of this data type in code (signless integers)."""
    return ir.Type.parse("i8" if dtype == dtypes.ui8 else dtype.name)


def constant(value: float | int | bool, type_: Any) -> Any:
    """An `arith.constant` of a scalar type."""
    if isinstance(type_, ir.FloatType):
        return arith.ConstantOp(type_, ir.FloatAttr.get(type_, float(value))).result
    return arith.ConstantOp(type_, ir.IntegerAttr.get(type_, int(value))).result


def index_constant(value: int) -> Any:
    """An `arith.constant` of type index."""
    return constant(value, ir.IndexType.get())


def accumulation_type(compute: DType) -> DType:
    """The type that sums are kept in: f32 for HALF, which rounds once, and FAST_FLOAT_FOR_FP8."""
    return dtypes.f32 if compute in (dtypes.f16, dtypes.fast_float_for_fp8) else compute


def convert(value: Any, source: DType, target: DType) -> Any:
    """`value`, a scalar of data type `source`, as one of `target`."""
    if source == target:
        return value
    if target.kind == "b":
        return _to_bool(value, source)
    if source.is_float:
        return _float_to_float(value, source, target) if target.is_float else _round(value, target)
    if target.is_float:
        return _integer_to_float(value, source, target)
    return _integer_to_integer(value, source, target)


def _to_bool(value: Any, source: DType) -> Any:
    if source.is_float:
        wide = _widened(value, source)
        return arith.CmpFOp(_P.UNE, wide, constant(0.0, wide.type)).result
    return arith.CmpIOp(_I.ne, value, constant(0, value.type)).result


def _widened(value: Any, source: DType) -> Any:
    """A float of at least 32 bits."""
    return value if source.bits >= 32 else arith.ExtFOp(ir.F32Type.get(), value).result


def _float_to_float(value: Any, source: DType, target: DType) -> Any:
    type_ = element_type(target)
    if source.bits < 32 and target.bits < 32:  # f16, bf16 and fp8 have no common step but f32
        value, source = _widened(value, source), dtypes.f32
    if source.bits == 8 and target.bits == 64:  # as does the instruction for fp8
        value, source = _widened(value, source), dtypes.f32
    if source.bits == 64 and target.bits < 32:
        value, source = _rounded_to_odd(value), dtypes.f32
    make = arith.ExtFOp if target.bits > source.bits else arith.TruncFOp
    return make(type_, value).result


def _rounded_to_odd(value: Any) -> Any:
    """f64 -> f32 so that rounding once more gives what rounding from f64 would.

    Of the two neighbours of a number that f32 lacks, the one whose last bit is 1.
    """
    f32, i32 = ir.F32Type.get(), ir.IntegerType.get_signless(32)
    near = arith.TruncFOp(f32, value).result
    back = arith.ExtFOp(value.type, near).result
    bits = arith.BitcastOp(i32, near).result
    sizes = [math.AbsFOp(x).result for x in (back, value)]
    grew = arith.CmpFOp(_P.OGT, *sizes).result
    shrank = arith.CmpFOp(_P.OLT, *sizes).result
    low = arith.AndIOp(bits, constant(1, i32)).result
    is_even = arith.CmpIOp(_I.eq, low, constant(0, i32)).result
    zero = constant(0, i32)
    step = arith.SelectOp(grew, constant(-1, i32), zero).result
    step = arith.SelectOp(shrank, constant(1, i32), step).result
    step = arith.SelectOp(is_even, step, zero).result
    return arith.BitcastOp(f32, arith.AddIOp(bits, step).result).result


def _round(value: Any, target: DType) -> Any:
    """Float to integer: nearest even, saturating, NaN to 0."""
    if value.type.width < 32:
        value = arith.ExtFOp(ir.F32Type.get(), value).result
    type_, wide = element_type(target), value.type
    low = 0 if target.kind == "u" else -(1 << (target.bits - 1))
    high = (1 << (target.bits if target.kind == "u" else target.bits - 1)) - 1
    rounded = math.RoundEvenOp(value).result
    is_nan = arith.CmpFOp(_P.UNO, rounded, rounded).result
    if target.bits == 8:
        return _clipped(rounded, is_nan, low, high, type_)
    # `high` of 32 and 64 bits is no float: what reaches the next one up saturates.
    over = arith.CmpFOp(_P.OGE, rounded, constant(float(high), wide)).result
    under = arith.CmpFOp(_P.OLE, rounded, constant(float(low), wide)).result
    inside = arith.SelectOp(over, constant(0.0, wide), rounded).result
    inside = arith.SelectOp(under, constant(0.0, wide), inside).result
    inside = arith.SelectOp(is_nan, constant(0.0, wide), inside).result
    number = arith.FPToSIOp(type_, inside).result
    number = arith.SelectOp(over, constant(_signless(high, target), type_), number).result
    return arith.SelectOp(under, constant(low, type_), number).result


def _clipped(rounded: Any, is_nan: Any, low: int, high: int, type_: Any) -> Any:
    """The clipped value for types of 8 bits, signed or not, whose bounds are floats; through
    i32, which has all of them.  Kernels make one conversion of it (`byte_math`), which saturates
    by itself."""
    wide = rounded.type
    above = arith.MaximumFOp(rounded, constant(float(low), wide)).result
    inside = arith.MinimumFOp(above, constant(float(high), wide)).result
    number = arith.SelectOp(is_nan, constant(0.0, wide), inside).result
    i32 = ir.IntegerType.get_signless(32)
    return arith.TruncIOp(type_, arith.FPToSIOp(i32, number).result).result


def _signless(value: int, target: DType) -> int:
    """An unsigned value as the signed one of the same bits, which MLIR's constants want."""
    return value - (1 << target.bits) if value >= 1 << (target.bits - 1) else value


def _integer_to_float(value: Any, source: DType, target: DType) -> Any:
    wide = element_type(target) if target.bits >= 32 else ir.F32Type.get()
    make = arith.UIToFPOp if source.kind in "ub" else arith.SIToFPOp
    number = make(wide, value).result
    return number if target.bits >= 32 else arith.TruncFOp(element_type(target), number).result


def _integer_to_integer(value: Any, source: DType, target: DType) -> Any:
    """Saturating; from boolean, 0 or 1."""
    type_ = element_type(target)
    if source.kind == "b":
        return arith.ExtUIOp(type_, value).result
    if target.bits > source.bits:
        make = arith.ExtUIOp if source.kind == "u" else arith.ExtSIOp
        return make(type_, value).result
    low = 0 if target.kind == "u" or source.kind == "u" else -(1 << (target.bits - 1))
    high = (1 << (target.bits if target.kind == "u" else target.bits - 1)) - 1
    if source.bits == target.bits:  # i8 <-> ui8: compare one size up
        wide = ir.IntegerType.get_signless(32)
        make = arith.ExtUIOp if source.kind == "u" else arith.ExtSIOp
        value = make(wide, value).result
    value = arith.MaxSIOp(value, constant(low, value.type)).result
    value = arith.MinSIOp(value, constant(high, value.type)).result
    return arith.TruncIOp(type_, value).result


class Scalars:
    """Builds scalar operations in a compute type (f32, f64, i32 or i1).

    approximate: "exact", or "fast": functions may use hardware approximations of about 2**-22,
    or "exponent": tanh within 2.4e-7 absolute too, of what only exponentials are taken of, or
    "capped": within 2.6e-6, or
    "coarse": of about 2**-11 (tanh).  The IR says so by `fastmath<afn>`; `arcp` on divisions
    by at least 1.  is_division_exact: whether `div` is to nearest all the same.
    """

    def __init__(self, dtype: DType, approximate: str = "exact", *, is_division_exact: bool = True):
        self.dtype = dtype
        self.type = element_type(dtype)
        self.is_float = dtype.is_float
        self.approximate = approximate
        self.is_division_exact = is_division_exact

    # ---- values

    def const(self, value: float) -> Any:
        return constant(value, self.type)

    def index(self, axis: int) -> Any:
        """The coordinate along an axis, in the compute type."""
        number = arith.IndexCastOp(ir.IntegerType.get_signless(32), linalg.IndexOp(axis).result)
        return arith.SIToFPOp(self.type, number.result).result if self.is_float else number.result

    # ---- arithmetic

    def add(self, x: Any, y: Any) -> Any:
        return (arith.AddFOp if self.is_float else arith.AddIOp)(x, y).result

    def sub(self, x: Any, y: Any) -> Any:
        return (arith.SubFOp if self.is_float else arith.SubIOp)(x, y).result

    def mul(self, x: Any, y: Any) -> Any:
        return (arith.MulFOp if self.is_float else arith.MulIOp)(x, y).result

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        """x * y + z, rounded once for floats."""
        return math.FmaOp(x, y, z).result if self.is_float else self.add(self.mul(x, y), z)

    def neg(self, x: Any) -> Any:
        return arith.NegFOp(x).result if self.is_float else self.sub(self.const(0), x)

    def abs(self, x: Any) -> Any:
        return (math.AbsFOp if self.is_float else math.AbsIOp)(x).result

    def max(self, x: Any, y: Any) -> Any:
        return (arith.MaximumFOp if self.is_float else arith.MaxSIOp)(x, y).result

    def min(self, x: Any, y: Any) -> Any:
        return (arith.MinimumFOp if self.is_float else arith.MinSIOp)(x, y).result

    def div(self, x: Any, y: Any) -> Any:
        if self.is_float:
            flags = self._flags("none" if self.is_division_exact else "afn")
            return arith.DivFOp(x, y, fastmath=flags).result
        zero, quotient = self._divided(x, y)
        return arith.SelectOp(zero, self.const(0), quotient).result

    def div_by_large(self, x: Any, y: Any) -> Any:
        """x / y of floats where y is at least 1, which is what may be approximated."""
        return arith.DivFOp(x, y, fastmath=self._flags("arcp")).result

    def mod(self, x: Any, y: Any) -> Any:
        """The rest with the sign of x; of a division by 0: x for integers, NaN for floats."""
        if self.is_float:
            return arith.RemFOp(x, y).result
        zero, quotient = self._divided(x, y)
        rest = self.sub(x, self.mul(quotient, y))
        return arith.SelectOp(zero, x, rest).result

    def _divided(self, x: Any, y: Any) -> tuple[Any, Any]:
        """(y is 0, x / y towards 0 where that is defined); -2**31 / -1 wraps."""
        zero = arith.CmpIOp(_I.eq, y, self.const(0)).result
        minus = arith.CmpIOp(_I.eq, y, self.const(-1)).result
        unsafe = arith.OrIOp(zero, minus).result
        safe = arith.SelectOp(unsafe, self.const(1), y).result
        quotient = arith.DivSIOp(x, safe).result
        return zero, arith.SelectOp(minus, self.neg(x), quotient).result

    def ceil(self, x: Any) -> Any:
        return math.CeilOp(x).result if self.is_float else x

    def floor(self, x: Any) -> Any:
        return math.FloorOp(x).result if self.is_float else x

    # ---- functions, floats only

    def _flags(self, flag: str, needs: tuple[str, ...] = _APPROXIMATE) -> Any:
        on = self.approximate in needs and self.dtype == dtypes.f32
        return ir.Attribute.parse(f"#arith.fastmath<{flag if on else 'none'}>")

    def sqrt(self, x: Any) -> Any:
        return math.SqrtOp(x, fastmath=self._flags("afn")).result

    def rsqrt(self, x: Any) -> Any:
        return math.RsqrtOp(x, fastmath=self._flags("afn")).result

    def exp(self, x: Any) -> Any:
        return math.ExpOp(x, fastmath=self._flags("afn")).result

    def log(self, x: Any) -> Any:
        return math.LogOp(x, fastmath=self._flags("afn")).result

    def erf(self, x: Any) -> Any:
        return math.ErfOp(x, fastmath=self._flags("afn")).result

    def erf_and_1(self, x: Any) -> Any:
        """1 + erf x, which needs no digits of small x."""
        return self.add(self.const(1.0), math.ErfOp(x, fastmath=self._flags("afn,contract")).result)

    def tanh(self, x: Any) -> Any:
        if self.approximate == "exponent":
            return math.TanhOp(x, fastmath=self._flags("arcp", ("exponent",))).result
        if self.approximate == "capped":
            return math.TanhOp(x, fastmath=self._flags("arcp,contract", ("capped",))).result
        return math.TanhOp(x, fastmath=self._flags("afn", ("coarse",))).result

    def expm1(self, x: Any) -> Any:
        return math.ExpM1Op(x).result

    def log1p(self, x: Any) -> Any:
        return math.Log1pOp(x).result

    def sin(self, x: Any) -> Any:
        return math.SinOp(x).result

    def cos(self, x: Any) -> Any:
        return math.CosOp(x).result

    def tan(self, x: Any) -> Any:
        return math.TanOp(x).result

    def pow(self, x: Any, y: Any) -> Any:
        return math.PowFOp(x, y).result

    def atan2(self, x: Any, y: Any) -> Any:
        return math.Atan2Op(x, y).result

    # ---- comparison, logic, selection; truth values are i1

    def _compare(self, ordered: Any, signed: Any, x: Any, y: Any) -> Any:
        if self.is_float:
            return arith.CmpFOp(ordered, x, y).result
        return arith.CmpIOp(signed, x, y).result

    def eq(self, x: Any, y: Any) -> Any:
        return self._compare(_P.OEQ, _I.eq, x, y)

    def ne(self, x: Any, y: Any) -> Any:
        return self._compare(_P.UNE, _I.ne, x, y)

    def lt(self, x: Any, y: Any) -> Any:
        return self._compare(_P.OLT, _I.slt, x, y)

    def le(self, x: Any, y: Any) -> Any:
        return self._compare(_P.OLE, _I.sle, x, y)

    def gt(self, x: Any, y: Any) -> Any:
        return self._compare(_P.OGT, _I.sgt, x, y)

    def ge(self, x: Any, y: Any) -> Any:
        return self._compare(_P.OGE, _I.sge, x, y)

    def is_nan(self, x: Any) -> Any:
        return arith.CmpFOp(_P.UNO, x, x).result

    def truth(self, x: Any) -> Any:
        """Whether a value of the compute type is not 0; a boolean is what it says."""
        is_boolean = x.type == ir.IntegerType.get_signless(1)
        return x if is_boolean else _to_bool(x, self.dtype)

    def logical_and(self, x: Any, y: Any) -> Any:
        return arith.AndIOp(x, y).result

    def logical_or(self, x: Any, y: Any) -> Any:
        return arith.OrIOp(x, y).result

    def logical_not(self, x: Any) -> Any:
        return arith.XOrIOp(x, constant(1, x.type)).result

    def select(self, condition: Any, x: Any, y: Any) -> Any:
        return arith.SelectOp(condition, x, y).result
