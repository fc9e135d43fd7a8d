"""The code of a plan as C: byte arrays, and tables of which device takes what.

The order of the table is the rule by which the runtime chooses (`runtime.loaded.choose_program`,
docs/plan-format.md): the first row that fits a device is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..errors import DnncError, Status
from ..plan.arguments import argument_bytes
from ..plan.plan import Plan, Program
from .interface import launches
from .names import comment, string

_BYTES_A_LINE = 24


@dataclass(frozen=True)
class Code:
    """A program as cubins or as PTX.  rule: which compute capabilities take it."""

    program: int
    blobs: tuple[int, ...]
    rule: str

    @property
    def is_ptx(self) -> bool:
        return self.rule == "LATER"


def codes(plan: Plan) -> list[Code]:
    """The best first."""
    programs = list(enumerate(plan.programs))

    def by_capability(row: tuple[int, Program]) -> tuple[int, int]:
        return (row[1].capability[0], row[1].capability[1])

    # Sorting keeps the order of equal ones: the first of them is the runtime's choice too.
    cubins = sorted(programs, key=lambda row: (by_capability(row), row[1].exact), reverse=True)
    found = [
        Code(i, tuple(m.cubin for m in p.modules), "EXACT" if p.exact else "MINOR")
        for i, p in cubins
    ]
    for i, program in sorted(programs, key=by_capability, reverse=True):
        if all(module.ptx_runs_later for module in program.modules):
            found.append(Code(i, tuple(module.ptx for module in program.modules), "LATER"))
    return found


def kernels_of(program: Program) -> dict[str, int]:
    """The kernels that a program launches -> their places."""
    names = dict.fromkeys(launch.kernel for launch in launches(program))
    return {name: place for place, name in enumerate(names)}


def code_lines(plan: Plan) -> Iterator[str]:
    """The arrays, and the tables `images_*`, `kernels_*` and `codes`."""
    rows = codes(plan)
    texts = {blob for code in rows if code.is_ptx for blob in code.blobs}
    for blob in sorted({blob for code in rows for blob in code.blobs}):
        yield from _array(blob, plan.blobs[blob] + (b"\0" if blob in texts else b""))
    for number, program in enumerate(plan.programs):
        yield from _kernel_table(number, program)
    for place, code in enumerate(rows):
        images = ", ".join(f"blob_{blob}.bytes" for blob in code.blobs) or "NULL"
        yield f"static const void *const images_{place}[] = {{{images}}};"
    yield ""
    yield "/* The first that fits a device is the best for it. */"
    yield "static const struct code codes[] = {"
    for place, code in enumerate(rows):
        program = plan.programs[code.program]
        major, minor = program.capability
        kind = "PTX" if code.is_ptx else "cubin"
        kernels = f"kernels_{code.program}, {len(kernels_of(program))}"
        yield f"    /* {comment(program.target)}, {kind} */"
        yield (
            f"    {{{code.rule}, {major}, {minor}, {code.program}, images_{place}, "
            f"{len(code.blobs)}, {kernels}}},"
        )
    yield "};"
    yield ""


def _array(number: int, data: bytes) -> Iterator[str]:
    yield f"static const union {{ unsigned char bytes[{max(1, len(data))}]; uint64_t aligned; }}"
    yield f"blob_{number} = {{{{"
    for start in range(0, len(data), _BYTES_A_LINE):
        yield "".join(f"{byte}," for byte in data[start : start + _BYTES_A_LINE])
    yield "0}};" if not data else "}};"
    yield ""


def _kernel_table(number: int, program: Program) -> Iterator[str]:
    names = kernels_of(program)
    kernels = {kernel.name: kernel for kernel in program.kernels}
    sizes = {name: _argument_bytes(program, name) for name in names}
    for place, name in enumerate(names):
        listed = ", ".join(map(str, sizes[name])) or "0"
        yield f"static const size_t bytes_{number}_{place}[] = {{{listed}}};"
    yield f"static const struct kernel kernels_{number}[] = {{ /* {comment(program.target)} */"
    for place, name in enumerate(names):
        used = [launch for launch in launches(program) if launch.kernel == name]
        smem = _most([launch.dynamic_smem_bytes for launch in used])
        is_clustered = int(any(launch.cluster != (1, 1, 1) for launch in used))
        arguments = f"bytes_{number}_{place}, {len(sizes[name])}"
        entry, module = string(kernels[name].entry), kernels[name].module
        yield f"    {{{entry}, {module}, {smem}, {is_clustered}, {arguments}}},"
    yield "};" if names else "    {NULL, 0, 0, 0, NULL, 0}};"


def _argument_bytes(program: Program, kernel: str) -> list[int]:
    """Bytes of a kernel's arguments, the fewest of all launches."""
    given = [
        [argument_bytes(arg) for arg in launch.args]
        for launch in launches(program)
        if launch.kernel == kernel
    ]
    if len(set(map(len, given))) > 1:
        counts = " and ".join(map(str, sorted(set(map(len, given)))))
        raise DnncError(
            Status.BAD_PARAM_SIZE_INSUFFICIENT,
            f"launches of {counts} arguments",
            "as many as the kernel has parameters",
            f"kernel {kernel}",
        )
    return [min(each) for each in zip(*given, strict=True)]


def _most(texts: Sequence[str]) -> int:
    """The most dynamic shared memory of launches; -1: what the device allows."""
    return max(map(int, texts)) if all(text.isdecimal() for text in texts) else -1
