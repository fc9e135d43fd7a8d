"""The softmax of a transformer's attention: y = softmax(x / sqrt(head_size)), over the keys.

dnnc compile demo/softmax.py --target sm_80,sm_90
"""

import math

import dnnc

QUERIES = dnnc.Dim("queries", min=1, max=512)
KEYS = dnnc.Dim("keys", min=1, max=512)


def build(dtype: str = "f16", heads: int = 12, head_size: int = 32) -> dnnc.pygraph:
    """The graph: x [heads, queries, keys], the products of queries and keys -> y.

    dtype: of both; all between is f32.  Both symbols are the tokens of a sentence; sentences are
    packed without padding, so that there is no mask.
    """
    graph = dnnc.pygraph(
        f"softmax_{dtype}",
        io_data_type=dtype,
        intermediate_data_type=dnnc.data_type.FLOAT,
        compute_data_type=dnnc.data_type.FLOAT,
    )
    x = graph.tensor([heads, QUERIES, KEYS], name="x")
    scaled = graph.mul(x, 1 / math.sqrt(head_size), name="scale")
    graph.softmax(scaled, axis=[-1], name="softmax").set_output().set_name("y")
    return graph
