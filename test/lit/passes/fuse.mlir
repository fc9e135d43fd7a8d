// RUN: dnnc opt %s -p fuse --split-input-file | filecheck %s
// RUN: dnnc opt %s -p 'fuse{partition=0|1|2}' --split-input-file | filecheck %s --check-prefix=EACH

// The graph's function stays; the fusion holds the operations with their roles.
// CHECK: dnn.split_reason = ""
// CHECK-LABEL: func.func @prologue_product_epilogue(
// CHECK-NOT: role =
// CHECK-LABEL: func.func private @prologue_product_epilogue_fusion0(
// CHECK-SAME: %{{.*}}: tensor<8x16xf16, {{.*}}> {dnn.uid = 1 : i64}, %{{.*}}: tensor<16x8xf16, {{.*}}> {dnn.uid = 2 : i64}) -> (tensor<8x8xf32, {{.*}}> {dnn.uid = 5 : i64})
// CHECK-SAME: dnn.fusion = 0 : i64
// CHECK: "dnn.pointwise"{{.*}}mode = "neg"{{.*}}role = "g1a"
// CHECK: "dnn.matmul"{{.*}}role = "anchor"
// CHECK: "dnn.pointwise"{{.*}}mode = "exp"{{.*}}role = "g2"

// A partition gives each operation a fusion; what they pass on has its uid at both ends.
// EACH: dnn.split_reason = "asked for,
// EACH-LABEL: func.func private @prologue_product_epilogue_fusion0(
// EACH-SAME: -> (tensor<8x16xf16, {{.*}}> {dnn.uid = 3 : i64})
// EACH-LABEL: func.func private @prologue_product_epilogue_fusion1(
// EACH-SAME: %{{.*}}: tensor<8x16xf16, {{.*}}> {dnn.uid = 3 : i64}, %{{.*}}: tensor<16x8xf16, {{.*}}> {dnn.uid = 2 : i64}) -> (tensor<8x8xf32, {{.*}}> {dnn.uid = 4 : i64})
// EACH-LABEL: func.func private @prologue_product_epilogue_fusion2(
func.func @prologue_product_epilogue(%x: tensor<8x16xf16> {dnn.uid = 1 : i64}, %w: tensor<16x8xf16> {dnn.uid = 2 : i64}) -> tensor<8x8xf32> attributes {dnn.graph} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "neg", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<8x16xf16>) -> tensor<8x16xf16>
  %1 = "dnn.matmul"(%0, %w) {compute_type = f32} : (tensor<8x16xf16>, tensor<16x8xf16>) -> tensor<8x8xf32>
  %2 = "dnn.pointwise"(%1) {compute_type = f32, mode = "exp", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %2 : tensor<8x8xf32>
}

// -----

// A product after a product needs a second fusion, and the module says why.
// CHECK: dnn.split_reason = "no engine takes the graph as one fusion: matmul_sm90, the nearest, {{.*}}matmul_sm80: operations:
// CHECK-LABEL: func.func private @two_products_fusion0(
// CHECK: "dnn.matmul"{{.*}}node = "first"{{.*}}role = "anchor"
// CHECK-LABEL: func.func private @two_products_fusion1(
// CHECK: "dnn.matmul"{{.*}}node = "second"{{.*}}role = "anchor"
// CHECK: "dnn.pointwise"{{.*}}role = "g2"
func.func @two_products(%x: tensor<8x16xf16>, %w: tensor<16x16xf16>) -> tensor<8x16xf16> attributes {dnn.graph} {
  %0 = "dnn.matmul"(%x, %w) {compute_type = f32, node = "first"} : (tensor<8x16xf16>, tensor<16x16xf16>) -> tensor<8x16xf16>
  %1 = "dnn.matmul"(%0, %w) {compute_type = f32, node = "second"} : (tensor<8x16xf16>, tensor<16x16xf16>) -> tensor<8x16xf16>
  %2 = "dnn.pointwise"(%1) {compute_type = f32, mode = "neg", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<8x16xf16>) -> tensor<8x16xf16>
  return %2 : tensor<8x16xf16>
}

// -----

// Symbols go with the fusion.
// CHECK-LABEL: func.func private @a_size_known_at_run_time_fusion0(
// CHECK-SAME: tensor<?x16xf16, #dnn.layout<#{{.*}}>>
// CHECK-SAME: dnn.symbols = [#dnn.symbol<"M", 1 : i64, 64 : i64, 1 : i64>]
#rows = affine_map<()[s0] -> (s0, 16, 16, 1)>
func.func @a_size_known_at_run_time(%x: tensor<?x16xf16, #dnn.layout<#rows>>) -> tensor<?x16xf16, #dnn.layout<#rows>> attributes {dnn.graph, dnn.symbols = [#dnn.symbol<"M", 1 : i64, 64 : i64, 1 : i64>]} {
  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "neg", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<?x16xf16, #dnn.layout<#rows>>) -> tensor<?x16xf16, #dnn.layout<#rows>>
  %1 = "dnn.pointwise"(%0) {compute_type = f32, mode = "exp", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<?x16xf16, #dnn.layout<#rows>>) -> tensor<?x16xf16, #dnn.layout<#rows>>
  %2 = "dnn.pointwise"(%1) {compute_type = f32, mode = "abs", operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<?x16xf16, #dnn.layout<#rows>>) -> tensor<?x16xf16, #dnn.layout<#rows>>
  return %2 : tensor<?x16xf16, #dnn.layout<#rows>>
}
