// RUN: aicf-opt %s --split-input-file --verify-diagnostics -p 'verify-emit' | filecheck %s

// A scheduled program states a stream for every instruction.
// CHECK: error: emit.resolved: instruction 'a' (from a.op) has no stream, but the program is scheduled; run schedule
emit.program @no_stream attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<8xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a.op"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%y : !emit.buffer<8xf32, bound>)
}

// -----

// A final program states a kernel for every instruction.
// CHECK: error: emit.resolved: instruction 'a' (from a.op) has no kernel, but the program is final; run select-kernels
emit.program @no_kernel attributes {phase = "final", arena_bytes = 0 : i64, graphs = [["a"]]} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<8xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a.op"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%y : !emit.buffer<8xf32, bound>)
    stream(0) after([])
}

// -----

// Two results on one buffer.
// CHECK: error: emit.resolved: instruction 'a' (from a.op): result 0 overlaps another result or the workspace
emit.program @results attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %s = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "generated" id(24) name("a") src(["a.op"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%s, %s : !emit.buffer<8xf32, arena>, !emit.buffer<8xf32, arena>)
    stream(0) after([])
}

// -----

// A result on the workspace.
// CHECK: error: emit.resolved: instruction 'a' (from a.op): result 0 overlaps another result or the workspace
emit.program @workspace attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %s = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a.op"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%s : !emit.buffer<8xf32, arena>) ws(%s : !emit.buffer<8xf32, arena>)
    stream(0) after([])
}

// -----

// The workspace on an operand.
// CHECK: error: emit.resolved: instruction 'b' (from b.op): the workspace overlaps an operand
emit.program @scratch attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<8xf32, bound>
  %s = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a.op"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%s : !emit.buffer<8xf32, arena>)
    stream(0) after([])
  emit.resolved "relu" id(1) name("b") src(["b.op"]) ins(%s : !emit.buffer<8xf32, arena>) outs(%y : !emit.buffer<8xf32, bound>) ws(%s : !emit.buffer<8xf32, arena>)
    stream(0) after(["a" full])
}

// -----

// A result on an operand, and a kernel that does not permit it.
// CHECK: error: emit.resolved: instruction 'b' (from b.op): result 0 overlaps operand 0, which its kernel does not permit; give the result a slot of its own
emit.program @overlap attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %s = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a.op"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%s : !emit.buffer<8xf32, arena>)
    stream(0) after([])
  emit.resolved "relu" id(1) name("b") src(["b.op"]) ins(%s : !emit.buffer<8xf32, arena>) outs(%s : !emit.buffer<8xf32, arena>)
    kernel("cpu.generated", {version = 1 : i64, determinism = "bitwise"}) stream(0) after(["a" full])
}

// -----

// Permission covers the same elements on the same bytes, not a shifted window.
// CHECK: error: emit.resolved: instruction 'b' (from b.op): result 0 overlaps operand 0 with another element-to-address map
emit.program @shifted attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %s = emit.slot : !emit.buffer<16xf32, arena>
  %l = emit.view %s offset(0) : !emit.buffer<16xf32, arena> to !emit.buffer<8xf32, arena>
  %h = emit.view %s offset(4) : !emit.buffer<16xf32, arena> to !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a.op"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%l : !emit.buffer<8xf32, arena>)
    stream(0) after([])
  emit.resolved "relu" id(1) name("b") src(["b.op"]) ins(%l : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>)
    constraints {may_alias = [[0 : i64, 0 : i64]]} stream(0) after(["a" full])
}

// -----

// Nor a transposition.
// CHECK: error: emit.resolved: instruction 'b' (from b.op): result 0 overlaps operand 0 with another element-to-address map
emit.program @turned attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<4x4xf32, bound>
  %s = emit.slot : !emit.buffer<4x4xf32, arena>
  %t = emit.view %s offset(0) : !emit.buffer<4x4xf32, arena> to !emit.buffer<4x4xf32, arena, strides [1, 4]>
  emit.resolved "relu" id(1) name("a") src(["a.op"]) ins(%x : !emit.buffer<4x4xf32, bound>) outs(%s : !emit.buffer<4x4xf32, arena>)
    stream(0) after([])
  emit.resolved "relu" id(1) name("b") src(["b.op"]) ins(%t : !emit.buffer<4x4xf32, arena, strides [1, 4]>) outs(%s : !emit.buffer<4x4xf32, arena>)
    constraints {may_alias = [[0 : i64, 0 : i64]]} stream(0) after(["a" full])
}

// -----

// Two slots with hand-edited offsets that meet.
// CHECK: error: emit.resolved: instruction 'b' (from b.op): result 0 overlaps operand 0 with another element-to-address map
emit.program @offsets attributes {phase = "planned", arena_bytes = 128 : i64} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %p = emit.slot offset(0) size(64) align(4) : !emit.buffer<8xf32, arena>
  %q = emit.slot offset(16) size(64) align(4) : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a.op"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%p : !emit.buffer<8xf32, arena>)
    stream(0) after([])
  emit.resolved "relu" id(1) name("b") src(["b.op"]) ins(%p : !emit.buffer<8xf32, arena>) outs(%q : !emit.buffer<8xf32, arena>)
    stream(0) after(["a" full])
}

// -----

// A kernel of another backend.
// CHECK: error: emit.resolved: instruction 'a' (from a.op): backend cpu has no kernel 'gpu.relu': import or install the package 'gpu' that defines it
builtin.module attributes {aicf.target = #emit.target<"cpu", "x86-64-v3", {threads = 1 : i64}>} {
emit.program @kernel attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<8xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a.op"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%y : !emit.buffer<8xf32, bound>)
    kernel("gpu.relu", {version = 1 : i64, determinism = "bitwise"}) stream(0) after([])
}
}

// -----

// A body that does not exist.
// CHECK: error: emit.resolved: instruction 'a' (from a.op): @missing is no emit.body
emit.program @no_body attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<8xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a.op"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%y : !emit.buffer<8xf32, bound>)
    body(@missing) stream(0) after([])
}

// -----

// Code that does not exist.
// CHECK: error: emit.resolved: instruction 'a' (from a.op): @missing is no emit.kernel
emit.program @no_code attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<8xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a.op"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%y : !emit.buffer<8xf32, bound>)
    code(@missing) stream(0) after([])
}

// -----

// A body for another shape.
// CHECK: error: emit.resolved: instruction 'a' (from a.op): its body is for other shapes or types than its buffers
emit.body @a.body {
^bb0(%v : tensor<9xf32>):
  %r = logical.relu %v : tensor<9xf32>
  emit.yield %r : tensor<9xf32>
}
emit.program @shape attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<8xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a.op"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%y : !emit.buffer<8xf32, bound>)
    body(@a.body) stream(0) after([])
}

// -----

// The body is authoritative for the kind.
// CHECK: error: emit.resolved: instruction 'a' (from a.op): it says relu {}, but its body @a.body is generated {}; the body is authoritative
emit.body @a.body {
^bb0(%v : tensor<8xf32>):
  %r = logical.exp %v : tensor<8xf32>
  emit.yield %r : tensor<8xf32>
}
emit.program @kind attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<8xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a.op"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%y : !emit.buffer<8xf32, bound>)
    body(@a.body) stream(0) after([])
}

// -----

// And for the attributes: this one says it sums the first axis.
// CHECK: error: emit.resolved: instruction 'a' (from a.op): it says reduce_sum {{.*}}first_axis = 0{{.*}}, but its body @a.body is reduce_sum {{.*}}; the body is authoritative
emit.body @a.body {
^bb0(%v : tensor<4x4xf32>):
  %r = logical.reduce_sum %v {axes = [1]} : tensor<4x4xf32> -> tensor<4xf32>
  emit.yield %r : tensor<4xf32>
}
emit.program @attrs attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<4x4xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<4xf32, bound>
  emit.resolved "reduce_sum" id(4) name("a") src(["a.op"]) ins(%x : !emit.buffer<4x4xf32, bound>) outs(%y : !emit.buffer<4xf32, bound>)
    attrs {first_axis = 0 : i64, axis_count = 1 : i64, keepdims = false} schema("reduce_sum.v1") blob("0x0000000000000000010000000000000000") body(@a.body) stream(0) after([])
}

// -----

// Code that computes something else than the body.
// CHECK: error: emit.resolved: instruction 'a' (from a.op): @a.code is not the code of its body; run generate-kernels again
emit.body @a.body {
^bb0(%v : tensor<8xf32>):
  %r = logical.exp %v : tensor<8xf32>
  emit.yield %r : tensor<8xf32>
}
emit.kernel @a.code parallel [8] reduce [] ins [affine_map<(d0) -> (d0)>] outs [affine_map<(d0) -> (d0)>] {
^bb0(%v : f32):
  emit.phase {
    %r = math.tanh %v : f32
    emit.store %r, 0 : f32
    emit.yield
  }
}
emit.program @code attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<8xf32, bound>
  emit.resolved "generated" id(24) name("a") src(["a.op"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%y : !emit.buffer<8xf32, bound>)
    body(@a.body) code(@a.code) stream(0) after([])
}

// -----

// Code for a body that has none.
// CHECK: error: emit.resolved: instruction 'a' (from a.op): its body has no generated code: logical.concat
emit.body @a.body {
^bb0(%v : tensor<8xf32>):
  %c = logical.concat %v, %v {axis = 0} : (tensor<8xf32>, tensor<8xf32>) -> tensor<16xf32>
  %r = logical.relu %c : tensor<16xf32>
  emit.yield %r : tensor<16xf32>
}
emit.kernel @a.code parallel [8] reduce [] ins [affine_map<(d0) -> (d0)>] outs [affine_map<(d0) -> (d0)>] {
^bb0(%v : f32):
  emit.phase {
    %r = math.tanh %v : f32
    emit.store %r, 0 : f32
    emit.yield
  }
}
emit.program @nocode attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<16xf32, bound>
  emit.resolved "generated" id(24) name("a") src(["a.op"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%y : !emit.buffer<16xf32, bound>)
    body(@a.body) code(@a.code) stream(0) after([])
}

// -----

// A row program where the left operand is one of the instruction's.
// CHECK: error: emit.resolved: instruction 'a' (from a.op): its body computes no left operand of a product in rows
emit.body @a.body {
^bb0(%v : tensor<4x8xf32>, %w : tensor<8x4xf32>):
  %r = logical.matmul %v, %w : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  emit.yield %r : tensor<4x4xf32>
}
emit.kernel @a.rows parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0, d1)>] {
^bb0(%v : f32):
  emit.phase {
    %r = math.tanh %v : f32
    emit.store %r, 0 : f32
    emit.yield
  }
}
emit.program @norows attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<4x8xf32, bound>
  %w = emit.bind param "w" : !emit.buffer<8x4xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<4x4xf32, bound>
  emit.resolved "gemm" id(2) name("a") src(["a.op"]) ins(%x, %w : !emit.buffer<4x8xf32, bound>, !emit.buffer<8x4xf32, bound>) outs(%y : !emit.buffer<4x4xf32, bound>)
    attrs {transpose_a = false, transpose_b = false} schema("gemm.v1") blob("0x0000") body(@a.body) prologue(@a.rows) stream(0) after([])
}

// -----

// A row program of another body.
// CHECK: error: emit.resolved: instruction 'a' (from a.op): @a.rows is not the code of its body; run generate-kernels again
emit.body @a.body {
^bb0(%v : tensor<4x8xf32>, %w : tensor<8x4xf32>):
  %s = logical.reduce_max %v {axes = [1]} : tensor<4x8xf32> -> tensor<4xf32>
  %t = logical.broadcast %s {dimensions = [0]} : tensor<4xf32> -> tensor<4x8xf32>
  %d = logical.sub %v, %t : tensor<4x8xf32>
  %r = logical.matmul %d, %w : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  emit.yield %r : tensor<4x4xf32>
}
emit.kernel @a.rows parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0, d1)>] {
^bb0(%v : f32):
  emit.phase {
    %r = math.tanh %v : f32
    emit.store %r, 0 : f32
    emit.yield
  }
}
emit.program @otherrows attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<4x8xf32, bound>
  %w = emit.bind param "w" : !emit.buffer<8x4xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<4x4xf32, bound>
  emit.resolved "norm_gemm" id(28) name("a") src(["a.op"]) ins(%x, %w : !emit.buffer<4x8xf32, bound>, !emit.buffer<8x4xf32, bound>) outs(%y : !emit.buffer<4x4xf32, bound>)
    attrs {transpose_a = false, transpose_b = false, prologue_operands = 0 : i64} schema("norm_gemm.v1") blob("0x00000000000000000000") body(@a.body) prologue(@a.rows) stream(0) after([])
}

// -----

// A planned program says how large its arena is.
// CHECK: error: program @no_arena is planned but states no arena_bytes
emit.program @no_arena attributes {phase = "planned"} {
}

// -----

// A slot of a planned program has a place.
// CHECK: error: emit.slot: a slot of a planned program needs offset, size and align; run plan-memory
emit.program @no_offset attributes {phase = "planned", arena_bytes = 64 : i64} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %s = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a.op"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%s : !emit.buffer<8xf32, arena>)
    stream(0) after([])
}

// -----

// Its size holds its buffer.
// CHECK: error: emit.slot: slot of 16 bytes holds a buffer of 32
emit.program @slot attributes {phase = "planned", arena_bytes = 64 : i64} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %s = emit.slot offset(0) size(16) align(4) : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a.op"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%s : !emit.buffer<8xf32, arena>)
    stream(0) after([])
}

// -----

// It lies in the arena.
// CHECK: error: emit.slot: slot at 64 of 64 bytes leaves the arena of 64
emit.program @slot attributes {phase = "planned", arena_bytes = 64 : i64} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %s = emit.slot offset(64) size(64) align(64) : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a.op"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%s : !emit.buffer<8xf32, arena>)
    stream(0) after([])
}

// -----

// It is aligned.
// CHECK: error: emit.slot: slot at 8 is not aligned to 64
emit.program @slot attributes {phase = "planned", arena_bytes = 64 : i64} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %s = emit.slot offset(8) size(32) align(64) : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a.op"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%s : !emit.buffer<8xf32, arena>)
    stream(0) after([])
}

// -----

// A kernel that is for another kind of work, written by hand: select-kernels leaves a kernel where it is.
// CHECK: error: emit.resolved: instruction 'mine' (from mine): kernel 'cpu.concat' cannot run it as its record says: it runs no generated; correct the record, or leave kernel(...) out for select-kernels
builtin.module attributes {aicf.target = #emit.target<"cpu", "x86-64-v3", {threads = 1 : i64}>} {
  emit.body @total {
  ^bb0(%a : tensor<4x8xf32>):
    %1 = logical.exp %a : tensor<4x8xf32>
    %2 = logical.reduce_sum %1 {axes = [1]} : tensor<4x8xf32> -> tensor<4xf32>
    emit.yield %2 : tensor<4xf32>
  }
  emit.program @f attributes {phase = "scheduled"} {
    %x = emit.bind input "x" : !emit.buffer<4x8xf32, bound>
    %y = emit.bind output "y" : !emit.buffer<4xf32, bound>
    emit.resolved "generated" id(24) name("mine") src(["mine"]) ins(%x : !emit.buffer<4x8xf32, bound>) outs(%y : !emit.buffer<4xf32, bound>) kernel("cpu.concat", {version = 1 : i64, determinism = "bitwise"}) body(@total) stream(0) after([])
  }
}

// -----

// A result whose elements share addresses.
// CHECK: error: emit.resolved: instruction 'a' (from a.op): result 0 has strides [4, 0], by which elements of it share an address; give it strides that keep them apart
emit.program @shared attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<2x4xf32, bound>
  %s = emit.slot : !emit.buffer<2x4xf32, arena, strides [4, 0]>
  emit.resolved "relu" id(1) name("a") src(["a.op"]) ins(%x : !emit.buffer<2x4xf32, bound>) outs(%s : !emit.buffer<2x4xf32, arena, strides [4, 0]>)
    stream(0) after([])
}
