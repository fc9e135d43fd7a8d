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
`gradient_of` finds the parts; an operation that is none of them is a reason to decline.  Of P in
memory there are four products: `bwd_kept_pattern`.
"""

from __future__ import annotations

from ... import dtypes
from ...dialect.fusion import Fusion, remembered
from ...dialect.op import Op
from ...dialect.ops import Matmul, Pointwise, Reduction, Reshape, Transpose
from ...dialect.tensor import Tensor, text
from ..engine import Reason
from .bwd_gradient import Gradient, GradientOperands, GradientResults
from .bwd_kept_pattern import KeptReader
from .bwd_reader import ACCEPTED, GradientReader
from .operands import NoMatch

_ROW, _COLUMN = 2, 3  # axes of the scores


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
    products = sum(isinstance(op, Matmul) for op in fusion.ops)
    reader = KeptReader if products == KeptReader.products else _Reader
    try:
        return reader(fusion).read()
    except NoMatch as failure:
        return failure.reason


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


class _Reader(GradientReader):
    """Finds the parts of five products."""

    def read(self) -> Gradient:
        scores, of_weights, to_v, of_both = self._five()
        delta = self._delta()
        p = self._weights(to_v)
        exponential = self._exponential(scores, p.tensor)
        ds = [self._weights(op) for op in of_both]
        core, distance = self._core(
            of_weights, delta, ds[0].tensor,
            lambda p: exponential in self.fusion.sources(p) and p.type == dtypes.f32,
        )  # fmt: skip
        for weights in (p, *ds):
            self._verify_between(weights.tensor, scores, of_weights)
            if weights.tensor.shape != exponential.y.shape:
                what = f"{weights.tensor.label} {text(weights.tensor.shape)}"
                raise NoMatch(what, f"the scores' dims, {text(exponential.y.shape)}")
        self._verify_hidden(exponential, p.tensor, ds[0].tensor)
        if ds[0].tensor is not ds[1].tensor:
            raise NoMatch(f"dS as {ds[0].tensor.label} and {ds[1].tensor.label}", "one of both")
        if not p.is_transposed or [w.is_transposed for w in ds] not in (
            [False, True],
            [True, False],
        ):
            raise NoMatch("products of weights that are not transposed as a gradient's", ACCEPTED)
        to_q, to_k = of_both if ds[1].is_transposed else reversed(of_both)
        made = [self._result(op) for op in (to_q, to_k, to_v)]
        q, k, v = map(self.operand, (scores.a, scores.b, of_weights.b))
        do = self.operand(of_weights.a, may_be_cut=True)
        found = Gradient(
            scores, of_weights, GradientOperands(q, k, v, do), core, delta,
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
        for op, operand, axis, is_transposed in (
            (to_v, do, _ROW, False), (to_q, k, _COLUMN, True), (to_k, q, _ROW, False),
        ):  # fmt: skip
            cut = {operand.lengths, self._verify_same(op, operand, is_transposed=is_transposed)} - {
                None
            }
            if any((axis, lengths) not in known for lengths in cut):
                what = f"{operand.tensor.label} cut to lengths that no mask of {p.tensor.label} has"
                raise NoMatch(what, "weights that are 0 past the lengths")
        self._verify_dims(found, *made)
        self._verify_outputs(found)
        return found

    def _five(self) -> tuple[Matmul, Matmul, Matmul, list[Matmul]]:
        """(S, dP, what makes dV, what makes dQ and dK)."""
        products = self.matmuls(5)
        ahead = {op: self.products_ahead(op, products) for op in products}
        first = [op for op in products if not ahead[op]]
        to_v = [op for op in products if len(ahead[op]) == 1]
        of_both = [op for op in products if ahead[op] == set(first)]
        if len(first) != 2 or len(to_v) != 1 or len(of_both) != 2:
            raise NoMatch("products that follow each other otherwise", ACCEPTED)
        (scores,) = [op for op in first if op in ahead[to_v[0]]]
        (of_weights,) = [op for op in first if op is not scores]
        return scores, of_weights, to_v[0], of_both

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
        op = self.row_sum("dO * O")
        if not all(map(self._is_light, self.fusion.sources(op.x))):
            raise NoMatch(f"{op.label} of what is not in memory", "the sum of each row of dO * O")
        return op

    def _exponential(self, scores: Matmul, p: Tensor) -> Pointwise:
        """E = exp(S - base), the one exponential of what a row's number is subtracted from."""
        found: list[Pointwise] = []
        for op in self.fusion.sources(p):
            if isinstance(op, Pointwise) and op.mode == "exp" and self._is_distance(op.x, scores):
                found.append(op)
        if len(found) != 1:
            raise NoMatch(f"{p.label} of no exponential", "exp(S - statistics) of each row")
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
                raise NoMatch(what, "P and dS that are 0 wherever exp(S - statistics) is")
