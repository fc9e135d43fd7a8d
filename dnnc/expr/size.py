"""Dim and Expr: integers over named sizes, in one normal form, so that equal is equal."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from typing import Any

from .. import given
from ..errors import DnncError, Status

MAX_TERMS = 1024  # of a product that is written out
MAX_DEPTH = 32  # of calls in calls; nothing that walks an expression goes deeper
_MOST_FACTORS = 8  # of a product whose bounds are looked at closely
_MOST_CALLS = 2  # in such a product, and in each other there
_MOST_SHIFTED = 4096  # products that looking at bounds closely may write out

# Names that a plan's expressions may use beside the graph's symbols; the runtime sets them.
DEVICE_VARIABLES = ("sm_count", "max_dynamic_smem_bytes")


def _is_identifier(name: object) -> bool:
    """Callers are not all typed."""
    return isinstance(name, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is not None


@dataclass(frozen=True, order=True)
class Bound:
    """A product of sizes is `max` at most.

    factors: names of sizes, sorted; one twice where it is a factor twice.
    """

    factors: tuple[str, ...]
    max: int

    def __str__(self) -> str:
        return "*".join(self.factors)


@dataclass(frozen=True)
class Dim:
    """A size known only at run time.

    Two tensors that share a `Dim` share the size.  min, max: inclusive range, in elements
    (defaults 1 and 65536).  multiple_of: every value is a multiple of it (default 1).
    A single bound has to be named: Dim("n", max=4096).  within: bounds of products that it is a
    factor of, which `pygraph.bound` gives it.
    """

    name: str
    min: int = 1
    max: int = 65536
    multiple_of: int = 1
    within: tuple[Bound, ...] = field(default=(), repr=False, kw_only=True)

    def __new__(cls, name: str = "", *bounds: int, **named: int) -> Dim:
        if len(bounds) == 1 and "max" not in named:
            raise bad(
                f"Dim({name!r}, {bounds[0]}), one bound without a name",
                f"Dim({name!r}, max={bounds[0]}), or Dim({name!r}, MIN, MAX)",
            )
        return super().__new__(cls)

    def __post_init__(self) -> None:
        if not _is_identifier(self.name):
            raise bad(f"Dim name {self.name!r}", "a Python identifier")
        if self.name in (*DEVICE_VARIABLES, *FUNCTIONS, "and"):
            raise bad(f"Dim name {self.name!r} is reserved", "another name")
        for bound in ("min", "max", "multiple_of"):
            given.verify_integer(getattr(self, bound), f"Dim {self.name}: {bound}")
        if self.min < 0 or self.multiple_of < 1 or self.greatest < self.least:
            raise bad(
                f"Dim {self.name}: min={self.min}, max={self.max}, multiple_of={self.multiple_of}",
                "0 <= min <= max, multiple_of >= 1, and a multiple of it between them",
            )

    @property
    def least(self) -> int:
        """The smallest value, a multiple as all are: 8 where min is 1 and multiple_of is 8."""
        return -(-self.min // self.multiple_of) * self.multiple_of

    @property
    def greatest(self) -> int:
        """The largest value."""
        return self.max // self.multiple_of * self.multiple_of

    def __add__(self, other: Size) -> Expr:
        return Expr.of(self) + other

    def __sub__(self, other: Size) -> Expr:
        return Expr.of(self) - other

    def __mul__(self, other: Size) -> Expr:
        return Expr.of(self) * other

    def __floordiv__(self, other: Size) -> Expr:
        return Expr.of(self) // other

    def __mod__(self, other: Size) -> Expr:
        return Expr.of(self) % other

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: Size) -> Expr:
        return Expr.of(other) - self

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Call:
    """An operation that the normal form can't look into: `//`, `%`, `min`, `max`, `ceildiv`.

    depth: how many calls stand in each other.  weight: how many symbols and calls there are.  Both
    count this one.  is_bounded: see `Expr.is_bounded`.
    """

    function: str
    args: tuple[Expr, ...]
    depth: int = field(init=False, compare=False, repr=False)
    weight: int = field(init=False, compare=False, repr=False)
    is_bounded: bool = field(init=False, compare=False, repr=False)
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        # Worked out once: a call stands in many products, and its arguments have calls in turn.
        for name, value in (
            ("depth", 1 + max([arg.depth for arg in self.args])),
            ("weight", 1 + sum([arg.weight for arg in self.args])),
            ("is_bounded", any([arg.is_bounded for arg in self.args])),
            ("_hash", hash((self.function, self.args))),
        ):
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        return self._text

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _text(self) -> str:
        texts = [str(arg) for arg in self.args]
        if self.function in ("//", "%"):
            a, b = (text if re.fullmatch(r"\w+", text) else f"({text})" for text in texts)
            return f"({a} {self.function} {b})"
        return f"{self.function}({', '.join(texts)})"

    @functools.cached_property
    def bounds(self) -> tuple[int, int]:
        return _call_bounds(self)


Atom = Dim | Call
Monomial = tuple[Atom, ...]


@dataclass(frozen=True)
class Expr:
    """A sum of products: `terms` maps each product of sorted atoms to its coefficient.

    Equal expressions compare equal as far as addition and multiplication go; what stands
    under `//`, `%`, `min`, `max` compares by its parts.
    """

    terms: tuple[tuple[Monomial, int], ...]

    @staticmethod
    def of(value: Size) -> Expr:
        """The expression of an int, a Dim, or an expression itself."""
        if isinstance(value, Expr):
            return value
        if isinstance(value, Dim):
            return Expr((((value,), 1),))
        return _constant(int(value))

    def __add__(self, other: Size) -> Expr:
        summand = Expr.of(other)
        a, b = self.constant, summand.constant
        if a is not None and b is not None:
            return _constant(a + b)
        terms = dict(self.terms)
        for monomial, coefficient in summand.terms:
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return of_terms(terms)

    def __neg__(self) -> Expr:
        return of_terms({monomial: -coefficient for monomial, coefficient in self.terms})

    def __sub__(self, other: Size) -> Expr:
        return self + -Expr.of(other)

    def __mul__(self, other: Size) -> Expr:
        factor = Expr.of(other)
        a, b = self.constant, factor.constant
        if a is not None and b is not None:
            return _constant(a * b)
        if a == 1 or b == 1:
            return factor if a == 1 else self
        terms: dict[Monomial, int] = {}
        if len(self.terms) * len(factor.terms) > MAX_TERMS:
            raise bad(
                f"a size that is a sum of {len(self.terms) * len(factor.terms)} products",
                f"at most {MAX_TERMS}",
            )
        for left, a in self.terms:
            for right, b in factor.terms:
                monomial = tuple(sorted(left + right, key=str))
                terms[monomial] = terms.get(monomial, 0) + a * b
        return of_terms(terms)

    def __floordiv__(self, other: Size) -> Expr:
        divisor = Expr.of(other)
        exact = self.divided_exactly(divisor)
        if exact is not None:
            return exact
        whole, rest = self._whole_terms(divisor.constant or 0)
        return whole + fold("//", rest, divisor)

    def _whole_terms(self, divisor: int) -> tuple[Expr, Expr]:
        """(the terms that a fixed divisor divides, over it; the others).

        Taken out of `//` and `%`, so that (n - 2) // 2 is n // 2 - 1, as in MLIR's affine maps.
        """
        if divisor < 1:
            return Expr.of(0), self
        whole = {monomial: c // divisor for monomial, c in self.terms if c % divisor == 0}
        rest = {monomial: c for monomial, c in self.terms if c % divisor}
        return of_terms(whole), of_terms(rest)

    def __mod__(self, other: Size) -> Expr:
        divisor = Expr.of(other)
        if self.divided_exactly(divisor) is not None:
            return Expr.of(0)
        return fold("%", self._whole_terms(divisor.constant or 0)[1], divisor)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: Size) -> Expr:
        return Expr.of(other) - self

    def divided_exactly(self, divisor: Expr) -> Expr | None:
        """self / divisor when the normal form shows that it leaves no rest, else None."""
        if len(divisor.terms) != 1:
            return Expr.of(1) if self == divisor and self.terms else None
        ((wanted, coefficient),) = divisor.terms
        quotient: dict[Monomial, int] = {}
        for monomial, factor in self.terms:
            rest = list(monomial)
            for atom in wanted:
                if atom not in rest:
                    return None
                rest.remove(atom)
            if factor % coefficient:
                return None
            quotient[tuple(rest)] = factor // coefficient
        return of_terms(quotient)

    @property
    def constant(self) -> int | None:
        """The value, when it needs no symbol."""
        terms = self.terms
        if len(terms) == 1:
            monomial, coefficient = terms[0]
            return None if monomial else coefficient
        return None if terms else 0

    @property
    def depth(self) -> int:
        """How many calls stand in each other; 0 where there is none."""
        depth = 0
        for monomial, _ in self.terms:
            for atom in monomial:
                if isinstance(atom, Call) and atom.depth > depth:
                    depth = atom.depth
        return depth

    @property
    def weight(self) -> int:
        """How much work it is to walk: its terms, and the symbols and calls in them."""
        weight = len(self.terms)
        for monomial, _ in self.terms:
            for atom in monomial:
                weight += atom.weight if isinstance(atom, Call) else 1
        return weight

    @property
    def is_bounded(self) -> bool:
        """Whether a size in it is a factor of a product that is bounded."""
        for monomial, _ in self.terms:
            for atom in monomial:
                if atom.within if isinstance(atom, Dim) else atom.is_bounded:
                    return True
        return False

    def dims(self) -> frozenset[Dim]:
        """Every symbol in it."""
        found: set[Dim] = set()
        for monomial, _ in self.terms:
            for atom in monomial:
                if isinstance(atom, Dim):
                    found.add(atom)
                else:
                    found.update(*(arg.dims() for arg in atom.args))
        return frozenset(found)

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """The value under `sizes`; a name that is missing is BAD_PARAM."""
        if (constant := self.constant) is not None:
            return constant
        return sum(
            coefficient * math.prod(atom_value(atom, sizes) for atom in monomial)
            for monomial, coefficient in self.terms
        )

    def bounds(self) -> tuple[int, int]:
        """Smallest and largest value over the ranges of its symbols (may be wider than true)."""
        if (constant := self.constant) is not None:
            return constant, constant
        spans = {atom: _atom_bounds(atom) for monomial, _ in self.terms for atom in monomial}
        low, high = _sum_of_spans(self, spans)
        if not self._has_differences_of_products:
            return low, high
        # Each atom as its least value and what is above it: (n - 2) * (m - 2) is none below 0.
        lows = {atom: span[0] for atom, span in spans.items()}
        above = {atom: (0, span[1] - span[0]) for atom, span in spans.items()}
        moved = _sum_of_spans(_shifted(self, lows), above)
        return max(low, moved[0]), min(high, moved[1])

    @property
    def _has_differences_of_products(self) -> bool:
        factors = [len(monomial) for monomial, _ in self.terms]
        if not 1 < max(factors) <= _MOST_FACTORS or all(c > 0 for _, c in self.terms):
            return False
        return sum(1 << count for count in factors) <= _MOST_SHIFTED

    def known_divisor(self) -> int:
        """The largest number that is known to divide every value (0 for the constant 0)."""
        if (constant := self.constant) is not None:
            return abs(constant)
        divisors = (
            math.prod(map(_atom_divisor, monomial)) * coefficient
            for monomial, coefficient in self.terms
        )
        return math.gcd(*divisors)

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        text = ""
        for monomial, coefficient in self.terms:
            factors = [str(atom) for atom in monomial]
            if abs(coefficient) != 1 or not factors:
                factors.append(str(abs(coefficient)))
            sign = "-" if coefficient < 0 else "+"
            product = "*".join(factors)
            text += f" {sign} {product}" if text else ("-" if coefficient < 0 else "") + product
        return text

    def __repr__(self) -> str:
        return f"Expr({self})"


Size = int | Dim | Expr


def ceildiv(value: Size, divisor: Size) -> Expr:
    """value / divisor, rounded up."""
    a, b = Expr.of(value), Expr.of(divisor)
    exact = a.divided_exactly(b)
    return exact if exact is not None else fold("ceildiv", a, b)


def minimum(*values: Size) -> Expr:
    return extreme("min", values)


def maximum(*values: Size) -> Expr:
    return extreme("max", values)


def at_least(value: Expr, least: int) -> Expr:
    """The value, or `least` where it is smaller: as of a size that may be 0, and is divided by."""
    return value if value.bounds()[0] >= least else maximum(value, least)


def range_text(symbol: Any) -> str:
    """1 to 65536, a multiple of 8; symbol: a `Dim`, or a plan's."""
    multiple = f", a multiple of {symbol.multiple_of}" if symbol.multiple_of > 1 else ""
    return f"{symbol.min} to {symbol.max}{multiple}"


def product(values: Iterable[Size]) -> Expr:
    return reduce(lambda a, b: a * b, values, Expr.of(1))


def magic(divisor: Size) -> Expr:
    """The factor of a division by multiplication (below 2**32); see `magic_shift`."""
    return fold("magic", Expr.of(divisor))


def magic_shift(divisor: Size) -> Expr:
    """31 + ceil(log2 d): n // d = (n * magic(d)) >> magic_shift(d) for 0 <= n < 2**31.

    Granlund and Montgomery, "Division by invariant integers using multiplication", theorem 4.2.
    """
    return fold("magic_shift", Expr.of(divisor))


def device_dim(name: str) -> Dim:
    """The symbol of a device variable (`sm_count`, ...), as expressions of a plan use it."""
    dim = object.__new__(Dim)
    for part, value in (("name", name), ("min", 1), ("max", 1 << 20), ("multiple_of", 1)):
        object.__setattr__(dim, part, value)
    return dim


def _magic_shift(divisor: int) -> int:
    return 31 + max(0, divisor - 1).bit_length()


FUNCTIONS: dict[str, Callable[..., int]] = {
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "ceildiv": lambda a, b: -(-a // b),
    "min": min,
    "max": max,
    "magic": lambda d: -(-(1 << _magic_shift(d)) // d),
    "magic_shift": _magic_shift,
}

DIVISIONS = ("//", "%", "ceildiv", "magic", "magic_shift")


def bad(what: str, supported: str) -> DnncError:
    return DnncError(Status.BAD_PARAM, what, supported)


@lru_cache(maxsize=4096)
def _constant(value: int) -> Expr:
    return Expr((((), value),) if value else ())


def total(values: Iterable[Expr]) -> Expr:
    """The sum of expressions, put in order once."""
    terms: dict[Monomial, int] = {}
    for value in values:
        for monomial, coefficient in value.terms:
            terms[monomial] = terms.get(monomial, 0) + coefficient
    return of_terms(terms)


def of_terms(terms: Mapping[Monomial, int]) -> Expr:
    """The expression of products and their coefficients."""
    kept = [(monomial, coefficient) for monomial, coefficient in terms.items() if coefficient]
    if len(kept) > 1:
        kept.sort(key=lambda term: (-len(term[0]), [str(atom) for atom in term[0]]))
    return Expr(tuple(kept))


def fold(function: str, *args: Expr) -> Expr:
    """A call, or its value where that follows without sizes."""
    call = Call(function, args)
    if call.depth > MAX_DEPTH:
        raise bad(f"a size of over {MAX_DEPTH} calls in each other", f"at most {MAX_DEPTH}")
    if all(arg.constant is not None for arg in args):
        return Expr.of(atom_value(call, {}))
    return of_terms({(call,): 1})


def extreme(function: str, values: Iterable[Size]) -> Expr:
    unique = dict.fromkeys(map(Expr.of, values))
    return reduce(lambda a, b: fold(function, a, b), unique)


def atom_value(atom: Atom, sizes: Mapping[str, int]) -> int:
    if isinstance(atom, Dim):
        if atom.name not in sizes:
            raise bad(f"size {atom.name} is not given", f"a value for {atom.name}")
        return sizes[atom.name]
    values = [arg.evaluate(sizes) for arg in atom.args]
    if atom.function in DIVISIONS and values[-1] <= 0:
        raise bad(f"{atom} divides by {values[-1]}", "a positive divisor")
    return FUNCTIONS[atom.function](*values)


def _atom_bounds(atom: Atom) -> tuple[int, int]:
    return (atom.least, atom.greatest) if isinstance(atom, Dim) else atom.bounds


def _call_bounds(atom: Call) -> tuple[int, int]:
    if len(atom.args) == 1:
        return (0, 63) if atom.function == "magic_shift" else (0, (1 << 32) - 1)
    (a_low, a_high), (b_low, b_high) = (arg.bounds() for arg in atom.args)
    if atom.function == "%":
        return (0, min(max(a_high, 0), b_high - 1)) if b_low > 0 <= a_low else (-b_high, b_high)
    if atom.function in ("//", "ceildiv") and b_low <= 0:
        largest = max(abs(a_low), abs(a_high))
        return -largest, largest
    corners = [FUNCTIONS[atom.function](a, b) for a in (a_low, a_high) for b in (b_low, b_high)]
    return min(corners), max(corners)


def _sum_of_spans(expr: Expr, spans: Mapping[Atom, tuple[int, int]]) -> tuple[int, int]:
    """Bounds of a sum by those of its terms; spans: of their atoms."""
    low = high = 0
    for monomial, coefficient in expr.terms:
        span = reduce(_span_product, (spans[atom] for atom in monomial), (1, 1))
        if span[0] >= 0 and len(monomial) > 1 and Expr(((monomial, 1),)).is_bounded:
            span = span[0], min(span[1], _most(monomial))
        ends = sorted((span[0] * coefficient, span[1] * coefficient))
        low, high = low + ends[0], high + ends[1]
    return low, high


def _most(monomial: Monomial) -> int:
    """The largest value of a product of factors by what bounds products; none is negative."""
    found = math.prod(_atom_bounds(atom)[1] for atom in monomial)
    if len(monomial) > _MOST_FACTORS:
        return found
    for bound in {b for atom in monomial if isinstance(atom, Dim) for b in atom.within}:
        rest = list(monomial)
        for name in bound.factors:
            factor = next((a for a in rest if isinstance(a, Dim) and a.name == name), None)
            if factor is None:
                break
            rest.remove(factor)
        else:
            found = min(found, bound.max * _most(tuple(rest)))
    calls = [atom for atom in monomial if isinstance(atom, Call)]
    for call in calls if len(calls) <= _MOST_CALLS else ():
        if call.is_bounded and call.depth <= _MOST_CALLS:
            rest = list(monomial)
            rest.remove(call)
            found = min([found, *_most_with(call, Expr(((tuple(rest), 1),)))])
    return found


def _most_with(call: Call, factor: Expr) -> list[int]:
    """[the largest value of call * factor, by factor * arguments]; [] of other calls."""
    a, b = call.args[0], call.args[-1]
    if len(a.terms) + len(b.terms) > _MOST_FACTORS:
        return []
    if call.function in ("min", "max"):
        return [FUNCTIONS[call.function](*((factor * arg).bounds()[1] for arg in (a, b)))]
    divisor = b.constant or 0
    if call.function not in ("//", "ceildiv") or divisor < 1:
        return []
    rest = divisor - 1 if call.function == "ceildiv" else 0
    return [(factor * (a + rest)).bounds()[1] // divisor]


def _shifted(expr: Expr, by: Mapping[Atom, int]) -> Expr:
    """With `atom + by[atom]` for each atom."""
    moved = {atom: Expr((((atom,), 1),)) + more for atom, more in by.items()}
    return total(product(moved[atom] for atom in monomial) * c for monomial, c in expr.terms)


def _atom_divisor(atom: Atom) -> int:
    if isinstance(atom, Dim):
        return atom.multiple_of
    if len(atom.args) == 1:
        return 1
    a, b = (arg.known_divisor() for arg in atom.args)
    return math.gcd(a, b) if atom.function in ("min", "max", "%") else 1


def _span_product(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)
