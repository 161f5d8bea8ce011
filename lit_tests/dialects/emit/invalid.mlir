// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

// What the emit dialect refuses, with the message a user gets: one program, one line of purpose.

// Buffers

// A buffer lives in one of three spaces.
// CHECK: error: buffer space must be one of bound, arena, const, got 'shared'
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, shared>
}

// -----

// Elements are those of the element table.
// CHECK: error: element type i4 is not supported; use one of f64, f32, f16, bf16, f8E4M3FN, f8E5M2, i64, i32, i16, i8, u8, i1
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xi4, arena>
}

// -----

// A tensor is no element.
// CHECK: error: expected an element type, got tensor<4xf32>
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xtensor<4xf32>, arena>
}

// -----

// Sizes are static.
// CHECK: error: buffer sizes are static and not negative; specialize-shapes binds symbolic sizes
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<?x4xf32, arena>
}

// -----

// A buffer is no larger than an address space.
// CHECK: error: the buffer takes 399999999920000000004 bytes; the largest takes 140737488355328 (2^47)
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<9999999999x9999999999xf32, arena>
}

// -----

// Strides do not reach further than an address space.
// CHECK: error: the buffer takes 27999999999999976 bytes; the largest takes 140737488355328 (2^47)
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena, strides [999999999999999]>
}

// -----

// One stride per dimension.
// CHECK: error: buffer has 2 sizes but 1 strides
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8x2xf32, arena, strides [1]>
}

// -----

// Strides are integers.
// CHECK: error: expected integer literal
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<4x2xf32, arena, strides [1, true]>
}

// -----

// Strides are given once.
// CHECK: error: 'strides' is given twice
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<4x2xf32, arena, strides [1, 4], strides [1, 4]>
}

// -----

// A layout is given once.
// CHECK: error: 'layout' is given twice
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, const, layout #emit.layout<"q", {bytes = 32 : i64}>, layout #emit.layout<"q", {bytes = 32 : i64}>>
}

// -----

// A layout is a layout.
// CHECK: error: expected #emit.layout<...>
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, const, layout 5 : i64>
}

// -----

// A layout says its size.
// CHECK: error: layout 'q' needs its size, bytes = n : i64
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, const, layout #emit.layout<"q">>
}

// -----

// Prepared memory has no strides.
// CHECK: error: a buffer has strides or a layout, not both
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<4x2xf32, const, strides [1, 4], layout #emit.layout<"q", {bytes = 32 : i64}>>
}

// -----

// Binds

// A role is one of seven.
// CHECK: error: emit.bind role must be one of input, output, param, state, meta, const, derived, got 'weight'
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind weight "x" : !emit.buffer<8xf32, bound>
}

// -----

// A binding is direct or staged.
// CHECK: error: emit.bind: binding must be one of direct, staged, got 'lazy'
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind input "x" binding(lazy) : !emit.buffer<8xf32, bound>
}

// -----

// What is staged comes from any address.
// CHECK: error: emit.bind: only a direct input or output states an alignment, 'x' is neither
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind input "x" binding(staged) align(16) : !emit.buffer<8xf32, bound>
}

// -----

// Weights lie in memory of ours.
// CHECK: error: emit.bind: only a direct input or output states an alignment, 'w' is neither
emit.program @p attributes {phase = "bufferized"} {
  %w = emit.bind param "w" binding(direct) align(16) : !emit.buffer<8xf32, bound>
}

// -----

// An alignment is a power of two.
// CHECK: error: emit.bind: the alignment of 'x' must be a power of two, got 24
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind input "x" binding(direct) align(24) : !emit.buffer<8xf32, bound>
}

// -----

// An option of a bind is given once.
// CHECK: error: 'binding' is given twice
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind input "x" binding(direct) binding(direct) : !emit.buffer<8xf32, bound>
}

// -----

// Only a param or a state is updated.
// CHECK: error: emit.bind: only a param, state or meta can be updated, 'x' is input
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind input "x" updated : !emit.buffer<8xf32, bound>
}

// -----

// A bind is no arena memory.
// CHECK: error: emit.bind: input 'x' is a buffer in space 'bound', got 'arena'
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, arena>
}

// -----

// A constant is in space const.
// CHECK: error: emit.bind: const 'x' is a buffer in space 'const', got 'bound'
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind const "x" value(dense<1.0>) : !emit.buffer<8xf32, bound>
}

// -----

// Nothing but a derived bind has a layout.
// CHECK: error: emit.bind: only a derived bind has a layout; 'x' is param
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind param "x" : !emit.buffer<8xf32, bound, layout #emit.layout<"q", {bytes = 32 : i64}>>
}

// -----

// A bind starts at its first element.
// CHECK: error: emit.bind: a buffer starts at its first element; see it backwards through emit.view
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind param "x" : !emit.buffer<8xf32, bound, strides [-1]>
}

// -----

// A constant has a value.
// CHECK: error: emit.bind: a const bind carries a value, and a meta may; no other does
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind const "x" : !emit.buffer<8xf32, const>
}

// -----

// Only a constant has a value.
// CHECK: error: emit.bind: a const bind carries a value, and a meta may; no other does
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind param "x" value(dense<1.0>) : !emit.buffer<8xf32, bound>
}

// -----

// A value fits the shape of its buffer.
// CHECK: error: emit.bind: the value has shape 3, the type 4
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind const "x" value(dense<[1.0, 2.0, 3.0]>) : !emit.buffer<4xf32, const>
}

// -----

// A value fits the elements of its buffer.
// CHECK: error: emit.bind: 300 is no i8
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind const "x" value(dense<300>) : !emit.buffer<4xi8, const>
}

// -----

// The bits of a value fit its elements.
// CHECK: error: emit.bind: the string is not the bytes of f32 elements in hexadecimal
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind const "x" value(dense<"0x0011">) : !emit.buffer<4xf32, const>
}

// -----

// The type of a value is that of its buffer.
// CHECK: error: emit.bind: const 'x' holds f32, its value i32
emit.program @p attributes {phase = "bufferized"} {
  %x = "emit.bind"() <{role = "const", bind_name = "x", value = dense<1> : tensor<4xi32>}> : () -> !emit.buffer<4xf32, const>
}

// -----

// Two binds that are read have two names.
// CHECK: error: emit.program: 2 binds are named 'x'
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %y = emit.bind param "x" : !emit.buffer<8xf32, bound>
}

// -----

// Two outputs have two names.
// CHECK: error: emit.program: 2 outputs are named 'x'
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind output "x" : !emit.buffer<8xf32, bound>
  %y = emit.bind output "x" : !emit.buffer<8xf32, bound>
}

// -----

// A string is UTF-8.
// CHECK: error: the string is not UTF-8
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind input "\FF" : !emit.buffer<8xf32, bound>
}

// -----

// Slots and views

// A slot is arena memory.
// CHECK: error: emit.slot is a plain buffer in space 'arena'; other memory is bound by emit.bind
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, bound>
}

// -----

// An offset is not negative.
// CHECK: error: emit.slot: offset is not negative, got -8
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot offset(-8) size(32) : !emit.buffer<8xf32, arena>
}

// -----

// A size is not negative.
// CHECK: error: emit.slot: size is not negative, got -32
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot size(-32) : !emit.buffer<8xf32, arena>
}

// -----

// An alignment is a power of two.
// CHECK: error: emit.slot: align is a power of two, got 48
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot align(48) : !emit.buffer<8xf32, arena>
}

// -----

// An offset is an integer.
// CHECK: error: expected integer literal
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot offset(true) : !emit.buffer<8xf32, arena>
}

// -----

// An offset fits i64.
// CHECK: error: 99999999999999999999 does not fit i64
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot offset(99999999999999999999) : !emit.buffer<8xf32, arena>
}

// -----

// Places are i64.
// CHECK: error: emit.slot: Expected attribute i64 but got index
emit.program @p attributes {phase = "bufferized"} {
  %h = "emit.slot"() <{offset = 5 : index}> : () -> !emit.buffer<8xf32, arena>
}

// -----

// A slot starts at its first element.
// CHECK: error: emit.slot: a buffer starts at its first element; see it backwards through emit.view
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena, strides [-1]>
}

// -----

// A view does not reach past the end.
// CHECK: error: emit.view reaches elements 1 to 9 of a buffer that has 0 to 8, ends not included
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  %v = emit.view %h offset(1) : !emit.buffer<8xf32, arena> to !emit.buffer<8xf32, arena>
}

// -----

// A view does not start before the beginning.
// CHECK: error: emit.view reaches elements -1 to 7 of a buffer that has 0 to 8, ends not included
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  %v = emit.view %h offset(-1) : !emit.buffer<8xf32, arena> to !emit.buffer<8xf32, arena>
}

// -----

// A view with a negative stride does not reach below the beginning.
// CHECK: error: emit.view reaches elements -1 to 7 of a buffer that has 0 to 8, ends not included
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  %v = emit.view %h offset(6) : !emit.buffer<8xf32, arena> to !emit.buffer<8xf32, arena, strides [-1]>
}

// -----

// A view keeps the element type.
// CHECK: error: emit.view keeps the element type and the space
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  %v = emit.view %h offset(0) : !emit.buffer<8xf32, arena> to !emit.buffer<8xi32, arena>
}

// -----

// A view gives a buffer.
// CHECK: error: emit.view gives a !emit.buffer
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  %v = emit.view %h offset(0) : !emit.buffer<8xf32, arena> to i32
}

// -----

// Instructions

// A kind is one of the table.
// CHECK: error: emit.resolved: instruction 'a': unknown kind 'rule'; kinds are words such as gemm or softmax
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "rule" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>)
}

// -----

// A kind has its number.
// CHECK: error: emit.resolved: instruction 'a': kind 'relu' has id 1, not 2
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(2) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>)
}

// -----

// The number is an integer.
// CHECK: error: expected integer literal
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(true) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>)
}

// -----

// An instruction names what it stands for.
// CHECK: error: emit.resolved: instruction 'a': it names no source op (src)
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src([]) outs(%h : !emit.buffer<8xf32, arena>)
}

// -----

// An instruction has a name.
// CHECK: error: emit.resolved needs name(...)
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) src(["a"]) outs(%h : !emit.buffer<8xf32, arena>)
}

// -----

// An instruction defines something.
// CHECK: error: emit.resolved: instruction 'a': it defines nothing
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>)
}

// -----

// A field is given once.
// CHECK: error: 'stream' is given twice
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>) stream(0) stream(1)
}

// -----

// A kind with attributes has a schema.
// CHECK: error: emit.resolved: instruction 'a': kind 'gemm' has schema "gemm.v1", not ""
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "gemm" id(2) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>)
}

// -----

// The schema is that of the kind.
// CHECK: error: emit.resolved: instruction 'a': kind 'relu' has schema "", not "softmax.v1"
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>) attrs {axis = 3 : i64} schema("softmax.v1") blob("0x0300000000000000")
}

// -----

// Attributes are those of the schema.
// CHECK: error: emit.resolved: instruction 'a': attribute 'axis' must be an i64, got 3 : i32
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "softmax" id(18) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>) attrs {axis = 3 : i32} schema("softmax.v1") blob("0x03000000")
}

// -----

// The blob is the packed attributes.
// CHECK: error: emit.resolved: instruction 'a': blob 0x0400000000000000 is not attrs packed by softmax.v1 (0x0300000000000000)
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "softmax" id(18) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>) attrs {axis = 3 : i64} schema("softmax.v1") blob("0x0400000000000000")
}

// -----

// A blob is lower-case hexadecimal.
// CHECK: error: emit.resolved: instruction 'a': a blob is 0x and pairs of lower-case hexadecimal digits, got '0x0A01'
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "gemm" id(2) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>) attrs {transpose_a = false, transpose_b = true} schema("gemm.v1") blob("0x0A01")
}

// -----

// A blob starts with 0x and has no spaces.
// CHECK: error: emit.resolved: instruction 'a': a blob is 0x and pairs of lower-case hexadecimal digits, got '00 01'
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "gemm" id(2) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>) attrs {transpose_a = false, transpose_b = true} schema("gemm.v1") blob("00 01")
}

// -----

// A stream is not negative.
// CHECK: error: emit.resolved: instruction 'a': stream is not negative, got -1
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>) stream(-1) after([])
}

// -----

// An instruction does not wait for itself.
// CHECK: error: emit.resolved: instruction 'a': it cannot come after itself
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>) after(["a" full])
}

// -----

// An edge is full or programmatic.
// CHECK: error: edge kind must be one of full, programmatic, got 'weak'
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>) after(["b" weak])
}

// -----

// Aliases are pairs.
// CHECK: error: emit.resolved: instruction 'a': may_alias is an array of [out, in] pairs of i64
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>) constraints {may_alias = [0 : i64, 0 : i64]}
}

// -----

// Aliases name operands that exist.
// CHECK: error: emit.resolved: instruction 'a': may_alias names out 0 and in 1; it has 1 outs, 1 ins
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>) constraints {may_alias = [[0 : i64, 1 : i64]]}
}

// -----

// Aliases name results that exist.
// CHECK: error: emit.resolved: instruction 'a': may_alias names out 1 and in 0; it has 1 outs, 1 ins
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>) constraints {may_alias = [[1 : i64, 0 : i64]]}
}

// -----

// A symbol is flat.
// CHECK: error: expected ')'
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>) body(@a::@b)
}

// -----

// A symbol is flat in the generic form too.
// CHECK: error: emit.resolved: Expected SymbolRefAttr with no nested symbols. Underlying verification failure: expected empty array, but got ["b"]
"emit.program"() <{sym_name = "p", phase = "bufferized"}> ({
  %h = emit.slot : !emit.buffer<8xf32, arena>
  "emit.resolved"(%h) <{kind = "relu", kind_id = 1 : i64, instruction = "a", src = ["a"], attrs = {}, schema = "", blob = "0x", constraints = {}, hints = {}, after = [], operandSegmentSizes = array<i32: 0, 1, 0>, code = @a::@b}> : (!emit.buffer<8xf32, arena>) -> ()
}) : () -> ()

// -----

// Integers are i64 in the generic form too.
// CHECK: error: emit.resolved: Expected attribute i64 but got i32
"emit.program"() <{sym_name = "p", phase = "bufferized"}> ({
  %h = emit.slot : !emit.buffer<8xf32, arena>
  "emit.resolved"(%h) <{kind = "relu", kind_id = 1 : i64, instruction = "a", src = ["a"], attrs = {}, schema = "", blob = "0x", constraints = {}, hints = {}, after = [], operandSegmentSizes = array<i32: 0, 1, 0>, stream = 0 : i32}> : (!emit.buffer<8xf32, arena>) -> ()
}) : () -> ()

// -----

// A key stands once in a dictionary.
// CHECK: error: key 'a' stands twice in one dictionary
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>) hints {a = 1 : i64, a = 2 : i64}
}

// -----

// Kernel records

// A record has a version.
// CHECK: error: kernel record of 'k' lacks 'version'
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>) kernel("k", {determinism = "bitwise"})
}

// -----

// A record has a determinism class.
// CHECK: error: kernel record of 'k' lacks 'determinism'
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>) kernel("k", {version = 1 : i64})
}

// -----

// A version is an i64.
// CHECK: error: kernel record of 'k': 'version' must be an i64, 0 or more, got "1"
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>) kernel("k", {version = "1", determinism = "bitwise"})
}

// -----

// A version is not negative.
// CHECK: error: kernel record of 'k': 'version' must be an i64, 0 or more, got -1 : i64
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>) kernel("k", {version = -1 : i64, determinism = "bitwise"})
}

// -----

// A determinism class is one of two.
// CHECK: error: kernel record of 'k': 'determinism' must be one of bitwise, unordered, got "mostly"
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>) kernel("k", {version = 1 : i64, determinism = "mostly"})
}

// -----

// Layouts are unit or a layout.
// CHECK: error: kernel record of 'k': 'layouts' must be an array of unit or #emit.layout, got ["packed"]
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>) kernel("k", {version = 1 : i64, determinism = "bitwise", layouts = ["packed"]})
}

// -----

// A workspace has a size.
// CHECK: error: kernel record of 'k': 'workspace_bytes' must be an i64, 0 or more, got -1 : i64
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>) kernel("k", {version = 1 : i64, determinism = "bitwise", workspace_bytes = -1 : i64})
}

// -----

// There is one thread at least.
// CHECK: error: kernel record of 'k': 'threads' must be an i64, 1 or more, got 0 : i64
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>) kernel("k", {version = 1 : i64, determinism = "bitwise", threads = 0 : i64})
}

// -----

// Aliases of a record are pairs of i64.
// CHECK: error: kernel record of 'k': 'may_alias' must be an array of [out, in] pairs of i64, got {{\[\[}}0 : i32, 0 : i32]]
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>) kernel("k", {version = 1 : i64, determinism = "bitwise", may_alias = [[0 : i32, 0 : i32]]})
}

// -----

// Programs

// A phase is one of five.
// CHECK: error: emit.program: program phase must be one of bufferized, scheduled, inplace, planned, final, got 'ready'
emit.program @p attributes {phase = "ready"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
}

// -----

// A program has a phase.
// CHECK: error: emit.program needs a phase, one of bufferized, scheduled, inplace, planned, final
emit.program @p {
}

// -----

// A program has no block arguments.
// CHECK: error: emit.program has no block arguments; what it gets from outside are its binds
emit.program @p attributes {phase = "bufferized"} {
^bb0(%a : f32):
}

// -----

// A program holds buffers and instructions.
// CHECK: error: emit.program holds binds, slots, views and instructions
emit.program @p attributes {phase = "bufferized"} {
  %c = arith.constant 1.0 : f32
}

// -----

// A field of a program is no attribute of it.
// CHECK: error: 'sym_name' is a field of the op and cannot be an attribute
emit.program @p attributes {phase = "bufferized", sym_name = "q"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
}

// -----

// An arena has a size.
// CHECK: error: emit.program: arena_bytes is not negative, got -1
emit.program @p attributes {phase = "bufferized", arena_bytes = -1 : i64} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
}

// -----

// The size of an arena is an i64.
// CHECK: error: emit.program: Expected attribute i64 but got i32
emit.program @p attributes {phase = "bufferized", arena_bytes = 64 : i32} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
}

// -----

// Two instructions have two names.
// CHECK: error: emit.program: 2 instructions are named 'a'
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>)
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>)
}

// -----

// Graphs hold names.
// CHECK: error: emit.program: expected ArrayAttr attribute, but got '<class 'xdsl.dialects.builtin.IntegerAttr'>'
emit.program @p attributes {phase = "bufferized", graphs = [1 : i64]} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>)
}

// -----

// Graphs hold all instructions.
// CHECK: error: emit.program: graphs: instruction 'a' is in no graph
emit.program @p attributes {phase = "bufferized", graphs = []} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>)
}

// -----

// Graphs hold each instruction once.
// CHECK: error: emit.program: graphs: instruction 'a' is in 2 places
emit.program @p attributes {phase = "bufferized", graphs = [["a"], ["a"]]} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>)
}

// -----

// Graphs hold instructions of the program.
// CHECK: error: emit.program: graphs names 'b', which is no instruction of the program
emit.program @p attributes {phase = "bufferized", graphs = [["a", "b"]]} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>)
}

// -----

// A graph is not empty.
// CHECK: error: emit.program: graphs: a graph without instructions
emit.program @p attributes {phase = "bufferized", graphs = [["a"], []]} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%h : !emit.buffer<8xf32, arena>)
}

// -----

// An input is not written.
// CHECK: error: emit.program: instruction 'a' writes input 'x'; write a slot, an output or an updated bind
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a"]) outs(%x : !emit.buffer<8xf32, bound>)
}

// -----

// A constant is not written.
// CHECK: error: emit.program: instruction 'a' writes const 'x'; write a slot, an output or an updated bind
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind const "x" value(dense<1.0>) : !emit.buffer<8xf32, const>
  emit.resolved "relu" id(1) name("a") src(["a"]) outs(%x : !emit.buffer<8xf32, const>)
}

// -----

// A param that is not updated is not written, through a view neither.
// CHECK: error: emit.program: instruction 'a' writes param 'x'; write a slot, an output or an updated bind
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind param "x" : !emit.buffer<8xf32, bound>
  %v = emit.view %x offset(0) : !emit.buffer<8xf32, bound> to !emit.buffer<2x4xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a"]) outs(%v : !emit.buffer<2x4xf32, bound>)
}

// -----

// A param is no workspace.
// CHECK: error: emit.program: instruction 'a' writes param 'x'; write a slot, an output or an updated bind
emit.program @p attributes {phase = "bufferized"} {
  %h = emit.slot : !emit.buffer<8xf32, arena>
  %x = emit.bind param "x" : !emit.buffer<8xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a"]) outs(%h : !emit.buffer<8xf32, arena>) ws(%x : !emit.buffer<8xf32, bound>)
}

// -----

// Only @prepare writes derived binds.
// CHECK: error: emit.program: instruction 'a' writes derived 'x'; write a slot, an output or an updated bind
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind derived "x" : !emit.buffer<8xf32, const, layout #emit.layout<"q", {bytes = 32 : i64}>>
  emit.resolved "relu" id(1) name("a") src(["a"]) outs(%x : !emit.buffer<8xf32, const, layout #emit.layout<"q", {bytes = 32 : i64}>>)
}

// -----

// @prepare writes derived binds only.
// CHECK: error: emit.program: instruction 'a' writes param 'x'; @prepare writes derived binds
emit.program @prepare attributes {phase = "bufferized"} {
  %x = emit.bind param "x" updated : !emit.buffer<8xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a"]) outs(%x : !emit.buffer<8xf32, bound>)
}

// -----

// Groups, bodies and the ledger

// A group names what it stands for.
// CHECK: error: emit.group 'g' names no source op
func.func @f(%x : tensor<4xf32>) {
  emit.group "g" from [] ins(%a = %x : tensor<4xf32>) -> () {
    emit.yield
  }
  func.return
}

// -----

// A group gives what its body yields.
// CHECK: error: emit.group 'g': its body must end with emit.yield of its result types
func.func @f(%x : tensor<4xf32>) {
  %r = emit.group "g" from ["a"] ins(%a = %x : tensor<4xf32>) -> (tensor<8xf32>) {
    emit.yield %a : tensor<4xf32>
  }
  func.return
}

// -----

// The code of a group is a flat symbol.
// CHECK: error: emit.group: Expected SymbolRefAttr with no nested symbols. Underlying verification failure: expected empty array, but got ["b"]
func.func @f(%x : tensor<4xf32>) {
  "emit.group"(%x) <{id = "g", src = ["a"], code = @a::@b}> ({
  ^bb0(%a : tensor<4xf32>):
    emit.yield
  }) : (tensor<4xf32>) -> ()
  func.return
}

// -----

// A rejected alternative has a reason.
// CHECK: error: emit.decision: rejected alternative 'blas' needs its reason, a string
emit.ledger {
  emit.decision "p" ["a"] choice "c" because "d" rejected {blas}
}

// -----

// A rejected alternative has a name.
// CHECK: error: emit.decision: a rejected alternative needs a name
emit.ledger {
  emit.decision "p" ["a"] choice "c" because "d" rejected {"" = "slow"}
}

// -----

// An alternative is rejected once.
// CHECK: error: key 'blas' stands twice in one dictionary
emit.ledger {
  emit.decision "p" ["a"] choice "c" because "d" rejected {blas = "slow", blas = "absent"}
}

// -----

// A cost has a name.
// CHECK: error: emit.decision: a cost needs a name
emit.ledger {
  emit.decision "p" ["a"] choice "c" because "d" cost {"" = 1 : i64}
}

// -----

// A ledger holds decisions.
// CHECK: error: emit.ledger holds emit.decision only
emit.ledger {
  emit.yield
}

// -----

// Kernels

// Every reduce dim of the iteration space has a point.
// CHECK: error: emit.kernel: parallel dims have 0 points or more, reduce dims 1 or more, got (4, 0)
emit.kernel @k parallel [4] reduce [0] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    %a = emit.reduce "sum" %x : f32
    emit.yield %a : f32
  }
  emit.phase {
    emit.store %m, 0 : f32
    emit.yield
  }
}

// -----

// A size is not negative.
// CHECK: error: emit.kernel: parallel dims have 0 points or more, reduce dims 1 or more, got (-4, 8)
emit.kernel @k parallel [-4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    %a = emit.reduce "sum" %x : f32
    emit.yield %a : f32
  }
  emit.phase {
    emit.store %m, 0 : f32
    emit.yield
  }
}

// -----

// Columns are combined in a way that reductions have.
// CHECK: error: emit.kernel: emit.accumulate combines by one of sum, max, min, prod, got 'mean'
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d1)>] {
^bb0(%x : f32):
  emit.phase {
    emit.accumulate "mean" %x, 0 : f32
    emit.yield
  }
}

// -----

// Without rows there is nothing to combine.
// CHECK: error: emit.kernel: emit.accumulate combines over rows: its kernel has parallel and reduce dims
emit.kernel @k parallel [8] reduce [] ins [affine_map<(d0) -> (d0)>] outs [affine_map<(d0) -> (d0)>] {
^bb0(%x : f32):
  emit.phase {
    emit.accumulate "sum" %x, 0 : f32
    emit.yield
  }
}

// -----

// A sum of columns has one element for each of them.
// CHECK: error: emit.kernel: emit.accumulate: output 0 follows the reduce dims and no other, but its map is (d0, d1) -> (d0, d1)
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0, d1)>] {
^bb0(%x : f32):
  emit.phase {
    emit.accumulate "sum" %x, 0 : f32
    emit.yield
  }
}

// -----

// An output is stored or combined, not both.
// CHECK: error: emit.kernel: outputs 0..0 are stored once each, but emit.store names [0, 0]
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d1)>] {
^bb0(%x : f32):
  emit.phase {
    emit.accumulate "sum" %x, 0 : f32
    emit.store %x, 0 : f32
    emit.yield
  }
}

// -----

// A map takes the dims of the iteration space.
// CHECK: error: emit.kernel: map (d0) -> (d0) must take the 2 dims of the iteration space
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0) -> (d0)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    %a = emit.reduce "sum" %x : f32
    emit.yield %a : f32
  }
  emit.phase {
    emit.store %m, 0 : f32
    emit.yield
  }
}

// -----

// A map does not divide by zero.
// CHECK: error: emit.kernel: map (d0, d1) -> ((d0 floordiv 0), d1) divides by something else than a positive constant
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0 floordiv 0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    %a = emit.reduce "sum" %x : f32
    emit.yield %a : f32
  }
  emit.phase {
    emit.store %m, 0 : f32
    emit.yield
  }
}

// -----

// A map does not divide by zero, nor does a constant of it.
// CHECK: error: affine_map divides by zero
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (3 mod 0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    %a = emit.reduce "sum" %x : f32
    emit.yield %a : f32
  }
  emit.phase {
    emit.store %m, 0 : f32
    emit.yield
  }
}

// -----

// A map does not divide by dims.
// CHECK: error: affine_map multiplies dims or divides by one
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0 mod d1, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    %a = emit.reduce "sum" %x : f32
    emit.yield %a : f32
  }
  emit.phase {
    emit.store %m, 0 : f32
    emit.yield
  }
}

// -----

// A map does not multiply dims.
// CHECK: error: affine_map multiplies dims or divides by one
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0 * d1, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    %a = emit.reduce "sum" %x : f32
    emit.yield %a : f32
  }
  emit.phase {
    emit.store %m, 0 : f32
    emit.yield
  }
}

// -----

// A map for every operand.
// CHECK: error: emit.kernel: 1 operand maps for 2 elements
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32, %y : f32):
  %m = emit.phase -> f32 {
    %a = emit.reduce "sum" %x : f32
    emit.yield %a : f32
  }
  emit.phase {
    emit.store %m, 0 : f32
    emit.yield
  }
}

// -----

// Operands are elements.
// CHECK: error: emit.reduce: element type index is not supported; use one of f64, f32, f16, bf16, f8E4M3FN, f8E5M2, i64, i32, i16, i8, u8, i1
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : index):
  %m = emit.phase -> index {
    %a = emit.reduce "sum" %x : index
    emit.yield %a : index
  }
  emit.phase {
    emit.store %m, 0 : index
    emit.yield
  }
}

// -----

// A kernel writes something.
// CHECK: error: emit.kernel has no outputs
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [] {
^bb0(%x : f32):
  emit.phase {
    emit.yield
  }
}

// -----

// An output exists.
// CHECK: error: emit.kernel: outputs 0..0 are stored once each, but emit.store names [7]
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    %a = emit.reduce "sum" %x : f32
    emit.yield %a : f32
  }
  emit.phase {
    emit.store %m, 7 : f32
    emit.yield
  }
}

// -----

// An output is not negative.
// CHECK: error: emit.kernel: outputs 0..0 are stored once each, but emit.store names [-1]
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    %a = emit.reduce "sum" %x : f32
    emit.yield %a : f32
  }
  emit.phase {
    emit.store %m, -1 : f32
    emit.yield
  }
}

// -----

// An output is stored once.
// CHECK: error: emit.kernel: outputs 0..0 are stored once each, but emit.store names [0, 0]
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    %a = emit.reduce "sum" %x : f32
    emit.yield %a : f32
  }
  emit.phase {
    emit.store %m, 0 : f32
    emit.yield
  }
  emit.phase {
    emit.store %m, 0 : f32
    emit.yield
  }
}

// -----

// The number of an output is an integer.
// CHECK: error: expected integer literal
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    %a = emit.reduce "sum" %x : f32
    emit.yield %a : f32
  }
  emit.phase {
    emit.store %m, false : f32
    emit.yield
  }
}

// -----

// A kernel holds phases.
// CHECK: error: emit.kernel holds phases
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %c = arith.constant 1.0 : f32
}

// -----

// A phase ends with its results.
// CHECK: error: emit.phase: emit.yield does not give the types of its results
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    emit.yield
  }
  emit.phase {
    emit.store %m, 0 : f32
    emit.yield
  }
}

// -----

// A phase has no block arguments.
// CHECK: error: emit.phase has no block arguments; the elements are those of its kernel
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  emit.phase {
  ^bb0(%a : f32):
    emit.yield
  }
  %m = emit.phase -> f32 {
    %a = emit.reduce "sum" %x : f32
    emit.yield %a : f32
  }
  emit.phase {
    emit.store %m, 0 : f32
    emit.yield
  }
}

// -----

// A reduction is one of three.
// CHECK: error: emit.reduce combines by one of sum, max, min, prod, got 'product'
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    %a = emit.reduce "product" %x : f32
    emit.yield %a : f32
  }
  emit.phase {
    emit.store %m, 0 : f32
    emit.yield
  }
}

// -----

// A kernel without reduce dims does not reduce.
// CHECK: error: emit.kernel: emit.reduce in a kernel without reduce dims
emit.kernel @k parallel [4] reduce [] ins [affine_map<(d0) -> (d0)>] outs [affine_map<(d0) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    %a = emit.reduce "sum" %x : f32
    emit.yield %a : f32
  }
  emit.phase {
    emit.store %m, 0 : f32
    emit.yield
  }
}

// -----

// A reduction is not known within its phase.
// CHECK: error: emit.reduce: its result is only known after the phase; yield it and use that
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    %a = emit.reduce "sum" %x : f32
    %b = arith.negf %a : f32
    emit.yield %b : f32
  }
  emit.phase {
    emit.store %m, 0 : f32
    emit.yield
  }
}

// -----

// What varies over the reduce dims is used where they are swept.
// CHECK: error: emit.kernel: arith.negf uses a value that varies over the reduce dims, but its phase does not sweep them
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    %a = emit.reduce "sum" %x : f32
    emit.yield %a : f32
  }
  emit.phase {
    %a = arith.negf %x : f32
    emit.store %m, 0 : f32
    emit.yield
  }
}

// -----

// An output without reduce dims takes no value that varies over them.
// CHECK: error: emit.kernel: emit.store: output 0 has no reduce dims, but the stored value varies over them; reduce it
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    %b = arith.negf %x : f32
    emit.yield %b : f32
  }
  emit.phase {
    emit.store %m, 0 : f32
    emit.yield
  }
}

// -----

// A phase computes with the ops of the list.
// CHECK: error: emit.kernel: emit.phase holds scalar ops
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    %a = emit.reduce "sum" %x : f32
    emit.yield %a : f32
  }
  emit.phase {
    %a = math.tan %m : f32
    emit.store %m, 0 : f32
    emit.yield
  }
}

// -----

// A phase calls nothing.
// CHECK: error: emit.kernel: emit.phase holds scalar ops
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    %a = emit.reduce "sum" %x : f32
    emit.yield %a : f32
  }
  emit.phase {
    "func.call"() <{callee = @f}> : () -> ()
    emit.store %m, 0 : f32
    emit.yield
  }
}
func.func private @f()

// -----

// A phase computes exactly.
// CHECK: error: emit.kernel: math.exp: generated kernels are exact; drop #arith.fastmath<fast>
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    %a = emit.reduce "sum" %x : f32
    emit.yield %a : f32
  }
  emit.phase {
    %a = math.exp %m fastmath<fast> : f32
    emit.store %m, 0 : f32
    emit.yield
  }
}

// -----

// A phase leaves no overflow undefined.
// CHECK: error: emit.kernel: arith.addi: generated kernels are exact; drop #arith.overflow<nsw>
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    %a = emit.reduce "sum" %x : f32
    emit.yield %a : f32
  }
  emit.phase {
    %c = arith.constant 1 : i32
    %a = arith.addi %c, %c overflow<nsw> : i32
    emit.store %m, 0 : f32
    emit.yield
  }
}

// -----

// A phase computes with scalars.
// CHECK: error: emit.kernel: expected an element type, got tensor<4xf32>
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    %a = emit.reduce "sum" %x : f32
    emit.yield %a : f32
  }
  emit.phase {
    %c = arith.constant dense<1.0> : tensor<4xf32>
    emit.store %m, 0 : f32
    emit.yield
  }
}

// -----

// Floats are not divided as integers.
// CHECK: error: emit.div_int divides integers, got f32
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    %a = emit.reduce "sum" %x : f32
    emit.yield %a : f32
  }
  emit.phase {
    %a = emit.div_int %m, %m : f32
    emit.store %m, 0 : f32
    emit.yield
  }
}

// -----

// Floats are not shifted.
// CHECK: error: emit.shift_right shifts integers, got f32
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    %a = emit.reduce "sum" %x : f32
    emit.yield %a : f32
  }
  emit.phase {
    %a = emit.shift_right %m, %m : f32
    emit.store %m, 0 : f32
    emit.yield
  }
}

// -----

// The bits of a scalar are those of one of its size.
// CHECK: error: emit.bitcast: f32 has 4 bytes, i64 8
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    %a = emit.reduce "sum" %x : f32
    emit.yield %a : f32
  }
  emit.phase {
    %a = emit.bitcast %m : f32 to i64
    emit.store %m, 0 : f32
    emit.yield
  }
}

// -----

// A coordinate is along a dim of the iteration space.
// CHECK: error: emit.kernel: emit.index 2: the iteration space has 2 dims, counted from 0
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    %a = emit.reduce "sum" %x : f32
    emit.yield %a : f32
  }
  emit.phase {
    %i = emit.index 2 : i64
    emit.store %m, 0 : f32
    emit.yield
  }
}

// -----

// A coordinate is an integer of 4 or 8 bytes.
// CHECK: error: emit.index gives i32 or i64, got f32
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    %a = emit.reduce "sum" %x : f32
    emit.yield %a : f32
  }
  emit.phase {
    %i = emit.index 0 : f32
    emit.store %m, 0 : f32
    emit.yield
  }
}

// -----

// A coordinate fits its type.
// CHECK: error: emit.kernel: emit.index 0: 4294967296 coordinates do not fit i32
emit.kernel @k parallel [4294967296] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  %m = emit.phase -> f32 {
    %a = emit.reduce "sum" %x : f32
    emit.yield %a : f32
  }
  emit.phase {
    %i = emit.index 0 : i32
    emit.store %m, 0 : f32
    emit.yield
  }
}

// -----

// There is an index for each dim of the memory.
// CHECK: error: emit.load: 1 indices for the dims of memref<4x8xf32>
emit.kernel @k parallel [4] reduce [] ins [indexed, affine_map<(d0) -> (d0)>] outs [affine_map<(d0) -> (d0)>] {
^bb0(%t : memref<4x8xf32>, %x : f32):
  emit.phase {
    %i = emit.index 0 : i32
    %j = emit.index 0 : i64
    %c = arith.constant true
    %v = emit.load %t[%i] : memref<4x8xf32>, i32
    emit.store %x, 0 : f32
    emit.yield
  }
}

// -----

// Indices are i32 or i64.
// CHECK: error: emit.load: indices are all i32 or all i64, got f32, f32
emit.kernel @k parallel [4] reduce [] ins [indexed, affine_map<(d0) -> (d0)>] outs [affine_map<(d0) -> (d0)>] {
^bb0(%t : memref<4x8xf32>, %x : f32):
  emit.phase {
    %i = emit.index 0 : i32
    %j = emit.index 0 : i64
    %c = arith.constant true
    %v = emit.load %t[%x, %x] : memref<4x8xf32>, f32
    emit.store %x, 0 : f32
    emit.yield
  }
}

// -----

// Only memory is read at indices.
// CHECK: error: emit.load reads a memref, got f32
emit.kernel @k parallel [4] reduce [] ins [indexed, affine_map<(d0) -> (d0)>] outs [affine_map<(d0) -> (d0)>] {
^bb0(%t : memref<4x8xf32>, %x : f32):
  emit.phase {
    %i = emit.index 0 : i32
    %j = emit.index 0 : i64
    %c = arith.constant true
    %v = emit.load %x[%i, %i] : f32, i32
    emit.store %x, 0 : f32
    emit.yield
  }
}

// -----

// An operand that is read at indices has no element at the point.
// CHECK: error: emit.kernel: operand 0 is a memref, which is indexed, and has map (d0) -> (d0)
emit.kernel @k parallel [4] reduce [] ins [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>] outs [affine_map<(d0) -> (d0)>] {
^bb0(%t : memref<4x8xf32>, %x : f32):
  emit.phase {
    %i = emit.index 0 : i32
    %j = emit.index 0 : i64
    %c = arith.constant true
    %v = emit.load %t[%i, %i] : memref<4x8xf32>, i32
    emit.store %x, 0 : f32
    emit.yield
  }
}

// -----

// Prefix sums are all there is.
// CHECK: error: emit.scan combines by one of sum, got 'max'
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0, d1)>] {
^bb0(%x : f32):
  emit.phase {
    %a = emit.scan "max" %x : f32
    emit.store %a, 0 : f32
    emit.yield
  }
}

// -----

// A scan walks along a dim.
// CHECK: error: emit.kernel: emit.scan walks the one reduce dim of its kernel, which has 2
emit.kernel @k parallel [4] reduce [8, 2] ins [affine_map<(d0, d1, d2) -> (d0, d1, d2)>] outs [affine_map<(d0, d1, d2) -> (d0, d1, d2)>] {
^bb0(%x : f32):
  emit.phase {
    %a = emit.scan "sum" %x : f32
    emit.store %a, 0 : f32
    emit.yield
  }
}

// -----

// A sweep goes one way.
// CHECK: error: emit.kernel: emit.scan: all scans of a phase walk one way; give the others a phase of their own
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0, d1)>] {
^bb0(%x : f32):
  emit.phase {
    %a = emit.scan "sum" %x : f32
    %b = emit.scan "sum" reverse %x : f32
    %c = arith.addf %a, %b : f32
    emit.store %c, 0 : f32
    emit.yield
  }
}

// -----

// Scans stand side by side.
// CHECK: error: emit.kernel: emit.scan of what another emit.scan of the phase gives; use a kernel for each
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0, d1)>] {
^bb0(%x : f32):
  emit.phase {
    %a = emit.scan "sum" %x : f32
    %b = arith.negf %a : f32
    %c = emit.scan "sum" %b : f32
    emit.store %c, 0 : f32
    emit.yield
  }
}

// -----

// Later phases do not see prefix sums.
// CHECK: error: emit.kernel: emit.yield: what emit.scan gives is known in its phase alone; compute it again in the later one
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0, d1)>] {
^bb0(%x : f32):
  %p = emit.phase -> f32 {
    %a = emit.scan "sum" %x : f32
    %b = arith.negf %a : f32
    emit.yield %b : f32
  }
  emit.phase {
    emit.store %p, 0 : f32
    emit.yield
  }
}

// -----

// What differs along the row has no place in an output of one element a row.
// CHECK: error: emit.kernel: emit.store: output 0 has no reduce dims, but the stored value varies over them; reduce it
emit.kernel @k parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0)>] outs [affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32):
  emit.phase {
    %a = emit.scan "sum" %x : f32
    emit.store %a, 0 : f32
    emit.yield
  }
}

// -----

// CHECK: error: emit.bind: the executable computes metas of one element, 'x' is none
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind state "x" host({next = "y"}) : !emit.buffer<i64, bound>
}

// -----

// CHECK: error: emit.bind: the executable computes i64, f32, f64; 'x' is f16
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind meta "x" host({next = "y"}) : !emit.buffer<f16, bound>
}

// -----

// CHECK: error: emit.bind: 'x' is computed before each run: nothing updates or starts it
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind meta "x" updated host({formula = "step_inc", of = ["x"]}) : !emit.buffer<i64, bound>
}

// -----

// CHECK: error: emit.bind: host: formula is "step_dec"; it is one of add, sub, mul, mod, and, step_inc, bias_corr, learning_rate
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind meta "x" host({formula = "step_dec", of = ["y"]}) : !emit.buffer<i64, bound>
}

// -----

// CHECK: error: emit.bind: host: bias_corr has the entries formula, of, beta, got formula, of
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind meta "x" host({formula = "bias_corr", of = ["y"]}) : !emit.buffer<f32, bound>
}

// -----

// CHECK: error: emit.bind: host: add is of 2 operands, got ["y"]
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind meta "x" host({formula = "add", of = ["y"]}) : !emit.buffer<f32, bound>
}

// -----

// CHECK: error: emit.bind: host: operands are names of metas and numbers, got [unit, 2 : i64]
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind meta "x" host({formula = "add", of = [unit, 2]}) : !emit.buffer<f32, bound>
}

// -----

// CHECK: error: emit.bind: host: a meta that is kept has next = "NAME" and no more, got next, beta
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind meta "x" host({next = "y", beta = 0.5}) : !emit.buffer<f32, bound>
}

// -----

// CHECK: error: emit.program: meta 'x' is computed of 'y', which is no meta before it
emit.program @p attributes {phase = "bufferized"} {
  %x = emit.bind meta "x" host({formula = "step_inc", of = ["y"]}) : !emit.buffer<i64, bound>
  %y = emit.bind meta "y" : !emit.buffer<i64, bound>
}

// -----

// CHECK: error: emit.program: meta 'x' is computed of 'y', which is no meta that the executable computes
emit.program @p attributes {phase = "bufferized"} {
  %y = emit.bind meta "y" : !emit.buffer<i64, bound>
  %x = emit.bind meta "x" host({next = "y"}) : !emit.buffer<i64, bound>
}

// -----

// What counts slices of outputs is an output of one i64.
// CHECK: error: emit.bind: only an output of one i64 counts slices of others, 'c' is none
emit.program @p attributes {phase = "bufferized"} {
  %c = emit.bind output "c" counts({y = 0}) : !emit.buffer<i32, bound>
}

// -----

// CHECK: error: emit.bind: the counts of 'c' are dimensions by the names of outputs
emit.program @p attributes {phase = "bufferized"} {
  %c = emit.bind output "c" counts({y = "rows"}) : !emit.buffer<i64, bound>
}
