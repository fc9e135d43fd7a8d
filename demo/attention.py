"""A transformer's attention, within each of many sentences that lie one after the other.

dnnc compile demo/attention.py --target sm_80,sm_90a
"""

import math
from typing import Any

import dnnc

# All pairs of tokens are looked at, so that this is for a few sentences; packed tensors with
# lengths (docs/attention.md) are for many.
TOKENS = dnnc.Dim("tokens", min=1, max=4096)


def build(dtype: str = "f16", heads: int = 12, head_size: int = 32) -> dnnc.pygraph:
    """The graph: q, k, v [1, heads, tokens, head_size], sentence [1, 1, tokens, 1] -> y.

    q, k and v are columns of what graph `qkv` gives: their rows are 3 heads * head_size apart.  y
    has a token's heads beside each other, as the next product reads them.  sentence, INT32: the
    number of each token's sentence, beyond which it sees nothing.  dtype: of all others; scores,
    softmax and sums are f32.
    """
    graph = dnnc.pygraph(
        f"attention_{dtype}",
        io_data_type=dtype,
        intermediate_data_type=dnnc.data_type.FLOAT,
        compute_data_type=dnnc.data_type.FLOAT,
    )
    hidden = heads * head_size
    dims, row = [1, heads, TOKENS, head_size], 3 * hidden
    q, k, v = (graph.tensor(dims, [TOKENS * row, head_size, row, 1], name=n) for n in "qkv")
    sentence = graph.tensor([1, 1, TOKENS, 1], data_type=dnnc.data_type.INT32, name="sentence")

    def within_sentences(graph: dnnc.pygraph, scores: Any) -> Any:
        """Scores of keys of the query's own sentence; others count as minus infinity."""
        of_keys = graph.transpose(sentence, permutation=[0, 1, 3, 2])
        is_own = graph.cmp_eq(sentence, of_keys, compute_data_type=dnnc.data_type.INT32)
        return graph.binary_select(scores, -math.inf, is_own)

    y, _ = graph.sdpa(
        q, k, v, attn_scale=1 / math.sqrt(head_size), score_mod=within_sentences,
        generate_stats=False,
    )  # fmt: skip
    y.set_output().set_name("y").set_dim(dims).set_stride([TOKENS * hidden, head_size, hidden, 1])
    return graph
