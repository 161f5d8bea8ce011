// RUN: aicf-opt %s --print-debuginfo | filecheck %s

// Every op gets its position in the file; an explicit location is kept, and a bare name gets the position inside.

// CHECK-LABEL: func.func @positions
func.func @positions(%a : i32) -> i32 {
  // CHECK-NEXT: arith.addi {{.*}} loc("{{.*}}locations.mlir":[[# @LINE + 1]]:3)
  %0 = arith.addi %a, %a : i32
  // CHECK-NEXT: arith.muli {{.*}} loc("model.py":7:9)
  %1 = arith.muli %0, %0 : i32 loc("model.py":7:9)
  // CHECK-NEXT: arith.subi {{.*}} loc("fc1"("{{.*}}locations.mlir":[[# @LINE + 1]]:3))
  %2 = arith.subi %1, %0 : i32 loc("fc1")
  func.return %2 : i32
}
