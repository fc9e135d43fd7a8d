"""Registers, spills and memory of the kernels of tests, as the assembler said them before.

known_registers.txt has a line for each PTX: a hash of it without locations, of its target and of
the assembler, and the numbers of each kernel in the order of their names.  `make registers` adds
what it lacks, and leaves out what no test has.  What an entry says depends on its hash alone, so
that a file that is out of date costs time and is never wrong.  PTX that the assembler warns about
is not in it: tests look at what it says.
"""

import functools
import hashlib
import re
from pathlib import Path

from dnnc import tools
from dnnc.codegen import nvptx
from tests.support.plain_ptx import plain

PATH = Path(__file__).with_suffix(".txt")

# What the assembler says of a kernel that is as it should be.
_USUAL = re.compile(
    r"(?:ptxas )?info\s+: (?:\d+ bytes gmem|Compiling entry function .*|Function properties for .*"
    r"|[Uu]sed \d+ registers.*|Compile time = .*)|[ptxas .]*\d+ bytes stack frame.*"
)

found: dict[str, str] = {}  # what this process has assembled, or has looked up


def _key(ptx, target):
    versions = [tools.versions()[name] for name in ("nvidia-nvjitlink", "nvidia-cuda-nvcc")]
    parts = (plain(ptx), target.name, *versions, *nvptx.OPTIONS)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@functools.cache
def _known():
    lines = PATH.read_text().splitlines() if PATH.exists() else []
    return dict(line.split(" ", 1) for line in lines)


def of(ptx, target):
    """The entry of PTX, None if there is none: "NAME:REGISTERS,STORED,LOADED,LOCAL,SHARED ..."."""
    key = _key(ptx, target)
    entry = _known().get(key)
    if entry is None:
        return None
    found[key] = entry
    names = sorted(re.findall(r"\.entry\s+(\w+)", ptx))
    return " ".join(map(":".join, zip(names, entry.split(), strict=True)))


def log_of(entry):
    """The assembler's log of kernels with these numbers."""
    log = ""
    for kernel in entry.split():
        name, numbers = kernel.split(":")
        used, stored, loaded, local, shared = numbers.split(",")
        log += (
            f"ptxas info    : Function properties for {name}\n    {local} bytes stack frame,"
            f" {stored} bytes spill stores, {loaded} bytes spill loads\n"
            f"ptxas info    : Used {used} registers, {shared} bytes smem\n"
        )
    return log


def record(ptx, target, made):
    """The entry of what was assembled, which `write` writes if the assembler warns of nothing."""
    numbers = {name: ",".join(map(str, vars(r).values())) for name, r in made.resources.items()}
    if all(map(_USUAL.fullmatch, made.log.splitlines())):
        found[_key(ptx, target)] = " ".join(numbers[name] for name in sorted(numbers))
    return " ".join(f"{name}:{numbers[name]}" for name in sorted(numbers))


def write(entries):
    PATH.write_text("".join(f"{key} {entries[key]}\n" for key in sorted(entries)))
