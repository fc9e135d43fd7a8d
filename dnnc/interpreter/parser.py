"""PTX text to the records of `ptx`.

One pass over the text, statement by statement.  Nothing is checked here beyond the grammar:
opcodes and operand types are the business of the decoders.

Blocks inside a body (`{ .reg .b32 tmp; ... }`, which inline assembly and calls use) open a
scope: a name or label declared in one is renamed to `name#n`, n counting the function's blocks.

Not handled, and refused with the line: modules of another address size than 64, register
parameters, initialisers that hold addresses.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from dataclasses import replace
from typing import NamedTuple

from .failure import InterpreterError, failure
from .ptx import (
    SPECIAL,
    Address,
    FloatBits,
    Function,
    Guard,
    Immediate,
    Instruction,
    Module,
    Negated,
    Operand,
    Pair,
    Register,
    RegisterDeclaration,
    Sink,
    Special,
    Symbol,
    Variable,
    Vector,
)

_COMMENT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/', re.S)
_SPACE = re.compile(r"\s*")
_STATEMENT = re.compile(
    r"\s*(?:"
    r"(?P<open>\{)|(?P<close>\})|"
    r"(?P<label>[A-Za-z_$%][\w$]*)\s*:(?!:)|"
    r"(?P<line>\.(?:loc|file)\b[^\n]*)|"
    r"(?P<directive>\.[a-z_]+[^;]*);|"
    r"(?:@(?P<negated>!?)(?P<guard>[%\w$]+)\s+)?(?P<opcode>[a-z][\w.:]*)(?P<operands>[^;]*);|"
    r"(?P<empty>;))"
)
_TOP = re.compile(
    r"\s*(?:"
    r"\.version\s+(?P<major>\d+)\.(?P<minor>\d+)|"
    r"\.target\s+(?P<target>[\w, \t]+)|"
    r"\.address_size\s+(?P<bits>\d+)|"
    r"(?P<file>\.file\b[^\n]*)|"
    r"(?P<section>\.section\b[^{]*\{[^}]*\})|"
    r"(?P<linking>(?:\.(?:extern|visible|weak|common|internal)\s+)*)"
    r"\.(?P<kind>entry|func|global|const|shared|alias|pragma)\b|"
    r"(?P<end>\Z))"
)
_LIMIT = re.compile(r"\s*\.(\w+)((?:\s+\d+(?:\s*,\s*\d+)*)?)")
_VARIABLE = re.compile(
    r"(?:\.align\s+(?P<align>\d+)\s+)?(?P<rest>(?:\.\w+\s+)+)(?:\.align\s+(?P<align2>\d+)\s+)?"
    r"(?P<name>[%\w$]+)\s*(?P<array>(?:\[\s*\d*\s*\])*)\s*(?:=\s*(?P<data>.*))?$",
    re.S,
)
_REGISTER = re.compile(r"\.reg\s*\.(\w+)\s+(.*)$", re.S)
_WORD = re.compile(r"\w+")
_INTEGER = re.compile(r"([+-]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
_HEX_FLOAT = re.compile(r"0([fFdD])([0-9a-fA-F]+)$")
_DECIMAL_FLOAT = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?$")
_OFFSET = re.compile(r"\s*(.+?)\s*\+\s*([+-]?\s*\w+)\s*$", re.S)

WIDTH_OF_TYPE = {
    **{f"{kind}{bits}": bits for kind in "bus" for bits in (8, 16, 32, 64)},
    **{"pred": 1, "b128": 128, "f16": 16, "bf16": 16, "f32": 32, "f64": 64},
    **{"f16x2": 32, "bf16x2": 32},
}


def parse(text: str) -> Module:
    """The module that this PTX text means.  Errors: `InterpreterError` naming the line."""
    return _Parser(text).module()


class _Scope(NamedTuple):
    """A block: the registers and variables it declares, and the `%r<count>` families."""

    suffix: str
    registers: set[str]
    variables: set[str]
    families: dict[str, int]
    labels: set[str]
    first: int

    def find(self, name: str) -> Operand | None:
        if name in self.registers:
            return Register(name + self.suffix)
        if name in self.variables:
            return Symbol(name + self.suffix)
        stem = name.rstrip("0123456789")
        count = self.families.get(stem)
        if count is not None and stem != name and int(name[len(stem) :]) < count:
            return Register(name + self.suffix)
        return None


class _Body:
    """The parts that are gathered while a function's body is read."""

    def __init__(self) -> None:
        self.registers: list[RegisterDeclaration] = []
        self.variables: list[Variable] = []
        self.instructions: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.tables: dict[str, tuple[str, ...]] = {}
        # The first is the body itself, of which only names without a percent sign are kept.
        self.scopes: list[_Scope] = [_Scope("", set(), set(), {}, set(), 0)]
        self.blocks = 0


class _Parser:
    def __init__(self, text: str):
        # Comments become blanks of the same length in lines, so offsets still tell the line.
        self.text = _COMMENT.sub(_blank, text)
        self.starts = [match.end() for match in re.finditer("\n", self.text)]
        self.at = 0
        # Where the statement begins that an error would be about.
        self.begin = 0
        self.operands: dict[str, Operand] = {}
        self.tuples: dict[str, tuple[Operand, ...]] = {}
        self.opcodes: dict[str, tuple[str, ...]] = {}

    def module(self) -> Module:
        version, target = 0, ""
        functions: dict[str, Function] = {}
        variables: dict[str, Variable] = {}
        while True:
            self.begin = self.blank_end()
            match = _TOP.match(self.text, self.at)
            if match is None:
                raise self.error(f"expected a directive, found {self.ahead()!r}")
            self.at = match.end()
            if match["end"] is not None:
                return Module(version, target, functions, variables)
            if match["major"]:
                version = int(match["major"]) * 10 + int(match["minor"])
            elif match["target"]:
                target = match["target"].split(",")[0].strip()
            elif match["bits"]:
                if match["bits"] != "64":
                    raise self.error(f"address size {match['bits']}")
            elif match["kind"] in ("entry", "func"):
                function = self.function(match["kind"] == "entry")
                known = functions.get(function.name)
                if known is None or not known.defined:
                    functions[function.name] = function
            elif match["kind"] in ("global", "const", "shared"):
                text = f".{match['kind']}{self.until(';')}"
                extern = "extern" in match["linking"]
                variable = self.variable(text, match["kind"], extern)
                variables[variable.name] = variable
            elif match["kind"]:
                self.until(";")

    # Functions ----------------------------------------------------------------------------

    def function(self, is_kernel: bool) -> Function:
        line = self.line(self.at)
        results = () if is_kernel else self.param_list()
        name = self.word()
        params = self.param_list()
        limits: dict[str, tuple[int, ...]] = {}
        while (match := _LIMIT.match(self.text, self.at)) is not None:
            limits[match[1]] = tuple(int(number) for number in re.findall(r"\d+", match[2]))
            self.at = match.end()
        self.at = self.blank_end()
        defined = self.text[self.at : self.at + 1] == "{"
        if not defined and self.text[self.at : self.at + 1] != ";":
            raise self.error(f"expected the body of {name!r}, found {self.ahead()!r}")
        self.at += 1
        body = _Body()
        if defined:
            self.body(body)
        return Function(
            name,
            is_kernel,
            line,
            params,
            results,
            tuple(body.registers),
            tuple(body.variables),
            tuple(body.instructions),
            body.labels,
            body.tables,
            limits,
            defined,
        )

    def param_list(self) -> tuple[Variable, ...]:
        """`(.param .b64 a, .param .align 16 .b8 b[16])`, or nothing."""
        self.at = self.blank_end()
        if self.text[self.at : self.at + 1] != "(":
            return ()
        self.at += 1
        inside = self.until(")")
        pieces = [piece.strip() for piece in inside.split(",")]
        return tuple(self.param(piece) for piece in pieces if piece)

    def param(self, text: str) -> Variable:
        # `.param .u64 .ptr .global .align 1 name`: that alignment is the pointee's.
        is_pointer = ".ptr" in text
        variable = self.variable(text, "param")
        if is_pointer:
            return Variable(variable.name, "param", variable.nbytes, variable.nbytes)
        return variable

    def body(self, body: _Body) -> None:
        text = self.text
        match_statement = _STATEMENT.match
        label: str | None = None
        while True:
            match = match_statement(text, self.at)
            if match is None:
                self.begin = self.blank_end()
                raise self.error(f"expected a statement, found {self.ahead()!r}")
            self.begin, self.at = self.at, match.end()
            kind = match.lastgroup
            if kind == "operands":
                body.instructions.append(self.instruction(match, body))
            elif kind == "label":
                label = match["label"]
                body.scopes[-1].labels.add(match["label"])
                body.labels[match["label"] + body.scopes[-1].suffix] = len(body.instructions)
            elif kind == "directive":
                self.directive(match["directive"], body, label)
            elif kind == "open":
                body.blocks += 1
                first = len(body.instructions)
                body.scopes.append(_Scope(f"#{body.blocks}", set(), set(), {}, set(), first))
            elif kind == "close":
                if len(body.scopes) == 1:
                    return
                _rename_targets(body.instructions, body.scopes.pop())

    def directive(self, text: str, body: _Body, label: str | None) -> None:
        word = _WORD.match(text, 1)[0]  # pyright: ignore[reportOptionalSubscript]
        if word == "reg":
            self.declare_registers(text, body)
        elif word in ("local", "shared", "param", "const", "global"):
            variable = self.variable(text, word)
            if len(body.scopes) > 1:
                scope = body.scopes[-1]
                scope.variables.add(variable.name)
                name = variable.name + scope.suffix
                variable = Variable(name, word, variable.align, variable.nbytes, variable.data)
            body.variables.append(variable)
        elif word == "branchtargets" and label is not None:
            targets = text.split(None, 1)[1]
            body.tables[label] = tuple(name.strip() for name in targets.split(","))
        elif word not in ("pragma", "callprototype", "calltargets", "noreturn", "abi_preserve"):
            raise self.error(f"unknown directive {text!r}")

    def declare_registers(self, text: str, body: _Body) -> None:
        match = _REGISTER.match(text)
        width = WIDTH_OF_TYPE.get(match[1]) if match else None
        if match is None or width is None:
            raise self.error(f"unknown register declaration {text!r}")
        scope = body.scopes[-1]
        for piece in match[2].split(","):
            name, _, count = piece.strip().partition("<")
            number = int(count.rstrip("> ")) if count else None
            if scope.suffix or not name.startswith("%"):
                if number is None:
                    scope.registers.add(name)
                else:
                    scope.families[name] = number
            if scope.suffix and number is not None:
                # `%r1` of a block becomes `%r1#n`, so each name is declared alone.
                names = [f"{name}{index}{scope.suffix}" for index in range(number)]
                body.registers += [RegisterDeclaration(each, width, None) for each in names]
            else:
                body.registers.append(RegisterDeclaration(name + scope.suffix, width, number))

    def variable(self, text: str, space: str, extern: bool = False) -> Variable:
        match = _VARIABLE.search(text)
        if match is None:
            raise self.error(f"unknown declaration {text!r}")
        words = [word.lstrip(".") for word in match["rest"].split()]
        types = [word for word in words if word in WIDTH_OF_TYPE]
        lanes = {"v2": 2, "v4": 4}
        count = 1
        for word in words:
            count *= lanes.get(word, 1)
        if len(types) != 1 or "reg" in words:
            raise self.error(f"unknown declaration {text!r}")
        element = max(WIDTH_OF_TYPE[types[0]], 8) // 8
        # The first dimension may be open: `extern` arrays, and those sized by their initialiser.
        sizes = [
            int(size) if size else 0 for size in re.findall(r"\[\s*(\d*)\s*\]", match["array"])
        ]
        for size in sizes:
            count *= size
        data = None
        if match["data"] is not None:
            data = self.initial_bytes(match["data"], types[0], element)
            nbytes = max(count * element, len(data))
            data += bytes(nbytes - len(data))
        nbytes = len(data) if data is not None else count * element
        align = int(match["align"] or match["align2"] or element)
        return Variable(match["name"], space, align, nbytes, data, extern)

    def initial_bytes(self, text: str, type_name: str, element: int) -> bytes:
        out = bytearray()
        for piece in re.split(r"[\s,{}]+", text.strip()):
            if not piece:
                continue
            operand = self.operand(piece, None)
            if isinstance(operand, Immediate):
                out += (operand.value & ((1 << 8 * element) - 1)).to_bytes(element, "little")
            elif isinstance(operand, FloatBits) and operand.width == 8 * element:
                out += operand.bits.to_bytes(element, "little")
            else:
                raise self.error(f"initial value {piece!r} of type {type_name}")
        return bytes(out)

    # Instructions -------------------------------------------------------------------------

    def instruction(self, match: re.Match[str], body: _Body) -> Instruction:
        opcode_text, operand_text = match["opcode"], match["operands"].strip()
        opcode = self.opcodes.get(opcode_text)
        if opcode is None:
            opcode = self.opcodes[opcode_text] = tuple(opcode_text.split("."))
        scopes = body.scopes if any(any(scope[1:4]) for scope in body.scopes) else None
        guard, prefix = None, ""
        if match["guard"]:
            register = self.operand(match["guard"], scopes)
            if not isinstance(register, Register):
                raise self.error(f"guard {match['guard']!r}")
            guard = Guard(register, match["negated"] == "!")
            prefix = f"@{match['negated']}{match['guard']} "
        text = f"{prefix}{opcode_text} {operand_text}".rstrip()
        line = self.line(match.start("opcode"))
        return Instruction(line, text, guard, opcode, self.operand_list(operand_text, scopes))

    def operand_list(self, text: str, scopes: list[_Scope] | None) -> tuple[Operand, ...]:
        if scopes is None and (known := self.tuples.get(text)) is not None:
            return known
        made = tuple(self.operand(piece, scopes) for piece in _split(text))
        if scopes is None:
            self.tuples[text] = made
        return made

    def operand(self, text: str, scopes: list[_Scope] | None) -> Operand:
        if scopes is None and (known := self.operands.get(text)) is not None:
            return known
        made = self.make_operand(text, scopes)
        if scopes is None:
            self.operands[text] = made
        return made

    def make_operand(self, text: str, scopes: list[_Scope] | None) -> Operand:
        head = text[:1]
        if head == "{" or head == "(":
            return Vector(tuple(self.operand(piece, scopes) for piece in _split(text[1:-1])))
        if head == "[":
            return self.address(text[1:-1], scopes)
        if head == "!":
            return Negated(self.operand(text[1:].strip(), scopes))
        if "|" in text:
            first, second = text.split("|")
            return Pair(self.operand(first.strip(), scopes), self.operand(second.strip(), scopes))
        if text == "_":
            return Sink()
        for scope in reversed(scopes or ()):
            if (found := scope.find(text)) is not None:
                return found
        if head == "%" and SPECIAL.match(text):
            return Special(text[1:])
        if head.isdigit() or head in "+-.":
            return self.constant(text)
        if text == "WARP_SZ":
            return Immediate(32)
        return self.named(text)

    def named(self, text: str) -> Operand:
        if not text:
            raise self.error("an operand is missing")
        # A register without a percent sign was found in its scope already.
        return Register(text) if text[0] == "%" else Symbol(text)

    def constant(self, text: str) -> Operand:
        if match := _INTEGER.match(text):
            value = int(match[2], 0) if match[2][:2].lower() in ("0x", "0b") else int(match[2])
            return Immediate(-value if match[1] == "-" else value)
        if match := _HEX_FLOAT.match(text):
            return FloatBits(int(match[2], 16), 32 if match[1] in "fF" else 64)
        if _DECIMAL_FLOAT.match(text):
            return FloatBits(struct.unpack("<Q", struct.pack("<d", float(text)))[0], 64)
        raise self.error(f"unknown constant {text!r}")

    def address(self, text: str, scopes: list[_Scope] | None) -> Address:
        first, *rest = _split(text)
        others = tuple(self.operand(piece, scopes) for piece in rest)
        if (match := _OFFSET.match(first)) is not None:
            offset = self.constant(match[2].replace(" ", ""))
            if not isinstance(offset, Immediate):
                raise self.error(f"address {text!r}")
            return Address(self.operand(match[1], scopes), offset.value, others)
        return Address(self.operand(first.strip(), scopes), 0, others)

    # Text ---------------------------------------------------------------------------------

    def until(self, stop: str) -> str:
        end = self.text.find(stop, self.at)
        if end < 0:
            raise self.error(f"expected {stop!r}")
        piece, self.at = self.text[self.at : end], end + 1
        return piece

    def word(self) -> str:
        match = re.compile(r"\s*([\w$%]+)").match(self.text, self.at)
        if match is None:
            raise self.error(f"expected a name, found {self.ahead()!r}")
        self.at = match.end()
        return match[1]

    def blank_end(self) -> int:
        match = _SPACE.match(self.text, self.at)
        return match.end() if match else self.at

    def ahead(self) -> str:
        return self.text[self.blank_end() :][:40]

    def line(self, at: int) -> int:
        return bisect_right(self.starts, at) + 1

    def error(self, what: str) -> InterpreterError:
        match = _SPACE.match(self.text, self.begin)
        return failure(what, f"PTX line {self.line(match.end() if match else self.begin)}")


def _rename_targets(instructions: list[Instruction], scope: _Scope) -> None:
    """At the end of a block: its branches to its own labels, some of which came after them."""
    if not scope.labels:
        return
    for at in range(scope.first, len(instructions)):
        branch = instructions[at]
        target = branch.operands[0] if branch.opcode[0] == "bra" else None
        if isinstance(target, Symbol) and target.name in scope.labels:
            renamed = (Symbol(target.name + scope.suffix), *branch.operands[1:])
            instructions[at] = replace(branch, operands=renamed)


def _blank(match: re.Match[str]) -> str:
    found = match[0]
    return found if found[0] == '"' else "\n" * found.count("\n") + " "


def _split(text: str) -> list[str]:
    """Pieces between the commas that stand outside all brackets."""
    if "{" not in text and "[" not in text and "(" not in text:
        return [piece.strip() for piece in text.split(",")] if text.strip() else []
    pieces: list[str] = []
    depth, start = 0, 0
    for at, char in enumerate(text):
        if char in "{[(":
            depth += 1
        elif char in "}])":
            depth -= 1
        elif char == "," and depth == 0:
            pieces.append(text[start:at].strip())
            start = at + 1
    pieces.append(text[start:].strip())
    return pieces
