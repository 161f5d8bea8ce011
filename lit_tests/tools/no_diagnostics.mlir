// RUN: not aicf-opt %s --verify-diagnostics 2>&1 | filecheck %s

// A program that was expected to fail and does not is an error.

// CHECK: func.func @fine
// CHECK: error: expected an error and found none in 1 of 1 programs
func.func @fine() {
  func.return
}
