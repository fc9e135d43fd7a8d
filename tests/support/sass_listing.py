"""Reads nvdisasm's listing of a cubin: functions, instructions, and registers they touch.

Registers are those of a thread, by number.  What an instruction reads and writes beyond the
registers that it names is as its modifiers say (LDS.128, STSM.16.M88.4) or as `_width` knows.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_FUNCTION = re.compile(r"^\.text\.(\S+):")
_LABEL = re.compile(r"^([.$][\w.$]+):")
_INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z]\w*)((?:\.\w+)*)(.*?);")
_REGISTER = re.compile(r"(?<![\w.])R(\d+)(\.64)?")
_PREDICATE = re.compile(r"!?U?P(?:\d|T)")
_TARGET = re.compile(r"`\(([^)]+)\)")
_TARGETS = re.compile(r'\(\*"BRANCH_TARGETS ([^"]+)"\*\)')
# Their first operand is a register that they read, in no brackets.
_RESULTLESS = ("BAR", "BRX", "CALL", "JMX", "NANOSLEEP", "RET", "WARPSYNC")

# All of their registers are pairs, as addresses and doubles are.
_PAIRS = ("BRX", "CALL", "DADD", "DFMA", "DMNMX", "DMUL", "DSETP", "JMX", "LEPC", "RET")
# From 64 bits or to them: here what they read is taken for as wide as what they write.
_CONVERSIONS = ("F2F", "F2I", "FRND", "I2F")
_WIDE_TYPES = {"F64", "S64", "U64"}


@dataclass(frozen=True)
class Instruction:
    """guard: "@!P0", or "".  modifiers: what follows the name, each behind a dot.

    targets: the labels that it names, or that nvdisasm says a jump through a table may go to.
    """

    address: str
    guard: str
    name: str
    modifiers: tuple[str, ...]
    operands: tuple[str, ...]
    targets: tuple[str, ...]

    def __str__(self) -> str:
        name = ".".join((self.name, *self.modifiers))
        return f"{self.address}: {self.guard} {name} {', '.join(self.operands)}".replace("  ", " ")

    @cached_property
    def values(self) -> tuple[str, ...]:
        """The operands that are no predicates."""
        return tuple(o for o in self.operands if not _PREDICATE.fullmatch(o))

    @cached_property
    def written(self) -> frozenset[int]:
        """The registers of its result."""
        if not self.values or self.name in _RESULTLESS or "SETP" in self.name:
            return frozenset()
        return frozenset() if "[" in self.values[0] else self._of(0)

    @cached_property
    def touched(self) -> frozenset[int]:
        """The registers that it reads or writes; none, if it is never executed."""
        if self.guard == "@!PT":
            return frozenset()
        return frozenset().union(*(self._of(place) for place in range(len(self.values))))

    def _of(self, place: int) -> frozenset[int]:
        """The registers of an operand, counted without predicates."""
        operand, found = self.values[place], set[int]()
        of = _address_width if "[" in operand else _width
        width = of(self.name, self.modifiers, place)
        for match in _REGISTER.finditer(operand):
            first = int(match[1])
            found.update(range(first, first + (2 if match[2] else width)))
        return frozenset(found)


def _address_width(name: str, modifiers: tuple[str, ...], place: int) -> int:
    """Registers of an address operand, which says .64 unless it is generic."""
    return 2 if name in ("ATOM", "LD", "RED", "ST") and "E" in modifiers else 1


def _width(name: str, modifiers: tuple[str, ...], place: int) -> int:
    """How many registers an operand is that names one, and is no address."""
    if name in ("LDSM", "STSM"):
        return int(modifiers[-1]) if modifiers[-1].isdigit() else 1
    if name == "IMAD" and "WIDE" in modifiers:
        return 2 if place in (0, 3) else 1
    if name == "IMAD" and "HI" in modifiers:
        return 2 if place == 3 else 1
    if name in ("HMMA", "IMMA", "DMMA", "BMMA"):  # the most that an operand of theirs has
        return 4
    if "128" in modifiers:
        return 4
    is_pair = "64" in modifiers or name in _PAIRS
    is_pair |= name in _CONVERSIONS and not _WIDE_TYPES.isdisjoint(modifiers)
    is_pair |= name == "CS2R" and "32" not in modifiers
    is_pair |= name == "SYNCS" and "TRANS64" in modifiers and place == 0
    return 2 if is_pair else 1


@dataclass(frozen=True)
class Function:
    """labels: name -> how many instructions come before it."""

    name: str
    code: tuple[Instruction, ...]
    labels: dict[str, int]


def functions(cubin: bytes) -> list[Function]:
    """Functions of a cubin.  FileNotFoundError: nvdisasm is not installed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernels.cubin")
        path.write_bytes(cubin)
        command = [nvdisasm_path(), "--print-code", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = parse(done.stdout)
    if not found:
        raise ValueError(f"nvdisasm lists no function: {done.stdout[:500]}")
    return found


def parse(listing: str) -> list[Function]:
    """The functions of a listing; ValueError: a line that looks like no instruction."""
    found = list[Function]()
    code, labels = list[Instruction](), dict[str, int]()
    for line in listing.splitlines():
        if match := _FUNCTION.match(line):
            code, labels = list[Instruction](), dict[str, int]()
            found.append(Function(match[1], (), labels))
        elif match := _LABEL.match(line):
            labels[match[1]] = len(code)
        elif "/*" in line:
            code.append(_instruction(line))
            found[-1] = Function(found[-1].name, tuple(code), labels)
    return found


def _instruction(line: str) -> Instruction:
    match = _INSTRUCTION.match(line)
    if match is None:
        raise ValueError(f"not an instruction: {line}")
    address, guard, name, modifiers, operands = match.groups()
    operands, *table = _TARGETS.split(operands)
    targets = table[0].split(",") if table else _TARGET.findall(operands)
    return Instruction(
        address,
        (guard or "").strip(),
        name,
        tuple(modifiers.split(".")[1:]),
        tuple(o.strip() for o in operands.split(",") if o.strip()),
        tuple(targets),
    )


def nvdisasm_path() -> str:
    """nvdisasm of the package nvidia-cuda-nvdisasm, else of the PATH."""
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or []) if spec else []:
        for found in sorted(Path(root).glob("*/bin/nvdisasm")):
            return str(found)
    found = shutil.which("nvdisasm")
    if found is None:
        raise FileNotFoundError('no nvdisasm: pip install "dnnc[test]" (nvidia-cuda-nvdisasm)')
    return found
