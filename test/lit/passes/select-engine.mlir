// RUN: dnnc opt %s -t sm_80 -p 'fuse,select-engine' --split-input-file | filecheck %s
// RUN: dnnc opt %s -p 'fuse,select-engine{choices=fallback:LOAD_SIZE=4}' --split-input-file | filecheck %s --check-prefix=CHOSEN

// Without choices, the fastest prediction wins.
// CHECK-LABEL: func.func private @large_product_fusion0(
// CHECK-SAME: dnn.engine = "matmul_sm80"
// CHECK-SAME: dnn.knobs = {STAGES = {{[0-9]+}} : i64, TILEK = {{[0-9]+}} : i64, TILE_M = {{[0-9]+}} : i64, TILE_N = {{[0-9]+}} : i64}
// CHECK-SAME: dnn.notes = ["TENSOR_CORE"]

// CHOSEN-LABEL: func.func private @large_product_fusion0(
// CHOSEN-SAME: dnn.engine = "fallback"
// CHOSEN-SAME: dnn.knobs = {LOAD_SIZE = 4 : i64}
func.func @large_product(%x: tensor<512x512xf16>, %w: tensor<512x512xf16>) -> tensor<512x512xf16> attributes {dnn.graph} {
  %0 = "dnn.matmul"(%x, %w) {compute_type = f32} : (tensor<512x512xf16>, tensor<512x512xf16>) -> tensor<512x512xf16>
  return %0 : tensor<512x512xf16>
}

// -----

// Products of f32 are split into three of tf32: what rounds operands is never chosen silently.
// CHECK-LABEL: func.func private @product_of_f32_fusion0(
// CHECK-SAME: dnn.engine = "matmul_sm80"
// CHECK-SAME: TF32 = 3 : i64
// CHECK-NOT: DOWN_CONVERT_INPUTS
func.func @product_of_f32(%x: tensor<512x512xf32>, %w: tensor<512x512xf32>) -> tensor<512x512xf32> attributes {dnn.graph} {
  %0 = "dnn.matmul"(%x, %w) {compute_type = f32} : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  return %0 : tensor<512x512xf32>
}
