// RUN: dnnc opt %s -p 'fuse{partition="0 1|2"}' --split-input-file --verify-diagnostics | filecheck %s

// CHECK-LABEL: func.func private @fits_fusion1(
func.func @fits(%x: tensor<4xf32>) -> tensor<4xf32> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "neg", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "dnn.pointwise"(%0) {compute_type = f32, mode = "exp", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "dnn.pointwise"(%1) {compute_type = f32, mode = "abs", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}

// -----

// expected-error@+1 {{partition '0 1|2'; accepted: places 0 to 0, as 0 1|2}}
func.func @place_that_is_none(%x: tensor<4xf32>) -> tensor<4xf32> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "neg", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error@+1 {{partition '0 1|2'; accepted: every operation in a fusion}}
func.func @operation_left_out(%x: tensor<4xf32>) -> tensor<4xf32> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "neg", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "dnn.pointwise"(%0) {compute_type = f32, mode = "exp", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "dnn.pointwise"(%1) {compute_type = f32, mode = "abs", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "dnn.pointwise"(%2) {compute_type = f32, mode = "sin", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %3 : tensor<4xf32>
}
