"""Warpgroup products whose A comes from registers, as kernels run them, against NumPy."""

from dataclasses import dataclass

import numpy as np
import pytest

from dnnc import dtypes
from dnnc.codegen import ops
from dnnc.codegen.hopper import mbarrier, tma, wgmma
from dnnc.codegen.hopper.wgmma import INSTRUCTIONS, AccumulatorLayout, OperandLayout, Panels
from dnnc.codegen.memory.smem import address, byte_pointer
from dnnc.codegen.memory.tensors import GlobalTensor
from dnnc.codegen.walk.index import Index
from dnnc.mlir import arith, ir, llvm
from tests.support import machine

from .kernels import plan_of, tensor

F16, BF16, F32, I8 = dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.i8
E4M3, E5M2 = dtypes.f8e4m3, dtypes.f8e5m2


@dataclass(frozen=True)
class Product:
    """A kernel of one warpgroup that computes y [64, n] = a [64, k] @ b, over panels of k.

    b: [n, k], or [k, n] where it is not K-major.  The words of A that a thread takes are at the
    places of `OperandLayout`, which the kernel reads as a table [128, 4].
    """

    row: wgmma.Instruction
    n: int
    is_k_major: bool = True
    panels_of_k: int = 2

    @property
    def k(self):
        return self.panels_of_k * self.row.panel_k

    @property
    def panels(self):
        return Panels(self.n, self.row.element_bytes, self.is_k_major)

    @property
    def b(self):
        return tensor(2, self.row.b, (self.n, self.k) if self.is_k_major else (self.k, self.n))

    @property
    def box(self):
        """The part of B that one copy brings."""
        width = self.row.panel_k if self.is_k_major else wgmma.PANEL_ROWS
        height = self.n if self.is_k_major else self.row.panel_k
        element = "tf32" if self.row.b == F32 else ""
        return tma.Box(self.b, (1, 0), (width, height), element)

    @property
    def starts(self):
        """Where in B each copy begins, in the order in which panels lie in shared memory."""
        firsts = range(0, self.k, self.row.panel_k)
        if self.is_k_major:
            return [(k, 0) for k in firsts]
        return [(row, k) for k in firsts for row in range(0, self.n, wgmma.PANEL_ROWS)]

    def plan(self):
        a, places = tensor(1, self.row.a, (64, self.k)), tensor(3, dtypes.i32, (128, 4))
        y = tensor(4, self.row.accumulator, (64, self.n))
        return plan_of(lambda output: self.emit(output, a, places, y), [a, self.b, places], [y])

    def emit(self, output, a, places, y):
        kernel = output.kernel("", wgmma.WARPGROUP_THREADS)
        with kernel.body():
            thread = ops.thread_id()
            b = address(self.load_b(kernel, thread))
            sums = self.compute(self.load_a(kernel, a, places, thread), b)
            self.store(GlobalTensor(kernel, y), thread, wgmma.unpacked(sums))
        output.launch(kernel, (1, 1, 1))

    def load_b(self, kernel, thread):
        """B's panels in shared memory, by TMA."""
        box, bytes_ = self.box, self.panels_of_k * self.panels.bytes
        memory = kernel.dynamic_shared(bytes_ + mbarrier.BYTES, 1024)
        barrier, map_ = byte_pointer(memory, bytes_), tma.map_argument(kernel, box)
        with ops.if_(ops.compare("eq", thread, 0)):
            mbarrier.make(barrier, 1)
            mbarrier.make_visible()
        ops.barrier()
        with ops.if_(ops.compare("eq", thread, 0)):
            mbarrier.expect(barrier, bytes_)
            for i, start in enumerate(self.starts):
                at = [ops.value_of(coordinate) for coordinate in start]
                tma.load(byte_pointer(memory, i * box.bytes), map_, at, barrier)
        mbarrier.wait(barrier, 0)
        return memory

    def load_a(self, kernel, a, places, thread):
        """[step of k][4 words]: a thread's fragments of A."""
        size, pointer = self.row.element_bytes, kernel.pointer(a)
        table = GlobalTensor(kernel, places).load([Index(thread), Index(0, 1, 0)], 4)
        firsts = [ops.mul(place, size) for place in ops.elements(table)]
        return [
            [
                ops.load(byte_pointer(pointer, ops.add(first, step)), ops.i32_type(), 4)
                for first in firsts
            ]
            for step in range(0, self.k * size, wgmma.K_BYTES)
        ]

    def compute(self, words, b):
        """words: of A.  b: address of B's panels."""
        return self.multiply(words, b, self.panels)

    def multiply(self, words, b, panels):
        row, sums = self.row, wgmma.undefined(self.row, panels.rows)
        start = wgmma.descriptor(b, panels)
        wgmma.fence()
        for i, fragment in enumerate(words):
            panel, step = divmod(i, row.steps)
            here = wgmma.moved(start, panel * panels.bytes + panels.offset(0, step))
            sums = wgmma.multiply(
                row, panels.rows, fragment, here, sums, int(i > 0), b_k_major=panels.is_k_major
            )
        wgmma.commit()
        return wgmma.wait_for([sums])[0]

    def store(self, y, thread, registers):
        layout = AccumulatorLayout(self.n)
        row, column = layout.origin(thread)
        for r in range(0, layout.registers, 2):
            down, right = layout.step(r)
            at = [Index(ops.add(row, down)), Index(ops.add(column, right), 1, 2)]
            y.store(at, ops.from_elements(registers[r : r + 2]))


class Chain(Product):
    """y [64, 64] = f16(a @ b^T) @ b, with b [64, 64] once as K-major and once as MN-major panel."""

    def compute(self, words, b):
        registers = wgmma.unpacked(self.multiply(words, b, self.panels))
        halves = [self.pair(registers[r : r + 2]) for r in range(0, len(registers), 2)]
        fragments = [halves[w : w + 4] for w in range(0, len(halves), 4)]
        return self.multiply(fragments, b, Panels(self.n, 2, is_k_major=False))

    @staticmethod
    def pair(values):
        narrow = [arith.TruncFOp(ir.F16Type.get(), value).result for value in values]
        return llvm.BitcastOp(ops.i32_type(), ops.from_elements(narrow)).result


def drawn(product, high=5):
    """A and B of integers whose sums of products every accumulator holds exactly."""
    rng = np.random.default_rng(machine.current().seed)
    high = 128 if product.row.a.is_integer else high
    shapes = (64, product.k), [extent.constant for extent in product.b.shape]
    return [
        rng.integers(-high, high, shape).astype(dtype.numpy)
        for shape, dtype in zip(shapes, (product.row.a, product.row.b), strict=True)
    ]


def places_of_a(row, k):
    """[128, 4]: where each word of a thread begins in A [64, k], in elements."""
    layout = OperandLayout(row.element_bytes)
    firsts = [[layout.place(thread, word, 0) for word in range(4)] for thread in range(128)]
    return np.array([[r * k + column for r, column in words] for words in firsts])


def run(product, a, b):
    inputs = {1: a, 2: b, 3: places_of_a(product.row, product.k)}
    (y,) = machine.current().run(product.plan(), inputs).values()
    return y


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("types", "n", "is_k_major"),
    [
        *(((F16, F16), n, True) for n in (8, 72, 256)),
        *(((F16, F16), n, False) for n in (64, 192)),
        ((BF16, BF16), 24, True),
        ((BF16, BF16), 128, False),
        *(((F32, F32), n, True) for n in (16, 40)),
        *(((I8, I8), n, True) for n in (8, 24, 48)),
        *(((E4M3, E4M3), n, True) for n in (16, 88)),
        ((E4M3, E5M2), 32, True),
        ((E5M2, E4M3), 8, True),
    ],
    ids=lambda value: "_".join(t.name for t in value) if isinstance(value, tuple) else str(value),
)
def test_a_comes_from_registers(types, n, is_k_major):
    product = Product(INSTRUCTIONS[types], n, is_k_major)
    assert product.row.takes_columns(n)
    a, b = drawn(product)
    right = b.T if is_k_major else b
    assert (run(product, a, b) == a.astype(np.float64) @ right.astype(np.float64)).all()


def test_sums_in_registers_are_the_next_products_a():
    chain = Chain(INSTRUCTIONS[F16, F16], 64, panels_of_k=1)
    a, b = drawn(chain, high=4)
    wide = b.astype(np.float64)
    assert (run(chain, a, b) == a.astype(np.float64) @ wide.T @ wide).all()
