// RUN: dnnc opt %s -p 'fuse{partition=0|1},select-engine,prepare-fusions,lower-to-linalg,tile,lower-to-kernels,assign-workspace' --split-input-file | filecheck %s

// What one kernel leaves for the next lies in the workspace, in whole 256 bytes.
// CHECK-LABEL: func.func @tensor_between_kernels(
// CHECK: "dnn.program"()
// CHECK-SAME: {kind = "workspace", offset = "0", uid = 9 : i64}{{.*}}kernel = "fusion0_pointwise"
// CHECK-SAME: {kind = "workspace", offset = "0", uid = 9 : i64}{{.*}}kernel = "fusion1_pointwise"
// CHECK-SAME: workspace_bytes = "256"
func.func @tensor_between_kernels(%x: tensor<10x10xf16>) -> tensor<10x10xf16> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "neg", operandSegmentSizes = array<i32: 1, 0, 0>, tensors = [{uid = 9 : i64}]} : (tensor<10x10xf16>) -> tensor<10x10xf16>
  %1 = "dnn.pointwise"(%0) {compute_type = f32, mode = "exp", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<10x10xf16>) -> tensor<10x10xf16>
  return %1 : tensor<10x10xf16>
}

// -----

// The workspace of a size known at run time is an expression.
// CHECK-LABEL: func.func @dynamic_workspace(
// CHECK: "dnn.program"()
// CHECK-SAME: workspace_bytes = "M*256"
#rows = affine_map<()[s0] -> (s0, 128, 128, 1)>
func.func @dynamic_workspace(%x: tensor<?x128xf16, #dnn.layout<#rows>>) -> tensor<?x128xf16, #dnn.layout<#rows>> attributes {dnn.graph, dnn.symbols = [#dnn.symbol<"M", 1 : i64, 64 : i64, 1 : i64>]} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "neg", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<?x128xf16, #dnn.layout<#rows>>) -> tensor<?x128xf16, #dnn.layout<#rows>>
  %1 = "dnn.pointwise"(%0) {compute_type = f32, mode = "exp", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<?x128xf16, #dnn.layout<#rows>>) -> tensor<?x128xf16, #dnn.layout<#rows>>
  return %1 : tensor<?x128xf16, #dnn.layout<#rows>>
}

// -----

// An output that a later fusion reads stays where the caller wants it.
// CHECK-LABEL: func.func @output_that_is_read_again(
// CHECK: "dnn.program"()
// CHECK-NOT: kind = "workspace"
// CHECK-SAME: workspace_bytes = "0"
func.func @output_that_is_read_again(%x: tensor<10x10xf16>) -> (tensor<10x10xf16>, tensor<10x10xf16>) attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "neg", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<10x10xf16>) -> tensor<10x10xf16>
  %1 = "dnn.pointwise"(%0) {compute_type = f32, mode = "exp", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<10x10xf16>) -> tensor<10x10xf16>
  return %0, %1 : tensor<10x10xf16>, tensor<10x10xf16>
}
