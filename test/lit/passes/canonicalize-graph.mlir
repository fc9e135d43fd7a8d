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

// -----

// CHECK-LABEL: func.func @transpose_of_transpose
// CHECK-SAME: (%[[X:[a-z0-9]+]]: tensor<2x3x4xf32
// CHECK-NEXT: %[[Y:.*]] = "dnn.transpose"(%[[X]]) {node = "second", permutation = array<i64: 2, 0, 1>
// CHECK-NEXT: return %[[Y]]
func.func @transpose_of_transpose(%x: tensor<2x3x4xf32>) -> tensor<4x2x3xf32> attributes {dnn.graph} {
  %0 = "dnn.transpose"(%x) {permutation = array<i64: 0, 2, 1>} : (tensor<2x3x4xf32>) -> tensor<2x4x3xf32>
  %1 = "dnn.transpose"(%0) {node = "second", permutation = array<i64: 1, 0, 2>} : (tensor<2x4x3xf32>) -> tensor<4x2x3xf32>
  return %1 : tensor<4x2x3xf32>
}

// -----

// Each start is counted in steps of the first slice; an axis that both take whole stays whole.
// CHECK-LABEL: func.func @slice_of_slice
// CHECK-NEXT: "dnn.slice"(%{{.*}}) {starts = array<i64: 5, 0>, steps = array<i64: 6, 1>, stops = array<i64: 18, -1>
// CHECK-NEXT: return
#all = affine_map<()[s0] -> (20, s0, s0, 1)>
#some = affine_map<()[s0] -> (6, s0, s0, 1)>
#fewer = affine_map<()[s0] -> (3, s0, s0, 1)>
func.func @slice_of_slice(%x: tensor<20x?xf32, #dnn.layout<#all>>) -> tensor<3x?xf32, #dnn.layout<#fewer>> attributes {dnn.graph, dnn.symbols = [#dnn.symbol<"M", 1 : i64, 64 : i64, 1 : i64>]} {
  %0 = "dnn.slice"(%x) {starts = array<i64: 2, 0>, steps = array<i64: 3, 1>, stops = array<i64: -1, -1>} : (tensor<20x?xf32, #dnn.layout<#all>>) -> tensor<6x?xf32, #dnn.layout<#some>>
  %1 = "dnn.slice"(%0) {starts = array<i64: 1, 0>, steps = array<i64: 2, 1>, stops = array<i64: 6, -1>} : (tensor<6x?xf32, #dnn.layout<#some>>) -> tensor<3x?xf32, #dnn.layout<#fewer>>
  return %1 : tensor<3x?xf32, #dnn.layout<#fewer>>
}

// -----

// CHECK-LABEL: func.func @reshape_of_reshape_of_reshape
// CHECK-NEXT: "dnn.reshape"(%{{.*}}) {{.*}}: (tensor<4x6xf32{{.*}}>) -> tensor<3x8xf32
// CHECK-NEXT: return
func.func @reshape_of_reshape_of_reshape(%x: tensor<4x6xf32>) -> tensor<3x8xf32> attributes {dnn.graph} {
  %0 = "dnn.reshape"(%x) {reshape_mode = "LOGICAL"} : (tensor<4x6xf32>) -> tensor<24xf32>
  %1 = "dnn.reshape"(%0) {reshape_mode = "LOGICAL"} : (tensor<24xf32>) -> tensor<2x12xf32>
  %2 = "dnn.reshape"(%1) {reshape_mode = "LOGICAL"} : (tensor<2x12xf32>) -> tensor<3x8xf32>
  return %2 : tensor<3x8xf32>
}

// -----

// What a reshape that keeps the memory gives depends on how its operand lies there.
// CHECK-LABEL: func.func @reshape_that_keeps_memory
// CHECK-COUNT-2: "dnn.reshape"
func.func @reshape_that_keeps_memory(%x: tensor<4x6xf32>) -> tensor<3x8xf32> attributes {dnn.graph} {
  %0 = "dnn.reshape"(%x) {reshape_mode = "VIEW_ONLY"} : (tensor<4x6xf32>) -> tensor<24xf32>
  %1 = "dnn.reshape"(%0) {reshape_mode = "VIEW_ONLY"} : (tensor<24xf32>) -> tensor<3x8xf32>
  return %1 : tensor<3x8xf32>
}

// -----

// The first view is an output, too.
// CHECK-LABEL: func.func @a_view_that_is_read_twice
// CHECK-SAME: (%[[X:[a-z0-9]+]]: tensor<2x3xf32
// CHECK-DAG: %[[FIRST:.*]] = "dnn.transpose"(%[[X]]) {permutation = array<i64: 1, 0>
// CHECK-DAG: %[[SECOND:.*]] = "dnn.transpose"(%[[X]]) {permutation = array<i64: 0, 1>
// CHECK: return %[[FIRST]], %[[SECOND]]
func.func @a_view_that_is_read_twice(%x: tensor<2x3xf32>) -> (tensor<3x2xf32>, tensor<2x3xf32>) attributes {dnn.graph} {
  %0 = "dnn.transpose"(%x) {permutation = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %1 = "dnn.transpose"(%0) {permutation = array<i64: 1, 0>} : (tensor<3x2xf32>) -> tensor<2x3xf32>
  return %0, %1 : tensor<3x2xf32>, tensor<2x3xf32>
}
