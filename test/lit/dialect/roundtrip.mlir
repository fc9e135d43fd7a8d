// RUN: dnnc opt %s | dnnc opt - | filecheck %s

// Every operation is printed as it was parsed.

// CHECK-DAG: #[[DYNAMIC:.*]] = affine_map<()[s0, s1] -> (s0, s1 * 8, 4, s1 * 32, 4, 1)>

// CHECK-LABEL: func.func @matmul
// CHECK: "dnn.matmul"(%{{.*}}, %{{.*}}) {compute_type = f32, node = "mm"} : (tensor<2x3x4xf16>, tensor<2x4x5xf16>) -> tensor<2x3x5xf32>
func.func @matmul(%a: tensor<2x3x4xf16>, %b: tensor<2x4x5xf16>) -> tensor<2x3x5xf32> {
  %0 = "dnn.matmul"(%a, %b) {compute_type = f32, node = "mm"} : (tensor<2x3x4xf16>, tensor<2x4x5xf16>) -> tensor<2x3x5xf32>
  return %0 : tensor<2x3x5xf32>
}

// CHECK-LABEL: func.func @moe_grouped_matmul
// CHECK: "dnn.moe_grouped_matmul"(%{{.*}}, %{{.*}}, %{{.*}}) {compute_type = f32, mode = "NONE", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, top_k = 0 : i64} : (tensor<1x7x4xf16>, tensor<3x4x5xf16>, tensor<3x1x1xi32>) -> tensor<1x7x5xf32>
func.func @moe_grouped_matmul(%t: tensor<1x7x4xf16>, %w: tensor<3x4x5xf16>, %first: tensor<3x1x1xi32>) -> tensor<1x7x5xf32> {
  %0 = "dnn.moe_grouped_matmul"(%t, %w, %first) {compute_type = f32, mode = "NONE", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, top_k = 0 : i64} : (tensor<1x7x4xf16>, tensor<3x4x5xf16>, tensor<3x1x1xi32>) -> tensor<1x7x5xf32>
  return %0 : tensor<1x7x5xf32>
}

// CHECK-LABEL: func.func @matmul_in_the_accumulators
// CHECK: "dnn.matmul"(%{{.*}}, %{{.*}}) {compute_type = !dnn.fast_float_for_fp8} : (tensor<3x4xf8E4M3FN>, tensor<4x5xf8E5M2>) -> tensor<3x5xf32>
func.func @matmul_in_the_accumulators(%a: tensor<3x4xf8E4M3FN>, %b: tensor<4x5xf8E5M2>) -> tensor<3x5xf32> {
  %0 = "dnn.matmul"(%a, %b) {compute_type = !dnn.fast_float_for_fp8} : (tensor<3x4xf8E4M3FN>, tensor<4x5xf8E5M2>) -> tensor<3x5xf32>
  return %0 : tensor<3x5xf32>
}

// CHECK-LABEL: func.func @pointwise_of_one
// CHECK: "dnn.pointwise"(%{{.*}}) {compute_type = f32, mode = "exp", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4x5xbf16>) -> tensor<4x5xbf16>
func.func @pointwise_of_one(%x: tensor<4x5xbf16>) -> tensor<4x5xbf16> {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "exp", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4x5xbf16>) -> tensor<4x5xbf16>
  return %0 : tensor<4x5xbf16>
}

// CHECK-LABEL: func.func @pointwise_of_three
// CHECK: "dnn.pointwise"(%{{.*}}, %{{.*}}, %{{.*}}) {compute_type = f32, mode = "binary_select", operandSegmentSizes = array<i32: 1, 1, 1>}
func.func @pointwise_of_three(%x: tensor<4x5xf32>, %y: tensor<1x5xf32>, %m: tensor<4x1xi1>) -> tensor<4x5xf32> {
  %0 = "dnn.pointwise"(%x, %y, %m) {compute_type = f32, mode = "binary_select", operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<4x5xf32>, tensor<1x5xf32>, tensor<4x1xi1>) -> tensor<4x5xf32>
  return %0 : tensor<4x5xf32>
}

// CHECK-LABEL: func.func @pointwise_with_parameters
// CHECK: "dnn.pointwise"(%{{.*}}) {compute_type = f32, mode = "relu_fwd", operandSegmentSizes = array<i32: 1, 0, 0>, relu_lower_clip = -1.000000e+00 : f64, relu_upper_clip = 6.000000e+00 : f64}
func.func @pointwise_with_parameters(%x: tensor<4x5xf32>) -> tensor<4x5xf32> {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "relu_fwd", operandSegmentSizes = array<i32: 1, 0, 0>, relu_lower_clip = -1.0 : f64, relu_upper_clip = 6.0 : f64} : (tensor<4x5xf32>) -> tensor<4x5xf32>
  return %0 : tensor<4x5xf32>
}

// CHECK-LABEL: func.func @constant
// CHECK: "dnn.constant"() {tensors = [{uid = 2 : i64, value = 2.500000e+00 : f64}], value = 2.500000e+00 : f64} : () -> tensor<1x1xf32>
func.func @constant(%x: tensor<4x5xf32>) -> tensor<4x5xf32> {
  %0 = "dnn.constant"() {tensors = [{uid = 2 : i64, value = 2.5 : f64}], value = 2.5 : f64} : () -> tensor<1x1xf32>
  %1 = "dnn.pointwise"(%x, %0) {compute_type = f32, mode = "mul", operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<4x5xf32>, tensor<1x1xf32>) -> tensor<4x5xf32>
  return %1 : tensor<4x5xf32>
}

// CHECK-LABEL: func.func @reduction
// CHECK: "dnn.reduction"(%{{.*}}) {compute_type = f32, mode = "amax"} : (tensor<3x6x4xf16>) -> tensor<3x1x4xf32>
func.func @reduction(%x: tensor<3x6x4xf16>) -> tensor<3x1x4xf32> {
  %0 = "dnn.reduction"(%x) {compute_type = f32, mode = "amax"} : (tensor<3x6x4xf16>) -> tensor<3x1x4xf32>
  return %0 : tensor<3x1x4xf32>
}

// CHECK-LABEL: func.func @reduction_with_index
// CHECK: "dnn.reduction"(%{{.*}}) {compute_type = f32, generate_index = true, mode = "min", resultSegmentSizes = array<i32: 1, 1>} : (tensor<3x6x4xf16>) -> (tensor<3x1x4xf32>, tensor<3x1x4xi32>)
func.func @reduction_with_index(%x: tensor<3x6x4xf16>) -> (tensor<3x1x4xf32>, tensor<3x1x4xi32>) {
  %0, %1 = "dnn.reduction"(%x) {compute_type = f32, generate_index = true, mode = "min", resultSegmentSizes = array<i32: 1, 1>} : (tensor<3x6x4xf16>) -> (tensor<3x1x4xf32>, tensor<3x1x4xi32>)
  return %0, %1 : tensor<3x1x4xf32>, tensor<3x1x4xi32>
}

// CHECK-LABEL: func.func @transpose
// CHECK: "dnn.transpose"(%{{.*}}) {permutation = array<i64: 2, 0, 1>} : (tensor<2x3x4xi8>) -> tensor<4x2x3xi8>
func.func @transpose(%x: tensor<2x3x4xi8>) -> tensor<4x2x3xi8> {
  %0 = "dnn.transpose"(%x) {permutation = array<i64: 2, 0, 1>} : (tensor<2x3x4xi8>) -> tensor<4x2x3xi8>
  return %0 : tensor<4x2x3xi8>
}

// CHECK-LABEL: func.func @slice
// CHECK: "dnn.slice"(%{{.*}}) {starts = array<i64: 1, 0>, steps = array<i64: 1, 2>, stops = array<i64: 5, 9>} : (tensor<6x9xf32>) -> tensor<4x5xf32>
func.func @slice(%x: tensor<6x9xf32>) -> tensor<4x5xf32> {
  %0 = "dnn.slice"(%x) {starts = array<i64: 1, 0>, stops = array<i64: 5, 9>, steps = array<i64: 1, 2>} : (tensor<6x9xf32>) -> tensor<4x5xf32>
  return %0 : tensor<4x5xf32>
}

// CHECK-LABEL: func.func @reshape
// CHECK: "dnn.reshape"(%{{.*}}) {reshape_mode = "LOGICAL"} : (tensor<4x6xf32>) -> tensor<2x12xf32>
func.func @reshape(%x: tensor<4x6xf32>) -> tensor<2x12xf32> {
  %0 = "dnn.reshape"(%x) {reshape_mode = "LOGICAL"} : (tensor<4x6xf32>) -> tensor<2x12xf32>
  return %0 : tensor<2x12xf32>
}

// CHECK-LABEL: func.func @concatenate
// CHECK: "dnn.concatenate"(%{{.*}}, %{{.*}}) {axis = 1 : i64, operandSegmentSizes = array<i32: 1, 1, 0, {{[0, ]*}}>} : (tensor<2x3xf32>, tensor<2x4xf32>) -> tensor<2x7xf32>
func.func @concatenate(%x: tensor<2x3xf32>, %y: tensor<2x4xf32>) -> tensor<2x7xf32> {
  %0 = "dnn.concatenate"(%x, %y) {axis = 1 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x3xf32>, tensor<2x4xf32>) -> tensor<2x7xf32>
  return %0 : tensor<2x7xf32>
}

// CHECK-LABEL: func.func @broadcast
// CHECK-SAME: dnn.bounds = [#dnn.bound<["B", "M"], 64 : i64>]
// CHECK: "dnn.broadcast"(%{{.*}}) : (tensor<f32>) -> tensor<2x7xf32>
func.func @broadcast(%x: tensor<f32>) -> tensor<2x7xf32> attributes {dnn.symbols = [#dnn.symbol<"B", 1 : i64, 64 : i64, 2 : i64>, #dnn.symbol<"M", 1 : i64, 512 : i64, 1 : i64>], dnn.bounds = [#dnn.bound<["B", "M"], 64 : i64>]} {
  %0 = "dnn.broadcast"(%x) : (tensor<f32>) -> tensor<2x7xf32>
  return %0 : tensor<2x7xf32>
}

// CHECK-LABEL: func.func @conv_fprop
// CHECK: "dnn.conv_fprop"(%{{.*}}, %{{.*}}) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 2>, post_padding = array<i64: 2, 1>, pre_padding = array<i64: 1, 0>, stride = array<i64: 2, 1>}
func.func @conv_fprop(%x: tensor<2x4x7x6xf32>, %w: tensor<6x2x3x2xf32>) -> tensor<2x6x4x5xf32> {
  %0 = "dnn.conv_fprop"(%x, %w) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 2>, post_padding = array<i64: 2, 1>, pre_padding = array<i64: 1, 0>, stride = array<i64: 2, 1>} : (tensor<2x4x7x6xf32>, tensor<6x2x3x2xf32>) -> tensor<2x6x4x5xf32>
  return %0 : tensor<2x6x4x5xf32>
}

// CHECK-LABEL: func.func @conv_dgrad
// CHECK: "dnn.conv_dgrad"(%{{.*}}, %{{.*}}) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 2>, post_padding = array<i64: 2, 1>, pre_padding = array<i64: 1, 0>, stride = array<i64: 2, 1>}
func.func @conv_dgrad(%a: tensor<2x6x4x5xf32>, %b: tensor<6x2x3x2xf32>) -> tensor<2x4x7x6xf32> {
  %0 = "dnn.conv_dgrad"(%a, %b) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 2>, post_padding = array<i64: 2, 1>, pre_padding = array<i64: 1, 0>, stride = array<i64: 2, 1>} : (tensor<2x6x4x5xf32>, tensor<6x2x3x2xf32>) -> tensor<2x4x7x6xf32>
  return %0 : tensor<2x4x7x6xf32>
}

// CHECK-LABEL: func.func @conv_wgrad
// CHECK: "dnn.conv_wgrad"(%{{.*}}, %{{.*}}) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 2>, post_padding = array<i64: 2, 1>, pre_padding = array<i64: 1, 0>, stride = array<i64: 2, 1>}
func.func @conv_wgrad(%a: tensor<2x4x7x6xf32>, %b: tensor<2x6x4x5xf32>) -> tensor<6x2x3x2xf32> {
  %0 = "dnn.conv_wgrad"(%a, %b) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 2>, post_padding = array<i64: 2, 1>, pre_padding = array<i64: 1, 0>, stride = array<i64: 2, 1>} : (tensor<2x4x7x6xf32>, tensor<2x6x4x5xf32>) -> tensor<6x2x3x2xf32>
  return %0 : tensor<6x2x3x2xf32>
}

// CHECK-LABEL: func.func @causal_conv1d
// CHECK: "dnn.causal_conv1d"(%{{.*}}, %{{.*}}) {activation = "identity", compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 0, 0>}
func.func @causal_conv1d(%x: tensor<2x6x9xf32>, %w: tensor<6x4xf32>) -> tensor<2x6x9xf32> {
  %0 = "dnn.causal_conv1d"(%x, %w) {activation = "identity", compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<2x6x9xf32>, tensor<6x4xf32>) -> tensor<2x6x9xf32>
  return %0 : tensor<2x6x9xf32>
}

// CHECK-LABEL: func.func @causal_conv1d_with_states
// CHECK: "dnn.causal_conv1d"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {activation = "silu", compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 1>}
func.func @causal_conv1d_with_states(%x: tensor<2x6x9xf32>, %w: tensor<6x4xf32>, %bias: tensor<6xf32>, %states: tensor<2x6x3xf32>) -> tensor<2x6x9xf32> {
  %0 = "dnn.causal_conv1d"(%x, %w, %bias, %states) {activation = "silu", compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 1>} : (tensor<2x6x9xf32>, tensor<6x4xf32>, tensor<6xf32>, tensor<2x6x3xf32>) -> tensor<2x6x9xf32>
  return %0 : tensor<2x6x9xf32>
}

// CHECK-LABEL: func.func @causal_conv1d_backward
// CHECK: "dnn.causal_conv1d_backward"(%{{.*}}, %{{.*}}, %{{.*}}) {activation = "identity", compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 0>, resultSegmentSizes = array<i32: 1, 1, 0>}
func.func @causal_conv1d_backward(%dy: tensor<2x6x9xf32>, %x: tensor<2x6x9xf32>, %w: tensor<6x4xf32>) -> (tensor<2x6x9xf32>, tensor<6x4xf32>) {
  %0:2 = "dnn.causal_conv1d_backward"(%dy, %x, %w) {activation = "identity", compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 0>, resultSegmentSizes = array<i32: 1, 1, 0>} : (tensor<2x6x9xf32>, tensor<2x6x9xf32>, tensor<6x4xf32>) -> (tensor<2x6x9xf32>, tensor<6x4xf32>)
  return %0#0, %0#1 : tensor<2x6x9xf32>, tensor<6x4xf32>
}

// CHECK-LABEL: func.func @causal_conv1d_backward_with_bias
// CHECK: "dnn.causal_conv1d_backward"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {activation = "silu", compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1>}
func.func @causal_conv1d_backward_with_bias(%dy: tensor<2x6x9xf32>, %x: tensor<2x6x9xf32>, %w: tensor<6x4xf32>, %bias: tensor<6xf32>) -> (tensor<2x6x9xf32>, tensor<6x4xf32>, tensor<6xf32>) {
  %0:3 = "dnn.causal_conv1d_backward"(%dy, %x, %w, %bias) {activation = "silu", compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1>} : (tensor<2x6x9xf32>, tensor<2x6x9xf32>, tensor<6x4xf32>, tensor<6xf32>) -> (tensor<2x6x9xf32>, tensor<6x4xf32>, tensor<6xf32>)
  return %0#0, %0#1, %0#2 : tensor<2x6x9xf32>, tensor<6x4xf32>, tensor<6xf32>
}

// CHECK-LABEL: func.func @layernorm_with_statistics
// CHECK: "dnn.layernorm"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {compute_type = f32, norm_forward_phase = "TRAINING", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1>}
func.func @layernorm_with_statistics(%x: tensor<5x8xf32>, %scale: tensor<1x8xf32>, %bias: tensor<1x8xf32>, %epsilon: tensor<1x1xf32>) -> (tensor<5x8xf32>, tensor<5x1xf32>, tensor<5x1xf32>) {
  %0:3 = "dnn.layernorm"(%x, %scale, %bias, %epsilon) {compute_type = f32, norm_forward_phase = "TRAINING", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1>} : (tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>, tensor<1x1xf32>) -> (tensor<5x8xf32>, tensor<5x1xf32>, tensor<5x1xf32>)
  return %0#0, %0#1, %0#2 : tensor<5x8xf32>, tensor<5x1xf32>, tensor<5x1xf32>
}

// CHECK-LABEL: func.func @layernorm_without_bias
// CHECK: "dnn.layernorm"(%{{.*}}, %{{.*}}, %{{.*}}) {compute_type = f32, norm_forward_phase = "INFERENCE", operandSegmentSizes = array<i32: 1, 1, 0, 1>, resultSegmentSizes = array<i32: 1, 0, 0>}
func.func @layernorm_without_bias(%x: tensor<5x8xf32>, %scale: tensor<1x8xf32>, %epsilon: tensor<1x1xf32>) -> tensor<5x8xf32> {
  %0 = "dnn.layernorm"(%x, %scale, %epsilon) {compute_type = f32, norm_forward_phase = "INFERENCE", operandSegmentSizes = array<i32: 1, 1, 0, 1>, resultSegmentSizes = array<i32: 1, 0, 0>} : (tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x1xf32>) -> tensor<5x8xf32>
  return %0 : tensor<5x8xf32>
}

// CHECK-LABEL: func.func @rmsnorm_with_statistics
// CHECK: "dnn.rmsnorm"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {compute_type = f32, norm_forward_phase = "TRAINING", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1>}
func.func @rmsnorm_with_statistics(%x: tensor<5x8xf32>, %scale: tensor<1x8xf32>, %bias: tensor<1x8xf32>, %epsilon: tensor<1x1xf32>) -> (tensor<5x8xf32>, tensor<5x1xf32>) {
  %0:2 = "dnn.rmsnorm"(%x, %scale, %bias, %epsilon) {compute_type = f32, norm_forward_phase = "TRAINING", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1>} : (tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>, tensor<1x1xf32>) -> (tensor<5x8xf32>, tensor<5x1xf32>)
  return %0#0, %0#1 : tensor<5x8xf32>, tensor<5x1xf32>
}

// CHECK-LABEL: func.func @rmsnorm_without_bias
// CHECK: "dnn.rmsnorm"(%{{.*}}, %{{.*}}, %{{.*}}) {compute_type = f32, norm_forward_phase = "INFERENCE", operandSegmentSizes = array<i32: 1, 1, 0, 1>, resultSegmentSizes = array<i32: 1, 0>}
func.func @rmsnorm_without_bias(%x: tensor<5x8xf32>, %scale: tensor<1x8xf32>, %epsilon: tensor<1x1xf32>) -> tensor<5x8xf32> {
  %0 = "dnn.rmsnorm"(%x, %scale, %epsilon) {compute_type = f32, norm_forward_phase = "INFERENCE", operandSegmentSizes = array<i32: 1, 1, 0, 1>, resultSegmentSizes = array<i32: 1, 0>} : (tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x1xf32>) -> tensor<5x8xf32>
  return %0 : tensor<5x8xf32>
}

// CHECK-LABEL: func.func @adalayernorm
// CHECK: "dnn.adalayernorm"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {compute_type = f32, norm_forward_phase = "TRAINING", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1>}
func.func @adalayernorm(%x: tensor<4x5x8xf32>, %scale: tensor<4x1x8xf32>, %bias: tensor<4x1x8xf32>, %epsilon: tensor<1x1x1xf32>) -> (tensor<4x5x8xf32>, tensor<4x5x1xf32>, tensor<4x5x1xf32>) {
  %0:3 = "dnn.adalayernorm"(%x, %scale, %bias, %epsilon) {compute_type = f32, norm_forward_phase = "TRAINING", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1>} : (tensor<4x5x8xf32>, tensor<4x1x8xf32>, tensor<4x1x8xf32>, tensor<1x1x1xf32>) -> (tensor<4x5x8xf32>, tensor<4x5x1xf32>, tensor<4x5x1xf32>)
  return %0#0, %0#1, %0#2 : tensor<4x5x8xf32>, tensor<4x5x1xf32>, tensor<4x5x1xf32>
}

// CHECK-LABEL: func.func @instancenorm
// CHECK: "dnn.instancenorm"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {compute_type = f32, norm_forward_phase = "TRAINING", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1>}
func.func @instancenorm(%x: tensor<2x3x4x5xf32>, %scale: tensor<1x3x1x1xf32>, %bias: tensor<1x3x1x1xf32>, %epsilon: tensor<1x1x1x1xf32>) -> (tensor<2x3x4x5xf32>, tensor<2x3x1x1xf32>, tensor<2x3x1x1xf32>) {
  %0:3 = "dnn.instancenorm"(%x, %scale, %bias, %epsilon) {compute_type = f32, norm_forward_phase = "TRAINING", operandSegmentSizes = array<i32: 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1>} : (tensor<2x3x4x5xf32>, tensor<1x3x1x1xf32>, tensor<1x3x1x1xf32>, tensor<1x1x1x1xf32>) -> (tensor<2x3x4x5xf32>, tensor<2x3x1x1xf32>, tensor<2x3x1x1xf32>)
  return %0#0, %0#1, %0#2 : tensor<2x3x4x5xf32>, tensor<2x3x1x1xf32>, tensor<2x3x1x1xf32>
}

// CHECK-LABEL: func.func @batchnorm_with_running_statistics
// CHECK: "dnn.batchnorm"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 1>}
func.func @batchnorm_with_running_statistics(%x: tensor<4x6x2x8xf32>, %scale: tensor<1x6x1x1xf32>, %bias: tensor<1x6x1x1xf32>, %in_running_mean: tensor<1x6x1x1xf32>, %in_running_var: tensor<1x6x1x1xf32>, %epsilon: tensor<1x1x1x1xf32>, %momentum: tensor<1x1x1x1xf32>) -> (tensor<4x6x2x8xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>) {
  %0:5 = "dnn.batchnorm"(%x, %scale, %bias, %in_running_mean, %in_running_var, %epsilon, %momentum) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 1>} : (tensor<4x6x2x8xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>) -> (tensor<4x6x2x8xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>)
  return %0#0, %0#1, %0#2, %0#3, %0#4 : tensor<4x6x2x8xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>
}

// CHECK-LABEL: func.func @batchnorm_without_running_statistics
// CHECK: "dnn.batchnorm"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 0, 0>}
func.func @batchnorm_without_running_statistics(%x: tensor<4x6x2x8xf32>, %scale: tensor<1x6x1x1xf32>, %bias: tensor<1x6x1x1xf32>, %epsilon: tensor<1x1x1x1xf32>) -> (tensor<4x6x2x8xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>) {
  %0:3 = "dnn.batchnorm"(%x, %scale, %bias, %epsilon) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (tensor<4x6x2x8xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x1x1x1xf32>) -> (tensor<4x6x2x8xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>)
  return %0#0, %0#1, %0#2 : tensor<4x6x2x8xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>
}

// CHECK-LABEL: func.func @batchnorm_of_two_devices
// CHECK: "dnn.batchnorm"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, peer_rank = 1 : i64, resultSegmentSizes = array<i32: 1, 1, 1, 0, 0>}
func.func @batchnorm_of_two_devices(%a: tensor<5x3x8xf32>, %b: tensor<1x3x1xf32>, %c: tensor<1x3x1xf32>, %d: tensor<1x1x1xf32>, %e: tensor<2x12x1xf32>, %f: tensor<2x12x1xf32>) -> (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>) {
  %0:3 = "dnn.batchnorm"(%a, %b, %c, %d, %e, %f) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, peer_rank = 1 : i64, resultSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x1x1xf32>, tensor<2x12x1xf32>, tensor<2x12x1xf32>) -> (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>)
  return %0#0, %0#1, %0#2 : tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>
}

// CHECK-LABEL: func.func @batchnorm_inference
// CHECK: "dnn.batchnorm_inference"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {compute_type = f32}
func.func @batchnorm_inference(%x: tensor<2x6x3x4xf32>, %mean: tensor<1x6x1x1xf32>, %inv_variance: tensor<1x6x1x1xf32>, %scale: tensor<1x6x1x1xf32>, %bias: tensor<1x6x1x1xf32>) -> tensor<2x6x3x4xf32> {
  %0 = "dnn.batchnorm_inference"(%x, %mean, %inv_variance, %scale, %bias) {compute_type = f32} : (tensor<2x6x3x4xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>) -> tensor<2x6x3x4xf32>
  return %0 : tensor<2x6x3x4xf32>
}

// CHECK-LABEL: func.func @layernorm_backward
// CHECK: "dnn.layernorm_backward"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {compute_type = f32}
func.func @layernorm_backward(%dy: tensor<5x8xf32>, %x: tensor<5x8xf32>, %scale: tensor<1x8xf32>, %mean: tensor<5x1xf32>, %inv_variance: tensor<5x1xf32>) -> (tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>) {
  %0:3 = "dnn.layernorm_backward"(%dy, %x, %scale, %mean, %inv_variance) {compute_type = f32} : (tensor<5x8xf32>, tensor<5x8xf32>, tensor<1x8xf32>, tensor<5x1xf32>, tensor<5x1xf32>) -> (tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>)
  return %0#0, %0#1, %0#2 : tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>
}

// CHECK-LABEL: func.func @rmsnorm_backward_with_dbias
// CHECK: "dnn.rmsnorm_backward"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {compute_type = f32, has_dbias = true, resultSegmentSizes = array<i32: 1, 1, 1>}
func.func @rmsnorm_backward_with_dbias(%dy: tensor<5x8xf32>, %x: tensor<5x8xf32>, %scale: tensor<1x8xf32>, %inv_variance: tensor<5x1xf32>) -> (tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>) {
  %0:3 = "dnn.rmsnorm_backward"(%dy, %x, %scale, %inv_variance) {compute_type = f32, has_dbias = true, resultSegmentSizes = array<i32: 1, 1, 1>} : (tensor<5x8xf32>, tensor<5x8xf32>, tensor<1x8xf32>, tensor<5x1xf32>) -> (tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>)
  return %0#0, %0#1, %0#2 : tensor<5x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>
}

// CHECK-LABEL: func.func @rmsnorm_backward_without_dbias
// CHECK: "dnn.rmsnorm_backward"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {compute_type = f32, has_dbias = false, resultSegmentSizes = array<i32: 1, 1, 0>}
func.func @rmsnorm_backward_without_dbias(%dy: tensor<5x8xf32>, %x: tensor<5x8xf32>, %scale: tensor<1x8xf32>, %inv_variance: tensor<5x1xf32>) -> (tensor<5x8xf32>, tensor<1x8xf32>) {
  %0:2 = "dnn.rmsnorm_backward"(%dy, %x, %scale, %inv_variance) {compute_type = f32, has_dbias = false, resultSegmentSizes = array<i32: 1, 1, 0>} : (tensor<5x8xf32>, tensor<5x8xf32>, tensor<1x8xf32>, tensor<5x1xf32>) -> (tensor<5x8xf32>, tensor<1x8xf32>)
  return %0#0, %0#1 : tensor<5x8xf32>, tensor<1x8xf32>
}

// CHECK-LABEL: func.func @adalayernorm_backward
// CHECK: "dnn.adalayernorm_backward"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {compute_type = f32}
func.func @adalayernorm_backward(%dy: tensor<2x5x8xf32>, %x: tensor<2x5x8xf32>, %scale: tensor<2x1x8xf32>, %mean: tensor<2x5x1xf32>, %inv_variance: tensor<2x5x1xf32>) -> (tensor<2x5x8xf32>, tensor<2x1x8xf32>, tensor<2x1x8xf32>) {
  %0:3 = "dnn.adalayernorm_backward"(%dy, %x, %scale, %mean, %inv_variance) {compute_type = f32} : (tensor<2x5x8xf32>, tensor<2x5x8xf32>, tensor<2x1x8xf32>, tensor<2x5x1xf32>, tensor<2x5x1xf32>) -> (tensor<2x5x8xf32>, tensor<2x1x8xf32>, tensor<2x1x8xf32>)
  return %0#0, %0#1, %0#2 : tensor<2x5x8xf32>, tensor<2x1x8xf32>, tensor<2x1x8xf32>
}

// CHECK-LABEL: func.func @instancenorm_backward
// CHECK: "dnn.instancenorm_backward"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {compute_type = f32}
func.func @instancenorm_backward(%dy: tensor<2x3x4x5xf32>, %x: tensor<2x3x4x5xf32>, %scale: tensor<1x3x1x1xf32>, %mean: tensor<2x3x1x1xf32>, %inv_variance: tensor<2x3x1x1xf32>) -> (tensor<2x3x4x5xf32>, tensor<1x3x1x1xf32>, tensor<1x3x1x1xf32>) {
  %0:3 = "dnn.instancenorm_backward"(%dy, %x, %scale, %mean, %inv_variance) {compute_type = f32} : (tensor<2x3x4x5xf32>, tensor<2x3x4x5xf32>, tensor<1x3x1x1xf32>, tensor<2x3x1x1xf32>, tensor<2x3x1x1xf32>) -> (tensor<2x3x4x5xf32>, tensor<1x3x1x1xf32>, tensor<1x3x1x1xf32>)
  return %0#0, %0#1, %0#2 : tensor<2x3x4x5xf32>, tensor<1x3x1x1xf32>, tensor<1x3x1x1xf32>
}

// CHECK-LABEL: func.func @batchnorm_backward
// CHECK: "dnn.batchnorm_backward"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
func.func @batchnorm_backward(%dy: tensor<4x6x3x2xf32>, %x: tensor<4x6x3x2xf32>, %scale: tensor<1x6x1x1xf32>, %mean: tensor<1x6x1x1xf32>, %inv_variance: tensor<1x6x1x1xf32>) -> (tensor<4x6x3x2xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>) {
  %0:3 = "dnn.batchnorm_backward"(%dy, %x, %scale, %mean, %inv_variance) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4x6x3x2xf32>, tensor<4x6x3x2xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>) -> (tensor<4x6x3x2xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>)
  return %0#0, %0#1, %0#2 : tensor<4x6x3x2xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>
}

// CHECK-LABEL: func.func @batchnorm_backward_of_two_devices
// CHECK: "dnn.batchnorm_backward"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, peer_rank = 0 : i64}
func.func @batchnorm_backward_of_two_devices(%a: tensor<5x3x8xf32>, %b: tensor<5x3x8xf32>, %c: tensor<1x3x1xf32>, %d: tensor<1x3x1xf32>, %e: tensor<1x3x1xf32>, %f: tensor<2x12x1xf32>, %g: tensor<2x12x1xf32>) -> (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>) {
  %0:3 = "dnn.batchnorm_backward"(%a, %b, %c, %d, %e, %f, %g) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, peer_rank = 0 : i64} : (tensor<5x3x8xf32>, tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<2x12x1xf32>, tensor<2x12x1xf32>) -> (tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>)
  return %0#0, %0#1, %0#2 : tensor<5x3x8xf32>, tensor<1x3x1xf32>, tensor<1x3x1xf32>
}

// CHECK-LABEL: func.func @genstats
// CHECK: "dnn.genstats"(%{{.*}}) {compute_type = f32}
func.func @genstats(%x: tensor<4x6x3x2xf32>) -> (tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>) {
  %0:2 = "dnn.genstats"(%x) {compute_type = f32} : (tensor<4x6x3x2xf32>) -> (tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>)
  return %0#0, %0#1 : tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>
}

// CHECK-LABEL: func.func @bn_finalize_with_running_statistics
// CHECK: "dnn.bn_finalize"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1>}
func.func @bn_finalize_with_running_statistics(%sum: tensor<1x6x1x1xf32>, %sq_sum: tensor<1x6x1x1xf32>, %scale: tensor<1x6x1x1xf32>, %bias: tensor<1x6x1x1xf32>, %epsilon: tensor<1x1x1x1xf32>, %accum_count: tensor<1x1x1x1xi64>, %prev_running_mean: tensor<1x6x1x1xf32>, %prev_running_var: tensor<1x6x1x1xf32>, %momentum: tensor<1x1x1x1xf32>) -> (tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>) {
  %0:6 = "dnn.bn_finalize"(%sum, %sq_sum, %scale, %bias, %epsilon, %accum_count, %prev_running_mean, %prev_running_var, %momentum) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1>} : (tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xi64>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x1x1x1xf32>) -> (tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>)
  return %0#0, %0#1, %0#2, %0#3, %0#4, %0#5 : tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>
}

// CHECK-LABEL: func.func @bn_finalize_without_running_statistics
// CHECK: "dnn.bn_finalize"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>}
func.func @bn_finalize_without_running_statistics(%sum: tensor<1x5xf32>, %sq_sum: tensor<1x5xf32>, %scale: tensor<1x5xf32>, %bias: tensor<1x5xf32>, %epsilon: tensor<1x1xf32>, %accum_count: tensor<1x1xf32>) -> (tensor<1x5xf32>, tensor<1x5xf32>, tensor<1x5xf32>, tensor<1x5xf32>) {
  %0:4 = "dnn.bn_finalize"(%sum, %sq_sum, %scale, %bias, %epsilon, %accum_count) {compute_type = f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>} : (tensor<1x5xf32>, tensor<1x5xf32>, tensor<1x5xf32>, tensor<1x5xf32>, tensor<1x1xf32>, tensor<1x1xf32>) -> (tensor<1x5xf32>, tensor<1x5xf32>, tensor<1x5xf32>, tensor<1x5xf32>)
  return %0#0, %0#1, %0#2, %0#3 : tensor<1x5xf32>, tensor<1x5xf32>, tensor<1x5xf32>, tensor<1x5xf32>
}

// CHECK-LABEL: func.func @dbn_weight
// CHECK: "dnn.dbn_weight"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {compute_type = f32}
func.func @dbn_weight(%dy: tensor<4x6x3x2xf32>, %x: tensor<4x6x3x2xf32>, %mean: tensor<1x6x1x1xf32>, %inv_variance: tensor<1x6x1x1xf32>, %scale: tensor<1x6x1x1xf32>) -> (tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>) {
  %0:5 = "dnn.dbn_weight"(%dy, %x, %mean, %inv_variance, %scale) {compute_type = f32} : (tensor<4x6x3x2xf32>, tensor<4x6x3x2xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>) -> (tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>)
  return %0#0, %0#1, %0#2, %0#3, %0#4 : tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>, tensor<1x6x1x1xf32>
}

// CHECK-LABEL: func.func @peer_reduction
// CHECK: "dnn.peer_reduction"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {compute_type = f32, mode = "gradients", operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, peer_rank = 1 : i64}
func.func @peer_reduction(%a: tensor<1x3x1xf32>, %b: tensor<1x3x1xf32>, %c: tensor<2x12x1xf32>, %d: tensor<2x12x1xf32>) -> (tensor<1x3x1xf32>, tensor<1x3x1xf32>) {
  %0:2 = "dnn.peer_reduction"(%a, %b, %c, %d) {compute_type = f32, mode = "gradients", operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, peer_rank = 1 : i64} : (tensor<1x3x1xf32>, tensor<1x3x1xf32>, tensor<2x12x1xf32>, tensor<2x12x1xf32>) -> (tensor<1x3x1xf32>, tensor<1x3x1xf32>)
  return %0#0, %0#1 : tensor<1x3x1xf32>, tensor<1x3x1xf32>
}

// CHECK-LABEL: func.func @softmax
// CHECK: "dnn.softmax"(%{{.*}}) {algorithm = "ACCURATE", axis = array<i64: -1>, compute_type = f32}
func.func @softmax(%x: tensor<5x8xf32>) -> tensor<5x8xf32> {
  %0 = "dnn.softmax"(%x) {algorithm = "ACCURATE", axis = array<i64: -1>, compute_type = f32} : (tensor<5x8xf32>) -> tensor<5x8xf32>
  return %0 : tensor<5x8xf32>
}

// CHECK-LABEL: func.func @rope
// CHECK: "dnn.rope"(%{{.*}}, %{{.*}}) {compute_type = f32, output_scale = 2.500000e-01 : f64, rope_dim = 4 : i64}
func.func @rope(%a: tensor<2x2x3x8xf32>, %b: tensor<1x1x3x4xf32>) -> tensor<2x2x3x8xf32> {
  %0 = "dnn.rope"(%a, %b) {compute_type = f32, output_scale = 2.500000e-01 : f64, rope_dim = 4 : i64} : (tensor<2x2x3x8xf32>, tensor<1x1x3x4xf32>) -> tensor<2x2x3x8xf32>
  return %0 : tensor<2x2x3x8xf32>
}

// CHECK-LABEL: func.func @rope_backward
// CHECK: "dnn.rope_backward"(%{{.*}}, %{{.*}}) {compute_type = f32, output_scale = 1.000000e+00 : f64, rope_dim = 0 : i64}
func.func @rope_backward(%a: tensor<2x2x3x8xf32>, %b: tensor<1x1x3x8xf32>) -> tensor<2x2x3x8xf32> {
  %0 = "dnn.rope_backward"(%a, %b) {compute_type = f32, output_scale = 1.000000e+00 : f64, rope_dim = 0 : i64} : (tensor<2x2x3x8xf32>, tensor<1x1x3x8xf32>) -> tensor<2x2x3x8xf32>
  return %0 : tensor<2x2x3x8xf32>
}

// CHECK-LABEL: func.func @softmax_backward
// CHECK: "dnn.softmax_backward"(%{{.*}}, %{{.*}}) {algorithm = "ACCURATE", axis = array<i64: -1>, compute_type = f32}
func.func @softmax_backward(%dy: tensor<5x8xf32>, %y: tensor<5x8xf32>) -> tensor<5x8xf32> {
  %0 = "dnn.softmax_backward"(%dy, %y) {algorithm = "ACCURATE", axis = array<i64: -1>, compute_type = f32} : (tensor<5x8xf32>, tensor<5x8xf32>) -> tensor<5x8xf32>
  return %0 : tensor<5x8xf32>
}

// CHECK-LABEL: func.func @resample_with_index
// CHECK: "dnn.resample"(%{{.*}}) {compute_type = f32, denominator = 1 : i64, generate_index = true, padding_mode = "NEG_INF_PAD", post_padding = array<i64: 1, 1>, pre_padding = array<i64: 1, 1>, resample_mode = "MAXPOOL", resultSegmentSizes = array<i32: 1, 1>, stride = array<i64: 2, 2>, window = array<i64: 3, 3>}
func.func @resample_with_index(%x: tensor<2x8x7x6xf16>) -> (tensor<2x8x4x3xf16>, tensor<2x8x4x3xi8>) {
  %0:2 = "dnn.resample"(%x) {compute_type = f32, denominator = 1 : i64, generate_index = true, padding_mode = "NEG_INF_PAD", post_padding = array<i64: 1, 1>, pre_padding = array<i64: 1, 1>, resample_mode = "MAXPOOL", resultSegmentSizes = array<i32: 1, 1>, stride = array<i64: 2, 2>, window = array<i64: 3, 3>} : (tensor<2x8x7x6xf16>) -> (tensor<2x8x4x3xf16>, tensor<2x8x4x3xi8>)
  return %0#0, %0#1 : tensor<2x8x4x3xf16>, tensor<2x8x4x3xi8>
}

// CHECK-LABEL: func.func @resample_of_halves
// CHECK: "dnn.resample"(%{{.*}}) {compute_type = f32, denominator = 2 : i64, padding_mode = "EDGE_VAL_PAD", post_padding = array<i64: 2>, pre_padding = array<i64: 1>, resample_mode = "BILINEAR", resultSegmentSizes = array<i32: 1, 0>, stride = array<i64: 1>, window = array<i64: 4>}
func.func @resample_of_halves(%x: tensor<2x8x5xf32>) -> tensor<2x8x10xf32> {
  %0 = "dnn.resample"(%x) {compute_type = f32, denominator = 2 : i64, padding_mode = "EDGE_VAL_PAD", post_padding = array<i64: 2>, pre_padding = array<i64: 1>, resample_mode = "BILINEAR", resultSegmentSizes = array<i32: 1, 0>, stride = array<i64: 1>, window = array<i64: 4>} : (tensor<2x8x5xf32>) -> tensor<2x8x10xf32>
  return %0 : tensor<2x8x10xf32>
}

// CHECK-LABEL: func.func @resample_backward
// CHECK: "dnn.resample_backward"(%{{.*}}, %{{.*}}) {compute_type = f32, denominator = 1 : i64, operandSegmentSizes = array<i32: 1, 0, 0, 1>, padding_mode = "NEG_INF_PAD", post_padding = array<i64: 1, 1>, pre_padding = array<i64: 1, 1>, resample_mode = "MAXPOOL", stride = array<i64: 2, 2>, window = array<i64: 3, 3>}
func.func @resample_backward(%dy: tensor<2x8x4x3xf16>, %index: tensor<2x8x4x3xi8>) -> tensor<2x8x7x6xf16> {
  %0 = "dnn.resample_backward"(%dy, %index) {compute_type = f32, denominator = 1 : i64, operandSegmentSizes = array<i32: 1, 0, 0, 1>, padding_mode = "NEG_INF_PAD", post_padding = array<i64: 1, 1>, pre_padding = array<i64: 1, 1>, resample_mode = "MAXPOOL", stride = array<i64: 2, 2>, window = array<i64: 3, 3>} : (tensor<2x8x4x3xf16>, tensor<2x8x4x3xi8>) -> tensor<2x8x7x6xf16>
  return %0 : tensor<2x8x7x6xf16>
}

// CHECK-LABEL: func.func @rng
// CHECK: "dnn.rng"(%{{.*}}, %{{.*}}) {bernoulli_probability = 2.500000e-01 : f64, distribution = "BERNOULLI"}
func.func @rng(%seed: tensor<1xi64>, %offset: tensor<1x1xi64>) -> tensor<4x6xi1> {
  %0 = "dnn.rng"(%seed, %offset) {bernoulli_probability = 2.500000e-01 : f64, distribution = "BERNOULLI"} : (tensor<1xi64>, tensor<1x1xi64>) -> tensor<4x6xi1>
  return %0 : tensor<4x6xi1>
}

// CHECK-LABEL: func.func @sdpa
// CHECK: "dnn.sdpa"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {compute_type = f32, diagonal_alignment = "BOTTOM_RIGHT", left_bound = 2 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 0>, right_bound = 0 : i64, stats_use_log2 = false, use_alibi_mask = false}
func.func @sdpa(%q: tensor<2x4x5x8xf16>, %k: tensor<2x2x7x8xf16>, %v: tensor<2x2x7x16xf16>, %scale: tensor<1x1x1x1xf32>) -> (tensor<2x4x5x16xf16>, tensor<2x4x5x1xf32>) {
  %0:2 = "dnn.sdpa"(%q, %k, %v, %scale) {compute_type = f32, diagonal_alignment = "BOTTOM_RIGHT", left_bound = 2 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 0>, right_bound = 0 : i64, stats_use_log2 = false, use_alibi_mask = false} : (tensor<2x4x5x8xf16>, tensor<2x2x7x8xf16>, tensor<2x2x7x16xf16>, tensor<1x1x1x1xf32>) -> (tensor<2x4x5x16xf16>, tensor<2x4x5x1xf32>)
  return %0#0, %0#1 : tensor<2x4x5x16xf16>, tensor<2x4x5x1xf32>
}

// CHECK-LABEL: func.func @sdpa_paged
// CHECK: "dnn.sdpa"(%{{.*}}) {compute_type = f32, diagonal_alignment = "TOP_LEFT", max_seq_len_kv = 7 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0>, stats_use_log2 = false, use_alibi_mask = false}
func.func @sdpa_paged(%q: tensor<2x4x1x8xf16>, %k: tensor<6x2x4x8xf16>, %v: tensor<6x2x4x8xf16>, %lengths: tensor<2x1x1x1xi32>, %table: tensor<2x1x2x1xi32>) -> tensor<2x4x1x8xf16> {
  %0 = "dnn.sdpa"(%q, %k, %v, %lengths, %lengths, %table, %table) {compute_type = f32, diagonal_alignment = "TOP_LEFT", max_seq_len_kv = 7 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0>, stats_use_log2 = false, use_alibi_mask = false} : (tensor<2x4x1x8xf16>, tensor<6x2x4x8xf16>, tensor<6x2x4x8xf16>, tensor<2x1x1x1xi32>, tensor<2x1x1x1xi32>, tensor<2x1x2x1xi32>, tensor<2x1x2x1xi32>) -> tensor<2x4x1x8xf16>
  return %0 : tensor<2x4x1x8xf16>
}

// CHECK-LABEL: func.func @sdpa_fp8
// CHECK: "dnn.sdpa_fp8"(%{{.*}}) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 0, 1, 1>, right_bound = 0 : i64, stats_use_log2 = false, use_alibi_mask = false}
func.func @sdpa_fp8(%q: tensor<2x4x5x16xf8E4M3FN>, %k: tensor<2x2x7x16xf8E4M3FN>, %v: tensor<2x2x7x32xf8E4M3FN>, %dq: tensor<1x1x1x1xf32>, %dk: tensor<1x1x1x1xf32>, %dv: tensor<1x1x1x1xf32>, %ds: tensor<1x1x1x1xf32>, %ss: tensor<1x1x1x1xf32>, %so: tensor<1x1x1x1xf32>) -> (tensor<2x4x5x32xbf16>, tensor<2x4x5x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>) {
  %0:4 = "dnn.sdpa_fp8"(%q, %k, %v, %dq, %dk, %dv, %ds, %ss, %so) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 0, 1, 1>, right_bound = 0 : i64, stats_use_log2 = false, use_alibi_mask = false} : (tensor<2x4x5x16xf8E4M3FN>, tensor<2x2x7x16xf8E4M3FN>, tensor<2x2x7x32xf8E4M3FN>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>) -> (tensor<2x4x5x32xbf16>, tensor<2x4x5x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>)
  return %0#0, %0#1, %0#2, %0#3 : tensor<2x4x5x32xbf16>, tensor<2x4x5x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>
}

// CHECK-LABEL: func.func @sdpa_backward
// CHECK: "dnn.sdpa_backward"(%{{.*}}) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 1>, resultSegmentSizes = array<i32: 0, 1, 1, 1, 0, 1>, right_bound = 0 : i64, stats_use_log2 = false, use_alibi_mask = false, use_deterministic_algorithm = true}
func.func @sdpa_backward(%q: tensor<2x4x5x8xf16>, %k: tensor<2x2x7x8xf16>, %v: tensor<2x2x7x16xf16>, %sink: tensor<1x4x1x1xf32>, %o: tensor<2x4x5x16xf16>, %stats: tensor<2x4x5x1xf32>, %do: tensor<2x4x5x16xf16>) -> (tensor<2x4x5x8xf16>, tensor<2x2x7x8xf16>, tensor<2x2x7x16xf16>, tensor<1x4x1x1xf32>) {
  %0:4 = "dnn.sdpa_backward"(%q, %k, %v, %sink, %o, %stats, %do) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 1>, resultSegmentSizes = array<i32: 0, 1, 1, 1, 0, 1>, right_bound = 0 : i64, stats_use_log2 = false, use_alibi_mask = false, use_deterministic_algorithm = true} : (tensor<2x4x5x8xf16>, tensor<2x2x7x8xf16>, tensor<2x2x7x16xf16>, tensor<1x4x1x1xf32>, tensor<2x4x5x16xf16>, tensor<2x4x5x1xf32>, tensor<2x4x5x16xf16>) -> (tensor<2x4x5x8xf16>, tensor<2x2x7x8xf16>, tensor<2x2x7x16xf16>, tensor<1x4x1x1xf32>)
  return %0#0, %0#1, %0#2, %0#3 : tensor<2x4x5x8xf16>, tensor<2x2x7x8xf16>, tensor<2x2x7x16xf16>, tensor<1x4x1x1xf32>
}

// CHECK-LABEL: func.func @sdpa_fp8_backward
// CHECK: "dnn.sdpa_fp8_backward"(%{{.*}}) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 1, 1>, right_bound = 0 : i64, stats_use_log2 = false, use_deterministic_algorithm = true}
func.func @sdpa_fp8_backward(%q: tensor<2x4x5x16xf8E4M3FN>, %k: tensor<2x2x7x16xf8E4M3FN>, %v: tensor<2x2x7x16xf8E4M3FN>, %o: tensor<2x4x5x16xf8E4M3FN>, %stats: tensor<2x4x5x1xf32>, %do: tensor<2x4x5x16xf8E5M2>, %n0: tensor<1x1x1x1xf32>, %n1: tensor<1x1x1x1xf32>, %n2: tensor<1x1x1x1xf32>, %n3: tensor<1x1x1x1xf32>, %n4: tensor<1x1x1x1xf32>, %n5: tensor<1x1x1x1xf32>, %n6: tensor<1x1x1x1xf32>, %n7: tensor<1x1x1x1xf32>, %n8: tensor<1x1x1x1xf32>, %n9: tensor<1x1x1x1xf32>, %n10: tensor<1x1x1x1xf32>, %n11: tensor<1x1x1x1xf32>) -> (tensor<2x4x5x16xf8E4M3FN>, tensor<2x2x7x16xf8E4M3FN>, tensor<2x2x7x16xf8E4M3FN>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>) {
  %0:7 = "dnn.sdpa_fp8_backward"(%q, %k, %v, %o, %stats, %do, %n0, %n1, %n2, %n3, %n4, %n5, %n6, %n7, %n8, %n9, %n10, %n11) {compute_type = f32, diagonal_alignment = "TOP_LEFT", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 1, 1>, right_bound = 0 : i64, stats_use_log2 = false, use_deterministic_algorithm = true} : (tensor<2x4x5x16xf8E4M3FN>, tensor<2x2x7x16xf8E4M3FN>, tensor<2x2x7x16xf8E4M3FN>, tensor<2x4x5x16xf8E4M3FN>, tensor<2x4x5x1xf32>, tensor<2x4x5x16xf8E5M2>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>) -> (tensor<2x4x5x16xf8E4M3FN>, tensor<2x2x7x16xf8E4M3FN>, tensor<2x2x7x16xf8E4M3FN>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>)
  return %0#0, %0#1, %0#2, %0#3, %0#4, %0#5, %0#6 : tensor<2x4x5x16xf8E4M3FN>, tensor<2x2x7x16xf8E4M3FN>, tensor<2x2x7x16xf8E4M3FN>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>
}

// CHECK-LABEL: func.func @paged_cache_load
// CHECK: "dnn.paged_cache_load"(%{{.*}}, %{{.*}}, %{{.*}}) : (tensor<6x2x4x8xf16>, tensor<3x1x1x1xi32>, tensor<3x1x2x1xi32>) -> tensor<3x2x7x8xf16>
func.func @paged_cache_load(%container: tensor<6x2x4x8xf16>, %lengths: tensor<3x1x1x1xi32>, %table: tensor<3x1x2x1xi32>) -> tensor<3x2x7x8xf16> {
  %0 = "dnn.paged_cache_load"(%container, %lengths, %table) : (tensor<6x2x4x8xf16>, tensor<3x1x1x1xi32>, tensor<3x1x2x1xi32>) -> tensor<3x2x7x8xf16>
  return %0 : tensor<3x2x7x8xf16>
}

// CHECK-LABEL: func.func @block_mask_load
// CHECK: "dnn.block_mask_load"(%{{.*}}) {block_columns = 2 : i64, block_rows = 16 : i64} : (tensor<1x3x1x2xui8>) -> tensor<2x3x9x20xi1>
func.func @block_mask_load(%mask: tensor<1x3x1x2xui8>) -> tensor<2x3x9x20xi1> {
  %0 = "dnn.block_mask_load"(%mask) {block_columns = 2 : i64, block_rows = 16 : i64} : (tensor<1x3x1x2xui8>) -> tensor<2x3x9x20xi1>
  return %0 : tensor<2x3x9x20xi1>
}

// CHECK-LABEL: func.func @ragged_load
// CHECK: "dnn.ragged_load"(%{{.*}}, %{{.*}}, %{{.*}}) {offset_multiplier = 16 : i64} : (tensor<1x2x9x8xf16>, tensor<4x1x1x1xi32>, tensor<3x1x1x1xi32>) -> tensor<3x2x5x8xf16>
func.func @ragged_load(%x: tensor<1x2x9x8xf16>, %offset: tensor<4x1x1x1xi32>, %lengths: tensor<3x1x1x1xi32>) -> tensor<3x2x5x8xf16> {
  %0 = "dnn.ragged_load"(%x, %offset, %lengths) {offset_multiplier = 16 : i64} : (tensor<1x2x9x8xf16>, tensor<4x1x1x1xi32>, tensor<3x1x1x1xi32>) -> tensor<3x2x5x8xf16>
  return %0 : tensor<3x2x5x8xf16>
}

// CHECK-LABEL: func.func @ragged_store
// CHECK: "dnn.ragged_store"(%{{.*}}, %{{.*}}, %{{.*}}) {offset_multiplier = 16 : i64} : (tensor<3x2x5x8xf16>, tensor<4x1x1x1xi32>, tensor<3x1x1x1xi32>) -> tensor<1x2x9x8xf16
func.func @ragged_store(%x: tensor<3x2x5x8xf16>, %offset: tensor<4x1x1x1xi32>, %lengths: tensor<3x1x1x1xi32>) -> tensor<1x2x9x8xf16, #dnn.layout<affine_map<() -> (1, 2, 9, 8, 144, 8, 16, 1)>>> {
  %0 = "dnn.ragged_store"(%x, %offset, %lengths) {offset_multiplier = 16 : i64} : (tensor<3x2x5x8xf16>, tensor<4x1x1x1xi32>, tensor<3x1x1x1xi32>) -> tensor<1x2x9x8xf16, #dnn.layout<affine_map<() -> (1, 2, 9, 8, 144, 8, 16, 1)>>>
  return %0 : tensor<1x2x9x8xf16, #dnn.layout<affine_map<() -> (1, 2, 9, 8, 144, 8, 16, 1)>>>
}

// CHECK-LABEL: func.func @matmul_of_shared_matrices
// CHECK: "dnn.matmul"(%{{.*}}, %{{.*}}) {compute_type = f32} : (tensor<6x3x4xf16>, tensor<2x4x5xf16>) -> tensor<6x3x5xf16>
func.func @matmul_of_shared_matrices(%a: tensor<6x3x4xf16>, %b: tensor<2x4x5xf16>) -> tensor<6x3x5xf16> {
  %0 = "dnn.matmul"(%a, %b) {compute_type = f32} : (tensor<6x3x4xf16>, tensor<2x4x5xf16>) -> tensor<6x3x5xf16>
  return %0 : tensor<6x3x5xf16>
}

// CHECK-LABEL: func.func @size
// CHECK: "dnn.size"() {value = #{{.*}}} : () -> index
func.func @size() -> index attributes {dnn.symbols = [#dnn.symbol<"M", 1 : i64, 64 : i64, 1 : i64>]} {
  %0 = "dnn.size"() {value = affine_map<()[s0] -> (s0 * 8)>} : () -> index
  return %0 : index
}

#dynamic = affine_map<()[s0, s1] -> (s0, s1 * 8, 4, s1 * 32, 4, 1)>

// CHECK-LABEL: func.func @layouts_and_value_attributes
// CHECK-SAME: tensor<?x?x4xf32, #dnn.layout<#[[DYNAMIC]]>> {dnn.alignment = 4 : i64, dnn.name = "x", dnn.uid = 7 : i64}
// CHECK-SAME: dnn.symbols = [#dnn.symbol<"B", 1 : i64, 64 : i64, 2 : i64>, #dnn.symbol<"M", 1 : i64, 512 : i64, 1 : i64>]
func.func @layouts_and_value_attributes(%x: tensor<?x?x4xf32, #dnn.layout<#dynamic>> {dnn.uid = 7 : i64, dnn.name = "x", dnn.alignment = 4 : i64}) -> tensor<?x?x4xf32, #dnn.layout<#dynamic>> attributes {dnn.symbols = [#dnn.symbol<"B", 1 : i64, 64 : i64, 2 : i64>, #dnn.symbol<"M", 1 : i64, 512 : i64, 1 : i64>]} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "neg", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<?x?x4xf32, #dnn.layout<#dynamic>>) -> tensor<?x?x4xf32, #dnn.layout<#dynamic>>
  return %0 : tensor<?x?x4xf32, #dnn.layout<#dynamic>>
}
