"""Stretches of kernels: names in PTX, the same instructions, and texts that keep them."""

import re

import pytest

import dnnc
from dnnc import compiler
from dnnc.codegen import kept
from dnnc.codegen.stretch import NAMES, kernel_locations, stretch
from dnnc.dialect import dnn
from dnnc.options import Options
from dnnc.target import of

ATTENTION = {"load", "query-key product", "mask", "softmax", "value product", "epilogue"}
PRODUCT = {"load", "mainloop", "epilogue"}
GRADIENT = {
    "sum of rows", "set up", "load", "query-key product", "softmax", "value product",
    "score gradient", "gradient product", "epilogue",
}  # fmt: skip


def product():
    g = dnnc.pygraph("p", io_data_type="f16", intermediate_data_type="f32")
    a, b = g.tensor([1, 256, 128]), g.tensor([1, 128, 256])
    g.relu(g.matmul(a, b)).set_output()
    return g


def convolution():
    g = dnnc.pygraph("c", io_data_type="f16", intermediate_data_type="f32")
    x = g.tensor([4, 64, 16, 16], [16384, 1, 1024, 64])
    w = g.tensor([64, 64, 3, 3], [576, 1, 192, 64])
    g.conv_fprop(x, w, padding=(1, 1)).set_output()
    return g


def attention():
    g = dnnc.pygraph("s", io_data_type="f16", intermediate_data_type="f32")
    q, k, v = (g.tensor([1, 2, 256, 64]) for _ in range(3))
    o, _ = g.sdpa(q, k, v, attn_scale=0.5, use_causal_mask=True, generate_stats=False)
    o.set_output()
    return g


def gradient():
    g = dnnc.pygraph("b", io_data_type="f16", intermediate_data_type="f32")
    q, k, v, o, do = (g.tensor([1, 1, 64, 32]) for _ in range(5))
    stats = g.tensor([1, 1, 64, 1], data_type="f32")
    for made in g.sdpa_backward(q, k, v, o, do, stats):
        made.set_output()
    return g


def ptx_of(build, engine, target):
    options = Options(engine=engine)
    with dnn.context():
        return compiler.advance(compiler.start(build().graph, of(target)), "ptx", options).ptx


def stretches(ptx):
    return set(re.findall(r"^\t\.loc\t.* // (.*)$", ptx, re.MULTILINE))


@pytest.mark.parametrize(
    ("build", "engine", "target", "names"),
    [
        (product, "matmul_sm90", "sm_90a", PRODUCT | {"set up"}),
        (product, "matmul_sm80", "sm_80", PRODUCT),
        (convolution, "conv_sm90", "sm_90a", PRODUCT | {"set up"}),
        (convolution, "conv_sm80", "sm_80", PRODUCT),
        (attention, "sdpa_fwd_sm90", "sm_90a", ATTENTION | {"set up"}),
        (attention, "sdpa_sm80", "sm_80", ATTENTION),
        (gradient, "sdpa_bwd_sm80", "sm_80", GRADIENT),
    ],
)
def test_ptx_names_the_stretches_of_a_kernel(build, engine, target, names):
    found = stretches(ptx_of(build, engine, target))
    assert names <= found
    kernels = found - set(NAMES)
    assert kernels
    assert all(kernel.startswith(f"fusion0_{engine}") for kernel in kernels)


@pytest.mark.parametrize("stage", ["kernel", "nvvm"])
def test_texts_keep_stretches(stage):
    with dnn.context():
        work = compiler.start(attention().graph, of("sm_90a"))
        text = compiler.advance(work, stage, Options(engine="sdpa_fwd_sm90")).text()
        assert 'dnn.stretch = "softmax"' in text
        ptx = compiler.advance(work, "ptx").ptx
        again = compiler.resume(text)
        assert again.text() == text
        assert compiler.advance(again, "ptx").ptx == ptx


def test_an_unknown_stretch_is_an_error():
    with dnn.context(), kernel_locations("k"), pytest.raises(ValueError, match="'coffee'"):
        with stretch("coffee"):
            pass


@pytest.mark.parametrize("mark", ['"loda"', '"mainloop/loda"', "3 : i32"])
def test_a_mark_of_no_stretch_is_refused(mark):
    with dnn.context():
        text = compiler.advance(
            compiler.start(product().graph, of("sm_80")), "kernel", Options(engine="matmul_sm80")
        ).text()
        assert 'dnn.stretch = "epilogue"' in text
        broken = text.replace('dnn.stretch = "epilogue"', f"dnn.stretch = {mark}", 1)
        with pytest.raises(dnnc.DnncError, match=r"dnn.stretch: '(loda|3 : i32)'") as caught:
            compiler.resume(broken)
    assert caught.value.status is dnnc.Status.BAD_PARAM


def test_names_of_stretches_are_in_the_key_of_kept_ptx():
    target, options = of("sm_80"), Options(engine="matmul_sm80")
    with dnn.context():
        work = compiler.advance(compiler.start(product().graph, target), "kernel", options)
        text = work.text()
        other = text.replace('dnn.stretch = "epilogue"', 'dnn.stretch = "softmax"')
        modules = [
            compiler.resume(each, file=name).module
            for each, name in ((text, "a.mlir"), (text, "b.mlir"), (other, "a.mlir"))
        ]
        parts = [part.operation for module in modules for part in module.body.operations]
        keys = [kept.key_of(part, target) for part in parts if part.name == "gpu.module"]
    assert keys[0] == keys[1] != keys[2]
