// RUN: dnnc opt %s -p 'fuse,select-engine,prepare-fusions,lower-to-linalg,tile,lower-to-kernels,assign-workspace,lower-to-nvvm' --split-input-file | filecheck %s

// Kernels hold llvm and nvvm operations alone; the graph beside them is not touched.
// CHECK-LABEL: func.func @kernels_are_lowered(
// CHECK: "dnn.pointwise"
// CHECK: gpu.module @fusion0
// CHECK-NOT: {{ (arith|math|scf|vector|index|cf)\.}}
// CHECK: llvm.func @fusion0_pointwise(
// CHECK: nvvm.read.ptx.sreg.ctaid.x
// CHECK-NOT: {{ (arith|math|scf|vector|index|cf)\.}}
// CHECK: llvm.return
// CHECK: "dnn.program"()
func.func @kernels_are_lowered(%x: tensor<64x128xf16>) -> tensor<64x128xf16> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "neg", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<64x128xf16>) -> tensor<64x128xf16>
  return %0 : tensor<64x128xf16>
}

// -----

// Functions are libdevice's, declared here and linked when PTX is made.
// CHECK-LABEL: func.func @functions_are_libdevice(
// CHECK-DAG: llvm.func @__nv_sinf(f32) -> f32
// CHECK-DAG: llvm.func @__nv_powf(f32, f32) -> f32
// CHECK: llvm.call @__nv_
func.func @functions_are_libdevice(%x: tensor<64xf32>, %y: tensor<64xf32>) -> tensor<64xf32> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "sin", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<64xf32>) -> tensor<64xf32>
  %1 = "dnn.pointwise"(%0, %y) {compute_type = f32, mode = "pow", operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  return %1 : tensor<64xf32>
}
