"""The steps of a variant as C, in the parts of the function that runs it.

All numbers are worked out and checked before anything is launched, so that an error leaves all as
it was.  A launch whose grid has a 0 is left out, with all that its arguments would need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import DnncError, Status
from ..plan.plan import Arg, Launch, Memset
from . import numbers, tensor_maps
from .expressions import Printer
from .interface import Interface
from .names import comment
from .rooms import Rooms


@dataclass
class StepText:
    """Lines that a step adds to each part of the function, a line an entry.

    declare: its variables.  prepare: what sizes and arguments decide.  encode: tensor maps.
    run: the calls of the driver; `result` takes what they return.
    """

    declare: list[str] = field(default_factory=list[str])
    prepare: list[str] = field(default_factory=list[str])
    encode: list[str] = field(default_factory=list[str])
    run: list[str] = field(default_factory=list[str])


class Steps:
    """Makes steps as C.  kernels: name -> place in the plan's `kernels`."""

    def __init__(self, interface: Interface, kernels: Mapping[str, int], rooms: Rooms):
        self.interface = interface
        self.kernels = kernels
        self.rooms = rooms
        self.printer = Printer(interface.members)

    def expression(self, text: str) -> str:
        return self.printer.expression(self.interface.plan.expression(text))

    # ---- memsets

    def memset(self, number: int, memset: Memset) -> StepText:
        count, at = f"bytes{number}", f"at{number}"
        call = f"cuMemsetD8Async({at}, {memset.value}, (size_t){count}, stream)"
        check = list(self.rooms.memset(memset.uid, memset.offset, memset.bytes))
        return StepText(
            declare=[f"/* step {number}: memset */", f"int64_t {count};", f"CUdeviceptr {at} = 0;"],
            prepare=[
                f"/* step {number} */",
                f"{count} = {self.expression(memset.bytes)};",
                f"s->is_bad |= {count} < 0;",
                *_block(f"if ({count} > 0) {{", check),
                f"if ({count} > 0)",
                f"    {at} = {self._shifted(self._base(memset.uid), memset.offset)};",
            ],
            run=[f"if (result == CUDA_SUCCESS && {count} > 0)", f"    result = {call};"],
        )

    # ---- launches

    def launch(self, number: int, launch: Launch) -> StepText:
        grid, shape = f"grid{number}", f"shape{number}"
        extents = ", ".join(map(self.expression, launch.grid))
        smem = self.expression(launch.dynamic_smem_bytes)
        made = StepText(
            declare=[
                f"/* step {number}: {comment(launch.kernel)} */",
                f"static const struct shape {shape} = {_shape(launch)};",
                f"struct grid {grid};",
            ],
            prepare=[
                f"/* step {number} */",
                f"error = grid_of(s, {extents}, {smem}, &{grid});",
                f"if (error != {self.interface.error('SUCCESS')})",
                "    return error;",
                *self._cluster_check(launch, grid),
            ],
        )
        places, prepare, encode = self._arguments(number, launch, made)
        made.prepare += _block(f"if ({grid}.x > 0) {{", prepare)
        if encode:
            made.encode += _block(f"if ({grid}.x > 0) {{", encode)
        made.run += [f"if (result == CUDA_SUCCESS && {grid}.x > 0) {{"]
        arguments = "NULL"
        if places:
            arguments = "arguments"
            made.run += [f"    void *arguments[{len(places)}];"]
            made.run += [f"    arguments[{i}] = {place};" for i, place in enumerate(places)]
        kernel = f"plan->kernels[{self.kernels[launch.kernel]}]"
        made.run += [
            f"    result = launch({kernel}, &{grid}, &{shape}, {arguments}, stream);",
            "}",
        ]
        return made

    def _cluster_check(self, launch: Launch, grid: str) -> list[str]:
        """A grid is made of whole clusters."""
        rests = [
            f"{grid}.{axis} % {extent} != 0"
            for axis, extent in zip("xyz", launch.cluster, strict=True)
            if extent > 1
        ]
        if not rests:
            return []
        return [f"if ({' || '.join(rests)})", f"    return {self.interface.error('GRID')};"]

    def _arguments(
        self, number: int, launch: Launch, made: StepText
    ) -> tuple[list[str], list[str], list[str]]:
        """(addresses of the arguments, lines that set them, lines that encode tensor maps)."""
        places: list[str] = []
        prepare: list[str] = []
        encode: list[str] = []
        maps = [arg for arg in launch.args if arg.tensor_map is not None]
        if maps:
            buffer = f"maps{number}"
            made.declare.append(
                f"unsigned char {buffer}[{tensor_maps.SIZE * (len(maps) + 1)}]; /* aligned below */"
            )
        count = 0
        for place, arg in enumerate(launch.args):
            name = f"arg{number}_{place}"
            if arg.tensor_map is not None:
                into = f"tensor_map(maps{number}, {count})"
                count += 1
                base = self._base(arg.tensor_map.uid)
                lines = tensor_maps.encoding(
                    arg.tensor_map, self.interface.plan, self.printer, base, into
                )
                encode += _block("if (result == CUDA_SUCCESS) {", list(lines))
                prepare += self.rooms.tensor_map(arg.tensor_map)
                places.append(into)
            elif arg.kind == "bytes":
                data = bytes.fromhex(arg.data)
                values = ", ".join(map(str, data))
                made.declare.append(
                    f"unsigned char {name}[{max(1, len(data))}] = {{{values or 0}}};"
                )
                places.append(name)
            else:
                type_, value = self._scalar(arg)
                made.declare.append(f"{type_} {name} = 0;")
                prepare.append(f"{name} = {value};")
                if arg.kind in ("pointer", "workspace", "peer"):
                    uid = -1 if arg.kind == "workspace" else arg.uid
                    prepare += self.rooms.pointer(uid, arg.offset)
                places.append(f"&{name}")
        return places, prepare, encode

    def _scalar(self, arg: Arg) -> tuple[str, str]:
        """(C type, C expression) of an argument of up to 8 bytes."""
        if arg.kind == "pointer":
            return "CUdeviceptr", self._shifted(self.interface.address(arg.uid), arg.offset)
        if arg.kind == "workspace":
            return "CUdeviceptr", self._shifted("workspace", arg.offset)
        if arg.kind == "peer":
            base = self.interface.address(arg.uid, arg.rank)
            return "CUdeviceptr", self._shifted(base, arg.offset)
        if arg.kind == "scalar":
            value = self.expression(arg.value)
            return ("int32_t", f"as_i32(s, {value})") if arg.type == "i32" else ("int64_t", value)
        if arg.kind == "by_value":
            tensor = self.interface.plan.tensor(arg.uid)
            assert tensor is not None
            return numbers.element(
                f"args->{self.interface.tensor(arg.uid)}", tensor.dtype, arg.type
            )
        raise DnncError(
            Status.SERIALIZATION_VERSION_MISMATCH, f"argument kind {arg.kind!r}", "a newer dnnc"
        )

    def _base(self, uid: int) -> str:
        return "workspace" if uid < 0 else self.interface.address(uid)

    def _shifted(self, base: str, offset: str) -> str:
        text = self.expression(offset)
        return base if text == "0" else f"{base} + (CUdeviceptr)({text})"


def _shape(launch: Launch) -> str:
    block, cluster = (", ".join(map(str, extents)) for extents in (launch.block, launch.cluster))
    return f"{{{{{block}}}, {{{cluster}}}, {int(launch.cooperative)}, {int(launch.programmatic)}}}"


def _block(head: str, lines: list[str]) -> list[str]:
    return [head, *(f"    {line}" for line in lines), "}"] if lines else []
