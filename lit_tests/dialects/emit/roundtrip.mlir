// RUN: aicf-opt %s | aicf-opt | filecheck %s

// Every op of the emit dialect with every field it can have, twice through parser and printer.

// Target, layout and edge as attributes; entries are optional.
// CHECK: builtin.module attributes {
// CHECK-SAME: aicf.target = #emit.target<"cpu", "x86-64-v4", {threads = 1 : i64, libraries = {openblas = "0.3.29"}}>
// CHECK-SAME: bare = #emit.target<"reference", "any">
// CHECK-SAME: edge = #emit.edge<"fc1" programmatic>
// CHECK-SAME: layout = #emit.layout<"rows">
// CHECK-SAME: record = #emit.kernel_record<"k", {version = 0 : i64, determinism = "unordered"}>
builtin.module attributes {
  aicf.target = #emit.target<"cpu", "x86-64-v4", {threads = 1 : i64, libraries = {openblas = "0.3.29"}}>,
  bare = #emit.target<"reference", "any">,
  edge = #emit.edge<"fc1" programmatic>,
  layout = #emit.layout<"rows">,
  record = #emit.kernel_record<"k", {version = 0 : i64, determinism = "unordered"}>
} {

// A group with every optional part; its elements are the arguments of its body.
// CHECK-LABEL: func.func @grouped
func.func @grouped(%x : tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: %r = emit.group "g" from ["a", "b"] ins(%a = %x : tensor<4xf32>) -> (tensor<4xf32>)
  // CHECK-SAME: kernel("cpu.generated", {version = 1 : i64, determinism = "bitwise"}) code(@g.code) prologue(@g.prologue)
  // CHECK-SAME: attributes {aicf.note = "kept"} {
  %r = emit.group "g" from ["a", "b"] ins(%a = %x : tensor<4xf32>) -> (tensor<4xf32>) kernel("cpu.generated", {version = 1 : i64, determinism = "bitwise"}) code(@g.code) prologue(@g.prologue) attributes {aicf.note = "kept"} {
    %q = logical.exp %a : tensor<4xf32>
    // CHECK: emit.yield {aicf.note = "kept"} %q : tensor<4xf32>
    emit.yield {aicf.note = "kept"} %q : tensor<4xf32>
  }
  func.return %r : tensor<4xf32>
}

// A group without operands and a group without results.
// CHECK-LABEL: func.func @bare_groups
func.func @bare_groups(%x : tensor<4xf32>) {
  // CHECK: emit.group "none" from ["a"] ins() -> (tensor<4xf32>) {
  %r = emit.group "none" from ["a"] ins() -> (tensor<4xf32>) {
    %c = logical.constant dense<1.5> : tensor<4xf32>
    emit.yield %c : tensor<4xf32>
  }
  // CHECK: emit.group "sink" from ["b"] ins(%a = %x : tensor<4xf32>) -> () {
  emit.group "sink" from ["b"] ins(%a = %x : tensor<4xf32>) -> () {
    emit.yield
  }
  func.return
}

// CHECK-LABEL: emit.body @copy.body attributes {aicf.note = "kept"} {
emit.body @copy.body attributes {aicf.note = "kept"} {
^bb0(%x : tensor<4xf32>):
  emit.yield %x : tensor<4xf32>
}

// Symbols that are no identifiers are quoted, non-ASCII letters too.
// CHECK-LABEL: emit.body @"b@N=1 \C3\A9" {
emit.body @"b@N=1 é" {
  emit.yield
}

// The program that prepares weights writes a derived bind, which has a layout.
// CHECK-LABEL: emit.program @prepare attributes {phase = "planned", arena_bytes = 0 : i64} {
emit.program @prepare attributes {phase = "planned", arena_bytes = 0 : i64} {
  %w = emit.bind param "w" binding(staged) : !emit.buffer<8x4xf32, bound>
  // CHECK: emit.bind derived "w:packed_b" : !emit.buffer<8x4xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 512 : i64}>>
  %p = emit.bind derived "w:packed_b" : !emit.buffer<8x4xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 512 : i64}>>
  emit.resolved "pack" id(26) name("w:packed_b") src(["w"]) ins(%w : !emit.buffer<8x4xf32, bound>) outs(%p : !emit.buffer<8x4xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 512 : i64}>>)
}

// Every role of a bind, with the options it may have.
// CHECK-LABEL: emit.program @binds attributes {phase = "bufferized"} {
emit.program @binds attributes {phase = "bufferized"} {
  // CHECK-NEXT: %x = emit.bind input "x" binding(staged) : !emit.buffer<4xf32, bound> attributes {aicf.note = "kept"}
  %x = emit.bind input "x" binding(staged) : !emit.buffer<4xf32, bound> attributes {aicf.note = "kept"}
  // CHECK-NEXT: emit.bind output "x" binding(direct) : !emit.buffer<4xf16, bound>
  %y = emit.bind output "x" binding(direct) : !emit.buffer<4xf16, bound>
  // CHECK-NEXT: emit.bind output "a" binding(direct) align(16) : !emit.buffer<4xf16, bound>
  %a = emit.bind output "a" binding(direct) align(16) : !emit.buffer<4xf16, bound>
  // CHECK-NEXT: emit.bind param "w" updated : !emit.buffer<4xbf16, bound>
  %w = emit.bind param "w" updated : !emit.buffer<4xbf16, bound>
  // CHECK-NEXT: emit.bind state "s" binding(direct) updated : !emit.buffer<4xf64, bound>
  %s = emit.bind state "s" binding(direct) updated : !emit.buffer<4xf64, bound>
  // CHECK-NEXT: emit.bind meta "lr" : !emit.buffer<f32, bound>
  %l = emit.bind meta "lr" : !emit.buffer<f32, bound>
  // CHECK-NEXT: emit.bind param "col" : !emit.buffer<2x3xf32, bound, strides [1, 2]>
  %c = emit.bind param "col" : !emit.buffer<2x3xf32, bound, strides [1, 2]>
}

// Values of constants: splats, lists, and bits that are no number; equal elements are a splat.
// CHECK-LABEL: emit.program @constants
emit.program @constants attributes {phase = "bufferized"} {
  // CHECK-NEXT: emit.bind const "one" value(dense<1.000000e+00>) : !emit.buffer<4x8xf32, const>
  %0 = emit.bind const "one" value(dense<1.0>) : !emit.buffer<4x8xf32, const>
  // CHECK-NEXT: emit.bind const "inf" value(dense<0x7f800000>) : !emit.buffer<4xf32, const>
  %1 = emit.bind const "inf" value(dense<0x7F800000>) : !emit.buffer<4xf32, const>
  // CHECK-NEXT: emit.bind const "mixed" value(dense<[0xff800000, 0x7fc00000, -0.000000e+00]>) : !emit.buffer<3xf32, const>
  %2 = emit.bind const "mixed" value(dense<[0xFF800000, 0x7FC00000, -0.0]>) : !emit.buffer<3xf32, const>
  // CHECK-NEXT: emit.bind const "nans" value(dense<0x7fc00000>) : !emit.buffer<2xf32, const>
  %3 = emit.bind const "nans" value(dense<[0x7FC00000, 0x7FC00000]>) : !emit.buffer<2xf32, const>
  // CHECK-NEXT: emit.bind const "f64" value(dense<0x7ff0000000000000>) : !emit.buffer<2xf64, const>
  %4 = emit.bind const "f64" value(dense<0x7FF0000000000000>) : !emit.buffer<2xf64, const>
  // CHECK-NEXT: emit.bind const "f16" value(dense<[0xfc00, 1.000000e+00]>) : !emit.buffer<2xf16, const>
  %5 = emit.bind const "f16" value(dense<[0xFC00, 1.0]>) : !emit.buffer<2xf16, const>
  // CHECK-NEXT: emit.bind const "bf16" value(dense<[0x7fc0, 1.000000e+00]>) : !emit.buffer<2xbf16, const>
  %6 = emit.bind const "bf16" value(dense<[0x7FC0, 1.0]>) : !emit.buffer<2xbf16, const>
  // CHECK-NEXT: emit.bind const "int" value(dense<{{\[\[}}16, -2], [3, 4]]>) : !emit.buffer<2x2xi8, const>
  %7 = emit.bind const "int" value(dense<[[0x10, -2], [3, 4]]>) : !emit.buffer<2x2xi8, const>
  // CHECK-NEXT: emit.bind const "bool" value(dense<[true, false]>) : !emit.buffer<2xi1, const>
  %8 = emit.bind const "bool" value(dense<[true, false]>) : !emit.buffer<2xi1, const>
}

// Slots undecided and decided; views that reshape, transpose, broadcast and run backwards.
// CHECK-LABEL: emit.program @places
emit.program @places attributes {phase = "inplace"} {
  // CHECK-NEXT: %a = emit.slot : !emit.buffer<4x8xf32, arena>
  %a = emit.slot : !emit.buffer<4x8xf32, arena>
  // CHECK-NEXT: %b = emit.slot offset(64) size(32) align(64) : !emit.buffer<8xf32, arena> attributes {aicf.note = "kept"}
  %b = emit.slot offset(64) size(32) align(64) : !emit.buffer<8xf32, arena> attributes {aicf.note = "kept"}
  // CHECK-NEXT: emit.view %a offset(0) : !emit.buffer<4x8xf32, arena> to !emit.buffer<8x4xf32, arena, strides [1, 8]> attributes {aicf.note = "kept"}
  %t = emit.view %a offset(0) : !emit.buffer<4x8xf32, arena> to !emit.buffer<8x4xf32, arena, strides [1, 8]> attributes {aicf.note = "kept"}
  // CHECK-NEXT: emit.view %b offset(3) : !emit.buffer<8xf32, arena> to !emit.buffer<7x5xf32, arena, strides [0, 1]>
  %c = emit.view %b offset(3) : !emit.buffer<8xf32, arena> to !emit.buffer<7x5xf32, arena, strides [0, 1]>
  // CHECK-NEXT: %d = emit.view %b offset(7) : !emit.buffer<8xf32, arena> to !emit.buffer<8xf32, arena, strides [-1]>
  %d = emit.view %b offset(7) : !emit.buffer<8xf32, arena> to !emit.buffer<8xf32, arena, strides [-1]>
  // CHECK-NEXT: emit.view %d offset(-7) : !emit.buffer<8xf32, arena, strides [-1]> to !emit.buffer<8xf32, arena>
  %e = emit.view %d offset(-7) : !emit.buffer<8xf32, arena, strides [-1]> to !emit.buffer<8xf32, arena>
}

// The stride of a dim of size 1, and all strides of an empty buffer, are the contiguous ones.
// CHECK-LABEL: emit.program @strides
emit.program @strides attributes {phase = "bufferized"} {
  // CHECK-NEXT: emit.slot : !emit.buffer<1x64xf32, arena>
  %a = emit.slot : !emit.buffer<1x64xf32, arena, strides [7, 1]>
  // CHECK-NEXT: emit.slot : !emit.buffer<4x1x3xf32, arena, strides [100, 3, 1]>
  %b = emit.slot : !emit.buffer<4x1x3xf32, arena, strides [100, 9, 1]>
  // CHECK-NEXT: emit.slot : !emit.buffer<0x3xf32, arena>
  %c = emit.slot : !emit.buffer<0x3xf32, arena, strides [7, 1]>
}

// An instruction with every field, in the order of the printer.
// CHECK-LABEL: emit.program @every_field attributes {phase = "final", arena_bytes = 4096 : i64, graphs = {{\[\[}}"first"], ["second"]], aicf.note = "kept"} {
emit.program @every_field attributes {graphs = [["first"], ["second"]], aicf.note = "kept", arena_bytes = 4096 : i64, phase = "final"} {
  %x = emit.bind input "x" binding(direct) : !emit.buffer<4x8xf32, bound>
  %w = emit.bind param "w" binding(direct) : !emit.buffer<16x8xf32, bound>
  %y = emit.bind output "y" binding(direct) : !emit.buffer<4x16xf32, bound>
  %s = emit.slot offset(0) size(1024) align(64) : !emit.buffer<1024xi8, arena>
  // CHECK:      emit.resolved "gemm_epilogue" id(17) name("first") src(["fc1", "relu1"])
  // CHECK-NEXT:   ins(%x, %w : !emit.buffer<4x8xf32, bound>, !emit.buffer<16x8xf32, bound>) outs(%y : !emit.buffer<4x16xf32, bound>) ws(%s : !emit.buffer<1024xi8, arena>)
  // CHECK-NEXT:   attrs {transpose_a = false, transpose_b = true, bias = false, residual = false, activation = "relu"} schema("gemm_epilogue.v1") blob("0x0001000001")
  // CHECK-NEXT:   body(@fc1.body) code(@fc1.code) prologue(@fc1.rows)
  // CHECK-NEXT:   kernel("cpu.gemm", {version = 1 : i64, determinism = "bitwise", layouts = [unit, #emit.layout<"packed_b", {bytes = 512 : i64}>], workspace_bytes = 1024 : i64, threads = 2 : i64, may_alias = {{\[\[}}0 : i64, 0 : i64]]})
  // CHECK-NEXT:   expected_us(5.3)
  // CHECK-NEXT:   constraints {may_alias = {{\[\[}}0 : i64, 1 : i64]]} hints {note = "tuned"}
  // CHECK-NEXT:   stream(1) after([]) attributes {aicf.note = "kept"}
  emit.resolved "gemm_epilogue" name("first") after([]) stream(1) hints {note = "tuned"} expected_us(5.3) constraints {may_alias = [[0 : i64, 1 : i64]]}
    kernel("cpu.gemm", {version = 1 : i64, determinism = "bitwise", layouts = [unit, #emit.layout<"packed_b", {bytes = 512 : i64}>], workspace_bytes = 1024 : i64, threads = 2 : i64, may_alias = [[0 : i64, 0 : i64]]})
    prologue(@fc1.rows) code(@fc1.code) body(@fc1.body) src(["fc1", "relu1"]) id(17)
    ws(%s : !emit.buffer<1024xi8, arena>) outs(%y : !emit.buffer<4x16xf32, bound>) ins(%x, %w : !emit.buffer<4x8xf32, bound>, !emit.buffer<16x8xf32, bound>)
    blob("0x0001000001") schema("gemm_epilogue.v1") attrs {transpose_a = false, transpose_b = true, bias = false, residual = false, activation = "relu"}
    attributes {aicf.note = "kept"}
  // Edges are printed with or without a stream.
  // CHECK-NEXT: emit.resolved "relu" id(1) name("second") src(["relu2"])
  // CHECK-NEXT:   ins() outs(%y : !emit.buffer<4x16xf32, bound>)
  // CHECK-NEXT:   after(["first" full, "first" programmatic])
  emit.resolved "relu" id(1) name("second") src(["relu2"]) outs(%y : !emit.buffer<4x16xf32, bound>) after(["first" full, "first" programmatic])
}

// A kernel with kept values: %e varies over the reduce space and is used in a later phase.
// CHECK-LABEL: emit.kernel @softmax.code parallel [540] reduce [10] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0, d1)>] attributes {aicf.note = "kept"} {
emit.kernel @softmax.code parallel [540] reduce [10] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0, d1)>] attributes {aicf.note = "kept"} {
^bb0(%x : f32):
  // CHECK: %m = emit.phase -> f32 attributes {aicf.note = "kept"} {
  %m = emit.phase -> f32 attributes {aicf.note = "kept"} {
    // CHECK-NEXT: emit.reduce "max" %x {aicf.note = "kept"} : f32
    %0 = emit.reduce "max" %x {aicf.note = "kept"} : f32
    emit.yield %0 : f32
  }
  // CHECK: %s, %k = emit.phase -> f32, f32 {
  %s, %k = emit.phase -> f32, f32 {
    %a = arith.subf %x, %m : f32
    %e = math.exp %a : f32
    %c = emit.reduce "sum" %e : f32
    emit.yield %c, %e : f32, f32
  }
  // CHECK: emit.phase {
  emit.phase {
    %y = arith.divf %k, %s : f32
    // CHECK: emit.store %y, 0 : f32 attributes {aicf.note = "kept"}
    emit.store %y, 0 : f32 attributes {aicf.note = "kept"}
    emit.yield
  }
}

// Index maps shift, scale and divide; scalar ops of this dialect; a constant that is no number.
// CHECK-LABEL: emit.kernel @scalars parallel [4, 6] reduce [] ins [affine_map<(d0, d1) -> (((d0 * 2) + 1), (d1 floordiv 2))>, affine_map<(d0, d1) -> ()>] outs [affine_map<(d0, d1) -> (d1, d0)>] {
emit.kernel @scalars parallel [4, 6] reduce [] ins [affine_map<(d0, d1) -> (d0 * 2 + 1, d1 floordiv 2)>, affine_map<(d0, d1) -> ()>] outs [affine_map<(d0, d1) -> (d1, d0)>] {
^bb0(%x : f32, %n : i32):
  emit.phase {
    // CHECK: emit.sigmoid %x {aicf.note = "kept"} : f32
    %a = emit.sigmoid %x {aicf.note = "kept"} : f32
    // CHECK-NEXT: emit.div_int %n, %n {aicf.note = "kept"} : i32
    %b = emit.div_int %n, %n {aicf.note = "kept"} : i32
    // CHECK-NEXT: emit.shift_left %n, %b {aicf.note = "kept"} : i32
    %l = emit.shift_left %n, %b {aicf.note = "kept"} : i32
    // CHECK-NEXT: emit.shift_right %l, %b {aicf.note = "kept"} : i32
    %r = emit.shift_right %l, %b {aicf.note = "kept"} : i32
    // CHECK-NEXT: emit.bitcast %r {aicf.note = "kept"} : i32 to f32
    %t = emit.bitcast %r {aicf.note = "kept"} : i32 to f32
    // CHECK-NEXT: emit.cast %b {aicf.note = "kept"} : i32 to f32
    %c = emit.cast %b {aicf.note = "kept"} : i32 to f32
    // CHECK-NEXT: emit.index 1 : i64 attributes {aicf.note = "kept"}
    %j = emit.index 1 : i64 attributes {aicf.note = "kept"}
    // CHECK-NEXT: emit.philox %j, %j, %j {aicf.note = "kept"}
    %w = emit.philox %j, %j, %j {aicf.note = "kept"}
    // CHECK-NEXT: arith.constant 0xff800000 : f32
    %i = arith.constant 0xFF800000 : f32
    %d = arith.addf %a, %c : f32
    %e = arith.maximumf %d, %i : f32
    emit.store %e, 0 : f32
    emit.yield
  }
}

// Prefix sums: with the point itself or without, from the first point or from the last; stored and reduced where they are.
// CHECK-LABEL: emit.kernel @scans
emit.kernel @scans parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  // CHECK: emit.scan "sum" reverse %x {aicf.note = "kept"} : f32
  %m = emit.phase -> f32 {
    %a = emit.scan "sum" reverse %x {aicf.note = "kept"} : f32
    emit.store %a, 0 : f32
    %m = emit.reduce "max" %a : f32
    emit.yield %m : f32
  }
  // CHECK: emit.scan "sum" %x : f32
  // CHECK-NEXT: emit.scan "sum" exclusive %x : f32
  emit.phase {
    %b = emit.scan "sum" %x : f32
    %c = emit.scan "sum" exclusive %x : f32
    %s = emit.reduce "sum" %c : f32
    emit.store %m, 1 : f32
    emit.yield
  }
}

// Sums of columns beside sums of rows: outputs that follow the reduce dims alone, made of what each point computes.
// CHECK-LABEL: emit.kernel @columns
emit.kernel @columns parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d1)>] {
^bb0(%x : f32):
  // CHECK: emit.accumulate "sum" %x, 0 : f32 attributes {aicf.note = "kept"}
  %m = emit.phase -> f32 {
    emit.accumulate "sum" %x, 0 : f32 attributes {aicf.note = "kept"}
    %m = emit.reduce "max" %x : f32
    emit.yield %m : f32
  }
  // CHECK: emit.accumulate "min" %{{.*}}, 2 : f32
  emit.phase {
    %c = arith.subf %x, %m : f32
    emit.store %m, 1 : f32
    emit.accumulate "min" %c, 2 : f32
    emit.yield
  }
}

// The ledger and its entries; keys and nested strings are any text.
// CHECK-LABEL: emit.ledger attributes {aicf.note = "kept"} {
emit.ledger attributes {aicf.note = "kept"} {
  // CHECK-NEXT: emit.decision "schedule" [] choice "" because ""
  emit.decision "schedule" [] choice "" because ""
  // CHECK-NEXT: emit.decision "select-kernels" ["fc1", "fc2"] choice "cpu.gemm" because "cheapest" rejected {"cpu.gemm mr=4" = "slow", a = "\22b\22"} cost {us = 3.000000e-01 : f64, nested = {x = [1 : i64, 2.500000e+00 : f64]}, bare} attributes {aicf.round = 1 : i64}
  emit.decision "select-kernels" ["fc1", "fc2"] choice "cpu.gemm" because "cheapest" rejected {"cpu.gemm mr=4" = "slow", a = "\"b\""} cost {us = 0.3 : f64, nested = {x = [1 : i64, 2.5 : f64]}, bare} attributes {aicf.round = 1 : i64}
  // CHECK-NEXT: emit.decision "p \C3\A9" ["\C3\A9"] choice "\E2\86\92" because "a\0Ab" rejected {"\C3\A9" = "\C3\A9"} cost {k = ["\C3\A9", {"\C3\A9" = "\C3\A9"}]}
  emit.decision "p é" ["é"] choice "→" because "a\nb" rejected {"é" = "é"} cost {k = ["é", {"é" = "é"}]}
}
}

// A kernel that reads one operand at computed indices, guarded and not.
// CHECK-LABEL: emit.kernel @reads parallel [5] reduce [] ins [indexed, affine_map<(d0) -> (d0)>] outs [affine_map<(d0) -> (d0)>] {
emit.kernel @reads parallel [5] reduce [] ins [indexed, affine_map<(d0) -> (d0)>] outs [affine_map<(d0) -> (d0)>] {
^bb0(%t : memref<4x8xf32>, %x : f32):
  emit.phase {
    %i = emit.index 0 : i32
    %n = arith.constant 4 : i32
    %c = arith.cmpi ult, %i, %n : i32
    // CHECK: %v = emit.load %t[%i, %n] if %c else %x : memref<4x8xf32>, i32 attributes {aicf.note = "kept"}
    %v = emit.load %t[%i, %n] if %c else %x : memref<4x8xf32>, i32 attributes {aicf.note = "kept"}
    // CHECK-NEXT: %w = emit.load %t[%n, %n] : memref<4x8xf32>, i32
    %w = emit.load %t[%n, %n] : memref<4x8xf32>, i32
    %s = arith.addf %v, %w : f32
    emit.store %s, 0 : f32
    emit.yield
  }
}

// What the executable computes: by formulas of metas and numbers, or as what it keeps for the next run; and a start value.
// CHECK-LABEL: emit.program @metas
emit.program @metas attributes {phase = "bufferized"} {
  // CHECK-NEXT: %step = emit.bind meta "step" host({next = "n\C3\A9w"}) : !emit.buffer<i64, bound>
  %step = emit.bind meta "step" host({next = "néw"}) : !emit.buffer<i64, bound>
  // CHECK-NEXT: emit.bind meta "flag" updated value(dense<3>) host({next = "n\C3\A9w"}) : !emit.buffer<i64, bound>
  %flag = emit.bind meta "flag" updated value(dense<3>) host({next = "néw"}) : !emit.buffer<i64, bound>
  // CHECK-NEXT: emit.bind meta "n\C3\A9w" host({formula = "mul", of = ["step", 3 : i64]}) : !emit.buffer<i64, bound>
  %new = emit.bind meta "néw" host({formula = "mul", of = ["step", 3 : i64]}) : !emit.buffer<i64, bound>
  // CHECK-NEXT: emit.bind meta "rate" host({formula = "learning_rate", of = ["n\C3\A9w"], schedule = "constant", base = 1.000000e-01 : f64, warmup = 0 : i64, total = 0 : i64, final = 0.000000e+00 : f64}) : !emit.buffer<f64, bound>
  %rate = emit.bind meta "rate" host({formula = "learning_rate", of = ["néw"], schedule = "constant", base = 0.1, warmup = 0, total = 0, final = 0.0}) : !emit.buffer<f64, bound>
}
