// RUN: dnnc opt %s -p verify --split-input-file --verify-diagnostics | filecheck %s

// CHECK-LABEL: func.func @a_valid_graph_is_left_alone
// CHECK-NEXT: "dnn.pointwise"(%{{.*}}) {compute_type = f32, mode = "exp", operandSegmentSizes = array<i32: 1, 0, 0>}
// CHECK-NEXT: return
func.func @a_valid_graph_is_left_alone(%x: tensor<4x5xf32>) -> tensor<4x5xf32> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "exp", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4x5xf32>) -> tensor<4x5xf32>
  return %0 : tensor<4x5xf32>
}

// -----

// expected-error@+1 {{0 functions with dnn.graph; accepted: one func.func}}
func.func @no_graph(%x: tensor<4x5xf32>) -> tensor<4x5xf32> {
  return %x : tensor<4x5xf32>
}

// -----

// expected-error@+1 {{2 functions with dnn.graph; accepted: one func.func}}
func.func @two_graphs(%x: tensor<4xf32>) -> tensor<4xf32> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "exp", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func @the_other(%x: tensor<4xf32>) -> tensor<4xf32> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "exp", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error@+1 {{no operations; accepted: one operation at least}}
func.func @empty_graph(%x: tensor<4x5xf32>) -> tensor<4x5xf32> attributes {dnn.graph} {
  return %x : tensor<4x5xf32>
}

// -----

// expected-error@+1 {{tensor 'b' (uid 1): uid 1 is also that of 'a'; accepted: a uid for one tensor only}}
func.func @one_uid_twice(%a: tensor<4xf32> {dnn.uid = 1 : i64, dnn.name = "a"}, %b: tensor<4xf32> {dnn.uid = 1 : i64, dnn.name = "b"}) -> tensor<4xf32> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%a, %b) {compute_type = f32, mode = "add", operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error@+2 {{strides [2, 1] put two elements in one place; accepted: an output whose elements do not overlap}}
func.func @output_that_overlaps_itself(%x: tensor<4x5xf32>) -> tensor<4x5xf32, #dnn.layout<affine_map<() -> (4, 5, 2, 1)>>> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "exp", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4x5xf32>) -> tensor<4x5xf32, #dnn.layout<affine_map<() -> (4, 5, 2, 1)>>>
  return %0 : tensor<4x5xf32, #dnn.layout<affine_map<() -> (4, 5, 2, 1)>>>
}

// -----

func.func @operation_of_another_dialect(%x: tensor<4xf32>) -> tensor<4xf32> attributes {dnn.graph} {
  // expected-error@+1 {{@operation_of_another_dialect: operation arith.constant; accepted: func.return, operations of dnn}}
  %0 = arith.constant 1 : i32
  %1 = "dnn.pointwise"(%x) {compute_type = f32, mode = "exp", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}
