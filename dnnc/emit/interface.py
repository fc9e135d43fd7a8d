"""The interface that a caller of the generated C sees: names, arguments, errors."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..errors import DnncError, Status
from ..expr import Bound, range_text
from ..plan.plan import Arg, Launch, Plan, Program, Symbol, TensorRecord
from . import names

# An error that is about an argument is its place times this, plus a status.
STEP = 10000

# Data types of by-value tensors -> what C passes them as.
NUMBER_TYPES = {
    "f64": "double", "f32": "float", "f16": "float", "bf16": "float", "f8E4M3FN": "float",
    "f8E5M2": "float", "i64": "int64_t", "i32": "int32_t", "i8": "int8_t", "ui8": "uint8_t",
    "i1": "int",
}  # fmt: skip


@dataclass(frozen=True)
class Argument:
    """A member of the struct of arguments.

    place: from 1, in the struct's order.  type: its C type.
    Exactly one is there: tensor (rank: of the device whose buffer it is, -1 for this one), symbol.
    """

    name: str
    place: int
    type: str
    tensor: TensorRecord | None = None
    rank: int = -1
    symbol: Symbol | None = None

    @property
    def is_number(self) -> bool:
        return self.tensor is not None and self.tensor.is_by_value

    @property
    def is_buffer(self) -> bool:
        """Whether it is a tensor's buffer, as far as this device binds it."""
        return self.tensor is not None and not self.is_number and self.rank < 0

    @property
    def is_written(self) -> bool:
        tensor = self.tensor
        return tensor is not None and self.is_buffer and (tensor.role == "output" or tensor.is_peer)


@dataclass(frozen=True)
class Error:
    """An enumerator: its name without the prefix, its value, and what it says."""

    name: str
    value: int
    text: str


class Interface:
    """The names and arguments of a plan in C.

    prefix: what its names begin with ("ffn": `ffn_run`, `FFN_SUCCESS`).
    A plan without tensors is BAD_PARAM.
    """

    def __init__(self, plan: Plan, prefix: str):
        if not plan.tensors:
            raise DnncError(Status.BAD_PARAM, f"plan '{plan.name}' has no tensors", "one or more")
        self.plan = plan
        self.prefix = prefix
        self.macro = prefix.upper()
        self.arguments = tuple(_arguments(plan))
        capitals = ((a.name.upper(), str(a.place)) for a in self.arguments)
        # What enumerators call an argument: x and X are one there.
        self.capitals = tuple(names.different([*capitals, ("WORKSPACE", "")]))

    @property
    def error_type(self) -> str:
        return f"{self.prefix}_error_t"

    @property
    def sizes(self) -> tuple[Argument, ...]:
        return tuple(a for a in self.arguments if a.symbol is not None)

    @property
    def buffers(self) -> tuple[Argument, ...]:
        """In the order of their places, which begin at 1."""
        return tuple(a for a in self.arguments if a.is_buffer)

    @functools.cached_property
    def members(self) -> dict[str, str]:
        """Symbol or device variable -> its member of `struct sizes`, as expressions name it."""
        found = {a.symbol.name: f"s->{a.name}" for a in self.sizes if a.symbol is not None}
        return {
            **found,
            "sm_count": "s->sm_count",
            "max_dynamic_smem_bytes": "s->max_dynamic_smem_bytes",
        }

    def bounds_of(self, argument: Argument) -> list[Bound]:
        """The bounds of products whose last factor a size is."""
        name = argument.symbol.name if argument.symbol is not None else ""
        return [bound for bound in self.plan.products if bound.factors[-1] == name]

    def tensor(self, uid: int, rank: int = -1) -> str:
        """The member of the arguments that holds a tensor; none is BAD_PARAM."""
        for argument in self.arguments:
            if argument.tensor and argument.tensor.uid == uid and argument.rank == rank:
                return argument.name
        raise DnncError(
            Status.BAD_PARAM, f"no tensor has uid {uid}", "a tensor", f"plan '{self.plan.name}'"
        )

    def address(self, uid: int, rank: int = -1) -> str:
        """C for the address of a tensor's buffer; a by-value tensor has none."""
        name = self.tensor(uid, rank)
        if any(a.name == name and a.is_number for a in self.arguments):
            raise DnncError(
                Status.BAD_PARAM, f"the address of by-value tensor {uid}", "a tensor with a buffer"
            )
        return f"args->{name}"

    def error(self, name: str) -> str:
        return f"{self.macro}_{name}"

    @functools.cached_property
    def errors(self) -> tuple[Error, ...]:
        return tuple(_errors(self))


# ---- arguments


def _arguments(plan: Plan) -> Iterator[Argument]:
    """Inputs, outputs, buffers of other devices, numbers, sizes."""
    rows: list[tuple[str, str, TensorRecord | None, int, Symbol | None]] = []
    bound = [t for t in plan.tensors if not t.is_by_value]
    for tensor in sorted(bound, key=lambda t: t.role != "input"):
        rows.append((_tensor_name(tensor), "CUdeviceptr", tensor, -1, None))
    for uid, rank in _peers(plan):
        tensor = next(t for t in bound if t.uid == uid)
        rows.append((f"{_tensor_name(tensor)}_rank{rank}", "CUdeviceptr", tensor, rank, None))
    for tensor in plan.tensors:
        if tensor.is_by_value:
            rows.append((_tensor_name(tensor), NUMBER_TYPES[tensor.dtype], tensor, -1, None))
    for symbol in plan.symbols:
        rows.append((names.identifier(symbol.name), "int64_t", None, -1, symbol))
    pairs = [(name, _suffix(tensor, rank)) for name, _, tensor, rank, _ in rows]
    different = names.different(pairs)
    for place, (name, row) in enumerate(zip(different, rows, strict=True), 1):
        yield Argument(name, place, *row[1:])


def _tensor_name(tensor: TensorRecord) -> str:
    return names.identifier(tensor.name or f"tensor_{tensor.uid}")


def _suffix(tensor: TensorRecord | None, rank: int) -> str:
    """The suffix that tells a tensor from others of its name."""
    if tensor is None:
        return ""
    return str(tensor.uid) if rank < 0 else f"{tensor.uid}_rank{rank}"


def _peers(plan: Plan) -> Sequence[tuple[int, int]]:
    """(uid, rank) of the buffers of other devices, in order."""
    return sorted({(arg.uid, arg.rank) for arg in _args(plan) if arg.kind == "peer"})


def _args(plan: Plan) -> Iterator[Arg]:
    for program in plan.programs:
        for launch in launches(program):
            yield from launch.args


def launches(program: Program) -> Iterator[Launch]:
    """The launches of all variants of a program."""
    for variant in program.variants:
        for step in variant.steps:
            if step.launch is not None:
                yield step.launch


# ---- errors


def _errors(interface: Interface) -> Iterator[Error]:
    targets = ", ".join(program.target for program in interface.plan.programs)
    prefix = interface.prefix
    yield Error("SUCCESS", Status.SUCCESS, "success")
    yield Error("WRONG_CONTEXT", Status.BAD_PARAM, f"another context than {prefix}_load's")
    yield Error("NO_ARGUMENT", Status.BAD_PARAM_NULL_POINTER, "a plan, struct or result is NULL")
    yield Error(
        "UNSUPPORTED_SIZES",
        Status.NOT_SUPPORTED_SHAPE,
        "no variant takes these sizes, or a number that follows from them leaves its type",
    )
    yield Error(
        "NO_CODE",
        Status.NOT_SUPPORTED_ARCH_MISMATCH,
        f"no code for this device; there is code for {targets}",
    )
    yield Error(
        "SHARED_MEMORY",
        Status.NOT_SUPPORTED_SHARED_MEMORY_INSUFFICIENT,
        "more shared memory than this device allows a block",
    )
    yield Error(
        "GRID",
        Status.NOT_SUPPORTED_BAD_LAUNCH_PARAM,
        "a grid not from 0 to below 2^31, 2^16, 2^16 blocks, or not of whole clusters",
    )
    yield Error(
        "ARGUMENTS",
        Status.BAD_PARAM_SIZE_INSUFFICIENT,
        "a kernel of the code has other parameters than the arguments of its launches",
    )
    yield Error("NO_MEMORY", Status.INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no host memory")
    for argument, capital in zip(interface.arguments, interface.capitals, strict=False):
        yield from _argument_errors(argument, capital)
        if bounds := interface.bounds_of(argument):
            wanted = ", ".join(f"{bound} <= {bound.max}" for bound in bounds)
            yield Error(
                f"PRODUCT_{capital}",
                STEP * argument.place + Status.BAD_PARAM_OUT_OF_BOUND,
                f"a product of sizes is not {wanted}",
            )
    yield from _workspace_errors(STEP * (len(interface.arguments) + 1), interface.capitals[-1])


def _argument_errors(argument: Argument, capital: str) -> Iterator[Error]:
    name, base = names.comment(argument.name), STEP * argument.place
    if argument.symbol is not None:
        yield Error(
            f"SIZE_{capital}",
            base + Status.BAD_PARAM_SHAPE_MISMATCH,
            f"{name} is not {range_text(argument.symbol)}",
        )
    elif argument.tensor is not None and not argument.is_number:
        yield Error(f"NULL_{capital}", base + Status.BAD_PARAM_NULL_POINTER, f"{name} is 0")
        if argument.is_buffer and argument.tensor.alignment > 1:
            yield Error(
                f"MISALIGNED_{capital}",
                base + Status.BAD_PARAM_MISALIGNED_POINTER,
                f"{name} is not a multiple of {argument.tensor.alignment} bytes",
            )
        if argument.is_written:
            yield Error(
                f"OVERLAP_{capital}", base + Status.BAD_PARAM, f"{name} overlaps another tensor"
            )


def _workspace_errors(base: int, capital: str) -> Iterator[Error]:
    yield Error(
        f"NULL_{capital}",
        base + Status.BAD_PARAM_NULL_POINTER,
        "workspace is 0, and some is needed",
    )
    yield Error(
        f"MISALIGNED_{capital}",
        base + Status.BAD_PARAM_MISALIGNED_POINTER,
        f"workspace is not a multiple of {WORKSPACE_ALIGNMENT} bytes",
    )
    yield Error(f"OVERLAP_{capital}", base + Status.BAD_PARAM, "workspace overlaps a tensor")


# Bytes that divide the address of a workspace (docs/plan-format.md).
WORKSPACE_ALIGNMENT = 256
