"""Parts that readers of attention's gradient share: products, dS, delta, results, outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ... import dtypes
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
from ..surface import listed
from .bwd_gradient import Gradient
from .operands import NoMatch, Operand, OperandReader, exchanges_last, regroups

ACCEPTED = "the products of attention's gradient, pointwise operations between them"


def _is_amax(op: Op) -> bool:
    return isinstance(op, Reduction) and op.mode == "amax"


@dataclass(frozen=True, eq=False)
class _Weights:
    """The first operand of a product, before views.  is_transposed: its last axes are
    exchanged.  is_joined: rows of heads that share follow each other."""

    tensor: Tensor
    is_transposed: bool
    is_joined: bool


class GradientReader(OperandReader):
    """Verifies the parts, and that there are no others."""

    # ---- products

    def matmuls(self, count: int) -> list[Matmul]:
        """The products, which are so many, beside nothing heavy."""
        anchors = [
            op for op in self.fusion.ops if op.role == "anchor" and not isinstance(op, RaggedStore)
        ]
        products = [op for op in anchors if isinstance(op, Matmul)]
        if len(products) != count or len(anchors) != count:
            raise NoMatch(listed(anchors, "no matmul"), ACCEPTED)
        return products

    def products_ahead(self, op: Matmul, products: Sequence[Op]) -> set[Op]:
        above = self.fusion.sources(op.a) | self.fusion.sources(op.b)
        return {other for other in products if other in above}

    def _weights(self, op: Matmul) -> _Weights:
        tensor, is_transposed, is_joined = op.a, False, False
        while (made := self.fusion.producers.get(tensor)) is not None:
            if isinstance(made, Transpose) and exchanges_last(made):
                is_transposed = not is_transposed
            elif isinstance(made, Reshape) and made.exchanges_last:
                is_transposed = not is_transposed
            elif isinstance(made, Reshape) and made.joins_heads and not is_joined:
                is_joined = True
            elif not (isinstance(made, Reshape) and regroups(made)):
                break
            tensor = made.x
        return _Weights(tensor, is_transposed, is_joined)

    def _made(self, tensor: Tensor) -> Op:
        """The operation that makes a tensor, before mere copies."""
        op = self.fusion.producers[tensor]
        while isinstance(op, Pointwise) and op.mode == "identity" and op.x.type == op.y.type:
            op = self.fusion.producers[op.x]
        return op

    def _result(self, op: Matmul) -> Tensor:
        """The output that a product makes, by way of views of its batch and products by numbers
        alone, before its rows are packed."""
        tensor, is_product = op.c, True
        while tensor not in self.fusion.outputs:
            found = self.fusion.readers.get(tensor, ())
            readers = [o for o in found if not _is_amax(o)]
            is_product = is_product and len(readers) == len(found)
            if len(readers) == 1 and isinstance(readers[0], RaggedStore):
                if not is_product:
                    raise NoMatch(
                        f"{tensor.label}, scaled or with its amax, to packed rows",
                        "rows in place, or products as they are",
                    )
                return tensor
            if len(readers) != 1 or not self._keeps_result(readers[0]):
                raise NoMatch(f"{tensor.label}, which is no output", "dQ, dK and dV as outputs")
            is_product = is_product and self._multiple(readers[0]) is None
            tensor = readers[0].results[0]
        if self.fusion.readers.get(tensor):
            raise NoMatch(f"{tensor.label}, which others read", "dQ, dK and dV as outputs alone")
        return tensor

    def _keeps_result(self, op: Op) -> bool:
        """Whether a result is the same but for a number that it is multiplied by."""
        return (isinstance(op, Reshape) and regroups(op)) or self._multiple(op) is not None

    def _memory(self, result: Tensor) -> Tensor:
        """The output that has a result's rows."""
        readers = self.fusion.readers.get(result, ())
        return readers[0].packed if readers and isinstance(readers[0], RaggedStore) else result

    def _verify_same(self, op: Matmul, operand: Operand, *, is_transposed: bool) -> Tensor | None:
        """Sees that a product's second operand is one that was multiplied before; gives the lengths
        past which its rows are zeros."""
        tensor = op.b
        made = self.fusion.producers.get(tensor)
        if isinstance(made, Reshape) and made.joins_heads:
            tensor = made.x
        found = self.operand(tensor, may_be_cut=True)
        is_same = found.tensor is operand.tensor and found.load is operand.load
        if not is_same or found.is_transposed != (operand.is_transposed ^ is_transposed):
            what = f"{op.label} by {found.tensor.label}"
            raise NoMatch(what, f"by {operand.tensor.label}, as in the other product")
        return found.lengths

    # ---- between the products

    def row_sum(self, what: str) -> Reduction:
        """The one reduction that is no output, of each row; what: it adds up."""
        found = [op for op in self._reductions() if self._total(op) is None]
        if len(found) != 1:
            raise NoMatch(listed(found, "no reductions"), f"one sum of each row, of {what}")
        (op,) = found
        if op.mode != "add" or op.axes != (op.x.rank - 1,):
            raise NoMatch(f"{op.mode} over axes {list(op.axes)}", f"the sum of each row of {what}")
        if {op.x.type, op.y.type, op.compute_type} != {dtypes.f32}:
            raise NoMatch(f"{op.label} of {op.x.type}", "a sum in FLOAT")
        return op

    def _reductions(self) -> list[Reduction]:
        return [op for op in self.fusion.ops if isinstance(op, Reduction)]

    def _is_light(self, op: Op) -> bool:
        """Whether rows' numbers may be made so, of what lies in memory."""
        return isinstance(op, Pointwise | RaggedLoad)

    def _core(
        self, of_weights: Matmul, delta: Reduction, ds: Tensor, is_share: Callable[[Tensor], bool]
    ) -> tuple[Pointwise, Pointwise]:
        """P * (dP - delta), and the distance in it; is_share: whether a tensor may be P."""
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
                    and is_share(share)
                    and {made.y.type, op.y.type} == {dtypes.f32}
                ):
                    found.append((op, made))
        if len(found) != 1:
            raise NoMatch(f"{ds.label} without P * (dP - delta)", ACCEPTED)
        readers = [op for op in self.fusion.ops if delta in self._reads(op)]
        rows = [op for op in readers if op.results[0].shape[-1].constant != 1]
        # Scores of a single key look like rows' numbers: an engine says that it declines these.
        if len(rows) != 1 and found[0][0].y.shape[-1].constant != 1:
            raise NoMatch("row sums that others read", "delta in P * (dP - delta) alone")
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
                raise NoMatch(f"{op.label} between the products", "pointwise operations")

    # ---- further outputs

    def _kept(self, score: Tensor, delta: Reduction, core: Pointwise) -> tuple[Tensor, ...]:
        """Outputs that have an element for each score, which sums over one entry may have, too."""
        found: list[Tensor] = []
        totals = [self._total(op) for op in self._reductions()]
        for output in self.fusion.outputs:
            if output in totals:
                continue
            tensor = self.matrices(output)
            op = self.fusion.producers[tensor]
            is_made_so = isinstance(op, Pointwise | Rng)
            if is_made_so and tensor.shape == score.shape:
                self._verify_element(tensor, delta, core)
                found.append(output)
        return tuple(found)

    def matrices(self, output: Tensor) -> Tensor:
        """The tensor of the scores' dims that an output holds; another output itself."""
        return output

    def _sums(self, score: Tensor, delta: Reduction, core: Pointwise) -> Iterator[Reduction]:
        """The reductions, each an output, that add up elements that scores have, or rows."""
        of_rows = (*score.shape[:-1], Expr.of(1))
        for op in self._reductions():
            if _is_amax(op) or self._total(op) is None:
                continue
            if op.mode != "add" or {op.x.type, op.compute_type} != {dtypes.f32}:
                raise NoMatch(f"{op.mode} of {op.x.type}, {op.label}", "sums in FLOAT")
            if op.x.shape == score.shape:
                self._verify_element(op.x, delta, core)
            elif op.x.shape != of_rows:
                what = f"{op.label} of {text(op.x.shape)}"
                raise NoMatch(what, f"sums of {text(score.shape)} or {text(of_rows)}")
            elif not all(o is delta or self._is_light(o) for o in self.fusion.sources(op.x)):
                raise NoMatch(f"{op.label} of what rows do not have", "pointwise work on rows")
            yield op

    def _total(self, op: Reduction) -> Tensor | None:
        """The output that a reduction gives, by way of pointwise work with numbers alone."""
        tensor = op.y
        while True:
            readers = self.fusion.readers.get(tensor, ())
            if tensor in self.fusion.outputs:
                if readers:
                    raise NoMatch(f"{op.label}, which others read", "sums as outputs alone")
                return tensor
            if len(readers) != 1 or not isinstance(readers[0], Pointwise):
                return None
            others = [t for t in readers[0].operands if t is not tensor]
            if readers[0].y.shape != tensor.shape or not all(map(self._is_of_numbers, others)):
                return None
            tensor = readers[0].y

    def _is_of_numbers(self, tensor: Tensor) -> bool:
        """Whether it is one element, made of such in memory."""
        made_of = (t for op in self.fusion.sources(tensor) for t in (*op.operands, *op.results))
        return all(t.elements().constant == 1 for t in (tensor, *made_of))

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
                raise NoMatch(f"{what} over axes {list(op.axes)}", f"{accepted} in FLOAT")
            if op.y not in self.fusion.outputs or self.fusion.readers.get(op.y):
                raise NoMatch(f"{what}, which others read", accepted)
            if not any(op.x in self._along(product) for product in results):
                if op.x.shape != score.shape:
                    raise NoMatch(f"{what} of {op.x.label}", accepted)
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
                raise NoMatch(f"{tensor.label} of row sums", "delta in P * (dP - delta) alone")
            if op is None or op is core or op in first:
                continue
            above = {o for t in op.read_operands for o in self.fusion.sources(t)}
            if not above.isdisjoint(first) and not self.keeps_rows(op):
                raise NoMatch(f"{op.label} between the products", "pointwise operations")
            pending += op.read_operands

    # ---- dims

    def _verify_dims(self, found: Gradient, dq: Tensor, dk: Tensor, dv: Tensor) -> None:
        dims = found.score.shape
        if len(dims) != 4:
            raise NoMatch(f"scores {text(dims)}", "four axes")
        batch, heads = dims[:2]
        q, k, v, do = found.operands
        for operand in (q, do, k, v):
            own = operand.batch
            is_paged = operand.load is not None and not isinstance(operand.load, RaggedLoad)
            if len(own) != 2 or own[0] != batch or is_paged:
                what = f"{operand.tensor.label} {text(operand.tensor.shape)}"
                raise NoMatch(what, "[B, H, S, D], rows in place or packed")
        if q.batch != dims[:2] or do.batch != dims[:2]:
            raise NoMatch(f"heads of {q.tensor.label}", f"{heads}, as of the scores")
        rows = {dq: (batch, heads, dims[2])}
        for name, operand, result in (("K", k, dk), ("V", v, dv)):
            own = result.shape[1] if result.rank == 4 else heads
            is_part = own == heads or bool(
                own.constant and heads.constant and heads.constant % own.constant == 0
            )
            if not is_part:
                raise NoMatch(f"{own} heads of {name}", f"{heads} heads, or a part of them")
            # Heads of a stride of 0 are one head in memory, whose gradients are still apart.
            if operand.batch[1] != own and operand.batch[1].constant != 1:
                what = f"{result.label} of {own} heads, {name} of {operand.batch[1]}"
                raise NoMatch(what, f"as many heads, or one of {name}")
            rows[result] = (batch, own, dims[3])
        for result, wanted in rows.items():
            if result.rank != 4 or result.shape[:3] != wanted:
                what = f"{result.label} {text(result.shape)}"
                raise NoMatch(what, f"[{', '.join(map(str, wanted))}, elements of a head]")
        delta = (*dims[:3], Expr.of(1))
        if found.delta.y.shape != delta:
            raise NoMatch(f"delta {text(found.delta.y.shape)}", text(delta))

    def _verify_outputs(self, found: Gradient) -> None:
        known = {*found.results, *found.kept}
        known |= {self._total(op) for op in (*found.sums, *found.largest)}
        for output in self.fusion.outputs:
            if output not in known:
                supported = "dQ, dK, dV, what scores have, sums of that or of rows"
                raise NoMatch(f"output {output.label}", supported)
            store = self.fusion.producers[output]
            if isinstance(store, RaggedStore):
                self._verify_places(store)

    def _verify_places(self, store: RaggedStore) -> None:
        """Where rows go does not depend on the products."""
        for tensor in (store.offset, store.sequence):
            if not all(self.is_simple(op) for op in self.fusion.sources(tensor)):
                what = f"{tensor.label} of {store.label}"
                raise NoMatch(what, "offsets and lengths in memory, or made of such")
