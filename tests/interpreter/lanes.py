"""Runs a few PTX instructions on arrays, one element a thread."""

from __future__ import annotations

from typing import Any

import numpy as np

from dnnc.interpreter import InterpreterError, Memory, launch, parse

HEADER = ".version 8.0\n.target sm_90\n.address_size 64\n"
# %d is the result.
_NAMES = "abcefg"


def kernel_text(body: str, widths: list[int], out_width: int, declarations: str = "") -> str:
    """A kernel: registers %a, %b, ... of these widths from memory, the body, %d to memory.

    The body may use predicates %p0.., %h0.. (16 bits), %r0.. (32), %rd0.. (64).
    """
    params = [f".param .u64 {name}_ptr" for name in _NAMES[: len(widths)]] + [".param .u64 d_ptr"]
    loads = "".join(
        f"ld.param.u64 %rd30, [{name}_ptr];\n"
        f"mad.wide.u32 %rd30, %r30, {width // 8}, %rd30;\n"
        f"ld.global.b{width} %{name}, [%rd30];\n"
        for name, width in zip(_NAMES, widths, strict=False)
    )
    registers = "".join(
        f".reg .b{max(width, 16)} %{name};\n" for name, width in zip(_NAMES, widths, strict=False)
    )
    return f"""{HEADER}
.visible .entry k({", ".join(params)})
{{
{registers}.reg .b{max(out_width, 16)} %d;
.reg .pred %p<16>;
.reg .b16 %h<16>;
.reg .b32 %r<32>;
.reg .b64 %rd<32>;
{declarations}
mov.u32 %r30, %tid.x;
mov.u32 %r31, %ctaid.x;
mad.lo.u32 %r30, %r31, 128, %r30;
{loads}
{body}
ld.param.u64 %rd31, [d_ptr];
mad.wide.u32 %rd31, %r30, {out_width // 8}, %rd31;
st.global.b{out_width} [%rd31], %d;
ret;
}}
"""


def evaluate(
    body: str, *inputs: np.ndarray[Any, Any], out: Any, declarations: str = "", seed: int = 0
) -> np.ndarray[Any, Any]:
    """%d of every thread as an array of dtype `out`; inputs are %a, %b, ..., one a thread."""
    dtype = np.dtype(out)
    count = inputs[0].size if inputs else 128
    padded = -(-count // 128) * 128
    widths = [8 * array.dtype.itemsize for array in inputs]
    text = kernel_text(body, widths, 8 * dtype.itemsize, declarations)
    memory = Memory()
    params: list[int] = []
    for array in inputs:
        params.append(memory.allocate(padded * array.dtype.itemsize))
        memory.upload(params[-1], np.resize(array, padded))
    params.append(memory.allocate(padded * dtype.itemsize))
    launch(
        parse(text),
        "k",
        grid=(padded // 128, 1, 1),
        block=(128, 1, 1),
        params=[address.to_bytes(8, "little") for address in params],
        memory=memory,
        seed=seed,
    )
    return memory.download(params[-1], padded * dtype.itemsize).view(dtype)[:count]


def same_bits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> None:
    """Assert equal bits, naming the first difference."""
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    assert a.dtype.itemsize == b.dtype.itemsize
    left, right = np.ascontiguousarray(a).view(unsigned), np.ascontiguousarray(b).view(unsigned)
    differs = np.flatnonzero(left != right)
    assert differs.size == 0, (
        f"{differs.size} of {a.size} differ, first at {differs[0]}: "
        f"{a[differs[0]]!r} (0x{left[differs[0]]:x}) against {b[differs[0]]!r} "
        f"(0x{right[differs[0]]:x})"
    )


def module_text(body: str, pointers: int, declarations: str = "", globals_: str = "") -> str:
    """A kernel `k` with pointers in %ptr0, %ptr1, ..., %tid = thread and %cta = block number.

    The body may use %p<16>, %h<16>, %r<64>, %f<32> (32 bits too), %rd<32>.
    """
    params = ", ".join(f".param .u64 q{at}" for at in range(pointers))
    loads = "\n".join(f"ld.param.u64 %ptr{at}, [q{at}];" for at in range(pointers))
    return f"""{HEADER}
{globals_}
.visible .entry k({params})
{{
.reg .pred %p<16>;
.reg .b16 %h<16>;
.reg .b32 %r<64>;
.reg .b32 %f<32>;
.reg .b64 %rd<32>;
.reg .b64 %ptr<8>;
.reg .b32 %thread;
.reg .b32 %cta;
{declarations}
{loads}
mov.u32 %thread, %tid.x;
mov.u32 %cta, %ctaid.x;
{body}
ret;
}}
"""


def run(
    body: str,
    *buffers: np.ndarray[Any, Any] | tuple[int, Any],
    block: int = 32,
    grid: int = 1,
    seed: int = 0,
    smem: int = 0,
    declarations: str = "",
    globals_: str = "",
    step_limit: int = 200_000,
    allow_poison: bool = False,
) -> list[np.ndarray[Any, Any]]:
    """Run a body over buffers: arrays are uploaded, (count, dtype) are left unwritten.

    Returns every buffer that was left unwritten, as the kernel left it.
    """
    text = module_text(body, len(buffers), declarations, globals_)
    memory = Memory()
    addresses: list[int] = []
    for buffer in buffers:
        if isinstance(buffer, tuple):
            addresses.append(memory.allocate(buffer[0] * np.dtype(buffer[1]).itemsize))
        else:
            addresses.append(memory.allocate(buffer.nbytes))
            memory.upload(addresses[-1], buffer)
    launch(
        parse(text),
        "k",
        grid=(grid, 1, 1),
        block=(block, 1, 1),
        params=[address.to_bytes(8, "little") for address in addresses],
        memory=memory,
        seed=seed,
        dynamic_smem_bytes=smem,
        step_limit=step_limit,
    )
    return [
        memory.download(address, buffer[0] * np.dtype(buffer[1]).itemsize, allow_poison).view(
            buffer[1]
        )
        for address, buffer in zip(addresses, buffers, strict=True)
        if isinstance(buffer, tuple)
    ]


def fails_within(seeds: int, attempt: Any) -> str:
    """The message of the first InterpreterError that attempt(seed) raises, "" if none does."""
    for seed in range(seeds):
        try:
            attempt(seed)
        except InterpreterError as error:
            return str(error)
    return ""
