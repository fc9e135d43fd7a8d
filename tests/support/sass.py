"""Whether SASS leaves the registers of Hopper's products alone while they are under way.

HGMMA, IGMMA, QGMMA (PTX: wgmma) run beside the warps, on tensor cores.  Until WARPGROUP.DEPBAR has
waited for their group nothing may read or write their sums, and nothing may write A's registers;
the next product may add to the same sums.  ptxas 13.0 has broken that, in code whose PTX was right.

Every path through a kernel is followed, with the groups that are under way on it; both ways of a
branch are taken, whatever its condition.  What can't be followed is an error, `Unclear`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from .sass_listing import Function, Instruction, functions

_MOST_GROUPS = 8
_MOST_STATES = 400_000
_PRODUCTS = ("BGMMA", "HGMMA", "IGMMA", "QGMMA")
_FIRST = re.compile(r"R(\d+)")
_A_REGISTERS = 4  # 64 rows of 32 bytes, of 128 threads


class Unclear(Exception):
    """Code that the checker can't follow."""


@dataclass(frozen=True)
class Touch:
    """An instruction that is too early; registers: of products under way, that it touches."""

    function: str
    instruction: Instruction
    registers: tuple[int, ...]

    def __str__(self) -> str:
        named = ", ".join(f"R{number}" for number in self.registers)
        return f"{self.function} at {self.instruction} (products under way: {named})"


def early_touches(cubin: bytes) -> list[Touch]:
    """Early touches of all functions of a cubin."""
    return [touch for function in functions(cubin) for touch in touches(function)]


@dataclass(frozen=True)
class Product:
    """Its registers; ends_group: whether what was started since the last such one is a group."""

    sums: frozenset[int]
    a: frozenset[int]
    ends_group: bool = field(compare=False)

    @staticmethod
    def of(instruction: Instruction) -> Product:
        shape = re.fullmatch(r"64x(\d+)x\d+", instruction.modifiers[0])
        first = _FIRST.fullmatch(instruction.values[0])
        if shape is None or first is None or instruction.guard:
            raise Unclear(f"a product of another form: {instruction}")
        columns, place = int(shape[1]), int(first[1])
        count = columns // 4 if instruction.modifiers[1] == "F16" else columns // 2
        a = _FIRST.match(instruction.values[1])
        added = instruction.values[2 if a is None else 3]
        if added not in (instruction.values[0], "RZ"):
            raise Unclear(f"a product that adds to other registers: {instruction}")
        of_a = range(int(a[1]), int(a[1]) + _A_REGISTERS) if a else ()
        sums = frozenset(range(place, place + count))
        return Product(sums, frozenset(of_a), "gsb0" in instruction.values)


@dataclass(frozen=True)
class UnderWay:
    """groups: the products of each, the oldest first.  opened: products that no group has yet."""

    groups: tuple[frozenset[Product], ...] = ()
    opened: frozenset[Product] = frozenset()

    @property
    def products(self) -> frozenset[Product]:
        return self.opened.union(*self.groups)

    def started(self, product: Product) -> UnderWay:
        opened = self.opened | {product}
        if not product.ends_group:
            return UnderWay(self.groups, opened)
        if len(self.groups) == _MOST_GROUPS:
            raise Unclear(f"more than {_MOST_GROUPS} groups of products under way")
        return UnderWay((*self.groups, opened))

    def waited(self, left: int) -> UnderWay:
        """With the newest groups left."""
        return UnderWay(self.groups[max(0, len(self.groups) - left) :], self.opened)

    def touched_by(self, instruction: Instruction) -> frozenset[int]:
        found = frozenset[int]()
        for product in self.products:
            found |= instruction.touched & product.sums | instruction.written & product.a
        return found

    def overlapped_by(self, product: Product) -> frozenset[int]:
        """Registers that a starting product overlaps; it may add to the same sums only."""
        found = frozenset[int]()
        for other in self.products:
            found |= product.a & other.sums | product.sums & other.a
            if product.sums != other.sums:
                found |= product.sums & other.sums
        return found


@dataclass(frozen=True)
class Place:
    """next: the number of the instruction that follows.  returns: where subroutines return to."""

    next: int
    state: UnderWay = UnderWay()
    returns: tuple[int, ...] = ()


def touches(function: Function) -> list[Touch]:
    """The instructions of a function that are too early; Unclear: it can't be followed."""
    if not any(instruction.name in _PRODUCTS for instruction in function.code):
        return []
    found = dict[int, frozenset[int]]()
    seen, left = {Place(0)}, [Place(0)]
    while left:
        place = left.pop()
        if place.next == len(function.code):
            raise Unclear(f"{function.name}: the code ends without EXIT")
        state, early = _after(function.code[place.next], place.state)
        if early:
            found[place.next] = found.get(place.next, frozenset()) | early
        for following in _following(function, place, state):
            if following not in seen:
                seen.add(following)
                left.append(following)
        if len(seen) > _MOST_STATES:
            raise Unclear(f"{function.name}: more than {_MOST_STATES} places and states")
    return [
        Touch(function.name, function.code[number], tuple(sorted(registers)))
        for number, registers in sorted(found.items())
    ]


def _after(instruction: Instruction, state: UnderWay) -> tuple[UnderWay, frozenset[int]]:
    """The products under way after an instruction, and the registers that it touches too early."""
    if instruction.name in _PRODUCTS:
        product = Product.of(instruction)
        return state.started(product), state.overlapped_by(product)
    if instruction.name == "WARPGROUP" and instruction.modifiers[0] == "DEPBAR":
        return state.waited(_groups_left(instruction)), frozenset()
    return state, state.touched_by(instruction)


def _groups_left(wait: Instruction) -> int:
    if wait.guard or wait.modifiers != ("DEPBAR", "LE") or wait.operands[0] != "gsb0":
        raise Unclear(f"a wait of another form: {wait}")
    return int(wait.operands[1], 16)


def _following(function: Function, place: Place, state: UnderWay) -> Iterator[Place]:
    """Where execution may go after the instruction of a place."""
    instruction, after = function.code[place.next], place.next + 1
    is_certain = not instruction.guard
    match instruction.name:
        case "EXIT":
            pass
        case "RET":
            if not place.returns:
                raise Unclear(f"{function.name}: a return from no subroutine: {instruction}")
            yield Place(place.returns[-1], state, place.returns[:-1])
        case "CALL":
            for target in _targets(function, instruction):
                yield Place(target, state, (*place.returns, after))
        case "BRA" | "BRX" | "WARPSYNC" if instruction.targets:
            for target in _targets(function, instruction):
                yield Place(target, state, place.returns)
            # With a predicate or a mask of lanes it may go on.
            is_certain &= len(instruction.operands) == 1
        case "BRA" | "BRX" | "BRXU" | "JMP" | "JMX" | "JMXU" | "BREAK" | "KILL":
            raise Unclear(f"{function.name}: a jump of another form: {instruction}")
        case _:
            is_certain = False
    if not is_certain:
        yield Place(after, state, place.returns)


def _targets(function: Function, instruction: Instruction) -> list[int]:
    if not instruction.targets or not set(instruction.targets) <= function.labels.keys():
        raise Unclear(f"{function.name}: labels that are not there: {instruction}")
    return [function.labels[label] for label in instruction.targets]
