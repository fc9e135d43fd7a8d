"""The source: arrays of code, a function for each variant, and the functions of the header."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from string import Template

from ..errors import Status
from ..plan.plan import Program, Variant
from . import driver_calls
from .arithmetic import arithmetic
from .code import code_lines, kernels_of
from .expressions import Printer
from .header import error_string_prototype, made_by, prototypes
from .interface import STEP, WORKSPACE_ALIGNMENT, Interface
from .names import comment, string
from .rooms import Rooms, negative, tensor_text
from .steps import Steps, StepText

# Bytes of a line; longer ones are broken where they may be.
_WIDTH = 100


def source(interface: Interface) -> str:
    """The text of the source of a plan; it includes its header by name."""
    own = "\n".join(
        [
            *_buffer_check(interface),
            *_programs(interface),
            *_entries(interface),
        ]
    )
    optional = [text for name, text in driver_calls.OPTIONAL.items() if _calls(own, name)]
    parts = [
        f"/* {made_by(interface)}. */",
        f'#include "{interface.prefix}.h"',
        "",
        "#include <stdlib.h>",
        "#include <string.h>",
        "",
        driver_calls.BEFORE,
        *_sizes_struct(interface),
        *code_lines(interface.plan),
        arithmetic(own),
        *optional,
        driver_calls.CHECKS,
        own,
        driver_calls.LOADING,
        *_error_string(interface),
    ]
    return _filled("\n".join(parts), interface)


def _calls(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\(", text) is not None


def _filled(text: str, interface: Interface) -> str:
    """The text with the plan's names for `$` marks."""
    load, _, _, unload = prototypes(interface)
    programs = interface.plan.programs
    marks = {
        "plan": f"{interface.prefix}_plan",
        "plan_t": f"{interface.prefix}_t",
        "args_t": f"{interface.prefix}_args_t",
        "error_t": interface.error_type,
        "load": load,
        "unload": unload,
        "unload_name": f"{interface.prefix}_unload",
        "modules": max((len(p.modules) for p in programs), default=0) or 1,
        "kernels": max((len(kernels_of(p)) for p in programs), default=0) or 1,
        "STEP": STEP,
        "NULL_POINTER": int(Status.BAD_PARAM_NULL_POINTER),
        "MISALIGNED_POINTER": int(Status.BAD_PARAM_MISALIGNED_POINTER),
        "BAD_PARAM": int(Status.BAD_PARAM),
        "WORKSPACE_ALIGNMENT": WORKSPACE_ALIGNMENT,
    }
    errors = {error.name: interface.error(error.name) for error in interface.errors}
    return Template(text).substitute({**errors, **marks})


# ---- sizes


def _sizes_struct(interface: Interface) -> Iterator[str]:
    yield "/* What size expressions name; is_bad: one left 64 bits, or divided by less than 1. */"
    yield "struct sizes {"
    for argument in interface.sizes:
        yield f"    int64_t {argument.name};"
    yield "    int64_t sm_count, max_dynamic_smem_bytes;"
    yield "    int is_bad;"
    yield "};"
    yield ""


def _sizes_check(interface: Interface) -> Iterator[str]:
    """The function that checks the values of symbols and adds those of the device."""
    yield "static $error_t check_sizes(const $plan_t *plan, struct sizes *s)"
    yield "{"
    for argument, capital in zip(interface.arguments, interface.capitals, strict=False):
        if (symbol := argument.symbol) is not None:
            name = f"s->{argument.name}"
            multiple = symbol.multiple_of
            rest = f" || {name} % {multiple} != 0" if multiple > 1 else ""
            yield f"    if ({name} < {symbol.min} || {name} > {symbol.max}{rest})"
            yield f"        return $SIZE_{capital};"
    for argument, capital in zip(interface.arguments, interface.capitals, strict=False):
        for bound in interface.bounds_of(argument):
            *others, last = (interface.members[name] for name in bound.factors)
            are_some = " && ".join(f"{name} != 0" for name in dict.fromkeys(others))
            yield f"    if ({are_some} && {last} > {' / '.join([str(bound.max), *others])})"
            yield f"        return $PRODUCT_{capital};"
    yield "    s->sm_count = plan->sm_count;"
    yield "    s->max_dynamic_smem_bytes = plan->max_dynamic_smem_bytes;"
    yield "    s->is_bad = 0;"
    yield "    return $SUCCESS;"
    yield "}"
    yield ""


# ---- buffers


def _buffer_check(interface: Interface) -> Iterator[str]:
    """The function that checks what is bound, for the workspace that a variant needs."""
    buffers = interface.buffers
    place_of = {a.tensor.uid: i for i, a in enumerate(buffers) if a.tensor is not None}
    pairs = [
        f"{{{place_of[output]}, {place_of[other]}}}"
        for output, other in interface.plan.may_alias
        if output in place_of and other in place_of
    ]
    yield "static $error_t check_buffers(struct sizes *s, const $args_t *args,"
    yield "                              CUdeviceptr workspace, int64_t needed)"
    yield "{"
    if pairs:
        yield f"    static const int in_place[][2] = {{{', '.join(pairs)}}}; /* output, input */"
    yield f"    struct span spans[{max(1, len(buffers))}];"
    for argument, capital in zip(interface.arguments, interface.capitals, strict=False):
        if argument.rank >= 0:
            yield f"    if (args->{argument.name} == 0)"
            yield f"        return $NULL_{capital};"
    printer = Printer(interface.members)
    for number, argument in enumerate(buffers):
        assert argument.tensor is not None
        yield f"    spans[{number}].at = args->{argument.name};"
        whole = tensor_text(interface.plan, printer, argument.tensor)
        for condition in negative(interface.plan, printer, argument.tensor):
            yield f"    s->is_bad |= {condition};"
        yield f"    spans[{number}].bytes = {whole};"
        yield f"    spans[{number}].alignment = {argument.tensor.alignment};"
        yield f"    spans[{number}].is_written = {int(argument.is_written)};"
    yield "    if (s->is_bad || needed < 0)"
    yield "        return $UNSUPPORTED_SIZES;"
    in_place = "in_place" if pairs else "NULL"
    rest = f"{in_place}, {len(pairs)}, workspace, needed"
    yield f"    return check_spans(spans, {len(buffers)}, {rest});"
    yield "}"
    yield ""


# ---- variants


def _programs(interface: Interface) -> Iterator[str]:
    for number, program in enumerate(interface.plan.programs):
        taken = _reachable(interface, program)
        for place, (guard, variant) in enumerate(taken):
            steps = _steps(interface, program, variant)
            condition = comment(variant.guard if guard != "1" else "any size")
            yield f"/* {comment(program.target)}, {condition} */"
            yield from _variant(interface, f"run_{number}_{place}", variant, steps)
        yield from _choice(number, [guard for guard, _ in taken])
        yield from _workspace(interface, number, program)


def _reachable(interface: Interface, program: Program) -> list[tuple[str, Variant]]:
    """(condition, variant) of those that some sizes may reach: up to one that takes all."""
    printer = Printer(interface.members)
    found: list[tuple[str, Variant]] = []
    for variant in program.variants:
        guard = printer.guard(interface.plan.guard(variant.guard))
        if guard != "0":
            found.append((guard, variant))
        if guard == "1":
            break
    return found


def _steps(interface: Interface, program: Program, variant: Variant) -> list[StepText]:
    steps = Steps(interface, kernels_of(program), Rooms(interface, variant))
    found: list[StepText] = []
    for number, step in enumerate(variant.steps):
        if step.launch is not None:
            found.append(steps.launch(number, step.launch))
        elif step.memset is not None:
            found.append(steps.memset(number, step.memset))
    return found


_PARAMETERS = (
    "const $plan_t *plan, struct sizes *s,\n"
    "    const $args_t *args, CUdeviceptr workspace, CUstream stream"
)


def _variant(
    interface: Interface, name: str, variant: Variant, steps: Sequence[StepText]
) -> Iterator[str]:
    """The function that runs a variant."""
    printer = Printer(interface.members)
    needed = printer.expression(interface.plan.expression(variant.workspace_bytes))
    encode = [line for step in steps for line in step.encode]
    body = [
        "CUresult result = CUDA_SUCCESS;",
        "$error_t error;",
        *(line for step in steps for line in step.declare),
        *(line for step in steps for line in step.prepare),
        f"error = check_buffers(s, args, workspace, {needed});",
        "if (error != $SUCCESS)",
        "    return error;",
        *encode,
        *(["if (s->is_bad)", "    return $UNSUPPORTED_SIZES;"] if encode else []),
        *(line for step in steps for line in step.run),
        "return ($error_t)result;",
    ]
    unused = [p for p in ("plan", "stream") if not _names(body, p)]
    yield f"static $error_t {name}({_PARAMETERS})"
    yield "{"
    for parameter in unused:
        body.insert(-1, f"(void){parameter};")
    for line in body:
        yield from _broken(f"    {line}")
    yield "}"
    yield ""


def _names(lines: Sequence[str], parameter: str) -> bool:
    return any(re.search(rf"\b{parameter}\b", line) for line in lines)


def _broken(line: str) -> Iterator[str]:
    """A line in pieces that are short enough, as far as it has commas and sums."""
    indent = " " * (len(line) - len(line.lstrip()) + 8)
    while len(line) > _WIDTH and not line.lstrip().startswith("/*"):
        at = max(line.rfind(mark, 0, _WIDTH) + len(mark) for mark in (", ", " + ", " - ", " && "))
        if at <= len(indent) + 2:
            break
        yield line[:at].rstrip()
        line = indent + line[at:]
    yield line


def _choice(number: int, guards: Sequence[str]) -> Iterator[str]:
    """The function that runs the first variant whose guard holds."""
    call = "(plan, s, args, workspace, stream)"
    yield f"static $error_t run_{number}({_PARAMETERS})"
    yield "{"
    for place, guard in enumerate(guards):
        if guard == "1":
            yield f"    return run_{number}_{place}{call};"
            break
        is_checked = "(s, " in guard  # it may note an overflow
        yield from _broken(f"    if ({guard}{' && !s->is_bad' if is_checked else ''})")
        yield f"        return run_{number}_{place}{call};"
        if is_checked:
            yield "    if (s->is_bad)"
            yield "        return $UNSUPPORTED_SIZES;"
    else:
        for parameter in ("plan", "s", "args", "workspace", "stream"):
            yield f"    (void){parameter};"
        yield "    return $UNSUPPORTED_SIZES;"
    yield "}"
    yield ""


def _workspace(interface: Interface, number: int, program: Program) -> Iterator[str]:
    """The function that gives the most workspace of all variants."""
    printer = Printer(interface.members)
    texts = dict.fromkeys(
        printer.expression(interface.plan.expression(v.workspace_bytes)) for v in program.variants
    )
    first, *others = texts
    most = first
    for other in others:
        most = f"maximum({most}, {other})"
    yield f"static int64_t workspace_{number}(struct sizes *s)"
    yield "{"
    yield "    (void)s;"
    yield from _broken(f"    return {most};")
    yield "}"
    yield ""


# ---- the functions of the header


def _entries(interface: Interface) -> Iterator[str]:
    yield from _sizes_check(interface)
    yield from _workspace_entry(interface)
    yield from _run_entry(interface)


def _workspace_entry(interface: Interface) -> Iterator[str]:
    own = [f"size_{number}" for number, _ in enumerate(interface.sizes)]
    yield from prototypes(interface, own)[1].split("\n")
    yield "{"
    yield "    struct sizes sizes;"
    yield "    $error_t error;"
    yield "    int64_t needed = 0;"
    yield "    if (plan == NULL || out == NULL)"
    yield "        return $NO_ARGUMENT;"
    for argument, size in zip(interface.sizes, own, strict=True):
        yield f"    sizes.{argument.name} = {size};"
    yield "    error = check_sizes(plan, &sizes);"
    yield "    if (error != $SUCCESS)"
    yield "        return error;"
    yield "    switch (plan->code->program) {"
    for number in range(len(interface.plan.programs)):
        yield f"    case {number}: needed = workspace_{number}(&sizes); break;"
    yield "    }"
    yield "    if (sizes.is_bad || needed < 0)"
    yield "        return $UNSUPPORTED_SIZES;"
    yield "    *out = (size_t)needed;"
    yield "    return $SUCCESS;"
    yield "}"
    yield ""


def _run_entry(interface: Interface) -> Iterator[str]:
    yield from prototypes(interface)[2].split("\n")
    yield "{"
    yield "    struct sizes sizes;"
    yield "    CUcontext context = NULL;"
    yield "    CUresult result;"
    yield "    $error_t error;"
    yield "    if (plan == NULL || args == NULL)"
    yield "        return $NO_ARGUMENT;"
    yield "    if ((result = cuCtxGetCurrent(&context)) != CUDA_SUCCESS)"
    yield "        return ($error_t)result;"
    yield "    if (context != plan->context)"
    yield "        return $WRONG_CONTEXT;"
    for argument in interface.sizes:
        yield f"    sizes.{argument.name} = args->{argument.name};"
    yield "    error = check_sizes(plan, &sizes);"
    yield "    if (error != $SUCCESS)"
    yield "        return error;"
    yield "    switch (plan->code->program) {"
    for number in range(len(interface.plan.programs)):
        yield f"    case {number}: return run_{number}(plan, &sizes, args, workspace, stream);"
    yield "    }"
    yield "    return $NO_CODE;"
    yield "}"
    yield ""


def _error_string(interface: Interface) -> Iterator[str]:
    yield error_string_prototype(interface)
    yield "{"
    yield "    const char *text = NULL;"
    yield "    switch ((int)error) {"
    for error in interface.errors:
        yield f"    case ${error.name}: return {string(error.text)};"
    yield "    }"
    yield "    if (error > $SUCCESS && (int)error <= 999"
    yield "        && cuGetErrorString((CUresult)error, &text) == CUDA_SUCCESS && text != NULL)"
    yield "        return text;"
    yield '    return "an error that no function of this plan returns";'
    yield "}"
    yield ""
