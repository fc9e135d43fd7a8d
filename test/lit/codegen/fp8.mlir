// RUN: dnnc compile %s --target sm_89 --emit ptx | filecheck %s
// RUN: not dnnc compile %s --target sm_86 --emit ptx 2>&1 | filecheck %s --check-prefix=OLDER

// CHECK: .target sm_89
// CHECK: cvt.rn.f16x2.e4m3x2
// CHECK: cvt.rn.satfinite.e4m3x2.f32

// OLDER: NOT_SUPPORTED_ARCH_MISMATCH: fp8.mlir:{{[0-9]+:[0-9]+}}: graph 'fp8': no engine for sm_86 takes pointwise:neg: pointwise,
// OLDER-SAME: the nearest, declines fp8: {{.*}}accepted: sm_89, sm_90
func.func @fp8(%x: tensor<64x4096xf8E4M3FN>) -> tensor<64x4096xf8E4M3FN> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "neg", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<64x4096xf8E4M3FN>) -> tensor<64x4096xf8E4M3FN>
  return %0 : tensor<64x4096xf8E4M3FN>
}
