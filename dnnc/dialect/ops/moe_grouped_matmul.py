"""Matrix products of rows that are grouped by expert, each group with its expert's weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ... import dtypes
from ...dtypes import DType
from ...errors import Status
from ...expr import Expr
from ..op import Op, arithmetic_type, attribute, operand, result
from ..tensor import Tensor, packed_strides, text

MODES = ("NONE", "GATHER", "SCATTER", "COMBINE")


class MoeGroupedMatmul(Op):
    """Each row of token times the weights of the expert that the row belongs to.

    token [1, T, K], weight [E, K, N], first_token_offset [E, 1, 1], output [1, T, N].  The rows
    of expert e are first_token_offset[e] up to that of the next expert, or to T for the last.
    The offsets are on the device: the first is 0, they ascend, and an expert may have no rows;
    what other offsets give is undefined.  Products are summed in the compute type.
    Source: cuDNN graph API, MoeGroupedMatmul operation, and the documentation of cudnn-frontend's
    moe_grouped_matmul, whose first_token_offset is [B * E, 1, 1]; here B is 1.

    Constraints:
    (C1) token is [1, T, K], weight [E, K, N].
    (C2) the mode is NONE, without token_index, token_ks and top_k_scores; top_k is ignored then.
    (C3) K of token equals K of weight.
    (C4) first_token_offset is [E, 1, 1].
    (C5) first_token_offset is INT32.
    (C6) output is [1, T, N].
    (C7) the compute type is FLOAT.
    """

    op_name = "moe_grouped_matmul"
    backend = "OPERATION_MOE_GROUPED_MATMUL"
    role = "anchor"

    token: Tensor = operand("[1, T, K], the rows of each expert together", backend="TOKEN_DESC")
    weight: Tensor = operand("[E, K, N]", backend="WEIGHT_DESC")
    first_token_offset: Tensor = operand(
        "[E, 1, 1], the first row of each expert", backend="FIRST_TOKEN_OFFSET_DESC"
    )
    token_index: Tensor | None = operand(
        "[1, T, 1], of the modes GATHER, SCATTER", backend="TOKEN_INDEX_DESC", optional=True
    )
    token_ks: Tensor | None = operand(
        "[1, T, 1], of the mode SCATTER", backend="TOKEN_KS_DESC", optional=True
    )
    output: Tensor = result("[1, T, N]", frontend="OUT_0", backend="OUTPUT_DESC")
    mode: str = attribute(
        "how rows are routed to experts", str, "NONE", backend="MODE", choices=MODES
    )
    top_k: int = attribute("experts of a token, of the mode SCATTER", int, 0, backend="TOP_K")
    top_k_scores: Tensor | None = operand("[1, T, k], of the mode COMBINE", optional=True)
    compute_type: DType = arithmetic_type("the type of the sums", backend="MATH_PREC")

    @property
    def experts(self) -> Expr:
        """E, the number of experts."""
        return self.weight.shape[0]

    @property
    def a(self) -> Tensor:
        """The operands by the names of a matmul: its A, B and C."""
        return self.token

    @property
    def b(self) -> Tensor:
        return self.weight

    @property
    def c(self) -> Tensor:
        return self.output

    def _dims(self) -> tuple[Expr, ...]:
        """The output's dims; C1 where the operands give none."""
        token, weight = self.token.shape, self.weight.shape
        if len(token) != 3 or len(weight) != 3 or token[0] != Expr.of(1):  # moe_grouped_matmul_c1
            raise self.shape_error(
                "C1",
                f"token {text(token)}, weight {text(weight)}",
                "token [1, T, K], weight [E, K, N]",
            )
        return (token[0], token[1], weight[2])

    def infer(self) -> None:
        if self.output.dims is None:
            self.output.dims = self._dims()
        if self.output.strides is None:
            self.output.strides = packed_strides(self.output.shape)

    def verify(self) -> None:
        self.require_attribute_choices()
        dims = self._dims()
        self._verify_mode()
        experts, inner, _ = self.weight.shape
        if self.token.shape[2] != inner:  # moe_grouped_matmul_c3
            raise self.shape_error(
                "C3", f"K of token is {self.token.shape[2]}, K of weight is {inner}", "one K"
            )
        wanted = (experts, Expr.of(1), Expr.of(1))
        if self.first_token_offset.shape != wanted:  # moe_grouped_matmul_c4
            raise self.shape_error(
                "C4",
                f"first_token_offset has dims {text(self.first_token_offset.shape)}",
                text(wanted),
            )
        self.require_type("C5", self.first_token_offset, [dtypes.i32])  # moe_grouped_matmul_c5
        if self.output.shape != dims:  # moe_grouped_matmul_c6
            raise self.shape_error("C6", f"output has dims {text(self.output.shape)}", text(dims))
        if self.compute_type != dtypes.f32:  # moe_grouped_matmul_c7
            raise self.error(
                "C7",
                f"compute type {self.compute_type.cudnn}",
                dtypes.f32.cudnn,
                Status.NOT_SUPPORTED_DATA_TYPE,
            )

    def _verify_mode(self) -> None:
        routing = ("token_index", "token_ks", "top_k_scores")
        given = [name for name in routing if getattr(self, name) is not None]
        if self.mode != "NONE" or given:  # moe_grouped_matmul_c2
            raise self.error(
                "C2",
                f"mode {self.mode}" + (f" with {', '.join(given)}" if given else ""),
                f"mode NONE without {', '.join(routing)}",
                Status.NOT_SUPPORTED,
            )

    def draw(self, tensor: Tensor, rng: np.random.Generator, sizes: Mapping[str, int]) -> Any:
        if tensor is not self.first_token_offset:
            return None
        rows, experts = (n.evaluate(sizes) for n in (self.token.shape[1], self.experts))
        first = np.sort(rng.integers(0, rows + 1, experts))
        first[0] = 0
        return first.reshape(experts, 1, 1)

    def reference(self, *operands: Any, **context: Any) -> Any:
        token, weight, first = operands
        rows = np.arange(token.shape[1])
        first = first.reshape(-1).astype(np.int64)
        ends = np.append(first[1:], rows.size)
        output = np.zeros((1, rows.size, weight.shape[2]))
        for start, end, own in zip(first, ends, weight.astype(np.float64), strict=True):
            is_own = (start <= rows) & (rows < end)
            output[0, is_own] += np.matmul(token[0, is_own].astype(np.float64), own)
        return output
