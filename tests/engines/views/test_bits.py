"""Views of a comparison: bits inside, numbers of the graph's type as an output."""

import pytest

import dnnc
from dnnc.compiler import compile_graph
from dnnc.options import Options

from ...support.checked import check


@pytest.mark.parametrize("view", ["transpose", "slice", "reshape", "concatenate"])
def test_bits_behind_a_view_are_numbers(view):
    g = dnnc.pygraph("bits", io_data_type="f16", intermediate_data_type="f32")
    x, y = g.tensor([2, 6, 4], name="x"), g.tensor([2, 6, 4], name="y")
    bits = g.cmp_gt(x, y)
    made = {
        "transpose": lambda: g.transpose(bits, [2, 0, 1]),
        "slice": lambda: g.slice(bits, [slice(0, 2), slice(1, 5), slice(0, 4)]),
        "reshape": lambda: g.reshape(bits).set_dim([12, 4]),
        "concatenate": lambda: g.concatenate([bits, bits], 1),
    }[view]()
    made.set_output()
    g.build_operation_graph()
    (output,) = g.graph.outputs
    assert output.type == dnnc.dtypes.f16
    count = range(len(g.graph.live_ops))
    for partition in ("", " ".join(map(str, count)), "|".join(map(str, count))):
        plan = compile_graph(g.graph, "sm_80", Options(partition=partition))
        check(g, plan=plan)
