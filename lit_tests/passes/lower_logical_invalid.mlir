// RUN: not aicf-opt %s -p lower-logical 2>&1 | filecheck %s

func.func @mean(%x : tensor<?xf32, #logical.dims<["N"]>>) -> tensor<f32> {
  // CHECK: lower_logical_invalid.mlir:[[# @LINE + 1]]:3: error: logical.reduce_mean "m": a mean over symbolic size N has no count; run specialize-shapes first
  %0 = logical.reduce_mean %x {axes = [0], aicf.id = "m", aicf.src = ["m"]} : tensor<?xf32, #logical.dims<["N"]>> -> tensor<f32>
  func.return %0 : tensor<f32>
}
