"""One unit vector for each sentence: y = sums / norm(sums), where sums = member @ x.

dnnc compile demo/pool.py --target sm_80,sm_90a
"""

import dnnc

SENTENCES = dnnc.Dim("sentences", min=1, max=65536)
TOKENS = dnnc.Dim("tokens", min=1, max=65536)


def build(dtype: str = "f16", hidden: int = 384) -> dnnc.pygraph:
    """The graph: member [1, sentences, tokens], x [1, tokens, hidden] -> y [1, sentences, hidden].

    member: 1 where a token is of a sentence, else 0.  A sentence's vector is the mean of its
    tokens', scaled to length 1, so that their sum does as well.  dtype: of all three; what lies
    between is f32.
    """
    graph = dnnc.pygraph(
        f"pool_{dtype}",
        io_data_type=dtype,
        intermediate_data_type=dnnc.data_type.FLOAT,
        compute_data_type=dnnc.data_type.FLOAT,
    )
    member = graph.tensor([1, SENTENCES, TOKENS], name="member")
    x = graph.tensor([1, TOKENS, hidden], name="x")
    sums = graph.matmul(member, x, name="matmul")
    squares = graph.reduction(graph.mul(sums, sums), mode=dnnc.reduction_mode.ADD, name="squares")
    length = graph.sqrt(squares.set_dim([1, SENTENCES, 1]), name="length")
    graph.div(sums, length, name="scale").set_output().set_name("y")
    return graph
