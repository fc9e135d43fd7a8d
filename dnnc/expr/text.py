"""The text of expressions: a closed grammar, parsed here and never by `eval`.

    guard    := term ("and" term)*
    term     := expr (("<" | "<=" | ">" | ">=" | "==" | "!=") expr)?
    expr     := product (("+" | "-") product)*
    product  := unary (("*" | "//" | "%") unary)*
    unary    := "-" unary | integer | name | "(" expr ")" | function "(" expr ("," expr)? ")"
    function := "min" | "max" | "ceildiv" | "magic" | "magic_shift"

`//` and `%` round to minus infinity, as in Python.  magic(d) and magic_shift(d) take one
expression: kernels divide by d as (n * magic) >> magic_shift, exact for 0 <= n < 2**31.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..errors import DnncError
from .evaluators import COMPARISONS, Guard
from .size import (
    DEVICE_VARIABLES,
    MAX_DEPTH,
    Dim,
    Expr,
    bad,
    ceildiv,
    device_dim,
    extreme,
    fold,
    total,
)

MAX_TEXT = 4096
# Brackets in brackets: what is printed has up to two for each call.
_MOST_NESTED = 2 * MAX_DEPTH + 1
_MOST_FACTORS = 32  # of a product
_MOST_DIGITS = 20
_LARGEST = 1 << 64  # of a number, and of what stands before a product

# What a text may make its reader do, counted in terms and their factors, and how many symbols and
# calls it may become: so many, and so many more for each character.  Products of sums are written
# out.
_WORK, _WORK_A_CHARACTER = 256, 4


def parse(text: str, dims: Mapping[str, Dim] | None = None) -> Expr:
    """The expression of `text`.  dims: the symbols it may name; a device variable is one too."""
    return _parser(text, dims).expression()


def parse_guard(text: str, dims: Mapping[str, Dim] | None = None) -> Guard:
    """The guard of `text`; a bare expression means that it is not 0."""
    return _parser(text, dims).guard()


def _parser(text: str, dims: Mapping[str, Dim] | None) -> _Parser:
    if len(text) > MAX_TEXT:
        raise bad(f"size expression of {len(text)} characters", f"at most {MAX_TEXT}")
    return _Parser(text, dims or {})


class _Parser:
    """Recursive descent over the grammar at the top of this file."""

    TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_]\w*)|(//|<=|>=|==|!=|[-+*%<>(),]))")

    def __init__(self, text: str, dims: Mapping[str, Dim]):
        self.text = text
        self.dims = dims
        self.tokens = self._tokens()
        self.at = 0
        self.depth = 0
        self.work = self.most = _WORK + _WORK_A_CHARACTER * len(text)

    def _tokens(self) -> list[str]:
        tokens: list[str] = []
        at = 0
        text = self.text.rstrip()
        while at < len(text):
            match = self.TOKEN.match(text, at)
            if match is None:
                raise self._error(f"{text[at:].strip()[:16]!r}")
            tokens.append(match.group().strip())
            at = match.end()
        return tokens

    def _error(self, found: str) -> DnncError:
        return bad(
            f"size expression {self.text[:80]!r}: unexpected {found}",
            "integers, the graph's symbols, + - * // % min max ceildiv, comparisons, and",
        )

    def _peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else "end of text"

    def _take(self, *wanted: str) -> str | None:
        if self.at < len(self.tokens) and self.tokens[self.at] in wanted:
            self.at += 1
            return self.tokens[self.at - 1]
        return None

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise self._error(repr(self._peek()))

    def expression(self) -> Expr:
        found = self._sum()
        self._end()
        return found

    def guard(self) -> Guard:
        comparisons = [self._comparison()]
        while self._take("and"):
            comparisons.append(self._comparison())
        self._end()
        return Guard(tuple(comparisons))

    def _end(self) -> None:
        if self.at != len(self.tokens):
            raise self._error(repr(self._peek()))

    def _comparison(self) -> tuple[str, Expr, Expr]:
        left = self._sum()
        relation = self._take(*COMPARISONS)
        return (relation, left, self._sum()) if relation else ("!=", left, Expr.of(0))

    def _sum(self) -> Expr:
        values = [self._product()]
        while sign := self._take("+", "-"):
            right = self._product()
            values.append(right if sign == "+" else -right)
        if len(values) == 1:
            return values[0]
        self._work_on(*values)
        return self._bounded(total(values))

    def _product(self) -> Expr:
        value = self._unary()
        while operator := self._take("*", "//", "%"):
            right = self._unary()
            if operator == "*":
                self._work_on(*[value] * len(right.terms), *[right] * len(value.terms))
                value = value * right
            else:
                self._work_on(value, right)
                value = value // right if operator == "//" else value % right
            value = self._bounded(value)
        return value

    def _work_on(self, *values: Expr) -> None:
        """Counts what these are as work to be done; too much of it is BAD_PARAM."""
        self.work -= sum([1 + len(monomial) for value in values for monomial, _ in value.terms])
        if self.work < 0:
            raise self._too_much()

    def _too_much(self) -> DnncError:
        return bad(
            f"size expression {self.text[:80]!r} has too many products of sums",
            "one that is shorter when it is written out",
        )

    def _bounded(self, value: Expr) -> Expr:
        """The value itself; one of too large numbers or products is BAD_PARAM."""
        for monomial, coefficient in value.terms:
            if not -_LARGEST <= coefficient <= _LARGEST:
                raise self._error("a number of over 64 bits")
            if len(monomial) > _MOST_FACTORS:
                raise self._error(f"a product of over {_MOST_FACTORS} sizes")
        if value.weight > self.most:
            raise self._too_much()
        return value

    def _unary(self) -> Expr:
        is_negative = False
        while self._take("-"):
            is_negative = not is_negative
        self.depth += 1
        if self.depth > _MOST_NESTED:
            raise bad(f"size expression nested over {_MOST_NESTED} deep", f"at most {_MOST_NESTED}")
        value = self._operand()
        self.depth -= 1
        if not is_negative:
            return value
        self._work_on(value)
        return -value

    def _operand(self) -> Expr:
        if self._take("("):
            value = self._sum()
            self._expect(")")
            return value
        token = self._peek()
        if token[0].isdigit() and self.at < len(self.tokens):
            self.at += 1
            if len(token) > _MOST_DIGITS:
                raise self._error(f"a number of {len(token)} digits")
            return self._bounded(Expr.of(int(token)))
        if token in ("magic", "magic_shift", "min", "max", "ceildiv"):
            self.at += 1
            return self._call(token)
        if token in DEVICE_VARIABLES:
            self.at += 1
            return Expr.of(device_dim(token))
        if token in self.dims:
            self.at += 1
            return Expr.of(self.dims[token])
        raise self._error(repr(token))

    def _call(self, function: str) -> Expr:
        self._expect("(")
        args = [self._sum()]
        if not function.startswith("magic"):
            self._expect(",")
            args.append(self._sum())
        self._expect(")")
        self._work_on(*args)
        if function == "ceildiv":
            return ceildiv(*args)
        return extreme(function, args) if function in ("min", "max") else fold(function, *args)
