"""Runs the linalg stage of a graph of fixed sizes on the CPU, through LLVM's JIT."""

import ctypes
import re

import llvmlite.binding as llvm
import numpy as np

from dnnc import mlir
from dnnc.dialect import dnn, json_form, structure
from dnnc.dialect.reference import in_form
from dnnc.mlir import ir
from dnnc.passes.fuse import Fuse
from dnnc.passes.lower_to_linalg import LowerToLinalg
from dnnc.passes.prepare_fusions import PrepareFusions
from dnnc.rounding import round_to, widen

PIPELINE = (
    "builtin.module(one-shot-bufferize{bufferize-function-boundaries=true "
    "function-boundary-type-conversion=identity-layout-map},"
    "buffer-results-to-out-params{hoist-static-allocs=true modify-public-functions=true},"
    "canonicalize,"
    "buffer-deallocation-pipeline,convert-bufferization-to-memref,"
    "func.func(convert-linalg-to-loops),lower-affine,convert-scf-to-cf,"
    "math-expand-ops{ops=tanh,rsqrt,ceil,roundeven},arith-expand{include-bf16=true},"
    "expand-strided-metadata,lower-affine,convert-math-to-llvm,convert-math-to-libm,"
    "convert-index-to-llvm,convert-arith-to-llvm,finalize-memref-to-llvm,convert-func-to-llvm,"
    "convert-cf-to-llvm,canonicalize,cse,reconcile-unrealized-casts)"
)


# What LLVM calls for f32 -> bf16 where the processor has no instruction; not every process has it.
ROUND_TO_BF16 = """
define bfloat @__truncsfbf2(float %x) {
  %bits = bitcast float %x to i32
  %top = lshr i32 %bits, 16
  %is.odd = and i32 %top, 1
  %half = add i32 %is.odd, 32767
  %rounded = add i32 %bits, %half
  %is.nan = fcmp uno float %x, %x
  %quiet = or i32 %bits, 4194304
  %chosen = select i1 %is.nan, i32 %quiet, i32 %rounded
  %high = lshr i32 %chosen, 16
  %short = trunc i32 %high to i16
  %result = bitcast i16 %short to bfloat
  ret bfloat %result
}
"""


def with_sizes(graph, sizes):
    """The graph with its symbols replaced by numbers."""
    data = json_form.to_json(graph.finalize())
    by_uid = {t.uid: t for t in graph.tensors}
    for record in data["tensors"]:
        tensor = by_uid[record["uid"]]
        record["dims"] = [n.evaluate(sizes) for n in tensor.shape]
        record["strides"] = [s.evaluate(sizes) for s in tensor.layout]
    data["symbols"] = []
    data.pop("bounds", None)
    return json_form.from_json(data)


def lowered(graph):
    """The linalg stage as one plain function @main over packed tensors, and the uids of its
    arguments and of what it returns; inside a context."""
    module = dnn.to_mlir(graph)
    Fuse(partition=" ".join(str(i) for i in range(len(graph.live_ops)))).run(module)
    PrepareFusions().run(module)
    LowerToLinalg().run(module)
    (function,) = structure.fusion_functions(module)
    taken = [tensor.uid for tensor in dnn.read_arguments(function).values()]
    made = [tensor.uid for tensor in structure.read_results(function)]
    structure.inline_anchors(module, function)
    for op in list(module.body.operations):
        if "dnn.graph" in op.operation.attributes:
            op.operation.erase()
    for op in list(function.entry_block.operations):
        if op.operation.name == "dnn.size":
            raise AssertionError("a graph of fixed sizes has no dnn.size")
    function.attributes["sym_name"] = ir.StringAttr.get("main")
    function.attributes["sym_visibility"] = ir.StringAttr.get("public")
    function.attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()
    # The packed arrays that are passed have no other layout.
    return mlir.parse(re.sub(r", #dnn\.layout<[^>]*>>", ">", str(module))), taken, made


def descriptor(array):
    """The memref descriptor of a packed array, as MLIR's C interface takes it."""

    class Memref(ctypes.Structure):
        _fields_ = (
            ("allocated", ctypes.c_void_p),
            ("aligned", ctypes.c_void_p),
            ("offset", ctypes.c_int64),
            ("sizes", ctypes.c_int64 * array.ndim),
            ("strides", ctypes.c_int64 * array.ndim),
        )

    steps = [stride // array.itemsize for stride in array.strides]
    shape = ctypes.c_int64 * array.ndim
    pointer = array.ctypes.data
    return Memref(pointer, pointer, 0, shape(*array.shape), shape(*steps))


def machine():
    """A target machine; the execution engine that is given it owns it."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        opt=2,
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),  # f16 needs the host's own
    )


def run(graph, inputs):
    """uid -> stored array of each output; inputs: uid -> array of the logical dims."""
    graph.finalize()
    with dnn.context():
        module, taken, made = lowered(graph)
        mlir.run_pipeline(module, PIPELINE)
        text = mlir.llvm.translate_module_to_llvmir(module.operation)
    code = llvm.parse_assembly(text)
    code.link_in(llvm.parse_assembly(ROUND_TO_BF16))
    engine = llvm.create_mcjit_compiler(code, machine())
    engine.finalize_object()
    arrays = []
    for tensor in map(graph.tensor, taken):
        value = np.asarray(inputs[tensor.uid])
        stored = round_to(value if value.dtype == bool else widen(value), tensor.type)
        whole = np.broadcast_to(stored, [n.constant for n in tensor.shape])
        arrays.append(np.ascontiguousarray(in_form(tensor, whole, graph.form_of(tensor))))
    results = [graph.tensor(uid) for uid in made]
    outputs = {
        t.uid: np.zeros([n.constant for n in graph.form_of(t).shape], t.type.numpy) for t in results
    }
    memrefs = [descriptor(array) for array in (*arrays, *outputs.values())]
    address = engine.get_function_address("_mlir_ciface_main")
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(memrefs))(address)
    function(*(ctypes.addressof(m) for m in memrefs))
    return {t.uid: outputs[t.uid].reshape([n.constant for n in t.shape]) for t in results}
