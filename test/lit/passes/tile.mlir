// RUN: dnnc opt %s -t sm_80 -p 'fuse,select-engine,prepare-fusions,lower-to-linalg,tile' --split-input-file | filecheck %s

// One packed tensor: its axes are one loop, in fragments of 16 bytes.
// CHECK-LABEL: func.func private @packed_tensors_are_one_loop_fusion0(
// CHECK-SAME: dnn.tile = {loops = {{\[\[}}0, 1]], patch = [], threads = 256 : i64, unroll = {{[0-9]}} : i64, vector_elems = 8 : i64}
func.func @packed_tensors_are_one_loop(%x: tensor<64x128xf16>) -> tensor<64x128xf16> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "neg", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<64x128xf16>) -> tensor<64x128xf16>
  return %0 : tensor<64x128xf16>
}

// -----

// A broadcast operand keeps the axes apart.
// CHECK-LABEL: func.func private @broadcast_splits_the_loop_fusion0(
// CHECK-SAME: dnn.tile = {loops = {{\[\[}}0], [1]],
func.func @broadcast_splits_the_loop(%x: tensor<64x128xf16>, %b: tensor<1x128xf16>) -> tensor<64x128xf16> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x, %b) {compute_type = f32, mode = "add", operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<64x128xf16>, tensor<1x128xf16>) -> tensor<64x128xf16>
  return %0 : tensor<64x128xf16>
}

// -----

// An odd inner size narrows the fragments that must not cross it.
// CHECK-LABEL: func.func private @odd_inner_size_fusion0(
// CHECK-SAME: vector_elems = 2 : i64
func.func @odd_inner_size(%x: tensor<64x130xf16>, %b: tensor<64x1xf16>) -> tensor<64x130xf16> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x, %b) {compute_type = f32, mode = "add", operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<64x130xf16>, tensor<64x1xf16>) -> tensor<64x130xf16>
  return %0 : tensor<64x130xf16>
}

// -----

// A tensor-core engine keeps the call of the anchor.
// CHECK-LABEL: func.func private @tensor_core_tile_fusion0(
// CHECK-SAME: dnn.engine = "matmul_sm80"
// CHECK-SAME: sides = [{{[0-9]+}}, {{[0-9]+}}, {{[0-9]+}}], stages = {{[0-9]}} : i64, vector_elems = {{[0-9]}} : i64, warps = [{{[0-9]}}, {{[0-9]}}]}
// CHECK: call @tensor_core_tile_fusion0_anchor0
func.func @tensor_core_tile(%x: tensor<512x512xf16>, %w: tensor<512x512xf16>) -> tensor<512x512xf16> attributes {dnn.graph} {
  %0 = "dnn.matmul"(%x, %w) {compute_type = f32} : (tensor<512x512xf16>, tensor<512x512xf16>) -> tensor<512x512xf16>
  return %0 : tensor<512x512xf16>
}
