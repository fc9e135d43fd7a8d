"""Statistics of several devices made those of all: what batch norms over several devices share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ... import dtypes
from ...dtypes import DType
from ...errors import Status
from ...expr import Expr
from ..expansion import Steps
from ..op import MAX_VARIADIC, arithmetic_type, attribute, operand, operands, result
from ..tensor import MAX_RANK, Tensor, text
from .norm_base import Norm, channel_dims, fill_rows, float64

MODES = ("moments", "gradients")

_ONE = Expr.of(1)
_WHICH = "which of the peers' tensors is the device's own"


class PeerReduction(Norm):
    """(c, d) = (a, b) of several devices, made one of all.

    a, b, c, d [1, C, 1, ...]; peers, one tensor of each device, [devices, 4 * C, 1, ...].

        gradients: c = sum_r a_r, d = avg_r b_r
        moments: c = avg_r a_r, d = avg_r (b_r + (a_r - c)^2): the mean and the variance of all
                 devices' elements, from those of each device, of equally many elements

    a_r and b_r are those of device r, in the order of peers; sums are in that order, in FLOAT, of
    means in DOUBLE, so that all devices get the same bits.  Row r of each tensor of peers holds
    what device r left there: a_r in its first C elements, b_r in the next.  Element 2 * C of row 0
    counts the devices that have.

    Every device runs the same graph at the same time, with the same peers in the same order, and
    its own peer_rank.  The kernel writes its device's row into all peers' memory and waits for all
    others' in its own: peers' memory has to be accessible from the device (the caller enables that,
    cuCtxEnablePeerAccess), and zeroed before each execution, before any device starts.  A device
    that never runs the graph leaves the others waiting.  Load and bind the plan everywhere before
    it is executed anywhere: loading code may wait for what runs.  As a value (`reference`), the
    results follow from a, b and the rows of the device's own tensor as they stand there.
    Source: ours; batchnorm and batchnorm_backward are made of it where they have peer_stats, as
    the cuDNN developer guide describes under BnAddRelu, single node multi-GPU batch norm.

    Constraints:
    (C1) a has dims [1, C, 1, ...], rank 2 or more; b, c and d have a's dims.
    (C2) all tensors and the compute type are FLOAT.
    (C3) peers are 1 to 32 different tensors of dims [their count, 4 * C, 1, ...], packed.
    (C4) peer_rank is 0 to their count less 1.
    """

    op_name = "peer_reduction"
    kind_field = "mode"

    a: Tensor = operand("[1, C, 1, ...]")
    b: Tensor = operand("[1, C, 1, ...]")
    peers: tuple[Tensor, ...] = operands(
        "[devices, 4 * C, 1, ...], one of each device", is_peer=True
    )
    c: Tensor = result("[1, C, 1, ...]")
    d: Tensor = result("[1, C, 1, ...]")
    mode: str = attribute("what a and b are", str, "moments", choices=MODES)
    peer_rank: int = attribute("which of peers is its device's own", int)
    compute_type: DType = arithmetic_type()

    def infer(self) -> None:
        for tensor in self.results:
            fill_rows(tensor, self.a.shape, self.compute_type)

    def verify(self) -> None:
        self.require_attribute_choices()
        self.require_rank("C1", self.a, 2, MAX_RANK)  # peer_reduction_c1
        self.require_dims("C1", channel_dims(self.a), *self.operands[:2], *self.results)
        _require_float(self, "C2")  # peer_reduction_c2
        for tensor in (*self.operands, *self.results):
            self.require_type("C2", tensor, [dtypes.f32])
        _verify_tensors(self, "C3", self.peers, self.a)  # peer_reduction_c3
        _verify_rank(self, "C4", self.peer_rank, len(self.peers))  # peer_reduction_c4

    def draw(self, tensor: Tensor, rng: Any, sizes: Mapping[str, int]) -> Any:
        """Nothing that cancels, and variances that are not negative."""
        if tensor in (self.a, self.b):
            return rng.uniform(0.25, 2.0, [n.evaluate(sizes) for n in tensor.shape])
        return _drawn(self.peers, self.peer_rank, tensor, rng, sizes)

    def reference(self, *operands: Any, **context: Any) -> Any:
        a, b, *peers = float64(operands)
        return combined(self.mode, a, b, peers, self.peer_rank)


# ---- what the operations that are made of it share


class OfSeveralDevices(Protocol):
    """An operation that may have peers' tensors: batchnorm, batchnorm_backward."""

    x: Tensor
    peer_stats: tuple[Tensor, ...]
    peer_rank: int | None
    compute_type: DType


def verify_peers(op: Any, arithmetic: str, tensors: str, rank: str) -> None:
    """The constraints of an operation's peer_stats, by their numbers."""
    if op.peer_stats:
        _require_float(op, arithmetic)
        _verify_tensors(op, tensors, op.peer_stats, op.x)
        _verify_rank(op, rank, op.peer_rank, len(op.peer_stats))
    elif op.peer_rank is not None:
        raise op.error(rank, f"peer_rank={op.peer_rank} without peer_stats", "peer_stats, or none")


def _require_float(op: Any, constraint: str) -> None:
    if op.compute_type != dtypes.f32:
        raise op.error(
            constraint,
            f"compute type {op.compute_type.cudnn}, of several devices",
            "FLOAT",
            Status.NOT_SUPPORTED_DATA_TYPE,
        )


def _verify_tensors(op: Any, constraint: str, peers: Sequence[Tensor], like: Tensor) -> None:
    if not 1 <= len(peers) <= MAX_VARIADIC:
        raise op.error(constraint, f"tensors of {len(peers)} devices", f"1 to {MAX_VARIADIC}")
    if len(set(peers)) < len(peers):
        raise op.error(constraint, "a tensor of two devices", "a tensor of its own for each device")
    row = like.shape[1] * 4
    dims = (Expr.of(len(peers)), row, *[_ONE] * (like.rank - 2))
    op.require_dims(constraint, dims, *peers)
    for tensor in peers:
        op.require_type(constraint, tensor, [dtypes.f32])
        if tensor.layout[1] != _ONE or (len(peers) > 1 and tensor.layout[0] != row):
            raise op.error(
                constraint,
                f"{tensor.label} has strides {text(tensor.layout)}",
                f"packed rows, of stride {row}",
                Status.NOT_SUPPORTED_LAYOUT,
            )


def _verify_rank(op: Any, constraint: str, rank: int | None, devices: int) -> None:
    if rank is None or not 0 <= rank < devices:
        raise op.error(constraint, f"peer_rank={rank}", f"0 to {devices - 1}, {_WHICH}")


def exchanged(
    steps: Steps, op: OfSeveralDevices, mode: str, a: Tensor, b: Tensor
) -> tuple[Tensor, Tensor]:
    """a and b of all devices."""
    assert op.peer_rank is not None, "verified"
    c, d = (Tensor(is_virtual=True, dtype=steps.compute_type) for _ in range(2))
    steps.add(
        PeerReduction(
            a=a,
            b=b,
            peers=op.peer_stats,
            c=c,
            d=d,
            mode=mode,
            peer_rank=op.peer_rank,
            compute_type=steps.compute_type,
        )
    )
    return c, d


def split_peers(op: OfSeveralDevices, arrays: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """(the other operands' arrays, those of peer_stats), which come last."""
    count = len(arrays) - len(op.peer_stats)
    return float64(arrays[:count]), float64(arrays[count:])


def combined(mode: str, a: Any, b: Any, peers: Sequence[Any], rank: int | None) -> tuple[Any, Any]:
    """(c, d), from what the other devices left in the own tensor; a and b without peers."""
    if rank is None or not peers:
        return a, b
    channels = a.shape[1]
    rows = peers[rank].reshape(len(peers), 4, channels)
    others = [rows[:, place].reshape(-1, *a.shape) for place in range(2)]
    a_all, b_all = (found.copy() for found in others)
    a_all[rank], b_all[rank] = a, b
    if mode == "gradients":
        return a_all.sum(axis=0), b_all.mean(axis=0)
    c = a_all.mean(axis=0)
    return c, (b_all + (a_all - c) ** 2).mean(axis=0)


def drawn_peer(op: OfSeveralDevices, tensor: Tensor, rng: Any, sizes: Mapping[str, int]) -> Any:
    """`Op.draw` of an operation with peer_stats."""
    return _drawn(op.peer_stats, op.peer_rank, tensor, rng, sizes)


def _drawn(
    peers: Sequence[Tensor],
    rank: int | None,
    tensor: Tensor,
    rng: Any,
    sizes: Mapping[str, int],
) -> Any:
    """A tensor of peers as a device finds it that runs last: all others have left their rows."""
    if rank is None or tensor not in peers:
        return None
    dims = [n.evaluate(sizes) for n in tensor.shape]
    rows = rng.uniform(0.25, 2.0, [len(peers), 4, dims[1] // 4])
    rows[0, 2, :1] = len(peers) - 1 if tensor is peers[rank] else 0
    return rows.astype(np.float32).reshape(dims)
