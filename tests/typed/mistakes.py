"""Mistakes that type checkers find: a line has the rule of pyright that it breaks."""

import dnnc

g = dnnc.pygraph("mistakes", io_data_type="f16")
x = g.tensor([1, 8, 8], name="x")
y = g.matmul(x, x)

g.matmull(x, x)  # reportAttributeAccessIssue
g.matmul(x)  # reportCallIssue
g.matmul(x, x, compute_type="f32")  # reportCallIssue
g.matmul(x, "x")  # reportArgumentType
g.reduction(x, "mean")  # reportCallIssue, reportArgumentType
g.conv_fprop(x, x, padding=0.5)  # reportArgumentType
g.transpose(x, permutation=2)  # reportArgumentType
g.softmax(x, algorithm="exact")  # reportArgumentType
mean = g.layernorm("INFERENCE", x, x, epsilon=1e-5)[1]
mean.set_output()  # reportAttributeAccessIssue
x, w = g.matmul(x, x)  # reportGeneralTypeIssues
y.set_outputs()  # reportAttributeAccessIssue
g.block_scale_quantize(x)  # reportAttributeAccessIssue
dnnc.pygraph("other", io_type="f16")  # reportCallIssue
dnnc.compil(g)  # reportAttributeAccessIssue
