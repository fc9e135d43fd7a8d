// RUN: dnnc opt %s -p 'fuse,select-engine{choices=pointwise:ARRAY_SIZE_PER_THREAD=4},prepare-fusions,lower-to-linalg,tile,lower-to-kernels' --split-input-file | filecheck %s

// Whole fragments: 16-byte loads of all unrolled fragments stand ahead of the first store.
// CHECK-LABEL: llvm.func @fusion0_pointwise(
// CHECK-COUNT-2: llvm.load %{{.*}} {alignment = 16 : i64{{.*}}} : !llvm.ptr<1> -> vector<8xf16>
// CHECK: llvm.store %{{.*}} {alignment = 16 : i64{{.*}}} : vector<8xf16>, !llvm.ptr<1>
func.func @whole_fragments(%x: tensor<64x4096xf16>) -> tensor<64x4096xf16> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "neg", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<64x4096xf16>) -> tensor<64x4096xf16>
  return %0 : tensor<64x4096xf16>
}

// -----

// A tensor that is aligned to its elements only is read element by element.
// CHECK-LABEL: llvm.func @fusion0_pointwise(
// CHECK-NOT: -> vector<8xf16>
// CHECK: llvm.load %{{.*}} {alignment = 2 : i64{{.*}}} : !llvm.ptr<1> -> f16
// CHECK-NOT: -> vector<8xf16>
// CHECK: "dnn.program"()
func.func @low_alignment(%x: tensor<64x4096xf16> {dnn.alignment = 2 : i64}) -> tensor<64x4096xf16> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "neg", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<64x4096xf16>) -> tensor<64x4096xf16>
  return %0 : tensor<64x4096xf16>
}

// -----

// A by-value tensor is an argument of the kernel, not a pointer.
// CHECK-LABEL: llvm.func @fusion0_pointwise(
// CHECK-SAME: %{{.*}}: f32
// CHECK: "dnn.program"()
// CHECK-SAME: {kind = "by_value", type = "f32", uid = 5 : i64}
func.func @by_value(%x: tensor<64x128xf16>, %alpha: tensor<1x1xf32> {dnn.is_by_value = true, dnn.uid = 5 : i64}) -> tensor<64x128xf16> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x, %alpha) {compute_type = f32, mode = "mul", operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<64x128xf16>, tensor<1x1xf32>) -> tensor<64x128xf16>
  return %0 : tensor<64x128xf16>
}
