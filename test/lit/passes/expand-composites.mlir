// RUN: dnnc opt %s -p expand-composites --split-input-file | filecheck %s
// RUN: dnnc opt %s -t sm_80 -p expand-composites,fuse --split-input-file | filecheck %s --check-prefix=FUSED

// One pattern for each operation; the last step has the name and the uid of the result.
// CHECK-LABEL: func.func @softmax(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<4x8xf16>
// CHECK-NEXT: %[[MAX:.*]] = "dnn.reduction"(%[[X]]) {{.*}}mode = "max", node = "s"
// CHECK-NEXT: %[[LESS:.*]] = "dnn.pointwise"(%[[X]], %[[MAX]]) {{.*}}mode = "sub"
// CHECK-NEXT: %[[EXP:.*]] = "dnn.pointwise"(%[[LESS]]) {{.*}}mode = "exp"
// CHECK-NEXT: %[[SUM:.*]] = "dnn.reduction"(%[[EXP]]) {{.*}}mode = "add"
// CHECK-NEXT: %[[SHARE:.*]] = "dnn.pointwise"(%[[SUM]]) {{.*}}mode = "reciprocal"
// CHECK-NEXT: %[[Y:.*]] = "dnn.pointwise"(%[[EXP]], %[[SHARE]]) {{.*}}mode = "mul"{{.*}}tensors = [{name = "y", uid = 7 : i64}]
// CHECK-NEXT: return %[[Y]]
// FUSED-LABEL: func.func private @softmax_fusion0(
// FUSED: "dnn.reduction"{{.*}}mode = "max"
// FUSED: "dnn.pointwise"{{.*}}mode = "mul"{{.*}}uid = 7
func.func @softmax(%x: tensor<4x8xf16> {dnn.uid = 1 : i64}) -> tensor<4x8xf16> attributes {dnn.graph} {
  %0 = "dnn.softmax"(%x) {algorithm = "ACCURATE", axis = array<i64: 1>, compute_type = f32, node = "s", tensors = [{name = "y", uid = 7 : i64}]} : (tensor<4x8xf16>) -> tensor<4x8xf16>
  return %0 : tensor<4x8xf16>
}

// -----

// Steps expand in their turn: a product whose second batch is shared, between reshapes.
// CHECK-LABEL: func.func @batches_that_share(
// CHECK-NOT: tensor<6x3x4xf32>, tensor<2x4x5xf32>
// CHECK: "dnn.reshape"
// CHECK: "dnn.reshape"
// CHECK: "dnn.matmul"{{.*}} : (tensor<2x3x3x4xf32{{.*}}>, tensor<2x1x4x5xf32{{.*}}>) -> tensor<2x3x3x5xf32
// CHECK: "dnn.reshape"
// CHECK-NEXT: return
func.func @batches_that_share(%a: tensor<6x3x4xf32>, %b: tensor<2x4x5xf32>) -> tensor<6x3x5xf32> attributes {dnn.graph} {
  %0 = "dnn.matmul"(%a, %b) {compute_type = f32} : (tensor<6x3x4xf32>, tensor<2x4x5xf32>) -> tensor<6x3x5xf32>
  return %0 : tensor<6x3x5xf32>
}

// -----

// A result that nothing reads costs no step.
// CHECK-LABEL: func.func @inverse_deviation_alone(
// CHECK: mode = "rsqrt"
// CHECK-NOT: mode = "mul"{{.*}}tensor<1x8xf32>
// CHECK: return
func.func @inverse_deviation_alone(%x: tensor<5x8xf32>, %scale: tensor<1x8xf32>, %bias: tensor<1x8xf32>, %epsilon: tensor<1x1xf32>) -> tensor<5x1xf32> attributes {dnn.graph} {
  %0:3 = "dnn.layernorm"(%x, %scale, %bias, %epsilon) {compute_type = f32, norm_forward_phase = "TRAINING", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1>} : (tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>, tensor<1x1xf32>) -> (tensor<5x8xf32>, tensor<5x1xf32>, tensor<5x1xf32>)
  return %0#2 : tensor<5x1xf32>
}

// -----

// What engines know stays as it is.
// CHECK-LABEL: func.func @nothing_to_expand(
// CHECK-NEXT: "dnn.matmul"
// CHECK-NEXT: "dnn.pointwise"
// CHECK-NEXT: return
func.func @nothing_to_expand(%a: tensor<3x4xf32>, %b: tensor<4x5xf32>) -> tensor<3x5xf32> attributes {dnn.graph} {
  %0 = "dnn.matmul"(%a, %b) {compute_type = f32} : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
  %1 = "dnn.pointwise"(%0) {compute_type = f32, mode = "exp", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<3x5xf32>) -> tensor<3x5xf32>
  return %1 : tensor<3x5xf32>
}
