// RUN: aicf-opt %s -p 'set-target{target=cpu},assign-ids,keep-whole' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target=cpu},assign-ids,lower-logical' | filecheck %s --check-prefix=LOWER

// Without a kernel of a package for one of its ops, a program stays as it is, and nothing is recorded; tests/kernels
// defines some.
// CHECK-NOT: keep-whole
// CHECK-LABEL: func.func @norm
// CHECK-NEXT: %y = logical.rms_norm
func.func @norm(%x : tensor<4x10xf32> {logical.name = "x", logical.role = "input"},
                %s : tensor<10xf32> {logical.name = "s", logical.role = "input"})
    -> (tensor<4x10xf32> {logical.name = "y"}) {
  %y = logical.rms_norm %x, %s {axis = 1, epsilon = 1.0e-5} : (tensor<4x10xf32>, tensor<10xf32>) -> tensor<4x10xf32>
  func.return %y : tensor<4x10xf32>
}

// What another target kept whole is lowered where no kernel runs it in one piece.
// CHECK-LABEL: func.func @kept
// CHECK-NEXT: %n = logical.custom "logical.rms_norm"
// LOWER-LABEL: func.func @kept
// LOWER-NOT: logical.custom
// LOWER: logical.rsqrt {{.*}}aicf.src = ["n"]
// LOWER-NOT: logical.custom
// LOWER: func.return
func.func @kept(%x : tensor<4x10xf32> {logical.name = "x", logical.role = "input"},
                %s : tensor<10xf32> {logical.name = "s", logical.role = "input"})
    -> (tensor<4x10xf32> {logical.name = "y"}) {
  %n = logical.custom "logical.rms_norm" %x, %s {version = 1, parameters = {axis = 1, epsilon = 1.0e-5}}
      : (tensor<4x10xf32>, tensor<10xf32>) -> tensor<4x10xf32>
  func.return %n : tensor<4x10xf32>
}
