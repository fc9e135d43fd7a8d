// RUN: dnnc opt %s -p 'fuse,select-engine,prepare-fusions,lower-to-linalg,tile,lower-to-kernels' --split-input-file --target sm_80 | filecheck %s

// The fusion's function is gone; the kernel and the step that launches it are there.
// CHECK: module attributes {{.*}}gpu.container_module
// CHECK-LABEL: func.func @one_kernel(
// CHECK-SAME: dnn.graph
// CHECK-NOT: func.func private
// CHECK: gpu.module @fusion0 [#nvvm.target<O = 3, chip = "sm_80", features = "+ptx70">]
// CHECK: llvm.func @fusion0_pointwise(%{{.*}}: !llvm.ptr<1> {llvm.align = 16 : i64, llvm.noalias}
// CHECK-SAME: nvvm.kernel, nvvm.reqntid = array<i32: 256, 1, 1>
// CHECK: "dnn.program"()
// CHECK-SAME: engine = "pointwise"
// CHECK-SAME: steps = [{launch = {args = [{kind = "scalar", {{.*}}{kind = "pointer", uid = 1 : i64}
// CHECK-SAME: block = [256, 1, 1], grid = ["
// CHECK-SAME: kernel = "fusion0_pointwise"
func.func @one_kernel(%x: tensor<64x128xf16>) -> tensor<64x128xf16> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "neg", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<64x128xf16>) -> tensor<64x128xf16>
  %1 = "dnn.pointwise"(%0) {compute_type = f32, mode = "abs", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<64x128xf16>) -> tensor<64x128xf16>
  return %1 : tensor<64x128xf16>
}

// -----

// Two fusions that differ are two kernels; the tensor between them is a pointer by its uid until
// assign-workspace.
// CHECK-LABEL: func.func @two_kernels(
// CHECK: gpu.module @fusion0 [
// CHECK: llvm.func @fusion0_matmul_sm80(
// CHECK: gpu.module @fusion1 [
// CHECK: llvm.func @fusion0_matmul_sm80(
// CHECK: "dnn.program"()
// CHECK-SAME: {kind = "pointer", uid = 9 : i64}{{.*}}kernel = "fusion0_matmul_sm80"
// CHECK-SAME: {kind = "pointer", uid = 9 : i64}{{.*}}kernel = "fusion1_matmul_sm80"
func.func @two_kernels(%x: tensor<256x256xf16>, %w: tensor<256x256xf16>, %v: tensor<256x64xf16>) -> tensor<256x64xf16> attributes {dnn.graph} {
  %0 = "dnn.matmul"(%x, %w) {compute_type = f32, tensors = [{uid = 9 : i64}]} : (tensor<256x256xf16>, tensor<256x256xf16>) -> tensor<256x256xf16>
  %1 = "dnn.matmul"(%0, %v) {compute_type = f32} : (tensor<256x256xf16>, tensor<256x64xf16>) -> tensor<256x64xf16>
  return %1 : tensor<256x64xf16>
}

// -----

// Two fusions that differ in uids alone are one kernel, launched twice.
// CHECK-LABEL: func.func @a_kernel_twice(
// CHECK: gpu.module @fusion0 [
// CHECK: llvm.func @fusion0_matmul_sm80(
// CHECK-NOT: gpu.module @fusion1
// CHECK: "dnn.program"()
// CHECK-SAME: {kind = "pointer", uid = 9 : i64}
// CHECK-SAME: kernel = "fusion0_matmul_sm80"
// CHECK-SAME: {kind = "pointer", uid = 9 : i64}
// CHECK-SAME: kernel = "fusion0_matmul_sm80"
func.func @a_kernel_twice(%x: tensor<256x256xf16>, %w: tensor<256x256xf16>) -> tensor<256x256xf16> attributes {dnn.graph} {
  %0 = "dnn.matmul"(%x, %w) {compute_type = f32, tensors = [{uid = 9 : i64}]} : (tensor<256x256xf16>, tensor<256x256xf16>) -> tensor<256x256xf16>
  %1 = "dnn.matmul"(%0, %w) {compute_type = f32} : (tensor<256x256xf16>, tensor<256x256xf16>) -> tensor<256x256xf16>
  return %1 : tensor<256x256xf16>
}

// -----

// A grid over a size known at run time is an expression; the size is an argument.
// CHECK-LABEL: func.func @dynamic_grid(
// CHECK: "dnn.program"()
// CHECK-SAME: {kind = "scalar", type = "i32", value = "M*
// CHECK-SAME: grid = ["ceildiv(
#rows = affine_map<()[s0] -> (s0, 1024, 1024, 1)>
func.func @dynamic_grid(%x: tensor<?x1024xf16, #dnn.layout<#rows>>) -> tensor<?x1024xf16, #dnn.layout<#rows>> attributes {dnn.graph, dnn.symbols = [#dnn.symbol<"M", 1 : i64, 64 : i64, 1 : i64>]} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "neg", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<?x1024xf16, #dnn.layout<#rows>>) -> tensor<?x1024xf16, #dnn.layout<#rows>>
  %1 = "dnn.pointwise"(%0) {compute_type = f32, mode = "abs", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<?x1024xf16, #dnn.layout<#rows>>) -> tensor<?x1024xf16, #dnn.layout<#rows>>
  return %1 : tensor<?x1024xf16, #dnn.layout<#rows>>
}
