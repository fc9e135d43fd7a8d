# pyright: basic
"""From the LLVM dialect to PTX, and from PTX to a cubin.

PTX comes from LLVM's NVPTX back end, with libdevice linked in.  Cubins come from nvJitLink, in
the process; where that is not installed, from ptxas.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import log, tools
from ..errors import DnncError, Status
from ..mlir import gpu, ir, run_pipeline
from ..target import Target
from . import stack_pointer
from .stretch import commented

OPTIONS = ("-O3", "-lineinfo")
# For code that loses its stack pointer: ptxas spares registers first, so that less is spilled.
SPARING = ("--register-usage-level=10",)
# nvJitLink's cache on disk gives the cubin without the log that has its registers and spills.
_NVJITLINK_OPTIONS = ("-verbose", "-no-cache")

_log = log.logger(__name__)


@dataclass(frozen=True)
class Resources:
    """Resources of a kernel as the assembler reports them; bytes and registers are a thread's,
    smem a block's."""

    registers: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    local_bytes: int = 0
    static_smem_bytes: int = 0


@dataclass(frozen=True)
class Assembled:
    """cubin: the code.  resources: kernel name -> its resources.  log: the assembler's words."""

    cubin: bytes
    resources: dict[str, Resources]
    log: str


# ---- PTX


@functools.cache
def libdevice_path() -> str:
    """The libdevice bitcode of the nvidia-nvvm package, else of an installed CUDA toolkit."""
    for root in (*tools.nvidia_folders(), *_toolkit_roots()):
        for pattern in ("*/nvvm/libdevice/libdevice.10.bc", "nvvm/libdevice/libdevice.10.bc"):
            for found in sorted(root.glob(pattern)):
                return str(found)
    raise DnncError(
        Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
        "libdevice is not installed",
        'the package nvidia-nvvm (pip install "dnnc[compiler]")',
    )


def _toolkit_roots() -> list[Path]:
    """Where CUDA_HOME, CUDA_PATH or the nvcc of the PATH say that a toolkit is."""
    named = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    compiler = shutil.which("nvcc")
    if compiler is not None:
        named.append(str(Path(compiler).resolve().parent.parent))
    return [Path(place) for place in named]


def set_target(gpu_module: Any, target: Target, version: int = 0) -> None:
    """Says what a `gpu.module` is compiled for; version: the least of the PTX ISA, ten times."""
    features = f', features = "+ptx{max(version, target.ptx_version)}"'
    gpu_module.attributes["targets"] = ir.Attribute.parse(
        f'[#nvvm.target<O = 3, chip = "{target.chip}"{features}>]'
    )


def to_ptx(gpu_module: Any) -> str:
    """The PTX of a `gpu.module` in the LLVM dialect, alone in its module."""
    linked = f" l={libdevice_path()}" if _calls_libdevice(gpu_module) else ""  # it takes 2 ms
    run_pipeline(gpu_module, f"builtin.module(gpu-module-to-binary{{format=isa{linked}}})")
    binary = gpu_module.body.operations[0]
    data = bytes(gpu.ObjectAttr(ir.ArrayAttr(binary.attributes["objects"])[0]).object)
    text = commented(data.decode().rstrip("\0\n") + "\n")
    unresolved = re.search(r"^\.extern \.func.*?(\w+)\s*$", text, re.MULTILINE)
    if unresolved:
        raise DnncError(
            Status.INTERNAL_ERROR_COMPILATION_FAILED,
            f"the PTX calls {unresolved.group(1)}, which nothing defines",
            where="PTX",
        )
    return text


def _calls_libdevice(module: Any) -> bool:
    """Whether the `gpu.module` declares a function of libdevice."""
    (kernels,) = module.body.operations
    return any(
        ir.StringAttr(op.attributes["sym_name"]).value.startswith("__nv_")
        for op in kernels.operation.regions[0].blocks[0].operations
        if op.operation.name == "llvm.func"
    )


# ---- cubin


def entries(ptx: str) -> set[str]:
    """The names of the kernels of a PTX text."""
    return set(re.findall(r"^\.visible \.entry (\w+)", ptx, re.MULTILINE))


def is_ptx(data: bytes, target: Target) -> bool:
    """Whether bytes are a PTX text for a target, as `to_ptx` gives it."""
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError:
        return False
    return f"\n.target {target.chip}\n" in text and bool(entries(text))


def assemble(ptx: str, target: Target) -> Assembled:
    """The cubin of PTX for a target; a refusal of the assembler keeps its log and the PTX.

    INTERNAL_ERROR_COMPILATION_FAILED: the assembler refuses the PTX, or its code is wrong whatever
    its options: see `stack_pointer`.
    """
    made = _assemble(ptx, target)
    if not (lost := _without_stack_pointer(made)):
        return made
    _log.info("%s: ptxas overwrites the stack pointer; again with %s", lost, SPARING)
    made = _with_ptxas(ptx, target, SPARING)
    if lost := _without_stack_pointer(made):
        raise DnncError(
            Status.INTERNAL_ERROR_COMPILATION_FAILED,
            f"ptxas overwrites the stack pointer in {', '.join(lost)}, which spills registers",
            "knobs that need fewer registers, or another ptxas",
            where=str(target),
        )
    return made


def _without_stack_pointer(made: Assembled) -> list[str]:
    stacks = [name for name, found in made.resources.items() if found.local_bytes]
    return stack_pointer.overwritten(made.cubin, stacks) if stacks else []


def _assemble(ptx: str, target: Target) -> Assembled:
    if "wgmma" in ptx or "st.async" in ptx:
        # nvJitLink ignores setmaxnreg ("to maintain compatibility across compilation units"), and
        # makes products wait for each other where a function may call another (a division).  Of
        # clusters that share rows of 65536 elements, stored as fp8, it (13.0) ends the process.
        return _with_ptxas(ptx, target)
    try:
        nvjitlink = importlib.import_module("cuda.bindings.nvjitlink")
    except ImportError:
        return _with_ptxas(ptx, target)
    try:
        nvjitlink.version()
    except Exception as error:  # the library behind the bindings is missing
        if "nvjitlink" not in str(error).lower():
            raise
        return _with_ptxas(ptx, target)
    return _with_nvjitlink(nvjitlink, ptx, target)


def _with_nvjitlink(nvjitlink: Any, ptx: str, target: Target) -> Assembled:
    options = [f"-arch={target.name}", *_NVJITLINK_OPTIONS, *OPTIONS]
    handle = nvjitlink.create(len(options), options)
    try:
        data = ptx.encode()
        try:
            nvjitlink.add_data(handle, nvjitlink.InputType.PTX, data, len(data), "kernels.ptx")
            nvjitlink.complete(handle)
        except nvjitlink.nvJitLinkError as error:
            log = _words(nvjitlink.get_error_log, nvjitlink.get_error_log_size, handle)
            raise _refused("nvJitLink", log or str(error), ptx, target) from error
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
        log = _words(nvjitlink.get_info_log, nvjitlink.get_info_log_size, handle)
    finally:
        nvjitlink.destroy(handle)
    return _assembled(bytes(cubin), ptx, log, target)


def _assembled(cubin: bytes, ptx: str, log: str, target: Target) -> Assembled:
    """The cubin with its kernels' resources; a log that lacks one of them is an error."""
    resources = read_resources(log)
    missing = set(_ENTRY.findall(ptx)) - set(resources)
    if missing:
        raise DnncError(
            Status.INTERNAL_ERROR_COMPILATION_FAILED,
            f"the assembler's log has no resources of {', '.join(sorted(missing))}: {log[:500]}",
            where=str(target),
        )
    return Assembled(cubin, resources, log)


def _words(read: Any, size: Any, handle: Any) -> str:
    buffer = bytearray(size(handle))
    if buffer:
        read(handle, buffer)
    return bytes(buffer).decode(errors="replace").rstrip("\0")


def _with_ptxas(ptx: str, target: Target, more: tuple[str, ...] = ()) -> Assembled:
    """more: options beside OPTIONS."""
    command = ptxas_path()
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "kernels.ptx"), Path(folder, "kernels.cubin")
        source.write_text(ptx)
        options = [f"-arch={target.name}", "-v", *OPTIONS, *more]
        arguments = [command, *options, str(source), "-o", str(cubin)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        log = done.stdout + done.stderr
        if done.returncode:
            raise _refused(f"ptxas (exit status {done.returncode})", log, ptx, target)
        return _assembled(cubin.read_bytes(), ptx, log, target)


def ptxas_path() -> str:
    """ptxas of the nvidia-cuda-nvcc package, else of the PATH."""
    for root in tools.nvidia_folders():
        for found in sorted(root.glob("*/bin/ptxas")):
            return str(found)
    found = shutil.which("ptxas")
    if found is None:
        raise DnncError(
            Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
            "no assembler: neither nvJitLink nor ptxas is installed",
            'the packages nvidia-nvjitlink or nvidia-cuda-nvcc (pip install "dnnc[compiler]")',
        )
    return found


def _refused(assembler: str, log: str, ptx: str, target: Target) -> DnncError:
    with tempfile.NamedTemporaryFile("w", suffix=".ptx", prefix="dnnc-", delete=False) as file:
        file.write(ptx)
    return DnncError(
        Status.INTERNAL_ERROR_COMPILATION_FAILED,
        f"{assembler} refused the PTX, kept in {file.name}: {log.strip()[:2000]}",
        f"to repeat it: ptxas -arch={target.name} -v {file.name}",
        where=str(target),
    )


_ENTRY = re.compile(r"\.entry\s+(\w+)")
_FUNCTION = re.compile(r"Function properties for '?(\w+)'?")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(.*)")
_SMEM = re.compile(r"(\d+) bytes smem")


def read_resources(log: str) -> dict[str, Resources]:
    """Kernel name -> resources, from the assembler's verbose log."""
    found: dict[str, Resources] = {}
    name, stack = "", (0, 0, 0)
    for line in log.splitlines():
        if match := _FUNCTION.search(line):
            name = match.group(1)
        elif match := _STACK.search(line):
            stack = tuple(map(int, match.groups()))
        elif match := _USED.search(line):
            smem = _SMEM.search(match.group(2))
            found[name] = Resources(
                registers=int(match.group(1)),
                spill_store_bytes=stack[1],
                spill_load_bytes=stack[2],
                local_bytes=stack[0],
                static_smem_bytes=int(smem.group(1)) if smem else 0,
            )
    return found
