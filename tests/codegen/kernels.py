"""Kernels made of codegen's parts alone, as plans that any machine runs (see support.machine)."""

import numpy as np

from dnnc import dtypes, mlir
from dnnc import target as targets
from dnnc.codegen import nvptx, ops
from dnnc.codegen.memory.tensors import GlobalTensor
from dnnc.codegen.output import Output
from dnnc.codegen.walk.index import Index
from dnnc.dialect.tensor import Tensor, packed_strides, symbols_of
from dnnc.expr import Expr
from dnnc.passes.lower_to_nvvm import PIPELINE
from dnnc.plan import consistency
from dnnc.plan.plan import Kernel, Module, Plan, Program, Symbol, TensorRecord, Variant
from tests.support import machine

TARGET = targets.of("sm_90a")
THREADS = 256  # of a block of `applied`
WARP = 32
EMPTY = """
module attributes {{gpu.container_module}} {{
  gpu.module @kernels [#nvvm.target<O = 3, chip = "{chip}", features = "+ptx{ptx}">] {{ }}
}}
"""


def tensor(uid, dtype, dims, strides=None):
    """A tensor, packed unless its strides are given."""
    strides = packed_strides(dims) if strides is None else strides
    dims, strides = (tuple(map(Expr.of, sizes)) for sizes in (dims, strides))
    return Tensor(uid=uid, name=f"t{uid}", dims=dims, strides=strides, dtype=dtype)


def plan_of(emit, inputs, outputs):
    """The plan of the kernels that emit(output: Output) builds, for "sm_90a"."""
    with mlir.context():
        module = mlir.parse(EMPTY.format(chip=TARGET.chip, ptx=TARGET.ptx_version))
        output = Output(module.body.operations[0].operation, TARGET, "kernel")
        emit(output)
        mlir.run_pipeline(module, PIPELINE)
        ptx = nvptx.to_ptx(module)
    made = nvptx.assemble(ptx, TARGET)
    assert "(C75" not in made.log, "the assembler makes products wait for each other"
    threads = {step.launch.kernel: step.launch.block[0] for step in output.steps}
    program = Program(
        target=TARGET.name,
        capability=TARGET.capability,
        exact=TARGET.arch_specific,
        modules=(Module(0, 1),),
        kernels=tuple(
            Kernel(name, 0, threads[name], **vars(found)) for name, found in made.resources.items()
        ),
        variants=(Variant("1", "0", tuple(output.steps)),),
    )
    symbols = symbols_of((*inputs, *outputs)).values()
    plan = Plan(
        name="kernel",
        graph={},
        symbols=tuple(Symbol(d.name, d.min, d.max, d.multiple_of) for d in symbols),
        tensors=tuple(
            _record(t, role)
            for role, tensors in (("input", inputs), ("output", outputs))
            for t in tensors
        ),
        programs=(program,),
        blobs=(made.cubin, ptx.encode()),
    )
    consistency.verify(plan, "a test's kernel")
    return plan


def _record(t, role):
    sizes = (tuple(map(str, values)) for values in (t.shape, t.layout))
    return TensorRecord(t.uid, t.name, *sizes, t.type.name, role, t.alignment)


def applied(function, values):
    """function(fragment of two) of every value, by one thread a pair."""
    values = np.resize(values, -(-len(values) // (2 * THREADS)) * 2 * THREADS).astype(np.float32)
    x, y = tensor(1, dtypes.f32, values.shape), tensor(2, dtypes.f32, values.shape)

    def emit(output):
        kernel = output.kernel("", THREADS)
        with kernel.body():
            pair = ops.add(ops.mul(ops.block_id(), THREADS), ops.thread_id())
            at = [Index(ops.mul(pair, 2), 1, 2)]
            found = function(GlobalTensor(kernel, x).load(at, 2))
            GlobalTensor(kernel, y).store(at, found)
        output.launch(kernel, (len(values) // (2 * THREADS), 1, 1))

    found = machine.current().run(plan_of(emit, [x], [y]), {1: values})[2]
    return values, found


def results_of(emit):
    """[result][thread] of the i32 that emit(thread) makes in one warp."""
    outputs = []

    def whole(output):
        kernel = output.kernel("", WARP)
        with kernel.body():
            thread = ops.thread_id()
            for uid, made in enumerate(emit(thread)):
                outputs.append(tensor(uid, dtypes.i32, [WARP]))
                GlobalTensor(kernel, outputs[-1]).store([Index.of(thread)], ops.value_of(made))
        output.launch(kernel, (1, 1, 1))

    found = machine.current().run(plan_of(whole, [], outputs), {})
    return np.stack([found[y.uid] for y in outputs])
