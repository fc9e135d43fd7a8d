"""Size expressions and guards as C, with the values and the roundings of `Expr.evaluate`.

Python's integers have no bounds, those of C have 64 bits.  Where the ranges of the symbols show
that nothing leaves them, plain operators are printed; elsewhere, functions that note an overflow
(`checked_add`, ...), as divisions note a divisor that may not be positive: `s->is_bad`.  Such a
function gives 0 then, which is outside the range that its value has: what takes its value is
printed as a function too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..expr import Dim, Expr, Guard

_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_PLAIN = 1 << 31  # constants below it need no suffix

_Span = tuple[int, int]
_Atom = Any  # a symbol, or a function of expressions


class Printer:
    """Prints expressions of type int64_t, and guards, as conditions.

    names: symbol or device variable -> its member of `struct sizes`.
    """

    def __init__(self, names: Mapping[str, str]):
        self.names = names
        # A division asks for the text of what it divides several times, which divides in turn.
        self._texts: dict[Expr, str] = {}

    def expression(self, value: Expr) -> str:
        """C that may stand as an argument, or beside a comparison or an assignment."""
        found = self._texts.get(value)
        if found is None:
            found = self._texts[value] = self._printed(value)
        return found

    def _printed(self, value: Expr) -> str:
        if not value.terms:
            return "0"
        text, span = "", (0, 0)
        for monomial, coefficient in value.terms:
            text, span = self._plus(text, span, monomial, coefficient)
        return text

    def operand(self, value: Expr) -> str:
        """C that may stand beside any operator."""
        text = self.expression(value)
        return text if _is_primary(value, text) else f"({text})"

    def guard(self, guard: Guard) -> str:
        """A condition; "1" and "0" where it follows without sizes."""
        parts: list[str] = []
        for relation, left, right in guard.comparisons:
            if left == right and _is_sure(self.expression(left)):
                left = right = Expr.of(0)  # compilers warn of what is compared with itself
            if left.constant is not None and right.constant is not None:
                if not Guard(((relation, left, right),)).holds({}):
                    return " && ".join([*parts, "0"])  # those before it are evaluated all the same
                continue
            parts.append(f"{self.expression(left)} {relation} {self.expression(right)}")
        return " && ".join(parts) or "1"

    # ---- sums and products

    def _plus(
        self, text: str, span: _Span, monomial: tuple[_Atom, ...], coefficient: int
    ) -> tuple[str, _Span]:
        """A sum so far and one more product."""
        if not text:
            return self._product(monomial, coefficient)
        magnitude, reach = self._product(monomial, abs(coefficient))
        signed = reach if coefficient > 0 else (-reach[1], -reach[0])
        total = (span[0] + signed[0], span[1] + signed[1])
        if _fits(total) and _fits(signed) and _is_sure(text, magnitude):
            return f"{text} {'+' if coefficient > 0 else '-'} {magnitude}", total
        added, _ = self._product(monomial, coefficient)
        return f"checked_add(s, {text}, {added})", total

    def _product(self, monomial: tuple[_Atom, ...], coefficient: int) -> tuple[str, _Span]:
        text, span = "", (1, 1)
        for atom in monomial:
            part, reach = self._atom(atom), _span_of(atom)
            text, span = _times(text, span, part, reach)
        if coefficient == -1 and text:
            negative = (-span[1], -span[0])
            if _fits(negative) and _is_sure(text):
                return f"-{text}", negative
            return _times(text, span, "-1", (-1, -1))
        if coefficient != 1 or not text:
            text, span = _times(text, span, literal(coefficient), (coefficient, coefficient))
        return text, span

    # ---- what stands in products

    def _atom(self, atom: _Atom) -> str:
        if isinstance(atom, Dim):
            return self.names[atom.name]
        function: str = atom.function
        args: tuple[Expr, ...] = atom.args
        if function in ("//", "%", "ceildiv"):
            return self._division(function, *args)
        texts = ", ".join(map(self.expression, args))
        if function in ("min", "max"):
            return f"{function}imum({texts})"
        return f"{function}(s, {texts})"

    def _division(self, function: str, a: Expr, b: Expr) -> str:
        (low, high), (least, most) = a.bounds(), b.bounds()
        is_sure = _is_sure(self.expression(a), self.expression(b))
        if low >= 0 and least > 0 and _fits((low, high)) and _fits((least, most)) and is_sure:
            if function != "ceildiv":
                return f"({self.operand(a)} {'/' if function == '//' else '%'} {self.operand(b)})"
            up = a + (b.constant or 0) - 1
            is_sure = _fits(up.bounds()) and _is_sure(self.expression(up))
            if b.constant is not None and is_sure:
                return f"({self.operand(up)} / {literal(b.constant)})"
        name = {"//": "floor_div", "%": "floor_mod", "ceildiv": "ceil_div"}[function]
        return f"{name}(s, {self.expression(a)}, {self.expression(b)})"


def literal(value: int) -> str:
    """A number as C; one of more than 64 bits notes an overflow."""
    if not _LOWEST <= value <= _HIGHEST:
        return "checked_add(s, INT64_MAX, 1)"
    if value == _LOWEST:
        return "INT64_MIN"
    return str(value) if abs(value) < _PLAIN else f"INT64_C({value})"


def _times(text: str, span: _Span, factor: str, reach: _Span) -> tuple[str, _Span]:
    corners = [x * y for x in span for y in reach]
    total = min(corners), max(corners)
    if not text:
        return factor, total
    if _fits(total) and _fits(reach) and _is_sure(text, factor):
        factor = f"({factor})" if factor.startswith("-") else factor
        return f"{text} * {factor}", total
    return f"checked_mul(s, {text}, {factor})", total


def _span_of(atom: _Atom) -> _Span:
    return Expr((((atom,), 1),)).bounds()


def _fits(span: _Span) -> bool:
    return _LOWEST < span[0] and span[1] <= _HIGHEST


def _is_sure(*texts: str) -> bool:
    """Whether nothing in these can fail."""
    return not any("(s, " in text for text in texts)


def _is_primary(value: Expr, text: str) -> bool:
    """Whether it is one symbol, number or call."""
    if value.constant is not None:
        return not text.startswith("-")
    return len(value.terms) == 1 and len(value.terms[0][0]) == 1 and value.terms[0][1] == 1
