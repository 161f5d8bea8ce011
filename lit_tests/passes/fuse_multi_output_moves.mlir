// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},apply-policy{policy="{\"determinism\": \"batch_invariant\"}"},fuse-elementwise,fuse-multi-output' | filecheck %s

// A group that only moves elements joins what reads it even where the batch may not show: no bit tells, and it always pays.
// CHECK: emit.decision "fuse-multi-output" ["flip", "turned", "far", "wide", "near", "sum"] choice "one kernel for 6 ops, 1 results"
// Where the first multiplies, or the second combines elements, the batch would say what is one kernel.
// CHECK: emit.decision "fuse-multi-output" ["scaled"] choice "not fused" {{.*}} rejected {more = "results may not depend on the batch (determinism)
// CHECK: emit.decision "fuse-multi-output" ["picked"] choice "not fused" {{.*}} rejected {total = "results may not depend on the batch (determinism)
// CHECK-LABEL: func.func @moves
// CHECK: emit.group "flip" from ["flip", "turned", "far", "wide", "near", "sum"]
func.func @moves(
    %x : tensor<8x64xbf16> {logical.name = "x", logical.role = "input"},
    %c : tensor<8x64xf32> {logical.name = "c", logical.role = "input"},
    %s : tensor<8x64xf32> {logical.name = "s", logical.role = "input"},
    %i : tensor<4xi64> {logical.name = "i", logical.role = "input"})
    -> (tensor<8x64xf32> {logical.name = "y"}, tensor<8x64xf32> {logical.name = "z"}, tensor<8x64xf32> {logical.name = "v"},
        tensor<4x64xf32> {logical.name = "p"}, tensor<4xf32> {logical.name = "t"}) {
  %wide = logical.cast %x {aicf.id = "wide", aicf.src = ["wide"]} : tensor<8x64xbf16> -> tensor<8x64xf32>
  %flip = logical.flip %x {axes = [1], aicf.id = "flip", aicf.src = ["flip"]} : (tensor<8x64xbf16>) -> tensor<8x64xbf16>
  %turned = logical.cast %flip {aicf.id = "turned", aicf.src = ["turned"]} : tensor<8x64xbf16> -> tensor<8x64xf32>
  %near = logical.mul %wide, %c {aicf.id = "near", aicf.src = ["near"]} : tensor<8x64xf32>
  %far = logical.mul %turned, %s {aicf.id = "far", aicf.src = ["far"]} : tensor<8x64xf32>
  %sum = logical.add %near, %far {aicf.id = "sum", aicf.src = ["sum"]} : tensor<8x64xf32>
  %scaled = logical.mul %c, %s {aicf.id = "scaled", aicf.src = ["scaled"]} : tensor<8x64xf32>
  %more = logical.exp %scaled {aicf.id = "more", aicf.src = ["more"]} : tensor<8x64xf32>
  %picked = logical.gather %c, %i {axis = 0, aicf.id = "picked", aicf.src = ["picked"]} : (tensor<8x64xf32>, tensor<4xi64>) -> tensor<4x64xf32>
  %total = logical.reduce_sum %picked {axes = [1], aicf.id = "total", aicf.src = ["total"]} : tensor<4x64xf32> -> tensor<4xf32>
  func.return %sum, %scaled, %more, %picked, %total : tensor<8x64xf32>, tensor<8x64xf32>, tensor<8x64xf32>, tensor<4x64xf32>, tensor<4xf32>
}
