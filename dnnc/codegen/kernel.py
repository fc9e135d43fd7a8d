# pyright: basic
"""Kernel: an `llvm.func` under construction and the launch record that belongs to it.

Arguments are made when they are first asked for, so that an engine writes its code top to
bottom; `finish` gives the function its type and leaves a `dnn.launch` beside it.  Sizes and
strides are arguments: two graphs that differ in sizes only get the same kernel.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..dialect.tensor import Tensor
from ..expr import Expr, Size, magic, magic_shift
from ..mlir import ir, llvm
from ..plan.plan import Arg, TensorMap
from ..target import Target
from . import ops
from .scalars.scalar import element_type
from .stretch import kernel_locations
from .value import wrapped

# The largest count whose numbers have 32 bits.  The rest up to 2**31 is for blocks and unrolled
# loops, which go past the end.
MOST_COUNT = (1 << 31) - (1 << 20)


def bits_of(size: Size) -> int:
    """32 where every value of a size fits an i32, else 64."""
    return 32 if Expr.of(size).bounds()[1] < 1 << 31 else 64


def bits_of_count(count: Size) -> int:
    """32 where an i32 holds every number up to a count, and past it by as much as a block works
    on, else 64."""
    return 32 if Expr.of(count).bounds()[1] <= MOST_COUNT else 64


@dataclass
class Kernel:
    """The kernel that is being built.

    name: of the function.  threads: of a block.  min_blocks: of an SM, that registers
    are to be kept small enough for; 0: as they come.  cluster: blocks of a cluster.
    The insertion point is inside its body from `body()` on.
    """

    gpu_module: Any
    name: str
    target: Target
    threads: int
    args: list[Arg] = field(default_factory=list)
    dynamic_smem_bytes: int = 0
    min_blocks: int = 0
    cluster: int = 1
    _values: dict[Any, Any] = field(default_factory=dict)
    _arg_attrs: list[Any] = field(default_factory=list)
    _function: Any = None
    _entry: Any = None

    @contextlib.contextmanager
    def body(self) -> Iterator[Kernel]:
        """Opens the function; at the end it is finished."""
        block = self.gpu_module.regions[0].blocks[0]
        with kernel_locations(self.name):
            yield from self._body(block)

    def _body(self, block: Any) -> Iterator[Kernel]:
        with ir.InsertionPoint(block):
            void = ir.Type.parse("!llvm.func<void ()>")
            self._function = llvm.LLVMFuncOp(self.name, ir.TypeAttr.get(void))
            self._entry = self._function.operation.regions[0].blocks.append()
        with ir.InsertionPoint(self._entry):
            yield self
            llvm.ReturnOp()
        self._finish()

    def _finish(self) -> None:
        attributes = self._function.operation.attributes
        types = ", ".join(str(a.type) for a in self._entry.arguments)
        function_type = ir.Type.parse(f"!llvm.func<void ({types})>")
        attributes["function_type"] = ir.TypeAttr.get(function_type)
        attributes["arg_attrs"] = ir.ArrayAttr.get(self._arg_attrs)
        attributes["nvvm.kernel"] = ir.UnitAttr.get()
        attributes["nvvm.reqntid"] = ir.Attribute.parse(f"array<i32: {self.threads}, 1, 1>")
        if self.min_blocks:
            attributes["nvvm.minctasm"] = ir.Attribute.parse(f"{self.min_blocks} : i32")
        if self.cluster > 1:
            dims = ir.Attribute.parse(f"array<i32: {self.cluster}, 1, 1>")
            attributes["nvvm.cluster_dim"] = dims

    # ---- arguments

    def _argument(self, key: Any, type_: Any, record: Arg, attributes: str = "{}") -> Any:
        if key not in self._values:
            argument = self._entry.add_argument(type_, ir.Location.unknown())
            self._values[key] = wrapped(argument)
            self._arg_attrs.append(ir.Attribute.parse(attributes))
            self.args.append(record)
        return self._values[key]

    def pointer(self, tensor: Tensor, *, is_exclusive: bool = False) -> Any:
        """The address of a tensor's first element, !llvm.ptr<1>.

        is_exclusive: nothing else that the kernel is given overlaps it.
        An output and what it held before have one argument, so that stores through it are known
        to change what is read.
        """
        flags = f"llvm.align = {_stated_alignment(tensor)} : i64" + (
            ", llvm.noalias" if is_exclusive else ""
        )
        memory = self._argument(
            ("pointer", tensor.memory_uid),
            ir.Type.parse("!llvm.ptr<1>"),
            Arg.pointer(tensor.memory_uid),
            f"{{{flags}}}",
        )
        if not tensor.offset:
            return memory
        byte = ir.IntegerType.get_signless(8)
        return ops.gep(memory, tensor.offset * tensor.type.bits // 8, byte)

    def workspace(self, name: str, *, is_exclusive: bool = True) -> Any:
        """The address of a workspace buffer that the engine asked for by this name.

        is_exclusive: no other block writes what this one reads.
        """
        flags = "llvm.align = 256 : i64" + (", llvm.noalias" if is_exclusive else "")
        return self._argument(
            ("workspace", name),
            ir.Type.parse("!llvm.ptr<1>"),
            Arg.workspace(name),
            f"{{{flags}}}",
        )

    def tensor_map(self, recipe: TensorMap) -> Any:
        """The tensor map of a recipe, !llvm.ptr to 128 bytes passed by value."""
        return self._argument(
            ("tensor_map", recipe),
            ir.Type.parse("!llvm.ptr"),
            Arg("tensor_map", tensor_map=recipe),
            "{llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64, nvvm.grid_constant}",
        )

    def scalar(self, tensor: Tensor) -> Any:
        """The value of a by-value tensor, in its data type (a boolean and fp8 as a byte)."""
        is_byte = tensor.type.bits <= 8
        type_ = ir.IntegerType.get_signless(8) if is_byte else element_type(tensor.type)
        return self._argument(
            ("scalar", tensor.uid), type_, Arg.by_value(tensor.uid or 0, tensor.type.name)
        )

    def size(self, size: Size, bits: int = 32) -> Any:
        """A size expression as an i32 (or i64) argument; 0 and 1 are known numbers."""
        expression = Expr.of(size)
        if expression.constant in (0, 1):
            return expression.constant
        type_ = ops.i64_type() if bits == 64 else ops.i32_type()
        return self._argument(
            ("size", str(expression), bits), type_, Arg.scalar(str(expression), f"i{bits}")
        )

    def divide(self, number: Any, divisor: Size, bits: int = 32) -> Any:
        """number // divisor by a multiplication; divisor: an expression.

        number: an i32 below 2**31, of which magic and shift (`expr.magic`) are arguments that the
        host computes, or an i64; see `divide_long`.  bits: of its quotient then.
        """
        expression = Expr.of(divisor)
        if ops.is_wide(number):
            return self.divide_long(number, expression, bits)
        if expression.constant == 1:
            return number
        if isinstance(number, int):
            return number // self.size(expression)
        from ..mlir import arith

        wide = arith.ExtUIOp(ops.i64_type(), number).result
        factor = self.size(magic(expression), 64)
        shift = self.size(magic_shift(expression), 64)
        product = ops.mul(wide, factor)
        return ops.to_i32(ops.shr(product, shift))

    def divide_long(self, number: Any, divisor: Size, bits: int = 32) -> Any:
        """number // divisor; number: i64, not negative and below 2**61.

        bits: of the result.  In 32 bits a quotient of 2**31 and more leaves its low bits.
        The host computes 2**62 / divisor; what that gives is one too much at most.  A division of
        64 bits is a call, beside which kernels of attention spilled 70 registers.
        """
        expression = Expr.of(divisor)
        if (constant := expression.constant) and ops.terms(number)[1] % constant == 0:
            return ops.of_bits(ops.div(number, constant), bits)
        from ..mlir import arith

        factor = self.size(Expr.of(1 << 62) // expression + 1, 64)
        found = ops.of_bits(arith.MulUIExtendedOp(ops.mul(number, 4), factor).high, bits)
        if bits_of(expression) == 32:  # then what is left has 32 bits, too
            left = ops.to_i32(number) - ops.to_i32(found) * self.size(expression)
            return found + arith.ShRSIOp(left, ops.const(31)).result
        left = number - ops.to_i64(found) * self.size(expression, 64)
        less = arith.ShRSIOp(left, ops.const(63, ops.i64_type())).result
        return found + ops.of_bits(less, bits)

    def remainder(self, number: Any, divisor: Size, quotient: Any = None) -> Any:
        """number % divisor; quotient: number // divisor where it is at hand."""
        if Expr.of(divisor).constant == 1:
            return 0
        if not ops.is_wide(number):
            quotient = self.divide(number, divisor) if quotient is None else quotient
            return number - quotient * self.size(divisor)
        bits = bits_of(divisor)
        quotient = self.divide(number, divisor, bits) if quotient is None else quotient
        # The low words of all are enough for a rest that fits one.
        number, quotient = ops.of_bits(number, bits), ops.of_bits(quotient, bits)
        return number - quotient * self.size(divisor, bits)

    # ---- shared memory

    def shared(self, name: str, bytes_: int, alignment: int = 16) -> Any:
        """A static shared-memory buffer, !llvm.ptr<3>.

        It ends with a whole `alignment`: see `_stated_alignment`.
        """
        whole = -(-bytes_ // alignment) * alignment
        return self._shared_global(f"{self.name}_{name}", whole, alignment, "internal")

    def dynamic_shared(self, bytes_: int, alignment: int = 128) -> Any:
        """The dynamic shared memory of the launch, !llvm.ptr<3>."""
        self.dynamic_smem_bytes = bytes_
        return self._shared_global(f"{self.name}_smem", 0, alignment, "external")

    def _shared_global(self, name: str, bytes_: int, alignment: int, linkage: str) -> Any:
        undefined = (
            "{ %0 = llvm.mlir.undef : !llvm.array<N x i8> llvm.return %0 : !llvm.array<N x i8> }"
        )
        body = "" if linkage == "external" else undefined.replace("N", str(bytes_))
        text = (
            f"llvm.mlir.global {linkage} @{name}() {{addr_space = 3 : i32, "
            f"alignment = {alignment} : i64}} : !llvm.array<{bytes_} x i8> {body}"
        )
        with ir.InsertionPoint.at_block_begin(self.gpu_module.regions[0].blocks[0]):
            self.gpu_module.regions[0].blocks[0].append(ir.Operation.parse(text))
        symbol = ir.FlatSymbolRefAttr.get(name)
        return llvm.AddressOfOp(ir.Type.parse("!llvm.ptr<3>"), symbol).result


def _stated_alignment(tensor: Tensor) -> int:
    """The alignment that LLVM is told of a tensor's address: no more than divides its bytes, too.

    It makes one access of loads that follow an aligned address: of seven elements at its own one
    of eight, past the end of a tensor that has no more.  Engines' own accesses say theirs.
    """
    bits = tensor.span().known_divisor() * tensor.type.bits
    return math.gcd(tensor.alignment, bits // 8) if bits % 8 == 0 else 1
