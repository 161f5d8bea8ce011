// RUN: aicf-opt %s -p 'lower-to-emit' | filecheck %s
// RUN: aicf-opt %s -p 'lower-to-emit' > %t.once
// RUN: aicf-opt %t.once -p 'lower-to-emit' > %t.twice
// RUN: diff %t.once %t.twice

builtin.module attributes {aicf.target = #emit.target<"cpu", "x86-64-v3", {threads = 1 : i64}>} {
// The result of the last group goes straight into its output bind; the one in between gets a slot. The predicted time
// becomes a hint, what the kernel permits becomes a constraint.
emit.kernel @exp.code parallel [4, 6] reduce [] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0, d1)>] {
^bb0(%a : f32):
  emit.phase {
    %e = math.exp %a : f32
    emit.store %e, 0 : f32
    emit.yield
  }
}
// CHECK-LABEL: emit.program @prepare
// CHECK-NEXT: %[[W:.*]] = emit.bind param "fc.weight" binding(direct) : !emit.buffer<8x8xf32, bound>
// CHECK-NEXT: %[[ONE:.*]] = emit.bind derived "fc.weight:packed_b" : !emit.buffer<8x8xf32, const, layout #emit.layout<"packed_b", {bytes = 256 : i64, k_dim = 1 : i64, nr = 8 : i64}>>
// CHECK-NEXT: %[[OTHER:.*]] = emit.bind derived "fc.weight:packed_b.1"
// CHECK-NEXT: emit.resolved "pack" id(26) name("fc.weight:packed_b") src(["one"])
// CHECK-NEXT:   ins(%[[W]] : {{.*}}) outs(%[[ONE]] :
// CHECK-NEXT:   body(@"fc.weight:packed_b.body")
// CHECK-NEXT:   kernel("cpu.pack",
// CHECK-NEXT: emit.resolved "pack" id(26) name("fc.weight:packed_b.1") src(["three"])

// CHECK-LABEL: emit.program @chain attributes {phase = "bufferized"} {
// CHECK-NEXT: %[[X:.*]] = emit.bind input "x" binding(direct) : !emit.buffer<4x6xf32, bound>
// CHECK-NEXT: %[[Y:.*]] = emit.bind output "y" binding(direct) : !emit.buffer<24xf32, bound>
// CHECK-NEXT: %e = emit.slot : !emit.buffer<4x6xf32, arena>
// CHECK-NEXT: emit.resolved "generated" id(24) name("exp") src(["exp"])
// CHECK-NEXT:   ins(%[[X]] : !emit.buffer<4x6xf32, bound>) outs(%e : !emit.buffer<4x6xf32, arena>)
// CHECK-NEXT:   body(@exp.body) code(@exp.code)
// CHECK-NEXT:   kernel("cpu.generated", {version = 1 : i64, determinism = "bitwise", lanes = 8 : i64, workspace_bytes = 0 : i64})
// CHECK-NEXT:   expected_us(0.25)
// CHECK-NEXT:   constraints {may_alias = {{\[\[}}0 : i64, 0 : i64]]}
// CHECK-NEXT: %[[TURNED:.*]] = emit.view %e offset(0) : !emit.buffer<4x6xf32, arena> to !emit.buffer<6x4xf32, arena, strides [1, 6]>
// CHECK-NEXT: %[[RESULT:.*]] = emit.view %[[Y]] offset(0) : !emit.buffer<24xf32, bound> to !emit.buffer<6x4xf32, bound>
// CHECK-NEXT: %ws = emit.slot : !emit.buffer<512xi8, arena>
// CHECK-NEXT: emit.resolved "copy" id(8) name("turn") src(["turn"])
// CHECK-NEXT:   ins(%[[TURNED]] : {{.*}}) outs(%[[RESULT]] : {{.*}}) ws(%ws : !emit.buffer<512xi8, arena>)
func.func @chain(%x : tensor<4x6xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<24xf32> {logical.name = "y"}) {
  %e = emit.group "exp" from ["exp"] ins(%a = %x : tensor<4x6xf32>) -> (tensor<4x6xf32>) kernel("cpu.generated", {version = 1 : i64, determinism = "bitwise", lanes = 8 : i64, may_alias = [[0 : i64, 0 : i64]], workspace_bytes = 0 : i64}) expected_us(0.25) code(@exp.code) {
    %1 = logical.exp %a : tensor<4x6xf32>
    emit.yield %1 : tensor<4x6xf32>
  }
  // A transposition before the work is a view of the operand.
  %t = emit.group "turn" from ["turn"] ins(%a = %e : tensor<4x6xf32>) -> (tensor<6x4xf32>) kernel("cpu.copy", {version = 1 : i64, determinism = "bitwise", workspace_bytes = 512 : i64}) {
    %1 = logical.transpose %a {permutation = [1, 0]} : tensor<4x6xf32> -> tensor<6x4xf32>
    emit.yield %1 : tensor<6x4xf32>
  }
  %r = logical.reshape %t : tensor<6x4xf32> -> tensor<24xf32>
  func.return %r : tensor<24xf32>
}

// A weight that the kernel reads packed: one instruction in @prepare for both products that read it the same way,
// another one for a product that reads it transposed; the plain weight is no bind of the program any more.
// CHECK-LABEL: emit.body @one.body {
// CHECK-NEXT: ^bb0(%a: tensor<4x8xf32>, %b: tensor<8x8xf32>):
// CHECK-NEXT: logical.matmul %a, %b {transpose_b}
// CHECK-LABEL: emit.program @packed
// CHECK-NOT: bind param
// CHECK: emit.bind state "kept" binding(direct) updated : !emit.buffer<8x8xf32, bound>
// CHECK: %[[D1:.*]] = emit.bind derived "fc.weight:packed_b" :
// CHECK-NEXT: %[[D2:.*]] = emit.bind derived "fc.weight:packed_b.1" :
// CHECK: name("one")
// CHECK-NEXT: ins(%{{.*}}, %[[D1]] :
// CHECK: name("two")
// CHECK-NEXT: ins(%m, %[[D1]] :
// CHECK: name("three")
// CHECK-NEXT: ins(%n, %[[D2]] :
// CHECK: %d = emit.slot
// CHECK: emit.resolved "copy" id(8) name("kept.update") src(["decay"])
// CHECK-NEXT: ins(%d : {{.*}}) outs(%kept :
// CHECK-NEXT: body(@packed.kept.update.body)
// CHECK-NEXT: kernel("cpu.copy",
func.func @packed(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<8x8xf32> {logical.name = "fc.weight", logical.role = "param"},
    %c : tensor<8x8xf32> {logical.name = "kept", logical.role = "state"})
    -> (tensor<4x8xf32> {logical.name = "y"}, tensor<8x8xf32> {logical.updates = "kept"}) {
  %m = emit.group "one" from ["one"] ins(%a = %x : tensor<4x8xf32>, %b = %w : tensor<8x8xf32>) -> (tensor<4x8xf32>) kernel("cpu.gemm_avx2", {version = 4 : i64, determinism = "bitwise", layouts = [unit, #emit.layout<"packed_b", {bytes = 256 : i64, k_dim = 1 : i64, nr = 8 : i64}>]}) {
    %1 = logical.matmul %a, %b {transpose_b} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    emit.yield %1 : tensor<4x8xf32>
  }
  %n = emit.group "two" from ["two"] ins(%a = %m : tensor<4x8xf32>, %b = %w : tensor<8x8xf32>) -> (tensor<4x8xf32>) kernel("cpu.gemm_avx2", {version = 4 : i64, determinism = "bitwise", layouts = [unit, #emit.layout<"packed_b", {bytes = 256 : i64, k_dim = 1 : i64, nr = 8 : i64}>]}) {
    %1 = logical.matmul %a, %b {transpose_b} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    emit.yield %1 : tensor<4x8xf32>
  }
  %o = emit.group "three" from ["three"] ins(%a = %n : tensor<4x8xf32>, %b = %w : tensor<8x8xf32>) -> (tensor<4x8xf32>) kernel("cpu.gemm_avx2", {version = 4 : i64, determinism = "bitwise", layouts = [unit, #emit.layout<"packed_b", {bytes = 256 : i64, k_dim = 0 : i64, nr = 8 : i64}>]}) {
    %1 = logical.matmul %a, %b : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    emit.yield %1 : tensor<4x8xf32>
  }
  // The new value of a state goes to a slot and is copied: decide-inplace may do better.
  %d = emit.group "decay" from ["decay"] ins(%a = %c : tensor<8x8xf32>) -> (tensor<8x8xf32>) kernel("cpu.generated", {version = 1 : i64, determinism = "bitwise"}) {
    %1 = logical.neg %a : tensor<8x8xf32>
    emit.yield %1 : tensor<8x8xf32>
  }
  func.return %o, %d : tensor<4x8xf32>, tensor<8x8xf32>
}

// A constant with different elements is a bind of its own; equal elements are one element.
// CHECK-LABEL: emit.program @constants
// CHECK: %table = emit.bind const "table" value(dense<[1.000000e+00, 2.000000e+00, 3.000000e+00]>) : !emit.buffer<3xf32, const>
// CHECK-NEXT: %half = emit.bind const "half" value(dense<5.000000e-01>) : !emit.buffer<3xf32, const>
// CHECK: ins(%{{.*}}, %table, %half :
func.func @constants(%x : tensor<3xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<9xf32> {logical.name = "y"}) {
  %c = logical.constant dense<[1.0, 2.0, 3.0]> {aicf.id = "table"} : tensor<3xf32>
  %s = logical.constant dense<0.5> {aicf.id = "half"} : tensor<3xf32>
  %y = emit.group "cat" from ["cat"] ins(%a = %x : tensor<3xf32>, %b = %c : tensor<3xf32>, %h = %s : tensor<3xf32>) -> (tensor<9xf32>) kernel("cpu.concat", {version = 1 : i64, determinism = "bitwise"}) {
    %1 = logical.concat %a, %b, %h {axis = 0} : (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<9xf32>
    emit.yield %1 : tensor<9xf32>
  }
  func.return %y : tensor<9xf32>
}
}
