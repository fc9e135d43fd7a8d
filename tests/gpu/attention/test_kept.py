"""Attention whose outputs have an element for each score, on the device; and larger ones."""

import numpy as np
import pytest

import dnnc
from dnnc.compiler import compile_graph
from dnnc.runtime import driver
from tests.engines.attention.test_kept import *  # noqa: F403
from tests.fragment_order import buffer_of
from tests.mha_graphs import SmallAttention
from tests.support import device
from tests.support.checked import check


@pytest.mark.parametrize("dtype", ["HALF", "BFLOAT16"])
@pytest.mark.parametrize("dropout", ["", "drawn", "given"])
def test_sequences_of_512(dropout, dtype):
    made = SmallAttention(
        batch=8, heads=12, queries=512, keys=512, dtype=dtype, is_causal=True, dropout=dropout
    )
    check(made.g, inputs=made.inputs(), slack=4.0, allowance=2.0**-7 if dtype != "HALF" else 2e-3)


@pytest.mark.parametrize("dtype", ["HALF", "BFLOAT16"])
@pytest.mark.parametrize("dropout", ["", "drawn", "given"])
def test_sequences_of_512_in_the_order_of_cudnn(dropout, dtype):
    made = SmallAttention(
        batch=2, heads=12, queries=512, keys=512, dtype=dtype, is_causal=True, dropout=dropout,
        reordering="F16x16",
    )  # fmt: skip
    check(made.g, inputs=made.inputs(), slack=4.0, allowance=2.0**-7 if dtype != "HALF" else 2e-3)


class Matrices:
    """An array of f16 on the device."""

    def __init__(self, address, dims):
        self.__cuda_array_interface__ = {
            "shape": tuple(dims), "typestr": "<f2", "data": (address, False), "version": 3
        }  # fmt: skip


@pytest.mark.parametrize("ordered", ["x", "y"])
def test_arrays_of_matrices_are_bound(ordered):
    """[B, H, M, N] each, of which one has its elements in cuDNN's order."""
    dims = [2, 3, 64, 192]
    g = dnnc.pygraph("copy", io_data_type="HALF", intermediate_data_type="FLOAT")
    x = g.tensor(dims, name="x")
    y = g.neg(x).set_output().set_name("y")
    {"x": x, "y": y}[ordered].set_reordering_type("F16x16")
    plan = compile_graph(g.graph.finalize(), device.target())
    given = np.random.default_rng(0).normal(size=dims).astype(np.float16)
    stored = buffer_of(given) if ordered == "x" else given.ravel()
    with device.Memory() as memory:
        places = {x.uid: memory.holding(stored.view(np.uint8))}
        places[y.uid] = memory.holding(np.zeros(given.nbytes, np.uint8))
        dnnc.load(plan).bind({uid: Matrices(at, dims) for uid, at in places.items()})()
        driver.synchronize()
        found = memory.download(places[y.uid], given.nbytes).view(np.float16)
        memory.verify_guards()
    np.testing.assert_array_equal(found, -given.ravel() if ordered == "x" else buffer_of(-given))
