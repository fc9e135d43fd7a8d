"""Parts of tests that assemble kernels: graphs, targets, and checks that nothing spills."""

import pytest

import dnnc
from dnnc import dtypes
from dnnc import target as targets
from dnnc.codegen import nvptx
from dnnc.compiler import compile_graph
from dnnc.options import Options
from dnnc.target import of
from tests.engines.elementwise.test_pointwise import new_graph
from tests.engines.product.test_matmul_sm80 import new_graph as matmul_graph

M = dnnc.Dim("M", max=65536)
TARGETS = tuple(target.name for target in targets.TARGETS)

# The code of sm_100a and sm_120a has nothing that sm_100's and sm_120's has not.
ARCHITECTURES = pytest.mark.parametrize(
    "target",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ("sm_100a", "sm_120a") else ())
        for name in TARGETS
    ],
)
IMAGES = dnnc.Dim("N", max=1024)


def channels_last(g, n, h, w, c, **options):
    return g.tensor([n, c, h, w], [h * w * c, 1, w * c, c], **options)


def filter_gradient(accumulates=False, c=128, size=28, sums=False, io="HALF"):
    """c: channels of the image; 1: of each of many groups.  sums: of dY, too.  io: type of X and
    dY; INT8: summed in INT32."""

    def build():
        g = matmul_graph(dtypes.f16)
        filters = 256 if c > 1 else 144
        image, dy = (
            channels_last(g, IMAGES, size, size, n, data_type=dtypes.of(io))
            for n in (c if c > 1 else 144, filters)
        )
        compute = dtypes.i32 if io == "INT8" else dtypes.f32
        dw = g.conv_wgrad(image, dy, padding=[1, 1], compute_data_type=compute)
        dw.set_dim([filters, c, 3, 3])
        if accumulates:
            dw = g.add(g.mul(dw, g.tensor([1, 1, 1, 1])), channels_last(g, filters, 3, 3, c))
        dw.set_output()
        if sums:
            g.reduction(dy, "add").set_dim([1, filters, 1, 1]).set_output()
        return g

    return build


def depthwise(size, io="HALF", channels=1, edge=28):
    """A square filter of groups of few channels; scale, bias, residual and ReLU after it."""

    def build():
        g = new_graph(dtypes.of(io))
        image, taps = [IMAGES, 192, edge, edge], [192, channels, size, size]
        x, w = (g.tensor(dims, packed_channels(dims)) for dims in (image, taps))
        y = g.conv_fprop(x, w, padding=[size // 2] * 2, stride=[1, 1], dilation=[1, 1])
        scaled_with_residual(g, y).set_output()
        return g

    return build


def assembled(engine, build, knobs, target):
    options = Options(engine=engine, knobs=tuple(knobs.items()))
    return compile_graph(build().graph, target, options)


def assert_fits(plan, target):
    for kernel in plan.programs[0].kernels:
        assert kernel.registers <= 255
        assert kernel.registers * kernel.threads <= of(target).limits.registers_sm
        assert (kernel.spill_store_bytes, kernel.spill_load_bytes) == (0, 0), kernel
        assert kernel.local_bytes == 0, kernel
        assert kernel.static_smem_bytes <= 48 << 10


def assembled_without_waits(engine, build, knobs, target, monkeypatch):
    """The plan, after a look at what the assembler says of it."""
    logs, read = [], nvptx.read_resources
    monkeypatch.setattr(nvptx, "read_resources", lambda log: logs.append(log) or read(log))
    plan = assembled(engine, build, knobs, target)
    assert_fits(plan, target)
    # The assembler says where it made products wait for each other, or put in fences and waits of
    # its own (C7510 to C7519), and where it ignored `setmaxnreg`.
    assert logs
    assert "(C75" not in "".join(logs)
    assert "setmaxnreg" not in "".join(logs)
    return plan


def packed_channels(dims):
    strides, running = [0] * len(dims), 1
    for axis in (1, *reversed(range(2, len(dims))), 0):
        strides[axis], running = running, running * dims[axis]
    return strides


def scaled_with_residual(g, y):
    dims = y.get_dim()
    scale, bias = (g.tensor([1, dims[1], 1, 1]) for _ in range(2))
    residual = g.tensor(dims, packed_channels(dims))
    return g.relu(g.add(g.add(g.mul(y, scale), bias), residual))
