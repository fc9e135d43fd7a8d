"""Attention in a fusion: two products with a softmax between, however it is written.

    S = Q @ K'            any pointwise work on S: scale, bias, masks, soft-cap, ...; Q and K times
                          numbers
    m = max(S), base      base: of m, kept finite, a sink beside it, ...
    E = exp(S - base)     l = sum(E)
    P = E * share(l)      share: 1 / l, or nothing; then any pointwise work: dropout, ...
    O = P @ V             any pointwise work on O; outputs of rows: statistics of m and l
    amax(P), amax(O)      of all elements, as outputs; of P right after its share

Outputs may also be as large as the scores: what is made of P, where l divides it, and what no score
has a part in, as dropout's mask.
`attention_of` finds the parts; an operation that is none of them is a reason to decline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ... import dtypes
from ...dialect.fusion import Fusion, remembered
from ...dialect.op import Op
from ...dialect.ops import (
    Matmul,
    Pointwise,
    RaggedLoad,
    RaggedStore,
    Reduction,
    Reshape,
    Rng,
)
from ...dialect.tensor import Tensor, is_in_tiles, text
from ...expr import Expr
from ..engine import Marks, Reason
from ..surface import listed
from .operands import NoMatch, Operand, OperandReader, regroups


class AttentionOperands(NamedTuple):
    """The operands of both products: [.., Sq, D], [.., D, Skv], [.., Skv, Dv]."""

    q: Operand
    k: Operand
    v: Operand


@dataclass(frozen=True, eq=False)
class Attention:
    """The parts of an attention.

    first, second: the products.  maximum, total: the reductions of rows.  distance: S - base.
    share: what makes P of exponentials and their sum; None: nothing.  kept: outputs of the scores'
    dims; keeps_weights: whether one of them is made of P.  largest: reductions of all of P or O.
    mixed: whether P is multiplied by tensors of several elements, but for masks that are drawn.
    """

    first: Matmul
    second: Matmul
    maximum: Reduction
    total: Reduction
    operands: AttentionOperands
    distance: Op
    share: Op | None
    kept: tuple[Tensor, ...] = ()
    keeps_weights: bool = False
    largest: tuple[Reduction, ...] = ()
    mixed: bool = False

    @property
    def gathers(self) -> bool:
        """Whether rows of an operand are looked up."""
        return any(operand.load is not None for operand in self.operands)

    @property
    def score(self) -> Tensor:
        """The scores that the softmax is taken of, [batch, Sq, Skv]."""
        return self.maximum.x

    @property
    def batch(self) -> tuple[Expr, ...]:
        return self.score.shape[:-2]

    @property
    def queries(self) -> Expr:
        return self.score.shape[-2]

    @property
    def keys(self) -> Expr:
        return self.score.shape[-1]

    @property
    def depth(self) -> Expr:
        """Elements of a query: D."""
        return self.first.a.shape[-1]

    @property
    def width(self) -> Expr:
        """Elements of a value: Dv."""
        return self.second.b.shape[-1]


def attention_reasons(fusion: Fusion) -> tuple[Reason, ...]:
    """Why a fusion is no attention."""
    found = _found(fusion)
    return (found,) if isinstance(found, Reason) else ()


def attention_of(fusion: Fusion) -> Attention:
    """The parts of a fusion that is one."""
    found = _found(fusion)
    assert isinstance(found, Attention), str(found)
    return found


def attention_marks(fusion: Fusion) -> Marks:
    """Marks an attention's operations for its engines: functions of scores are approximate, and
    each row is reduced even where it is one key."""
    found = attention_of(fusion)
    rows = frozenset((found.maximum, found.total))
    parts: dict[str, Sequence[Op]] = {
        "first": [found.first],
        "second": [found.second],
        "maximum": [found.maximum],
        "total": [found.total],
        "distance": [found.distance],
        "share": [found.share] if found.share else [],
        "largest": found.largest,
        "queries": [made_by] if (made_by := found.operands.q.made_by) else [],
    }
    return Marks(fusion.upstream(found.score), rows, parts)


@remembered
def _found(fusion: Fusion) -> Attention | Reason:
    try:
        return _Reader(fusion).read()
    except NoMatch as failure:
        return failure.reason


class _Reader(OperandReader):
    """Finds the parts, and that there are no others."""

    def read(self) -> Attention:
        first, second = self._products()
        maximum, total, largest = self._reductions()
        self._verify_score(first, maximum)
        e = self._exponential(maximum, total)
        chain, share = self._verify_weights(second, e, maximum, total)
        weights = share.results[0] if share else None
        q = self.queries(first.a)
        for op in largest:
            self._verify_largest(op, second, share, is_packed=isinstance(q.load, RaggedLoad))
        k = self.operand(first.b, may_be_scaled=True)
        v = self.operand(second.b, may_be_cut=True)
        found = Attention(
            first, second, maximum, total,
            AttentionOperands(q, k, v),
            self.fusion.producers[self.fusion.producers[e].operands[0]], share,
            largest=largest, mixed=any(self._is_mixed(op) for op in chain if op is not share),
        )  # fmt: skip
        self._verify_batch(found)
        kept = tuple(t for t in self.fusion.outputs if self._is_kept(t, found, weights))
        self._verify_outputs(found, kept)
        keeps_weights = not all(self._is_made_of(self._matrices(tensor), None) for tensor in kept)
        return replace(found, kept=kept, keeps_weights=keeps_weights)

    def _products(self) -> tuple[Matmul, Matmul]:
        anchors = [
            op for op in self.fusion.ops if op.role == "anchor" and not isinstance(op, RaggedStore)
        ]
        matmuls = [op for op in anchors if isinstance(op, Matmul)]
        if len(matmuls) != 2 or len(anchors) != 2:
            raise NoMatch(listed(anchors, "no matmul"))
        first, second = matmuls
        if first not in self.fusion.upstream(second.a) or first in self.fusion.upstream(second.b):
            raise NoMatch(f"{second.label} does not weigh its B by what {first.label} gives")
        return first, second

    def _reductions(self) -> tuple[Reduction, Reduction, tuple[Reduction, ...]]:
        found = [op for op in self.fusion.ops if isinstance(op, Reduction)]
        largest = tuple(op for op in found if op.mode == "amax")
        found = [op for op in found if op.mode != "amax"]
        if [op.mode for op in found] != ["max", "add"]:
            raise NoMatch(listed(found, "no reductions"), "a maximum and a sum of each row")
        for op in found:
            is_of_one = not op.axes and op.x.shape[-1].constant == 1
            if not (is_of_one or op.axes == (op.x.rank - 1,)) or op.index is not None:
                raise NoMatch(f"{op.label} over axes {list(op.axes)}", "rows of the last axis")
            if op.x.type != dtypes.f32 or op.compute_type != dtypes.f32:
                raise NoMatch(f"{op.label} of {op.x.type}", "scores and exponentials in FLOAT")
        maximum, total = found
        return maximum, total, largest

    def _verify_score(self, first: Matmul, maximum: Reduction) -> None:
        for op in self.fusion.upstream(maximum.x):
            if op is not first and first in self._upstream(op) and not self.keeps_rows(op):
                raise NoMatch(f"{op.label} on scores", "pointwise operations on scores")

    def _exponential(self, maximum: Reduction, total: Reduction) -> Tensor:
        """E = exp(S - base), of the sum."""
        exponential = self.fusion.producers.get(total.x)
        if not isinstance(exponential, Pointwise) or exponential.mode != "exp":
            raise NoMatch(f"{total.label} of no exponential", "sum(exp(S - max(S)))")
        distance = self.fusion.producers.get(exponential.x)
        if not isinstance(distance, Pointwise) or not self._is_centred(distance, maximum):
            raise NoMatch(f"{exponential.label} of no distance", "exp(S - max(S))")
        for op in (distance, exponential):
            if op.results[0].type != dtypes.f32 or op.compute_type != dtypes.f32:
                what = f"{op.label} in {op.results[0].type}"
                raise NoMatch(what, "distances and exponentials in FLOAT")
        return total.x

    def _is_centred(self, distance: Pointwise, maximum: Reduction) -> bool:
        """Whether it is S minus what its maximum gives."""
        base = distance.b
        return (
            distance.mode == "sub"
            and distance.x is maximum.x
            and base is not None
            and base.shape[-1].constant == 1
            and maximum in self.fusion.upstream(base)
            and self._is_of_rows(base, maximum)
        )

    def _is_of_rows(self, tensor: Tensor, *stops: Reduction) -> bool:
        """Whether a tensor depends on scores through some reductions only."""

        def goes_on(tensor: Tensor, op: Op) -> bool | None:
            return None if op in stops else self.is_simple(op)

        def fits(tensor: Tensor) -> bool:
            is_of_row = tensor.shape[-1].constant == 1
            return is_of_row or not any(s in self.fusion.upstream(tensor) for s in stops)

        return self._all_above(tensor, goes_on, fits)

    def _all_above(
        self,
        tensor: Tensor,
        goes_on: Callable[[Tensor, Op], bool | None],
        fits: Callable[[Tensor], bool] = lambda tensor: True,
    ) -> bool:
        """Whether all tensors that one is made of fit, itself too, and the operations between.

        goes_on: of a tensor and its producer, whether that fits; None: what it reads is not asked.
        """
        seen, pending = {tensor}, [tensor]
        while pending:
            tensor = pending.pop()
            if not fits(tensor):
                return False
            op = self.fusion.producers.get(tensor)
            found = None if op is None else goes_on(tensor, op)
            if found is False:
                return False
            if op is not None and found:
                pending += (new := set(op.operands) - seen)
                seen |= new
        return True

    def _verify_weights(
        self, second: Matmul, e: Tensor, maximum: Reduction, total: Reduction
    ) -> tuple[list[Op], Op | None]:
        """P: E, once multiplied by what depends on l, in a chain of pointwise work.

        Gives the chain, and that operation.
        """
        tensor, stops = second.a, (maximum, total)
        chain, shares = list[Op](), list[Op]()
        while tensor is not e:
            op = self.fusion.producers.get(tensor)
            if op is None or not self.keeps_rows(op):
                raise NoMatch(f"{tensor.label} is no weight", "weights made of the exponentials")
            along = [t for t in op.operands if t is e or self._comes_from(t, e)]
            rest = [t for t in op.operands if t not in along]
            of_total = [t for t in rest if total in self.fusion.upstream(t)]
            if len(along) != 1 or not all(self._is_of_rows(t, *stops) for t in of_total):
                raise NoMatch(f"{op.label} on weights", "weights that are multiplied by others")
            if of_total:
                shares.append(op)
                self._verify_share(op, along[0], e)
            elif not self._is_linear(op, along[0]):
                raise NoMatch(f"{op.label} on weights", "identity, mul, div, binary_select")
            tensor = along[0]
            chain.append(op)
        if len(shares) > 1:
            raise NoMatch("weights that are divided twice", "one division by the sum")
        is_fp8 = second.a.type.is_fp8 and second.b.type.is_fp8
        if second.a.type not in (dtypes.f32, second.b.type) and not is_fp8:
            what = f"weights of {second.a.type} for values of {second.b.type}"
            raise NoMatch(what, f"FLOAT, or {second.b.type}")
        return chain, shares[0] if shares else None

    def _is_mixed(self, op: Op) -> bool:
        """Whether weights are multiplied by a tensor that is no mask that was drawn."""
        if not isinstance(op, Pointwise) or op.mode not in ("mul", "div"):
            return False
        others = [t for t in op.operands if t.elements().constant != 1]
        return sum(not isinstance(self.fusion.producers.get(t), Rng) for t in others) > 1

    def _verify_largest(
        self, op: Reduction, second: Matmul, share: Op | None, *, is_packed: bool
    ) -> None:
        """The amax of all of P, as the share leaves it, or of what comes after the product.

        is_packed: queries are, so that zeros past the sequences, which no tile has, stay zeros.
        """
        what, accepted = op.label, "the amax of all probabilities or of the result, an output"
        is_whole = op.y.elements().constant == 1 and op.index is None
        is_float = {op.x.type, op.y.type, op.compute_type} == {dtypes.f32}
        if not is_whole or not is_float:
            raise NoMatch(f"{what} over axes {list(op.axes)}", f"{accepted} in FLOAT")
        if op.y not in self.fusion.outputs or any(op.y in o.operands for o in self.fusion.ops):
            raise NoMatch(f"{what}, which others read", accepted)
        after = self.fusion.upstream(op.x)
        is_of_share = share is not None and op.x in share.results
        is_of_result = second in after and all(
            other is second
            or second not in self._upstream(other)
            or (self._is_product(other) if is_packed else self.keeps_rows(other))
            for other in after
        )
        if not (is_of_share or is_of_result):
            raise NoMatch(f"{what} of {op.x.label}", accepted)

    def _comes_from(self, tensor: Tensor, e: Tensor) -> bool:
        """Whether a tensor is made of E element by element, not by its sum."""
        seen, pending = {tensor}, [tensor]
        while pending:
            op = self.fusion.producers.get(pending.pop())
            if op is None or isinstance(op, Reduction):
                continue
            if e in op.operands:
                return True
            pending += (new := set(op.operands) - seen)
            seen |= new
        return False

    def _verify_share(self, op: Op, along: Tensor, e: Tensor) -> None:
        is_share = isinstance(op, Pointwise) and (
            op.mode == "mul" or (op.mode == "div" and op.x is along)
        )
        if not is_share or along is not e:
            raise NoMatch(f"{op.label} by the sum", "exponentials times or over what the sum gives")

    def _is_linear(self, op: Op, along: Tensor) -> bool:
        """Whether twice the weight gives twice the result."""
        if not isinstance(op, Pointwise):
            return True  # a view
        if op.mode == "binary_select":
            others = [t for t in (op.x, op.b) if t is not along]
            return op.t is not along and all(t is not None and t.value == 0 for t in others)
        return op.mode in ("identity", "mul") or (op.mode == "div" and op.x is along)

    def _is_product(self, op: Op) -> bool:
        """Whether an operation leaves zeros as they are."""
        is_view = isinstance(op, Reshape) and regroups(op)
        return is_view or (isinstance(op, Pointwise) and op.mode in ("identity", "mul"))

    def _upstream(self, op: Op) -> frozenset[Op]:
        found: frozenset[Op] = frozenset()
        for tensor in op.operands:
            found |= self.fusion.upstream(tensor)
        return found

    def _verify_packed(self, store: RaggedStore) -> None:
        """Where rows go does not depend on the attention."""
        for tensor in (store.offset, store.sequence):
            if not all(self.is_simple(op) for op in self.fusion.upstream(tensor)):
                what = f"{tensor.label} of {store.label}"
                raise NoMatch(what, "offsets and lengths in memory, or made of such")

    def _verify_batch(self, found: Attention) -> None:
        """Each batch axis of an operand is that of the scores, 1, or has groups of it."""
        for operand in found.operands:
            own, whole = operand.batch, found.batch
            fits = len(own) == len(whole) and all(
                group_size(n, size) is not None for n, size in zip(own, whole, strict=True)
            )
            if not fits or (operand is found.operands.q and own != whole):
                what = f"{operand.tensor.label} {text(operand.tensor.shape)} for scores "
                raise NoMatch(what + text(found.score.shape), "batch dims of the scores, or parts")

    def _is_kept(self, output: Tensor, found: Attention, weights: Tensor | None) -> bool:
        """Whether an output of the scores' dims is made of P, or of nothing that has scores."""
        output = self._matrices(output)
        if output.shape != found.score.shape or found.second in self.fusion.upstream(output):
            return False
        of_rows = (found.maximum, found.total)
        is_of_rows = any(op in self.fusion.upstream(output) for op in of_rows)
        if is_of_rows and self._is_of_rows(output, *of_rows):
            return False  # of one key
        return self._is_made_of(output, weights)

    def _matrices(self, output: Tensor) -> Tensor:
        """The matrices that an output in the order F16x16 holds; another output itself."""
        op = self.fusion.producers.get(output)
        return op.x if is_in_tiles(output) and isinstance(op, Reshape) else output

    def _is_made_of(self, tensor: Tensor, weights: Tensor | None) -> bool:
        """Whether a tensor comes from P and from memory only, element by element."""
        producer = None if weights is None else self.fusion.producers[weights]

        def goes_on(tensor: Tensor, op: Op) -> bool | None:
            if tensor is weights or (isinstance(op, Pointwise) and op.mode == "gen_index"):
                return None
            is_of_weights = producer in self._upstream(op)
            is_simple = self.keeps_rows(op) if is_of_weights else self.is_simple(op)
            return is_simple or isinstance(op, Rng)

        return self._all_above(tensor, goes_on)

    def _verify_outputs(self, found: Attention, kept: Sequence[Tensor]) -> None:
        totals = {op.y for op in found.largest}
        for output in self.fusion.outputs:
            if output in kept or output in totals:
                continue
            if isinstance(store := self.fusion.producers.get(output), RaggedStore):
                self._verify_packed(store)
                output = store.x
            upstream = self.fusion.upstream(output)
            after = found.second in upstream
            dims = (*found.batch, found.queries, *((found.width,) if after else (Expr.of(1),)))
            if output.shape != dims:
                what = f"output {output.label} {text(output.shape)}"
                supported = (
                    f"{text(dims)}, of the product or of rows, or {text(found.score.shape)}, of "
                    "weights that the sum has divided"
                )
                raise NoMatch(what, supported)
            for op in upstream:
                if after and found.second in self._upstream(op) and not self.keeps_rows(op):
                    raise NoMatch(f"{op.label} after the product", "pointwise operations")
            if not after and not self._is_of_rows(output, found.maximum, found.total):
                raise NoMatch(f"output {output.label}", "statistics of rows, and the product")


def group_size(own: Expr, whole: Expr) -> int | None:
    """How many entries of the scores' axis share one of an operand's; 0: all; None: they do not
    fit."""
    if own == whole:
        return 1
    if own.constant == 1:
        return 0
    if own.constant is None or whole.constant is None or whole.constant % own.constant:
        return None
    return whole.constant // own.constant
