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

// CHECK-LABEL: func.func @conv_fprop
// CHECK: "dnn.conv_fprop"(%{{.*}}, %{{.*}}) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 2>, post_padding = array<i64: 2, 1>, pre_padding = array<i64: 1, 0>, stride = array<i64: 2, 1>}
func.func @conv_fprop(%x: tensor<2x4x7x6xf32>, %w: tensor<6x2x3x2xf32>) -> tensor<2x6x4x5xf32> {
  %0 = "dnn.conv_fprop"(%x, %w) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 2>, post_padding = array<i64: 2, 1>, pre_padding = array<i64: 1, 0>, stride = array<i64: 2, 1>} : (tensor<2x4x7x6xf32>, tensor<6x2x3x2xf32>) -> tensor<2x6x4x5xf32>
  return %0 : tensor<2x6x4x5xf32>
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
