// RUN: dnnc compile %s --target sm_80 --emit ptx --engine matmul_sm80 --knob TILE_M=64 --knob TILE_N=64 | filecheck %s

// Aligned operands: copies of 16 bytes, matrices by ldmatrix (B turned), the epilogue in f32, rows
// written in 16 bytes.  Where the back end puts the main loop's blocks is its own affair.
// CHECK: .target sm_80
// CHECK: .visible .entry fusion0_matmul_sm80(
// CHECK: .reqntid
// CHECK: cp.async.cg.shared.global [%{{.*}}], [%{{.*}}], 16;
// CHECK: cp.async.commit_group;
// CHECK-DAG: cp.async.wait_group
// CHECK-DAG: bar.sync
// CHECK-DAG: ldmatrix.sync.aligned.m8n8.x4.shared.b16
// CHECK-DAG: ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16
// CHECK-DAG: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
// CHECK: add.rn.f32
// CHECK: cvt.rn.f16x2.f32
// CHECK: st.global.v4.b32
// CHECK-NOT: .extern .func
func.func @product(%x: tensor<256x512xf16>, %w: tensor<512x256xf16>, %b: tensor<1x256xf16>) -> tensor<256x256xf16> attributes {dnn.graph} {
  %0 = "dnn.matmul"(%x, %w) {compute_type = f32} : (tensor<256x512xf16>, tensor<512x256xf16>) -> tensor<256x256xf32>
  %1 = "dnn.pointwise"(%0, %b) {compute_type = f32, mode = "add", operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<256x256xf32>, tensor<1x256xf16>) -> tensor<256x256xf16>
  return %1 : tensor<256x256xf16>
}
