# pyright: basic
"""`pygraph.sdpa`: attention under cudnn-frontend's names, with the older spellings.

What a call may not say is refused here; what its tensors may not be, by the operation `sdpa`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from .. import dtypes
from ..dialect.attention import Attention
from ..dialect.op import Field
from ..dialect.ops import Sdpa
from ..dialect.tensor import Tensor, text
from ..errors import DnncError, Status
from ..expr import Size
from ..places import current_place
from . import enums
from .argument_types import (
    AttentionImplementation,
    DataType,
    DiagonalAlignment,
    Dropout,
    Operand,
    ScoreModification,
)
from .graph_tensor import GraphTensor
from .methods import compute_type_of
from .ragged import Side, as_int32, side_of

_RANK = 4


def sdpa(
    self: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_inference: bool | None = None,
    attn_scale: Operand | None = None,
    bias: Tensor | None = None,
    block_mask: Tensor | None = None,
    use_alibi_mask: bool = False,
    use_padding_mask: bool = False,
    seq_len_q: Tensor | None = None,
    seq_len_kv: Tensor | None = None,
    use_causal_mask: bool = False,
    use_causal_mask_bottom_right: bool = False,
    sliding_window_length: int | None = None,
    diagonal_alignment: DiagonalAlignment = enums.diagonal_alignment.TOP_LEFT,
    diagonal_band_left_bound: int | None = None,
    diagonal_band_right_bound: int | None = None,
    dropout: Dropout | None = None,
    rng_dump: Tensor | None = None,
    paged_attention_k_table: Tensor | None = None,
    paged_attention_v_table: Tensor | None = None,
    paged_attention_max_seq_len_kv: int | None = None,
    compute_data_type: DataType | None = None,
    name: str = "",
    score_mod: ScoreModification | None = None,
    generate_stats: bool | None = None,
    implementation: AttentionImplementation = enums.attention_implementation.AUTO,
    score_max: Tensor | None = None,
    score_sum_exp: Tensor | None = None,
    sink_token: Tensor | None = None,
    unfuse_fma: bool = False,
    *,
    max_total_seq_len_q: Size | None = None,
    max_total_seq_len_kv: Size | None = None,
    cu_seq_len_q: Tensor | None = None,
    cu_seq_len_kv: Tensor | None = None,
    stats_use_log2: bool = False,
    softmax_precision: DataType | None = None,
    attn_scale_prefolded: bool = False,
    kv_mask: Tensor | None = None,
) -> tuple[GraphTensor, GraphTensor | None]:
    """Scaled dot-product attention, softmax(attn_scale * Q K^T ...) V; gives [O, stats or None].

    q [B, Hq, Sq, D], k [B, Hk, Skv, D], v [B, Hv, Skv, Dv], O [B, Hq, Sq, Dv], any strides; Hk and
    Hv divide Hq.  What each part means, and the order in which they apply: operation sdpa.
    generate_stats: whether stats [B, Hq, Sq, 1], FLOAT, are made; it, or is_inference, which is its
    negation, must be given.  attn_scale: a number or a tensor of one element; none means 1.
    score_mod(graph, scores): operations of the graph that make other scores of the scaled ones,
    ahead of bias, ALiBi and masks; the graph then holds the operations that attention stands for in
    place of the one.  use_causal_mask, use_causal_mask_bottom_right: an alignment and a right bound
    of 0, whatever else these are given as; sliding_window_length: a left bound.
    Packed sequences: q, k, v and results with a ragged offset, declared as if they were padded;
    memory has the rows of all sequences, max_total_seq_len_q or _kv of them (default B * S), and
    strides but that of B hold.  Lengths must be given, or cu_seq_len_q and cu_seq_len_kv, INT32
    [B + 1, 1, 1, 1]: where each sequence begins and the last ends, in rows, of tensors that are all
    packed then, O too.
    dropout: (probability, seed, offset) or (mask, scale).  rng_dump, score_max, score_sum_exp:
    tensors of the graph that are written.  implementation: any of cuDNN's; all are the same here.
    Calls that contradict themselves, and missing tensors, are BAD_PARAM (a ValueError); what dnnc
    has not is NOT_SUPPORTED (cudnnGraphNotSupportedError).
    """
    call = Call(self, name)
    call.refuse_what_is_not_there(
        unfuse_fma=unfuse_fma,
        softmax_precision=softmax_precision,
        attn_scale_prefolded=attn_scale_prefolded,
        kv_mask=kv_mask,
    )
    enums.member_of("implementation", implementation, enums.attention_implementation)
    made = call.attend(
        Sdpa,
        {
            "q": q,
            "k": k,
            "v": v,
            "attn_scale": attn_scale,
            "bias": bias,
            "sink_token": sink_token,
            "block_mask": block_mask,
        },
        lengths=(use_padding_mask, (seq_len_q, seq_len_kv), (cu_seq_len_q, cu_seq_len_kv)),
        totals=(max_total_seq_len_q, max_total_seq_len_kv),
        has_stats=call.wants_stats(generate_stats, is_inference),
        diagonal=(
            use_causal_mask,
            use_causal_mask_bottom_right,
            diagonal_alignment,
            diagonal_band_right_bound,
        ),
        window=diagonal_band_left_bound if sliding_window_length is None else sliding_window_length,
        pages=(paged_attention_k_table, paged_attention_v_table, paged_attention_max_seq_len_kv),
        dropout=dropout,
        score_mod=score_mod,
        results={"rng_dump": rng_dump, "score_max": score_max, "score_sum_exp": score_sum_exp},
        use_alibi_mask=bool(use_alibi_mask),
        stats_use_log2=bool(stats_use_log2),
        compute_type=compute_type_of(self, compute_data_type, Sdpa),
    )
    return made[0], made[1]


# What only cudnn-frontend's other engines have, and what to do instead.
_ABSENT = {
    "unfuse_fma": "False: how scores are rounded is the engine's",
    "softmax_precision": "none: a softmax in FLOAT, or DOUBLE by compute_data_type",
    "attn_scale_prefolded": "False, and attn_scale",
    "kv_mask": "a bias or a score_mod of minus infinity",
}


(_STATS,) = (field for field in Sdpa.fields_of("result") if field.name == "stats")


class Call:
    """One call of `sdpa`, `sdpa_fp8` or `sdpa_backward` on a graph."""

    def __init__(self, graph: Any, name: str, method: str = "sdpa"):
        self.graph = graph
        self.name = name
        self.label = graph._label(method, name)
        self.method = method

    def error(self, what: str, supported: str, status: Status = Status.BAD_PARAM) -> DnncError:
        where = f"{self.method} '{self.name}'" if self.name else self.method
        return DnncError(status, what, supported, where)

    def attend(
        self,
        kind: type[Sdpa],
        operands: Mapping[str, Any],
        *,
        lengths: tuple[bool, tuple[Any, Any], tuple[Any, Any]],
        totals: tuple[Any, Any] = (None, None),
        has_stats: bool,
        diagonal: tuple[bool, bool, Any, int | None],
        window: int | None,
        pages: tuple[Any, Any, int | None],
        dropout: Sequence[Any] | None,
        score_mod: Callable[[Any, Any], Any] | None,
        results: Mapping[str, Any],
        **attributes: Any,
    ) -> list[Any]:
        """Adds the operation, or what it stands for; its results, in order.

        lengths: (whether they are asked for, those of queries and keys, cumulative ones).
        diagonal: (causal, causal from the end, alignment, right bound).  window: left bound.
        pages: (tables of K and V, keys at most).  results: the caller's own tensors.
        """
        given = (lengths[0], *lengths[1], *lengths[2])
        if any(table is not None for table in pages[:2]) and not any(
            value is not None and value is not False for value in given
        ):
            lengths = (True, self.whole_lengths(operands, pages), (None, None))
        if pages[2] is not None and all(table is None for table in pages[:2]):
            what = f"paged_attention_max_seq_len_kv={pages[2]!r} without page tables"
            raise self.error(what, "paged_attention_k_table and paged_attention_v_table")
        band = self.band(diagonal, window)
        queries, keys = self.sides(lengths, totals, is_modified=score_mod is not None)
        of_k, of_v = self.page_tables(pages, operands, keys)
        pages = (of_k, of_v, pages[2])
        tensors = {
            **operands,
            "q": self.loaded(operands["q"], queries),
            "k": self.loaded(operands["k"], keys, pages[0]),
            "v": self.loaded(operands["v"], keys, pages[1]),
            "page_table_k": pages[0],
            "page_table_v": pages[1],
        }
        values: dict[str, Any] = {
            **self.shared(tensors, queries, keys, dropout, band),
            "stats": self.result(_STATS) if has_stats else None,
            **results,
            "max_seq_len_kv": pages[2],
            **attributes,
        }
        if score_mod is None:
            made = self.graph._append(kind, values, self.label)
        else:
            self.require_function("score_mod", score_mod)
            made, attention = self.begun(kind, values)
            scores = attention.scores()
            self.add(attention)
            attention.finish(self.modified(attention, scores, score_mod))
            self.add(attention)
        packing = self.graph._packing
        packing.may_be_stored(made[0], queries)
        for statistic in (made[1], values["score_max"], values["score_sum_exp"]):
            packing.may_be_stored(statistic, queries.of_statistics())
        return made

    def whole_lengths(
        self, operands: Mapping[str, Any], pages: tuple[Any, Any, int | None]
    ) -> tuple[Any, Any]:
        """Lengths of paged sequences that are as long as their sizes say."""
        tables = zip(pages, (operands["k"], operands["v"]), strict=False)
        table, container = next((t, c) for t, c in tables if t is not None)
        known = [getattr(t, "dims", None) for t in (operands["q"], table, container)]
        if not all(dims is not None and len(dims) == _RANK for dims in known):
            raise self.error("a page table, of dims that are not known", "rank 4, and lengths")
        (batch, _, rows, _), (_, _, count, _), (_, _, size, _) = cast("list[Any]", known)
        keys = (count * size).constant if pages[2] is None else pages[2]
        if rows.constant is None or keys is None:
            what = f"page tables without a padding mask, of {rows} rows and {count * size} keys"
            supported = "use_padding_mask=True with seq_len_q and seq_len_kv, or fixed sizes"
            raise self.error(what, supported, Status.NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE)
        queries, columns = (
            self.graph.constant(n, [batch, 1, 1, 1], dtypes.i32) for n in (rows.constant, keys)
        )
        return queries, columns

    # ---- what a call and that of its gradient share

    def sides(
        self,
        lengths: tuple[bool, tuple[Any, Any], tuple[Any, Any]],
        totals: tuple[Any, Any],
        *,
        is_modified: bool = False,
    ) -> tuple[Side, Side]:
        """Queries and keys; is_modified: whether there is a score_mod, beside which lengths imply
        the padding mask."""
        asked, plain, sums = lengths
        is_implied = is_modified and any(length is not None for length in plain)
        self.require_lengths(asked or is_implied, *zip(plain, sums, strict=True))
        self.graph._require_unplanned()
        queries, keys = (
            side_of(self.graph, self.name, *side) for side in zip(plain, sums, totals, strict=True)
        )
        return queries, keys

    def band(self, diagonal: tuple[bool, bool, Any, int | None], window: int | None) -> Any:
        """The fields of alignment and bounds."""
        placed = enums.member_of("diagonal_alignment", diagonal[2], enums.diagonal_alignment)
        alignment, right_bound = self.diagonal(*diagonal[:2], placed, diagonal[3])
        return {
            "diagonal_alignment": alignment,
            "left_bound": window,
            "right_bound": right_bound,
        }

    def shared(
        self,
        tensors: Mapping[str, Any],
        queries: Side,
        keys: Side,
        dropout: Sequence[Any] | None,
        band: Mapping[str, Any],
    ) -> dict[str, Any]:
        """The fields of operands, lengths, dropout and bounds."""
        given = {
            **tensors,
            "attn_scale": self.float_of("attn_scale", tensors["attn_scale"]),
            "seq_len_q": queries.lengths,
            "seq_len_kv": keys.lengths,
        }
        return {**self.operands(given), **self.dropout(dropout), **band, "name": self.name}

    def refuse_what_is_not_there(self, **given: Any) -> None:
        for parameter, value in given.items():
            if value is not None and value is not False:
                shown = "" if isinstance(value, Tensor) else f"={value!r}"
                raise self.error(f"{parameter}{shown}", _ABSENT[parameter], Status.NOT_SUPPORTED)

    def require_lengths(self, is_asked: bool, *sides: tuple[Any, Any]) -> None:
        """Requires lengths of both sides or of none; each as lengths, which a padding mask goes
        with, or as cumulative ones, which stand for one."""
        by_sums = [side for side in sides if side[1] is not None]
        if any(length is not None for length, _ in by_sums):
            what = "seq_len and cu_seq_len of the same sequences"
            raise self.error(what, "one of them for queries, and one for keys")
        given = sum(length is not None or total is not None for length, total in sides)
        if given != (2 if is_asked or by_sums else 0):
            what = f"use_padding_mask={is_asked} with {given} of seq_len_q and seq_len_kv"
            raise self.error(
                what,
                "use_padding_mask=True and both lengths, or none of the three; cu_seq_len_q and "
                "cu_seq_len_kv in place of lengths, and lengths beside a score_mod, imply the mask",
            )

    def loaded(self, tensor: Any, side: Side, page_table: Any = None) -> Any:
        """An operand whose sequences may be packed, as the operation takes it."""
        if not isinstance(tensor, GraphTensor):
            return tensor
        if page_table is None:
            self.graph._operand(tensor, _RANK)  # which refuses those of other graphs
            return self.graph._packing.loaded(self.graph, tensor, side)
        if tensor.ragged_offset is not None:
            raise tensor.error(
                Status.NOT_SUPPORTED, "ragged, and with a page table", "one of the two"
            )
        return tensor

    def gradient_operands(
        self, operands: Sequence[Any], queries: Side, keys: Side
    ) -> dict[str, Any]:
        """Operands of a gradient by name, as the operation takes them; operands: Q, K, V, O, dO and
        the statistics, whose sequences may be packed."""
        q, k, v, *of_queries = operands
        loaded = {
            "q": self.loaded(q, queries),
            "k": self.loaded(k, keys),
            "v": self.loaded(v, keys),
        }
        for name, tensor in zip(("o", "do", "stats"), of_queries, strict=True):
            loaded[name] = self.loaded(tensor, queries)
        return loaded

    def page_tables(
        self, pages: tuple[Any, Any, int | None], operands: Mapping[str, Any], keys: Side
    ) -> tuple[Any, Any]:
        """The tables of K and V as the operation takes them; one for both is loaded once."""
        k, v = operands["k"], operands["v"]
        of_k = self.page_table(pages[0], k, keys)
        if pages[0] is pages[1] and getattr(k, "dims", None) == getattr(v, "dims", None):
            return of_k, of_k
        return of_k, self.page_table(pages[1], v, keys)

    def page_table(self, table: Any, container: Any, keys: Side) -> Any:
        """A table of INT32; a packed one has the pages of each sequence after those before."""
        if getattr(table, "ragged_offset", None) is None or not isinstance(container, Tensor):
            return as_int32(self.graph, table, self.name)
        size = container.dims[2].constant if container.dims else None
        if size is None:
            raise self.error("a ragged page table, of blocks of unknown size", "a fixed size")
        whole: dict[str, Any] = {"compute_data_type": dtypes.i32, "name": self.name}
        last = self.graph.add(keys.lengths, size - 1, **whole).set_data_type(dtypes.i32)
        counts = self.graph.div(last, size, **whole).set_data_type(dtypes.i32)
        loaded = self.graph._packing.loaded(self.graph, table, Side(self.name, counts))
        return as_int32(self.graph, loaded, self.name)

    def wants_stats(self, generate: bool | None, is_inference: bool | None) -> bool:
        if generate is None and is_inference is None:
            raise self.error(
                "neither generate_stats nor is_inference",
                "generate_stats: whether stats are an output",
            )
        if generate is not None and is_inference is not None and bool(generate) == is_inference:
            what = f"generate_stats={generate} and is_inference={is_inference}"
            raise self.error(what, "one of them, or its negation as the other")
        return bool(generate) if generate is not None else not is_inference

    def diagonal(
        self, top_left: bool, bottom_right: bool, alignment: str, right_bound: int | None
    ) -> tuple[str, int | None]:
        """(alignment, right bound), after the older spellings."""
        if top_left and bottom_right:
            raise self.error(
                "use_causal_mask and use_causal_mask_bottom_right", "one of them at most"
            )
        if top_left or bottom_right:
            return "BOTTOM_RIGHT" if bottom_right else "TOP_LEFT", 0
        return alignment, right_bound

    def operands(self, tensors: Mapping[str, Any]) -> dict[str, Tensor | None]:
        return {
            name: None if value is None else self.graph._operand(value, _RANK)
            for name, value in tensors.items()
        }

    def result(self, field: Field) -> GraphTensor:
        """A new virtual tensor of the graph, for a result of the operation."""
        name = f"{self.label}::{field.suffix}"
        made = GraphTensor(is_virtual=True, name=name, made_at=current_place())
        made._graph = self.graph
        return made

    def dropout(self, given: Sequence[Any] | None) -> dict[str, Any]:
        """The fields of dropout."""
        if given is None:
            return {}
        supported = "(probability, seed, offset), or (mask, scale)"
        if not isinstance(given, tuple | list) or len(given) not in (2, 3):
            raise self.error(f"dropout={given!r:.60}", supported)
        first, *others = given
        if _is_number(first) and len(others) == 2:
            numbers = [self._integer(number) for number in others]
            return {
                "dropout_probability": self.float_of("dropout", first),
                **self.operands(dict(zip(("seed", "offset"), numbers, strict=True))),
            }
        # The third of a mask's is 1 / scale, which follows from the scale.
        if not isinstance(first, Tensor):
            raise self.error(f"dropout of a {type(first).__name__} and others", supported)
        return self.operands({"dropout_mask": first, "dropout_scale": others[0]})

    def float_of(self, name: str, value: Any) -> Any:
        """A number as a float; anything else as it is."""
        try:
            return float(value) if _is_number(value) else value
        except OverflowError as error:
            what = f"{name}={hex(value):.40}"
            raise self.error(what, "a number that a double holds") from error

    def _integer(self, value: Any) -> Any:
        """A seed or an offset; a number becomes a constant."""
        if isinstance(value, int) and not isinstance(value, bool):
            return self.graph.tensor_scalar(value, data_type=dtypes.i64)
        return value

    # ---- score_mod

    def require_function(self, parameter: str, given: Any) -> None:
        if not callable(given):
            raise self.error(f"{parameter}={given!r:.60}", "a function of a graph and a tensor")

    def begun(self, kind: type[Sdpa], values: dict[str, Any]) -> tuple[list[Any], Any]:
        """Results of an operation that is not added itself, and the builder of its steps."""
        self.graph._require_unplanned()
        left_out = kind.left_out(values)
        for field in kind.fields_of("result"):
            if field.name not in left_out and values.get(field.name) is None:
                values[field.name] = self.result(field)
        op = kind(**values)
        op.made_at = current_place()
        op.verify_fields()
        self._settle(op)
        op.infer()
        op.verify()
        results = [getattr(op, field.name) for field in kind.fields_of("result")]
        return results, op.attention(GraphTensor)

    def modified(
        self,
        attention: Any,
        scores: Tensor,
        change: Callable[[Any, Any], Any],
        name: str = "score_mod",
    ) -> Tensor:
        """The result of a caller's function of scores, or of their gradient."""
        dims = attention.op.score_dims
        made = change(self.graph, scores)
        if not isinstance(made, Tensor) or made.dims != dims:
            shown = getattr(made, "dims", None)
            what = f"a tensor of dims {text(shown)}" if shown else f"{made!r:.60}"
            raise self.error(f"{name} gives {what}", f"a tensor of dims {text(dims)}")
        return made

    def _settle(self, op: Sdpa) -> None:
        """The operands' dims and types are known: what follows is made of them now."""
        made = graph_results(self.graph)
        for _, tensor in op.tensors("operand"):
            if tensor.dtype is None and tensor not in made:
                tensor.dtype = self.graph.graph.io_type
            for what in ("dims", "strides", "dtype"):
                if getattr(tensor, what) is None:
                    raise self.error(
                        f"score_mod, and {what} of {tensor.label} are not known yet",
                        "operands whose dims, strides and data types are set",
                    )

    def add(self, attention: Attention) -> None:
        """Moves the operations that were made to the graph."""
        place = current_place()
        for op in attention.steps.ops:
            op.made_at = place
            for tensor in (*op.operands, *op.results):
                if isinstance(tensor, GraphTensor):
                    tensor._graph = self.graph
            self.graph.graph.add(op)
        attention.steps.ops.clear()


def graph_results(graph: Any) -> set[Tensor]:
    """The tensors that operations of a graph make."""
    return {tensor for op in graph.graph.ops for tensor in op.results}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def methods() -> dict[str, Any]:
    """The methods of attention by name, older names too."""
    return {"sdpa": sdpa, "scaled_dot_product_flash_attention": sdpa}
