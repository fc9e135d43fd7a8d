// RUN: not dnnc opt %s --split-input-file --verify-diagnostics 2>&1 | filecheck %s

// What is expected and does not occur, and what occurs and is not expected, is reported by line.

// CHECK: verify-diagnostics.mlir:8: expected error "nothing is wrong" did not occur
// CHECK: verify-diagnostics.mlir:17:3: unexpected error: 'dnn.transpose' op BAD_PARAM: transpose (C1)
// CHECK: verify-diagnostics.mlir:24: expected error "another text" did not occur
func.func @no_error(%x: tensor<2x3xf32>) {  // expected-error {{nothing is wrong}}
  "dnn.transpose"(%x) {permutation = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  return
}

// -----

func.func @unexpected_error(%x: tensor<2x3xf32>) {
  // The line of the operation, not of its part of the file.
  "dnn.transpose"(%x) {permutation = array<i64: 0, 0>} : (tensor<2x3xf32>) -> tensor<2x2xf32>
  return
}

// -----

func.func @another_text(%x: tensor<2x3xf32>) {
  "dnn.transpose"(%x) {permutation = array<i64: 0, 0>} : (tensor<2x3xf32>) -> tensor<2x2xf32>
  // expected-error@-1 {{another text}}
  return
}

// -----

func.func @expected(%x: tensor<2x3xf32>) {
  "dnn.transpose"(%x) {permutation = array<i64: 0, 0>} : (tensor<2x3xf32>) -> tensor<2x2xf32>  // expected-error {{each of 0 to 1 once}}
  return
}
