"""Prints the records of a plan."""

from __future__ import annotations

from collections.abc import Sequence

from ..expr import range_text
from ..plan.format import Bundle
from ..plan.plan import Arg, Launch, Memset, Plan, Program, TensorRecord, Variant
from ..visible import counted
from . import console
from .summary import placed_fusions


def show_bundle(bundle: Bundle) -> None:
    """A line a plan."""
    console.heading(f"bundle of {counted(len(bundle.names), 'plan')} (--plan NAME shows one)")
    table = console.table("plan", "targets", "inputs", "outputs", "key")
    for name in bundle.names:
        plan = bundle.plan(name)
        names = {
            role: ", ".join(_name(t) for t in plan.tensors if t.role == role)
            for role in ("input", "output")
        }
        targets = ",".join(program.target for program in plan.programs)
        table.add_row(name, targets, names["input"], names["output"], plan.key[:12])
    console.show(table)


def show_plan(plan: Plan, programs: Sequence[Program], explain: bool = False) -> None:
    """Everything of a plan but its code; explain: whether with the reasons of all engines."""
    console.heading(f"plan '{plan.name}'")
    console.field("key", plan.key)
    console.field("made by", ", ".join(f"{name} {v}" for name, v in plan.tools.items()))
    for symbol in plan.symbols:
        console.field("size", f"{symbol.name}: {range_text(symbol)}")
    for bound in plan.products:
        console.field("size", f"{bound}: at most {bound.max}")
    for output, source in plan.may_alias:
        console.field("in place", f"output uid {output} may be the buffer of input uid {source}")
    _show_tensors(plan.tensors)
    for program in programs:
        _show_program(plan, program, explain)


def _name(tensor: TensorRecord) -> str:
    return tensor.name or f"uid {tensor.uid}"


def _show_tensors(tensors: Sequence[TensorRecord]) -> None:
    console.heading("\ntensors")
    table = console.tensor_table()
    for tensor in tensors:
        table.add_row(
            str(tensor.uid),
            tensor.name,
            tensor.role if tensor.prior is None else f"{tensor.role}, read",
            tensor.dtype,
            console.shape_text(tensor.dims),
            console.shape_text(tensor.strides),
            "by value" if tensor.is_by_value else f"{tensor.alignment} B",
            console.value_text(tensor.value),
        )
    console.show(table)


# ---- programs


def _show_program(plan: Plan, program: Program, explain: bool) -> None:
    console.heading(f"\nprogram {program.target}: {rule_text(program)}")
    for module in program.modules:
        sizes = [f"cubin {len(plan.blobs[module.cubin]):,} B"]
        sizes += [f"PTX {len(plan.blobs[module.ptx]):,} B"] if module.ptx >= 0 else []
        console.field("code", ", ".join(sizes))
    if program.split_reason:
        console.show_split("", program.split_reason, explain)
    for hint in program.warnings:
        console.field("hint", hint)
    console.blank()
    _show_fusions(program)
    for number, variant in enumerate(program.variants):
        _show_variant(plan, number, variant)
    _show_kernels(program)


def rule_text(program: Program) -> str:
    """Which devices run it."""
    major, minor = program.capability
    own = f"compute capability {major}.{minor}"
    cubin = f"cubin for {own} alone" if program.exact else f"cubin for {own} and later {major}.x"
    runs_later = all(module.ptx_runs_later for module in program.modules)
    return f"{cubin}; PTX for later architectures" if runs_later else cubin


def _show_fusions(program: Program) -> None:
    table = console.table(">fusion", "sizes", "engine", "knobs", "notes", "operations")
    for sizes, number, fusion in placed_fusions(program):
        table.add_row(
            str(number),
            "any" if sizes == "1" else sizes,
            f"{fusion.engine} ({fusion.index})",
            console.knobs_text(fusion.knobs),
            " ".join(fusion.notes),
            ", ".join(fusion.ops),
        )
    console.show(table)


def _show_variant(plan: Plan, number: int, variant: Variant) -> None:
    """A line a step, then what each of them gets."""
    guard = variant.guard
    if guard == "1":
        guard = "other sizes" if number else "any size"
    console.heading(f"\nvariant {number} for {guard}: workspace {variant.workspace_bytes} B")
    table = console.table(">step", "what", "grid", "block", "cluster", "shared memory")
    gets: list[str] = []
    for place, step in enumerate(variant.steps):
        if step.launch is not None:
            table.add_row(str(place), *_launch_row(step.launch))
            gets.append(", ".join(_arg_text(plan, arg) for arg in step.launch.args))
        elif step.memset is not None:
            table.add_row(str(place), "memset", "", "", "", "")
            gets.append(_memset_text(plan, step.memset))
    console.show(table)
    for place, text in enumerate(gets):
        console.field(f"step {place}", text)


def _launch_row(launch: Launch) -> tuple[str, ...]:
    flags = [
        name
        for name, is_set in (
            ("cooperative", launch.cooperative),
            ("programmatic", launch.programmatic),
        )
        if is_set
    ]
    return (
        " ".join([launch.kernel, *flags]),
        console.shape_text(launch.grid),
        console.shape_text(launch.block),
        console.shape_text(launch.cluster),
        f"{launch.dynamic_smem_bytes} B",
    )


def _tensor_text(plan: Plan, uid: int) -> str:
    if uid < 0:
        return "workspace"
    tensor = plan.tensor(uid)
    return tensor.name if tensor is not None and tensor.name else f"uid {uid}"


def _arg_text(plan: Plan, arg: Arg) -> str:
    """&x, &workspace + M*256, i32 M, map of w, ..."""
    shift = "" if arg.offset == "0" else f" + {arg.offset}"
    if arg.kind == "scalar":
        return f"{arg.type} {arg.value}"
    if arg.kind == "by_value":
        return f"{arg.type} {_tensor_text(plan, arg.uid)}"
    if arg.kind == "workspace":
        return f"&workspace{shift}"
    if arg.kind == "tensor_map" and arg.tensor_map is not None:
        return f"{arg.tensor_map.mode} map of {_tensor_text(plan, arg.tensor_map.uid)}"
    if arg.kind == "peer":
        return f"&{_tensor_text(plan, arg.uid)} of rank {arg.rank}{shift}"
    return f"&{_tensor_text(plan, arg.uid)}{shift}" if arg.kind == "pointer" else arg.kind


def _memset_text(plan: Plan, memset: Memset) -> str:
    base = _tensor_text(plan, memset.uid)
    return f"{memset.bytes} B of {memset.value} at &{base} + {memset.offset}"


def _show_kernels(program: Program) -> None:
    console.heading("\nkernels")
    has_symbols = any(kernel.symbol for kernel in program.kernels)
    table = console.table(
        "kernel", *["in its module"] * has_symbols, ">threads", ">registers", ">spill stores",
        ">spill loads", ">local", ">static shared",
    )  # fmt: skip
    for kernel in program.kernels:
        table.add_row(
            kernel.name,
            *[kernel.entry] * has_symbols,
            str(kernel.threads),
            str(kernel.registers),
            f"{kernel.spill_store_bytes} B",
            f"{kernel.spill_load_bytes} B",
            f"{kernel.local_bytes} B",
            f"{kernel.static_smem_bytes} B",
        )
    console.show(table)
