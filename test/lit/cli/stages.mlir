// RUN: dnnc compile %s --target sm_90a --emit linalg | dnnc inspect - | filecheck %s

// A stage's text goes straight into another command.
// CHECK: graph 'stages' at stage linalg for sm_90a
// CHECK: 1 {{.*}}x {{.*}}input {{.*}}f32 {{.*}}[64]
// CHECK: pointwise:exp 'e' {{.*}}x {{.*}}f32
// CHECK: fusion {{.*}}stages_fusion0 {{.*}}engine pointwise ARRAY_SIZE_PER_THREAD=
func.func @stages(%x: tensor<64xf32> {dnn.uid = 1 : i64, dnn.name = "x"}) -> tensor<64xf32> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "exp", node = "e", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<64xf32>) -> tensor<64xf32>
  return %0 : tensor<64xf32>
}
