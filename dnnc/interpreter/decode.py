"""From an instruction's operands to closures on the machine.

A decoder of an opcode family is a function of a `Decoder` that returns a `Run`: a closure which
executes the instruction for the active lanes of the machine's gang.  It gets its operands
through `read` and `write`, which also note which registers the instruction touches, so that the
machine knows when poison may be involved.

How poison goes through an instruction is one of (`Decoder.poison`):
  LANES    default: a lane with any poisoned input has all outputs poisoned;
  a rule   a function (machine) -> shadow of each written register, None where clean;
  OWN      the closure sets the shadows of its outputs itself (loads, for instance).
`strict` names registers that must not be poisoned in an active lane: addresses, for instance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .failure import InterpreterError, failure
from .ptx import (
    Address,
    FloatBits,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)
from .ptxtypes import TYPES, Array, PtxType

if TYPE_CHECKING:
    from .machine import Machine

Run = Callable[["Machine"], None]
Read = Callable[["Machine"], Array]
Write = Callable[["Machine", Array], None]
PoisonRule = Callable[["Machine"], list["Array | None"]]
# A control instruction returns the gang's next pc, or `machine.LEAVE` when it falls apart.
Control = Callable[["Machine", int], int]

PRED = TYPES["pred"]


class Slot(NamedTuple):
    """Where a register lives: the `number`th of its width.  key: unique over all widths."""

    width: int
    number: int
    key: int


class Place(NamedTuple):
    """Where a variable lives.  space: shared, frame, param, global or const."""

    space: str
    offset: int
    name: str


class Own:
    """Marks instructions that handle poison themselves."""


class Lanes:
    """Marks instructions whose poison goes lane by lane."""


OWN, LANES = Own(), Lanes()


@dataclass(slots=True)
class Step:
    """A decoded instruction.

    run: executes it, guard included.  body: the same without the guard.  ends_segment: after it
    another warp may get its turn, or a register may have become poisoned.
    """

    instruction: Instruction
    run: Run
    body: Run
    guard: tuple[Slot, bool] | None
    reads: tuple[Slot, ...]
    writes: tuple[Slot, ...]
    strict: tuple[Slot, ...]
    poison: PoisonRule | Own | Lanes
    ends_segment: bool
    control: Control | None = None

    @property
    def touches(self) -> frozenset[int]:
        guard = () if self.guard is None else (self.guard[0],)
        return frozenset(slot.key for slot in (*self.reads, *self.writes, *guard))


class Scope:
    """Names of one function instance: each inlined call has its own."""

    # The label behind an inlined body, where its returns go.
    END = "end of the call"
    # The carry flag: a predicate that every function has without declaring it.
    CARRY = "condition code"

    def __init__(self, inlined: bool) -> None:
        self.inlined = inlined
        self.slots: dict[str, Slot] = {}
        self.places: dict[str, Place] = {}
        self.labels: dict[str, int] = {}
        self.tables: dict[str, tuple[str, ...]] = {}


DECODERS: dict[str, Callable[[Decoder], Run]] = {}
CONTROLS: dict[str, Callable[[Decoder], Control]] = {}


def decodes(*opcodes: str) -> Callable[[Callable[[Decoder], Run]], Callable[[Decoder], Run]]:
    """Register a decoder for opcodes, by their leading words ("add", "bar.warp.sync")."""

    def register(function: Callable[[Decoder], Run]) -> Callable[[Decoder], Run]:
        for opcode in opcodes:
            DECODERS[opcode] = function
        return function

    return register


def controls(
    *opcodes: str,
) -> Callable[[Callable[[Decoder], Control]], Callable[[Decoder], Control]]:
    """Register a decoder for opcodes that end a segment and decide what comes next."""

    def register(function: Callable[[Decoder], Control]) -> Callable[[Decoder], Control]:
        for opcode in opcodes:
            CONTROLS[opcode] = function
        return function

    return register


class Decoder:
    """The state of the decoder of one instruction."""

    def __init__(self, kernel: str):
        self.kernel = kernel
        # Views of the register file that some instruction uses; sizes of accesses to shared and
        # global memory.
        self.codes: set[int] = set()
        self.smem_widths: set[int] = set()
        self.gmem_widths: set[int] = set()
        # Keys of the registers of wgmma, and the instruction before the current one.
        self.fragile: set[int] = set()
        self.before: Instruction | None = None
        self._last: Instruction | None = None

    def step(self, instruction: Instruction, scope: Scope) -> Step:
        """Decode one instruction.  An unknown opcode is an `InterpreterError`."""
        self.before, self._last = self._last, instruction
        self.instruction, self.scope = instruction, scope
        self.opcode, self.operands = instruction.opcode, instruction.operands
        self.reads: list[Slot] = []
        self.writes: list[Slot] = []
        self.strict: list[Slot] = []
        self.poison: PoisonRule | Own | Lanes = LANES
        self.ends_segment = False
        self.modifiers = list(self.opcode[1:])
        guard = None
        if instruction.guard is not None:
            self.codes.add(PRED.code)
            guard = (self.slot(instruction.guard.register), instruction.guard.negated)
        run: Run = _nothing
        control = None
        for words in range(min(4, len(self.opcode)), 0, -1):
            name = ".".join(self.opcode[:words])
            if name in DECODERS:
                run = DECODERS[name](self)
                break
            if name in CONTROLS:
                control = CONTROLS[name](self)
                break
        else:
            raise self.error("unknown opcode")
        return Step(
            instruction,
            run if guard is None or control else _guarded(run, *guard),
            run,
            guard,
            tuple(self.reads),
            tuple(self.writes),
            tuple(self.strict),
            self.poison,
            self.ends_segment,
            control,
        )

    def error(self, what: str) -> InterpreterError:
        """An error that names the instruction."""
        where = f"kernel {self.kernel!r}, PTX line {self.instruction.line}"
        return failure(f"`{self.instruction.text}`: {what}", where)

    # Opcode words -------------------------------------------------------------------------

    def take(self, *words: str) -> bool:
        """Whether one of these modifiers is there; it is then used up."""
        for word in words:
            if word in self.modifiers:
                self.modifiers.remove(word)
                return True
        return False

    def choose(self, words: tuple[str, ...], default: str = "") -> str:
        """The modifier among these that is there, used up, or the default."""
        for word in self.modifiers:
            if word in words:
                self.modifiers.remove(word)
                return word
        return default

    def take_type(self) -> PtxType:
        """The first type among the modifiers, used up."""
        for word in self.modifiers:
            if word in TYPES:
                self.modifiers.remove(word)
                return TYPES[word]
        raise self.error("no operand type that is known")

    def only_type(self) -> PtxType:
        """The one type; any other modifier still left is not known, which is an error."""
        found = self.take_type()
        self.finish()
        return found

    def finish(self) -> None:
        """Refuse modifiers that nobody took."""
        if self.modifiers:
            raise self.error(f"unknown modifier .{self.modifiers[0]}")

    def expect(self, *counts: int) -> None:
        """Refuse another number of operands."""
        if len(self.operands) not in counts:
            raise self.error(f"{len(self.operands)} operands")

    # Operands -----------------------------------------------------------------------------

    def slot(self, operand: Operand) -> Slot:
        if not isinstance(operand, Register):
            raise self.error(f"a register is needed, not {operand}")
        found = self.scope.slots.get(operand.name)
        if found is None:
            raise self.error(f"register {operand.name} is not declared")
        return found

    def read(self, operand: Operand, of: PtxType, wide: bool = False) -> Read:
        """A closure that gives the operand's values: one a lane of the gang, or one for all.

        wide: the register may be wider than the type; its low bits count.
        """
        if isinstance(operand, Register):
            return self._read_register(operand, of, wide)
        if isinstance(operand, Negated) and of is PRED:
            inner = self.read(operand.operand, of)
            return lambda m: ~inner(m)
        if isinstance(operand, (Immediate, FloatBits)):
            value = self.constant(operand, of)
            return lambda m: value
        if isinstance(operand, Special):
            return self._read_special(operand.name, of)
        if isinstance(operand, (Symbol, Address)):
            return self._read_symbol(operand, of)
        raise self.error(f"operand {operand} of type {of.name}")

    def _read_register(self, operand: Register, of: PtxType, wide: bool) -> Read:
        slot = self.slot(operand)
        self.reads.append(slot)
        index = slot.number
        if slot.width == of.width:
            code = of.code
            self.codes.add(code)
            return lambda m: m.views[code][index][m.lanes]
        if not wide or slot.width < of.width:
            raise self.error(f"register {operand.name} has {slot.width} bits, not {of.width}")
        code = TYPES[f"u{slot.width}"].code
        self.codes.add(code)
        low, view = of.unsigned, of.dtype
        return lambda m: m.views[code][index][m.lanes].astype(low).view(view)

    def _read_special(self, name: str, of: PtxType) -> Read:
        if name in ("clock", "clock64", "clock_hi") or name.startswith("globaltimer"):
            shift = np.uint64(32 if name.endswith("_hi") else 0)
            return lambda m: np.array([np.uint64(m.steps) >> shift]).astype(of.dtype)
        dtype = of.dtype
        return lambda m: m.special(name)[m.lanes].astype(dtype)

    def _read_symbol(self, operand: Symbol | Address, of: PtxType) -> Read:
        """The address of a variable, in its own space (global ones: generic)."""
        offset = 0
        if isinstance(operand, Address):
            offset, operand = operand.offset, _symbol(operand.base, self)
        place = self.place(operand.name)
        dtype, name = of.unsigned, place.name
        if place.space in ("global", "const"):
            return lambda m: np.array([m.symbols[name] + offset], dtype).view(of.dtype)
        value = np.array([place.offset + offset]).astype(dtype).view(of.dtype)
        return lambda m: value

    def place(self, name: str) -> Place:
        found = self.scope.places.get(name)
        if found is None:
            raise self.error(f"{name!r} is no variable with an address")
        return found

    def constant(self, operand: Operand, of: PtxType) -> Array:
        """The operand's value as one element of the type."""
        if isinstance(operand, Immediate):
            if of.kind == "p":
                return np.array([operand.value != 0])
            bits = operand.value & ((1 << of.width) - 1)
            return np.array([bits], of.unsigned).view(of.dtype)
        if isinstance(operand, FloatBits):
            value = np.array([operand.bits], f"uint{operand.width}")
            if operand.width == 64 and of.width == 32:
                return value.view(np.float64).astype(np.float32).view(of.dtype)
            if operand.width == of.width:
                return value.view(of.dtype)
        raise self.error(f"constant {operand} for type {of.name}")

    def write(self, operand: Operand, of: PtxType, wide: bool = False) -> Write:
        """A closure that sets the operand in the active lanes.

        wide: the register may be wider than the type; it is filled by the type's sign.
        """
        if isinstance(operand, Sink):
            return _discard
        slot = self.slot(operand)
        self.writes.append(slot)
        code, index = of.code, slot.number
        if slot.width != of.width:
            if not wide or slot.width < of.width:
                raise self.error(f"a register has {slot.width} bits, not {of.width}")
            code = TYPES[f"{'s' if of.kind == 's' else 'u'}{slot.width}"].code
        self.codes.add(code)

        def store(m: Machine, value: Array) -> None:
            out = m.views[code][index][m.lanes]
            if m.mask is None:
                out[...] = value
            else:
                np.copyto(out, value, where=m.mask)

        return store

    def vector(self, operand: Operand, count: int | None = None) -> tuple[Operand, ...]:
        """The operand's items; a lone operand is a vector of one."""
        items = operand.items if isinstance(operand, Vector) else (operand,)
        if count is not None and len(items) != count:
            raise self.error(f"{len(items)} registers where {count} are needed")
        return items

    def pair(self, operand: Operand) -> tuple[Operand, Operand]:
        """`d|p` as two destinations; the second is a sink when it is not there."""
        if isinstance(operand, Pair):
            return operand.first, operand.second
        return operand, Sink()

    # Addresses ----------------------------------------------------------------------------

    def address(self, operand: Operand, space: str) -> tuple[str, Read]:
        """The space that an access goes to, and its addresses (int64), from `[base + offset]`.

        Its base register becomes strict: it must not be poisoned.
        """
        if not isinstance(operand, Address) or operand.rest:
            raise self.error(f"an address is needed, not {operand}")
        base, offset = operand.base, np.int64(operand.offset)
        if isinstance(base, Symbol):
            place = self.place(base.name)
            if space == "generic":
                space = place.space
            if place.space == "frame" and space in ("param", "local"):
                space = "frame"
            elif place.space != space.removesuffix("::cluster"):
                raise self.error(f"{base.name!r} is in {place.space} memory")
            return space, self.read(operand, TYPES["s64"])
        if space == "local" or (space == "param" and self.scope.inlined):
            space = "frame"
        if isinstance(base, Immediate):
            value = np.array([base.value + operand.offset], np.int64)
            return space, lambda m: value
        slot = self.slot(base)
        self.strict.append(slot)
        of = TYPES["s64"] if slot.width == 64 else TYPES["u32"]
        if slot.width not in (32, 64):
            raise self.error(f"an address register of {slot.width} bits")
        get = self.read(base, of)
        if slot.width == 64:
            return space, (lambda m: get(m) + offset) if operand.offset else get
        return space, lambda m: get(m).astype(np.int64) + offset


def _symbol(operand: Operand, decoder: Decoder) -> Symbol:
    if not isinstance(operand, Symbol):
        raise decoder.error(f"a variable is needed, not {operand}")
    return operand


def _nothing(m: Machine) -> None:
    del m


def _discard(m: Machine, value: Array) -> None:
    del m, value


def _guarded(run: Run, slot: Slot, negated: bool) -> Run:
    """The closure for lanes whose guard predicate allows it."""
    code, index = PRED.code, slot.number

    def go(m: Machine) -> None:
        outer = m.mask
        allowed = m.views[code][index][m.lanes]
        if negated:
            allowed = ~allowed
        mask = allowed if outer is None else allowed & outer
        active = np.count_nonzero(mask)
        if active == 0:
            return
        if outer is None and active == mask.size:
            run(m)
            return
        # A copy: the instruction may write its own guard.
        m.mask = mask.copy() if mask is allowed and not negated else mask
        run(m)
        m.mask = outer

    return go
