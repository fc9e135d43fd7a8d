"""The gradient of attention in a fusion: five products, however what lies between is written.

    S = Q @ K'            any pointwise work on S: scale, bias, soft-cap, ...
    E = exp(S - base)     base: of rows, as the log of the sums of the forward pass
    P = any pointwise work on E: masks, dropout, ...        dV = P' @ dO
    dP = dO @ V'          any pointwise work on dP: dropout, ...
    delta = sum(dO * O)   of rows
    dS = P * (dP - delta), any pointwise work on it         dQ = dS @ K      dK = dS' @ Q

Rows of operands and of results may be packed.  Further outputs are what an element of the scores
has, dropout's mask for example; sums of that, as of dS for a bias; sums of what rows have, as for a
sink; and the largest magnitude of dS, dQ, dK or dV.  The last three may be multiplied by numbers.
`gradient_of` finds the parts; an operation that is none of them is a reason to decline.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    Transpose,
)
from ...dialect.tensor import Tensor, text
from ...expr import Expr
from ..engine import Reason
from ..surface import listed
from .operands import Operand, OperandReader, Unlike, regroups, turns_last

_ACCEPTED = "the five products of attention's gradient, pointwise operations between them"
_HEAD, _ROW, _COLUMN = 1, 2, 3  # axes of the scores


class GradientOperands(NamedTuple):
    """The operands of S and dP."""

    q: Operand
    k: Operand
    v: Operand
    do: Operand


class GradientResults(NamedTuple):
    """The gradients in memory."""

    dq: Tensor
    dk: Tensor
    dv: Tensor


@dataclass(frozen=True, eq=False)
class Gradient:
    """The parts of attention's gradient.

    scores, of_weights: the products S and dP, of the operands.  exponential: E.
    core: P * (dP - delta).  delta: the reduction.  between: all
    operations but products.  parts: all that kernels know by name, see
    `codegen.attention.gradient_region`.  kept: outputs that have an element for each score.  sums:
    what adds up further outputs, of the scores' elements or of rows.  largest: outputs that are the
    largest magnitude of what scores have, or of a result.
    """

    scores: Matmul
    of_weights: Matmul
    operands: GradientOperands
    exponential: Pointwise
    core: Pointwise
    delta: Reduction
    results: GradientResults
    between: tuple[Op, ...]
    parts: Mapping[str, Op]
    kept: tuple[Tensor, ...] = ()
    sums: tuple[Reduction, ...] = ()
    largest: tuple[Reduction, ...] = ()

    @property
    def is_fp8(self) -> bool:
        """Whether operands and weights are of fp8."""
        weights = [self.parts[name].results[0] for name in ("weights", "gradients")]
        return all(t.type.is_fp8 for t in (*(x.tensor for x in self.operands), *weights))

    @property
    def is_packed(self) -> bool:
        """Whether rows of an operand are looked up."""
        return any(x.load is not None for x in self.operands)

    @property
    def score(self) -> Tensor:
        """A tensor of the scores' dims, [B, Hq, Sq, Skv]."""
        return self.exponential.y

    @property
    def queries(self) -> Expr:
        return self.score.shape[-2]

    @property
    def keys(self) -> Expr:
        return self.score.shape[-1]

    @property
    def depth(self) -> Expr:
        """Elements of a query: D."""
        return self.scores.a.shape[-1]

    @property
    def width(self) -> Expr:
        """Elements of a value: Dv."""
        return self.of_weights.a.shape[-1]

    @property
    def group(self) -> int:
        """Query heads that share a head of keys and values."""
        own, whole = self.operands.k.batch[_HEAD], self.score.shape[_HEAD]
        return 1 if own == whole else (whole.constant or 1) // (own.constant or 1)

    @property
    def is_masked(self) -> bool:
        """Whether what is selected of scores or weights depends on their places."""
        return any(isinstance(op, Pointwise) and op.mode == "gen_index" for op in self.between)

    @property
    def products(self) -> tuple[Matmul, Matmul]:
        return self.scores, self.of_weights


def gradient_reasons(fusion: Fusion) -> tuple[Reason, ...]:
    """Why a fusion is no gradient of attention."""
    found = _found(fusion)
    return (found,) if isinstance(found, Reason) else ()


def gradient_of(fusion: Fusion) -> Gradient:
    """The parts of a fusion that is one."""
    found = _found(fusion)
    assert isinstance(found, Gradient), str(found)
    return found


@remembered
def _found(fusion: Fusion) -> Gradient | Reason:
    try:
        return _Reader(fusion).read()
    except Unlike as unlike:
        return unlike.reason


def _keeps_zeros(op: Op, zeros: set[Tensor]) -> bool:
    """Whether an operation's result is 0 wherever tensors are.  zeros: those tensors."""
    if isinstance(op, Transpose | Reshape):
        return op.x in zeros
    if not isinstance(op, Pointwise):
        return False
    if op.mode == "mul":
        return op.x in zeros or op.b in zeros
    if op.mode in ("add", "sub"):
        return op.x in zeros and op.b in zeros
    if op.mode == "binary_select":
        return all(t in zeros or (t is not None and t.value == 0) for t in (op.x, op.b))
    is_linear = op.mode in ("identity", "neg", "div") or op.mode.endswith("_bwd")
    return is_linear and op.x in zeros


def _is_amax(op: Op) -> bool:
    return isinstance(op, Reduction) and op.mode == "amax"


@dataclass(frozen=True, eq=False)
class _Weights:
    """The first operand of a product, before views.  is_turned: its last axes are
    exchanged.  is_joined: rows of heads that share follow each other."""

    tensor: Tensor
    is_turned: bool
    is_joined: bool


class _Reader(OperandReader):
    """Finds the parts, and that there are no others."""

    def read(self) -> Gradient:
        scores, of_weights, to_v, of_both = self._products()
        delta = self._delta()
        p = self._weights(to_v)
        exponential = self._exponential(scores, p.tensor)
        ds = [self._weights(op) for op in of_both]
        core, distance = self._core(of_weights, delta, exponential, ds[0].tensor)
        for weights in (p, *ds):
            self._verify_between(weights.tensor, scores, of_weights)
            if weights.tensor.shape != exponential.y.shape:
                what = f"{weights.tensor.label} {text(weights.tensor.shape)}"
                raise Unlike(what, f"the scores' dims, {text(exponential.y.shape)}")
        self._verify_hidden(exponential, p.tensor, ds[0].tensor)
        if ds[0].tensor is not ds[1].tensor:
            raise Unlike(f"dS as {ds[0].tensor.label} and {ds[1].tensor.label}", "one of both")
        if not p.is_turned or [w.is_turned for w in ds] not in ([False, True], [True, False]):
            raise Unlike("products of weights that are not transposed as a gradient's", _ACCEPTED)
        to_q, to_k = of_both if ds[1].is_turned else reversed(of_both)
        made = [self._result(op) for op in (to_q, to_k, to_v)]
        q, k, v = map(self.operand, (scores.a, scores.b, of_weights.b))
        do = self.operand(of_weights.a, may_be_cut=True)
        found = Gradient(
            scores, of_weights, GradientOperands(q, k, v, do), exponential, core, delta,
            GradientResults(*map(self._memory, made)),
            tuple(op for op in self.fusion.ops if not isinstance(op, Matmul)),
            {
                "s": scores, "dp": of_weights, "dv": to_v, "dq": to_q, "dk": to_k,
                "exponential": exponential, "core": core, "delta": delta,
                "distance": distance, "weights": self._made(p.tensor),
                "gradients": self._made(ds[0].tensor),
            },
            self._kept(exponential.y, delta, core), tuple(self._sums(exponential.y, delta, core)),
            self._largest(exponential.y, delta, core, to_q, to_k, to_v),
        )  # fmt: skip
        known = self._hidden_past(core, exponential)
        for op, operand, axis, is_turned in (
            (to_v, do, _ROW, False), (to_q, k, _COLUMN, True), (to_k, q, _ROW, False),
        ):  # fmt: skip
            cut = {operand.lengths, self._verify_same(op, operand, is_turned=is_turned)} - {None}
            if any((axis, lengths) not in known for lengths in cut):
                what = f"{operand.tensor.label} cut to lengths that no mask of {p.tensor.label} has"
                raise Unlike(what, "weights that are 0 past the lengths")
        self._verify_dims(found, *made)
        self._verify_outputs(found)
        return found

    # ---- products

    def _products(self) -> tuple[Matmul, Matmul, Matmul, list[Matmul]]:
        """(S, dP, what makes dV, what makes dQ and dK)."""
        anchors = [
            op for op in self.fusion.ops if op.role == "anchor" and not isinstance(op, RaggedStore)
        ]
        products = [op for op in anchors if isinstance(op, Matmul)]
        if len(products) != 5 or len(anchors) != 5:
            raise Unlike(listed(anchors, "no matmul"), _ACCEPTED)
        ahead = {op: self._products_ahead(op, products) for op in products}
        first = [op for op in products if not ahead[op]]
        to_v = [op for op in products if len(ahead[op]) == 1]
        of_both = [op for op in products if ahead[op] == set(first)]
        if len(first) != 2 or len(to_v) != 1 or len(of_both) != 2:
            raise Unlike("products that follow each other otherwise", _ACCEPTED)
        (scores,) = ahead[to_v[0]]
        (of_weights,) = [op for op in first if op is not scores]
        assert isinstance(scores, Matmul), "one of the products"
        return scores, of_weights, to_v[0], of_both

    def _products_ahead(self, op: Matmul, products: Sequence[Op]) -> set[Op]:
        above = self.fusion.sources(op.a) | self.fusion.sources(op.b)
        return {other for other in products if other in above}

    def _weights(self, op: Matmul) -> _Weights:
        tensor, is_turned, is_joined = op.a, False, False
        while (made := self.fusion.producers.get(tensor)) is not None:
            if isinstance(made, Transpose) and turns_last(made):
                is_turned = not is_turned
            elif isinstance(made, Reshape) and made.joins_heads and not is_joined:
                is_joined = True
            elif not (isinstance(made, Reshape) and regroups(made)):
                break
            tensor = made.x
        return _Weights(tensor, is_turned, is_joined)

    def _made(self, tensor: Tensor) -> Op:
        """The operation that makes a tensor, before mere copies."""
        op = self.fusion.producers[tensor]
        while isinstance(op, Pointwise) and op.mode == "identity" and op.x.type == op.y.type:
            op = self.fusion.producers[op.x]
        return op

    def _result(self, op: Matmul) -> Tensor:
        """The output that a product makes, by way of views of its batch and products by numbers
        alone, before its rows are packed."""
        tensor = op.c
        while tensor not in self.fusion.outputs:
            readers = [o for o in self.fusion.readers.get(tensor, ()) if not _is_amax(o)]
            if len(readers) == 1 and isinstance(readers[0], RaggedStore):
                return tensor
            if len(readers) != 1 or not self._keeps_result(readers[0]):
                raise Unlike(f"{tensor.label}, which is no output", "dQ, dK and dV as outputs")
            tensor = readers[0].results[0]
        if self.fusion.readers.get(tensor):
            raise Unlike(f"{tensor.label}, which others read", "dQ, dK and dV as outputs alone")
        return tensor

    def _keeps_result(self, op: Op) -> bool:
        """Whether a result is the same but for a number that it is multiplied by."""
        return (isinstance(op, Reshape) and regroups(op)) or self._multiple(op) is not None

    def _memory(self, result: Tensor) -> Tensor:
        """The output that has a result's rows."""
        readers = self.fusion.readers.get(result, ())
        return readers[0].packed if readers and isinstance(readers[0], RaggedStore) else result

    def _verify_same(self, op: Matmul, operand: Operand, *, is_turned: bool) -> Tensor | None:
        """Sees that a product's second operand is one that was multiplied before; gives the lengths
        past which its rows are zeros."""
        tensor = op.b
        made = self.fusion.producers.get(tensor)
        if isinstance(made, Reshape) and made.joins_heads:
            tensor = made.x
        found = self.operand(tensor, may_be_cut=True)
        is_same = found.tensor is operand.tensor and found.load is operand.load
        if not is_same or found.is_turned != (operand.is_turned ^ is_turned):
            what = f"{op.label} by {found.tensor.label}"
            raise Unlike(what, f"by {operand.tensor.label}, as in the other product")
        return found.lengths

    def _hidden_past(self, core: Pointwise, exponential: Pointwise) -> set[tuple[int, Tensor]]:
        """(axis of the scores, lengths) past which P is 0, by masks between it and E."""
        found = set[tuple[int, Tensor]]()
        above = {t for t in core.operands if exponential in self.fusion.sources(t)}
        while above:
            op = self.fusion.producers.get(above.pop())
            if not isinstance(op, Pointwise) or op.mode != "binary_select" or op.t is None:
                continue
            if op.b is not None and op.b.value == 0:
                found |= self._bounds_of(op.t)
                above.add(op.x)
        return found

    def _bounds_of(self, condition: Tensor) -> set[tuple[int, Tensor]]:
        """(axis, lengths) of conditions index < length that have to hold."""
        op = self.fusion.producers.get(condition)
        if not isinstance(op, Pointwise) or op.b is None:
            return set()
        if op.mode == "logical_and":
            return self._bounds_of(op.x) | self._bounds_of(op.b)
        index = self.fusion.producers.get(op.x)
        is_bound = op.mode == "cmp_lt" and op.compute_type == dtypes.i32
        if is_bound and isinstance(index, Pointwise) and index.mode == "gen_index":
            axis = index.axis
            return set() if axis is None else {(axis, op.b)}
        return set()

    # ---- between the products

    def _delta(self) -> Reduction:
        found = [op for op in self._reductions() if op.y not in self.fusion.outputs]
        if len(found) != 1:
            raise Unlike(listed(found, "no reductions"), "one sum of each row, of dO * O")
        (op,) = found
        if op.mode != "add" or op.axes != (op.x.rank - 1,):
            raise Unlike(f"{op.mode} over axes {list(op.axes)}", "the sum of each row of dO * O")
        if {op.x.type, op.y.type, op.compute_type} != {dtypes.f32}:
            raise Unlike(f"{op.label} of {op.x.type}", "a sum in FLOAT")
        if not all(map(self._is_light, self.fusion.sources(op.x))):
            raise Unlike(f"{op.label} of what is not in memory", "the sum of each row of dO * O")
        return op

    def _reductions(self) -> list[Reduction]:
        return [op for op in self.fusion.ops if isinstance(op, Reduction)]

    def _exponential(self, scores: Matmul, p: Tensor) -> Pointwise:
        """E = exp(S - base), the one exponential of what a row's number is subtracted from."""
        found: list[Pointwise] = []
        for op in self.fusion.sources(p):
            if isinstance(op, Pointwise) and op.mode == "exp" and self._is_distance(op.x, scores):
                found.append(op)
        if len(found) != 1:
            raise Unlike(f"{p.label} of no exponential", "exp(S - statistics) of each row")
        return found[0]

    def _is_distance(self, tensor: Tensor, scores: Matmul) -> bool:
        """Whether it is made of scores minus what their rows have in memory."""
        op = self.fusion.producers.get(tensor)
        if not isinstance(op, Pointwise) or op.mode != "sub" or op.b is None:
            return False
        is_of_scores = scores in self.fusion.sources(op.x)
        is_in_f32 = {op.y.type, op.x.type, op.b.type, op.compute_type} == {dtypes.f32}
        is_of_rows = op.b.shape[-1].constant == 1
        made_by = self.fusion.sources(op.b)
        return is_of_scores and is_in_f32 and is_of_rows and all(map(self._is_light, made_by))

    def _is_light(self, op: Op) -> bool:
        """Whether rows' numbers may be made so, of what lies in memory."""
        return isinstance(op, Pointwise | RaggedLoad)

    def _core(
        self, of_weights: Matmul, delta: Reduction, exponential: Pointwise, ds: Tensor
    ) -> tuple[Pointwise, Pointwise]:
        """P * (dP - delta), and the distance in it."""
        above = self.fusion.sources(ds)
        found: list[tuple[Pointwise, Pointwise]] = []
        for op in above:
            if not isinstance(op, Pointwise) or op.mode != "mul" or op.b is None:
                continue
            for share, distance in ((op.x, op.b), (op.b, op.x)):
                made = self.fusion.producers.get(distance)
                if (
                    isinstance(made, Pointwise)
                    and made.mode == "sub"
                    and made.b is not None
                    and made.b.shape[-1].constant == 1
                    and delta in self.fusion.sources(made.b)
                    and of_weights in self.fusion.sources(made.x)
                    and exponential in self.fusion.sources(share)
                    and {made.y.type, op.y.type, share.type} == {dtypes.f32}
                ):
                    found.append((op, made))
        if len(found) != 1:
            raise Unlike(f"{ds.label} without P * (dP - delta)", _ACCEPTED)
        readers = [op for op in self.fusion.ops if delta in self._reads(op)]
        rows = [op for op in readers if op.results[0].shape[-1].constant != 1]
        # Scores of a single key look like rows' numbers: an engine says that it declines these.
        if len(rows) != 1 and exponential.y.shape[-1].constant != 1:
            raise Unlike("row sums that others read", "delta in P * (dP - delta) alone")
        return found[0]

    def _reads(self, op: Op) -> set[Op]:
        """The operations that make operands by way of rows' numbers alone."""
        found, pending = set[Op](), list(op.read_operands)
        while pending:
            tensor = pending.pop()
            made = self.fusion.producers.get(tensor)
            if made is not None and made not in found and tensor.shape[-1].constant == 1:
                found.add(made)
                pending += [] if isinstance(made, Reduction) else made.read_operands
        return found

    def _verify_between(self, tensor: Tensor, *products: Matmul) -> None:
        for op in self.fusion.sources(tensor):
            made_of = {o for t in op.read_operands for o in self.fusion.sources(t)}
            is_between = op not in products and not made_of.isdisjoint(products)
            if is_between and not self.keeps_rows(op):
                raise Unlike(f"{op.label} between the products", "pointwise operations")

    def _verify_hidden(self, exponential: Pointwise, *weights: Tensor) -> None:
        """Where a mask hides scores, blocks are left out: P and dS have to be 0 wherever E is."""
        above = self.fusion.sources(exponential.x)
        selects = (op for op in above if isinstance(op, Pointwise) and op.mode == "binary_select")
        if all(op.y.shape[-1].constant == 1 for op in selects):
            return
        zeros = {exponential.y}
        for op in self.fusion.ops:
            if _keeps_zeros(op, zeros):
                zeros.update(op.results)
        for tensor in weights:
            if tensor not in zeros:
                what = f"{tensor.label} beside masked scores"
                raise Unlike(what, "P and dS that are 0 wherever exp(S - statistics) is")

    # ---- further outputs

    def _kept(self, score: Tensor, delta: Reduction, core: Pointwise) -> tuple[Tensor, ...]:
        """Outputs that have an element for each score."""
        found: list[Tensor] = []
        for output in self.fusion.outputs:
            op = self.fusion.producers[output]
            is_made_so = isinstance(op, Pointwise | Rng)
            if is_made_so and output.shape == score.shape:
                self._verify_element(output, delta, core)
                found.append(output)
        return tuple(found)

    def _sums(self, score: Tensor, delta: Reduction, core: Pointwise) -> Iterator[Reduction]:
        """The reductions, each an output, that add up elements that scores have, or rows."""
        of_rows = (*score.shape[:-1], Expr.of(1))
        for op in self._reductions():
            if op.y not in self.fusion.outputs or _is_amax(op):
                continue
            if op.mode != "add" or {op.x.type, op.compute_type} != {dtypes.f32}:
                raise Unlike(f"{op.mode} of {op.x.type}, {op.label}", "sums in FLOAT")
            if self.fusion.readers.get(op.y):
                raise Unlike(f"{op.label}, which others read", "sums as outputs alone")
            if op.x.shape == score.shape:
                self._verify_element(op.x, delta, core)
            elif op.x.shape != of_rows:
                what = f"{op.label} of {text(op.x.shape)}"
                raise Unlike(what, f"sums of {text(score.shape)} or {text(of_rows)}")
            elif not all(o is delta or self._is_light(o) for o in self.fusion.sources(op.x)):
                raise Unlike(f"{op.label} of what rows do not have", "pointwise work on rows")
            yield op

    def _largest(
        self, score: Tensor, delta: Reduction, core: Pointwise, *results: Matmul
    ) -> tuple[Reduction, ...]:
        """The reductions, each an output, to the largest magnitude of what scores have or of a
        result."""
        found: list[Reduction] = []
        for op in filter(_is_amax, self._reductions()):
            what, accepted = op.label, "the amax of all of dS, dQ, dK or dV, an output"
            is_whole = op.y.elements().constant == 1 and op.index is None
            if not is_whole or {op.x.type, op.y.type, op.compute_type} != {dtypes.f32}:
                raise Unlike(f"{what} over axes {list(op.axes)}", f"{accepted} in FLOAT")
            if op.y not in self.fusion.outputs or self.fusion.readers.get(op.y):
                raise Unlike(f"{what}, which others read", accepted)
            if not any(op.x in self._along(product) for product in results):
                if op.x.shape != score.shape:
                    raise Unlike(f"{what} of {op.x.label}", accepted)
                self._verify_element(op.x, delta, core)
            found.append(op)
        return tuple(found)

    def _along(self, product: Matmul) -> set[Tensor]:
        """The tensors that a product's result goes through."""
        found, pending = set[Tensor](), [product.c]
        while pending:
            tensor = pending.pop()
            found.add(tensor)
            readers = self.fusion.readers.get(tensor, ())
            pending += [op.results[0] for op in readers if self._keeps_result(op)]
        return found

    def _verify_element(self, tensor: Tensor, delta: Reduction, core: Pointwise) -> None:
        """Sees that a tensor is made element by element, and of delta by P * (dP - delta) alone."""
        first = set[Op](op for op in self.fusion.ops if isinstance(op, Matmul))
        pending = [tensor]
        while pending:
            op = self.fusion.producers.get(pending.pop())
            if op is delta:
                raise Unlike(f"{tensor.label} of row sums", "delta in P * (dP - delta) alone")
            if op is None or op is core or op in first:
                continue
            above = {o for t in op.read_operands for o in self.fusion.sources(t)}
            if not above.isdisjoint(first) and not self.keeps_rows(op):
                raise Unlike(f"{op.label} between the products", "pointwise operations")
            pending += op.read_operands

    # ---- dims

    def _verify_dims(self, found: Gradient, dq: Tensor, dk: Tensor, dv: Tensor) -> None:
        dims = found.score.shape
        if len(dims) != 4:
            raise Unlike(f"scores {text(dims)}", "four axes")
        batch, heads = dims[:2]
        q, k, v, do = found.operands
        for operand in (q, do, k, v):
            own = operand.batch
            is_paged = operand.load is not None and not isinstance(operand.load, RaggedLoad)
            if len(own) != 2 or own[0] != batch or is_paged:
                what = f"{operand.tensor.label} {text(operand.tensor.shape)}"
                raise Unlike(what, "[B, H, S, D], rows in place or packed")
        if q.batch != dims[:2] or do.batch != dims[:2]:
            raise Unlike(f"heads of {q.tensor.label}", f"{heads}, as of the scores")
        shared = k.batch[1]
        is_part = shared == heads or bool(
            shared.constant and heads.constant and heads.constant % shared.constant == 0
        )
        if not is_part:
            raise Unlike(f"{shared} heads of K", f"{heads} heads, or a part of them")
        rows = {dq: (batch, heads, dims[2])}
        rows |= {dk: (batch, shared, dims[3]), dv: (batch, v.batch[1], dims[3])}
        for result, wanted in rows.items():
            if result.rank != 4 or result.shape[:3] != wanted:
                what = f"{result.label} {text(result.shape)}"
                raise Unlike(what, f"[{', '.join(map(str, wanted))}, elements of a head]")
        delta = (*dims[:3], Expr.of(1))
        if found.delta.y.shape != delta:
            raise Unlike(f"delta {text(found.delta.y.shape)}", text(delta))

    def _verify_outputs(self, found: Gradient) -> None:
        known = {*found.results, *found.kept}
        known |= {op.y for op in (*found.sums, *found.largest)}
        for output in self.fusion.outputs:
            if output not in known:
                supported = "dQ, dK, dV, what scores have, sums of that or of rows"
                raise Unlike(f"output {output.label}", supported)
            store = self.fusion.producers[output]
            if isinstance(store, RaggedStore):
                self._verify_places(store)

    def _verify_places(self, store: RaggedStore) -> None:
        """Where rows go does not depend on the products."""
        for tensor in (store.offset, store.sequence):
            if not all(self.is_simple(op) for op in self.fusion.sources(tensor)):
                what = f"{tensor.label} of {store.label}"
                raise Unlike(what, "offsets and lengths in memory, or made of such")
