// RUN: aicf-opt %s -p verify-logical | filecheck %s

// A complete program passes and is left as it is: all roles, an update, a name bound by an input, a table of programs.
// CHECK: logical.dispatch @pick
logical.dispatch @pick dims ["N"] [[1] = @step]
// CHECK: func.func @step
func.func @step(%x : tensor<?x4xf32, #logical.dims<["N", ""]>> {logical.name = "x", logical.role = "input"},
                %w : tensor<4xf32> {logical.name = "w", logical.role = "param"},
                %m : tensor<4xf32> {logical.name = "momentum", logical.role = "state"},
                %t : tensor<i64> {logical.name = "t", logical.role = "meta"})
    -> (tensor<?x4xf32, #logical.dims<["N", ""]>> {logical.name = "y"}, tensor<4xf32> {logical.updates = "w"},
        tensor<4xf32> {logical.name = "new_momentum", logical.updates = "momentum"}) {
  %0 = logical.broadcast %w {dimensions = [1], aicf.id = "b", aicf.src = ["b"]} : tensor<4xf32> -> tensor<?x4xf32, #logical.dims<["N", ""]>>
  %1 = logical.add %x, %0 : tensor<?x4xf32, #logical.dims<["N", ""]>>
  func.return %1, %m, %w : tensor<?x4xf32, #logical.dims<["N", ""]>>, tensor<4xf32>, tensor<4xf32>
}
