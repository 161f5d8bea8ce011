// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},assign-ids,prepare-parameters' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"groups\": [[\"w2\", \"again\", \"sum\"]]}"},assign-ids,prepare-parameters' | filecheck %s --check-prefix=PINNED
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"prepared_weights\": false}"},assign-ids,prepare-parameters' | filecheck %s --check-prefix=OFF

// What follows from parameters is computed once, and programs read it as arguments; constants go along.
// CHECK-DAG: emit.decision "prepare-parameters" ["w:scaled", "scaled"] choice "computed once" because "it follows from w, s, which no program updates" rejected {"at every call" = "it would be the same each time"} cost {bytes = 2048 : i64}
// CHECK-DAG: emit.decision "prepare-parameters" ["w:scaled", "again"] choice "computed once, as for another program"
// CHECK-DAG: emit.decision "prepare-parameters" ["large"] choice "at every call" because "it has 262144 bytes and follows from 1024 bytes of parameters, which are less to read"
// CHECK-DAG: emit.decision "prepare-parameters" ["halves:factors", "first", "second"] choice "computed once, as for another program"
// CHECK-LABEL: func.func @prepare(%w: tensor<16x32xi8> {logical.name = "w", logical.role = "param"}, %s: tensor<16xf32> {logical.name = "s", logical.role = "param"}, %v: tensor<32x16xf16> {logical.name = "halves", logical.role = "param"}) -> (tensor<16x32xf32> {logical.name = "w:scaled"}, tensor<32x16xf32> {logical.name = "halves:factors"}) {
// CHECK-NEXT: %wide = logical.cast %w
// CHECK-NEXT: logical.broadcast %s
// CHECK-NEXT: %scaled = logical.mul %wide
// CHECK-NEXT: %factors = logical.cast %v
// CHECK-NEXT: func.return %scaled, %factors

// A transposition stays with its reader: it is strides there.
// CHECK-LABEL: func.func @dequantized
// CHECK-SAME: logical.name = "w:scaled", logical.role = "derived"}
// CHECK-NEXT: logical.transpose
// CHECK-NEXT: logical.matmul

// Equal values of another program are the same one.
// CHECK-LABEL: func.func @shared
// CHECK-SAME: logical.name = "w:scaled", logical.role = "derived"}
// CHECK-NEXT: logical.add %x

// A parameter that a program updates is none of them, nor is what is random, nor what follows from inputs.
// CHECK-LABEL: func.func @updated
// CHECK-NOT: derived
// CHECK: logical.neg
// CHECK: func.return

// What is much larger than its parameters is no value in memory: it is computed in the kernel that reads it.
// CHECK-LABEL: func.func @spread
// CHECK-NOT: derived
// CHECK: logical.mul
// CHECK: logical.add

// A cast that widens is free in the loops that read it, and they read fewer bytes. A product takes it from memory.
// CHECK-LABEL: func.func @widened
// CHECK-SAME: logical.name = "halves:factors", logical.role = "derived"}
// CHECK-NOT: logical.role = "derived"
// CHECK-NEXT: %addend = logical.cast %b
// CHECK: logical.add %product
// CHECK: func.return

// Equal values of one function are one argument.
// CHECK-LABEL: func.func @twice
// CHECK-SAME: %factors: tensor<32x16xf32> {logical.name = "halves:factors", logical.role = "derived"}) ->
// CHECK-NEXT: logical.matmul %{{.*}}, %factors
// CHECK-NEXT: logical.matmul %{{.*}}, %factors

// What rows of a large parameter are taken for loops is read there: a copy of them would be read just as long.
// CHECK-LABEL: func.func @taken
// CHECK-NOT: derived
// CHECK: logical.gather
// CHECK-NEXT: logical.add
// CHECK: func.return

// A policy that groups an op with others is followed.
// PINNED-DAG: emit.decision "prepare-parameters" ["again"] choice "at every call" because "the policy lists it in one group with its consumers"
// PINNED-LABEL: func.func @shared
// PINNED: logical.mul

// Without prepared weights nothing is computed ahead.
// OFF-NOT: @prepare

func.func @dequantized(%x: tensor<4x32xf32> {logical.name = "x", logical.role = "input"}, %w: tensor<16x32xi8> {logical.name = "w", logical.role = "param"}, %s: tensor<16xf32> {logical.name = "s", logical.role = "param"}) -> (tensor<4x16xf32> {logical.name = "y"}) {
  %wide = logical.cast %w : tensor<16x32xi8> -> tensor<16x32xf32>
  %scale = logical.broadcast %s {dimensions = [0]} : tensor<16xf32> -> tensor<16x32xf32>
  %scaled = logical.mul %wide, %scale : tensor<16x32xf32>
  %t = logical.transpose %scaled {permutation = [1, 0]} : tensor<16x32xf32> -> tensor<32x16xf32>
  %y = logical.matmul %x, %t : (tensor<4x32xf32>, tensor<32x16xf32>) -> tensor<4x16xf32>
  func.return %y : tensor<4x16xf32>
}
func.func @shared(%x: tensor<16x32xf32> {logical.name = "x", logical.role = "input"}, %w: tensor<16x32xi8> {logical.name = "w", logical.role = "param"}, %s: tensor<16xf32> {logical.name = "s", logical.role = "param"}) -> (tensor<16x32xf32> {logical.name = "y"}) {
  %w2 = logical.cast %w : tensor<16x32xi8> -> tensor<16x32xf32>
  %s2 = logical.broadcast %s {dimensions = [0]} : tensor<16xf32> -> tensor<16x32xf32>
  %again = logical.mul %w2, %s2 : tensor<16x32xf32>
  %sum = logical.add %x, %again : tensor<16x32xf32>
  func.return %sum : tensor<16x32xf32>
}
func.func @updated(%x: tensor<8xf32> {logical.name = "x", logical.role = "input"}, %v: tensor<8xf32> {logical.name = "v", logical.role = "param"}) -> (tensor<8xf32> {logical.updates = "v"}) {
  %n = logical.neg %v : tensor<8xf32>
  %u = logical.add %n, %x : tensor<8xf32>
  func.return %u : tensor<8xf32>
}
func.func @spread(%x: tensor<256x256xf32> {logical.name = "x", logical.role = "input"}, %b: tensor<256xf32> {logical.name = "b", logical.role = "param"}) -> (tensor<256x256xf32> {logical.name = "y"}) {
  %rows = logical.broadcast %b {dimensions = [0]} : tensor<256xf32> -> tensor<256x256xf32>
  %columns = logical.broadcast %b {dimensions = [1]} : tensor<256xf32> -> tensor<256x256xf32>
  %large = logical.mul %rows, %columns : tensor<256x256xf32>
  %y = logical.add %x, %large : tensor<256x256xf32>
  func.return %y : tensor<256x256xf32>
}
func.func @widened(%x: tensor<4x32xf32> {logical.name = "x", logical.role = "input"}, %v: tensor<32x16xf16> {logical.name = "halves", logical.role = "param"}, %b: tensor<16xf16> {logical.name = "offset", logical.role = "param"}) -> (tensor<4x16xf32> {logical.name = "y"}) {
  %factors = logical.cast %v : tensor<32x16xf16> -> tensor<32x16xf32>
  %addend = logical.cast %b : tensor<16xf16> -> tensor<16xf32>
  %rows = logical.broadcast %addend {dimensions = [1]} : tensor<16xf32> -> tensor<4x16xf32>
  %product = logical.matmul %x, %factors : (tensor<4x32xf32>, tensor<32x16xf32>) -> tensor<4x16xf32>
  %y = logical.add %product, %rows : tensor<4x16xf32>
  func.return %y : tensor<4x16xf32>
}
func.func @twice(%x: tensor<4x32xf32> {logical.name = "x", logical.role = "input"}, %v: tensor<32x16xf16> {logical.name = "halves", logical.role = "param"}) -> (tensor<4x16xf32> {logical.name = "y"}, tensor<4x16xf32> {logical.name = "z"}) {
  %first = logical.cast %v : tensor<32x16xf16> -> tensor<32x16xf32>
  %second = logical.cast %v : tensor<32x16xf16> -> tensor<32x16xf32>
  %y = logical.matmul %x, %first : (tensor<4x32xf32>, tensor<32x16xf32>) -> tensor<4x16xf32>
  %z = logical.matmul %x, %second : (tensor<4x32xf32>, tensor<32x16xf32>) -> tensor<4x16xf32>
  func.return %y, %z : tensor<4x16xf32>, tensor<4x16xf32>
}
func.func @taken(%x: tensor<512x64xf32> {logical.name = "x", logical.role = "input"}, %table: tensor<512x64xf32> {logical.name = "table", logical.role = "param"}, %i: tensor<512xi64> {logical.name = "places", logical.role = "param"}) -> (tensor<512x64xf32> {logical.name = "y"}) {
  %rows = logical.gather %table, %i {axis = 0} : (tensor<512x64xf32>, tensor<512xi64>) -> tensor<512x64xf32>
  %y = logical.add %x, %rows : tensor<512x64xf32>
  func.return %y : tensor<512x64xf32>
}
