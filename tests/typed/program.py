"""A program that type checkers accept in their strict mode, with the types that they find."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, assert_type

import numpy as np

import dnnc


def block(g: dnnc.pygraph, x: dnnc.Tensor, width: int) -> dnnc.Tensor:
    w = g.tensor([1, width, width], name="w")
    product = g.matmul(A=x, B=w, compute_data_type=dnnc.data_type.FLOAT, name="product")
    assert_type(product, dnnc.Tensor)
    return g.gelu(g.add(g.mul(product, 0.5), x)).set_output().set_name("y")


def products() -> dnnc.pygraph:
    rows = dnnc.Dim("rows", max=4096, multiple_of=8)
    g = dnnc.pygraph("products", io_data_type="f16", compute_data_type=np.float32)
    x = g.tensor([1, rows, 64], [64 * rows, 64, 1], data_type=dnnc.data_type.HALF, name="x")
    y = block(g, x, width=64)
    total = g.reduction(y, dnnc.reduction_mode.ADD).set_dim([1, rows, 1])
    assert_type(total, dnnc.Tensor)
    largest, place = g.reduction(y, "max", generate_index=True)
    assert_type(place, dnnc.Tensor)
    largest.set_dim([1, rows, 1]).set_output()
    half = g.slice(y, [slice(None), slice(None), slice(0, 32)])
    g.concatenate([half, half], axis=2).set_output()
    return g


def norms(g: dnnc.pygraph, x: dnnc.Tensor, scale: dnnc.Tensor, bias: dnnc.Tensor) -> None:
    phase = dnnc.norm_forward_phase.TRAINING
    y, mean, inv_variance = g.instancenorm(phase, x, scale, bias, epsilon=1e-5)
    assert_type(mean, dnnc.Tensor)
    dx, dscale, dbias = g.instancenorm_backward(y, x, scale, mean, inv_variance)
    for result in (dx, dscale, dbias):
        result.set_output()
    y, inv_variance = g.rmsnorm("INFERENCE", x, scale, epsilon=1e-5)
    assert_type(inv_variance, None)
    *_, running_mean, _ = g.batchnorm(x, scale, bias, scale, scale, 1e-5, 0.1)
    assert_type(running_mean, dnnc.Tensor)
    *_, running_mean, _ = g.batchnorm(x, scale, bias, epsilon=1e-5)
    assert_type(running_mean, dnnc.Tensor | None)


def images(g: dnnc.pygraph, x: dnnc.Tensor, w: dnnc.Tensor) -> dnnc.Tensor:
    y = g.conv_fprop(x, w, padding=1, stride=[1, 1], convolution_mode="CROSS_CORRELATION")
    pooled, index = g.resample(
        y, dnnc.resample_mode.MAXPOOL, [0, 0], [0, 0], [2, 2], [2, 2], generate_index=True
    )
    index.set_data_type("i8").set_output()
    return g.relu(pooled, lower_clip=0.0, upper_clip=6.0)


def attention(g: dnnc.pygraph, q: dnnc.Tensor, k: dnnc.Tensor, v: dnnc.Tensor) -> None:
    def softcapped(graph: dnnc.pygraph, scores: dnnc.Tensor) -> dnnc.Tensor:
        return graph.mul(graph.tanh(graph.mul(scores, 1 / 30)), 30.0)

    o, stats = g.sdpa(q, k, v, generate_stats=True, attn_scale=0.125, score_mod=softcapped)
    o.set_output()
    stats.set_output().set_data_type("f32")
    o, stats = g.sdpa(q, k, v, is_inference=True, use_causal_mask=True)
    assert_type(stats, None)


def run(path: Path, arrays: Mapping[str, Any]) -> int:
    g = products()
    try:
        plan = dnnc.compile(g, "sm_80,sm_90a")
        dnnc.write_plan(path, plan)
        loaded = dnnc.load(path)
        loaded.execute(arrays)
        loaded(arrays["x"], arrays["w"])
    except dnnc.DnncError as error:
        return 1 if error.status == dnnc.Status.BAD_PARAM else 2
    outputs = dnnc.reference(g, arrays)
    return len(outputs) + g.get_workspace_size()
