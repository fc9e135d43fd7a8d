"""Products whose results, or partials of whose sums, are more than 2^31 elements."""

import pytest

import dnnc
from dnnc import dtypes

from ..test_large import assert_close, execute, fresh, poisoned

torch = pytest.importorskip("torch")

LAST = 256  # rows that are compared: the first and the last ones


def ends(rows):
    return slice(0, LAST), slice(rows - LAST, rows)


def test_a_product_beyond_two_to_the_31_elements():
    m, n, k = 65536 + 64, 32776, 64
    g = dnnc.pygraph(io_data_type=dtypes.bf16, intermediate_data_type=dtypes.f32)
    a, b = g.tensor([1, m, k], name="a"), g.tensor([1, k, n], [k * n, 1, k], name="b")
    g.relu(g.matmul(a, b)).set_output().set_name("y")
    x = fresh(1, m, k, dtype=torch.bfloat16)
    w = fresh(1, n, k, dtype=torch.bfloat16).transpose(1, 2)
    y = poisoned(1, m, n, dtype=torch.bfloat16)
    execute(g.graph.finalize(), {"a": x, "b": w, "y": y})
    for rows in ends(m):
        assert_close(y[:, rows], torch.relu(x[:, rows].double() @ w.double()), torch.bfloat16)


@pytest.mark.parametrize("batch", [33, 40])
def test_sums_of_more_than_two_to_the_31_partials(batch):
    m, n, k = 8192, 8192, 16
    g = dnnc.pygraph(io_data_type=dtypes.bf16, intermediate_data_type=dtypes.f32)
    a, b = g.tensor([batch, m, k], name="a"), g.tensor([batch, k, n], [k * n, 1, k], name="b")
    total = g.reduction(g.matmul(a, b), "add").set_dim([1, m, n])
    total.set_stride([m * n, n, 1])
    total.set_output().set_data_type(dtypes.f32).set_name("y")
    x = fresh(batch, m, k, dtype=torch.bfloat16)
    w = fresh(batch, n, k, dtype=torch.bfloat16).transpose(1, 2)
    y = poisoned(1, m, n, dtype=torch.float32)
    execute(g.graph.finalize(), {"a": x, "b": w, "y": y})
    for rows in ends(m):
        exact = (x[:, rows].double() @ w.double()).sum(0, keepdim=True)
        assert_close(y[:, rows], exact, torch.float32, allowance=2.0**-18)
