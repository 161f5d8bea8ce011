// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},sink-casts' | filecheck %s

// A reader that takes a cast in is another group from then on, which keeps the cast that it gives itself.
// CHECK: emit.decision "sink-casts" ["first"] choice "done by its consumer"
// CHECK: %v, %r = emit.group "first" from ["first", "second", "sum"]
// CHECK: %t = emit.group "third" from ["third"] ins(%{{.*}} = %v : tensor<64x32xf32>)
func.func @chain(%x : tensor<64x32xbf16> {logical.name = "x", logical.role = "input"}, %u : tensor<64x32xbf16> {logical.name = "u", logical.role = "input"})
    -> (tensor<64xf32> {logical.name = "a"}, tensor<64xf32> {logical.name = "b"}) {
  %w = emit.group "first" from ["first"] ins(%a = %x : tensor<64x32xbf16>) -> (tensor<64x32xf32>) {
    %0 = logical.cast %a {aicf.id = "first", aicf.src = ["first"]} : tensor<64x32xbf16> -> tensor<64x32xf32>
    emit.yield %0 : tensor<64x32xf32>
  }
  %r, %v = emit.group "second" from ["sum", "second"] ins(%a = %w : tensor<64x32xf32>, %b = %u : tensor<64x32xbf16>) -> (tensor<64xf32>, tensor<64x32xf32>) {
    %0 = logical.reduce_sum %a {axes = [1], aicf.id = "sum", aicf.src = ["sum"]} : tensor<64x32xf32> -> tensor<64xf32>
    %1 = logical.cast %b {aicf.id = "second", aicf.src = ["second"]} : tensor<64x32xbf16> -> tensor<64x32xf32>
    emit.yield %0, %1 : tensor<64xf32>, tensor<64x32xf32>
  }
  %t = emit.group "third" from ["third"] ins(%a = %v : tensor<64x32xf32>) -> (tensor<64xf32>) {
    %0 = logical.reduce_sum %a {axes = [1], aicf.id = "third", aicf.src = ["third"]} : tensor<64x32xf32> -> tensor<64xf32>
    emit.yield %0 : tensor<64xf32>
  }
  func.return %r, %t : tensor<64xf32>, tensor<64xf32>
}
