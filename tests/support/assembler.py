"""Replacements of the assembler in tests that need no cubin.

Tests that only interpret the PTX get neither a cubin nor registers and spills, and fail if they
ask for these.  Tests marked `registers` get those that the file of `known_registers` has; PTX that
it does not have is assembled.  Tests marked `assembled` assemble all, as `pytest --assemble` does.
So that neither hides anything, one kernel in `ASSEMBLED_ONE_IN` is assembled all the same, others
at other commits: the assembler must take it, and say what the file says.
"""

import contextlib
import re

from dnnc import compiler
from dnnc.choosing import spills
from dnnc.codegen import nvptx
from dnnc.codegen.nvptx import Assembled, Resources
from dnnc.store import MemoryStore

from . import known_registers, rotation

ASSEMBLED_ONE_IN = 24

CUBIN = b"no cubin: the test lacks the mark `assembled`"
_ENTRY = re.compile(r"\.entry\s+(\w+)")


class Unknown(int):
    """A number that only the assembler knows: it can be kept, and neither compared nor counted."""

    def _refuse(self, *_):
        raise AssertionError("registers, spills and memory of a kernel: mark the test `registers`")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __hash__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __str__ = __format__ = _refuse


UNKNOWN = Unknown()


class _Store(MemoryStore):
    """Keeps no cubins."""

    def put(self, key, data):
        if not key.startswith("cubin-"):
            super().put(key, data)


_real, _store, _spilling_choices = nvptx.assemble, _Store(), spills.spilling_choices


def unassembled(ptx, target):
    """A result of `nvptx.assemble`, without a cubin and numbers."""
    if rotation.is_drawn(ptx, ASSEMBLED_ONE_IN):
        _real(ptx, target)  # which raises where it refuses the PTX
    names = _ENTRY.findall(ptx)
    return Assembled(CUBIN, {name: Resources(*[UNKNOWN] * 5) for name in names}, "")


def with_registers(ptx, target):
    """A result of `nvptx.assemble`; without a cubin where the registers are known."""
    known = known_registers.of(ptx, target)
    if known is not None and not rotation.is_drawn(ptx, ASSEMBLED_ONE_IN):
        return nvptx._assembled(CUBIN, ptx, known_registers.log_of(known), target)
    made = _real(ptx, target)
    said = known_registers.record(ptx, target, made)
    assert known in (None, said), f"not {known}, but {said}: `make registers` writes the file anew"
    return made


def _spilling(plan):
    """None where nobody knows."""
    kernels = [kernel for program in plan.programs for kernel in program.kernels]
    is_known = not any(isinstance(kernel.registers, Unknown) for kernel in kernels)
    return _spilling_choices(plan) if is_known else ()


@contextlib.contextmanager
def replaced_by(assemble):
    """In it, this process's compilations call that in place of the assembler."""
    kept = compiler._store
    nvptx.assemble, compiler._store, spills.spilling_choices = assemble, _store, _spilling
    try:
        yield
    finally:
        nvptx.assemble, compiler._store, spills.spilling_choices = _real, kept, _spilling_choices
