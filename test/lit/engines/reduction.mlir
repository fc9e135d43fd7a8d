// RUN: dnnc opt %s -p 'fuse,select-engine{choices=reduction:SPLIT_K_SLC=1},prepare-fusions,lower-to-linalg,tile,lower-to-kernels,assign-workspace' --split-input-file | filecheck %s
// RUN: dnnc opt %s -p 'fuse,select-engine{choices=reduction:SPLIT_K_SLC=4},prepare-fusions,lower-to-linalg,tile,lower-to-kernels,assign-workspace' --split-input-file | filecheck %s --check-prefix=SLICES

// Partial sums are combined through shuffles; one launch, no workspace.
// CHECK-LABEL: func.func @rows(
// CHECK: nvvm.shfl.sync
// CHECK: "dnn.program"()
// CHECK-NOT: kind = "workspace"
// CHECK-SAME: workspace_bytes = "0"

// Slices leave partial totals in the workspace, which a second launch adds.
// SLICES-LABEL: func.func @rows(
// SLICES: "dnn.program"()
// SLICES-SAME: {kind = "workspace", offset = "0"}{{.*}}kernel = "fusion0_reduction"
// SLICES-SAME: {kind = "workspace", offset = "0"}{{.*}}kernel = "fusion0_reduction_finish"
// SLICES-NOT: workspace_bytes = "0"
func.func @rows(%x: tensor<64x4096xf16>) -> tensor<64x1xf32> attributes {dnn.graph} {
  %0 = "dnn.reduction"(%x) {compute_type = f32, mode = "add"} : (tensor<64x4096xf16>) -> tensor<64x1xf32>
  return %0 : tensor<64x1xf32>
}
