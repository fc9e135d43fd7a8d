# pyright: basic
"""Output: where an engine leaves the kernels of one fusion and the steps that run them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from ..dialect.tensor import Tensor
from ..expr import Expr, Size
from ..plan.plan import Arg, Launch, Memset, Step
from ..target import Target
from . import nvptx
from .kernel import Kernel


@dataclass
class Output:
    """The output that an engine's `emit` fills.

    name: a prefix for kernel names, unique in the module.  steps: in order.
    buffers: workspace buffers by name -> bytes, an expression.
    tensors: uids of tensors that lie in such buffers -> their names.
    """

    gpu_module: Any
    target: Target
    name: str
    steps: list[Step] = field(default_factory=list)
    buffers: dict[str, Expr] = field(default_factory=dict)
    tensors: dict[int, str] = field(default_factory=dict)

    def needs_ptx(self, version: int) -> None:
        """Makes the PTX of an ISA version, ten times that, or of the target's if it is later."""
        nvptx.set_target(self.gpu_module, self.target, version)

    def kernel(self, suffix: str, threads: int) -> Kernel:
        """A kernel to build; `launch` it when its body is done."""
        name = f"{self.name}_{suffix}" if suffix else self.name
        return Kernel(self.gpu_module, name, self.target, threads)

    def launch(
        self,
        kernel: Kernel,
        grid: tuple[Size, Size, Size],
        *,
        cooperative: bool = False,
        programmatic: bool = False,
    ) -> None:
        """Adds the launch of a finished kernel; grid: blocks along x, y, z.

        cooperative: blocks wait for each other, so that all have to be resident.
        programmatic: it waits for the launch before it itself, and may start when all blocks of
        that one have allowed it or ended.
        """
        x, y, z = (str(Expr.of(extent)) for extent in grid)
        self.steps.append(
            Step(
                launch=Launch(
                    kernel=kernel.name,
                    grid=(x, y, z),
                    block=(kernel.threads, 1, 1),
                    args=tuple(map(self._placed, kernel.args)),
                    cluster=(kernel.cluster, 1, 1),
                    dynamic_smem_bytes=str(kernel.dynamic_smem_bytes),
                    cooperative=cooperative,
                    programmatic=programmatic,
                )
            )
        )

    def _placed(self, argument: Arg) -> Arg:
        """An argument that refers to one of `tensors`, as one to its buffer."""
        recipe = argument.tensor_map
        buffer = self.tensors.get(recipe.uid if recipe else argument.uid, "")
        if not buffer:
            return argument
        if recipe is None:
            return Arg.workspace(buffer)
        return replace(argument, tensor_map=replace(recipe, uid=-1), buffer=buffer)

    def workspace(self, name: str, bytes_: Size) -> str:
        """Asks for a workspace buffer; gives the name that kernels and memsets use."""
        full = f"{self.name}.{name}"
        self.buffers[full] = Expr.of(bytes_)
        return full

    def tensor(self, tensor: Tensor) -> None:
        """Asks for a workspace buffer that holds a tensor which is no part of the graph."""
        assert tensor.uid is not None, f"{tensor.label} has no uid"
        bytes_ = tensor.span() * (tensor.type.bits // 8)
        self.tensors[tensor.uid] = self.workspace(f"tensor{len(self.tensors)}", bytes_)

    def memset(self, buffer: str, bytes_: Size, value: int = 0) -> None:
        """Sets a workspace buffer's bytes before the steps that follow."""
        text = str(Expr.of(bytes_))
        self.steps.append(Step(memset=Memset(-1, "0", text, value, buffer)))

    def preset(self, tensor: Tensor, bits: int) -> None:
        """Sets a tensor of one element before the steps that follow; bits: of the element."""
        data = bits.to_bytes(tensor.type.bits // 8, "little")
        at = 0
        for value, run in groupby(data):
            count = len(list(run))
            self.steps.append(Step(memset=Memset(tensor.uid or 0, str(at), str(count), value)))
            at += count
