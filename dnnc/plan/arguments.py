# pyright: basic
"""The bytes of kernel arguments, from a plan's records and what the caller bound."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence

from .. import dtypes
from ..errors import DnncError, Status
from .plan import Arg, Plan, TensorMap

TENSOR_MAP_BYTES = 128
_INTEGERS = {"i32": ("<i", 32), "i64": ("<q", 64)}


class Environment:
    """The values that arguments refer to.

    evaluate: text of an expression -> number.  addresses, numbers: by uid.  workspace: its
    address, 0 where there is none.  peers: rank -> addresses by uid.
    encode: makes the bytes of a tensor map (the driver's encoder, or a stand-in in tests).
    """

    def __init__(
        self,
        evaluate: Callable[[str], int],
        addresses: Mapping[int, int],
        numbers: Mapping[int, float | int],
        workspace: int,
        encode: Callable[[TensorMap, int, Sequence[int], Sequence[int]], bytes],
        peers: Mapping[int, Mapping[int, int]] | None = None,
    ):
        self.evaluate = evaluate
        self.addresses = addresses
        self.numbers = numbers
        self.workspace = workspace
        self.encode = encode
        self.peers = peers or {}


def pack(arg: Arg, env: Environment) -> bytes:
    """The bytes of one argument."""
    if arg.kind == "pointer":
        return struct.pack("<Q", address_of(env.addresses, arg.uid) + env.evaluate(arg.offset))
    if arg.kind == "workspace":
        return struct.pack("<Q", env.workspace + env.evaluate(arg.offset))
    if arg.kind == "peer":
        if arg.rank not in env.peers:
            raise DnncError(
                Status.BAD_PARAM, f"no buffers of rank {arg.rank}", "peers of all ranks"
            )
        address = address_of(env.peers[arg.rank], arg.uid)
        return struct.pack("<Q", address + env.evaluate(arg.offset))
    if arg.kind == "scalar":
        return pack_integer(env.evaluate(arg.value), arg.type)
    if arg.kind == "by_value":
        return pack_number(env.numbers[arg.uid], arg.type)
    if arg.kind == "bytes":
        return bytes.fromhex(arg.data)
    if arg.kind == "tensor_map" and arg.tensor_map is not None:
        return _pack_tensor_map(arg.tensor_map, env)
    raise DnncError(
        Status.SERIALIZATION_VERSION_MISMATCH, f"argument kind {arg.kind!r}", "a newer dnnc"
    )


def argument_bytes(arg: Arg) -> int:
    """How many bytes an argument has."""
    if arg.kind == "scalar":
        return _INTEGERS[arg.type][1] // 8
    if arg.kind == "by_value":
        return len(pack_number(0, arg.type))
    if arg.kind == "bytes":
        return len(bytes.fromhex(arg.data))
    return TENSOR_MAP_BYTES if arg.kind == "tensor_map" else 8


def address_of(addresses: Mapping[int, int], uid: int) -> int:
    """The address of a buffer, which has to be there."""
    if uid not in addresses:
        raise DnncError(Status.BAD_PARAM, f"no buffer for uid {uid}", "a buffer for every tensor")
    return addresses[uid]


def pack_integer(value: int, type_: str) -> bytes:
    """The bytes of a 32- or 64-bit argument."""
    return struct.pack(_INTEGERS[type_][0], fitting(value, type_))


def fitting(value: int, type_: str) -> int:
    """The value itself; NOT_SUPPORTED_SHAPE where a signed integer of the type does not hold it."""
    if not fits(value, type_):
        raise DnncError(
            Status.NOT_SUPPORTED_SHAPE, f"argument {value} does not fit {type_}", "smaller sizes"
        )
    return value


def fits(value: int, type_: str) -> bool:
    """Whether a signed integer of 32 or 64 bits holds a value."""
    most = 1 << (_INTEGERS[type_][1] - 1)
    return -most <= value < most


def verify_ranges(plan: Plan) -> None:
    """INTERNAL_ERROR for a scalar of 32 bits that some sizes in their ranges make too large.

    Kernels count with such numbers: one that wraps around ends a loop before it begins.
    """
    for program in plan.programs:
        for launch in (step.launch for v in program.variants for step in v.steps):
            for arg in launch.args if launch else ():
                if arg.kind == "scalar" and arg.type == "i32":
                    _verify_range(plan, arg, f"kernel {launch.kernel}" if launch else "")


def _verify_range(plan: Plan, arg: Arg, where: str) -> None:
    for end in plan.expression(arg.value).bounds():
        if not fits(end, arg.type):
            what = f"argument {arg.value}, which may be {end}, as {arg.type}"
            raise DnncError(Status.INTERNAL_ERROR, what, "an argument of 64 bits", where)


def pack_number(value: float | int, type_: str) -> bytes:
    """A number as one element of a data type, rounded to it (a boolean as a byte)."""
    dtype = dtypes.of(type_)
    if isinstance(value, int):  # of any size
        low, high = dtype.integer_range if dtype.is_integer else (-math.inf, math.inf)
        value = max(low, min(high, value if dtype.is_integer else float(value)))
    import numpy as np  # not for who only counts bytes

    from ..rounding import round_to

    return round_to(np.asarray(value), dtype).tobytes()


def _pack_tensor_map(recipe: TensorMap, env: Environment) -> bytes:
    base = env.workspace if recipe.uid < 0 else address_of(env.addresses, recipe.uid)
    dims = [env.evaluate(extent) for extent in recipe.dims]
    strides = [env.evaluate(stride) for stride in recipe.strides]
    return env.encode(recipe, base + env.evaluate(recipe.offset), dims, strides)
