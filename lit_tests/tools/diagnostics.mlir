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

// CHECK: diagnostics.mlir:[[# @LINE + 2]]:3: error: func.return: %a is of type i32, but the function at {{.*}}diagnostics.mlir:[[# @LINE + 1]]:1 returns i64
func.func @verifier(%a : i32) -> i64 {
  func.return %a : i32
}

// -----

// CHECK: diagnostics.mlir:[[# @LINE + 1]]:32: error: %a is already defined at {{.*}}diagnostics.mlir:[[# @LINE + 1]]:22; give one of the two another name
func.func @duplicate(%a : i32, %a : i32) {
  func.return
}

// -----

// A value of two types: where it is used, and where it is defined.
// CHECK: diagnostics.mlir:[[# @LINE + 2]]:19: error: %a is used with type i64, but is defined with type i32 at {{.*}}diagnostics.mlir:[[# @LINE + 1]]:22
func.func @two_types(%a : i32) -> i32 {
  %b = arith.addi %a, %a : i64
  func.return %b : i64
}

// -----

// CHECK: diagnostics.mlir:[[# @LINE + 1]]:30: error: unknown type 'f33'; did you mean 'f32'?
func.func @unknown_type(%a : f33) {
  func.return
}

// -----

// A dictionary that is not closed before the next operation.
func.func @open_dictionary(%a : i32) {
  // CHECK: diagnostics.mlir:[[# @LINE + 2]]:3: error: {{.*}}; is the '}' missing that closes the '{' at {{.*}}diagnostics.mlir:[[# @LINE + 1]]:26?
  %b = arith.addi %a, %a {x = 1 : i32
  func.return
}

// -----

// A function that is not closed before the next one.
// CHECK: diagnostics.mlir:[[# @LINE + 4]]:17: error: %a is already defined at {{.*}}; the function at {{.*}}diagnostics.mlir:[[# @LINE + 4]]:1 begins inside the one at {{.*}}diagnostics.mlir:[[# @LINE + 1]]:1: is a '}' missing before it?
func.func @open_function(%a : i32) {
  func.return

func.func @next(%a : i32) {
  func.return
}

// -----

// CHECK: error: expected an operation or '}': the program ends, and the '{' at {{.*}}diagnostics.mlir:[[# @LINE + 1]]:26 has no '}'
func.func @open_to_end() {
  func.return
