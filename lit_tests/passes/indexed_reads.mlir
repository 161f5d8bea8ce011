// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v4"},assign-ids,lower-logical,materialize-views,fuse-elementwise,select-kernels,generate-kernels' | filecheck %s

// Reads at computed indices are `emit.load` in one kernel with what follows; the operand has no element at the point.

// Padding guards its load, and relu follows in a register.
// CHECK-LABEL: emit.kernel @p.code parallel [7, 10] reduce [] ins [indexed] outs [affine_map<(d0, d1) -> (d0, d1)>] {
// CHECK-NEXT: ^bb0(%x: memref<4x8xf32>):
// CHECK: %[[I:.*]] = emit.index 0 : i32
// CHECK: %[[R:.*]] = arith.subi %[[I]], %{{.*}} : i32
// CHECK: %[[A:.*]] = arith.cmpi ult, %[[R]], %{{.*}} : i32
// CHECK: %[[J:.*]] = emit.index 1 : i32
// CHECK: %[[IN:.*]] = arith.andi %[[A]], %{{.*}} : i1
// CHECK: %[[V:.*]] = emit.load %x[%[[R]], %{{.*}}] if %[[IN]] else %{{.*}} : memref<4x8xf32>, i32
// CHECK: arith.maximumf %[[V]]
func.func @pad(%x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<7x10xf32> {logical.name = "y"}) {
  %v = logical.constant dense<0.5> : tensor<f32>
  %p = logical.pad %x, %v {low = [1, 2], high = [2, 0]} : (tensor<4x8xf32>, tensor<f32>) -> tensor<7x10xf32>
  %y = logical.relu %p : tensor<7x10xf32>
  func.return %y : tensor<7x10xf32>
}

// A row of a table and a normalisation are one kernel; the row is read once and kept for the later phases.
// CHECK-LABEL: emit.kernel @e.code parallel [5] reduce [40]
// CHECK-SAME: ins [indexed, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>]
// CHECK-NEXT: ^bb0(%t: memref<7x40xf32>, %i: i64, %p: f32):
// CHECK: arith.minsi
// CHECK: %[[ROW:.*]] = emit.cast %{{.*}} : i64 to i32
// CHECK: %[[E:.*]] = emit.load %t[%[[ROW]], %{{.*}}] : memref<7x40xf32>, i32
// CHECK: emit.yield %{{.*}}, %[[E]] : f32, f32
// CHECK-NOT: emit.load
// CHECK-LABEL: func.func @embedding
func.func @embedding(%t : tensor<7x40xf32> {logical.name = "t", logical.role = "param"}, %i : tensor<5xi64> {logical.name = "i", logical.role = "input"}, %p : tensor<5x40xf32> {logical.name = "p", logical.role = "input"}) -> (tensor<5x40xf32> {logical.name = "y"}) {
  %e = logical.gather %t, %i {axis = 0} : (tensor<7x40xf32>, tensor<5xi64>) -> tensor<5x40xf32>
  %a = logical.add %e, %p : tensor<5x40xf32>
  %y = logical.softmax %a {axis = 1} : tensor<5x40xf32>
  func.return %y : tensor<5x40xf32>
}

// What is read at places and at the point is two operands.
// CHECK-LABEL: emit.kernel @g.code parallel [6, 6] reduce []
// CHECK-SAME: ins [indexed, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>]
// CHECK-NEXT: ^bb0(%x: memref<6x6xf32>, %i: i32, %x_1: f32):
// CHECK: emit.load %x[%{{.*}}, %{{.*}}] : memref<6x6xf32>, i32
func.func @both(%x : tensor<6x6xf32> {logical.name = "x", logical.role = "input"}, %i : tensor<6x6xi32> {logical.name = "i", logical.role = "input"}) -> (tensor<6x6xf32> {logical.name = "y"}) {
  %g = logical.gather_elements %x, %i {axis = 1} : (tensor<6x6xf32>, tensor<6x6xi32>) -> tensor<6x6xf32>
  %y = logical.add %g, %x : tensor<6x6xf32>
  func.return %y : tensor<6x6xf32>
}
