// RUN: dnnc opt %s -p canonicalize-graph --split-input-file | filecheck %s

// CHECK-LABEL: func.func @unused_operation
// CHECK-NOT: mode = "exp"
// CHECK: mode = "neg"
func.func @unused_operation(%x: tensor<4xf32>) -> tensor<4xf32> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "exp", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "dnn.pointwise"(%x) {compute_type = f32, mode = "neg", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}

// -----

// CHECK-LABEL: func.func @chain_that_ends_unused
// CHECK-NOT: mode = "exp"
// CHECK-NOT: mode = "sin"
// CHECK: return
func.func @chain_that_ends_unused(%x: tensor<4xf32>) -> tensor<4xf32> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "neg", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "dnn.pointwise"(%0) {compute_type = f32, mode = "exp", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "dnn.pointwise"(%1) {compute_type = f32, mode = "sin", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// One result is used: the operation stays with all of them.
// CHECK-LABEL: func.func @one_result_of_three_is_used
// CHECK: "dnn.layernorm"
func.func @one_result_of_three_is_used(%x: tensor<5x8xf32>, %scale: tensor<1x8xf32>, %bias: tensor<1x8xf32>, %epsilon: tensor<1x1xf32>) -> tensor<5x1xf32> attributes {dnn.graph} {
  %0:3 = "dnn.layernorm"(%x, %scale, %bias, %epsilon) {compute_type = f32, norm_forward_phase = "TRAINING", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1>} : (tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>, tensor<1x1xf32>) -> (tensor<5x8xf32>, tensor<5x1xf32>, tensor<5x1xf32>)
  return %0#1 : tensor<5x1xf32>
}

// -----

// CHECK-LABEL: func.func @unused_constant
// CHECK-NOT: dnn.constant
// CHECK: mode = "neg"
func.func @unused_constant(%x: tensor<4xf32>) -> tensor<4xf32> attributes {dnn.graph} {
  %0 = "dnn.constant"() {tensors = [{uid = 2 : i64, value = 2.5 : f64}], value = 2.5 : f64} : () -> tensor<1xf32>
  %1 = "dnn.pointwise"(%x) {compute_type = f32, mode = "neg", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}
