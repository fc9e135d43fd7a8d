// RUN: dnnc opt %s -p 'apply-patterns{patterns=merge-transposes}' | filecheck %s
// RUN: dnnc opt %s -p 'fuse{partition="0 1 2 3"},apply-patterns{patterns="merge-transposes finer-axes"}' | filecheck %s --check-prefix=FUSED

// CHECK-LABEL: func.func @views
// CHECK-NEXT: "dnn.transpose"(%arg0) {permutation = array<i64: 0, 3, 1, 2>
// CHECK-NEXT: "dnn.reshape"{{.*}} -> tensor<4x5x64xf16
// CHECK-NEXT: mode = "exp"
// CHECK-NEXT: return

// The graph stays beside its fusion.
// FUSED-LABEL: func.func @views
// FUSED: "dnn.transpose"
// FUSED: "dnn.transpose"
// FUSED-LABEL: func.func private @views_fusion0(
// FUSED-SAME: -> (tensor<4x5x2x32xf16
// FUSED-NEXT: "dnn.transpose"
// FUSED-NEXT: "dnn.reshape"{{.*}} -> tensor<4x5x2x32xf16
// FUSED-NEXT: mode = "exp"
// FUSED-NEXT: return
func.func @views(%x: tensor<4x2x32x5xf16>) -> tensor<4x5x64xf16> attributes {dnn.graph} {
  %0 = "dnn.transpose"(%x) {permutation = array<i64: 0, 2, 1, 3>} : (tensor<4x2x32x5xf16>) -> tensor<4x32x2x5xf16>
  %1 = "dnn.transpose"(%0) {permutation = array<i64: 0, 3, 2, 1>} : (tensor<4x32x2x5xf16>) -> tensor<4x5x2x32xf16>
  %2 = "dnn.reshape"(%1) {reshape_mode = "LOGICAL"} : (tensor<4x5x2x32xf16>) -> tensor<4x5x64xf16>
  %3 = "dnn.pointwise"(%2) {compute_type = f32, mode = "exp", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4x5x64xf16>) -> tensor<4x5x64xf16>
  return %3 : tensor<4x5x64xf16>
}
