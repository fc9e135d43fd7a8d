// RUN: dnnc compile %s --target sm_90 --emit ptx --engine pointwise | filecheck %s

// CHECK: .visible .entry fusion0_pointwise(
// CHECK: ld.global.v4.b32
// CHECK: st.global.v4.b32
func.func @packed(%x: tensor<64x4096xbf16>, %y: tensor<64x4096xbf16>) -> tensor<64x4096xbf16> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x, %y) {compute_type = f32, mode = "add", operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<64x4096xbf16>, tensor<64x4096xbf16>) -> tensor<64x4096xbf16>
  return %0 : tensor<64x4096xbf16>
}
