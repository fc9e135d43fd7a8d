// RUN: dnnc engines %s --target sm_80 | filecheck %s
// RUN: dnnc engines %s --target sm_80 --all | filecheck %s --check-prefix=ALL

// CHECK: graph 'sum_then_product' on sm_80, as one fusion
// CHECK: nearly takes it {{.*}}clause {{.*}}what is wrong {{.*}}accepted
// CHECK-NEXT: matmul_sm80 (4) {{.*}}operations {{.*}}reduction:add 'sum'{{.*}}reductions of the product's dims [64, 64]
// CHECK-NEXT: fallback (2) {{.*}}operations {{.*}}matmul 'mm' needs reduction:add 'sum'{{.*}}sums that do not need each other
// CHECK-NEXT: matmul_sm90 (5)
// CHECK-NOT: pointwise (1)
// CHECK: {{[0-9]+}} engines are made for other operations (--all lists them)
// CHECK: configs in the order of compile (modes A, FALLBACK)
// CHECK: split {{.*}}no engine takes the graph as one fusion: matmul_sm80, the nearest, declines operations:

// ALL: declines it {{.*}}clause {{.*}}what is wrong {{.*}}accepted
// ALL-NEXT: matmul_sm80 (4)
// ALL: pointwise (1) {{.*}}operations {{.*}}matmul 'mm'{{.*}}pointwise, transpose, slice, reshape, concatenate
func.func @sum_then_product(%x: tensor<64x128xf16>, %w: tensor<1x64xf16>) -> tensor<64x64xf16> attributes {dnn.graph} {
  %0 = "dnn.reduction"(%x) {compute_type = f32, mode = "add", node = "sum"} : (tensor<64x128xf16>) -> tensor<64x1xf16>
  %1 = "dnn.matmul"(%0, %w) {compute_type = f32, node = "mm"} : (tensor<64x1xf16>, tensor<1x64xf16>) -> tensor<64x64xf16>
  return %1 : tensor<64x64xf16>
}
