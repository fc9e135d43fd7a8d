"""im2col loads: boxes for every tap of a filter, as a kernel gets them, against NumPy."""

from dataclasses import dataclass

import numpy as np
import pytest

from dnnc import Dim, dtypes
from dnnc.codegen import ops
from dnnc.codegen.hopper import cluster, im2col, mbarrier, tma
from dnnc.codegen.hopper.cluster import Cluster
from dnnc.codegen.hopper.im2col import Im2colBox, Window
from dnnc.codegen.hopper.pipeline import Cursor, Pipeline
from dnnc.codegen.hopper.staged_store import swizzle_of
from dnnc.codegen.memory.smem import CHUNK_BYTES, byte_pointer
from dnnc.codegen.memory.tensors import GlobalTensor, register_type
from dnnc.codegen.state import loop
from dnnc.codegen.walk.index import Index
from dnnc.expr import ceildiv
from dnnc.mlir import nvvm
from tests.support import machine

from .kernels import plan_of, tensor
from .numpy_im2col import im2col as expected
from .numpy_im2col import output_pixels

STAGES = 2
SLOT_ALIGNMENT = 1024  # the repeat of the widest swizzle


@dataclass(frozen=True)
class Columns:
    """A kernel that writes every box of an input for every tap: y [taps, pixels, channels].

    Whole boxes are written, so that zeros beyond the input's channels and images show.  Block
    (x, y) of the grid has pixel block x and channel block y.  A thread of warp 0 loads, warp 1
    writes.  blocks: of a cluster, of which the first loads for all; all write the same.
    """

    box: Im2colBox
    blocks: int = 1

    @property
    def grid(self):
        pixels = ceildiv(output_pixels(self.box), self.box.pixels)
        return pixels, ceildiv(self.box.tensor.shape[1], self.box.channels)

    def plan(self):
        pixels, channels = self.grid
        dims = (self.blocks, self.box.taps, pixels * self.box.pixels, channels * self.box.channels)
        y = tensor(2, self.box.tensor.type, dims)
        return plan_of(lambda output: self.emit(output, y), [self.box.tensor], [y])

    def emit(self, output, y):
        kernel = output.kernel("", 64)
        kernel.cluster = self.blocks
        with kernel.body():
            self.body(kernel, GlobalTensor(kernel, y))
        pixels, channels = self.grid
        output.launch(kernel, (pixels * self.blocks, channels, 1))

    def body(self, kernel, y):
        box = self.box
        slot = -(-box.bytes // SLOT_ALIGNMENT) * SLOT_ALIGNMENT
        memory = kernel.dynamic_shared(
            STAGES * slot + Pipeline.barrier_bytes(STAGES), SLOT_ALIGNMENT
        )
        ring = Pipeline.of(memory, slot, STAGES, byte_pointer(memory, STAGES * slot))
        map_ = kernel.tensor_map(box.recipe)
        thread, blocks = ops.thread_id(), Cluster(self.blocks)
        with ops.if_(ops.compare("eq", thread, 0)):
            ring.make(1, self.blocks)
            mbarrier.make_visible()
        cluster.synchronize(blocks)
        lane, rank = ops.and_(thread, 31), blocks.rank()
        pixel = ops.mul(blocks.number(), box.pixels)
        channel = ops.mul(ops.block_id("y"), box.channels)

        def produce():
            at = [channel, *im2col.first_pixel(kernel, box, pixel)]
            with ops.if_(ops.compare("eq", lane, 0)):
                self.each_tap(lambda tap, here: self.load(ring, here, map_, at, tap, rank))

        def consume():
            self.each_tap(
                lambda tap, here: self.write(ring, here, y, (rank, tap, pixel, channel), lane)
            )

        ops.if_else(ops.less(thread, 32), produce, consume)
        if self.blocks > 1:
            cluster.synchronize(blocks)

    def each_tap(self, body):
        @loop(0, self.box.taps, state=Cursor())
        def end(tap, here):
            body(tap, here)
            return here.next(STAGES)

    def load(self, ring, here, map_, at, tap, rank):
        ring.wait_empty(here)
        ring.expect(here, self.box.bytes)
        offsets = im2col.offsets_of(self.box, im2col.tap_of(self.box.windows, tap))
        place, barrier = ring.slot(here), ring.full_barrier(here)
        if self.blocks == 1:
            im2col.load(place, map_, at, offsets, barrier)
            return
        everyone = ops.const((1 << self.blocks) - 1)
        with ops.if_(ops.compare("eq", rank, 0)):
            im2col.load(place, map_, at, offsets, barrier, to_ranks=everyone)

    def write(self, ring, here, y, start, lane):
        """Copies a box to y, 16 bytes a lane and round."""
        box, (rank, tap, pixel, channel) = self.box, start
        element = register_type(box.tensor.type)
        per_row, width = box.row_bytes // CHUNK_BYTES, CHUNK_BYTES * 8 // box.tensor.type.bits
        ring.wait_full(here)
        slot = ring.slot(here)

        def one(number, _):
            row, chunk = ops.div(number, per_row), ops.rem(number, per_row)
            swizzle = swizzle_of(box.row_bytes, row) if box.is_swizzled else 0
            byte = ops.xor(ops.mul(chunk, CHUNK_BYTES), swizzle)
            place = byte_pointer(slot, ops.add(ops.mul(row, box.row_bytes), byte))
            value = ops.load(place, ops.vector_type(element, width), CHUNK_BYTES)
            column = Index(ops.add(channel, ops.mul(chunk, width)), 1, width)
            y.store([Index(rank), Index(tap), Index(ops.add(pixel, row)), column], value)
            return []

        ops.for_(lane, box.pixels * per_row, 32, [], one)
        tma.end_reads()
        nvvm.bar_warp_sync(ops.const(-1))
        ring.release(here, lane, self.blocks)


# ---- the input


def channels_last(dtype, spatial, gap=0):
    """[N, C, (D,) H, W] of any size, its pixels `gap` elements apart."""
    whole = 128 // dtype.bits
    sizes = {
        "N": Dim("N", max=64),
        "C": Dim("C", min=whole, max=1024, multiple_of=whole),
        **{name: Dim(name, min=4, max=256) for name in "DHW"[-spatial:]},
    }
    dims = tuple(sizes.values())
    strides, pitch = [], dims[1] + gap
    for extent in reversed(dims[2:]):
        strides.insert(0, pitch)
        pitch = pitch * extent
    return tensor(1, dtype, dims, (pitch, 1, *strides))


def drawn(dtype, dims):
    rng = np.random.default_rng(machine.current().seed)
    return rng.integers(1, 60, dims).astype(dtype.numpy)  # no zeros: those are padding


def check(plan, box, dims, blocks=1, seed=0):
    """Runs the kernel on an input of these dims and compares every element."""
    x = drawn(box.tensor.type, dims)
    (y,) = machine.current().run(plan, {1: x}, seed=seed).values()
    wanted = expected(x, box.windows)
    _, pixels, channels = wanted.shape
    for block in range(blocks):
        assert (y[block, :, :pixels, :channels] == wanted).all()
    assert not y[:, :, pixels:].any(), "beyond the last image"
    assert not y[..., channels:].any(), "beyond the last channel"


F16, F32, I8 = dtypes.f16, dtypes.f32, dtypes.i8
ROW, PLANE, VOLUME = 1, 2, 3
SAME = Window(3, pre=1, post=1)


@pytest.mark.parametrize(
    ("dtype", "spatial", "windows", "channels", "pixels", "dims"),
    [
        pytest.param(F16, PLANE, (SAME, SAME), 64, 16, (2, 72, 5, 4), id="same"),
        pytest.param(F16, PLANE, (Window(1), Window(1)), 16, 24, (1, 24, 5, 7), id="1x1"),
        pytest.param(
            dtypes.bf16, PLANE,
            (Window(4, stride=2, pre=2, post=1), Window(3, dilation=2, post=1)),
            32, 8, (2, 40, 6, 5), id="strides_and_dilation",
        ),
        pytest.param(
            I8, PLANE, (Window(2, stride=3), Window(2, stride=8, pre=7, post=9)),
            16, 16, (3, 16, 7, 4), id="large_strides",
        ),
        pytest.param(
            F16, ROW, (Window(4, stride=3, dilation=2, pre=5, post=3),),
            32, 8, (3, 32, 11), id="row",
        ),
        pytest.param(
            F32, VOLUME, (SAME, Window(2, stride=2, post=1), Window(2, dilation=3)),
            8, 32, (2, 12, 4, 5, 6), id="volume",
        ),
    ],
)  # fmt: skip
def test_columns_of_every_tap(dtype, spatial, windows, channels, pixels, dims):
    box = Im2colBox(channels_last(dtype, spatial), windows, channels, pixels)
    assert im2col.refusal(box.tensor, windows) is None
    check(Columns(box).plan(), box, dims)


def test_one_plan_takes_inputs_of_any_size():
    """With pixels that are not next to each other in memory, and rows that are not swizzled."""
    windows = (Window(2, stride=2), Window(3, pre=1, post=1))
    box = Im2colBox(channels_last(F16, PLANE, gap=8), windows, 24, 16, is_swizzled=False)
    plan = Columns(box).plan()
    for dims in ((1, 24, 4, 4), (2, 40, 7, 5), (3, 8, 5, 6)):
        check(plan, box, dims)


def test_one_load_serves_the_blocks_of_a_cluster():
    box = Im2colBox(channels_last(F16, PLANE), (SAME, Window(2)), 32, 16)
    plan = Columns(box, blocks=2).plan()
    for seed in range(4):  # of the interpreter's schedule
        check(plan, box, (1, 32, 4, 5), blocks=2, seed=seed)


def test_elements_are_rounded_to_tf32_on_the_way():
    box = Im2colBox(channels_last(F32, ROW), (Window(2),), 4, 8, element="tf32")
    x = np.random.default_rng(0).uniform(1, 2, (1, 4, 6)).astype(np.float32)
    (y,) = machine.current().run(Columns(box).plan(), {1: x}).values()
    wanted = expected(x, box.windows)
    found = y[0, :, : wanted.shape[1]]
    assert not (found.view(np.uint32) & 0x1FFF).any()
    assert (np.abs(found - wanted) <= 2.0**-11).all()
