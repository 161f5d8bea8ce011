// RUN: aicf-opt %s -p 'assign-ids,lower-logical' | filecheck %s
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" training=true}' | filecheck %s --check-prefix=EMIT

// A word for the row-major number of each element; its low bits are a number in [0, 1), which keeps or drops.
// CHECK-LABEL: func.func @drop
func.func @drop(%x : tensor<3x1x5xf32> {logical.name = "x", logical.role = "input"}, %s : tensor<i64> {logical.name = "s", logical.role = "input"}, %o : tensor<i64> {logical.name = "o", logical.role = "meta"}) -> (tensor<3x1x5xf32> {logical.name = "y"}) {
  // CHECK-NEXT: %[[COLUMN:.*]] = logical.iota {axis = 2,
  // CHECK-NEXT: %[[ROW:.*]] = logical.iota {axis = 0,
  // CHECK-NEXT: %[[FIVE:.*]] = logical.constant dense<5>
  // CHECK-NEXT: %[[START:.*]] = logical.mul %[[ROW]], %[[FIVE]]
  // CHECK-NEXT: %[[NUMBER:.*]] = logical.add %[[START]], %[[COLUMN]]
  // CHECK-NEXT: %[[SEED:.*]] = logical.broadcast %s
  // CHECK-NEXT: %[[OFFSET:.*]] = logical.broadcast %o
  // CHECK-NEXT: %[[WORD:.*]] = logical.philox_word %[[SEED]], %[[OFFSET]], %[[NUMBER]]
  // CHECK: dense<16777215>
  // CHECK: %[[KEPT:.*]] = logical.compare "ge"
  // CHECK: %[[SCALED:.*]] = logical.mul %x,
  // CHECK: logical.select %[[KEPT]], %[[SCALED]],
  %y = logical.dropout %x, %s, %o {rate = 0.25} : (tensor<3x1x5xf32>, tensor<i64>, tensor<i64>) -> tensor<3x1x5xf32>
  func.return %y : tensor<3x1x5xf32>
}

// EMIT: emit.kernel @y.code parallel [3, 1, 5]
// EMIT: %[[I:.*]] = emit.index 0 : i64
// EMIT: %[[J:.*]] = emit.index 2 : i64
// EMIT: emit.philox %s, %o, %{{.*}}
// EMIT: arith.select
// EMIT-NOT: emit.kernel

// Without a rate nothing is dropped, and nothing is left of it.
// CHECK-LABEL: func.func @whole
// CHECK-NOT: philox
func.func @whole(%x : tensor<3xf32> {logical.name = "x", logical.role = "input"}, %s : tensor<i64> {logical.name = "s", logical.role = "input"}) -> (tensor<3xf32> {logical.name = "y"}) {
  %y = logical.dropout %x, %s, %s {rate = 0.0} : (tensor<3xf32>, tensor<i64>, tensor<i64>) -> tensor<3xf32>
  func.return %y : tensor<3xf32>
}
