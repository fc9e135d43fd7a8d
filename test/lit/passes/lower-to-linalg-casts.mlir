// RUN: dnnc opt %s -t sm_90 -p 'fuse,select-engine{choices=conv_sm80},prepare-fusions,lower-to-linalg' | filecheck %s
// RUN: dnnc opt %s -t sm_90 -p 'fuse,select-engine{choices=conv_sm80},prepare-fusions' | filecheck %s --check-prefix=FUSED

#x = affine_map<() -> (2, 16, 5, 6, 480, 1, 96, 16)>
#w = affine_map<() -> (24, 16, 1, 1, 16, 1, 16, 16)>
#y = affine_map<() -> (2, 24, 5, 6, 720, 1, 144, 24)>

// Tensor cores multiply operands of one type: what has another one is cast ahead of the call.
// CHECK-LABEL: func.func private @filter_of_bytes_fusion0(
// CHECK-SAME: %[[W:[a-z0-9]+]]: tensor<24x16x1x1xi8
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<2x16x5x6xf16
// CHECK: %[[CAST:.*]] = linalg.generic {{.*}} ins(%[[W]] :
// CHECK: arith.sitofp
// CHECK: call @{{.*}}(%[[X]], %[[CAST]]) : (tensor<2x16x5x6xf16, {{.*}}>, tensor<24x16x1x1xf16
// FUSED-LABEL: func.func private @filter_of_bytes_fusion0(
// FUSED-SAME: %[[X:[a-z0-9]+]]: tensor<2x16x5x6xf16
// FUSED-SAME: %[[W:[a-z0-9]+]]: tensor<24x16x1x1xi8
// FUSED-NEXT: %[[CAST:.*]] = "dnn.pointwise"(%[[W]]) {{.*}}mode = "identity"{{.*}}role = "g1b"
// FUSED-NEXT: "dnn.conv_fprop"(%[[X]], %[[CAST]]) {{.*}}role = "anchor"
func.func @filter_of_bytes(%x: tensor<2x16x5x6xf16, #dnn.layout<#x>>, %w: tensor<24x16x1x1xi8, #dnn.layout<#w>>) -> tensor<2x24x5x6xf16, #dnn.layout<#y>> attributes {dnn.graph} {
  %0 = "dnn.conv_fprop"(%x, %w) {compute_type = f32, convolution_mode = "CROSS_CORRELATION", dilation = array<i64: 1, 1>, post_padding = array<i64: 0, 0>, pre_padding = array<i64: 0, 0>, stride = array<i64: 1, 1>} : (tensor<2x16x5x6xf16, #dnn.layout<#x>>, tensor<24x16x1x1xi8, #dnn.layout<#w>>) -> tensor<2x24x5x6xf16, #dnn.layout<#y>>
  return %0 : tensor<2x24x5x6xf16, #dnn.layout<#y>>
}
