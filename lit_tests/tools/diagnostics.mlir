// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

// Each program gives its own one-line error, at its line in this file.

// CHECK: diagnostics.mlir:[[# @LINE + 1]]:1: error: unknown operation arith.adi; did you mean {{.*}}arith.addi
arith.adi

// -----

func.func @undefined(%a : i32) -> i32 {
  // CHECK: diagnostics.mlir:[[# @LINE + 1]]:15: error: %b is used but not defined
  func.return %b : i32
}

// -----

func.func @order(%a : i32) -> i32 {
  // CHECK: diagnostics.mlir:[[# @LINE + 3]]:3: error: arith.addi: %late is used before its definition at {{.*}}diagnostics.mlir:[[# @LINE + 4]]:3; move the definition up
  // CHECK-NEXT: operation: %early = "arith.addi"(%a, %late)
  // CHECK-NEXT: used by: func.return at
  %early = arith.addi %a, %late : i32
  %late = arith.addi %a, %a : i32
  func.return %early : i32
}

// -----

func.func @verifier(%a : i32) -> i64 {
  // CHECK: diagnostics.mlir:[[# @LINE + 1]]:3: error: func.return: Expected arguments to have the same types as the function output types
  func.return %a : i32
}

// -----

// CHECK: diagnostics.mlir:[[# @LINE + 1]]:32: error: SSA value %a is already defined
func.func @duplicate(%a : i32, %a : i32) {
  func.return
}
