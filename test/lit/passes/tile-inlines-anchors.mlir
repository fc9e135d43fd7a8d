// RUN: dnnc opt %s -p 'fuse,select-engine{choices=fallback},prepare-fusions,lower-to-linalg,tile' | filecheck %s

// The fallback engine works from the decomposition: no anchor is left.
// CHECK-LABEL: func.func private @product_fusion0(
// CHECK-SAME: dnn.engine = "fallback"
// CHECK-NOT: call @
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction"]
// CHECK-NOT: dnn.anchor
func.func @product(%x: tensor<8x16xf16>, %w: tensor<16x8xf16>) -> tensor<8x8xf32> attributes {dnn.graph} {
  %0 = "dnn.matmul"(%x, %w) {compute_type = f32} : (tensor<8x16xf16>, tensor<16x8xf16>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
