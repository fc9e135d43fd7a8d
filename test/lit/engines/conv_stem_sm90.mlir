// RUN: dnnc opt %s -t sm_90a -p 'fuse,select-engine{choices=conv_stem_sm90:TILE_M=128:TILE_N=32:STAGES=2},prepare-fusions,lower-to-linalg,tile,lower-to-kernels' | filecheck %s

#pixels = affine_map<() -> (2, 3, 17, 18, 918, 1, 54, 3)>
#taps = affine_map<() -> (32, 3, 7, 7, 147, 1, 21, 3)>
#result = affine_map<() -> (2, 32, 9, 9, 2592, 1, 288, 32)>

// The filter is put in the order of runs by a copy ahead. A tile of pixels comes as rows of elements,
// with its halo; a step of k is 16 neighbours of such a row, which threads take into registers, and
// the filter is the operand in shared memory.
// CHECK-LABEL: func.func @first_layer(
// CHECK: llvm.func @fusion0_conv_stem_sm90_copy0(
// CHECK: llvm.func @fusion0_conv_stem_sm90(
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global
// CHECK-NOT: im2col
// CHECK: wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {{.*[$]32, [$]33, [$]34, [$]35[}], [$]36}}
// CHECK: arith.maximumf
// CHECK: nvvm.stmatrix
// CHECK: nvvm.cp.async.bulk.tensor.global.shared.cta
func.func @first_layer(%x: tensor<2x3x17x18xf16, #dnn.layout<#pixels>>, %w: tensor<32x3x7x7xf16, #dnn.layout<#taps>>) -> tensor<2x32x9x9xf16, #dnn.layout<#result>> attributes {dnn.graph} {
  %0 = "dnn.conv_fprop"(%x, %w) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 1>, post_padding = array<i64: 3, 3>, pre_padding = array<i64: 3, 3>, stride = array<i64: 2, 2>} : (tensor<2x3x17x18xf16, #dnn.layout<#pixels>>, tensor<32x3x7x7xf16, #dnn.layout<#taps>>) -> tensor<2x32x9x9xf32, #dnn.layout<#result>>
  %1 = "dnn.pointwise"(%0) {compute_type = f32, mode = "relu_fwd", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<2x32x9x9xf32, #dnn.layout<#result>>) -> tensor<2x32x9x9xf16, #dnn.layout<#result>>
  return %1 : tensor<2x32x9x9xf16, #dnn.layout<#result>>
}
