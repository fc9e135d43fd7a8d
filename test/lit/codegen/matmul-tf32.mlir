// RUN: dnnc compile %s --target sm_80 --emit ptx --engine matmul_sm80 --knob TILE_M=32 --knob TILE_N=64 | filecheck %s

// Rows of 4-byte alignment are copied by 4 bytes, none of them past the end; a product of f32 is
// three of tf32.
// CHECK: cp.async.ca.shared.global [%{{.*}}], [%{{.*}}], 4, %r
// CHECK: cvt.rna.tf32.f32
// CHECK-COUNT-3: mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32
func.func @product(%x: tensor<64x33xf32>, %w: tensor<33x65xf32>) -> tensor<64x65xf32> attributes {dnn.graph} {
  %0 = "dnn.matmul"(%x, %w) {compute_type = f32} : (tensor<64x33xf32>, tensor<33x65xf32>) -> tensor<64x65xf32>
  return %0 : tensor<64x65xf32>
}
