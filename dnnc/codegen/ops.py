# pyright: basic
"""Integer and control-flow operations at the insertion point, with Python ints folded.

A number is a Python int while it is known, else an i32 (or i64) value; mixing is allowed, and
what can be folded is, so that generated code stays small.  An i32 beside an i64 is extended.
Arithmetic is on values below 2**31 (of i64: 2**63) that are not negative unless a function says
otherwise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..mlir import arith, ir, llvm, nvvm, scf
from ..target import WARP_THREADS
from .value import built, element_of, wrapped

Number = Any  # int | ir.Value


def i1_type() -> Any:
    return ir.IntegerType.get_signless(1)


def i32_type() -> Any:
    return ir.IntegerType.get_signless(32)


def i64_type() -> Any:
    return ir.IntegerType.get_signless(64)


def f32_type() -> Any:
    return ir.F32Type.get()


def const(value: int, type_: Any = None) -> Any:
    """An integer constant; default: an i32, an i64 where that does not hold it.

    Of a type that is named, it may be the type's bits as a number from 0 up.
    """
    type_ = type_ or (i32_type() if _fits_i32(value) else i64_type())
    past = 1 << type_.width
    assert -past // 2 <= value < past, f"{value} is no {type_}"
    own = value if value < past // 2 else value - past
    return built("arith.constant", type_, [], {"value": ir.IntegerAttr.get(type_, own)})


def _fits_i32(value: int) -> bool:
    return -(1 << 31) <= value < 1 << 31


def signed(bits: int) -> int:
    """The number that 32 bits, themselves a number from 0 up, are in an i32."""
    return bits - (1 << 32) if bits >> 31 else bits


def value_of(number: Number, type_: Any = None) -> Any:
    """The SSA value of a number."""
    return const(number, type_) if isinstance(number, int) else number


def _of_one_type(*numbers: Number) -> list[Any]:
    """The SSA values of numbers, all i64 where one is, or needs to be."""
    type_, is_long = None, False
    for number in numbers:
        if isinstance(number, int):
            is_long = is_long or not _fits_i32(number)
        elif type_ is None or number.type == i64_type():
            type_ = number.type
    if type_ == i64_type() or (is_long and type_ == i32_type()):
        type_ = i64_type()
        numbers = tuple(map(to_i64, numbers))
    return [value_of(number, type_) for number in numbers]


def _arith(name: str, a: Number, b: Number) -> Any:
    """The result of an operation of `arith` on two numbers, which has their type."""
    operands = _of_one_type(a, b)
    return built(f"arith.{name}", operands[0].type, operands)


def add(a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if a == 0 and isinstance(a, int):
        return b
    if b == 0 and isinstance(b, int):
        return a
    return _arith("addi", a, b)


def sub(a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int):
        return a - b
    if isinstance(b, int) and b == 0:
        return a
    if not isinstance(a, int) and not isinstance(b, int):
        (*value, rest), (*other, less) = terms(a), terms(b)
        if value == other:
            return rest - less
    return _arith("subi", a, b)


def mul(a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    for one, other in ((a, b), (b, a)):
        if isinstance(one, int) and one in (0, 1):
            return 0 if one == 0 else other
    return _arith("muli", a, b)


def _folded(
    a: Number, b: Number, fold: Callable[[int, int], int], name: str, identity: int | None = None
) -> Number:
    if isinstance(a, int) and isinstance(b, int):
        return fold(a, b)
    if isinstance(b, int) and b == identity:
        return a
    return _arith(name, a, b)


def div(a: Number, b: Number) -> Number:
    """The floor of a / b; neither is negative, and no term of a overflows."""
    if isinstance(b, int) and b > 1 and not isinstance(a, int):
        value, factor, rest = terms(a)
        if factor % b == 0:
            return add(mul(value, factor // b), rest // b)
    return _folded(a, b, lambda x, y: x // y, "divui", 1)


def rem(a: Number, b: Number) -> Number:
    """The remainder of `div`."""
    if isinstance(b, int) and b == 1:
        return 0
    if isinstance(b, int) and b > 1 and not isinstance(a, int):
        _, factor, rest = terms(a)
        if factor % b == 0:
            return rest % b
    return _folded(a, b, lambda x, y: x % y, "remui")


def terms(number: Any) -> tuple[Any, int, int]:
    """(value, factor, rest): number = value * factor + rest, by the operations that made it."""
    factor, rest = 1, 0
    while isinstance(owner := number.owner, ir.OpView | ir.Operation):
        name = owner.operation.name
        if name not in ("arith.addi", "arith.subi", "arith.muli"):
            break
        constant = constant_of(owner.operands[1])
        if constant is None:
            break
        if name == "arith.muli":
            factor *= constant
        else:
            rest += factor * (constant if name == "arith.addi" else -constant)
        number = owner.operands[0]
    return wrapped(number), factor, rest


def constant_of(value: Any) -> int | None:
    """The integer that an `arith.constant` makes; None of anything else."""
    owner = value.owner
    if not isinstance(owner, ir.OpView | ir.Operation) or owner.operation.name != "arith.constant":
        return None
    if not isinstance(value.type, ir.IntegerType | ir.IndexType):
        return None
    return ir.IntegerAttr(owner.operation.attributes["value"]).value


def digits(number: Number, sizes: Sequence[int]) -> list[Number]:
    """The places along axes of some sizes, the last one fastest, of the element with a number."""
    found: list[Number] = []
    for size in sizes[:0:-1]:
        found.append(number % size)
        number = number // size
    return [number, *reversed(found)]


def minimum(a: Number, b: Number) -> Number:
    return _folded(a, b, min, "minsi")


def maximum(a: Number, b: Number) -> Number:
    return _folded(a, b, max, "maxsi")


def ceildiv(a: Number, b: int) -> Number:
    return div(add(a, b - 1), b)


def and_(a: Number, b: Number) -> Number:
    return _folded(a, b, lambda x, y: x & y, "andi")


def or_(a: Number, b: Number) -> Number:
    return _folded(a, b, lambda x, y: x | y, "ori", 0)


def xor(a: Number, b: Number) -> Number:
    return _folded(a, b, lambda x, y: x ^ y, "xori", 0)


def shl(a: Number, b: Number) -> Number:
    return _folded(a, b, lambda x, y: x << y, "shli", 0)


def shr(a: Number, b: Number) -> Number:
    return _folded(a, b, lambda x, y: x >> y, "shrui", 0)


def less(a: Number, b: Number) -> Any:
    """a < b as an i1 value."""
    return compare("slt", a, b)


def compare(predicate: str, a: Number, b: Number) -> Any:
    """An i1 value; predicate: eq, ne, slt, sle, sgt, sge, ult, ..."""
    if isinstance(a, int) and isinstance(b, int):
        a = const(a)
    operands = _of_one_type(a, b)
    number = ir.IntegerAttr.get(i64_type(), getattr(arith.CmpIPredicate, predicate))
    type_ = vector_type(i1_type(), width_of(operands[0]))
    return built("arith.cmpi", type_, operands, {"predicate": number})


def condition_of(known: Any) -> Any:
    """The i1 value of a condition, which is a bool where two numbers of Python were compared."""
    return const(int(known), i1_type()) if isinstance(known, bool) else known


def both(a: Any, b: Any) -> Any:
    """a and b of conditions, None meaning true."""
    if a is None or b is None:
        return a if b is None else b
    return _arith("andi", condition_of(a), condition_of(b))


def select(condition: Any, a: Number, b: Number) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        a = const(a)
    first, second = _of_one_type(a, b)
    return built("arith.select", first.type, [condition_of(condition), first, second])


def is_wide(a: Number) -> bool:
    """Whether a number is an i64 value."""
    return not isinstance(a, int) and a.type == i64_type()


def to_i64(a: Number) -> Number:
    """Sign-extended; an int stays one."""
    if isinstance(a, int) or a.type == i64_type():
        return wrapped(a)
    return built("arith.extsi", i64_type(), [a])


def of_bits(a: Number, bits: int) -> Number:
    """The number in 32 or 64 bits, where it fits them."""
    return to_i64(a) if bits == 64 else to_i32(a)


def to_i32(a: Number) -> Number:
    if isinstance(a, int) or a.type == i32_type():
        return wrapped(a)
    return built("arith.trunci", i32_type(), [a])


# ---- vectors: a fragment of one element is a scalar


def width_of(value: Any) -> int:
    """Elements of a fragment."""
    return value.type.shape[0] if isinstance(value.type, ir.VectorType) else 1


def vector_type(element: Any, width: int) -> Any:
    return ir.VectorType.get([width], element) if width > 1 else element


def splat(value: Any, width: int) -> Any:
    """A scalar repeated; a fragment of that width as it is."""
    if width_of(value) == width:
        return value
    return built("vector.broadcast", vector_type(value.type, width), [value])


def elements(value: Any) -> list[Any]:
    """The scalars of a fragment."""
    width = width_of(value)
    if width == 1:
        return [value]
    return [extract(value, i) for i in range(width)]


def extract(value: Any, position: int) -> Any:
    if width_of(value) == 1:
        return value
    place = {"static_position": ir.DenseI64ArrayAttr.get([position])}
    return built("vector.extract", value.type.element_type, [value], place)


def from_elements(values: Sequence[Any]) -> Any:
    """The fragment of some scalars."""
    if len(values) == 1:
        return values[0]
    whole = vector_type(values[0].type, len(values))
    return built("vector.from_elements", whole, list(values))


def members(struct: Any, type_: Any, count: int) -> list[Any]:
    """The members of an LLVM struct, which all have one type."""
    places = ({"position": ir.DenseI64ArrayAttr.get([i])} for i in range(count))
    return [built("llvm.extractvalue", type_, [struct], place) for place in places]


def concat(parts: Sequence[Any]) -> Any:
    """One fragment after the other."""
    if len(parts) == 1:
        return parts[0]
    return from_elements([element for part in parts for element in elements(part)])


def joined(parts: Sequence[Any]) -> Any:
    """The result of `concat`, in words where it is whole words: bytes are not taken apart."""
    bits = width_of(parts[0]) * element_of(parts[0].type).width
    if len(parts) == 1 or bits % 32:
        return concat(parts)
    words = vector_type(i32_type(), bits // 32)
    return concat([llvm.BitcastOp(words, part).result for part in parts])


def part(value: Any, start: int, width: int) -> Any:
    """The `width` elements of a fragment from `start` on."""
    if width == width_of(value):
        return value
    return from_elements([extract(value, start + i) for i in range(width)])


def iota(base: Number, step: Number, width: int) -> Any:
    """base + step * i, as i32."""
    if width == 1:
        return value_of(base)
    return from_elements([value_of(add(base, mul(step, i))) for i in range(width)])


def f32(value: float) -> Any:
    """A constant of type f32."""
    return built("arith.constant", f32_type(), [], {"value": ir.FloatAttr.get(f32_type(), value)})


def zeros(type_: Any) -> Any:
    """Zeros of a scalar or vector type."""
    element = element_of(type_)
    attribute = (
        ir.FloatAttr.get(element, 0.0)
        if isinstance(element, ir.FloatType)
        else ir.IntegerAttr.get(element, 0)
    )
    scalar = built("arith.constant", element, [], {"value": attribute})
    return splat(scalar, type_.shape[0] if isinstance(type_, ir.VectorType) else 1)


# ---- pointers


def gep(pointer: Any, offset: Number, element: Any) -> Any:
    """pointer + offset elements."""
    if offset == 0 and isinstance(offset, int):
        return pointer
    if isinstance(offset, int) and _fits_i32(offset):
        return llvm.GEPOp(pointer.type, pointer, [], [offset], element, None).result
    index = [value_of(offset)]
    return llvm.GEPOp(pointer.type, pointer, index, [-(1 << 31)], element, None).result


def load(pointer: Any, type_: Any, alignment: int, **flags: Any) -> Any:
    return wrapped(llvm.LoadOp(type_, pointer, alignment=alignment, **flags))


def store(pointer: Any, value: Any, alignment: int) -> None:
    if value.type == vector_type(ir.IntegerType.get_signless(8), 2):
        # The back end would take two bytes apart, and put them together again.
        value = llvm.BitcastOp(ir.IntegerType.get_signless(16), value).result
    llvm.StoreOp(value, pointer, alignment=alignment)


def store_streamed(pointer: Any, value: Any, size: int) -> None:
    """Stores `size` aligned bytes to global memory, of which L2 keeps others before
    them; fewer than four as any store does."""
    if size % 4:
        store(pointer, value, size)
        return
    words = size // 4
    parts = elements(llvm.BitcastOp(vector_type(i32_type(), words), value).result)
    kind, listed = _words(words, 1)
    llvm.inline_asm(
        None,
        [llvm.PtrToIntOp(i64_type(), pointer).result, *parts],
        f"st.global.cs.{kind} [$0], {listed};",
        ",".join(["l", *["r"] * words]),
        has_side_effects=True,
    )


def load_hinted(pointer: Any, type_: Any, size: int, policy: Any) -> Any:
    """Loads `size` aligned bytes of global memory, past L1; fewer than four as any load does.

    policy: what L2 does with them (i64, of `createpolicy`).
    """
    if size % 4:
        return load(pointer, type_, size)
    words = size // 4
    kind, listed = _words(words, 0)
    whole = vector_type(i32_type(), words)
    result = ir.Type.parse(f"!llvm.struct<({', '.join(['i32'] * words)})>") if words > 1 else whole
    loaded = llvm.inline_asm(
        result,
        [llvm.PtrToIntOp(i64_type(), pointer).result, policy],
        f"ld.global.L1::no_allocate.L2::cache_hint.{kind} {listed}, [${words}], ${words + 1};",
        ",".join([*["=r"] * words, "l", "l"]),
        has_side_effects=True,
    )
    if words > 1:
        loaded = from_elements(members(loaded, i32_type(), words))
    return wrapped(llvm.BitcastOp(type_, loaded))


def _words(count: int, first: int) -> tuple[str, str]:
    """How PTX says so many words, and the operands of an assembly text from `first` on."""
    kind = {1: "b32", 2: "v2.b32", 4: "v4.b32"}[count]
    listed = ", ".join(f"${first + i}" for i in range(count))
    return kind, f"{{{listed}}}" if count > 1 else listed


# ---- control flow


def current_block() -> Any:
    """The block that operations are being added to."""
    return ir.InsertionPoint.current.block


def is_visible(block: Any) -> bool:
    """Whether values made in a block earlier can be used where operations are being added."""
    here = current_block()
    while here is not None:
        if here == block:
            return True
        parent = here.owner
        here = parent.operation.block if parent.operation.name not in _TOP_LEVEL else None
    return False


_TOP_LEVEL = ("llvm.func", "gpu.module", "builtin.module")


@contextlib.contextmanager
def if_(condition: Any) -> Iterator[None]:
    """A region that runs where the condition holds; None: always."""
    if condition is None:
        yield
        return
    made = scf.IfOp(condition_of(condition))
    with ir.InsertionPoint(made.then_block):
        yield
        scf.YieldOp([])


def if_else(condition: Any, then: Callable[[], None], other: Callable[[], None]) -> None:
    made = scf.IfOp(condition_of(condition), has_else=True)
    for block, emit in ((made.then_block, then), (made.else_block, other)):
        with ir.InsertionPoint(block):
            emit()
            scf.YieldOp([])


def either(
    condition: Any,
    types: Sequence[Any],
    then: Callable[[], Sequence[Any]],
    other: Callable[[], Sequence[Any]],
) -> list[Any]:
    """Values of these types, from one branch or the other."""
    made = scf.IfOp(condition_of(condition), list(types), has_else=True)
    for block, emit in ((made.then_block, then), (made.else_block, other)):
        with ir.InsertionPoint(block):
            scf.YieldOp(list(emit()))
    return list(map(wrapped, made.results))


def for_(
    low: Number,
    high: Number,
    step: Number,
    inits: Sequence[Any],
    body: Callable[..., Sequence[Any]],
) -> list[Any]:
    """A counted loop, in i64 where a bound is one: body(i, carried) gives the next carried
    values."""
    made = scf.ForOp(*_of_one_type(low, high, step), list(inits))
    with ir.InsertionPoint(made.body):
        carried = list(map(wrapped, made.inner_iter_args))
        scf.YieldOp(list(body(wrapped(made.induction_variable), carried)))
    return list(map(wrapped, made.results))


def while_(
    inits: Sequence[Any],
    condition: Callable[[Sequence[Any]], Any],
    body: Callable[[Sequence[Any]], Sequence[Any]],
) -> list[Any]:
    """Carried values, the next from body(carried), once condition(carried) no longer holds."""
    types = [value.type for value in inits]
    made = scf.WhileOp(types, list(inits))
    before, after = (region.blocks.append(*types) for region in (made.before, made.after))
    with ir.InsertionPoint(before):
        carried = list(map(wrapped, before.arguments))
        scf.ConditionOp(condition(carried), carried)
    with ir.InsertionPoint(after):
        scf.YieldOp(list(body(list(map(wrapped, after.arguments)))))
    return list(map(wrapped, made.results))


def opaque(value: Any) -> Any:
    """The value, an i32 or address, such that the compiler does not know where it comes from."""
    is_number = value.type == i32_type()
    given = value if is_number else llvm.PtrToIntOp(i64_type(), value).result
    text, kinds = ("mov.b32 $0, $1;", "=r,r") if is_number else ("mov.b64 $0, $1;", "=l,l")
    moved = llvm.inline_asm(given.type, [given], text, kinds, has_side_effects=True)
    return wrapped(moved) if is_number else llvm.IntToPtrOp(value.type, moved).result


def computed_here(value: Any) -> Any:
    """The fragment, of a power of two of bits, computed before what follows.

    Else what one branch alone needs is computed in that branch, from operands that have to live on
    until then.  Fragments of single bytes stay as they are: fp8 that is packed so ends nvJitLink
    13.0.88 by a segmentation fault.
    """
    if element_of(value.type).width == 8:
        return value
    bits = element_of(value.type).width * width_of(value)
    whole = ir.IntegerType.get_signless(min(bits, 32))
    words = llvm.BitcastOp(vector_type(whole, max(1, bits // 32)), value).result
    fixed = []
    for word in elements(words):
        wide = word if bits >= 32 else arith.ExtUIOp(i32_type(), word).result
        wide = opaque(wide)
        fixed.append(wide if bits >= 32 else arith.TruncIOp(whole, wide).result)
    return wrapped(llvm.BitcastOp(value.type, from_elements(fixed)))


def barrier() -> None:
    """Every thread of the block has come here; its shared-memory writes are seen by all."""
    nvvm.barrier()


def thread_id() -> Any:
    return wrapped(nvvm.read_ptx_sreg_tid_x())


def block_id(axis: str = "x") -> Any:
    return wrapped(getattr(nvvm, f"read_ptx_sreg_ctaid_{axis}")())


def block_count() -> Any:
    """Blocks of the grid along its first axis."""
    return wrapped(nvvm.read_ptx_sreg_nctaid_x())


def from_lane(word: Any, lane: Number) -> Any:
    """An i32 of one lane, in every lane of the warp."""
    kind = nvvm.ShflKind.idx
    return wrapped(nvvm.shfl_sync(const(-1), word, value_of(lane), const(WARP_THREADS - 1), kind))


def warp_id() -> Any:
    """The warp's number in its block.

    It comes through a shuffle, so that the assembler knows it to be the same in the whole warp.
    """
    return from_lane(thread_id() >> 5, 0)
