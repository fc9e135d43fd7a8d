// RUN: dnnc opt %s -p 'fuse,select-engine{choices=pointwise:LOAD_SIZE=3}' --split-input-file --verify-diagnostics

// expected-error@+2 {{BAD_PARAM: knob LOAD_SIZE=3 of engine pointwise; accepted: 1, 2, 4, 8, 16}}
func.func @value_that_no_knob_has(%x: tensor<4xf32>) -> tensor<4xf32> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "exp", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error@+2 {{NOT_SUPPORTED_GRAPH_PATTERN: <fusion 0: matmul>: engine pointwise: operations: matmul; accepted: pointwise, transpose}}
func.func @engine_that_refuses(%x: tensor<8x16xf16>, %w: tensor<16x8xf16>) -> tensor<8x8xf16> attributes {dnn.graph} {
  %0 = "dnn.matmul"(%x, %w) {compute_type = f32} : (tensor<8x16xf16>, tensor<16x8xf16>) -> tensor<8x8xf16>
  return %0 : tensor<8x8xf16>
}
