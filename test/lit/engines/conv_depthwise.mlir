// RUN: dnnc opt %s -p 'fuse,select-engine{choices=conv_depthwise:LOAD_SIZE=8:TILE_ROWS=1:TILE_COLS=2:ARRAY_SIZE_PER_THREAD=1:SPECFILT=0:BLOCK_SIZE=128:OCCUPANCY=0},prepare-fusions,lower-to-linalg,tile,lower-to-kernels' | filecheck %s

#pixels = affine_map<() -> (1, 8, 5, 6, 240, 1, 48, 8)>
#taps = affine_map<() -> (8, 1, 3, 3, 9, 1, 3, 1)>

// The filter goes to shared memory. Two output pixels of four channels meet 12 pixels of the input,
// each of which is loaded once, and takes part in 72 products.
// CHECK-LABEL: func.func @with_relu(
// CHECK: llvm.func @fusion0_conv_depthwise(
// CHECK: ld.global.nc.v2.b32
// CHECK: nvvm.barrier
// CHECK-COUNT-72: math.fma
// CHECK-NOT: math.fma
// CHECK: arith.maximumf
// CHECK: "dnn.program"()
func.func @with_relu(%x: tensor<1x8x5x6xf16, #dnn.layout<#pixels>>, %w: tensor<8x1x3x3xf16, #dnn.layout<#taps>>) -> tensor<1x8x5x6xf16, #dnn.layout<#pixels>> attributes {dnn.graph} {
  %0 = "dnn.conv_fprop"(%x, %w) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 1>, post_padding = array<i64: 1, 1>, pre_padding = array<i64: 1, 1>, stride = array<i64: 1, 1>} : (tensor<1x8x5x6xf16, #dnn.layout<#pixels>>, tensor<8x1x3x3xf16, #dnn.layout<#taps>>) -> tensor<1x8x5x6xf32, #dnn.layout<#pixels>>
  %1 = "dnn.pointwise"(%0) {compute_type = f32, mode = "relu_fwd", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<1x8x5x6xf32, #dnn.layout<#pixels>>) -> tensor<1x8x5x6xf16, #dnn.layout<#pixels>>
  return %1 : tensor<1x8x5x6xf16, #dnn.layout<#pixels>>
}
