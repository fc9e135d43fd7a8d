// RUN: dnnc opt %s -t sm_90a -p 'fuse,select-engine{choices=conv_product_sm90:TILE_M=64:TILE_N=64:STAGES=2:TILE_CGA_M=1:TILE_CGA_N=1:SWAP_AB=0:SPLIT_K_SLC=1:WARP_SPEC_CFG=1:SWIZZLE=2048},prepare-fusions,lower-to-linalg,tile,lower-to-kernels' | filecheck %s
// RUN: dnnc opt %s -t sm_90a -p 'fuse,select-engine{choices=conv_product_sm90:TILE_M=64:TILE_N=64:STAGES=2:TILE_CGA_M=1:TILE_CGA_N=1:SWAP_AB=0:SPLIT_K_SLC=1:WARP_SPEC_CFG=1:SWIZZLE=2048},prepare-fusions' | filecheck %s --check-prefix=FUSED

#images = affine_map<() -> (2, 64, 6, 8, 3072, 48, 8, 1)>
#filter = affine_map<() -> (64, 64, 1, 1, 64, 1, 1, 1)>

// The filter is a matrix; images, and what is stored, have the number of the matrix as a third axis.
// An image is the product's B, with its columns contiguous; nothing is copied before or after.
// FUSED-LABEL: func.func private @with_relu_fusion0(
// FUSED-NEXT: "dnn.matmul"{{.*}} : (tensor<1x64x64xf16, {{.*}}>, tensor<2x64x48xf16, {{.*}}>) -> tensor<2x64x48xf32
// FUSED-NEXT: "dnn.pointwise"{{.*}}mode = "relu_fwd"
// CHECK-LABEL: func.func @with_relu(
// CHECK-COUNT-1: llvm.func @fusion0_conv_product_sm90(
// CHECK-NOT: llvm.func
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global {{.*}}box[%{{[a-z0-9_]+}}, %{{[a-z0-9_]+}}]
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global {{.*}}box[%{{[a-z0-9_]+}}, %{{[a-z0-9_]+}}, %{{[a-z0-9_]+}}]
// CHECK: wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16
// CHECK: arith.maximumf
// CHECK: nvvm.cp.async.bulk.tensor.global.shared.cta %{{.*}}, %{{.*}}, box[%{{[a-z0-9_]+}}, %{{[a-z0-9_]+}}, %{{[a-z0-9_]+}}]
func.func @with_relu(%x: tensor<2x64x6x8xf16, #dnn.layout<#images>>, %w: tensor<64x64x1x1xf16, #dnn.layout<#filter>>) -> tensor<2x64x6x8xf16, #dnn.layout<#images>> attributes {dnn.graph} {
  %0 = "dnn.conv_fprop"(%x, %w) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 1>, post_padding = array<i64: 0, 0>, pre_padding = array<i64: 0, 0>, stride = array<i64: 1, 1>} : (tensor<2x64x6x8xf16, #dnn.layout<#images>>, tensor<64x64x1x1xf16, #dnn.layout<#filter>>) -> tensor<2x64x6x8xf32, #dnn.layout<#images>>
  %1 = "dnn.pointwise"(%0) {compute_type = f32, mode = "relu_fwd", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<2x64x6x8xf32, #dnn.layout<#images>>) -> tensor<2x64x6x8xf16, #dnn.layout<#images>>
  return %1 : tensor<2x64x6x8xf16, #dnn.layout<#images>>
}
