// RUN: dnnc opt %s -p 'canonicalize-graph,cse' --print-between-passes 2>&1 | filecheck %s

// Our passes and MLIR's in one pipeline; the module after each is printed.
// CHECK: // ----- after canonicalize-graph
// CHECK-NOT: mode = "sin"
// CHECK-COUNT-2: mode = "exp"
// CHECK: // ----- after cse
// CHECK: mode = "exp"
// CHECK-NOT: mode = "exp"
// CHECK: mode = "add"

func.func @equal_operations(%x: tensor<4xf32>) -> tensor<4xf32> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "exp", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "dnn.pointwise"(%x) {compute_type = f32, mode = "exp", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "dnn.pointwise"(%0) {compute_type = f32, mode = "sin", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "dnn.pointwise"(%0, %1) {compute_type = f32, mode = "add", operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %3 : tensor<4xf32>
}
