"""Attention of small sequences as cuDNN's guide has it, "Fused Attention fprop", step by step.

P = Q @ g3(K)     g3: nothing, or a product by a number
S = g4(P)         any of: padding mask, causal mask, softmax, dropout, in this order
O = S @ V         S is stored for a backward pass

and its gradient from S, "Fused Attention bprop".
"""

from __future__ import annotations

import numpy as np

import dnnc
from tests.support.checked import random_inputs

LOW = -1e20  # in place of masked scores
KEPT = 4 / 3  # what dropout multiplies by


class SmallAttention:
    """g: the graph.

    dropout: "", "drawn" or "given", whose mask multiplies S.  signed: S keeps the sign bit of what
    dropout drops.  stored: whether S is an output.  scale: of g3.  reordering: of S.
    """

    def __init__(
        self, *, batch=2, heads=2, queries=64, keys=64, depth=64, dtype="HALF", scale=0.125,
        is_padded=True, is_causal=False, dropout="", signed=False, stored=True,
        reordering="NONE", softmax_reordering="NONE",
    ):  # fmt: skip
        self.dims = [batch, heads, queries, keys]
        self.dtype = dtype
        self.g = g = dnnc.pygraph(
            "mha_fprop", io_data_type=dtype, intermediate_data_type="FLOAT",
            compute_data_type="FLOAT",
        )  # fmt: skip
        q = g.tensor([batch, heads, queries, depth], name="q")
        kt = g.tensor(
            [batch, heads, depth, keys], [heads * keys * depth, keys * depth, 1, depth], name="k"
        )
        v = g.tensor([batch, heads, keys, depth], name="v")
        if scale:
            kt = g.mul(kt, self._number("scale", dtype)).set_data_type(dtype)
        p = self._masked(g.matmul(q, kt), is_padded, is_causal)
        s = self._softmax(p).set_reordering_type(softmax_reordering)
        s, weights = self._dropped(s, dropout, signed)
        if stored:
            s.set_output().set_name("s").set_reordering_type(reordering)
        g.matmul(weights, v).set_output().set_name("o")
        self.scale, self.low = scale, LOW

    def _number(self, name, dtype):
        return self.g.tensor([1] * 4, data_type=dtype, name=name, is_pass_by_value=True)

    def _flag(self, tensor):
        return tensor.set_data_type("BOOLEAN")

    def _both(self, a, b):
        return self._flag(self.g.logical_and(a, b, compute_data_type="BOOLEAN"))

    def _masked(self, p, is_padded, is_causal):
        """Masks scores by indices in FLOAT; the masked score is given at execution."""
        g = self.g
        row, column = (g.gen_index(p, axis=axis).set_data_type("FLOAT") for axis in (2, 3))
        conditions = []
        if is_padded:
            lengths = [
                g.tensor([self.dims[0], 1, 1, 1], data_type="INT32", name=name)
                for name in ("queries", "keys")
            ]
            pairs = zip((row, column), lengths, strict=True)
            conditions += [self._flag(g.cmp_lt(index, length)) for index, length in pairs]
        if is_causal:
            seen = g.cmp_ge(row, column, compute_data_type="BOOLEAN")
            conditions.append(self._flag(seen))
        if not conditions:
            return p
        whole = conditions[0]
        for condition in conditions[1:]:
            whole = self._both(whole, condition)
        return g.binary_select(p, self._number("low", "FLOAT"), whole)

    def _softmax(self, p):
        g, row = self.g, [*self.dims[:3], 1]
        e = g.exp(g.sub(p, g.reduction(p, "max").set_dim(row)))
        return g.div(e, g.reduction(e, "add").set_dim(row))

    def _dropped(self, s, dropout, signed):
        """(S, what V is multiplied by)."""
        g = self.g
        if not dropout:
            s.set_data_type(self.dtype)
            return s, s
        if dropout == "given":
            mask = g.tensor(self.dims, name="mask")
        else:
            seed, offset = (
                g.tensor([1] * 4, data_type="INT64", name=n) for n in ("seed", "offset")
            )
            mask = g.rng(seed, offset, "BERNOULLI", bernoulli_probability=0.75, dim=self.dims)
        kept = g.mul(s, mask).set_data_type(self.dtype)
        weights = g.mul(kept, self._number("kept", self.dtype)).set_data_type(self.dtype)
        if signed:
            is_kept = self._flag(g.cmp_gt(mask, 0.0))
            kept = g.binary_select(s, g.neg(s), is_kept).set_data_type(self.dtype)
        return kept, weights

    def inputs(self, seed=0, lengths=None):
        """uid -> array; lengths: (of queries, of keys) of each entry of the batch."""
        graph = self.g.graph.finalize()
        found = random_inputs(graph, {}, seed)
        rng = np.random.default_rng(seed)
        batch, _, queries, keys = self.dims
        counts = lengths or [rng.integers(1, n + 1, batch) for n in (queries, keys)]
        values = {
            "scale": self.scale, "low": self.low, "kept": KEPT, "queries": counts[0],
            "keys": counts[1], "mask": rng.random(self.dims) < 0.75,
        }  # fmt: skip
        for tensor in graph.inputs:
            if tensor.name in values:
                shape = [n.constant for n in tensor.shape]
                array = np.reshape(values[tensor.name], shape)
                found[tensor.uid] = array.astype(tensor.type.numpy)
        return found


def small_gradient(
    dims, depth, *, value_depth=0, dtype="HALF", reordering="F16x16", has_dropout=True,
    is_causal=False, stores=True, has_bias=False, reshapes=False,
):  # fmt: skip
    """dQ, dK and dV from S, as cuDNN's guide has them.

    dims: of S.  stores: whether dP is an output.  has_bias: its gradient is one, a sum of dP over
    the batch by 1 / scale.  reshapes: matrices are transposed by reshapes, and P is of 16 bits, as
    in cuDNN's samples.
    """
    batch, heads, queries, keys = dims
    width = value_depth or depth
    g = dnnc.pygraph(
        "mha_bprop", io_data_type=dtype, intermediate_data_type="FLOAT", compute_data_type="FLOAT"
    )
    s = g.tensor(dims, name="s").set_reordering_type(reordering)
    q, d_o = (
        g.tensor([batch, heads, queries, n], name=name) for name, n in (("q", depth), ("do", width))
    )
    k = g.tensor([batch, heads, keys, depth], name="k")
    v = heads * keys * width, keys * width, 1, width
    vt = g.tensor([batch, heads, width, keys], [*v], name="vt")

    def transposed(x):
        if not reshapes:
            return g.transpose(x, [0, 1, 3, 2])
        strides = [heads * queries * keys, queries * keys, 1, keys]
        return g.reshape(x).set_dim([batch, heads, keys, queries]).set_stride(strides)

    across = transposed(s)
    dropped = g.relu(g.mul(across, KEPT)).set_data_type(dtype) if has_dropout else across
    g.matmul(dropped, d_o).set_output().set_name("dv")
    p, ds = g.abs(s), g.matmul(d_o, vt)
    if reshapes:
        p.set_data_type(dtype)
    if has_dropout:
        ds = g.binary_select(g.mul(ds, KEPT), 0.0, g.cmp_gt(s, 0.0))
    whole = g.reduction(g.mul(p, ds), "add").set_dim([batch, heads, queries, 1])
    dp = g.mul(g.mul(p, g.sub(ds, whole)), 0.125)
    if is_causal:
        row, column = (g.gen_index(dp, axis=axis) for axis in (2, 3))
        dp = g.binary_select(dp, 0.0, g.cmp_ge(row, column))
    if has_bias:
        total = g.reduction(dp, "add").set_dim([1, heads, queries, keys])
        scale = g.tensor([1] * 4, data_type="FLOAT", name="scale", is_pass_by_value=True)
        total = g.mul(total, g.reciprocal(scale))
        total.set_output().set_name("dbias").set_data_type(dtype)
        dp = g.identity(dp)
    dp.set_data_type(dtype)
    if stores:
        dp.set_output().set_name("dp").set_reordering_type(reordering)
    g.matmul(dp, k).set_output().set_name("dq")
    g.matmul(transposed(dp), q).set_output().set_name("dk")
    return g
