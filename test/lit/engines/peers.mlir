// RUN: dnnc opt %s -p 'fuse,select-engine,prepare-fusions,lower-to-linalg' | filecheck %s --check-prefix=LINALG
// RUN: dnnc opt %s -p 'fuse,select-engine,prepare-fusions,lower-to-linalg,tile,lower-to-kernels,assign-workspace' | filecheck %s

// The other device's numbers come from the own tensor, the own ones from the operands.
// LINALG-LABEL: func.func private @moments_fusion0(
// LINALG-SAME: dnn.engine = "peers"
// LINALG: linalg.generic
// LINALG-SAME: dnn.peers = {mode = "moments", rank = 1 : i64, result = "c"}
// LINALG: ^bb0(%[[A:.*]]: f32, %{{.*}}: f32, %{{.*}}: f32, %{{.*}}: f32, %{{.*}}: f32):
// LINALG: %[[OTHER:.*]] = tensor.extract
// LINALG: %[[WIDE:.*]] = arith.extf %[[OTHER]] : f32 to f64
// LINALG: %[[OWN:.*]] = arith.extf %[[A]] : f32 to f64
// LINALG: %[[SUM:.*]] = arith.addf %[[WIDE]], %[[OWN]] : f64
// LINALG: arith.mulf %[[SUM]]
// LINALG: linalg.generic
// LINALG-SAME: result = "d"}
// LINALG-COUNT-2: math.fma

// A row to each device and a fence, the flags, the wait, the results; one launch of one block.
// CHECK-LABEL: llvm.func @fusion0_peers(
// CHECK: "fence.acq_rel.sys;"
// CHECK: nvvm.barrier
// CHECK: "red.release.sys.global.add.f32 [$0], 0f3F800000;"
// CHECK: ld.acquire.sys.global.f32 v, [$0]; setp.lt.f32 p, v, 0f40000000
// CHECK: nvvm.barrier
// CHECK: "dnn.program"()
// CHECK-SAME: grid = ["1", "1", "1"]
// CHECK-SAME: workspace_bytes = "0"
func.func @moments(%a: tensor<1x6x1xf32>, %b: tensor<1x6x1xf32>, %p: tensor<2x24x1xf32>, %q: tensor<2x24x1xf32>) -> (tensor<1x6x1xf32>, tensor<1x6x1xf32>) attributes {dnn.graph} {
  %0:2 = "dnn.peer_reduction"(%a, %b, %p, %q) {compute_type = f32, mode = "moments", operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, peer_rank = 1 : i64} : (tensor<1x6x1xf32>, tensor<1x6x1xf32>, tensor<2x24x1xf32>, tensor<2x24x1xf32>) -> (tensor<1x6x1xf32>, tensor<1x6x1xf32>)
  return %0#0, %0#1 : tensor<1x6x1xf32>, tensor<1x6x1xf32>
}
