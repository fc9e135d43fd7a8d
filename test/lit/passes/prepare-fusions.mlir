// RUN: dnnc opt %s -t sm_80 -p fuse,select-engine,prepare-fusions --split-input-file | filecheck %s
// RUN: dnnc opt %s -t sm_80 -p fuse,select-engine,prepare-fusions,lower-to-linalg --split-input-file | filecheck %s --check-prefix=LINALG

// Views at the borders are strides of what is loaded and stored.
// CHECK-LABEL: func.func private @views_at_borders_fusion0(
// CHECK-SAME: tensor<8x16xf16, {{.*}}> {dnn.uid = 3 : i64}, %{{.*}}: tensor<16x32xf16, {{.*}}> {dnn.uid = 1 : i64}) -> (tensor<8x32xf16
// CHECK-SAME: dnn.prepared
// CHECK-SAME: dnn.tile = {a = {access_bytes = 16
// CHECK-NEXT: "dnn.matmul"{{.*}}role = "anchor"
// CHECK-NEXT: return
// LINALG-LABEL: func.func private @views_at_borders_fusion0(
// LINALG-NOT: dnn.prepared
// LINALG: call @
func.func @views_at_borders(%x: tensor<8x16xf16>, %w: tensor<32x16xf16>) -> tensor<2x4x32xf16> attributes {dnn.graph} {
  %0 = "dnn.transpose"(%w) {permutation = array<i64: 1, 0>} : (tensor<32x16xf16>) -> tensor<16x32xf16>
  %1 = "dnn.matmul"(%x, %0) {compute_type = f32} : (tensor<8x16xf16>, tensor<16x32xf16>) -> tensor<8x32xf16>
  %2 = "dnn.reshape"(%1) {reshape_mode = "LOGICAL"} : (tensor<8x32xf16>) -> tensor<2x4x32xf16>
  return %2 : tensor<2x4x32xf16>
}

// -----

// Axes are cut where one tensor has them cut, so that each follows one of another.
// CHECK-LABEL: func.func private @finer_axes_fusion0(
// CHECK-SAME: -> (tensor<4x5x2x32xf32
// CHECK: "dnn.reshape"{{.*}} -> tensor<4x2x32x5xf16
// CHECK: "dnn.transpose"{{.*}}permutation = array<i64: 0, 3, 1, 2>
// CHECK: "dnn.pointwise"{{.*}}mode = "exp"{{.*}} -> tensor<4x5x2x32xf32
// LINALG-LABEL: func.func private @finer_axes_fusion0(
func.func @finer_axes(%x: tensor<4x2x32x5xf16>) -> tensor<4x5x64xf32> attributes {dnn.graph} {
  %0 = "dnn.reshape"(%x) {reshape_mode = "LOGICAL"} : (tensor<4x2x32x5xf16>) -> tensor<4x64x5xf16>
  %1 = "dnn.transpose"(%0) {permutation = array<i64: 0, 2, 1>} : (tensor<4x64x5xf16>) -> tensor<4x5x64xf16>
  %2 = "dnn.pointwise"(%1) {compute_type = f32, mode = "exp", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4x5x64xf16>) -> tensor<4x5x64xf32>
  return %2 : tensor<4x5x64xf32>
}

// -----

// Names by which the engine finds its reductions again.
// CHECK-LABEL: func.func private @names_fusion0(
// CHECK: "dnn.reduction"{{.*}}mode = "max", parts = ["along"]
// CHECK: "dnn.reduction"{{.*}}mode = "add", parts = ["along"]
// LINALG-LABEL: func.func private @names_fusion0(
// LINALG-COUNT-2: dnn.parts = ["along"]
func.func @names(%x: tensor<4x64xf16>) -> tensor<4x64xf16> attributes {dnn.graph} {
  %0 = "dnn.softmax"(%x) {algorithm = "ACCURATE", axis = array<i64: 1>, compute_type = f32} : (tensor<4x64xf16>) -> tensor<4x64xf16>
  return %0 : tensor<4x64xf16>
}
