// RUN: dnnc opt %s -p 'fuse,select-engine{choices=matmul_sm80:TILE_M=64:TILE_N=64},prepare-fusions,lower-to-linalg,tile,lower-to-kernels' --split-input-file | filecheck %s

// Operands come by cp.async and ldmatrix; the product is mma.sync; g2 is applied to its result.
// CHECK-LABEL: func.func @with_epilogue(
// CHECK: llvm.func @fusion0_matmul_sm80(
// CHECK: nvvm.cp.async.shared.global
// CHECK: nvvm.ldmatrix
// CHECK: nvvm.mma.sync {{.*}}shape = #nvvm.shape<m = 16, n = 8, k = 16>
// CHECK: arith.maximumf
// CHECK: llvm.store
func.func @with_epilogue(%x: tensor<256x512xf16>, %w: tensor<512x256xf16>) -> tensor<256x256xf16> attributes {dnn.graph} {
  %0 = "dnn.matmul"(%x, %w) {compute_type = f32} : (tensor<256x512xf16>, tensor<512x256xf16>) -> tensor<256x256xf32>
  %1 = "dnn.pointwise"(%0) {compute_type = f32, mode = "relu_fwd", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<256x256xf32>) -> tensor<256x256xf16>
  return %1 : tensor<256x256xf16>
}

// -----

// An operand with work before the product goes through registers; the other is still copied.
// CHECK-LABEL: func.func @with_prologue(
// CHECK: llvm.func @fusion0_matmul_sm80(
// CHECK: nvvm.cp.async.shared.global
// CHECK: arith.negf
// CHECK: nvvm.mma.sync
func.func @with_prologue(%x: tensor<256x512xf16>, %w: tensor<512x256xf16>) -> tensor<256x256xf16> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "neg", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<256x512xf16>) -> tensor<256x512xf16>
  %1 = "dnn.matmul"(%0, %w) {compute_type = f32} : (tensor<256x512xf16>, tensor<512x256xf16>) -> tensor<256x256xf16>
  return %1 : tensor<256x256xf16>
}

// -----

// Integers are summed in i32.
// CHECK-LABEL: func.func @integers(
// CHECK: nvvm.mma.sync {{.*}}#nvvm.mma_type<s8>{{.*}}shape = #nvvm.shape<m = 16, n = 8, k = 32>
func.func @integers(%x: tensor<256x512xi8>, %w: tensor<512x256xi8>) -> tensor<256x256xi32> attributes {dnn.graph} {
  %0 = "dnn.matmul"(%x, %w) {compute_type = i32} : (tensor<256x512xi8>, tensor<512x256xi8>) -> tensor<256x256xi32>
  return %0 : tensor<256x256xi32>
}
