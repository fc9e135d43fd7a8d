"""The header: what the plan is, its arguments with their shapes, its errors and functions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ..expr import range_text
from ..plan.plan import TensorRecord
from .interface import Argument, Interface
from .names import comment


def header(interface: Interface) -> str:
    """The text of the header of a plan."""
    guard = f"{interface.macro}_H"
    lines = [
        *_opening(interface),
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#include <cuda.h>",
        *(["#include <math.h>"] if _has_infinity(interface) else []),
        "#include <stddef.h>",
        "#include <stdint.h>",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        *_error_lines(interface),
        "",
        "/* A plan whose code is loaded. */",
        f"typedef struct {interface.prefix}_plan {interface.prefix}_t;",
        "",
        *_struct_lines(interface),
        *_default_lines(interface),
        "",
        *_function_lines(interface),
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "",
        f"#endif /* {guard} */",
        "",
    ]
    return "\n".join(lines)


def made_by(interface: Interface) -> str:
    """plan 'ffn' for sm_80, sm_90a, key 0123456789ab, by dnnc 0.1.0"""
    plan = interface.plan
    targets = ", ".join(program.target for program in plan.programs)
    text = f"plan '{plan.name}' for {targets}, key {plan.key[:12]}"
    version = plan.tools.get("dnnc")
    return comment(f"{text}, by dnnc {version}" if version else text)


def _opening(interface: Interface) -> Iterator[str]:
    name = interface.prefix
    sizes = "".join(f"{a.name}, " for a in interface.sizes)
    yield f"/* {made_by(interface)}."
    yield " *"
    yield f" *     {name}_t *plan;                      a context is current"
    yield f" *     {name}_args_t args = {{0}};            then set every member"
    yield " *     size_t bytes;"
    yield f" *     {name}_load(&plan);"
    yield f" *     {name}_workspace_size(plan, {sizes}&bytes);"
    yield f" *     {name}_run(plan, &args, workspace, stream);"
    yield f" *     {name}_unload(plan);"
    yield " *"
    yield " * Link with the CUDA driver (-lcuda), CUDA 12 or later. */"


# ---- errors


def _error_lines(interface: Interface) -> Iterator[str]:
    prefix = interface.prefix
    yield "/* From 1 to 999: a CUresult of the driver.  Else the last four digits are a status of"
    yield " * cuDNN 9, and what is before them is the place of the argument that it is about. */"
    yield f"typedef enum {prefix}_error {{"
    for number, error in enumerate(interface.errors, 1):
        comma = "," if number < len(interface.errors) else ""
        yield f"    /* {comment(error.text)} */"
        yield f"    {interface.error(error.name)} = {error.value}{comma}"
    yield f"}} {interface.error_type};"


# ---- arguments


def _struct_lines(interface: Interface) -> Iterator[str]:
    yield "/* Dims and strides are in elements, slowest axis first. */"
    yield f"typedef struct {interface.prefix}_args {{"
    for argument in interface.arguments:
        yield f"    /* {comment(_argument_text(argument))} */"
        yield f"    {argument.type} {argument.name};"
    yield f"}} {interface.prefix}_args_t;"


def _argument_text(argument: Argument) -> str:
    if argument.symbol is not None:
        return f"size {argument.symbol.name}: {range_text(argument.symbol)}"
    assert argument.tensor is not None
    text = _tensor_text(argument.tensor)
    if argument.rank >= 0:
        return f"{text}: its address on the device of rank {argument.rank}"
    return text


def _tensor_text(tensor: TensorRecord) -> str:
    name = f"'{tensor.name}' (uid {tensor.uid})" if tensor.name else f"uid {tensor.uid}"
    if tensor.is_by_value:
        return f"number {name}, {tensor.dtype}"
    role = "input that devices write" if tensor.is_peer else tensor.role
    if tensor.prior is not None:
        role = "output whose contents are read first"
    dims, strides = (", ".join(texts) for texts in (tensor.dims, tensor.strides))
    return (
        f"{role} {name}: {tensor.dtype} [{dims}], strides [{strides}], "
        f"aligned to {tensor.alignment} bytes"
    )


# ---- usual values of numbers


def _defaults(interface: Interface) -> Iterator[tuple[str, str, float]]:
    """(macro's name, C type, value) of the numbers that have one."""
    for argument, capital in zip(interface.arguments, interface.capitals, strict=False):
        if argument.tensor is not None and argument.is_number:
            if argument.tensor.value is not None:
                yield f"{interface.macro}_DEFAULT_{capital}", argument.type, argument.tensor.value


def _has_infinity(interface: Interface) -> bool:
    return any(not math.isfinite(value) for _, _, value in _defaults(interface))


def _default_lines(interface: Interface) -> Iterator[str]:
    rows = list(_defaults(interface))
    if rows:
        yield ""
        yield "/* Values that the graph has for numbers; members of the struct have to be set. */"
    for name, type_, value in rows:
        yield f"#define {name} {number(value, type_)}"


def number(value: float, type_: str) -> str:
    """A value as a constant expression of C."""
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    if type_ not in ("float", "double"):
        return f"({int(value)})" if value < 0 else str(int(value))
    text = repr(float(value)) + ("f" if type_ == "float" else "")
    return f"({text})" if text.startswith("-") else text


# ---- functions


def _function_lines(interface: Interface) -> Iterator[str]:
    for text, prototype in zip(_COMMENTS, prototypes(interface), strict=True):
        yield from _as_comment(text.replace("NAME", interface.prefix))
        yield f"{prototype};"
        yield ""
    yield from _as_comment("What an error says; never NULL, and not to be freed.")
    yield f"{error_string_prototype(interface)};"


_COMMENTS = (
    "A plan whose code is loaded into the current context; *out is NULL after an error. "
    "NAME_unload frees it.",
    "The bytes of device memory that NAME_run needs for these sizes, in *out: the most that any "
    "variant of the plan asks for.",
    "Launches the plan on a stream, or into its capture.  Does not allocate and does not wait; "
    "reads *args before it returns.  workspace: aligned to 256 bytes; 0 where none is needed.  Any "
    "number of threads may call it at once, each with outputs and a workspace of its own.",
    "Unloads the code, in the context of NAME_load, when nothing of the plan runs any more. "
    "NULL is nothing to do.",
)


def prototypes(
    interface: Interface, sizes: Sequence[str] | None = None
) -> tuple[str, str, str, str]:
    """load, workspace_size, run, unload, without what ends them.

    sizes: what a definition calls its sizes, whose names could be those of what it uses.
    """
    name, error = interface.prefix, interface.error_type
    called = [a.name for a in interface.sizes] if sizes is None else sizes
    sizes_text = "".join(f", int64_t {each}" for each in called)
    return (
        f"{error} {name}_load({name}_t **out)",
        f"{error} {name}_workspace_size(const {name}_t *plan{sizes_text}, size_t *out)",
        f"{error} {name}_run(const {name}_t *plan, const {name}_args_t *args, "
        "CUdeviceptr workspace,\n    CUstream stream)",
        f"{error} {name}_unload({name}_t *plan)",
    )


def error_string_prototype(interface: Interface) -> str:
    return f"const char *{interface.prefix}_error_string({interface.error_type} error)"


def _as_comment(text: str) -> Iterator[str]:
    """A comment of lines of up to 96 characters."""
    line = "/*"
    for word in text.split():
        if len(line) + len(word) > 96:
            yield line
            line = " *"
        line += f" {word}"
    yield f"{line} */"
