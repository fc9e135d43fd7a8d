// RUN: dnnc opt %s -t sm_80 -p 'fuse,select-engine{choices=conv_sm80:TILE_M=32:TILE_N=64:TILEK=32:STAGES=3},prepare-fusions,lower-to-linalg,tile,lower-to-kernels' | filecheck %s

#pixels = affine_map<() -> (2, 64, 5, 6, 1920, 1, 384, 64)>
#taps = affine_map<() -> (64, 64, 3, 3, 576, 1, 192, 64)>

// Pixels are gathered by copies that bring zeros where there is no pixel, the filter by plain ones;
// both go to registers by ldmatrix. The sums of a tile are walked in fragments of eight channels.
// CHECK-LABEL: func.func @with_relu(
// CHECK: llvm.func @fusion0_conv_sm80(
// CHECK: nvvm.cp.async.shared.global {{.*}}, 16, cache = cg, %{{[0-9]+}}
// CHECK: nvvm.cp.async.shared.global {{.*}}, 16, cache = cg :
// CHECK: nvvm.cp.async.commit.group
// CHECK: nvvm.cp.async.wait.group 1
// CHECK: nvvm.ldmatrix
// CHECK: nvvm.mma.sync
// CHECK: nvvm.cp.async.wait.group 0
// CHECK: arith.maximumf {{.*}} : vector<8xf32>
func.func @with_relu(%x: tensor<2x64x5x6xf16, #dnn.layout<#pixels>>, %w: tensor<64x64x3x3xf16, #dnn.layout<#taps>>) -> tensor<2x64x5x6xf16, #dnn.layout<#pixels>> attributes {dnn.graph} {
  %0 = "dnn.conv_fprop"(%x, %w) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 1>, post_padding = array<i64: 1, 1>, pre_padding = array<i64: 1, 1>, stride = array<i64: 1, 1>} : (tensor<2x64x5x6xf16, #dnn.layout<#pixels>>, tensor<64x64x3x3xf16, #dnn.layout<#taps>>) -> tensor<2x64x5x6xf32, #dnn.layout<#pixels>>
  %1 = "dnn.pointwise"(%0) {compute_type = f32, mode = "relu_fwd", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<2x64x5x6xf32, #dnn.layout<#pixels>>) -> tensor<2x64x5x6xf16, #dnn.layout<#pixels>>
  return %1 : tensor<2x64x5x6xf16, #dnn.layout<#pixels>>
}
