// RUN: dnnc opt %s -t sm_90a -p 'fuse,select-engine{choices=conv_sm90:TILE_M=64:TILE_N=64:SWAP_AB=0:TILE_ROWS=0},prepare-fusions,lower-to-linalg,tile,lower-to-kernels' | filecheck %s

#pixels = affine_map<() -> (2, 64, 5, 6, 1920, 1, 384, 64)>
#taps = affine_map<() -> (64, 64, 3, 3, 576, 1, 192, 64)>

// Pixels come by im2col loads, with the tap as their offsets; the filter by boxes of one tap. No
// mask is left of the padding; g2 is applied to the sums, and a matrix of pixels is stored.
// CHECK-LABEL: func.func @with_relu(
// CHECK: llvm.func @fusion0_conv_sm90(
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global {{.*}}im2col[
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global
// CHECK-NOT: im2col
// CHECK: wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16
// CHECK: arith.maximumf
// CHECK: nvvm.cp.async.bulk.tensor.global.shared.cta %{{.*}}, %{{.*}}, box[%{{[0-9]+}}, %{{[0-9]+}}] :
func.func @with_relu(%x: tensor<2x64x5x6xf16, #dnn.layout<#pixels>>, %w: tensor<64x64x3x3xf16, #dnn.layout<#taps>>) -> tensor<2x64x5x6xf16, #dnn.layout<#pixels>> attributes {dnn.graph} {
  %0 = "dnn.conv_fprop"(%x, %w) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 1>, post_padding = array<i64: 1, 1>, pre_padding = array<i64: 1, 1>, stride = array<i64: 1, 1>} : (tensor<2x64x5x6xf16, #dnn.layout<#pixels>>, tensor<64x64x3x3xf16, #dnn.layout<#taps>>) -> tensor<2x64x5x6xf32, #dnn.layout<#pixels>>
  %1 = "dnn.pointwise"(%0) {compute_type = f32, mode = "relu_fwd", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<2x64x5x6xf32, #dnn.layout<#pixels>>) -> tensor<2x64x5x6xf16, #dnn.layout<#pixels>>
  return %1 : tensor<2x64x5x6xf16, #dnn.layout<#pixels>>
}
