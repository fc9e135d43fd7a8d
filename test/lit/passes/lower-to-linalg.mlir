// RUN: dnnc opt %s -p 'fuse,select-engine,prepare-fusions,lower-to-linalg' --split-input-file | filecheck %s

// Operands are converted to the compute type, the result to its own; a broadcast is a map.
// CHECK-DAG: #[[SAME:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG: #[[ROW:.*]] = affine_map<(d0, d1) -> (0, d1)>
// CHECK-LABEL: func.func private @broadcast_and_types_fusion0(
// CHECK: linalg.generic {indexing_maps = [#[[SAME]], #[[ROW]], #[[SAME]]], iterator_types = ["parallel", "parallel"]}
// CHECK-SAME: dnn.role = "g2"
// CHECK-NEXT: ^bb0(%[[X:.*]]: f16, %[[B:.*]]: bf16, %{{.*}}: f16):
// CHECK-DAG: %[[XW:.*]] = arith.extf %[[X]] : f16 to f32
// CHECK-DAG: %[[BW:.*]] = arith.extf %[[B]] : bf16 to f32
// CHECK: %[[SUM:.*]] = arith.addf %[[XW]], %[[BW]] : f32
// CHECK: %[[Y:.*]] = arith.truncf %[[SUM]] : f32 to f16
// CHECK: linalg.yield %[[Y]] : f16
func.func @broadcast_and_types(%x: tensor<4x6xf16>, %b: tensor<1x6xbf16>) -> tensor<4x6xf16> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x, %b) {compute_type = f32, mode = "add", operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<4x6xf16>, tensor<1x6xbf16>) -> tensor<4x6xf16>
  return %0 : tensor<4x6xf16>
}

// -----

// A virtual tensor is rounded to its type between the operations.
// CHECK-LABEL: func.func private @virtual_tensor_is_rounded_fusion0(
// CHECK: arith.truncf %{{.*}} : f32 to bf16
// CHECK: linalg.yield %{{.*}} : bf16
// CHECK: ^bb0(%[[T:.*]]: bf16, %{{.*}}: f32):
// CHECK: arith.extf %[[T]] : bf16 to f32
func.func @virtual_tensor_is_rounded(%x: tensor<4xf32>) -> tensor<4xf32> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "neg", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xf32>) -> tensor<4xbf16>
  %1 = "dnn.pointwise"(%0) {compute_type = f32, mode = "abs", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xbf16>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}

// -----

// A product is a call of an anchor, which holds its decomposition.
// CHECK-DAG: #[[A:.*]] = affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-DAG: #[[B:.*]] = affine_map<(d0, d1, d2) -> (d2, d1)>
// CHECK-DAG: #[[C:.*]] = affine_map<(d0, d1, d2) -> (d0, d1)>
// CHECK-LABEL: func.func private @product_is_an_anchor_fusion0(
// CHECK: call @[[ANCHOR:.*]](%{{.*}}, %{{.*}})
// CHECK: func.func private @[[ANCHOR]](
// CHECK-SAME: dnn.anchor = "matmul", dnn.compute_type = f32
// CHECK: linalg.fill
// CHECK: linalg.generic {indexing_maps = [#[[A]], #[[B]], #[[C]]], iterator_types = ["parallel", "parallel", "reduction"]}
// CHECK: math.fma
func.func @product_is_an_anchor(%x: tensor<8x16xf16>, %w: tensor<16x8xf16>) -> tensor<8x8xf32> attributes {dnn.graph} {
  %0 = "dnn.matmul"(%x, %w) {compute_type = f32} : (tensor<8x16xf16>, tensor<16x8xf16>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}

// -----

// The anchor keeps the compute type for engines; its decomposition sums in f32.
// CHECK-LABEL: func.func private @product_of_fp8_fusion0(
// CHECK: %[[SUM:.*]] = call @[[ANCHOR:.*]](%{{.*}}, %{{.*}}) : {{.*}} -> tensor<8x8xf32
// CHECK: ^bb0(%[[S:.*]]: f32, %{{.*}}: f16):
// CHECK-NEXT: arith.truncf %[[S]] : f32 to f16
// CHECK: func.func private @[[ANCHOR]](
// CHECK-SAME: dnn.anchor = "matmul", dnn.compute_type = !dnn.fast_float_for_fp8
// CHECK: arith.extf %{{.*}} : f8E4M3FN to f32
// CHECK: arith.extf %{{.*}} : f8E5M2 to f32
// CHECK: math.fma %{{.*}} : f32
func.func @product_of_fp8(%x: tensor<8x16xf8E4M3FN>, %w: tensor<16x8xf8E5M2>) -> tensor<8x8xf16> attributes {dnn.graph} {
  %0 = "dnn.matmul"(%x, %w) {compute_type = !dnn.fast_float_for_fp8} : (tensor<8x16xf8E4M3FN>, tensor<16x8xf8E5M2>) -> tensor<8x8xf16>
  return %0 : tensor<8x8xf16>
}

// -----

// Of a grouped product, a sum over experts too, which keeps what the row's own expert adds.
// CHECK-DAG: #[[T:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d4)>
// CHECK-DAG: #[[W:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d3, d4, d2)>
// CHECK-DAG: #[[FIRST:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d3, 0, 0)>
// CHECK-DAG: #[[Y:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2)>
// CHECK-LABEL: func.func private @grouped_product_fusion0(
// CHECK: call @[[ANCHOR:.*]](%{{.*}}, %{{.*}}, %{{.*}})
// CHECK: func.func private @[[ANCHOR]](
// CHECK-SAME: dnn.anchor = "moe_grouped_matmul"
// CHECK: tensor.extract
// CHECK: linalg.generic {indexing_maps = [#[[T]], #[[W]], #[[FIRST]], #[[FIRST]], #[[Y]]], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
// CHECK: %[[OWN:.*]] = arith.andi
// CHECK: %[[SUM:.*]] = math.fma
// CHECK: arith.select %[[OWN]], %[[SUM]]
func.func @grouped_product(%t: tensor<1x8x16xf16>, %w: tensor<3x16x8xf16>, %first: tensor<3x1x1xi32>) -> tensor<1x8x8xf32> attributes {dnn.graph} {
  %0 = "dnn.moe_grouped_matmul"(%t, %w, %first) {compute_type = f32, mode = "NONE", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, top_k = 0 : i64} : (tensor<1x8x16xf16>, tensor<3x16x8xf16>, tensor<3x1x1xi32>) -> tensor<1x8x8xf32>
  return %0 : tensor<1x8x8xf32>
}

// -----

// Integers are multiplied and added as i32.
// CHECK-LABEL: func.func private @product_of_integers_fusion0(
// CHECK: arith.extsi %{{.*}} : i8 to i32
// CHECK: arith.muli %{{.*}} : i32
// CHECK: arith.addi %{{.*}} : i32
func.func @product_of_integers(%x: tensor<8x16xi8>, %w: tensor<16x8xi8>) -> tensor<8x8xi32> attributes {dnn.graph} {
  %0 = "dnn.matmul"(%x, %w) {compute_type = i32} : (tensor<8x16xi8>, tensor<16x8xi8>) -> tensor<8x8xi32>
  return %0 : tensor<8x8xi32>
}

// -----

// A reduction: a map, a combination, a finish.
// CHECK-DAG: #[[X:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG: #[[Y:.*]] = affine_map<(d0, d1) -> (d0, 0)>
// CHECK-LABEL: func.func private @reduction_in_three_steps_fusion0(
// CHECK: arith.mulf
// CHECK: linalg.generic {indexing_maps = [#[[X]], #[[Y]]], iterator_types = ["parallel", "reduction"]}
// CHECK: arith.addf
// CHECK: math.sqrt
func.func @reduction_in_three_steps(%x: tensor<8x16xf16>) -> tensor<8x1xf32> attributes {dnn.graph} {
  %0 = "dnn.reduction"(%x) {compute_type = f32, mode = "norm2"} : (tensor<8x16xf16>) -> tensor<8x1xf32>
  return %0 : tensor<8x1xf32>
}

// -----

// NaN in an operand of a maximum is NaN in the result.
// CHECK-LABEL: func.func private @maximum_keeps_nan_fusion0(
// CHECK: arith.maximumf
func.func @maximum_keeps_nan(%x: tensor<8x16xf32>) -> tensor<8x1xf32> attributes {dnn.graph} {
  %0 = "dnn.reduction"(%x) {compute_type = f32, mode = "max"} : (tensor<8x16xf32>) -> tensor<8x1xf32>
  return %0 : tensor<8x1xf32>
}

// -----

// A view moves no data: it is the map of an operand.
// CHECK-DAG: #[[TURNED:.*]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-LABEL: func.func private @transpose_is_a_map_fusion0(
// CHECK: linalg.generic {indexing_maps = [#[[TURNED]], #{{.*}}], iterator_types = ["parallel", "parallel"]}
func.func @transpose_is_a_map(%x: tensor<8x16xf16>) -> tensor<16x8xf16> attributes {dnn.graph} {
  %0 = "dnn.transpose"(%x) {permutation = array<i64: 1, 0>} : (tensor<8x16xf16>) -> tensor<16x8xf16>
  return %0 : tensor<16x8xf16>
}

// -----

// A size known at run time is a dnn.size over the symbols.
// CHECK-LABEL: func.func private @dynamic_size_fusion0(
// CHECK: %[[N:.*]] = "dnn.size"() {value = #{{.*}}} : () -> index
// CHECK: tensor.empty(%[[N]])
#rows = affine_map<()[s0] -> (s0, 16, 16, 1)>
func.func @dynamic_size(%x: tensor<?x16xf16, #dnn.layout<#rows>>) -> tensor<?x16xf16, #dnn.layout<#rows>> attributes {dnn.graph, dnn.symbols = [#dnn.symbol<"M", 1 : i64, 64 : i64, 1 : i64>]} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "neg", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<?x16xf16, #dnn.layout<#rows>>) -> tensor<?x16xf16, #dnn.layout<#rows>>
  return %0 : tensor<?x16xf16, #dnn.layout<#rows>>
}

// -----

// The gradient of a filter sums over images and outputs; padding of X is a zero that is multiplied.
// CHECK-DAG: #[[DY:.*]] = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d4, d0, d5, d6)>
// CHECK-DAG: #[[DW:.*]] = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d1, d2, d3)>
// CHECK-LABEL: func.func private @gradient_of_a_filter_fusion0_anchor0(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<1x2x6x4xf16
// CHECK: linalg.generic {indexing_maps = [#[[DY]], #[[DW]]], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
// CHECK: %[[INSIDE:.*]] = arith.cmpi ult,
// CHECK: tensor.extract %[[X]]
// CHECK: %[[VALUE:.*]] = arith.select %[[INSIDE]]
// CHECK: math.fma %[[VALUE]]
// CHECK-NEXT: linalg.yield
func.func @gradient_of_a_filter(%x: tensor<1x2x6x4xf16>, %dy: tensor<1x4x3x3xf16>) -> tensor<4x2x3x2xf16> attributes {dnn.graph} {
  %0 = "dnn.conv_wgrad"(%x, %dy) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 1>, post_padding = array<i64: 1, 0>, pre_padding = array<i64: 1, 0>, stride = array<i64: 2, 1>} : (tensor<1x2x6x4xf16>, tensor<1x4x3x3xf16>) -> tensor<4x2x3x2xf16>
  return %0 : tensor<4x2x3x2xf16>
}

// -----

// The gradient of an image sums over taps and the filters of a group, whose number is C over W's second
// dim; a tap that the stride leaves between two outputs adds nothing.
// CHECK-DAG: #[[SUMMED:.*]] = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d4, d5, d6)>
// CHECK-LABEL: func.func private @gradient_of_an_image_fusion0_anchor0(
// CHECK-SAME: %[[DY:[a-z0-9]+]]: tensor<1x4x3x3xf16
// CHECK-SAME: %[[W:[a-z0-9]+]]: tensor<4x2x3x2xf16
// CHECK: linalg.generic {indexing_maps = [#[[SUMMED]], #{{.*}}], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
// CHECK: ^bb0(%{{.*}}: i1, %[[TOTAL:.*]]: f32):
// CHECK: %[[REST:.*]] = arith.remui
// CHECK: %[[READ:.*]] = arith.cmpi eq, %[[REST]]
// CHECK: tensor.extract %[[DY]]
// CHECK: tensor.extract %[[W]]
// CHECK: %[[SUM:.*]] = math.fma %{{.*}}, %{{.*}}, %[[TOTAL]]
// CHECK: arith.select %[[READ]], %[[SUM]], %[[TOTAL]]
func.func @gradient_of_an_image(%dy: tensor<1x4x3x3xf16>, %w: tensor<4x2x3x2xf16>) -> tensor<1x4x6x4xf16> attributes {dnn.graph} {
  %0 = "dnn.conv_dgrad"(%dy, %w) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 1>, post_padding = array<i64: 1, 0>, pre_padding = array<i64: 1, 0>, stride = array<i64: 2, 1>} : (tensor<1x4x3x3xf16>, tensor<4x2x3x2xf16>) -> tensor<1x4x6x4xf16>
  return %0 : tensor<1x4x6x4xf16>
}
