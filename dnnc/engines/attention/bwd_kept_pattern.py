"""The gradient of attention whose weights are in memory: four products, as cuDNN's guide has it for
short sequences, "Fused Attention bprop".

    P = any pointwise work on tensors in memory     dV = P' @ dO
    dP = dO @ V'          any pointwise work on dP: dropout, ...
    delta = sum(P * dP)   of rows: of any pointwise work on dP
    dS = P * (dP - delta), any pointwise work on it: scale, masks
    dQ = dS @ K           dK = dS' @ Q

The P of each line is its own: S, which the forward pass stored, has dropout's mask in its signs.
Further outputs are what an element of the scores has, dS for example, in the order F16x16, too; and
sums of that.
"""

from __future__ import annotations

from dataclasses import replace

from ... import dtypes
from ...dialect.op import Op
from ...dialect.ops import Matmul, Reduction, Reshape, Rng
from ...dialect.tensor import Tensor, is_in_tiles, text
from ...expr import Expr
from .bwd_gradient import Gradient, GradientOperands, GradientResults
from .bwd_reader import ACCEPTED, GradientReader
from .operands import NoMatch, Operand

_SHARES = (dtypes.f32, dtypes.f16, dtypes.bf16)  # types of P in P * (dP - delta)


class KeptReader(GradientReader):
    """Finds the parts."""

    products = 4

    def read(self) -> Gradient:
        of_weights, to_v, of_both = self._four()
        delta = self.row_sum("P * dP")
        ds = [self._weights(op) for op in of_both]
        dims = ds[0].tensor.shape
        core, distance = self._core(
            of_weights, delta, ds[0].tensor,
            lambda p: p.shape == dims and p.type in _SHARES and not self._is_made_of(p, of_weights),
        )  # fmt: skip
        if ds[0].tensor is not ds[1].tensor:
            raise NoMatch(f"dS as {ds[0].tensor.label} and {ds[1].tensor.label}", "one of both")
        if delta.x.shape != dims:
            raise NoMatch(f"row sums of {text(delta.x.shape)}", f"the scores' dims, {text(dims)}")
        if sorted(w.is_transposed for w in ds) != [False, True]:
            raise NoMatch("products of dS that are not transposed as a gradient's", ACCEPTED)
        to_q, to_k = of_both if ds[1].is_transposed else reversed(of_both)
        for tensor in (to_v.a, delta.x, ds[0].tensor):
            self._verify_elements(tensor, of_weights, delta)
        if of_weights not in self.fusion.sources(delta.x):
            raise NoMatch(f"{delta.label} of what is in memory", "the sum of each row of P * dP")
        made = [self._result(op) for op in (to_q, to_k, to_v)]
        q, k, v, do = map(self._plain, (to_k.b, to_q.b, of_weights.b, of_weights.a))
        if self._verify_same(to_v, do, is_transposed=False) is not None:
            raise NoMatch(f"{to_v.b.label} cut to lengths", "all rows of dO")
        found = Gradient(
            None, of_weights,
            GradientOperands(q, replace(k, is_transposed=not k.is_transposed), v, do),
            core, delta, GradientResults(*map(self._memory, made)),
            tuple(op for op in self.fusion.ops if not isinstance(op, Matmul)),
            {
                "dp": of_weights, "dv": to_v, "dq": to_q, "dk": to_k, "core": core,
                "delta": delta, "distance": distance, "gradients": self._made(ds[0].tensor),
            },
            self._kept(core.y, delta, core), tuple(self._sums(core.y, delta, core)),
            stored=self._stored(dims),
        )  # fmt: skip
        self._verify_dims(found, *made)
        self._verify_weights(found, to_v)
        self._verify_outputs(found)
        return found

    def _is_made_of(self, tensor: Tensor, product: Matmul) -> bool:
        return product in self.fusion.sources(tensor)

    def _four(self) -> tuple[Matmul, Matmul, list[Matmul]]:
        """(dP, what makes dV, what makes dQ and dK)."""
        products = self.matmuls(self.products)
        ahead = {op: self.products_ahead(op, products) for op in products}
        of_both = [op for op in products if ahead[op]]
        first = [op for op in products if any(op in others for others in ahead.values())]
        to_v = [op for op in products if op not in first and op not in of_both]
        if len(first) != 1 or len(of_both) != 2 or len(to_v) != 1:
            raise NoMatch("products that follow each other otherwise", ACCEPTED)
        return first[0], to_v[0], of_both

    def _plain(self, tensor: Tensor) -> Operand:
        """An operand whose rows are in place, all of them."""
        found = self.operand(tensor)
        if found.load is not None:
            raise NoMatch(f"packed rows of {found.tensor.label}", "rows in place")
        return found

    def _verify_elements(self, tensor: Tensor, of_weights: Matmul, delta: Reduction) -> None:
        """Sees that a tensor is made of dP and delta element by element, and of what is in
        memory."""
        for op in self.fusion.sources(tensor):
            if op in (of_weights, delta):
                continue
            is_of_products = any(
                of_weights in self.fusion.sources(t) or t is of_weights.c for t in op.read_operands
            )
            is_simple = self.keeps_rows(op) if is_of_products else self._is_of_memory(op)
            if not is_simple:
                raise NoMatch(f"{op.label} between the products", "pointwise operations")

    def _is_of_memory(self, op: Op) -> bool:
        return self.is_simple(op) or isinstance(op, Rng)

    def _verify_weights(self, found: Gradient, to_v: Matmul) -> None:
        batch, heads, queries, keys = found.score.shape
        if to_v.a.shape != (batch, heads, keys, queries):
            what = f"{to_v.a.label} {text(to_v.a.shape)}"
            raise NoMatch(what, f"P transposed, {text((batch, heads, keys, queries))}")
        _, k, _, do = found.operands
        ds = found.parts["gradients"].results[0]
        for weights, rows in ((to_v.a, do), (ds, k)):
            if weights.type != rows.tensor.type:
                what = f"{weights.label} of {weights.type}"
                raise NoMatch(what, f"{rows.tensor.type}, as of {rows.tensor.label}")
        of_rows = [op.y for op in found.sums if op.x.shape != found.score.shape]
        if of_rows:
            raise NoMatch(f"{of_rows[0].label} of rows", "sums of what scores have")

    def _stored(self, dims: tuple[Expr, ...]) -> tuple[Reshape, ...]:
        """The reshapes of memory in the order F16x16 to the scores' dims."""
        reshapes = (op for op in self.fusion.ops if isinstance(op, Reshape))
        in_memory = (op for op in reshapes if op.x not in self.fusion.producers)
        return tuple(op for op in in_memory if is_in_tiles(op.x) and op.y.shape == dims)

    def matrices(self, output: Tensor) -> Tensor:
        op = self.fusion.producers[output]
        return op.x if is_in_tiles(output) and isinstance(op, Reshape) else output
