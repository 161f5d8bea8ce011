// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},materialize-views' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},materialize-views' > %t.once
// RUN: aicf-opt %t.once > %t.twice
// RUN: diff %t.once %t.twice

// CHECK: emit.decision "materialize-views" ["strided.t"] choice "copy" because "'strided.r' needs its elements in row-major order in memory" rejected {strides = "they cannot express both views"}
// CHECK-NEXT: emit.decision "materialize-views" ["a.copy"] choice "copy" because "the program returns a view or a constant, and what it returns has memory of its own"
// CHECK-NEXT: emit.decision "materialize-views" ["c.copy"] choice "copy" because "the program returns one value twice, and each result has memory of its own"
// CHECK-NEXT: emit.decision "materialize-views" ["d.copy"] choice "copy" because "the program returns an input or parameter, and what it returns has memory of its own"
// CHECK-NEXT: emit.decision "materialize-views" ["e.copy"] choice "copy" because "the program returns a view or a constant, and what it returns has memory of its own"
// CHECK-NEXT: emit.decision "materialize-views" ["w.copy"] choice "copy" because "the new value of 'w' is a view, a constant or an argument: no instruction computes it"
// CHECK-NEXT: emit.decision "materialize-views" ["bucket.a.copy"]
// CHECK-NEXT: emit.decision "materialize-views" ["a.copy@N=2"]
// CHECK-NEXT: emit.decision "materialize-views" ["i"] choice "copy" because "'m' reads it from memory" rejected {"computed by its consumer" = "that reads its operand from memory alone"}
// CHECK-NEXT: emit.decision "materialize-views" ["j"] choice "copy" because "'jr' reads it from memory" rejected {{.*}}
// CHECK-NEXT: emit.decision "materialize-views" ["pc", "pt.part0", "pt.part1"] choice "transposed parts" because "'pr' needs its elements in row-major order in memory" rejected {strides = "they cannot express both views"}
// CHECK-NEXT: emit.decision "materialize-views" ["qt"] choice "copy"
// CHECK-NEXT: emit.decision "materialize-views" ["ks", "ks.view0"] choice "strides" because "strides express what is read in the end, though not each view on the way" rejected {copy = "the elements can be read where they are"}
// CHECK-NEXT: emit.decision "materialize-views" ["kv", "kv.view0", "kv.view1"] choice "strides"
// CHECK-NEXT: emit.decision "materialize-views" ["lt"] choice "copy"
// CHECK-NEXT: }

// A flattened transposition has no strides: the transposition becomes a copy, the reshape stays free.
// CHECK-LABEL: func.func @strided
func.func @strided(%x : tensor<4x6xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<24xf32> {logical.name = "y"}) {
  %e = logical.exp %x {aicf.id = "strided.e", aicf.src = ["strided.e"]} : tensor<4x6xf32>
  // CHECK: %t = emit.group "strided.t" from ["strided.t"] ins(%{{.*}} = %e : tensor<4x6xf32>) -> (tensor<6x4xf32>) {
  // CHECK-NEXT: logical.transpose
  // CHECK-NEXT: emit.yield
  %t = logical.transpose %e {permutation = [1, 0], aicf.id = "strided.t", aicf.src = ["strided.t"]} : tensor<4x6xf32> -> tensor<6x4xf32>
  // CHECK: logical.reshape %t
  %r = logical.reshape %t {aicf.id = "strided.r", aicf.src = ["strided.r"]} : tensor<6x4xf32> -> tensor<24xf32>
  %n = logical.neg %r {aicf.id = "strided.n", aicf.src = ["strided.n"]} : tensor<24xf32>
  func.return %n : tensor<24xf32>
}

// Transposition, slice and a reshape that only splits a dimension are strides: nothing is copied.
// CHECK-LABEL: func.func @free
// CHECK-NOT: emit.group
func.func @free(%x : tensor<4x6xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<3x2x2xf32> {logical.name = "y"}) {
  %t = logical.transpose %x {permutation = [1, 0], aicf.id = "free.t", aicf.src = ["free.t"]} : tensor<4x6xf32> -> tensor<6x4xf32>
  %s = logical.slice %t {starts = [0, 1], sizes = [6, 2], strides = [1, 2], aicf.id = "free.s", aicf.src = ["free.s"]} : tensor<6x4xf32> -> tensor<6x2xf32>
  %r = logical.reshape %s {aicf.id = "free.r", aicf.src = ["free.r"]} : tensor<6x2xf32> -> tensor<3x2x2xf32>
  %n = logical.neg %r {aicf.id = "free.n", aicf.src = ["free.n"]} : tensor<3x2x2xf32>
  func.return %n : tensor<3x2x2xf32>
}

// Results own their memory: a returned view, argument, constant or value returned twice is copied, and so is the new
// value of a state that no instruction computes. A reshape that is only returned (f) is free.
// CHECK-LABEL: func.func @returned
// CHECK: emit.group "a.copy" from ["t"]
// CHECK-NEXT: logical.transpose
// CHECK: emit.group "c.copy" from ["r"]
// CHECK-NEXT: logical.reshape
// CHECK: emit.group "d.copy" from ["d"]
// CHECK-NEXT: emit.yield
// CHECK: emit.group "e.copy" from ["c"] ins()
// CHECK-NEXT: logical.constant
// CHECK: %[[W:.*]] = emit.group "w.copy" from ["c"] ins()
// CHECK: func.return %{{.*}}, %e, %{{.*}}, %{{.*}}, %{{.*}}, %q, %[[W]]
func.func @returned(
    %x : tensor<4x6xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<2xf32> {logical.name = "w", logical.role = "state"})
    -> (tensor<6x4xf32> {logical.name = "a"}, tensor<4x6xf32> {logical.name = "b"}, tensor<24xf32> {logical.name = "c"},
        tensor<4x6xf32> {logical.name = "d"}, tensor<2xf32> {logical.name = "e"}, tensor<24xf32> {logical.name = "f"},
        tensor<2xf32> {logical.updates = "w"}) {
  %t = logical.transpose %x {permutation = [1, 0], aicf.id = "t", aicf.src = ["t"]} : tensor<4x6xf32> -> tensor<6x4xf32>
  %e = logical.exp %x {aicf.id = "e", aicf.src = ["e"]} : tensor<4x6xf32>
  %r = logical.reshape %e {aicf.id = "r", aicf.src = ["r"]} : tensor<4x6xf32> -> tensor<24xf32>
  %n = logical.neg %x {aicf.id = "n", aicf.src = ["n"]} : tensor<4x6xf32>
  %q = logical.reshape %n {aicf.id = "q", aicf.src = ["q"]} : tensor<4x6xf32> -> tensor<24xf32>
  %c = logical.constant dense<0.5> {aicf.id = "c", aicf.src = ["c"]} : tensor<2xf32>
  func.return %t, %e, %r, %x, %c, %q, %c : tensor<6x4xf32>, tensor<4x6xf32>, tensor<24xf32>, tensor<4x6xf32>, tensor<2xf32>, tensor<24xf32>, tensor<2xf32>
}

// A reshape that is returned and read as well is the result's own memory, which later instructions read.
// CHECK-LABEL: func.func @read_again
// CHECK-NOT: emit.group
// CHECK: func.return
func.func @read_again(%x : tensor<2x3xf32> {logical.name = "x", logical.role = "input"})
    -> (tensor<6xf32> {logical.name = "g"}, tensor<6xf32> {logical.name = "h"}) {
  %e = logical.exp %x {aicf.id = "e2", aicf.src = ["e2"]} : tensor<2x3xf32>
  %r = logical.reshape %e {aicf.id = "r2", aicf.src = ["r2"]} : tensor<2x3xf32> -> tensor<6xf32>
  %n = logical.neg %r {aicf.id = "n2", aicf.src = ["n2"]} : tensor<6xf32>
  func.return %r, %n : tensor<6xf32>, tensor<6xf32>
}

// Ids are new in the module, and say their bucket: another function returns an "a", and so does one bucket.
// CHECK-LABEL: func.func @bucket(
// CHECK: emit.group "bucket.a.copy"
func.func @bucket(%x : tensor<1x3xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<3x1xf32> {logical.name = "a"}) {
  %t = logical.transpose %x {permutation = [1, 0], aicf.id = "t4", aicf.src = ["t4"]} : tensor<1x3xf32> -> tensor<3x1xf32>
  func.return %t : tensor<3x1xf32>
}
// CHECK-LABEL: func.func @"bucket@N=2"(
// CHECK: emit.group "a.copy@N=2"
func.func @"bucket@N=2"(%x : tensor<2x3xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<3x2xf32> {logical.name = "a"}) {
  %t = logical.transpose %x {permutation = [1, 0], aicf.id = "t4@N=2", aicf.src = ["t4"]} : tensor<2x3xf32> -> tensor<3x2xf32>
  func.return %t : tensor<3x2xf32>
}

// Coordinates are computed where they are read as elements, also repeated, and stored where they are read from memory: by
// a product, and by a view that moves them.
// CHECK-LABEL: func.func @coordinates(
// CHECK: %i = emit.group "i" from ["i"] ins() -> (tensor<4x4xf32>) {
// CHECK-NEXT: logical.iota {axis = 0, aicf.id = "i", aicf.src = ["i"]}
// CHECK: %j = emit.group "j" from ["j"] ins() -> (tensor<16xf32>) {
// CHECK-NEXT: logical.iota {axis = 0, aicf.id = "j", aicf.src = ["j"]}
// CHECK-NOT: emit.group
func.func @coordinates(%x : tensor<4x4xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<4x4xf32> {logical.name = "y"}) {
  %i = logical.iota {axis = 0, aicf.id = "i", aicf.src = ["i"]} : tensor<4x4xf32>
  %m = logical.matmul %i, %x {aicf.id = "m", aicf.src = ["m"]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %j = logical.iota {axis = 0, aicf.id = "j", aicf.src = ["j"]} : tensor<16xf32>
  %jr = logical.reshape %j {aicf.id = "jr", aicf.src = ["jr"]} : tensor<16xf32> -> tensor<4x4xf32>
  %k = logical.iota {axis = 0, aicf.id = "k", aicf.src = ["k"]} : tensor<4xf32>
  %kb = logical.broadcast %k {dimensions = [1], aicf.id = "kb", aicf.src = ["kb"]} : tensor<4xf32> -> tensor<4x4xf32>
  %a = logical.add %m, %jr {aicf.id = "a5", aicf.src = ["a5"]} : tensor<4x4xf32>
  %y = logical.add %a, %kb {aicf.id = "y5", aicf.src = ["y5"]} : tensor<4x4xf32>
  func.return %y : tensor<4x4xf32>
}

// A concatenation that a copy would transpose is made of transposed parts; one that something else reads as it is stays.
// CHECK-LABEL: func.func @parts(
// CHECK: %[[A:.*]] = logical.transpose %{{.*}} {permutation = [1, 0, 2], aicf.id = "pt.part0"
// CHECK: %[[B:.*]] = logical.transpose %{{.*}} {permutation = [1, 0, 2], aicf.id = "pt.part1"
// CHECK: %[[C:.*]] = logical.concat %[[A]], %[[B]] {axis = 1, aicf.id = "pc", aicf.src = ["pc", "pt"]}
// CHECK: logical.reshape %[[C]]
// CHECK: emit.group "qt" from ["qt"]
func.func @parts(%x : tensor<1x3x4xf32> {logical.name = "x", logical.role = "input"})
    -> (tensor<24xf32> {logical.name = "y"}, tensor<24xf32> {logical.name = "z"}) {
  %e = logical.exp %x {aicf.id = "pe", aicf.src = ["pe"]} : tensor<1x3x4xf32>
  %f = logical.neg %x {aicf.id = "pf", aicf.src = ["pf"]} : tensor<1x3x4xf32>
  %c = logical.concat %e, %f {axis = 0, aicf.id = "pc", aicf.src = ["pc"]} : (tensor<1x3x4xf32>, tensor<1x3x4xf32>) -> tensor<2x3x4xf32>
  %t = logical.transpose %c {permutation = [1, 0, 2], aicf.id = "pt", aicf.src = ["pt"]} : tensor<2x3x4xf32> -> tensor<3x2x4xf32>
  %r = logical.reshape %t {aicf.id = "pr", aicf.src = ["pr"]} : tensor<3x2x4xf32> -> tensor<24xf32>
  %y = logical.neg %r {aicf.id = "py", aicf.src = ["py"]} : tensor<24xf32>
  %d = logical.concat %f, %e {axis = 0, aicf.id = "qc", aicf.src = ["qc"]} : (tensor<1x3x4xf32>, tensor<1x3x4xf32>) -> tensor<2x3x4xf32>
  %u = logical.transpose %d {permutation = [1, 0, 2], aicf.id = "qt", aicf.src = ["qt"]} : tensor<2x3x4xf32> -> tensor<3x2x4xf32>
  %s = logical.reshape %u {aicf.id = "qr", aicf.src = ["qr"]} : tensor<3x2x4xf32> -> tensor<24xf32>
  %v = logical.reshape %d {aicf.id = "qv", aicf.src = ["qv"]} : tensor<2x3x4xf32> -> tensor<24xf32>
  %z = logical.add %s, %v {aicf.id = "qz", aicf.src = ["qz"]} : tensor<24xf32>
  func.return %y, %z : tensor<24xf32>, tensor<24xf32>
}

// A slice that keeps one part of a dimension that a reshape joined is strides of the source, also after other views. If
// something reads all of the reshape, it is copied, and the slice is one of the copy.
// CHECK-LABEL: func.func @kept(
// CHECK-NOT: emit.group
// CHECK: %ks = logical.reshape %{{.*}} {aicf.id = "ks", aicf.src = ["kt", "kr", "km", "ks"]}
// CHECK-NOT: emit.group
// CHECK: %kv = logical.reshape %{{.*}} {aicf.id = "kv", aicf.src = ["kt", "kr", "km", "ks", "kv"]}
// CHECK-NOT: emit.group
// CHECK-LABEL: func.func @mixed(
// CHECK: emit.group "lt" from ["lt"]
// CHECK: logical.slice %lr
func.func @kept(%x : tensor<3x4x2xf32> {logical.name = "x", logical.role = "input"})
    -> (tensor<3x4xf32> {logical.name = "y"}, tensor<3x2xf32> {logical.name = "z"}) {
  %e = logical.exp %x {aicf.id = "ke", aicf.src = ["ke"]} : tensor<3x4x2xf32>
  %t = logical.transpose %e {permutation = [2, 1, 0], aicf.id = "kt", aicf.src = ["kt"]} : tensor<3x4x2xf32> -> tensor<2x4x3xf32>
  %r = logical.reshape %t {aicf.id = "kr", aicf.src = ["kr"]} : tensor<2x4x3xf32> -> tensor<8x3xf32>
  %m = logical.transpose %r {permutation = [1, 0], aicf.id = "km", aicf.src = ["km"]} : tensor<8x3xf32> -> tensor<3x8xf32>
  %ks = logical.slice %m {starts = [0, 4], sizes = [3, 4], strides = [1, 1], aicf.id = "ks", aicf.src = ["ks"]} : tensor<3x8xf32> -> tensor<3x4xf32>
  %n = logical.neg %ks {aicf.id = "kn", aicf.src = ["kn"]} : tensor<3x4xf32>
  %kv = logical.slice %ks {starts = [0, 1], sizes = [3, 2], strides = [1, 2], aicf.id = "kv", aicf.src = ["kv"]} : tensor<3x4xf32> -> tensor<3x2xf32>
  %o = logical.neg %kv {aicf.id = "ko", aicf.src = ["ko"]} : tensor<3x2xf32>
  func.return %n, %o : tensor<3x4xf32>, tensor<3x2xf32>
}
func.func @mixed(%x : tensor<3x4x2xf32> {logical.name = "x", logical.role = "input"})
    -> (tensor<8x3xf32> {logical.name = "y"}, tensor<4x3xf32> {logical.name = "z"}) {
  %e = logical.exp %x {aicf.id = "le", aicf.src = ["le"]} : tensor<3x4x2xf32>
  %t = logical.transpose %e {permutation = [2, 1, 0], aicf.id = "lt", aicf.src = ["lt"]} : tensor<3x4x2xf32> -> tensor<2x4x3xf32>
  %lr = logical.reshape %t {aicf.id = "lr", aicf.src = ["lr"]} : tensor<2x4x3xf32> -> tensor<8x3xf32>
  %n = logical.neg %lr {aicf.id = "ln", aicf.src = ["ln"]} : tensor<8x3xf32>
  %s = logical.slice %lr {starts = [4, 0], sizes = [4, 3], strides = [1, 1], aicf.id = "ls", aicf.src = ["ls"]} : tensor<8x3xf32> -> tensor<4x3xf32>
  %o = logical.neg %s {aicf.id = "lo", aicf.src = ["lo"]} : tensor<4x3xf32>
  func.return %n, %o : tensor<8x3xf32>, tensor<4x3xf32>
}
