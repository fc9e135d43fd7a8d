"""Records of a PTX module: what `parser.parse` makes and `program.build` reads.

Source: PTX ISA 9.0, "Syntax" and "State Spaces, Types, and Variables".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .failure import failure

# Operands ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Register:
    """A register that the function declares, `%r1`; with the scope's suffix if in a block."""

    name: str


@dataclass(frozen=True, slots=True)
class Special:
    """A special register without its percent sign: `tid.x`."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """An integer constant as written: it may be negative or unsigned."""

    value: int


@dataclass(frozen=True, slots=True)
class FloatBits:
    """A floating constant, by its bits: width 32 for `0f3F800000`, 64 for `0d...` and `1.5`."""

    bits: int
    width: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable, parameter, function or label."""

    name: str


@dataclass(frozen=True, slots=True)
class Sink:
    """The operand `_`: a result that nobody wants."""


@dataclass(frozen=True, slots=True)
class Vector:
    """`{a, b}`, and the parenthesised lists of a call."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Address:
    """`[base + offset]`, offset in bytes.  rest: what follows a comma inside the brackets."""

    base: Operand
    offset: int
    rest: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Negated:
    """`!%p1`."""

    operand: Operand


@dataclass(frozen=True, slots=True)
class Pair:
    """Two destinations, `%r1|%p1`."""

    first: Operand
    second: Operand


Operand = (
    Register | Special | Immediate | FloatBits | Symbol | Sink | Vector | Address | Negated | Pair
)

# Declarations -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RegisterDeclaration:
    """`.reg .b32 %r<count>` (names `%r0` to `%r{count-1}`), or one name where count is None.

    width: bits; 1 for predicates.
    """

    name: str
    width: int
    count: int | None


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a state space.

    space: global, const, shared, local or param.  nbytes: 0 for an `extern` array without a
    size.  data: initial bytes, None where there are none.
    """

    name: str
    space: str
    align: int
    nbytes: int
    data: bytes | None = field(default=None, repr=False)
    extern: bool = False


@dataclass(frozen=True, slots=True)
class Guard:
    """`@%p1` or, negated, `@!%p1`."""

    register: Register
    negated: bool


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.  line: of the PTX text, from 1.  opcode: split at its dots."""

    line: int
    text: str
    guard: Guard | None
    opcode: tuple[str, ...]
    operands: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel (`.entry`) or a device function (`.func`).

    labels: name to the index of the instruction that follows.  tables: `.branchtargets` lists.
    limits: performance directives, such as `reqntid` to (128, 1, 1).
    A declaration without a body has defined=False.
    """

    name: str
    is_kernel: bool
    line: int
    params: tuple[Variable, ...]
    results: tuple[Variable, ...]
    registers: tuple[RegisterDeclaration, ...]
    variables: tuple[Variable, ...]
    instructions: tuple[Instruction, ...]
    labels: Mapping[str, int]
    tables: Mapping[str, tuple[str, ...]]
    limits: Mapping[str, tuple[int, ...]]
    defined: bool = True

    def indices(self, opcode: str) -> list[int]:
        """Where the instructions are whose opcode starts with these dotted words."""
        words = tuple(opcode.split("."))
        return [
            index
            for index, instruction in enumerate(self.instructions)
            if instruction.opcode[: len(words)] == words
        ]


@dataclass(frozen=True)
class Module:
    """A PTX module.  version: ten times the PTX version.  target: `sm_90`, `sm_90a`."""

    version: int
    target: str
    functions: Mapping[str, Function]
    variables: Mapping[str, Variable]
    # What `program.build` made of each kernel: decoding is the dearest part of a small launch.
    programs: dict[str, Any] = field(default_factory=dict[str, Any], compare=False, repr=False)

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the entry functions, in the order of the text."""
        return tuple(name for name, function in self.functions.items() if function.is_kernel)

    def function(self, name: str) -> Function:
        """The function of this name; one that is only declared, or missing, is a failure."""
        found = self.functions.get(name)
        if found is None or not found.defined:
            raise failure(f"function {name!r} has no body in the module", f"module {self.target}")
        return found

    def without(self, kernel: str, index: int) -> Module:
        """The module with instruction `index` of a function removed (mutation tests)."""
        function = self.function(kernel)
        if not 0 <= index < len(function.instructions):
            raise failure(f"instruction {index} of {len(function.instructions)}", kernel)
        labels = {name: at - (at > index) for name, at in function.labels.items()}
        kept = function.instructions[:index] + function.instructions[index + 1 :]
        shorter = replace(function, instructions=kept, labels=labels)
        return Module(
            self.version, self.target, {**self.functions, kernel: shorter}, self.variables
        )


def walk(operand: Operand) -> Iterator[Operand]:
    """The operand and every operand inside it."""
    yield operand
    if isinstance(operand, Vector):
        for item in operand.items:
            yield from walk(item)
    elif isinstance(operand, Address):
        yield from walk(operand.base)
        for item in operand.rest:
            yield from walk(item)
    elif isinstance(operand, Negated):
        yield from walk(operand.operand)
    elif isinstance(operand, Pair):
        yield from walk(operand.first)
        yield from walk(operand.second)


# `%tid` and friends.  A register of the function shadows nothing here: LLVM's names differ.
SPECIAL = re.compile(
    r"%(tid|ntid|ctaid|nctaid|cluster_ctaid|cluster_nctaid|clusterid|nclusterid)(\.[xyzw])?$"
    r"|%(laneid|warpid|nwarpid|smid|nsmid|gridid|clock|clock_hi|clock64|globaltimer|globaltimer_lo"
    r"|globaltimer_hi|cluster_ctarank|cluster_nctarank|is_explicit_cluster|lanemask_(?:eq|lt|le|gt|ge)"
    r"|dynamic_smem_size|total_smem_size)$"
)
