// RUN: dnnc opt %s --split-input-file --verify-diagnostics

// One operation a part, named for the constraint that it breaks.

func.func @matmul_c1(%a: tensor<4xf32>, %b: tensor<4x5xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: matmul (C1): A [4], B [4, 5]; accepted: ranks of at least 2}}
  "dnn.matmul"(%a, %b) {compute_type = f32} : (tensor<4xf32>, tensor<4x5xf32>) -> tensor<5xf32>
  return
}

// -----

func.func @matmul_c2(%a: tensor<3x4xf32>, %b: tensor<5x6xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: matmul (C2): K of A is 4, K of B is 5; accepted: one K}}
  "dnn.matmul"(%a, %b) {compute_type = f32} : (tensor<3x4xf32>, tensor<5x6xf32>) -> tensor<3x6xf32>
  return
}

// -----

func.func @matmul_c3(%a: tensor<2x3x4xf32>, %b: tensor<3x4x5xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: matmul (C3): batch dim 0 of a tensor without a name is 2; accepted: 3, or a fixed number that divides it}}
  "dnn.matmul"(%a, %b) {compute_type = f32} : (tensor<2x3x4xf32>, tensor<3x4x5xf32>) -> tensor<2x3x5xf32>
  return
}

// -----

func.func @matmul_c4(%a: tensor<3x4xf32>, %b: tensor<4x5xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: matmul (C4): C has dims [3, 6]; accepted: [3, 5]}}
  "dnn.matmul"(%a, %b) {compute_type = f32} : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x6xf32>
  return
}

// -----

func.func @matmul_c5(%a: tensor<3x4xf32>, %b: tensor<4x5xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: matmul (C5): compute type INT32 for f32 and f32; accepted: FLOAT, HALF, DOUBLE}}
  "dnn.matmul"(%a, %b) {compute_type = i32} : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
  return
}

// -----

func.func @matmul_c5_fast_for_fp8_only(%a: tensor<3x4xf8E4M3FN>, %b: tensor<4x5xf16>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: matmul (C5): compute type FAST_FLOAT_FOR_FP8 for f8E4M3FN and f16; accepted: FLOAT, HALF, DOUBLE}}
  "dnn.matmul"(%a, %b) {compute_type = !dnn.fast_float_for_fp8} : (tensor<3x4xf8E4M3FN>, tensor<4x5xf16>) -> tensor<3x5xf32>
  return
}

// -----

func.func @matmul_c6(%arg0: tensor<6x4x1x1x1x1x3x4xf32>, %arg1: tensor<3x4x1x1x1x1x4x5xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_SHAPE: matmul (C6): rank 8, and 1 batch dims that divide others; accepted: 8 together}}
  "dnn.matmul"(%arg0, %arg1) {compute_type = f32} : (tensor<6x4x1x1x1x1x3x4xf32>, tensor<3x4x1x1x1x1x4x5xf32>) -> tensor<6x4x1x1x1x1x3x5xf32>
  return
}

// -----

func.func @tensor_of_a_compute_type(%a: tensor<2x3x!dnn.fast_float_for_fp8>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: a tensor without a name: data type FAST_FLOAT_FOR_FP8, which is a compute type only; accepted: f32, f64, f16,}}
  "dnn.transpose"(%a) {permutation = array<i64: 1, 0>} : (tensor<2x3x!dnn.fast_float_for_fp8>) -> tensor<3x2x!dnn.fast_float_for_fp8>
  return
}

// -----

func.func @moe_grouped_matmul_c1(%t: tensor<2x7x5xf32>, %w: tensor<3x5x4xf32>, %first: tensor<3x1x1xi32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: moe_grouped_matmul (C1): token [2, 7, 5], weight [3, 5, 4]; accepted: token [1, T, K], weight [E, K, N]}}
  "dnn.moe_grouped_matmul"(%t, %w, %first) {compute_type = f32, mode = "NONE", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, top_k = 0 : i64} : (tensor<2x7x5xf32>, tensor<3x5x4xf32>, tensor<3x1x1xi32>) -> tensor<1x7x4xf32>
  return
}

// -----

func.func @moe_grouped_matmul_c2(%t: tensor<1x7x5xf32>, %w: tensor<3x5x4xf32>, %first: tensor<3x1x1xi32>, %index: tensor<1x7x1xi32>) {
  // expected-error@+1 {{NOT_SUPPORTED: moe_grouped_matmul (C2): mode GATHER with token_index; accepted: mode NONE without token_index, token_ks, top_k_scores}}
  "dnn.moe_grouped_matmul"(%t, %w, %first, %index) {compute_type = f32, mode = "GATHER", operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>, top_k = 0 : i64} : (tensor<1x7x5xf32>, tensor<3x5x4xf32>, tensor<3x1x1xi32>, tensor<1x7x1xi32>) -> tensor<1x7x4xf32>
  return
}

// -----

func.func @moe_grouped_matmul_c3(%t: tensor<1x7x5xf32>, %w: tensor<3x6x4xf32>, %first: tensor<3x1x1xi32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: moe_grouped_matmul (C3): K of token is 5, K of weight is 6; accepted: one K}}
  "dnn.moe_grouped_matmul"(%t, %w, %first) {compute_type = f32, mode = "NONE", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, top_k = 0 : i64} : (tensor<1x7x5xf32>, tensor<3x6x4xf32>, tensor<3x1x1xi32>) -> tensor<1x7x4xf32>
  return
}

// -----

func.func @moe_grouped_matmul_c4(%t: tensor<1x7x5xf32>, %w: tensor<3x5x4xf32>, %first: tensor<4x1x1xi32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: moe_grouped_matmul (C4): first_token_offset has dims [4, 1, 1]; accepted: [3, 1, 1]}}
  "dnn.moe_grouped_matmul"(%t, %w, %first) {compute_type = f32, mode = "NONE", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, top_k = 0 : i64} : (tensor<1x7x5xf32>, tensor<3x5x4xf32>, tensor<4x1x1xi32>) -> tensor<1x7x4xf32>
  return
}

// -----

func.func @moe_grouped_matmul_c5(%t: tensor<1x7x5xf32>, %w: tensor<3x5x4xf32>, %first: tensor<3x1x1xi64>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: moe_grouped_matmul (C5): data type i64 of a tensor without a name; accepted: i32}}
  "dnn.moe_grouped_matmul"(%t, %w, %first) {compute_type = f32, mode = "NONE", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, top_k = 0 : i64} : (tensor<1x7x5xf32>, tensor<3x5x4xf32>, tensor<3x1x1xi64>) -> tensor<1x7x4xf32>
  return
}

// -----

func.func @moe_grouped_matmul_c6(%t: tensor<1x7x5xf32>, %w: tensor<3x5x4xf32>, %first: tensor<3x1x1xi32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: moe_grouped_matmul (C6): output has dims [1, 8, 4]; accepted: [1, 7, 4]}}
  "dnn.moe_grouped_matmul"(%t, %w, %first) {compute_type = f32, mode = "NONE", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, top_k = 0 : i64} : (tensor<1x7x5xf32>, tensor<3x5x4xf32>, tensor<3x1x1xi32>) -> tensor<1x8x4xf32>
  return
}

// -----

func.func @moe_grouped_matmul_c7(%t: tensor<1x7x5xf32>, %w: tensor<3x5x4xf32>, %first: tensor<3x1x1xi32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: moe_grouped_matmul (C7): compute type HALF; accepted: FLOAT}}
  "dnn.moe_grouped_matmul"(%t, %w, %first) {compute_type = f16, mode = "NONE", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, top_k = 0 : i64} : (tensor<1x7x5xf32>, tensor<3x5x4xf32>, tensor<3x1x1xi32>) -> tensor<1x7x4xf32>
  return
}

// -----

func.func @matmul_without_compute_type(%a: tensor<3x4xf32>, %b: tensor<4x5xf32>) {
  // expected-error@+1 {{attribute "compute_type" is expected but not provided}}
  "dnn.matmul"(%a, %b) {} : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
  return
}

// -----

func.func @pointwise_c1(%a: tensor<4x5xf32>) {
  // expected-error@+1 {{BAD_PARAM: pointwise:add (C1): 1 operands; accepted: 2}}
  "dnn.pointwise"(%a) {compute_type = f32, mode = "add", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4x5xf32>) -> tensor<4x5xf32>
  return
}

// -----

func.func @pointwise_c2(%a: tensor<4x5xf32>, %b: tensor<3x5xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: pointwise:add (C2): dim 0 of a tensor without a name is 3, not 4; accepted: 4 or 1}}
  "dnn.pointwise"(%a, %b) {compute_type = f32, mode = "add", operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<4x5xf32>, tensor<3x5xf32>) -> tensor<4x5xf32>
  return
}

// -----

func.func @pointwise_c3(%a: tensor<4x5xf32>, %b: tensor<4x5xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: pointwise:add (C3): Y has dims [4, 6]; accepted: [4, 5]}}
  "dnn.pointwise"(%a, %b) {compute_type = f32, mode = "add", operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<4x5xf32>, tensor<4x5xf32>) -> tensor<4x6xf32>
  return
}

// -----

func.func @pointwise_c4(%a: tensor<4xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: pointwise:exp (C4): compute type INT32; accepted: FLOAT, DOUBLE}}
  "dnn.pointwise"(%a) {compute_type = i32, mode = "exp", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @pointwise_c5(%a: tensor<4x5xf32>) {
  // expected-error@+1 {{BAD_PARAM: pointwise:gen_index (C5): axis=2; accepted: 0 to 1}}
  "dnn.pointwise"(%a) {axis = 2 : i64, compute_type = i32, mode = "gen_index", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4x5xf32>) -> tensor<4x5xi32>
  return
}

// -----

func.func @pointwise_c6(%a: tensor<4xf32>, %b: tensor<4xf32>) {
  // expected-error@+1 {{BAD_PARAM: pointwise:add (C6): elu_alpha; accepted: none}}
  "dnn.pointwise"(%a, %b) {compute_type = f32, elu_alpha = 1.0 : f64, mode = "add", operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @pointwise_unknown_mode(%a: tensor<4xf32>, %b: tensor<4xf32>) {
  // expected-error@+1 {{BAD_PARAM: pointwise:addd (mode): mode='addd'; accepted: add, mul, min}}
  "dnn.pointwise"(%a, %b) {compute_type = f32, mode = "addd", operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @reduction_c1(%a: tensor<4x5xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: reduction:add (C1): X [4, 5], Y [1]; accepted: equal ranks}}
  "dnn.reduction"(%a) {compute_type = f32, mode = "add"} : (tensor<4x5xf32>) -> tensor<1xf32>
  return
}

// -----

func.func @reduction_c2(%a: tensor<4x5xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: reduction:add (C2): dim 0 of Y is 2; accepted: 4 or 1}}
  "dnn.reduction"(%a) {compute_type = f32, mode = "add"} : (tensor<4x5xf32>) -> tensor<2x1xf32>
  return
}

// -----

func.func @reduction_c3(%a: tensor<4xi32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: reduction:avg (C3): compute type INT32; accepted: FLOAT, DOUBLE}}
  "dnn.reduction"(%a) {compute_type = i32, mode = "avg"} : (tensor<4xi32>) -> tensor<1xi32>
  return
}

// -----

func.func @reduction_c4(%a: tensor<4x5xf32>) {
  // expected-error@+1 {{BAD_PARAM: reduction:add (C4): an index of mode 'add'; accepted: min, max, amax, or generate_index=False}}
  %y, %i = "dnn.reduction"(%a) {compute_type = f32, generate_index = true, mode = "add", resultSegmentSizes = array<i32: 1, 1>} : (tensor<4x5xf32>) -> (tensor<4x1xf32>, tensor<4x1xi32>)
  return
}

// -----

func.func @reduction_c5(%a: tensor<4x?xf32, #dnn.layout<affine_map<()[s0] -> (4, s0, s0, 1)>>>) attributes {dnn.symbols = [#dnn.symbol<"Z", 0 : i64, 64 : i64, 1 : i64>]} {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: reduction:max (C5): an index along axis 1, whose size Z may be 0; accepted: a symbol whose min is at least 1}}
  %y, %i = "dnn.reduction"(%a) {compute_type = f32, generate_index = true, mode = "max", resultSegmentSizes = array<i32: 1, 1>} : (tensor<4x?xf32, #dnn.layout<affine_map<()[s0] -> (4, s0, s0, 1)>>>) -> (tensor<4x1xf32>, tensor<4x1xi32>)
  return
}

// -----

func.func @transpose_c1(%a: tensor<2x3x4xf32>) {
  // expected-error@+1 {{BAD_PARAM: transpose (C1): permutation [0, 0, 1]; accepted: each of 0 to 2 once}}
  "dnn.transpose"(%a) {permutation = array<i64: 0, 0, 1>} : (tensor<2x3x4xf32>) -> tensor<2x2x3xf32>
  return
}

// -----

func.func @transpose_c2(%a: tensor<2x3x4xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: transpose (C2): Y has dims [2, 3, 4]; accepted: [3, 2, 4]}}
  "dnn.transpose"(%a) {permutation = array<i64: 1, 0, 2>} : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  return
}

// -----

func.func @transpose_c3(%a: tensor<2x3x4xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: transpose (C3): Y has data type f16; accepted: f32}}
  "dnn.transpose"(%a) {permutation = array<i64: 1, 0, 2>} : (tensor<2x3x4xf32>) -> tensor<3x2x4xf16>
  return
}

// -----

func.func @slice_c1(%a: tensor<6x9xf32>) {
  // expected-error@+1 {{BAD_PARAM: slice (C1): starts, stops, steps of other lengths; accepted: 2 each}}
  "dnn.slice"(%a) {starts = array<i64: 0>, steps = array<i64: 1>, stops = array<i64: 4>} : (tensor<6x9xf32>) -> tensor<4x9xf32>
  return
}

// -----

func.func @slice_c2(%a: tensor<6xf32>) {
  // expected-error@+1 {{BAD_PARAM: slice (C2): slice 5:3:1 of axis 0; accepted: 0 <= start < stop <= 6, step >= 1}}
  "dnn.slice"(%a) {starts = array<i64: 5>, steps = array<i64: 1>, stops = array<i64: 3>} : (tensor<6xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @slice_c3(%a: tensor<6xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: slice (C3): Y has dims [4]; accepted: [3]}}
  "dnn.slice"(%a) {starts = array<i64: 0>, steps = array<i64: 2>, stops = array<i64: 5>} : (tensor<6xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @slice_c4(%a: tensor<6xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: slice (C4): Y has data type f16; accepted: f32}}
  "dnn.slice"(%a) {starts = array<i64: 0>, steps = array<i64: 1>, stops = array<i64: 4>} : (tensor<6xf32>) -> tensor<4xf16>
  return
}

// -----

func.func @reshape_c1(%a: tensor<4x6xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: reshape (C1): [4, 6] has 24 elements, [5, 5] has 25; accepted: as many elements}}
  "dnn.reshape"(%a) {reshape_mode = "LOGICAL"} : (tensor<4x6xf32>) -> tensor<5x5xf32>
  return
}

// -----

func.func @reshape_c3(%a: tensor<4x6xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: reshape (C3): Y has data type f16; accepted: f32}}
  "dnn.reshape"(%a) {reshape_mode = "LOGICAL"} : (tensor<4x6xf32>) -> tensor<24xf16>
  return
}

// -----

func.func @reshape_c2(%a: tensor<4x6xf32, #dnn.layout<affine_map<() -> (4, 6, 8, 1)>>>) {
  // expected-error@+1 {{NOT_SUPPORTED_LAYOUT: reshape (C2): strides [8, 1] of dims [4, 6]; accepted: packed strides, or reshape_mode LOGICAL}}
  "dnn.reshape"(%a) {reshape_mode = "VIEW_ONLY"} : (tensor<4x6xf32, #dnn.layout<affine_map<() -> (4, 6, 8, 1)>>>) -> tensor<24xf32>
  return
}

// -----

func.func @concatenate_c1(%a: tensor<2x3xf32>, %b: tensor<2x3xf32>) {
  // expected-error@+1 {{BAD_PARAM: concatenate (C1): axis=2; accepted: 0 to 1}}
  "dnn.concatenate"(%a, %b) {axis = 2 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @concatenate_c2(%a: tensor<2x3xf32>, %b: tensor<4x3xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: concatenate (C2): a tensor without a name has dims [4, 3]; accepted: [2, 6] but for axis 1}}
  "dnn.concatenate"(%a, %b) {axis = 1 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @concatenate_c3(%a: tensor<2x3xf32>, %b: tensor<4x3xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: concatenate (C3): Y has dims [5, 3]; accepted: [6, 3]}}
  "dnn.concatenate"(%a, %b) {axis = 0 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<5x3xf32>
  return
}

// -----

func.func @concatenate_c4(%a: tensor<2x3xf32>, %b: tensor<2x3xi32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: concatenate (C4): a tensor without a name has data type i32; accepted: f32}}
  "dnn.concatenate"(%a, %b) {axis = 0 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x3xf32>, tensor<2x3xi32>) -> tensor<4x3xf32>
  return
}

// -----

func.func @concatenate_c5(%a: tensor<2x3xf32>, %b: tensor<2x3xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED: concatenate (C5): in_place_index=0; accepted: no in_place_index: the result has its own buffer}}
  "dnn.concatenate"(%a, %b) {axis = 0 : i64, in_place_index = 0 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<4x3xf32>
  return
}

// -----

func.func @broadcast_c1(%a: tensor<2x4xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: broadcast (C1): X has dims [2, 4]; accepted: dims of [3, 4], or 1, or no leading dims}}
  "dnn.broadcast"(%a) : (tensor<2x4xf32>) -> tensor<3x4xf32>
  return
}

// -----

func.func @broadcast_c2(%a: tensor<4xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: broadcast (C2): Y has data type f16; accepted: f32}}
  "dnn.broadcast"(%a) : (tensor<4xf32>) -> tensor<3x4xf16>
  return
}

// -----

func.func @softmax_of_rank_0(%a: tensor<f32>) {
  // expected-error@+1 {{NOT_SUPPORTED_SHAPE: softmax (x): input a tensor without a name of rank 0; accepted: rank 1 to 8}}
  "dnn.softmax"(%a) {algorithm = "ACCURATE", axis = array<i64: 0>, compute_type = f32} : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @bounds_of_no_symbol(%a: tensor<4xf32>) attributes {dnn.symbols = [#dnn.symbol<"M", 1 : i64, 8 : i64, 1 : i64>], dnn.bounds = [#dnn.bound<["M", "N"], 8 : i64>]} {
  // expected-error@+1 {{BAD_PARAM: dnn.bounds of ['N']; accepted: M}}
  "dnn.broadcast"(%a) : (tensor<4xf32>) -> tensor<3x4xf32>
  return
}

// -----

func.func @conv_fprop_c1(%a: tensor<2x4x7x7xf32>, %b: tensor<6x4x3x3xf32>) {
  // expected-error@+1 {{BAD_PARAM: conv_fprop (C1): stride [1]; accepted: 2 values}}
  "dnn.conv_fprop"(%a, %b) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 1>, post_padding = array<i64: 0, 0>, pre_padding = array<i64: 0, 0>, stride = array<i64: 1>} : (tensor<2x4x7x7xf32>, tensor<6x4x3x3xf32>) -> tensor<2x6x5x5xf32>
  return
}

// -----

func.func @conv_fprop_c2(%a: tensor<2x4x7x7xf32>, %b: tensor<6x4x3x3xf32>) {
  // expected-error@+1 {{BAD_PARAM: conv_fprop (C2): stride [1, 0]; accepted: values of at least 1}}
  "dnn.conv_fprop"(%a, %b) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 1>, post_padding = array<i64: 0, 0>, pre_padding = array<i64: 0, 0>, stride = array<i64: 1, 0>} : (tensor<2x4x7x7xf32>, tensor<6x4x3x3xf32>) -> tensor<2x6x5x5xf32>
  return
}

// -----

func.func @conv_fprop_c3(%a: tensor<2x4x7x7xf32>, %b: tensor<6x3x3x3xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: conv_fprop (C3): C = 4, W [6, 3, 3, 3]; accepted: fixed sizes; W's second dim divides C, and C over it divides K}}
  "dnn.conv_fprop"(%a, %b) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 1>, post_padding = array<i64: 0, 0>, pre_padding = array<i64: 0, 0>, stride = array<i64: 1, 1>} : (tensor<2x4x7x7xf32>, tensor<6x3x3x3xf32>) -> tensor<2x6x5x5xf32>
  return
}

// -----

func.func @conv_fprop_c4(%a: tensor<2x4x7x7xf32>, %b: tensor<6x4x3x3xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: conv_fprop (C4): Y has dims [2, 6, 7, 7]; accepted: [2, 6, 5, 5], each at least 1}}
  "dnn.conv_fprop"(%a, %b) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 1>, post_padding = array<i64: 0, 0>, pre_padding = array<i64: 0, 0>, stride = array<i64: 1, 1>} : (tensor<2x4x7x7xf32>, tensor<6x4x3x3xf32>) -> tensor<2x6x7x7xf32>
  return
}

// -----

func.func @conv_fprop_c5(%a: tensor<2x4x7x7xf32>, %b: tensor<6x4x3x3xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: conv_fprop (C5): compute type INT32 for f32 and f32; accepted: FLOAT, HALF, DOUBLE}}
  "dnn.conv_fprop"(%a, %b) {compute_type = i32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 1>, post_padding = array<i64: 0, 0>, pre_padding = array<i64: 0, 0>, stride = array<i64: 1, 1>} : (tensor<2x4x7x7xf32>, tensor<6x4x3x3xf32>) -> tensor<2x6x5x5xf32>
  return
}

// -----

func.func @conv_dgrad_c1(%a: tensor<2x6x5x5xf32>, %b: tensor<6x4x3x3xf32>) {
  // expected-error@+1 {{BAD_PARAM: conv_dgrad (C1): stride [1]; accepted: 2 values}}
  "dnn.conv_dgrad"(%a, %b) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 1>, post_padding = array<i64: 0, 0>, pre_padding = array<i64: 0, 0>, stride = array<i64: 1>} : (tensor<2x6x5x5xf32>, tensor<6x4x3x3xf32>) -> tensor<2x4x7x7xf32>
  return
}

// -----

func.func @conv_dgrad_c2(%a: tensor<2x6x5x5xf32>, %b: tensor<6x4x3x3xf32>) {
  // expected-error@+1 {{BAD_PARAM: conv_dgrad (C2): dilation [1, 0]; accepted: values of at least 1}}
  "dnn.conv_dgrad"(%a, %b) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 0>, post_padding = array<i64: 0, 0>, pre_padding = array<i64: 0, 0>, stride = array<i64: 1, 1>} : (tensor<2x6x5x5xf32>, tensor<6x4x3x3xf32>) -> tensor<2x4x7x7xf32>
  return
}

// -----

func.func @conv_dgrad_c3(%a: tensor<2x6x5x5xf32>, %b: tensor<6x3x3x3xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: conv_dgrad (C3): C = 4, W [6, 3, 3, 3]; accepted: fixed sizes; W's second dim divides C, and C over it divides K}}
  "dnn.conv_dgrad"(%a, %b) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 1>, post_padding = array<i64: 0, 0>, pre_padding = array<i64: 0, 0>, stride = array<i64: 1, 1>} : (tensor<2x6x5x5xf32>, tensor<6x3x3x3xf32>) -> tensor<2x4x7x7xf32>
  return
}

// -----

func.func @conv_dgrad_c4(%a: tensor<2x6x7x7xf32>, %b: tensor<6x4x3x3xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: conv_dgrad (C4): DY has dims [2, 6, 7, 7]; accepted: [2, 6, 5, 5], each at least 1}}
  "dnn.conv_dgrad"(%a, %b) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 1>, post_padding = array<i64: 0, 0>, pre_padding = array<i64: 0, 0>, stride = array<i64: 1, 1>} : (tensor<2x6x7x7xf32>, tensor<6x4x3x3xf32>) -> tensor<2x4x7x7xf32>
  return
}

// -----

func.func @conv_dgrad_c5(%a: tensor<2x6x5x5xf32>, %b: tensor<6x4x3x3xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: conv_dgrad (C5): compute type INT32 for f32 and f32; accepted: FLOAT, HALF, DOUBLE}}
  "dnn.conv_dgrad"(%a, %b) {compute_type = i32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 1>, post_padding = array<i64: 0, 0>, pre_padding = array<i64: 0, 0>, stride = array<i64: 1, 1>} : (tensor<2x6x5x5xf32>, tensor<6x4x3x3xf32>) -> tensor<2x4x7x7xf32>
  return
}

// -----

func.func @conv_wgrad_c1(%a: tensor<2x4x7x7xf32>, %b: tensor<2x6x5x5xf32>) {
  // expected-error@+1 {{BAD_PARAM: conv_wgrad (C1): stride [1]; accepted: 2 values}}
  "dnn.conv_wgrad"(%a, %b) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 1>, post_padding = array<i64: 0, 0>, pre_padding = array<i64: 0, 0>, stride = array<i64: 1>} : (tensor<2x4x7x7xf32>, tensor<2x6x5x5xf32>) -> tensor<6x4x3x3xf32>
  return
}

// -----

func.func @conv_wgrad_c2(%a: tensor<2x4x7x7xf32>, %b: tensor<2x6x5x5xf32>) {
  // expected-error@+1 {{BAD_PARAM: conv_wgrad (C2): dilation [1, 0]; accepted: values of at least 1}}
  "dnn.conv_wgrad"(%a, %b) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 0>, post_padding = array<i64: 0, 0>, pre_padding = array<i64: 0, 0>, stride = array<i64: 1, 1>} : (tensor<2x4x7x7xf32>, tensor<2x6x5x5xf32>) -> tensor<6x4x3x3xf32>
  return
}

// -----

func.func @conv_wgrad_c3(%a: tensor<2x4x7x7xf32>, %b: tensor<2x6x5x5xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: conv_wgrad (C3): C = 4, DW [6, 3, 3, 3]; accepted: fixed sizes; DW's second dim divides C, and C over it divides K}}
  "dnn.conv_wgrad"(%a, %b) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 1>, post_padding = array<i64: 0, 0>, pre_padding = array<i64: 0, 0>, stride = array<i64: 1, 1>} : (tensor<2x4x7x7xf32>, tensor<2x6x5x5xf32>) -> tensor<6x3x3x3xf32>
  return
}

// -----

func.func @conv_wgrad_c4(%a: tensor<2x4x7x7xf32>, %b: tensor<2x6x7x7xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: conv_wgrad (C4): DY has dims [2, 6, 7, 7]; accepted: [2, 6, 5, 5], each at least 1}}
  "dnn.conv_wgrad"(%a, %b) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 1>, post_padding = array<i64: 0, 0>, pre_padding = array<i64: 0, 0>, stride = array<i64: 1, 1>} : (tensor<2x4x7x7xf32>, tensor<2x6x7x7xf32>) -> tensor<6x4x3x3xf32>
  return
}

// -----

func.func @conv_wgrad_c5(%a: tensor<2x4x7x7xf32>, %b: tensor<2x6x5x5xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: conv_wgrad (C5): compute type INT32 for f32 and f32; accepted: FLOAT, HALF, DOUBLE}}
  "dnn.conv_wgrad"(%a, %b) {compute_type = i32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 1>, post_padding = array<i64: 0, 0>, pre_padding = array<i64: 0, 0>, stride = array<i64: 1, 1>} : (tensor<2x4x7x7xf32>, tensor<2x6x5x5xf32>) -> tensor<6x4x3x3xf32>
  return
}

// -----

func.func @resample_c1(%a: tensor<2x8x7x6xf32>) {
  // expected-error@+1 {{BAD_PARAM: resample:MAXPOOL (C1): stride [2]; accepted: 2 values}}
  "dnn.resample"(%a) {compute_type = f32, denominator = 1 : i64, padding_mode = "NEG_INF_PAD", post_padding = array<i64: 1, 1>, pre_padding = array<i64: 1, 1>, resample_mode = "MAXPOOL", resultSegmentSizes = array<i32: 1, 0>, stride = array<i64: 2>, window = array<i64: 3, 3>} : (tensor<2x8x7x6xf32>) -> tensor<2x8x4x3xf32>
  return
}

// -----

func.func @resample_c2(%a: tensor<2x8x7x6xf32>) {
  // expected-error@+1 {{BAD_PARAM: resample:MAXPOOL (C2): a padding of 3 around windows of 3; accepted: paddings below the window}}
  "dnn.resample"(%a) {compute_type = f32, denominator = 1 : i64, padding_mode = "NEG_INF_PAD", post_padding = array<i64: 1, 1>, pre_padding = array<i64: 3, 1>, resample_mode = "MAXPOOL", resultSegmentSizes = array<i32: 1, 0>, stride = array<i64: 2, 2>, window = array<i64: 3, 3>} : (tensor<2x8x7x6xf32>) -> tensor<2x8x4x3xf32>
  return
}

// -----

func.func @resample_c3(%a: tensor<2x8x7x6xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED: resample:MAXPOOL (C3): padding_mode='ZERO_PAD' of MAXPOOL; accepted: NEG_INF_PAD}}
  "dnn.resample"(%a) {compute_type = f32, denominator = 1 : i64, padding_mode = "ZERO_PAD", post_padding = array<i64: 1, 1>, pre_padding = array<i64: 1, 1>, resample_mode = "MAXPOOL", resultSegmentSizes = array<i32: 1, 0>, stride = array<i64: 2, 2>, window = array<i64: 3, 3>} : (tensor<2x8x7x6xf32>) -> tensor<2x8x4x3xf32>
  return
}

// -----

func.func @resample_c4(%a: tensor<2x8x7x6xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: resample:MAXPOOL (C4): [2, 8, 7, 6] to [2, 8, 4, 4]; accepted: [2, 8, 7, 6] to [2, 8, 4, 3]}}
  "dnn.resample"(%a) {compute_type = f32, denominator = 1 : i64, padding_mode = "NEG_INF_PAD", post_padding = array<i64: 1, 1>, pre_padding = array<i64: 1, 1>, resample_mode = "MAXPOOL", resultSegmentSizes = array<i32: 1, 0>, stride = array<i64: 2, 2>, window = array<i64: 3, 3>} : (tensor<2x8x7x6xf32>) -> tensor<2x8x4x4xf32>
  return
}

// -----

func.func @resample_c5(%a: tensor<2x8x7x6xf32>) {
  // expected-error@+1 {{BAD_PARAM: resample:MAXPOOL (C5): no index; accepted: as generate_index says}}
  "dnn.resample"(%a) {compute_type = f32, denominator = 1 : i64, generate_index = true, padding_mode = "NEG_INF_PAD", post_padding = array<i64: 1, 1>, pre_padding = array<i64: 1, 1>, resample_mode = "MAXPOOL", resultSegmentSizes = array<i32: 1, 0>, stride = array<i64: 2, 2>, window = array<i64: 3, 3>} : (tensor<2x8x7x6xf32>) -> tensor<2x8x4x3xf32>
  return
}

// -----

func.func @resample_c6(%a: tensor<2x8x7x6xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: resample:MAXPOOL (C6): compute type HALF; accepted: FLOAT, DOUBLE}}
  "dnn.resample"(%a) {compute_type = f16, denominator = 1 : i64, padding_mode = "NEG_INF_PAD", post_padding = array<i64: 1, 1>, pre_padding = array<i64: 1, 1>, resample_mode = "MAXPOOL", resultSegmentSizes = array<i32: 1, 0>, stride = array<i64: 2, 2>, window = array<i64: 3, 3>} : (tensor<2x8x7x6xf32>) -> tensor<2x8x4x3xf32>
  return
}

// -----

func.func @resample_backward_c1(%a: tensor<2x8x4x3xf32>) {
  // expected-error@+1 {{BAD_PARAM: resample_backward:AVGPOOL_INCLUDE_PADDING (C1): stride [2]; accepted: 2 values}}
  "dnn.resample_backward"(%a) {compute_type = f32, denominator = 1 : i64, operandSegmentSizes = array<i32: 1, 0, 0, 0>, padding_mode = "ZERO_PAD", post_padding = array<i64: 1, 1>, pre_padding = array<i64: 1, 1>, resample_mode = "AVGPOOL_INCLUDE_PADDING", stride = array<i64: 2>, window = array<i64: 3, 3>} : (tensor<2x8x4x3xf32>) -> tensor<2x8x7x6xf32>
  return
}

// -----

func.func @resample_backward_c2(%a: tensor<2x8x4x3xf32>) {
  // expected-error@+1 {{BAD_PARAM: resample_backward:AVGPOOL_INCLUDE_PADDING (C2): fractions of 2; accepted: whole numbers for pooling}}
  "dnn.resample_backward"(%a) {compute_type = f32, denominator = 2 : i64, operandSegmentSizes = array<i32: 1, 0, 0, 0>, padding_mode = "ZERO_PAD", post_padding = array<i64: 1, 1>, pre_padding = array<i64: 1, 1>, resample_mode = "AVGPOOL_INCLUDE_PADDING", stride = array<i64: 2, 2>, window = array<i64: 3, 3>} : (tensor<2x8x4x3xf32>) -> tensor<2x8x7x6xf32>
  return
}

// -----

func.func @resample_backward_c3(%a: tensor<2x8x4x3xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED: resample_backward:AVGPOOL_INCLUDE_PADDING (C3): padding_mode='EDGE_VAL_PAD' of AVGPOOL_INCLUDE_PADDING; accepted: ZERO_PAD}}
  "dnn.resample_backward"(%a) {compute_type = f32, denominator = 1 : i64, operandSegmentSizes = array<i32: 1, 0, 0, 0>, padding_mode = "EDGE_VAL_PAD", post_padding = array<i64: 1, 1>, pre_padding = array<i64: 1, 1>, resample_mode = "AVGPOOL_INCLUDE_PADDING", stride = array<i64: 2, 2>, window = array<i64: 3, 3>} : (tensor<2x8x4x3xf32>) -> tensor<2x8x7x6xf32>
  return
}

// -----

func.func @resample_backward_c4(%a: tensor<2x8x4x3xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: resample_backward:AVGPOOL_INCLUDE_PADDING (C4): [2, 8, 7, 9] to [2, 8, 4, 3]; accepted: [2, 8, 7, 9] to [2, 8, 4, 5]}}
  "dnn.resample_backward"(%a) {compute_type = f32, denominator = 1 : i64, operandSegmentSizes = array<i32: 1, 0, 0, 0>, padding_mode = "ZERO_PAD", post_padding = array<i64: 1, 1>, pre_padding = array<i64: 1, 1>, resample_mode = "AVGPOOL_INCLUDE_PADDING", stride = array<i64: 2, 2>, window = array<i64: 3, 3>} : (tensor<2x8x4x3xf32>) -> tensor<2x8x7x9xf32>
  return
}

// -----

func.func @resample_backward_c5(%a: tensor<2x8x4x3xf32>) {
  // expected-error@+1 {{BAD_PARAM: resample_backward:MAXPOOL (C5): neither index nor input; accepted: one of them for MAXPOOL}}
  "dnn.resample_backward"(%a) {compute_type = f32, denominator = 1 : i64, operandSegmentSizes = array<i32: 1, 0, 0, 0>, padding_mode = "NEG_INF_PAD", post_padding = array<i64: 1, 1>, pre_padding = array<i64: 1, 1>, resample_mode = "MAXPOOL", stride = array<i64: 2, 2>, window = array<i64: 3, 3>} : (tensor<2x8x4x3xf32>) -> tensor<2x8x7x6xf32>
  return
}

// -----

func.func @resample_backward_c6(%a: tensor<2x8x4x3xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: resample_backward:AVGPOOL_INCLUDE_PADDING (C6): compute type INT32; accepted: FLOAT, DOUBLE}}
  "dnn.resample_backward"(%a) {compute_type = i32, denominator = 1 : i64, operandSegmentSizes = array<i32: 1, 0, 0, 0>, padding_mode = "ZERO_PAD", post_padding = array<i64: 1, 1>, pre_padding = array<i64: 1, 1>, resample_mode = "AVGPOOL_INCLUDE_PADDING", stride = array<i64: 2, 2>, window = array<i64: 3, 3>} : (tensor<2x8x4x3xf32>) -> tensor<2x8x7x6xf32>
  return
}

// -----

func.func @rng_c1(%a: tensor<2xi64>, %b: tensor<1xi64>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: rng:UNIFORM (C1): a tensor without a name has dims [2]; accepted: one element}}
  "dnn.rng"(%a, %b) {distribution = "UNIFORM"} : (tensor<2xi64>, tensor<1xi64>) -> tensor<4xf32>
  return
}

// -----

func.func @rng_c2(%a: tensor<1xi64>, %b: tensor<1xi64>) {
  // expected-error@+1 {{BAD_PARAM: rng:BERNOULLI (C2): bernoulli_probability = 1.5; accepted: a probability from 0 to 1}}
  "dnn.rng"(%a, %b) {bernoulli_probability = 1.5 : f64, distribution = "BERNOULLI"} : (tensor<1xi64>, tensor<1xi64>) -> tensor<4xf32>
  return
}

// -----

func.func @causal_conv1d_c1(%x: tensor<2x6x9xf32>, %w: tensor<5x4xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: causal_conv1d (C1): x has dims [2, 6, 9], weight [5, 4]; accepted: [B, D, T] and [D, W], D and W of fixed sizes}}
  "dnn.causal_conv1d"(%x, %w) {activation = "identity", compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<2x6x9xf32>, tensor<5x4xf32>) -> tensor<2x6x9xf32>
  return
}

// -----

func.func @causal_conv1d_c2(%x: tensor<2x6x9xf32>, %w: tensor<6x4xf32>, %bias: tensor<1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: causal_conv1d (C2): a tensor without a name has dims [1]; accepted: [6]}}
  "dnn.causal_conv1d"(%x, %w, %bias) {activation = "identity", compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 0>} : (tensor<2x6x9xf32>, tensor<6x4xf32>, tensor<1xf32>) -> tensor<2x6x9xf32>
  return
}

// -----

func.func @causal_conv1d_c3(%x: tensor<2x6x9xf32>, %w: tensor<6x4xf32>, %states: tensor<2x6x4xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: causal_conv1d (C3): a tensor without a name has dims [2, 6, 4]; accepted: [2, 6, 3]}}
  "dnn.causal_conv1d"(%x, %w, %states) {activation = "identity", compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 0, 1>} : (tensor<2x6x9xf32>, tensor<6x4xf32>, tensor<2x6x4xf32>) -> tensor<2x6x9xf32>
  return
}

// -----

func.func @causal_conv1d_c4(%x: tensor<2x6x9xf32>, %w: tensor<6x4xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: causal_conv1d (C4): a tensor without a name has dims [2, 6, 8]; accepted: [2, 6, 9]}}
  "dnn.causal_conv1d"(%x, %w) {activation = "identity", compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<2x6x9xf32>, tensor<6x4xf32>) -> tensor<2x6x8xf32>
  return
}

// -----

func.func @causal_conv1d_c5(%x: tensor<2x6x9xf32>, %w: tensor<6x4xi32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: causal_conv1d (C5): a tensor without a name has data type i32; accepted: a float type}}
  "dnn.causal_conv1d"(%x, %w) {activation = "identity", compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<2x6x9xf32>, tensor<6x4xi32>) -> tensor<2x6x9xf32>
  return
}

// -----

func.func @causal_conv1d_backward_c1(%dy: tensor<2x6x9xf32>, %x: tensor<2x6x9xf32>, %w: tensor<5x4xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: causal_conv1d_backward (C1): x has dims [2, 6, 9], weight [5, 4]; accepted: [B, D, T] and [D, W], D and W of fixed sizes}}
  "dnn.causal_conv1d_backward"(%dy, %x, %w) {activation = "identity", compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 0>, resultSegmentSizes = array<i32: 1, 1, 0>} : (tensor<2x6x9xf32>, tensor<2x6x9xf32>, tensor<5x4xf32>) -> (tensor<2x6x9xf32>, tensor<5x4xf32>)
  return
}

// -----

func.func @causal_conv1d_backward_c2(%dy: tensor<2x6x9xf32>, %x: tensor<2x6x9xf32>, %w: tensor<6x4xf32>, %bias: tensor<6xf32>) {
  // expected-error@+1 {{BAD_PARAM: causal_conv1d_backward (C2): 1 of 2 are not given; accepted: bias and dbias, or neither}}
  "dnn.causal_conv1d_backward"(%dy, %x, %w, %bias) {activation = "identity", compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 0>} : (tensor<2x6x9xf32>, tensor<2x6x9xf32>, tensor<6x4xf32>, tensor<6xf32>) -> (tensor<2x6x9xf32>, tensor<6x4xf32>)
  return
}

// -----

func.func @causal_conv1d_backward_c3(%dy: tensor<2x6x8xf32>, %x: tensor<2x6x9xf32>, %w: tensor<6x4xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: causal_conv1d_backward (C3): a tensor without a name has dims [2, 6, 8]; accepted: [2, 6, 9]}}
  "dnn.causal_conv1d_backward"(%dy, %x, %w) {activation = "identity", compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 0>, resultSegmentSizes = array<i32: 1, 1, 0>} : (tensor<2x6x8xf32>, tensor<2x6x9xf32>, tensor<6x4xf32>) -> (tensor<2x6x9xf32>, tensor<6x4xf32>)
  return
}

// -----

func.func @causal_conv1d_backward_c4(%dy: tensor<2x6x9xf32>, %x: tensor<2x6x9xf32>, %w: tensor<6x4xi32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: causal_conv1d_backward (C4): a tensor without a name has data type i32; accepted: a float type}}
  "dnn.causal_conv1d_backward"(%dy, %x, %w) {activation = "identity", compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 0>, resultSegmentSizes = array<i32: 1, 1, 0>} : (tensor<2x6x9xf32>, tensor<2x6x9xf32>, tensor<6x4xi32>) -> (tensor<2x6x9xf32>, tensor<6x4xf32>)
  return
}

// -----

func.func @layernorm_c1(%a: tensor<5x8xf32>, %b: tensor<1x1xf32>, %c: tensor<1x1xf32>, %d: tensor<1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: layernorm (C1): scale has dims [1, 1]; accepted: [5, 8] with some dims 1, not all}}
  "dnn.layernorm"(%a, %b, %c, %d) {compute_type = f32, norm_forward_phase = "INFERENCE", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 0, 0>} : (tensor<5x8xf32>, tensor<1x1xf32>, tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<5x8xf32>
  return
}

// -----

func.func @layernorm_c2(%a: tensor<5x8xf32>, %b: tensor<1x8xf32>, %c: tensor<5x8xf32>, %d: tensor<1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: layernorm (C2): a tensor without a name has dims [5, 8]; accepted: [1, 8]}}
  "dnn.layernorm"(%a, %b, %c, %d) {compute_type = f32, norm_forward_phase = "INFERENCE", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 0, 0>} : (tensor<5x8xf32>, tensor<1x8xf32>, tensor<5x8xf32>, tensor<1x1xf32>) -> tensor<5x8xf32>
  return
}

// -----

func.func @layernorm_c3(%a: tensor<5x8xf32>, %b: tensor<1x8xf32>, %c: tensor<1x8xf32>, %d: tensor<1x8xf32>) {
  // expected-error@+1 {{BAD_PARAM: layernorm (C3): epsilon has dims [1, 8]; accepted: one element}}
  "dnn.layernorm"(%a, %b, %c, %d) {compute_type = f32, norm_forward_phase = "INFERENCE", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 0, 0>} : (tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>) -> tensor<5x8xf32>
  return
}

// -----

func.func @layernorm_c4(%a: tensor<5x8xf32>, %b: tensor<1x8xf32>, %c: tensor<1x8xf32>, %d: tensor<1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM: layernorm (C4): result mean is missing; accepted: statistics in TRAINING, none in INFERENCE}}
  "dnn.layernorm"(%a, %b, %c, %d) {compute_type = f32, norm_forward_phase = "TRAINING", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 0, 0>} : (tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>, tensor<1x1xf32>) -> tensor<5x8xf32>
  return
}

// -----

func.func @layernorm_c5(%a: tensor<5x8xf32>, %b: tensor<1x8xf32>, %c: tensor<1x8xf32>, %d: tensor<1x1xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: layernorm (C5): compute type INT32; accepted: FLOAT, DOUBLE}}
  "dnn.layernorm"(%a, %b, %c, %d) {compute_type = i32, norm_forward_phase = "INFERENCE", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 0, 0>} : (tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>, tensor<1x1xf32>) -> tensor<5x8xf32>
  return
}

// -----

func.func @rmsnorm_c1(%a: tensor<5x8xf32>, %b: tensor<1x4xf32>, %c: tensor<1x8xf32>, %d: tensor<1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: rmsnorm (C1): scale has dims [1, 4]; accepted: [5, 8] with some dims 1, not all}}
  "dnn.rmsnorm"(%a, %b, %c, %d) {compute_type = f32, norm_forward_phase = "TRAINING", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1>} : (tensor<5x8xf32>, tensor<1x4xf32>, tensor<1x8xf32>, tensor<1x1xf32>) -> (tensor<5x8xf32>, tensor<5x1xf32>)
  return
}

// -----

func.func @rmsnorm_c2(%a: tensor<5x8xf32>, %b: tensor<1x8xf32>, %c: tensor<1x4xf32>, %d: tensor<1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: rmsnorm (C2): a tensor without a name has dims [1, 4]; accepted: [1, 8]}}
  "dnn.rmsnorm"(%a, %b, %c, %d) {compute_type = f32, norm_forward_phase = "TRAINING", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1>} : (tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x4xf32>, tensor<1x1xf32>) -> (tensor<5x8xf32>, tensor<5x1xf32>)
  return
}

// -----

func.func @rmsnorm_c3(%a: tensor<5x8xf32>, %b: tensor<1x8xf32>, %c: tensor<1x8xf32>, %d: tensor<1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: rmsnorm (C3): a tensor without a name has dims [1, 4]; accepted: [5, 8]}}
  "dnn.rmsnorm"(%a, %b, %c, %d) {compute_type = f32, norm_forward_phase = "TRAINING", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1>} : (tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>, tensor<1x1xf32>) -> (tensor<1x4xf32>, tensor<5x1xf32>)
  return
}

// -----

func.func @rmsnorm_c4(%a: tensor<5x8xf32>, %b: tensor<1x8xf32>, %c: tensor<1x8xf32>, %d: tensor<1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM: rmsnorm (C4): result inv_variance is missing; accepted: statistics in TRAINING, none in INFERENCE}}
  "dnn.rmsnorm"(%a, %b, %c, %d) {compute_type = f32, norm_forward_phase = "TRAINING", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 0>} : (tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>, tensor<1x1xf32>) -> tensor<5x8xf32>
  return
}

// -----

func.func @rmsnorm_c5(%a: tensor<5x8xf32>, %b: tensor<1x8xf32>, %c: tensor<1x8xf32>, %d: tensor<1x1xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: rmsnorm (C5): compute type INT32; accepted: FLOAT, DOUBLE}}
  "dnn.rmsnorm"(%a, %b, %c, %d) {compute_type = i32, norm_forward_phase = "TRAINING", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1>} : (tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>, tensor<1x1xf32>) -> (tensor<5x8xf32>, tensor<5x1xf32>)
  return
}

// -----

func.func @adalayernorm_c1(%a: tensor<5x3x8xf32>, %b: tensor<5x1x1xf32>, %c: tensor<5x1x8xf32>, %d: tensor<1x1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: adalayernorm (C1): scale has dims [5, 1, 1]; accepted: [5, 3, 8] with some dims 1, not all after the first}}
  "dnn.adalayernorm"(%a, %b, %c, %d) {compute_type = f32, norm_forward_phase = "TRAINING", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1>} : (tensor<5x3x8xf32>, tensor<5x1x1xf32>, tensor<5x1x8xf32>, tensor<1x1x1xf32>) -> (tensor<5x3x8xf32>, tensor<5x3x1xf32>, tensor<5x3x1xf32>)
  return
}

// -----

func.func @adalayernorm_c2(%a: tensor<5x3x8xf32>, %b: tensor<5x1x8xf32>, %c: tensor<1x1x8xf32>, %d: tensor<1x1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: adalayernorm (C2): a tensor without a name has dims [1, 1, 8]; accepted: [5, 1, 8]}}
  "dnn.adalayernorm"(%a, %b, %c, %d) {compute_type = f32, norm_forward_phase = "TRAINING", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1>} : (tensor<5x3x8xf32>, tensor<5x1x8xf32>, tensor<1x1x8xf32>, tensor<1x1x1xf32>) -> (tensor<5x3x8xf32>, tensor<5x3x1xf32>, tensor<5x3x1xf32>)
  return
}

// -----

func.func @adalayernorm_c3(%a: tensor<5x3x8xf32>, %b: tensor<5x1x8xf32>, %c: tensor<5x1x8xf32>, %d: tensor<1x1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: adalayernorm (C3): a tensor without a name has dims [1, 1, 8]; accepted: [5, 3, 8]}}
  "dnn.adalayernorm"(%a, %b, %c, %d) {compute_type = f32, norm_forward_phase = "TRAINING", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1>} : (tensor<5x3x8xf32>, tensor<5x1x8xf32>, tensor<5x1x8xf32>, tensor<1x1x1xf32>) -> (tensor<1x1x8xf32>, tensor<5x3x1xf32>, tensor<5x3x1xf32>)
  return
}

// -----

func.func @adalayernorm_c4(%a: tensor<5x3x8xf32>, %b: tensor<5x1x8xf32>, %c: tensor<5x1x8xf32>, %d: tensor<1x1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM: adalayernorm (C4): result mean is missing; accepted: statistics in TRAINING, none in INFERENCE}}
  "dnn.adalayernorm"(%a, %b, %c, %d) {compute_type = f32, norm_forward_phase = "TRAINING", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 0, 1>} : (tensor<5x3x8xf32>, tensor<5x1x8xf32>, tensor<5x1x8xf32>, tensor<1x1x1xf32>) -> (tensor<5x3x8xf32>, tensor<5x3x1xf32>)
  return
}

// -----

func.func @adalayernorm_c5(%a: tensor<5x3x8xf32>, %b: tensor<5x1x8xf32>, %c: tensor<5x1x8xf32>, %d: tensor<1x1x1xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: adalayernorm (C5): compute type INT32; accepted: FLOAT, DOUBLE}}
  "dnn.adalayernorm"(%a, %b, %c, %d) {compute_type = i32, norm_forward_phase = "TRAINING", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1>} : (tensor<5x3x8xf32>, tensor<5x1x8xf32>, tensor<5x1x8xf32>, tensor<1x1x1xf32>) -> (tensor<5x3x8xf32>, tensor<5x3x1xf32>, tensor<5x3x1xf32>)
  return
}

// -----

func.func @instancenorm_c1(%a: tensor<5x3x8xf32>, %b: tensor<5x3x1xf32>, %c: tensor<1x3x1xf32>, %d: tensor<1x1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: instancenorm (C1): a tensor without a name has dims [5, 3, 1]; accepted: [1, 3, 1]}}
  "dnn.instancenorm"(%a, %b, %c, %d) {compute_type = f32, norm_forward_phase = "TRAINING", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1>} : (tensor<5x3x8xf32>, tensor<5x3x1xf32>, tensor<1x3x1xf32>, tensor<1x1x1xf32>) -> (tensor<5x3x8xf32>, tensor<5x3x1xf32>, tensor<5x3x1xf32>)
  return
}

// -----

func.func @instancenorm_c2(%a: tensor<5x3x8xf32>, %b: tensor<1x3x1xf32>, %c: tensor<1x3x8xf32>, %d: tensor<1x1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: instancenorm (C2): a tensor without a name has dims [1, 3, 8]; accepted: [1, 3, 1]}}
  "dnn.instancenorm"(%a, %b, %c, %d) {compute_type = f32, norm_forward_phase = "TRAINING", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1>} : (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x8xf32>, tensor<1x1x1xf32>) -> (tensor<5x3x8xf32>, tensor<5x3x1xf32>, tensor<5x3x1xf32>)
  return
}

// -----

func.func @instancenorm_c3(%a: tensor<5x3x8xf32>, %b: tensor<1x3x1xf32>, %c: tensor<1x3x1xf32>, %d: tensor<1x1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: instancenorm (C3): a tensor without a name has dims [1, 3, 8]; accepted: [5, 3, 8]}}
  "dnn.instancenorm"(%a, %b, %c, %d) {compute_type = f32, norm_forward_phase = "TRAINING", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1>} : (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x1x1xf32>) -> (tensor<1x3x8xf32>, tensor<5x3x1xf32>, tensor<5x3x1xf32>)
  return
}

// -----

func.func @instancenorm_c4(%a: tensor<5x3x8xf32>, %b: tensor<1x3x1xf32>, %c: tensor<1x3x1xf32>, %d: tensor<1x1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM: instancenorm (C4): result mean is missing; accepted: statistics in TRAINING, none in INFERENCE}}
  "dnn.instancenorm"(%a, %b, %c, %d) {compute_type = f32, norm_forward_phase = "TRAINING", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 0, 1>} : (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x1x1xf32>) -> (tensor<5x3x8xf32>, tensor<5x3x1xf32>)
  return
}

// -----

func.func @instancenorm_c5(%a: tensor<5x3x8xf32>, %b: tensor<1x3x1xf32>, %c: tensor<1x3x1xf32>, %d: tensor<1x1x1xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: instancenorm (C5): compute type INT32; accepted: FLOAT, DOUBLE}}
  "dnn.instancenorm"(%a, %b, %c, %d) {compute_type = i32, norm_forward_phase = "TRAINING", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1>} : (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x1x1xf32>) -> (tensor<5x3x8xf32>, tensor<5x3x1xf32>, tensor<5x3x1xf32>)
  return
}

// -----

func.func @batchnorm_c1(%a: tensor<5x3x8xf32>, %b: tensor<5x3x1xf32>, %c: tensor<1x3x1xf32>, %d: tensor<1x3x1xf32>, %e: tensor<1x3x1xf32>, %f: tensor<1x1x1xf32>, %g: tensor<1x1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: batchnorm (C1): a tensor without a name has dims [5, 3, 1]; accepted: [1, 3, 1]}}
  "dnn.batchnorm"(%a, %b, %c, %d, %e, %f, %g) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 1>} : (tensor<5x3x8xf32>, tensor<5x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x1x1xf32>, tensor<1x1x1xf32>) -> (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>)
  return
}

// -----

func.func @batchnorm_c2(%a: tensor<5x3x8xf32>, %b: tensor<1x3x1xf32>, %c: tensor<1x3x1xf32>, %d: tensor<1x3x1xf32>, %e: tensor<1x1x1xf32>, %f: tensor<1x1x1xf32>, %g: tensor<1x1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: batchnorm (C2): a tensor without a name has dims [1, 1, 1]; accepted: [1, 3, 1]}}
  "dnn.batchnorm"(%a, %b, %c, %d, %e, %f, %g) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 1>} : (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x1x1xf32>, tensor<1x1x1xf32>, tensor<1x1x1xf32>) -> (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>)
  return
}

// -----

func.func @batchnorm_c3(%a: tensor<5x3x8xf32>, %b: tensor<1x3x1xf32>, %c: tensor<1x3x1xf32>, %d: tensor<1x1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: batchnorm (C3): a tensor without a name has dims [5, 3, 4]; accepted: [5, 3, 8]}}
  "dnn.batchnorm"(%a, %b, %c, %d) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x1x1xf32>) -> (tensor<5x3x4xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>)
  return
}

// -----

func.func @batchnorm_c4(%a: tensor<5x3x8xf32>, %b: tensor<1x3x1xf32>, %c: tensor<1x3x1xf32>, %d: tensor<1x3x1xf32>, %e: tensor<1x3x1xf32>, %f: tensor<1x1x1xf32>, %g: tensor<1x1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM: batchnorm (C4): result next_running_var is missing; accepted: running statistics with both old ones and a momentum, none without}}
  "dnn.batchnorm"(%a, %b, %c, %d, %e, %f, %g) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 0>} : (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x1x1xf32>, tensor<1x1x1xf32>) -> (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>)
  return
}

// -----

func.func @batchnorm_c5(%a: tensor<5x3x8xf32>, %b: tensor<1x3x1xf32>, %c: tensor<1x3x1xf32>, %d: tensor<1x3x1xf32>, %e: tensor<1x3x1xf32>, %f: tensor<1x1x1xf32>, %g: tensor<1x1x1xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: batchnorm (C5): compute type INT32; accepted: FLOAT, DOUBLE}}
  "dnn.batchnorm"(%a, %b, %c, %d, %e, %f, %g) {compute_type = i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 1>} : (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x1x1xf32>, tensor<1x1x1xf32>) -> (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>)
  return
}

// -----

func.func @batchnorm_c6(%a: tensor<5x3x8xf32>, %b: tensor<1x3x1xf32>, %c: tensor<1x3x1xf32>, %d: tensor<1x1x1xf32>, %e: tensor<2x3x1xf32>, %f: tensor<2x3x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: batchnorm (C6): a tensor without a name has dims [2, 3, 1]; accepted: [2, 12, 1]}}
  "dnn.batchnorm"(%a, %b, %c, %d, %e, %f) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, peer_rank = 0 : i64, resultSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x1x1xf32>, tensor<2x3x1xf32>, tensor<2x3x1xf32>) -> (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>)
  return
}

// -----

func.func @batchnorm_c7(%a: tensor<5x3x8xf32>, %b: tensor<1x3x1xf32>, %c: tensor<1x3x1xf32>, %d: tensor<1x1x1xf32>, %e: tensor<2x12x1xf32>, %f: tensor<2x12x1xf32>) {
  // expected-error@+1 {{BAD_PARAM: batchnorm (C7): peer_rank=None; accepted: 0 to 1, which of the peers' tensors is the device's own}}
  "dnn.batchnorm"(%a, %b, %c, %d, %e, %f) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x1x1xf32>, tensor<2x12x1xf32>, tensor<2x12x1xf32>) -> (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>)
  return
}

// -----

func.func @batchnorm_inference_c1(%a: tensor<5x3x8xf32>, %b: tensor<5x3x1xf32>, %c: tensor<1x3x1xf32>, %d: tensor<1x3x1xf32>, %e: tensor<1x3x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: batchnorm_inference (C1): a tensor without a name has dims [5, 3, 1]; accepted: [1, 3, 1]}}
  "dnn.batchnorm_inference"(%a, %b, %c, %d, %e) {compute_type = f32} : (tensor<5x3x8xf32>, tensor<5x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>) -> tensor<5x3x8xf32>
  return
}

// -----

func.func @batchnorm_inference_c2(%a: tensor<5x3x8xf32>, %b: tensor<1x3x1xf32>, %c: tensor<1x3x1xf32>, %d: tensor<1x3x1xf32>, %e: tensor<1x3x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: batchnorm_inference (C2): a tensor without a name has dims [5, 3, 4]; accepted: [5, 3, 8]}}
  "dnn.batchnorm_inference"(%a, %b, %c, %d, %e) {compute_type = f32} : (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>) -> tensor<5x3x4xf32>
  return
}

// -----

func.func @batchnorm_inference_c3(%a: tensor<5x3x8xf32>, %b: tensor<1x3x1xf32>, %c: tensor<1x3x1xf32>, %d: tensor<1x3x1xf32>, %e: tensor<1x3x1xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: batchnorm_inference (C3): compute type INT32; accepted: FLOAT, DOUBLE}}
  "dnn.batchnorm_inference"(%a, %b, %c, %d, %e) {compute_type = i32} : (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>) -> tensor<5x3x8xf32>
  return
}

// -----

func.func @layernorm_backward_c1(%a: tensor<5x8xf32>, %b: tensor<5x8xf32>, %c: tensor<1x1xf32>, %d: tensor<5x1xf32>, %e: tensor<5x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: layernorm_backward (C1): scale has dims [1, 1]; accepted: [5, 8] with some dims 1, not all}}
  "dnn.layernorm_backward"(%a, %b, %c, %d, %e) {compute_type = f32} : (tensor<5x8xf32>, tensor<5x8xf32>, tensor<1x1xf32>, tensor<5x1xf32>, tensor<5x1xf32>) -> (tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>)
  return
}

// -----

func.func @layernorm_backward_c2(%a: tensor<5x1xf32>, %b: tensor<5x8xf32>, %c: tensor<1x8xf32>, %d: tensor<5x1xf32>, %e: tensor<5x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: layernorm_backward (C2): a tensor without a name has dims [5, 1]; accepted: [5, 8]}}
  "dnn.layernorm_backward"(%a, %b, %c, %d, %e) {compute_type = f32} : (tensor<5x1xf32>, tensor<5x8xf32>, tensor<1x8xf32>, tensor<5x1xf32>, tensor<5x1xf32>) -> (tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>)
  return
}

// -----

func.func @layernorm_backward_c3(%a: tensor<5x8xf32>, %b: tensor<5x8xf32>, %c: tensor<1x8xf32>, %d: tensor<5x1xf32>, %e: tensor<5x8xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: layernorm_backward (C3): a tensor without a name has dims [5, 8]; accepted: [5, 1]}}
  "dnn.layernorm_backward"(%a, %b, %c, %d, %e) {compute_type = f32} : (tensor<5x8xf32>, tensor<5x8xf32>, tensor<1x8xf32>, tensor<5x1xf32>, tensor<5x8xf32>) -> (tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>)
  return
}

// -----

func.func @layernorm_backward_c4(%a: tensor<5x8xf32>, %b: tensor<5x8xf32>, %c: tensor<1x8xf32>, %d: tensor<5x1xf32>, %e: tensor<5x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: layernorm_backward (C4): a tensor without a name has dims [5, 8]; accepted: [1, 8]}}
  "dnn.layernorm_backward"(%a, %b, %c, %d, %e) {compute_type = f32} : (tensor<5x8xf32>, tensor<5x8xf32>, tensor<1x8xf32>, tensor<5x1xf32>, tensor<5x1xf32>) -> (tensor<5x8xf32>, tensor<5x8xf32>, tensor<1x8xf32>)
  return
}

// -----

func.func @layernorm_backward_c5(%a: tensor<5x8xf32>, %b: tensor<5x8xf32>, %c: tensor<1x8xf32>, %d: tensor<5x1xf32>, %e: tensor<5x1xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: layernorm_backward (C5): compute type INT32; accepted: FLOAT, DOUBLE}}
  "dnn.layernorm_backward"(%a, %b, %c, %d, %e) {compute_type = i32} : (tensor<5x8xf32>, tensor<5x8xf32>, tensor<1x8xf32>, tensor<5x1xf32>, tensor<5x1xf32>) -> (tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>)
  return
}

// -----

func.func @rmsnorm_backward_c1(%a: tensor<5x8xf32>, %b: tensor<5x8xf32>, %c: tensor<1x4xf32>, %d: tensor<5x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: rmsnorm_backward (C1): scale has dims [1, 4]; accepted: [5, 8] with some dims 1, not all}}
  "dnn.rmsnorm_backward"(%a, %b, %c, %d) {compute_type = f32, has_dbias = true, resultSegmentSizes = array<i32: 1, 1, 1>} : (tensor<5x8xf32>, tensor<5x8xf32>, tensor<1x4xf32>, tensor<5x1xf32>) -> (tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>)
  return
}

// -----

func.func @rmsnorm_backward_c2(%a: tensor<5x4xf32>, %b: tensor<5x8xf32>, %c: tensor<1x8xf32>, %d: tensor<5x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: rmsnorm_backward (C2): a tensor without a name has dims [5, 4]; accepted: [5, 8]}}
  "dnn.rmsnorm_backward"(%a, %b, %c, %d) {compute_type = f32, has_dbias = true, resultSegmentSizes = array<i32: 1, 1, 1>} : (tensor<5x4xf32>, tensor<5x8xf32>, tensor<1x8xf32>, tensor<5x1xf32>) -> (tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>)
  return
}

// -----

func.func @rmsnorm_backward_c3(%a: tensor<5x8xf32>, %b: tensor<5x8xf32>, %c: tensor<1x8xf32>, %d: tensor<1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: rmsnorm_backward (C3): a tensor without a name has dims [1, 1]; accepted: [5, 1]}}
  "dnn.rmsnorm_backward"(%a, %b, %c, %d) {compute_type = f32, has_dbias = true, resultSegmentSizes = array<i32: 1, 1, 1>} : (tensor<5x8xf32>, tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x1xf32>) -> (tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>)
  return
}

// -----

func.func @rmsnorm_backward_c4(%a: tensor<5x8xf32>, %b: tensor<5x8xf32>, %c: tensor<1x8xf32>, %d: tensor<5x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: rmsnorm_backward (C4): a tensor without a name has dims [1, 1]; accepted: [1, 8]}}
  "dnn.rmsnorm_backward"(%a, %b, %c, %d) {compute_type = f32, has_dbias = true, resultSegmentSizes = array<i32: 1, 1, 1>} : (tensor<5x8xf32>, tensor<5x8xf32>, tensor<1x8xf32>, tensor<5x1xf32>) -> (tensor<5x8xf32>, tensor<1x1xf32>, tensor<1x8xf32>)
  return
}

// -----

func.func @rmsnorm_backward_c5(%a: tensor<5x8xf32>, %b: tensor<5x8xf32>, %c: tensor<1x8xf32>, %d: tensor<5x1xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: rmsnorm_backward (C5): compute type INT32; accepted: FLOAT, DOUBLE}}
  "dnn.rmsnorm_backward"(%a, %b, %c, %d) {compute_type = i32, has_dbias = true, resultSegmentSizes = array<i32: 1, 1, 1>} : (tensor<5x8xf32>, tensor<5x8xf32>, tensor<1x8xf32>, tensor<5x1xf32>) -> (tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>)
  return
}

// -----

func.func @adalayernorm_backward_c1(%a: tensor<5x3x8xf32>, %b: tensor<5x3x8xf32>, %c: tensor<5x1x1xf32>, %d: tensor<5x3x1xf32>, %e: tensor<5x3x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: adalayernorm_backward (C1): scale has dims [5, 1, 1]; accepted: [5, 3, 8] with some dims 1, not all after the first}}
  "dnn.adalayernorm_backward"(%a, %b, %c, %d, %e) {compute_type = f32} : (tensor<5x3x8xf32>, tensor<5x3x8xf32>, tensor<5x1x1xf32>, tensor<5x3x1xf32>, tensor<5x3x1xf32>) -> (tensor<5x3x8xf32>, tensor<5x1x8xf32>, tensor<5x1x8xf32>)
  return
}

// -----

func.func @adalayernorm_backward_c2(%a: tensor<5x1x8xf32>, %b: tensor<5x3x8xf32>, %c: tensor<5x1x8xf32>, %d: tensor<5x3x1xf32>, %e: tensor<5x3x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: adalayernorm_backward (C2): a tensor without a name has dims [5, 1, 8]; accepted: [5, 3, 8]}}
  "dnn.adalayernorm_backward"(%a, %b, %c, %d, %e) {compute_type = f32} : (tensor<5x1x8xf32>, tensor<5x3x8xf32>, tensor<5x1x8xf32>, tensor<5x3x1xf32>, tensor<5x3x1xf32>) -> (tensor<5x3x8xf32>, tensor<5x1x8xf32>, tensor<5x1x8xf32>)
  return
}

// -----

func.func @adalayernorm_backward_c3(%a: tensor<5x3x8xf32>, %b: tensor<5x3x8xf32>, %c: tensor<5x1x8xf32>, %d: tensor<5x3x1xf32>, %e: tensor<5x1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: adalayernorm_backward (C3): a tensor without a name has dims [5, 1, 1]; accepted: [5, 3, 1]}}
  "dnn.adalayernorm_backward"(%a, %b, %c, %d, %e) {compute_type = f32} : (tensor<5x3x8xf32>, tensor<5x3x8xf32>, tensor<5x1x8xf32>, tensor<5x3x1xf32>, tensor<5x1x1xf32>) -> (tensor<5x3x8xf32>, tensor<5x1x8xf32>, tensor<5x1x8xf32>)
  return
}

// -----

func.func @adalayernorm_backward_c4(%a: tensor<5x3x8xf32>, %b: tensor<5x3x8xf32>, %c: tensor<5x1x8xf32>, %d: tensor<5x3x1xf32>, %e: tensor<5x3x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: adalayernorm_backward (C4): a tensor without a name has dims [1, 1, 8]; accepted: [5, 1, 8]}}
  "dnn.adalayernorm_backward"(%a, %b, %c, %d, %e) {compute_type = f32} : (tensor<5x3x8xf32>, tensor<5x3x8xf32>, tensor<5x1x8xf32>, tensor<5x3x1xf32>, tensor<5x3x1xf32>) -> (tensor<5x3x8xf32>, tensor<1x1x8xf32>, tensor<5x1x8xf32>)
  return
}

// -----

func.func @adalayernorm_backward_c5(%a: tensor<5x3x8xf32>, %b: tensor<5x3x8xf32>, %c: tensor<5x1x8xf32>, %d: tensor<5x3x1xf32>, %e: tensor<5x3x1xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: adalayernorm_backward (C5): compute type INT32; accepted: FLOAT, DOUBLE}}
  "dnn.adalayernorm_backward"(%a, %b, %c, %d, %e) {compute_type = i32} : (tensor<5x3x8xf32>, tensor<5x3x8xf32>, tensor<5x1x8xf32>, tensor<5x3x1xf32>, tensor<5x3x1xf32>) -> (tensor<5x3x8xf32>, tensor<5x1x8xf32>, tensor<5x1x8xf32>)
  return
}

// -----

func.func @instancenorm_backward_c1(%a: tensor<5x3x8xf32>, %b: tensor<5x3x8xf32>, %c: tensor<5x3x1xf32>, %d: tensor<5x3x1xf32>, %e: tensor<5x3x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: instancenorm_backward (C1): a tensor without a name has dims [5, 3, 1]; accepted: [1, 3, 1]}}
  "dnn.instancenorm_backward"(%a, %b, %c, %d, %e) {compute_type = f32} : (tensor<5x3x8xf32>, tensor<5x3x8xf32>, tensor<5x3x1xf32>, tensor<5x3x1xf32>, tensor<5x3x1xf32>) -> (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>)
  return
}

// -----

func.func @instancenorm_backward_c2(%a: tensor<5x1x8xf32>, %b: tensor<5x3x8xf32>, %c: tensor<1x3x1xf32>, %d: tensor<5x3x1xf32>, %e: tensor<5x3x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: instancenorm_backward (C2): a tensor without a name has dims [5, 1, 8]; accepted: [5, 3, 8]}}
  "dnn.instancenorm_backward"(%a, %b, %c, %d, %e) {compute_type = f32} : (tensor<5x1x8xf32>, tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<5x3x1xf32>, tensor<5x3x1xf32>) -> (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>)
  return
}

// -----

func.func @instancenorm_backward_c3(%a: tensor<5x3x8xf32>, %b: tensor<5x3x8xf32>, %c: tensor<1x3x1xf32>, %d: tensor<5x3x1xf32>, %e: tensor<1x3x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: instancenorm_backward (C3): a tensor without a name has dims [1, 3, 1]; accepted: [5, 3, 1]}}
  "dnn.instancenorm_backward"(%a, %b, %c, %d, %e) {compute_type = f32} : (tensor<5x3x8xf32>, tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<5x3x1xf32>, tensor<1x3x1xf32>) -> (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>)
  return
}

// -----

func.func @instancenorm_backward_c4(%a: tensor<5x3x8xf32>, %b: tensor<5x3x8xf32>, %c: tensor<1x3x1xf32>, %d: tensor<5x3x1xf32>, %e: tensor<5x3x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: instancenorm_backward (C4): a tensor without a name has dims [5, 3, 1]; accepted: [1, 3, 1]}}
  "dnn.instancenorm_backward"(%a, %b, %c, %d, %e) {compute_type = f32} : (tensor<5x3x8xf32>, tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<5x3x1xf32>, tensor<5x3x1xf32>) -> (tensor<5x3x8xf32>, tensor<5x3x1xf32>, tensor<1x3x1xf32>)
  return
}

// -----

func.func @instancenorm_backward_c5(%a: tensor<5x3x8xf32>, %b: tensor<5x3x8xf32>, %c: tensor<1x3x1xf32>, %d: tensor<5x3x1xf32>, %e: tensor<5x3x1xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: instancenorm_backward (C5): compute type INT32; accepted: FLOAT, DOUBLE}}
  "dnn.instancenorm_backward"(%a, %b, %c, %d, %e) {compute_type = i32} : (tensor<5x3x8xf32>, tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<5x3x1xf32>, tensor<5x3x1xf32>) -> (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>)
  return
}

// -----

func.func @batchnorm_backward_c1(%a: tensor<5x3x8xf32>, %b: tensor<5x3x8xf32>, %c: tensor<1x1x8xf32>, %d: tensor<1x3x1xf32>, %e: tensor<1x3x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: batchnorm_backward (C1): a tensor without a name has dims [1, 1, 8]; accepted: [1, 3, 1]}}
  "dnn.batchnorm_backward"(%a, %b, %c, %d, %e) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<5x3x8xf32>, tensor<5x3x8xf32>, tensor<1x1x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>) -> (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>)
  return
}

// -----

func.func @batchnorm_backward_c2(%a: tensor<5x3x1xf32>, %b: tensor<5x3x8xf32>, %c: tensor<1x3x1xf32>, %d: tensor<1x3x1xf32>, %e: tensor<1x3x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: batchnorm_backward (C2): a tensor without a name has dims [5, 3, 1]; accepted: [5, 3, 8]}}
  "dnn.batchnorm_backward"(%a, %b, %c, %d, %e) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<5x3x1xf32>, tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>) -> (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>)
  return
}

// -----

func.func @batchnorm_backward_c3(%a: tensor<5x3x8xf32>, %b: tensor<5x3x8xf32>, %c: tensor<1x3x1xf32>, %d: tensor<1x3x1xf32>, %e: tensor<5x3x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: batchnorm_backward (C3): a tensor without a name has dims [5, 3, 1]; accepted: [1, 3, 1]}}
  "dnn.batchnorm_backward"(%a, %b, %c, %d, %e) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<5x3x8xf32>, tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<5x3x1xf32>) -> (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>)
  return
}

// -----

func.func @batchnorm_backward_c4(%a: tensor<5x3x8xf32>, %b: tensor<5x3x8xf32>, %c: tensor<1x3x1xf32>, %d: tensor<1x3x1xf32>, %e: tensor<1x3x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: batchnorm_backward (C4): a tensor without a name has dims [1, 1, 1]; accepted: [1, 3, 1]}}
  "dnn.batchnorm_backward"(%a, %b, %c, %d, %e) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<5x3x8xf32>, tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>) -> (tensor<5x3x8xf32>, tensor<1x1x1xf32>, tensor<1x3x1xf32>)
  return
}

// -----

func.func @batchnorm_backward_c5(%a: tensor<5x3x8xf32>, %b: tensor<5x3x8xf32>, %c: tensor<1x3x1xf32>, %d: tensor<1x3x1xf32>, %e: tensor<1x3x1xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: batchnorm_backward (C5): compute type INT32; accepted: FLOAT, DOUBLE}}
  "dnn.batchnorm_backward"(%a, %b, %c, %d, %e) {compute_type = i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<5x3x8xf32>, tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>) -> (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>)
  return
}

// -----

func.func @batchnorm_backward_c6(%a: tensor<5x3x8xf32>, %b: tensor<5x3x8xf32>, %c: tensor<1x3x1xf32>, %d: tensor<1x3x1xf32>, %e: tensor<1x3x1xf32>, %f: tensor<2x3x1xf32>, %g: tensor<2x3x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: batchnorm_backward (C6): a tensor without a name has dims [2, 3, 1]; accepted: [2, 12, 1]}}
  "dnn.batchnorm_backward"(%a, %b, %c, %d, %e, %f, %g) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, peer_rank = 0 : i64} : (tensor<5x3x8xf32>, tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<2x3x1xf32>, tensor<2x3x1xf32>) -> (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>)
  return
}

// -----

func.func @batchnorm_backward_c7(%a: tensor<5x3x8xf32>, %b: tensor<5x3x8xf32>, %c: tensor<1x3x1xf32>, %d: tensor<1x3x1xf32>, %e: tensor<1x3x1xf32>, %f: tensor<2x12x1xf32>, %g: tensor<2x12x1xf32>) {
  // expected-error@+1 {{BAD_PARAM: batchnorm_backward (C7): peer_rank=2; accepted: 0 to 1, which of the peers' tensors is the device's own}}
  "dnn.batchnorm_backward"(%a, %b, %c, %d, %e, %f, %g) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, peer_rank = 2 : i64} : (tensor<5x3x8xf32>, tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<2x12x1xf32>, tensor<2x12x1xf32>) -> (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>)
  return
}

// -----

func.func @genstats_c1(%a: tensor<8xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_SHAPE: genstats (C1): a tensor without a name has dims [8]; accepted: rank 2 to 8}}
  "dnn.genstats"(%a) {compute_type = f32} : (tensor<8xf32>) -> (tensor<1xf32>, tensor<1xf32>)
  return
}

// -----

func.func @genstats_c2(%a: tensor<5x3x8xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: genstats (C2): a tensor without a name has dims [5, 3, 1]; accepted: [1, 3, 1]}}
  "dnn.genstats"(%a) {compute_type = f32} : (tensor<5x3x8xf32>) -> (tensor<1x3x1xf32>, tensor<5x3x1xf32>)
  return
}

// -----

func.func @genstats_c3(%a: tensor<5x3x8xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: genstats (C3): compute type INT32; accepted: FLOAT, DOUBLE}}
  "dnn.genstats"(%a) {compute_type = i32} : (tensor<5x3x8xf32>) -> (tensor<1x3x1xf32>, tensor<1x3x1xf32>)
  return
}

// -----

func.func @bn_finalize_c1(%a: tensor<1x6x1x1xf32>, %b: tensor<1x6x1x1xf32>, %c: tensor<1x6x1x1xf32>, %d: tensor<1x6x1x1xf32>, %e: tensor<1x1x1x1xf32>, %f: tensor<1x1x1x1xi64>, %g: tensor<1x6x1x1xf32>, %h: tensor<1x6x1x1xf32>, %i: tensor<1x1x1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: bn_finalize (C1): a tensor without a name has dims [1, 1, 1, 1]; accepted: [1, 6, 1, 1]}}
  "dnn.bn_finalize"(%a, %b, %c, %d, %e, %f, %g, %h, %i) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1>} : (tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xi64>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x1x1x1xf32>) -> (tensor<1x6x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>)
  return
}

// -----

func.func @bn_finalize_c2(%a: tensor<1x6xf32>, %b: tensor<1x6xf32>, %c: tensor<1x6xf32>, %d: tensor<1x6xf32>, %e: tensor<1x6xf32>, %f: tensor<1x6xf32>) {
  // expected-error@+1 {{BAD_PARAM: bn_finalize (C2): epsilon has dims [1, 6]; accepted: one element}}
  "dnn.bn_finalize"(%a, %b, %c, %d, %e, %f) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>} : (tensor<1x6xf32>, tensor<1x6xf32>, tensor<1x6xf32>, tensor<1x6xf32>, tensor<1x6xf32>, tensor<1x6xf32>) -> (tensor<1x6xf32>, tensor<1x6xf32>, tensor<1x6xf32>, tensor<1x6xf32>)
  return
}

// -----

func.func @bn_finalize_c3(%a: tensor<1x6x1x1xf32>, %b: tensor<1x6x1x1xf32>, %c: tensor<1x6x1x1xf32>, %d: tensor<1x6x1x1xf32>, %e: tensor<1x1x1x1xf32>, %f: tensor<1x1x1x1xi64>, %g: tensor<1x6x1x1xf32>, %h: tensor<1x6x1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM: bn_finalize (C3): 1 of 3 are not given; accepted: running statistics with both old ones and a momentum, none without}}
  "dnn.bn_finalize"(%a, %b, %c, %d, %e, %f, %g, %h) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1, 1, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1>} : (tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xi64>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>) -> (tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>)
  return
}

// -----

func.func @bn_finalize_c4(%a: tensor<1x6x1x1xf32>, %b: tensor<1x6x1x1xf32>, %c: tensor<1x6x1x1xf32>, %d: tensor<1x6x1x1xf32>, %e: tensor<1x1x1x1xf32>, %f: tensor<1x1x1x1xi64>, %g: tensor<1x6x1x1xf32>, %h: tensor<1x6x1x1xf32>, %i: tensor<1x1x1x1xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: bn_finalize (C4): compute type INT32; accepted: FLOAT, DOUBLE}}
  "dnn.bn_finalize"(%a, %b, %c, %d, %e, %f, %g, %h, %i) {compute_type = i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1>} : (tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xi64>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x1x1x1xf32>) -> (tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>)
  return
}

// -----

func.func @dbn_weight_c1(%a: tensor<5x3x4xf32>, %b: tensor<5x3x8xf32>, %c: tensor<1x3x1xf32>, %d: tensor<1x3x1xf32>, %e: tensor<1x3x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: dbn_weight (C1): a tensor without a name has dims [5, 3, 4]; accepted: [5, 3, 8]}}
  "dnn.dbn_weight"(%a, %b, %c, %d, %e) {compute_type = f32} : (tensor<5x3x4xf32>, tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>) -> (tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>)
  return
}

// -----

func.func @dbn_weight_c2(%a: tensor<5x3x8xf32>, %b: tensor<5x3x8xf32>, %c: tensor<1x3x1xf32>, %d: tensor<1x3x1xf32>, %e: tensor<1x3x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: dbn_weight (C2): a tensor without a name has dims [5, 3, 1]; accepted: [1, 3, 1]}}
  "dnn.dbn_weight"(%a, %b, %c, %d, %e) {compute_type = f32} : (tensor<5x3x8xf32>, tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>) -> (tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<5x3x1xf32>)
  return
}

// -----

func.func @dbn_weight_c3(%a: tensor<5x3x8xf32>, %b: tensor<5x3x8xf32>, %c: tensor<1x3x1xf32>, %d: tensor<1x3x1xf32>, %e: tensor<1x3x1xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: dbn_weight (C3): compute type INT32; accepted: FLOAT, DOUBLE}}
  "dnn.dbn_weight"(%a, %b, %c, %d, %e) {compute_type = i32} : (tensor<5x3x8xf32>, tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>) -> (tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>)
  return
}

// -----

func.func @peer_reduction_c1(%a: tensor<1x3x1xf32>, %b: tensor<1x3x1xf32>, %c: tensor<2x12x1xf32>, %d: tensor<2x12x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: peer_reduction:moments (C1): a tensor without a name has dims [1, 1, 1]; accepted: [1, 3, 1]}}
  "dnn.peer_reduction"(%a, %b, %c, %d) {compute_type = f32, mode = "moments", operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, peer_rank = 0 : i64} : (tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<2x12x1xf32>, tensor<2x12x1xf32>) -> (tensor<1x3x1xf32>, tensor<1x1x1xf32>)
  return
}

// -----

func.func @peer_reduction_c2(%a: tensor<1x3x1xf32>, %b: tensor<1x3x1xf32>, %c: tensor<2x12x1xf32>, %d: tensor<2x12x1xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: peer_reduction:moments (C2): compute type DOUBLE, of several devices; accepted: FLOAT}}
  "dnn.peer_reduction"(%a, %b, %c, %d) {compute_type = f64, mode = "moments", operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, peer_rank = 0 : i64} : (tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<2x12x1xf32>, tensor<2x12x1xf32>) -> (tensor<1x3x1xf32>, tensor<1x3x1xf32>)
  return
}

// -----

func.func @peer_reduction_c3(%a: tensor<1x3x1xf32>, %b: tensor<1x3x1xf32>, %c: tensor<2x3x1xf32>, %d: tensor<2x3x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: peer_reduction:moments (C3): a tensor without a name has dims [2, 3, 1]; accepted: [2, 12, 1]}}
  "dnn.peer_reduction"(%a, %b, %c, %d) {compute_type = f32, mode = "moments", operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, peer_rank = 0 : i64} : (tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<2x3x1xf32>, tensor<2x3x1xf32>) -> (tensor<1x3x1xf32>, tensor<1x3x1xf32>)
  return
}

// -----

func.func @peer_reduction_c4(%a: tensor<1x3x1xf32>, %b: tensor<1x3x1xf32>, %c: tensor<2x12x1xf32>, %d: tensor<2x12x1xf32>) {
  // expected-error@+1 {{BAD_PARAM: peer_reduction:moments (C4): peer_rank=-1; accepted: 0 to 1, which of the peers' tensors is the device's own}}
  "dnn.peer_reduction"(%a, %b, %c, %d) {compute_type = f32, mode = "moments", operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, peer_rank = -1 : i64} : (tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<2x12x1xf32>, tensor<2x12x1xf32>) -> (tensor<1x3x1xf32>, tensor<1x3x1xf32>)
  return
}

// -----

func.func @softmax_c1(%a: tensor<5x8xf32>) {
  // expected-error@+1 {{BAD_PARAM: softmax (C1): axis=[1, -1]; accepted: axes from -2 to 1, each once}}
  "dnn.softmax"(%a) {algorithm = "ACCURATE", axis = array<i64: 1, -1>, compute_type = f32} : (tensor<5x8xf32>) -> tensor<5x8xf32>
  return
}

// -----

func.func @softmax_c2(%a: tensor<5x8xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: softmax (C2): a tensor without a name has dims [5, 4]; accepted: [5, 8]}}
  "dnn.softmax"(%a) {algorithm = "ACCURATE", axis = array<i64: -1>, compute_type = f32} : (tensor<5x8xf32>) -> tensor<5x4xf32>
  return
}

// -----

func.func @softmax_c3(%a: tensor<5x8xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: softmax (C3): compute type INT32; accepted: FLOAT, DOUBLE}}
  "dnn.softmax"(%a) {algorithm = "ACCURATE", axis = array<i64: -1>, compute_type = i32} : (tensor<5x8xf32>) -> tensor<5x8xf32>
  return
}

// -----

func.func @rope_c1(%a: tensor<2x2x3x?xf32, #dnn.layout<affine_map<()[s0] -> (2, 2, 3, s0, s0 * 6, s0 * 3, s0, 1)>>>, %b: tensor<1x1x3x?xf32, #dnn.layout<affine_map<()[s0] -> (1, 1, 3, s0, s0 * 3, s0 * 3, s0, 1)>>>) attributes {dnn.symbols = [#dnn.symbol<"D", 1 : i64, 64 : i64, 1 : i64>]} {
  // expected-error@+1 {{NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE: rope (C1): a tensor without a name has rows of D elements, known at run time only; accepted: a fixed size}}
  "dnn.rope"(%a, %b) {compute_type = f32, output_scale = 1.000000e+00 : f64, rope_dim = 0 : i64} : (tensor<2x2x3x?xf32, #dnn.layout<affine_map<()[s0] -> (2, 2, 3, s0, s0 * 6, s0 * 3, s0, 1)>>>, tensor<1x1x3x?xf32, #dnn.layout<affine_map<()[s0] -> (1, 1, 3, s0, s0 * 3, s0 * 3, s0, 1)>>>) -> tensor<2x2x3x?xf32, #dnn.layout<affine_map<()[s0] -> (2, 2, 3, s0, s0 * 6, s0 * 3, s0, 1)>>>
  return
}

// -----

func.func @rope_c2(%a: tensor<2x2x3x8xf32>, %b: tensor<1x1x3x3xf32>) {
  // expected-error@+1 {{BAD_PARAM: rope (C2): rope_dim=3 of rows of 8 elements; accepted: an even number up to 8; 0: all, if that is even}}
  "dnn.rope"(%a, %b) {compute_type = f32, output_scale = 1.000000e+00 : f64, rope_dim = 3 : i64} : (tensor<2x2x3x8xf32>, tensor<1x1x3x3xf32>) -> tensor<2x2x3x8xf32>
  return
}

// -----

func.func @rope_c3(%a: tensor<2x2x3x8xf32>, %b: tensor<1x2x3x8xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: rope (C3): freqs has dims [1, 2, 3, 8]; accepted: [1, 1, 3, 8], [2, 1, 3, 8] or [3, 1, 1, 8]}}
  "dnn.rope"(%a, %b) {compute_type = f32, output_scale = 1.000000e+00 : f64, rope_dim = 0 : i64} : (tensor<2x2x3x8xf32>, tensor<1x2x3x8xf32>) -> tensor<2x2x3x8xf32>
  return
}

// -----

func.func @rope_c4(%a: tensor<2x2x3x8xf32>, %b: tensor<1x1x3x8xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: rope (C4): a tensor without a name has dims [2, 2, 3, 4]; accepted: [2, 2, 3, 8]}}
  "dnn.rope"(%a, %b) {compute_type = f32, output_scale = 1.000000e+00 : f64, rope_dim = 0 : i64} : (tensor<2x2x3x8xf32>, tensor<1x1x3x8xf32>) -> tensor<2x2x3x4xf32>
  return
}

// -----

func.func @rope_c5(%a: tensor<2x2x3x8xf32>, %b: tensor<1x1x3x8xi32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: rope (C5): a tensor without a name has data type i32; accepted: a float type}}
  "dnn.rope"(%a, %b) {compute_type = f32, output_scale = 1.000000e+00 : f64, rope_dim = 0 : i64} : (tensor<2x2x3x8xf32>, tensor<1x1x3x8xi32>) -> tensor<2x2x3x8xf32>
  return
}

// -----

func.func @rope_backward_c1(%a: tensor<2x2x3x?xf32, #dnn.layout<affine_map<()[s0] -> (2, 2, 3, s0, s0 * 6, s0 * 3, s0, 1)>>>, %b: tensor<1x1x3x?xf32, #dnn.layout<affine_map<()[s0] -> (1, 1, 3, s0, s0 * 3, s0 * 3, s0, 1)>>>) attributes {dnn.symbols = [#dnn.symbol<"D", 1 : i64, 64 : i64, 1 : i64>]} {
  // expected-error@+1 {{NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE: rope_backward (C1): a tensor without a name has rows of D elements, known at run time only; accepted: a fixed size}}
  "dnn.rope_backward"(%a, %b) {compute_type = f32, output_scale = 1.000000e+00 : f64, rope_dim = 0 : i64} : (tensor<2x2x3x?xf32, #dnn.layout<affine_map<()[s0] -> (2, 2, 3, s0, s0 * 6, s0 * 3, s0, 1)>>>, tensor<1x1x3x?xf32, #dnn.layout<affine_map<()[s0] -> (1, 1, 3, s0, s0 * 3, s0 * 3, s0, 1)>>>) -> tensor<2x2x3x?xf32, #dnn.layout<affine_map<()[s0] -> (2, 2, 3, s0, s0 * 6, s0 * 3, s0, 1)>>>
  return
}

// -----

func.func @rope_backward_c2(%a: tensor<2x2x3x8xf32>, %b: tensor<1x1x3x3xf32>) {
  // expected-error@+1 {{BAD_PARAM: rope_backward (C2): rope_dim=3 of rows of 8 elements; accepted: an even number up to 8; 0: all, if that is even}}
  "dnn.rope_backward"(%a, %b) {compute_type = f32, output_scale = 1.000000e+00 : f64, rope_dim = 3 : i64} : (tensor<2x2x3x8xf32>, tensor<1x1x3x3xf32>) -> tensor<2x2x3x8xf32>
  return
}

// -----

func.func @rope_backward_c3(%a: tensor<2x2x3x8xf32>, %b: tensor<1x2x3x8xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: rope_backward (C3): freqs has dims [1, 2, 3, 8]; accepted: [1, 1, 3, 8], [2, 1, 3, 8] or [3, 1, 1, 8]}}
  "dnn.rope_backward"(%a, %b) {compute_type = f32, output_scale = 1.000000e+00 : f64, rope_dim = 0 : i64} : (tensor<2x2x3x8xf32>, tensor<1x2x3x8xf32>) -> tensor<2x2x3x8xf32>
  return
}

// -----

func.func @rope_backward_c4(%a: tensor<2x2x3x8xf32>, %b: tensor<1x1x3x8xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: rope_backward (C4): a tensor without a name has dims [2, 2, 3, 4]; accepted: [2, 2, 3, 8]}}
  "dnn.rope_backward"(%a, %b) {compute_type = f32, output_scale = 1.000000e+00 : f64, rope_dim = 0 : i64} : (tensor<2x2x3x8xf32>, tensor<1x1x3x8xf32>) -> tensor<2x2x3x4xf32>
  return
}

// -----

func.func @rope_backward_c5(%a: tensor<2x2x3x8xf32>, %b: tensor<1x1x3x8xi32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: rope_backward (C5): a tensor without a name has data type i32; accepted: a float type}}
  "dnn.rope_backward"(%a, %b) {compute_type = f32, output_scale = 1.000000e+00 : f64, rope_dim = 0 : i64} : (tensor<2x2x3x8xf32>, tensor<1x1x3x8xi32>) -> tensor<2x2x3x8xf32>
  return
}

// -----

func.func @softmax_backward_c1(%a: tensor<5x8xf32>, %b: tensor<5x8xf32>) {
  // expected-error@+1 {{BAD_PARAM: softmax_backward (C1): axis=[2]; accepted: axes from -2 to 1, each once}}
  "dnn.softmax_backward"(%a, %b) {algorithm = "ACCURATE", axis = array<i64: 2>, compute_type = f32} : (tensor<5x8xf32>, tensor<5x8xf32>) -> tensor<5x8xf32>
  return
}

// -----

func.func @softmax_backward_c2(%a: tensor<5x1xf32>, %b: tensor<5x8xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: softmax_backward (C2): a tensor without a name has dims [5, 1]; accepted: [5, 8]}}
  "dnn.softmax_backward"(%a, %b) {algorithm = "ACCURATE", axis = array<i64: -1>, compute_type = f32} : (tensor<5x1xf32>, tensor<5x8xf32>) -> tensor<5x8xf32>
  return
}

// -----

func.func @softmax_backward_c3(%a: tensor<5x8xf32>, %b: tensor<5x8xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: softmax_backward (C3): compute type INT32; accepted: FLOAT, DOUBLE}}
  "dnn.softmax_backward"(%a, %b) {algorithm = "ACCURATE", axis = array<i64: -1>, compute_type = i32} : (tensor<5x8xf32>, tensor<5x8xf32>) -> tensor<5x8xf32>
  return
}

// -----

func.func @unknown_operation(%a: tensor<4xf32>) {
  // expected-error@+1 {{unregistered operation 'dnn.matmull' found in dialect ('dnn') that does not allow unknown operations}}
  "dnn.matmull"(%a) {} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @attribute_of_another_kind(%a: tensor<2x3xf32>) {
  // expected-error@+1 {{BAD_PARAM_ATTRIBUTE_TYPE: attribute 1 : i64; accepted: a tuple}}
  "dnn.transpose"(%a) {permutation = 1 : i64} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  return
}

// -----

func.func @segment_sizes_with_another_sum(%a: tensor<4xf32>, %b: tensor<4xf32>) {
  // expected-error@+1 {{BAD_PARAM: operandSegmentSizes [1, 1, 1]; accepted: 3 sizes of 0 or 1, 2 in all}}
  "dnn.pointwise"(%a, %b) {compute_type = f32, mode = "add", operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @sdpa_c1(%arg0: tensor<2x4x5x8xf32>, %arg1: tensor<2x2x7x16xf32, #dnn.layout<affine_map<() -> (2, 2, 7, 16, 1, 1, 1, 1)>>>, %arg2: tensor<2x2x7x16xf32>) {
  %0 = "dnn.constant"() {value = 2.500000e-01 : f64} : () -> tensor<1x1x1x1xf32>
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: sdpa (C1): D of Q is 8, D of K is 16; accepted: one D}}
  "dnn.sdpa"(%arg0, %arg1, %arg2, %0) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 0>, right_bound = 0 : i64, stats_use_log2 = false, use_alibi_mask = false} : (tensor<2x4x5x8xf32>, tensor<2x2x7x16xf32, #dnn.layout<affine_map<() -> (2, 2, 7, 16, 1, 1, 1, 1)>>>, tensor<2x2x7x16xf32>, tensor<1x1x1x1xf32>) -> (tensor<2x4x5x16xf32>, tensor<2x4x5x1xf32>)
  return
}

// -----

func.func @sdpa_c2(%arg0: tensor<2x4x5x8xf32>, %arg1: tensor<2x3x7x8xf32>, %arg2: tensor<2x3x7x16xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: sdpa (C2): a tensor without a name has 3 heads; accepted: 4, or a fixed number that divides it}}
  "dnn.sdpa"(%arg0, %arg1, %arg2) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 0>, stats_use_log2 = false, use_alibi_mask = false} : (tensor<2x4x5x8xf32>, tensor<2x3x7x8xf32>, tensor<2x3x7x16xf32>) -> (tensor<2x4x5x16xf32>, tensor<2x4x5x1xf32>)
  return
}

// -----

func.func @sdpa_c3(%arg0: tensor<2x4x5x8xf32>, %arg1: tensor<2x2x7x8xf32>, %arg2: tensor<2x2x8x16xf32, #dnn.layout<affine_map<() -> (2, 2, 8, 16, 1, 1, 1, 1)>>>) {
  %0 = "dnn.constant"() {value = 2.500000e-01 : f64} : () -> tensor<1x1x1x1xf32>
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: sdpa (C3): Skv of K is 7, of V 8; accepted: one Skv}}
  "dnn.sdpa"(%arg0, %arg1, %arg2, %0) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 0>, right_bound = 0 : i64, stats_use_log2 = false, use_alibi_mask = false} : (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x8x16xf32, #dnn.layout<affine_map<() -> (2, 2, 8, 16, 1, 1, 1, 1)>>>, tensor<1x1x1x1xf32>) -> (tensor<2x4x5x16xf32>, tensor<2x4x5x1xf32>)
  return
}

// -----

func.func @sdpa_c4(%arg0: tensor<2x4x5x8xf32>, %arg1: tensor<2x2x7x8xf32>, %arg2: tensor<2x2x7x16xf32>) {
  %0 = "dnn.constant"() {value = 2.500000e-01 : f64} : () -> tensor<1x1x1x1xf32>
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: sdpa (C4): a tensor without a name has dims [2, 4, 5, 7]; accepted: [2, 4, 5, 1]}}
  "dnn.sdpa"(%arg0, %arg1, %arg2, %0) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 0>, right_bound = 0 : i64, stats_use_log2 = false, use_alibi_mask = false} : (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x16xf32>, tensor<1x1x1x1xf32>) -> (tensor<2x4x5x16xf32>, tensor<2x4x5x7xf32, #dnn.layout<affine_map<() -> (2, 4, 5, 7, 1, 1, 1, 1)>>>)
  return
}

// -----

func.func @sdpa_c5(%arg0: tensor<2x4x5x8xf32>, %arg1: tensor<2x2x7x8xf32>, %arg2: tensor<2x2x7x16xf32>, %arg3: tensor<1x4x1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM: sdpa (C5): attn_scale has dims [1, 4, 1, 1]; accepted: one element}}
  "dnn.sdpa"(%arg0, %arg1, %arg2, %arg3) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 0>, stats_use_log2 = false, use_alibi_mask = false} : (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x16xf32>, tensor<1x4x1x1xf32>) -> (tensor<2x4x5x16xf32>, tensor<2x4x5x1xf32>)
  return
}

// -----

func.func @sdpa_c6(%arg0: tensor<2x4x5x8xf32>, %arg1: tensor<2x2x7x8xf32>, %arg2: tensor<2x2x7x16xf32>, %arg3: tensor<1x4x7x5xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: sdpa (C6): bias has dims [1, 4, 7, 5]; accepted: [2, 4, 5, 7], or 1 in place of some}}
  "dnn.sdpa"(%arg0, %arg1, %arg2, %arg3) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 0>, stats_use_log2 = false, use_alibi_mask = false} : (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x16xf32>, tensor<1x4x7x5xf32>) -> (tensor<2x4x5x16xf32>, tensor<2x4x5x1xf32>)
  return
}

// -----

func.func @sdpa_c7(%arg0: tensor<2x4x5x8xf32>, %arg1: tensor<2x2x7x8xf32>, %arg2: tensor<2x2x7x16xf32>, %arg3: tensor<2x1x1x1xi32>) {
  // expected-error@+1 {{BAD_PARAM: sdpa (C7): 1 of 2 are not given; accepted: seq_len_q and seq_len_kv, or neither}}
  "dnn.sdpa"(%arg0, %arg1, %arg2, %arg3) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 0>, stats_use_log2 = false, use_alibi_mask = false} : (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x16xf32>, tensor<2x1x1x1xi32>) -> (tensor<2x4x5x16xf32>, tensor<2x4x5x1xf32>)
  return
}

// -----

func.func @sdpa_c8(%arg0: tensor<2x4x5x8xf32>, %arg1: tensor<2x2x7x8xf32>, %arg2: tensor<2x2x7x16xf32>) {
  // expected-error@+1 {{BAD_PARAM: sdpa (C8): left_bound=0; accepted: 1 or more, or none}}
  "dnn.sdpa"(%arg0, %arg1, %arg2) {compute_type = f32, diagonal_alignment = "TOP_LEFT", left_bound = 0 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 0>, stats_use_log2 = false, use_alibi_mask = false} : (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x16xf32>) -> (tensor<2x4x5x16xf32>, tensor<2x4x5x1xf32>)
  return
}

// -----

func.func @sdpa_c9(%arg0: tensor<2x4x?x8xf32, #dnn.layout<affine_map<()[s0] -> (2, 4, s0, 8, s0 * 32, s0 * 8, 8, 1)>>>, %arg1: tensor<2x2x64x8xf32, #dnn.layout<affine_map<()[s0] -> (2, 2, 64, 8, 1024, 512, 8, 1)>>>, %arg2: tensor<2x2x64x16xf32, #dnn.layout<affine_map<()[s0] -> (2, 2, 64, 16, 2048, 1024, 16, 1)>>>) attributes {dnn.symbols = [#dnn.symbol<"M", 1 : i64, 512 : i64, 1 : i64>]} {
  // expected-error@+1 {{NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE: sdpa (C9): BOTTOM_RIGHT of M rows and 64 columns; accepted: seq_len_q and seq_len_kv, or sizes that differ by a fixed number}}
  "dnn.sdpa"(%arg0, %arg1, %arg2) {compute_type = f32, diagonal_alignment = "BOTTOM_RIGHT", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 0>, right_bound = 0 : i64, stats_use_log2 = false, use_alibi_mask = false} : (tensor<2x4x?x8xf32, #dnn.layout<affine_map<()[s0] -> (2, 4, s0, 8, s0 * 32, s0 * 8, 8, 1)>>>, tensor<2x2x64x8xf32, #dnn.layout<affine_map<()[s0] -> (2, 2, 64, 8, 1024, 512, 8, 1)>>>, tensor<2x2x64x16xf32, #dnn.layout<affine_map<()[s0] -> (2, 2, 64, 16, 2048, 1024, 16, 1)>>>) -> (tensor<2x4x?x16xf32, #dnn.layout<affine_map<()[s0] -> (2, 4, s0, 16, s0 * 64, s0 * 16, 16, 1)>>>, tensor<2x4x?x1xf32, #dnn.layout<affine_map<()[s0] -> (2, 4, s0, 1, s0 * 4, s0, 1, 1)>>>)
  return
}

// -----

func.func @sdpa_c10(%arg0: tensor<2x?x5x8xf32, #dnn.layout<affine_map<()[s0] -> (2, s0, 5, 8, s0 * 40, 40, 8, 1)>>>, %arg1: tensor<2x?x7x8xf32, #dnn.layout<affine_map<()[s0] -> (2, s0, 7, 8, s0 * 56, 56, 8, 1)>>>, %arg2: tensor<2x?x7x16xf32, #dnn.layout<affine_map<()[s0] -> (2, s0, 7, 16, s0 * 112, 112, 16, 1)>>>) attributes {dnn.symbols = [#dnn.symbol<"M", 1 : i64, 512 : i64, 1 : i64>]} {
  // expected-error@+1 {{NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE: sdpa (C10): ALiBi of M heads, known at run time only; accepted: a fixed number of heads}}
  "dnn.sdpa"(%arg0, %arg1, %arg2) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 0>, stats_use_log2 = false, use_alibi_mask = true} : (tensor<2x?x5x8xf32, #dnn.layout<affine_map<()[s0] -> (2, s0, 5, 8, s0 * 40, 40, 8, 1)>>>, tensor<2x?x7x8xf32, #dnn.layout<affine_map<()[s0] -> (2, s0, 7, 8, s0 * 56, 56, 8, 1)>>>, tensor<2x?x7x16xf32, #dnn.layout<affine_map<()[s0] -> (2, s0, 7, 16, s0 * 112, 112, 16, 1)>>>) -> (tensor<2x?x5x16xf32, #dnn.layout<affine_map<()[s0] -> (2, s0, 5, 16, s0 * 80, 80, 16, 1)>>>, tensor<2x?x5x1xf32, #dnn.layout<affine_map<()[s0] -> (2, s0, 5, 1, s0 * 5, 5, 1, 1)>>>)
  return
}

// -----

func.func @sdpa_c11(%arg0: tensor<2x4x3x8xf32>, %arg1: tensor<6x2x4x8xf32>, %arg2: tensor<6x2x4x8xf32>, %arg3: tensor<2x1x1x1xi32>, %arg4: tensor<2x1x1x1xi32>, %arg5: tensor<2x1x3x1xi32>, %arg6: tensor<2x1x3x1xi32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: sdpa (C11): a tensor without a name has dims [2, 1, 3, 1]; accepted: [2, 1, 2, 1]}}
  "dnn.sdpa"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6) {compute_type = f32, diagonal_alignment = "TOP_LEFT", max_seq_len_kv = 7 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 0>, stats_use_log2 = false, use_alibi_mask = false} : (tensor<2x4x3x8xf32>, tensor<6x2x4x8xf32>, tensor<6x2x4x8xf32>, tensor<2x1x1x1xi32>, tensor<2x1x1x1xi32>, tensor<2x1x3x1xi32>, tensor<2x1x3x1xi32>) -> (tensor<2x4x3x8xf32>, tensor<2x4x3x1xf32>)
  return
}

// -----

func.func @sdpa_c12(%arg0: tensor<2x4x5x8xf32>, %arg1: tensor<2x2x7x8xf32>, %arg2: tensor<2x2x7x16xf32>, %arg3: tensor<1x1x1x1xi32>, %arg4: tensor<1x1x1x1xi64>) {
  // expected-error@+1 {{BAD_PARAM: sdpa (C12): dropout_probability=1.0; accepted: 0 <= p < 1}}
  "dnn.sdpa"(%arg0, %arg1, %arg2, %arg3, %arg4) {compute_type = f32, diagonal_alignment = "TOP_LEFT", dropout_probability = 1.000000e+00 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 1>, stats_use_log2 = false, use_alibi_mask = false} : (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x16xf32>, tensor<1x1x1x1xi32>, tensor<1x1x1x1xi64>) -> (tensor<2x4x5x16xf32>, tensor<2x4x5x1xf32>, tensor<2x4x5x7xf32>)
  return
}

// -----

func.func @sdpa_c13(%arg0: tensor<2x4x5x8xf32>, %arg1: tensor<2x2x7x8xf32>, %arg2: tensor<2x2x7x16xf32>) {
  // expected-error@+1 {{BAD_PARAM: sdpa (C13): rng_dump; accepted: dropout of (probability, seed, offset)}}
  "dnn.sdpa"(%arg0, %arg1, %arg2) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 1>, stats_use_log2 = false, use_alibi_mask = false} : (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x16xf32>) -> (tensor<2x4x5x16xf32>, tensor<2x4x5x1xf32>, tensor<2x4x5x7xf32>)
  return
}

// -----

func.func @sdpa_c14(%arg0: tensor<2x4x5x8xf32>, %arg1: tensor<2x2x7x8xf32>, %arg2: tensor<2x2x7x16xf32>, %arg3: tensor<1x2x1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: sdpa (C14): a tensor without a name has dims [1, 2, 1, 1]; accepted: [1, 4, 1, 1]}}
  "dnn.sdpa"(%arg0, %arg1, %arg2, %arg3) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 0>, stats_use_log2 = false, use_alibi_mask = false} : (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x16xf32>, tensor<1x2x1x1xf32>) -> (tensor<2x4x5x16xf32>, tensor<2x4x5x1xf32>)
  return
}

// -----

func.func @sdpa_c15(%arg0: tensor<2x4x5x8xf32>, %arg1: tensor<2x2x7x8xf32>, %arg2: tensor<2x2x7x16xf32>) {
  %0 = "dnn.constant"() {value = 2.500000e-01 : f64} : () -> tensor<1x1x1x1xf32>
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: sdpa (C15): compute type INT32; accepted: FLOAT, DOUBLE}}
  "dnn.sdpa"(%arg0, %arg1, %arg2, %0) {compute_type = i32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 0>, right_bound = 0 : i64, stats_use_log2 = false, use_alibi_mask = false} : (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x16xf32>, tensor<1x1x1x1xf32>) -> (tensor<2x4x5x16xf32>, tensor<2x4x5x1xf32>)
  return
}

// -----

func.func @sdpa_c16(%arg0: tensor<2x4x140x8xf32>, %arg1: tensor<2x2x260x8xf32>, %arg2: tensor<2x2x260x16xf32>, %arg3: tensor<1x4x1x1xui8>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: sdpa (C16): block_mask has dims [1, 4, 1, 1]; accepted: [2, 4, 2, 1], or 1 in place of the first two}}
  "dnn.sdpa"(%arg0, %arg1, %arg2, %arg3) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 0>, stats_use_log2 = false, use_alibi_mask = false} : (tensor<2x4x140x8xf32>, tensor<2x2x260x8xf32>, tensor<2x2x260x16xf32>, tensor<1x4x1x1xui8>) -> (tensor<2x4x140x16xf32>, tensor<2x4x140x1xf32>)
  return
}

// -----

func.func @block_mask_load_c1(%arg0: tensor<2x3x1x1xi8>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: block_mask_load (C1): data type i8 of a tensor without a name; accepted: ui8}}
  "dnn.block_mask_load"(%arg0) {block_columns = 128 : i64, block_rows = 128 : i64} : (tensor<2x3x1x1xi8>) -> tensor<2x3x9x20xi1>
  return
}

// -----

func.func @block_mask_load_c2(%arg0: tensor<2x3x1x1xui8>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: block_mask_load (C2): Y has dims [2, 4, 9, 20] for a mask [2, 3, 1, 1]; accepted: [B, H, Sq, Skv]}}
  "dnn.block_mask_load"(%arg0) {block_columns = 128 : i64, block_rows = 128 : i64} : (tensor<2x3x1x1xui8>) -> tensor<2x4x9x20xi1>
  return
}

// -----

func.func @block_mask_load_c3(%arg0: tensor<2x3x2x1xui8>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: block_mask_load (C3): the mask has dims [2, 3, 2, 1]; accepted: [B, H, 1, 1]}}
  "dnn.block_mask_load"(%arg0) {block_columns = 128 : i64, block_rows = 128 : i64} : (tensor<2x3x2x1xui8>) -> tensor<2x3x9x20xi1>
  return
}

// -----

func.func @block_mask_load_c4(%arg0: tensor<2x3x1x1xui8>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: block_mask_load (C4): data type f32 of a tensor without a name; accepted: i1}}
  "dnn.block_mask_load"(%arg0) {block_columns = 128 : i64, block_rows = 128 : i64} : (tensor<2x3x1x1xui8>) -> tensor<2x3x9x20xf32>
  return
}

// -----

func.func @block_mask_load_c5(%arg0: tensor<2x3x1x1xui8>) {
  // expected-error@+1 {{BAD_PARAM: block_mask_load (C5): block_rows=96; accepted: a power of two}}
  "dnn.block_mask_load"(%arg0) {block_columns = 128 : i64, block_rows = 96 : i64} : (tensor<2x3x1x1xui8>) -> tensor<2x3x9x20xi1>
  return
}

// -----

func.func @sdpa_fp8_c1(%q: tensor<2x4x5x16xf16>, %k: tensor<2x2x7x16xf8E4M3FN>, %v: tensor<2x2x7x32xf8E4M3FN>, %dq: tensor<1x1x1x1xf32>, %dk: tensor<1x1x1x1xf32>, %dv: tensor<1x1x1x1xf32>, %ds: tensor<1x1x1x1xf32>, %ss: tensor<1x1x1x1xf32>, %so: tensor<1x1x1x1xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: sdpa_fp8 (C1): data type f16 of a tensor without a name; accepted: f8E4M3FN, f8E5M2}}
  "dnn.sdpa_fp8"(%q, %k, %v, %dq, %dk, %dv, %ds, %ss, %so) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 0, 1, 1>, right_bound = 0 : i64, stats_use_log2 = false, use_alibi_mask = false} : (tensor<2x4x5x16xf16>, tensor<2x2x7x16xf8E4M3FN>, tensor<2x2x7x32xf8E4M3FN>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>) -> (tensor<2x4x5x32xbf16>, tensor<2x4x5x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>)
  return
}

// -----

func.func @sdpa_fp8_c15(%q: tensor<2x4x5x16xf8E4M3FN>, %k: tensor<2x2x7x16xf8E4M3FN>, %v: tensor<2x2x7x32xf8E4M3FN>, %dq: tensor<1x1x1x1xf32>, %dk: tensor<1x1x1x1xf32>, %dv: tensor<1x1x1x1xf32>, %ds: tensor<1x1x1x1xf32>, %ss: tensor<1x1x1x1xf32>, %so: tensor<1x1x1x1xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: sdpa_fp8 (C15): compute type HALF; accepted: FLOAT, DOUBLE, FAST_FLOAT_FOR_FP8}}
  "dnn.sdpa_fp8"(%q, %k, %v, %dq, %dk, %dv, %ds, %ss, %so) {compute_type = f16, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 0, 1, 1>, right_bound = 0 : i64, stats_use_log2 = false, use_alibi_mask = false} : (tensor<2x4x5x16xf8E4M3FN>, tensor<2x2x7x16xf8E4M3FN>, tensor<2x2x7x32xf8E4M3FN>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>) -> (tensor<2x4x5x32xbf16>, tensor<2x4x5x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>)
  return
}

// -----

func.func @sdpa_fp8_c17(%q: tensor<2x4x5x16xf8E4M3FN>, %k: tensor<2x2x7x16xf8E4M3FN>, %v: tensor<2x2x7x32xf8E4M3FN>, %dq: tensor<1x1x1x1xf32>, %dk: tensor<1x1x1x1xf32>, %dv: tensor<1x1x1x1xf32>, %ds: tensor<1x1x1x1xf32>, %ss: tensor<1x1x1x1xf32>, %so: tensor<1x2x1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM: sdpa_fp8 (C17): scale_o has dims [1, 2, 1, 1]; accepted: one element}}
  "dnn.sdpa_fp8"(%q, %k, %v, %dq, %dk, %dv, %ds, %ss, %so) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 0, 1, 1>, right_bound = 0 : i64, stats_use_log2 = false, use_alibi_mask = false} : (tensor<2x4x5x16xf8E4M3FN>, tensor<2x2x7x16xf8E4M3FN>, tensor<2x2x7x32xf8E4M3FN>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x2x1x1xf32>) -> (tensor<2x4x5x32xbf16>, tensor<2x4x5x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>)
  return
}

// -----

func.func @sdpa_fp8_c18(%q: tensor<2x4x5x16xf8E4M3FN>, %k: tensor<2x2x7x16xf8E4M3FN>, %v: tensor<2x2x7x32xf8E4M3FN>, %dq: tensor<1x1x1x1xf32>, %dk: tensor<1x1x1x1xf32>, %dv: tensor<1x1x1x1xf32>, %ds: tensor<1x1x1x1xf32>, %ss: tensor<1x1x1x1xf32>, %so: tensor<1x1x1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: sdpa_fp8 (C18): a tensor without a name has dims [1, 2, 1, 1]; accepted: [1, 1, 1, 1]}}
  "dnn.sdpa_fp8"(%q, %k, %v, %dq, %dk, %dv, %ds, %ss, %so) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 0, 1, 1>, right_bound = 0 : i64, stats_use_log2 = false, use_alibi_mask = false} : (tensor<2x4x5x16xf8E4M3FN>, tensor<2x2x7x16xf8E4M3FN>, tensor<2x2x7x32xf8E4M3FN>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>) -> (tensor<2x4x5x32xbf16>, tensor<2x4x5x1xf32>, tensor<1x1x1x1xf32>, tensor<1x2x1x1xf32>)
  return
}

// -----

func.func @sdpa_fp8_backward_c1(%q: tensor<2x4x5x16xf16>, %k: tensor<2x2x7x16xf8E4M3FN>, %v: tensor<2x2x7x16xf8E4M3FN>, %o: tensor<2x4x5x16xf8E4M3FN>, %stats: tensor<2x4x5x1xf32>, %do: tensor<2x4x5x16xf8E5M2>, %n0: tensor<1x1x1x1xf32>, %n1: tensor<1x1x1x1xf32>, %n2: tensor<1x1x1x1xf32>, %n3: tensor<1x1x1x1xf32>, %n4: tensor<1x1x1x1xf32>, %n5: tensor<1x1x1x1xf32>, %n6: tensor<1x1x1x1xf32>, %n7: tensor<1x1x1x1xf32>, %n8: tensor<1x1x1x1xf32>, %n9: tensor<1x1x1x1xf32>, %n10: tensor<1x1x1x1xf32>, %n11: tensor<1x1x1x1xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: sdpa_fp8_backward (C1): data type f16 of a tensor without a name; accepted: f8E4M3FN, f8E5M2}}
  "dnn.sdpa_fp8_backward"(%q, %k, %v, %o, %stats, %do, %n0, %n1, %n2, %n3, %n4, %n5, %n6, %n7, %n8, %n9, %n10, %n11) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 1, 1>, right_bound = 0 : i64, stats_use_log2 = false, use_deterministic_algorithm = true} : (tensor<2x4x5x16xf16>, tensor<2x2x7x16xf8E4M3FN>, tensor<2x2x7x16xf8E4M3FN>, tensor<2x4x5x16xf8E4M3FN>, tensor<2x4x5x1xf32>, tensor<2x4x5x16xf8E5M2>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>) -> (tensor<2x4x5x16xf8E4M3FN>, tensor<2x2x7x16xf8E4M3FN>, tensor<2x2x7x16xf8E4M3FN>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>)
  return
}

// -----

func.func @sdpa_fp8_backward_c4(%q: tensor<2x4x5x16xf8E4M3FN>, %k: tensor<2x2x7x16xf8E4M3FN>, %v: tensor<2x2x7x16xf8E4M3FN>, %o: tensor<2x4x5x16xf8E4M3FN>, %stats: tensor<2x4x5x1xf32>, %do: tensor<2x4x5x32xf8E5M2>, %n0: tensor<1x1x1x1xf32>, %n1: tensor<1x1x1x1xf32>, %n2: tensor<1x1x1x1xf32>, %n3: tensor<1x1x1x1xf32>, %n4: tensor<1x1x1x1xf32>, %n5: tensor<1x1x1x1xf32>, %n6: tensor<1x1x1x1xf32>, %n7: tensor<1x1x1x1xf32>, %n8: tensor<1x1x1x1xf32>, %n9: tensor<1x1x1x1xf32>, %n10: tensor<1x1x1x1xf32>, %n11: tensor<1x1x1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: sdpa_fp8_backward (C4): a tensor without a name has dims [2, 4, 5, 32]; accepted: [2, 4, 5, 16]}}
  "dnn.sdpa_fp8_backward"(%q, %k, %v, %o, %stats, %do, %n0, %n1, %n2, %n3, %n4, %n5, %n6, %n7, %n8, %n9, %n10, %n11) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 1, 1>, right_bound = 0 : i64, stats_use_log2 = false, use_deterministic_algorithm = true} : (tensor<2x4x5x16xf8E4M3FN>, tensor<2x2x7x16xf8E4M3FN>, tensor<2x2x7x16xf8E4M3FN>, tensor<2x4x5x16xf8E4M3FN>, tensor<2x4x5x1xf32>, tensor<2x4x5x32xf8E5M2>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>) -> (tensor<2x4x5x16xf8E4M3FN>, tensor<2x2x7x16xf8E4M3FN>, tensor<2x2x7x16xf8E4M3FN>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>)
  return
}

// -----

func.func @sdpa_fp8_backward_c20(%q: tensor<2x4x5x16xf8E4M3FN>, %k: tensor<2x2x7x16xf8E4M3FN>, %v: tensor<2x2x7x16xf8E4M3FN>, %o: tensor<2x4x5x16xf8E4M3FN>, %stats: tensor<2x4x5x1xf32>, %do: tensor<2x4x5x16xf8E5M2>, %n0: tensor<1x1x1x1xf32>, %n1: tensor<1x1x1x1xf32>, %n2: tensor<1x1x1x1xf32>, %n3: tensor<1x1x1x1xf32>, %n4: tensor<1x1x1x1xf32>, %n5: tensor<1x1x1x1xf32>, %n6: tensor<1x1x1x1xf32>, %n7: tensor<1x1x1x1xf32>, %n8: tensor<1x1x1x1xf32>, %n9: tensor<1x1x1x1xf32>, %n10: tensor<1x1x1x1xf32>, %n11: tensor<1x2x1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM: sdpa_fp8_backward (C20): scale_dp has dims [1, 2, 1, 1]; accepted: one element}}
  "dnn.sdpa_fp8_backward"(%q, %k, %v, %o, %stats, %do, %n0, %n1, %n2, %n3, %n4, %n5, %n6, %n7, %n8, %n9, %n10, %n11) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 1, 1>, right_bound = 0 : i64, stats_use_log2 = false, use_deterministic_algorithm = true} : (tensor<2x4x5x16xf8E4M3FN>, tensor<2x2x7x16xf8E4M3FN>, tensor<2x2x7x16xf8E4M3FN>, tensor<2x4x5x16xf8E4M3FN>, tensor<2x4x5x1xf32>, tensor<2x4x5x16xf8E5M2>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x2x1x1xf32>) -> (tensor<2x4x5x16xf8E4M3FN>, tensor<2x2x7x16xf8E4M3FN>, tensor<2x2x7x16xf8E4M3FN>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>)
  return
}

// -----

func.func @sdpa_fp8_backward_c21(%q: tensor<2x4x5x16xf8E4M3FN>, %k: tensor<2x2x7x16xf8E4M3FN>, %v: tensor<2x2x7x16xf8E4M3FN>, %o: tensor<2x4x5x16xf8E4M3FN>, %stats: tensor<2x4x5x1xf32>, %do: tensor<2x4x5x16xf8E5M2>, %n0: tensor<1x1x1x1xf32>, %n1: tensor<1x1x1x1xf32>, %n2: tensor<1x1x1x1xf32>, %n3: tensor<1x1x1x1xf32>, %n4: tensor<1x1x1x1xf32>, %n5: tensor<1x1x1x1xf32>, %n6: tensor<1x1x1x1xf32>, %n7: tensor<1x1x1x1xf32>, %n8: tensor<1x1x1x1xf32>, %n9: tensor<1x1x1x1xf32>, %n10: tensor<1x1x1x1xf32>, %n11: tensor<1x1x1x1xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: sdpa_fp8_backward (C21): a tensor without a name has dims [1, 2, 1, 1]; accepted: [1, 1, 1, 1]}}
  "dnn.sdpa_fp8_backward"(%q, %k, %v, %o, %stats, %do, %n0, %n1, %n2, %n3, %n4, %n5, %n6, %n7, %n8, %n9, %n10, %n11) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 1, 1>, right_bound = 0 : i64, stats_use_log2 = false, use_deterministic_algorithm = true} : (tensor<2x4x5x16xf8E4M3FN>, tensor<2x2x7x16xf8E4M3FN>, tensor<2x2x7x16xf8E4M3FN>, tensor<2x4x5x16xf8E4M3FN>, tensor<2x4x5x1xf32>, tensor<2x4x5x16xf8E5M2>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>) -> (tensor<2x4x5x16xf8E4M3FN>, tensor<2x2x7x16xf8E4M3FN>, tensor<2x2x7x16xf8E4M3FN>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x2x1x1xf32>)
  return
}

// -----

func.func @sdpa_backward_c4(%q: tensor<2x4x5x8xf32>, %k: tensor<2x4x7x8xf32>, %v: tensor<2x4x7x16xf32>, %o: tensor<2x4x5x16xf32>, %stats: tensor<2x4x5x1xf32>, %do: tensor<2x4x5x8xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: sdpa_backward (C4): a tensor without a name has dims [2, 4, 5, 8]; accepted: [2, 4, 5, 16]}}
  "dnn.sdpa_backward"(%q, %k, %v, %o, %stats, %do) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1>, resultSegmentSizes = array<i32: 0, 1, 1, 1, 0, 0>, stats_use_log2 = false, use_alibi_mask = false, use_deterministic_algorithm = false} : (tensor<2x4x5x8xf32>, tensor<2x4x7x8xf32>, tensor<2x4x7x16xf32>, tensor<2x4x5x16xf32>, tensor<2x4x5x1xf32>, tensor<2x4x5x8xf32>) -> (tensor<2x4x5x8xf32>, tensor<2x4x7x8xf32>, tensor<2x4x7x16xf32>)
  return
}

// -----

func.func @sdpa_backward_c17(%q: tensor<2x4x5x8xf32>, %k: tensor<2x4x7x8xf32>, %v: tensor<2x4x7x16xf32>, %o: tensor<2x4x5x16xf32>, %stats: tensor<2x4x5x1xf32>, %do: tensor<2x4x5x16xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: sdpa_backward (C17): a tensor without a name has dims [2, 4, 7, 16]; accepted: [2, 4, 7, 8]}}
  "dnn.sdpa_backward"(%q, %k, %v, %o, %stats, %do) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1>, resultSegmentSizes = array<i32: 0, 1, 1, 1, 0, 0>, stats_use_log2 = false, use_alibi_mask = false, use_deterministic_algorithm = false} : (tensor<2x4x5x8xf32>, tensor<2x4x7x8xf32>, tensor<2x4x7x16xf32>, tensor<2x4x5x16xf32>, tensor<2x4x5x1xf32>, tensor<2x4x5x16xf32>) -> (tensor<2x4x5x8xf32>, tensor<2x4x7x16xf32>, tensor<2x4x7x16xf32>)
  return
}

// -----

func.func @sdpa_backward_c18(%q: tensor<2x4x5x8xf32>, %k: tensor<2x4x7x8xf32>, %v: tensor<2x4x7x16xf32>, %o: tensor<2x4x5x16xf32>, %stats: tensor<2x4x5x1xf32>, %do: tensor<2x4x5x16xf32>) {
  // expected-error@+1 {{BAD_PARAM: sdpa_backward (C18): dbias without bias; accepted: bias, or no dbias}}
  "dnn.sdpa_backward"(%q, %k, %v, %o, %stats, %do) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1>, resultSegmentSizes = array<i32: 0, 1, 1, 1, 1, 0>, stats_use_log2 = false, use_alibi_mask = false, use_deterministic_algorithm = false} : (tensor<2x4x5x8xf32>, tensor<2x4x7x8xf32>, tensor<2x4x7x16xf32>, tensor<2x4x5x16xf32>, tensor<2x4x5x1xf32>, tensor<2x4x5x16xf32>) -> (tensor<2x4x5x8xf32>, tensor<2x4x7x8xf32>, tensor<2x4x7x16xf32>, tensor<1x4x5x7xf32>)
  return
}

// -----

func.func @sdpa_backward_c19(%q: tensor<2x4x5x8xf32>, %k: tensor<2x4x7x8xf32>, %v: tensor<2x4x7x16xf32>, %sink: tensor<1x4x1x1xf32>, %o: tensor<2x4x5x16xf32>, %stats: tensor<2x4x5x1xf32>, %do: tensor<2x4x5x16xf32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: sdpa_backward (C19): a tensor without a name has dims [1, 2, 1, 1]; accepted: [1, 4, 1, 1]}}
  "dnn.sdpa_backward"(%q, %k, %v, %sink, %o, %stats, %do) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 1>, resultSegmentSizes = array<i32: 0, 1, 1, 1, 0, 1>, stats_use_log2 = false, use_alibi_mask = false, use_deterministic_algorithm = false} : (tensor<2x4x5x8xf32>, tensor<2x4x7x8xf32>, tensor<2x4x7x16xf32>, tensor<1x4x1x1xf32>, tensor<2x4x5x16xf32>, tensor<2x4x5x1xf32>, tensor<2x4x5x16xf32>) -> (tensor<2x4x5x8xf32>, tensor<2x4x7x8xf32>, tensor<2x4x7x16xf32>, tensor<1x2x1x1xf32>)
  return
}

// -----

func.func @paged_cache_load_c1(%arg0: tensor<6x2x3x8xf32>, %arg1: tensor<3x1x1x1xi32>, %arg2: tensor<3x1x2x1xi32>) {
  // expected-error@+1 {{BAD_PARAM: paged_cache_load (C1): blocks of 3 keys; accepted: a power of two}}
  "dnn.paged_cache_load"(%arg0, %arg1, %arg2) : (tensor<6x2x3x8xf32>, tensor<3x1x1x1xi32>, tensor<3x1x2x1xi32>) -> tensor<3x2x6x8xf32>
  return
}

// -----

func.func @paged_cache_load_c2(%arg0: tensor<6x2x4x8xf32>, %arg1: tensor<3x1x1x1xi32>, %arg2: tensor<3x1x2x1xi32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: paged_cache_load (C2): Y has dims [3, 4, 7, 8]; accepted: [B, 2, S, 8]}}
  "dnn.paged_cache_load"(%arg0, %arg1, %arg2) : (tensor<6x2x4x8xf32>, tensor<3x1x1x1xi32>, tensor<3x1x2x1xi32>) -> tensor<3x4x7x8xf32, #dnn.layout<affine_map<() -> (3, 4, 7, 8, 1, 1, 1, 1)>>>
  return
}

// -----

func.func @paged_cache_load_c3(%arg0: tensor<6x2x4x8xf32>, %arg1: tensor<3x1x1x1xi32>, %arg2: tensor<3x1x4x1xi32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: paged_cache_load (C3): a tensor without a name has dims [3, 1, 4, 1]; accepted: [3, 1, 2, 1]}}
  "dnn.paged_cache_load"(%arg0, %arg1, %arg2) : (tensor<6x2x4x8xf32>, tensor<3x1x1x1xi32>, tensor<3x1x4x1xi32>) -> tensor<3x2x7x8xf32, #dnn.layout<affine_map<() -> (3, 2, 7, 8, 256, 128, 8, 1)>>>
  return
}

// -----

func.func @paged_cache_load_c4(%arg0: tensor<6x2x4x8xf32>, %arg1: tensor<3x1x1x1xf32>, %arg2: tensor<3x1x2x1xi32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: paged_cache_load (C4): data type f32 of a tensor without a name; accepted: i32, i64}}
  "dnn.paged_cache_load"(%arg0, %arg1, %arg2) : (tensor<6x2x4x8xf32>, tensor<3x1x1x1xf32>, tensor<3x1x2x1xi32>) -> tensor<3x2x7x8xf32, #dnn.layout<affine_map<() -> (3, 2, 7, 8, 128, 64, 8, 1)>>>
  return
}

// -----

func.func @paged_cache_load_c5(%arg0: tensor<6x2x4x8xf32>, %arg1: tensor<3x1x1x1xi32>, %arg2: tensor<3x1x2x1xi32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: paged_cache_load (C5): data type f16 of a tensor without a name; accepted: f32}}
  "dnn.paged_cache_load"(%arg0, %arg1, %arg2) : (tensor<6x2x4x8xf32>, tensor<3x1x1x1xi32>, tensor<3x1x2x1xi32>) -> tensor<3x2x7x8xf16, #dnn.layout<affine_map<() -> (3, 2, 7, 8, 128, 64, 8, 1)>>>
  return
}

// -----

func.func @ragged_load_c1(%arg0: tensor<2x2x9x8xf32>, %arg1: tensor<4x1x1x1xi32>, %arg2: tensor<3x1x1x1xi32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: ragged_load (C1): a tensor without a name has dims [2, 2, 9, 8]; accepted: [1, 2, 9, 8]}}
  "dnn.ragged_load"(%arg0, %arg1, %arg2) {offset_multiplier = 1 : i64} : (tensor<2x2x9x8xf32>, tensor<4x1x1x1xi32>, tensor<3x1x1x1xi32>) -> tensor<3x2x5x8xf32>
  return
}

// -----

func.func @ragged_load_c2(%arg0: tensor<1x2x9x8xf32>, %arg1: tensor<4x1x1x1xi32>, %arg2: tensor<3x1x1x1xi32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: ragged_load (C2): a tensor without a name has dims [3, 4, 5, 8]; accepted: [3, 2, 5, 8]}}
  "dnn.ragged_load"(%arg0, %arg1, %arg2) {offset_multiplier = 1 : i64} : (tensor<1x2x9x8xf32>, tensor<4x1x1x1xi32>, tensor<3x1x1x1xi32>) -> tensor<3x4x5x8xf32>
  return
}

// -----

func.func @ragged_load_c3(%arg0: tensor<1x2x9x8xf32>, %arg1: tensor<3x1x1x1xi32>, %arg2: tensor<3x1x1x1xi32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: ragged_load (C3): a tensor without a name has dims [3, 1, 1, 1]; accepted: [4, 1, 1, 1]}}
  "dnn.ragged_load"(%arg0, %arg1, %arg2) {offset_multiplier = 1 : i64} : (tensor<1x2x9x8xf32>, tensor<3x1x1x1xi32>, tensor<3x1x1x1xi32>) -> tensor<3x2x5x8xf32>
  return
}

// -----

func.func @ragged_load_c4(%arg0: tensor<1x2x9x8xf32>, %arg1: tensor<4x1x1x1xi32>, %arg2: tensor<3x1x1x1xf32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: ragged_load (C4): data type f32 of a tensor without a name; accepted: i32, i64}}
  "dnn.ragged_load"(%arg0, %arg1, %arg2) {offset_multiplier = 1 : i64} : (tensor<1x2x9x8xf32>, tensor<4x1x1x1xi32>, tensor<3x1x1x1xf32>) -> tensor<3x2x5x8xf32>
  return
}

// -----

func.func @ragged_load_c5(%arg0: tensor<1x2x9x8xf32>, %arg1: tensor<4x1x1x1xi32>, %arg2: tensor<3x1x1x1xi32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: ragged_load (C5): data type f16 of a tensor without a name; accepted: f32}}
  "dnn.ragged_load"(%arg0, %arg1, %arg2) {offset_multiplier = 1 : i64} : (tensor<1x2x9x8xf32>, tensor<4x1x1x1xi32>, tensor<3x1x1x1xi32>) -> tensor<3x2x5x8xf16>
  return
}

// -----

func.func @ragged_load_c6(%arg0: tensor<1x2x9x8xf32>, %arg1: tensor<4x1x1x1xi32>, %arg2: tensor<3x1x1x1xi32>) {
  // expected-error@+1 {{BAD_PARAM: ragged_load (C6): ragged_offset_multiplier=0; accepted: 1 or more}}
  "dnn.ragged_load"(%arg0, %arg1, %arg2) {offset_multiplier = 0 : i64} : (tensor<1x2x9x8xf32>, tensor<4x1x1x1xi32>, tensor<3x1x1x1xi32>) -> tensor<3x2x5x8xf32>
  return
}

// -----

func.func @ragged_store_c1(%arg0: tensor<3x5x8xf32>, %arg1: tensor<4x1x1x1xi32>, %arg2: tensor<3x1x1x1xi32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: ragged_store (C1): a tensor without a name has dims [3, 5, 8]; accepted: rank 4}}
  "dnn.ragged_store"(%arg0, %arg1, %arg2) {offset_multiplier = 1 : i64} : (tensor<3x5x8xf32>, tensor<4x1x1x1xi32>, tensor<3x1x1x1xi32>) -> tensor<1x2x15x8xf32>
  return
}

// -----

func.func @ragged_store_c2(%arg0: tensor<3x2x5x8xf32>, %arg1: tensor<4x1x1x1xi32>, %arg2: tensor<3x1x1x1xi32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: ragged_store (C2): a tensor without a name has dims [1, 4, 15, 8]; accepted: [1, 2, 15, 8]}}
  "dnn.ragged_store"(%arg0, %arg1, %arg2) {offset_multiplier = 1 : i64} : (tensor<3x2x5x8xf32>, tensor<4x1x1x1xi32>, tensor<3x1x1x1xi32>) -> tensor<1x4x15x8xf32>
  return
}

// -----

func.func @ragged_store_c3(%arg0: tensor<3x2x5x8xf32>, %arg1: tensor<4x1x1x1xf32>, %arg2: tensor<3x1x1x1xi32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: ragged_store (C3): data type f32 of a tensor without a name; accepted: i32, i64}}
  "dnn.ragged_store"(%arg0, %arg1, %arg2) {offset_multiplier = 1 : i64} : (tensor<3x2x5x8xf32>, tensor<4x1x1x1xf32>, tensor<3x1x1x1xi32>) -> tensor<1x2x15x8xf32>
  return
}

// -----

func.func @ragged_store_c4(%arg0: tensor<3x2x5x8xf32>, %arg1: tensor<4x1x1x1xi32>, %arg2: tensor<4x1x1x1xi32>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: ragged_store (C4): a tensor without a name has dims [4, 1, 1, 1]; accepted: [3, 1, 1, 1]}}
  "dnn.ragged_store"(%arg0, %arg1, %arg2) {offset_multiplier = 1 : i64} : (tensor<3x2x5x8xf32>, tensor<4x1x1x1xi32>, tensor<4x1x1x1xi32>) -> tensor<1x2x15x8xf32>
  return
}

// -----

func.func @ragged_store_c5(%arg0: tensor<3x2x5x8xf32>, %arg1: tensor<4x1x1x1xi32>, %arg2: tensor<3x1x1x1xi32>) {
  // expected-error@+1 {{NOT_SUPPORTED_DATA_TYPE: ragged_store (C5): data type f16 of a tensor without a name; accepted: f32}}
  "dnn.ragged_store"(%arg0, %arg1, %arg2) {offset_multiplier = 1 : i64} : (tensor<3x2x5x8xf32>, tensor<4x1x1x1xi32>, tensor<3x1x1x1xi32>) -> tensor<1x2x15x8xf16>
  return
}

// -----

func.func @ragged_store_c6(%arg0: tensor<3x2x5x8xf32>, %arg1: tensor<4x1x1x1xi32>, %arg2: tensor<3x1x1x1xi32>) {
  // expected-error@+1 {{BAD_PARAM: ragged_store (C6): ragged_offset_multiplier=-1; accepted: 1 or more}}
  "dnn.ragged_store"(%arg0, %arg1, %arg2) {offset_multiplier = -1 : i64} : (tensor<3x2x5x8xf32>, tensor<4x1x1x1xi32>, tensor<3x1x1x1xi32>) -> tensor<1x2x15x8xf32>
  return
}

// -----

func.func @data_type_that_dnnc_lacks(%a: tensor<2x3xi4>) {
  // expected-error@+1 {{BAD_PARAM_ATTRIBUTE_TYPE: data type: 'i4' is not a data type; accepted: f32, f64, f16,}}
  "dnn.transpose"(%a) {permutation = array<i64: 1, 0>} : (tensor<2x3xi4>) -> tensor<3x2xi4>
  return
}

// -----

func.func @dynamic_dim_without_layout(%a: tensor<2x?xf32>) {
  // expected-error@+1 {{BAD_PARAM: tensor<2x?xf32> has no #dnn.layout; accepted: a layout}}
  "dnn.transpose"(%a) {permutation = array<i64: 1, 0>} : (tensor<2x?xf32>) -> tensor<?x2xf32>
  return
}

// -----

func.func @layout_that_contradicts_the_type(%a: tensor<2x3xf32, #dnn.layout<affine_map<() -> (2, 4, 4, 1)>>>) {
  // expected-error@+1 {{BAD_PARAM_SHAPE_MISMATCH: the layout of tensor<2x3xf32, #dnn.layout<affine_map<() -> (2, 4, 4, 1)>>>; accepted: its sizes, then strides}}
  "dnn.transpose"(%a) {permutation = array<i64: 1, 0>} : (tensor<2x3xf32, #dnn.layout<affine_map<() -> (2, 4, 4, 1)>>>) -> tensor<3x2xf32>
  return
}

// -----

func.func @layout_symbol_that_no_symbol_names(%a: tensor<2x?xf32, #dnn.layout<affine_map<()[s0] -> (2, s0, s0, 1)>>>) {
  // expected-error@+1 {{BAD_PARAM: layout symbol s0; accepted: one of dnn.symbols}}
  "dnn.transpose"(%a) {permutation = array<i64: 1, 0>} : (tensor<2x?xf32, #dnn.layout<affine_map<()[s0] -> (2, s0, s0, 1)>>>) -> tensor<?x2xf32, #dnn.layout<affine_map<()[s0] -> (s0, 2, 2, 1)>>>
  return
}

// -----

func.func @negative_stride(%a: tensor<2x3xf32, #dnn.layout<affine_map<() -> (2, 3, -3, 1)>>>) {
  // expected-error@+1 {{BAD_PARAM: a tensor without a name: stride -3; accepted: strides of at least 0}}
  "dnn.transpose"(%a) {permutation = array<i64: 1, 0>} : (tensor<2x3xf32, #dnn.layout<affine_map<() -> (2, 3, -3, 1)>>>) -> tensor<3x2xf32>
  return
}
