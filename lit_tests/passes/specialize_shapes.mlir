// RUN: aicf-opt %s -p 'specialize-shapes{dims="N=1,540;M=3"}' | filecheck %s

// The table stands in the function's place; its copies follow, one per combination of sizes.
// CHECK: logical.dispatch @f dims ["N", "M"] {{\[\[}}1, 3] = @"f@N=1,M=3", [540, 3] = @"f@N=540,M=3"]
// CHECK-NEXT: func.func @"f@N=1,M=3"(%x: tensor<1x4xf32> {logical.name = "x", logical.role = "input"}, %y: tensor<3x4xf32> {logical.name = "y", logical.role = "input"}) -> (tensor<16xf32> {logical.name = "z"}) {
// CHECK-NEXT: logical.concat %x, %y {axis = 0, aicf.id = "joined@N=1,M=3", aicf.src = ["joined"]} : (tensor<1x4xf32>, tensor<3x4xf32>) -> tensor<4x4xf32>
// CHECK-NEXT: logical.slice %joined {starts = [0, 0], sizes = [4, 2], strides = [1, 2], aicf.id = "even@N=1,M=3", aicf.src = ["even"]} : tensor<4x4xf32> -> tensor<4x2xf32>
// CHECK-NEXT: logical.constant dense<5.000000e-01> : tensor<4x4xf32>
// CHECK: func.func @"f@N=540,M=3"(%x: tensor<540x4xf32>
// CHECK-NEXT: logical.concat %x, %y {axis = 0, aicf.id = "joined@N=540,M=3", aicf.src = ["joined"]} : (tensor<540x4xf32>, tensor<3x4xf32>) -> tensor<543x4xf32>
// CHECK: func.return {{.*}} : tensor<2172xf32>
func.func @f(%x : tensor<?x4xf32, #logical.dims<["N", ""]>> {logical.name = "x", logical.role = "input"}, %y : tensor<?x4xf32, #logical.dims<["M", ""]>> {logical.name = "y", logical.role = "input"}) -> (tensor<?xf32, #logical.dims<["4*M + 4*N"]>> {logical.name = "z"}) {
  %joined = logical.concat %x, %y {axis = 0, aicf.id = "joined", aicf.src = ["joined"]} : (tensor<?x4xf32, #logical.dims<["N", ""]>>, tensor<?x4xf32, #logical.dims<["M", ""]>>) -> tensor<?x4xf32, #logical.dims<["M + N", ""]>>
  %even = logical.slice %joined {starts = [0, 0], sizes = [-1, 2], strides = [1, 2], aicf.id = "even", aicf.src = ["even"]} : tensor<?x4xf32, #logical.dims<["M + N", ""]>> -> tensor<?x2xf32, #logical.dims<["M + N", ""]>>
  %half = logical.constant dense<0.5> : tensor<?x4xf32, #logical.dims<["M + N", ""]>>
  %0 = logical.mul %joined, %half : tensor<?x4xf32, #logical.dims<["M + N", ""]>>
  %1 = logical.reshape %0 : tensor<?x4xf32, #logical.dims<["M + N", ""]>> -> tensor<?xf32, #logical.dims<["4*M + 4*N"]>>
  func.return %1 : tensor<?xf32, #logical.dims<["4*M + 4*N"]>>
}

// A static function keeps its name, and has no table.
// CHECK: func.func @static(%x: tensor<4xf32>)
// CHECK-NOT: logical.dispatch
func.func @static(%x : tensor<4xf32>) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}
