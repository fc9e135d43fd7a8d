"""Scaled dot-product attention, as one operation that stands for many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import dtypes
from ...dtypes import DType
from ...errors import Status
from ...expr import Expr, ceildiv
from ..op import Op, arithmetic_type, attribute, operand, result
from ..tensor import Tensor, packed_strides, stride_order, text, with_rank
from .block_mask_load import BITS, SDPA_BLOCK
from .norm_base import Norm, fill_rows
from .rng import Rng

if TYPE_CHECKING:
    from ..attention import Attention

ALIGNMENTS = ("TOP_LEFT", "BOTTOM_RIGHT")
_INTEGERS = (dtypes.i32, dtypes.i64)
_ONE = Expr.of(1)


class Sdpa(Norm):
    """O = softmax(mask(scale * Q K^T + bias)) V, per batch and head.

    Q [B, Hq, Sq, D], K [B, Hk, Skv, D], V [B, Hv, Skv, Dv], O [B, Hq, Sq, Dv], any strides; query
    head h reads head h // (Hq / Hk) of K, and so of V.  In this order, each where it is asked for:
    the scale, the bias, ALiBi (slope[h] * (column - row)), one mask of all conditions (what is
    masked counts as minus infinity), the softmax over Skv with a sink (a score that has no value),
    dropout, the product with V.  A row that may see no key gives zeros, and statistics of minus
    infinity; no row gives NaN because of masks.
    Rows and columns count from 0.  With lengths, rows below seq_len_q see columns below seq_len_kv;
    what the operands hold past the lengths, NaN too, has no part in any result.
    The diagonal is column = row (TOP_LEFT), or column = row + Skv - Sq (BOTTOM_RIGHT), with the
    lengths in place of the sizes where they are given; a row sees columns up to its diagonal +
    right_bound, from its diagonal - left_bound + 1 on.
    A block mask has a bit for each block of 128 rows and 128 columns, 1 where it is seen (operation
    block_mask_load).
    Statistics: score_max, the largest masked score (or sink); score_sum_exp, the sum of
    exponentials of scores less that; stats, score_max + log(score_sum_exp), times log2(e) where
    stats_use_log2 asks for that.
    Dropout multiplies probabilities by a mask and a scale: those that are given, or 1 with a
    probability of 1 - dropout_probability (operation rng, over [B, Hq, Sq, Skv], which rng_dump
    gets) and 1 / (1 - dropout_probability).
    A paged K or V is a container [blocks, heads, block size, D] with its table (operation
    paged_cache_load).
    Probabilities are rounded to V's type before the product with V, but not in the reference.
    Source: cuDNN graph API, fused flash attention fprop; the documentation of cudnn-frontend's
    sdpa.

    Constraints:
    (C1) Q, K, V have rank 4, one B, and HALF, BFLOAT16, FLOAT, or DOUBLE where the compute type is
         DOUBLE; D of Q is D of K; none is ragged.
    (C2) Hk and Hv are Hq or fixed numbers that divide it.
    (C3) Skv of K is that of V.
    (C4) O is [B, Hq, Sq, Dv]; statistics are [B, Hq, Sq, 1], of the types that Q may have.
    (C5) attn_scale is one number of a float type.
    (C6) bias is [1 or B, 1 or Hq, 1 or Sq, 1 or Skv], of a float type; leading dims of 1 may be
         left out.
    (C7) seq_len_q and seq_len_kv are INT32 [B, 1, 1, 1], and given together.
    (C8) left_bound is at least 1, right_bound at least 0.
    (C9) BOTTOM_RIGHT with a bound: the lengths are given, or Skv - Sq is a fixed number.
    (C10) ALiBi: Hq is a fixed number.
    (C11) page tables are INT32 [B, 1, Skv / block size rounded up, 1], their block size a power of
          two; the lengths are given.
    (C12) dropout: a probability of at least 0 and below 1 with seed and offset, INT32 or INT64 and
          one element; or mask, which broadcasts to [B, Hq, Sq, Skv], and scale, one element.
    (C13) rng_dump is [B, Hq, Sq, Skv], and of a probability.
    (C14) sink_token is [1, Hq, 1, 1], of a float type.
    (C15) the compute type is FLOAT or DOUBLE.
    (C16) block_mask is UINT8 [B or 1, Hq or 1, Sq / 128, Skv / 128 / 8], rounded up.
    """

    op_name = "sdpa"
    scalars = ("attn_scale", "seed", "offset")
    is_composite = True
    backend = "OPERATION_SDPA_FWD"

    q: Tensor = operand("[B, Hq, Sq, D]", backend="QDESC")
    k: Tensor = operand("[B, Hk, Skv, D], or [blocks, Hk, block size, D]", backend="KDESC")
    v: Tensor = operand("[B, Hv, Skv, Dv], or [blocks, Hv, block size, Dv]", backend="VDESC")
    attn_scale: Tensor | None = operand(
        "[1, 1, 1, 1], what scores are multiplied by", backend="SCALEDESC", optional=True
    )
    bias: Tensor | None = operand("[1 or B, 1 or Hq, 1 or Sq, 1 or Skv]", optional=True)
    seq_len_q: Tensor | None = operand(
        "[B, 1, 1, 1], rows of each batch", backend="SEQ_LEN_QDESC", optional=True
    )
    seq_len_kv: Tensor | None = operand(
        "[B, 1, 1, 1], keys of each batch", backend="SEQ_LEN_KVDESC", optional=True
    )
    page_table_k: Tensor | None = operand(
        "[B, 1, pages, 1], the block of each page of K",
        frontend="paged_attention_k_table",
        backend="PAGE_TABLE_KDESC",
        optional=True,
    )
    page_table_v: Tensor | None = operand(
        "[B, 1, pages, 1], the block of each page of V",
        frontend="paged_attention_v_table",
        backend="PAGE_TABLE_VDESC",
        optional=True,
    )
    seed: Tensor | None = operand("[1, 1, 1, 1], of dropout", optional=True)
    offset: Tensor | None = operand("[1, 1, 1, 1], of dropout", optional=True)
    dropout_mask: Tensor | None = operand(
        "[1 or B, 1 or Hq, 1 or Sq, 1 or Skv], 1 where a probability is kept", optional=True
    )
    dropout_scale: Tensor | None = operand(
        "[1, 1, 1, 1], what kept probabilities are multiplied by", optional=True
    )
    sink_token: Tensor | None = operand("[1, Hq, 1, 1], a score without a value", optional=True)
    block_mask: Tensor | None = operand(
        "[B or 1, Hq or 1, Sq / 128, Skv / 128 / 8], the bits of blocks that are seen",
        backend="BLOCK_MASK_DESC",
        optional=True,
    )
    o: Tensor = result("[B, Hq, Sq, Dv]", backend="ODESC")
    stats: Tensor | None = result(
        "[B, Hq, Sq, 1], the log of the sum of exponentials",
        frontend="Stats",
        backend="STATSDESC",
        optional=True,
    )
    score_max: Tensor | None = result("[B, Hq, Sq, 1]", optional=True)
    score_sum_exp: Tensor | None = result("[B, Hq, Sq, 1]", optional=True)
    rng_dump: Tensor | None = result("[B, Hq, Sq, Skv], the mask of dropout", optional=True)
    use_alibi_mask: bool = attribute("whether ALiBi is added", bool, False)
    diagonal_alignment: str = attribute(
        "where the diagonal is", str, "TOP_LEFT", choices=ALIGNMENTS
    )
    left_bound: int | None = attribute(
        "columns up to the diagonal that a row sees, the diagonal's included",
        int,
        frontend="diagonal_band_left_bound",
        optional=True,
    )
    right_bound: int | None = attribute(
        "columns past the diagonal that a row sees",
        int,
        frontend="diagonal_band_right_bound",
        optional=True,
    )
    dropout_probability: float | None = attribute("of a 0", float, optional=True)
    max_seq_len_kv: int | None = attribute(
        "Skv of a paged K and V (default: of all pages)",
        int,
        frontend="paged_attention_max_seq_len_kv",
        optional=True,
    )
    stats_use_log2: bool = attribute("whether stats are logarithms of base 2", bool, False)
    compute_type: DType = arithmetic_type()

    @classmethod
    def left_out(cls, values: Mapping[str, Any]) -> tuple[str, ...]:
        optional = (field.name for field in cls.fields_of("result") if field.optional)
        return tuple(name for name in optional if values.get(name) is None)

    # ---- types

    @property
    def operand_types(self) -> tuple[DType, ...]:
        """Types that Q, K and V may have."""
        return self.statistics_types

    @property
    def statistics_types(self) -> tuple[DType, ...]:
        """Types that statistics may have; DOUBLE where the arithmetic is."""
        double = (dtypes.f64,) if self.compute_type == dtypes.f64 else ()
        return (dtypes.f16, dtypes.bf16, dtypes.f32, *double)

    # ---- sizes

    @property
    def heads(self) -> Expr:
        """Hq."""
        return self.q.shape[1]

    @property
    def rows(self) -> Expr:
        """Sq."""
        return self.q.shape[2]

    @property
    def columns(self) -> Expr:
        """Skv."""
        tables = ((self.page_table_k, self.k), (self.page_table_v, self.v))
        for table, tensor in tables:
            if table is None:
                return tensor.shape[2]
        if self.max_seq_len_kv is not None:
            return Expr.of(self.max_seq_len_kv)
        assert self.page_table_k is not None
        return self.page_table_k.shape[2] * self.k.shape[2]

    @property
    def score_dims(self) -> tuple[Expr, ...]:
        """[B, Hq, Sq, Skv]."""
        return (*self.q.shape[:3], self.columns)

    @property
    def row_dims(self) -> tuple[Expr, ...]:
        """[B, Hq, Sq, 1]."""
        return (*self.q.shape[:3], _ONE)

    @property
    def padded(self) -> tuple[Tensor, ...]:
        """The tensors whose sequences may not be packed."""
        return (self.q, self.k, self.v, self.o)

    # ---- inference and checks

    def infer(self) -> None:
        self._verify_ranks()
        if self.o.dims is None:
            self.o.dims = (*self.q.shape[:3], self.v.shape[3])
        if self.o.strides is None:
            self.o.strides = packed_strides(self.o.shape)
        for tensor in (self.stats, self.score_max, self.score_sum_exp):
            fill_rows(tensor, self.row_dims, dtypes.f32)
        fill_rows(self.rng_dump, self.score_dims, dtypes.f32)

    def inner_strides(self, tensor: Tensor) -> tuple[Expr, ...]:
        if tensor is not self.o:
            return packed_strides(tensor.shape)
        return packed_strides(tensor.shape, stride_order(self.q.shape, self.q.layout))

    def _verify_ranks(self) -> None:
        for tensor in (self.q, self.k, self.v):  # sdpa_c1
            if tensor.rank != 4:
                raise self.shape_error(
                    "C1", f"{tensor.label} has dims {text(tensor.shape)}", "rank 4"
                )
        tables = ((self.page_table_k, "page_table_k"), (self.page_table_v, "page_table_v"))
        for table, name in tables:
            if table is not None and table.rank != 4:  # sdpa_c11
                raise self.shape_error(
                    "C11", f"{name} has dims {text(table.shape)}", "[B, 1, pages, 1]"
                )

    def verify(self) -> None:
        self.require_attribute_choices()
        self._verify_ranks()
        self._verify_inputs()
        self._verify_results()
        self._verify_one_number("C5", "attn_scale", self.attn_scale)  # sdpa_c5
        self._verify_broadcast("C6", "bias", self.bias)  # sdpa_c6
        self._verify_lengths()
        self._verify_band()
        self._verify_pages()
        self._verify_dropout()
        self._verify_block_mask()
        wanted = (_ONE, self.heads, _ONE, _ONE)
        self.require_dims("C14", wanted, self.sink_token)  # sdpa_c14
        self._verify_float("C14", "sink_token", self.sink_token)  # sdpa_c14
        self.require_float_arithmetic("C15")  # sdpa_c15

    def _verify_inputs(self) -> None:
        for tensor in self.padded:
            if tensor.ragged_offset is not None:  # sdpa_c1
                raise self.error(
                    "C1",
                    f"{tensor.label} is ragged: sequences packed at offsets",
                    "padded sequences, as ragged_load gives them and pygraph's sdpa makes of them",
                    Status.NOT_SUPPORTED_LAYOUT,
                )
        batch, heads, _, depth = self.q.shape
        for tensor, table in ((self.k, self.page_table_k), (self.v, self.page_table_v)):
            self.require_type("C1", tensor, self.operand_types)  # sdpa_c1
            if table is None and tensor.shape[0] != batch:  # sdpa_c1
                raise self.shape_error(
                    "C1", f"{tensor.label} has {tensor.shape[0]} batches", f"{batch}, as Q"
                )
            own = tensor.shape[1]
            divides = bool(own.constant) and (heads.constant or 0) % (own.constant or 1) == 0
            if own != heads and not (divides and heads.constant):  # sdpa_c2
                raise self.shape_error(
                    "C2",
                    f"{tensor.label} has {own} heads",
                    f"{heads}, or a fixed number that divides it",
                )
        self.require_type("C1", self.q, self.operand_types)  # sdpa_c1
        if self.k.shape[3] != depth:  # sdpa_c1
            raise self.shape_error("C1", f"D of Q is {depth}, D of K is {self.k.shape[3]}", "one D")
        is_paged = self.page_table_k is not None or self.page_table_v is not None
        if not is_paged and self.k.shape[2] != self.v.shape[2]:  # sdpa_c3
            raise self.shape_error(
                "C3", f"Skv of K is {self.k.shape[2]}, of V {self.v.shape[2]}", "one Skv"
            )

    def _verify_results(self) -> None:
        self.require_dims("C4", (*self.q.shape[:3], self.v.shape[3]), self.o)  # sdpa_c4
        statistics = (self.stats, self.score_max, self.score_sum_exp)
        self.require_dims("C4", self.row_dims, *statistics)  # sdpa_c4
        for tensor in statistics:
            if tensor is not None:
                self.require_type("C4", tensor, self.statistics_types)  # sdpa_c4

    def _verify_float(self, constraint: str, name: str, tensor: Tensor | None) -> None:
        if tensor is not None and not tensor.type.is_float:
            raise self.error(
                constraint,
                f"{name} has data type {tensor.type}",
                "a float type",
                Status.NOT_SUPPORTED_DATA_TYPE,
            )

    def _verify_one_number(self, constraint: str, name: str, tensor: Tensor | None) -> None:
        self.require_one_element(constraint, name, tensor)
        self._verify_float(constraint, name, tensor)

    def _verify_broadcast(self, constraint: str, name: str, tensor: Tensor | None) -> None:
        """A tensor of floats that broadcasts to the scores."""
        if tensor is None:
            return
        dims = self.score_dims
        fits = tensor.rank <= 4 and all(
            own in (whole, _ONE)
            for own, whole in zip(with_rank(tensor.shape, 4), dims, strict=True)
        )
        if not fits:
            raise self.shape_error(
                constraint,
                f"{name} has dims {text(tensor.shape)}",
                f"{text(dims)}, or 1 in place of some; leading dims of 1 may be left out",
            )
        self._verify_float(constraint, name, tensor)

    def _verify_lengths(self) -> None:
        why = "seq_len_q and seq_len_kv, or neither"
        self.require_together("C7", why, self.seq_len_q, self.seq_len_kv)  # sdpa_c7
        dims = (self.q.shape[0], _ONE, _ONE, _ONE)
        for tensor in (self.seq_len_q, self.seq_len_kv):
            if tensor is not None:
                self.require_dims("C7", dims, tensor)  # sdpa_c7
                self.require_type("C7", tensor, (dtypes.i32,))  # sdpa_c7

    def _verify_band(self) -> None:
        for name, low in (("left_bound", 1), ("right_bound", 0)):
            value = getattr(self, name)
            if value is not None and value < low:  # sdpa_c8
                raise self.error("C8", f"{name}={value}", f"{low} or more, or none")
        if self.diagonal_shift is None and self.seq_len_kv is None:  # sdpa_c9
            raise self.error(
                "C9",
                f"{self.diagonal_alignment} of {self.rows} rows and {self.columns} columns",
                "seq_len_q and seq_len_kv, or sizes that differ by a fixed number",
                Status.NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE,
            )
        if self.use_alibi_mask and self.heads.constant is None:  # sdpa_c10
            raise self.error(
                "C10",
                f"ALiBi of {self.heads} heads, known at run time only",
                "a fixed number of heads",
                Status.NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE,
            )

    @property
    def diagonal_shift(self) -> int | None:
        """Where the diagonal meets row 0, by the sizes; None where they leave that open."""
        has_band = self.left_bound is not None or self.right_bound is not None
        if self.diagonal_alignment == "TOP_LEFT" or not has_band:
            return 0
        return (self.columns - self.rows).constant

    def _verify_pages(self) -> None:
        tables = (
            ("page_table_k", self.page_table_k, self.k),
            ("page_table_v", self.page_table_v, self.v),
        )
        for name, table, container in tables:
            if table is None:
                continue
            block = container.shape[2].constant or 0
            if block < 1 or block & (block - 1):  # sdpa_c11
                raise self.error("C11", f"blocks of {container.shape[2]} keys", "a power of two")
            pages = ceildiv(self.columns, block)
            self.require_dims("C11", (self.q.shape[0], _ONE, pages, _ONE), table)  # sdpa_c11
            self.require_type("C11", table, (dtypes.i32,))  # sdpa_c11
            if self.seq_len_kv is None:  # sdpa_c11
                raise self.error("C11", f"{name} without lengths", "seq_len_q and seq_len_kv")

    def _verify_dropout(self) -> None:
        drawn = (self.dropout_probability, self.seed, self.offset)
        given = (self.dropout_mask, self.dropout_scale)
        counts = [sum(value is not None for value in values) for values in (drawn, given)]
        if counts not in ([0, 0], [3, 0], [0, 2]):  # sdpa_c12
            raise self.error(
                "C12",
                f"{counts[0]} of probability, seed, offset and {counts[1]} of mask, scale",
                "all of the one or of the other, or none",
            )
        if counts[0]:
            self._verify_drawn()
        self._verify_broadcast("C12", "dropout_mask", self.dropout_mask)  # sdpa_c12
        self._verify_one_number("C12", "dropout_scale", self.dropout_scale)  # sdpa_c12
        if self.rng_dump is not None:
            if not counts[0]:  # sdpa_c13
                raise self.error("C13", "rng_dump", "dropout of (probability, seed, offset)")
            self.require_dims("C13", self.score_dims, self.rng_dump)  # sdpa_c13

    def _verify_block_mask(self) -> None:
        if self.block_mask is None:
            return
        self.require_type("C16", self.block_mask, (dtypes.ui8,))  # sdpa_c16
        batch, heads, rows, columns = self.score_dims
        dims = (ceildiv(rows, SDPA_BLOCK), ceildiv(columns, SDPA_BLOCK * BITS))
        own = self.block_mask.shape
        is_broadcast = len(own) == 4 and own[0] in (batch, _ONE) and own[1] in (heads, _ONE)
        if not is_broadcast or own[2:] != dims:  # sdpa_c16
            raise self.shape_error(
                "C16",
                f"block_mask has dims {text(own)}",
                f"{text((batch, heads, *dims))}, or 1 in place of the first two",
            )

    def _verify_drawn(self) -> None:
        probability = self.dropout_probability or 0.0
        if not 0 <= probability < 1:  # sdpa_c12
            raise self.error("C12", f"dropout_probability={probability}", "0 <= p < 1")
        for name in ("seed", "offset"):
            self.require_one_element("C12", name, getattr(self, name))  # sdpa_c12
            self.require_type("C12", getattr(self, name), _INTEGERS)  # sdpa_c12

    # ---- what it stands for

    def attention(self, tensor_type: type[Tensor]) -> Attention:
        """The builder of its steps; tensor_type: what new tensors are."""
        from ..attention import Attention  # it is written with operations that are listed after

        return Attention(self, tensor_type)

    def expand(self) -> Sequence[Op]:
        from ..attention import steps_of  # it is written with operations that are listed after

        return steps_of(self)

    def drawn_mask(self, seed: Tensor, offset: Tensor, y: Tensor) -> Rng:
        """The operation that draws what dropout keeps."""
        y.dims = self.score_dims
        kept = 1.0 - (self.dropout_probability or 0.0)
        values: dict[str, Any] = {"distribution": "BERNOULLI", "bernoulli_probability": kept}
        return Rng(seed=seed, offset=offset, y=y, **values)

    # ---- reference

    def reference(self, *operands: Any, **context: Any) -> Any:
        fields = (field.name for field, _ in self.tensors("operand"))
        given = dict(zip(fields, operands, strict=True))
        found = self.computed(given, context.get("sizes", {}))
        return tuple(found[field.name] for field, _ in self.tensors("result"))

    def computed(self, given: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
        """Every result that it may have, by name, in float64; given: operands by name."""
        from .sdpa_reference import attention

        return attention(self, given, sizes)

    def draw(self, tensor: Tensor, rng: Any, sizes: Mapping[str, int]) -> Any:
        """Lengths and page tables whose values are in range."""
        dims = [extent.evaluate(sizes) for extent in tensor.shape]
        if tensor is self.seq_len_q:
            return rng.integers(0, self.rows.evaluate(sizes) + 1, dims)
        if tensor is self.seq_len_kv:
            return rng.integers(0, self.columns.evaluate(sizes) + 1, dims)
        for table, container in ((self.page_table_k, self.k), (self.page_table_v, self.v)):
            if tensor is table:
                return rng.integers(0, container.shape[0].evaluate(sizes), dims)
        if tensor is self.block_mask:
            return rng.integers(0, 256, dims)
        if tensor is self.dropout_mask:
            return rng.integers(0, 2, dims).astype(np.float64)
        return None
