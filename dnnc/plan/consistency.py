"""What a plan's records must agree on, beyond their types: what they refer to is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .. import dtypes
from ..errors import DnncError, Status
from .plan import Arg, Launch, Plan, Program, Step, Variant

_ARG_KINDS = ("pointer", "workspace", "peer", "scalar", "by_value", "bytes", "tensor_map")

# Orders of elements -> how many dims a tensor has in memory; None: any number.
_RANKS = {"NONE": None, "F16x16": 8}


def verify(plan: Plan, where: str) -> None:
    """Raises BAD_PARAM for the first thing in the plan that refers to nothing.

    where: the file, as messages name it.  Expressions name the plan's symbols and parse.
    """
    try:
        for what, supported in _problems(plan):
            raise DnncError(Status.BAD_PARAM, what, supported)
    except DnncError as error:
        raise DnncError(error.status, error.what, error.supported, where) from None


_Problem = tuple[str, str]


def _problems(plan: Plan) -> Iterator[_Problem]:
    uids = [tensor.uid for tensor in plan.tensors]
    if len(set(uids)) != len(uids):
        yield "tensors of the same uid", "uids that differ"
    if len(plan.dims) != len(plan.symbols):
        yield "symbols of the same name", "names that differ"
    for pair in plan.may_alias:
        for uid in pair:
            yield from _uid_problems(plan, uid)
    for tensor in plan.tensors:
        dtypes.of_storage(tensor.dtype)
        if tensor.role not in ("input", "output"):
            yield f"tensor {tensor.uid}: role {tensor.role!r}", "input, output"
        if len(tensor.dims) != len(tensor.strides):
            yield f"tensor {tensor.uid}: {len(tensor.strides)} strides", f"{len(tensor.dims)}"
        if tensor.prior is not None and (tensor.role != "output" or tensor.prior in uids):
            yield f"tensor {tensor.uid}: prior {tensor.prior}", "of an output, a uid that none has"
        if tensor.reordering not in _RANKS:
            yield f"tensor {tensor.uid}: reordering {tensor.reordering!r}", ", ".join(_RANKS)
        elif _RANKS[tensor.reordering] not in (None, len(tensor.dims)):
            yield (
                f"tensor {tensor.uid}: {len(tensor.dims)} dims in {tensor.reordering}",
                f"{_RANKS[tensor.reordering]}",
            )
        if tensor.alignment < 1:
            yield f"tensor {tensor.uid}: alignment {tensor.alignment}", "1 or more"
        _parse(plan, (*tensor.dims, *tensor.strides))
    for program in plan.programs:
        yield from _program_problems(plan, program)


def _program_problems(plan: Plan, program: Program) -> Iterator[_Problem]:
    for module in program.modules:
        for blob in (module.cubin, module.ptx):
            if not -1 <= blob < len(plan.blobs):
                yield f"{program.target}: blob {blob}", f"0 to {len(plan.blobs) - 1}"
        if module.cubin < 0 or (module.ptx_runs_later and module.ptx < 0):
            yield f"{program.target}: a module without code", "a cubin, and PTX if that runs later"
    names = [kernel.name for kernel in program.kernels]
    for kernel in program.kernels:
        if not 0 <= kernel.module < len(program.modules):
            yield f"kernel {kernel.name}: module {kernel.module}", f"{len(program.modules)} modules"
    if len(set(names)) < len(names):
        yield f"{program.target}: two kernels of one name", "a name for each kernel"
    for fusion in program.fusions:
        if not 0 <= fusion.module < len(program.modules):
            what = f"{program.target}: a fusion of module {fusion.module}"
            yield what, f"{len(program.modules)} modules"
    if not program.variants:
        yield f"{program.target}: no variants", "one or more"
    for variant in program.variants:
        yield from _variant_problems(plan, variant, names)


def _variant_problems(plan: Plan, variant: Variant, names: Sequence[str]) -> Iterator[_Problem]:
    plan.guard(variant.guard)
    _parse(plan, (variant.workspace_bytes,))
    for step in variant.steps:
        yield from _step_problems(plan, step, names)


def _step_problems(plan: Plan, step: Step, names: Sequence[str]) -> Iterator[_Problem]:
    if (step.launch is None) == (step.memset is None):
        yield "a step of no kind or of two", "a launch or a memset"
    if step.memset is not None:
        _parse(plan, (step.memset.offset, step.memset.bytes))
        yield from _uid_problems(plan, step.memset.uid)
        if not 0 <= step.memset.value <= 255:
            yield f"a memset to {step.memset.value}", "a byte, 0 to 255"
    if step.launch is not None:
        yield from _launch_problems(plan, step.launch, names)


def _launch_problems(plan: Plan, launch: Launch, names: Sequence[str]) -> Iterator[_Problem]:
    if launch.kernel not in names:
        yield f"a launch of kernel {launch.kernel}", ", ".join(names)
    if min(*launch.block, *launch.cluster) < 1:
        yield f"kernel {launch.kernel}: block {launch.block}, cluster {launch.cluster}", "above 0"
    _parse(plan, (*launch.grid, launch.dynamic_smem_bytes))
    for arg in launch.args:
        yield from _arg_problems(plan, arg)


def _arg_problems(plan: Plan, arg: Arg) -> Iterator[_Problem]:
    if arg.kind not in _ARG_KINDS:
        yield f"an argument of kind {arg.kind!r}", ", ".join(_ARG_KINDS)
    if arg.kind in ("pointer", "peer", "by_value"):
        yield from _uid_problems(plan, arg.uid)
    if arg.kind == "scalar":
        _parse(plan, (arg.value,))
        if arg.type not in ("i32", "i64"):
            yield f"a scalar argument of type {arg.type!r}", "i32, i64"
    if arg.kind == "by_value":
        dtypes.of_storage(arg.type)
        if arg.uid not in [tensor.uid for tensor in plan.tensors if tensor.is_by_value]:
            yield f"tensor {arg.uid} passed by value", "a tensor with is_by_value"
    if arg.kind == "bytes" and not _is_hex(arg.data):
        yield f"bytes {arg.data!r:.40}", "hexadecimal digits, two a byte"
    _parse(plan, (arg.offset,))
    if arg.kind == "tensor_map":
        recipe = arg.tensor_map
        if recipe is None:
            yield "a tensor map without its recipe", "a recipe"
        else:
            yield from _uid_problems(plan, recipe.uid)
            _parse(plan, (recipe.offset, *recipe.dims, *recipe.strides))


def _is_hex(text: str) -> bool:
    try:
        bytes.fromhex(text)
    except ValueError:
        return False
    return True


def _uid_problems(plan: Plan, uid: int) -> Iterator[_Problem]:
    known = [tensor.uid for tensor in plan.tensors]
    if uid not in (-1, *known):
        yield f"tensor {uid}", ", ".join(map(str, known))


def _parse(plan: Plan, texts: Sequence[str]) -> None:
    for text in texts:
        plan.expression(text)
