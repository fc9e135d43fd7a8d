// RUN: dnnc opt %s -p 'fuse,select-engine{choices=fallback},prepare-fusions,lower-to-linalg,tile,lower-to-kernels' --split-input-file | filecheck %s

// Each thread sums by itself: a loop, no shuffle and no shared memory.
// CHECK-LABEL: func.func @product(
// CHECK: llvm.func @fusion0_fallback(
// CHECK: scf.for
// CHECK: {{math.fma|llvm.intr.fma}}
// CHECK-NOT: nvvm.shfl
// CHECK-NOT: nvvm.barrier
// CHECK: "dnn.program"()
func.func @product(%x: tensor<5x7xf64>, %w: tensor<7x3xf64>) -> tensor<5x3xf64> attributes {dnn.graph} {
  %0 = "dnn.matmul"(%x, %w) {compute_type = f64} : (tensor<5x7xf64>, tensor<7x3xf64>) -> tensor<5x3xf64>
  return %0 : tensor<5x3xf64>
}

// -----

// The result of a sum is used against its operand's dims.
// CHECK-LABEL: func.func @centred(
// CHECK: llvm.func @fusion0_fallback(
// CHECK: scf.for
// CHECK: arith.subf
func.func @centred(%x: tensor<5x7xf32>) -> tensor<5x7xf32> attributes {dnn.graph} {
  %0 = "dnn.reduction"(%x) {compute_type = f32, mode = "avg"} : (tensor<5x7xf32>) -> tensor<5x1xf32>
  %1 = "dnn.pointwise"(%x, %0) {compute_type = f32, mode = "sub", operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<5x7xf32>, tensor<5x1xf32>) -> tensor<5x7xf32>
  return %1 : tensor<5x7xf32>
}

// -----

// The taps and channels of a convolution are loops; padding is a zero that is selected.
// CHECK-LABEL: func.func @convolution(
// CHECK: llvm.func @fusion0_fallback(
// CHECK-COUNT-3: scf.for
// CHECK: arith.select
// CHECK: math.fma
// CHECK: "dnn.program"()
func.func @convolution(%x: tensor<1x2x5x5xf64>, %w: tensor<3x2x3x3xf64>) -> tensor<1x3x5x5xf64> attributes {dnn.graph} {
  %0 = "dnn.conv_fprop"(%x, %w) {compute_type = f64, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 1>, post_padding = array<i64: 1, 1>, pre_padding = array<i64: 1, 1>, stride = array<i64: 1, 1>} : (tensor<1x2x5x5xf64>, tensor<3x2x3x3xf64>) -> tensor<1x3x5x5xf64>
  return %0 : tensor<1x3x5x5xf64>
}
