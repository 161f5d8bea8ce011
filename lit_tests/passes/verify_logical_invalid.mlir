// RUN: aicf-opt %s -p verify-logical --split-input-file --verify-diagnostics | filecheck %s

// No name.
// CHECK: error: @f: argument 0 has no name; give it logical.name = "..."
func.func @f(%x : tensor<4xf32> {logical.role = "input"}) -> (tensor<4xf32> {logical.name = "y"}) {
  func.return %x : tensor<4xf32>
}

// -----

// No role.
// CHECK: error: @f: argument "x" has no role; logical.role is one of input, param, state, meta
func.func @f(%x : tensor<4xf32> {logical.name = "x"}) -> (tensor<4xf32> {logical.name = "y"}) {
  func.return %x : tensor<4xf32>
}

// -----

// Unknown role.
// CHECK: error: @f: argument "x" has the unknown role "weight"; logical.role is one of input, param, state, meta
func.func @f(%x : tensor<4xf32> {logical.name = "x", logical.role = "weight"}) -> (tensor<4xf32> {logical.name = "y"}) {
  func.return %x : tensor<4xf32>
}

// -----

// A misspelt attribute.
// CHECK: error: @f: argument 0 has the unknown attribute logical.rule; it takes logical.name, logical.role
func.func @f(%x : tensor<4xf32> {logical.name = "x", logical.rule = "input"}) -> (tensor<4xf32> {logical.name = "y"}) {
  func.return %x : tensor<4xf32>
}

// -----

// A result without a name.
// CHECK: error: @f: result 0 has no name; give it logical.name = "..." or logical.updates = "..."
func.func @f(%x : tensor<4xf32> {logical.name = "x", logical.role = "input"}) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}

// -----

// A name used twice.
// CHECK: error: @f: the name "x" is used twice; arguments and results have names of their own
func.func @f(%x : tensor<4xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<4xf32> {logical.name = "x"}) {
  func.return %x : tensor<4xf32>
}

// -----

// An update of nothing.
// CHECK: error: @f: result 0 updates "w", which is no argument
func.func @f(%x : tensor<4xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<4xf32> {logical.updates = "w"}) {
  func.return %x : tensor<4xf32>
}

// -----

// An update of an input.
// CHECK: error: @f: result 0 updates "x", whose role is input; only param, state and meta change
func.func @f(%x : tensor<4xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<4xf32> {logical.updates = "x"}) {
  func.return %x : tensor<4xf32>
}

// -----

// An update of another type.
// CHECK: error: @f: result 0 updates "w" of type 4xf32 with 5xf32
func.func @f(%x : tensor<5xf32> {logical.name = "x", logical.role = "input"}, %w : tensor<4xf32> {logical.name = "w", logical.role = "param"}) -> (tensor<5xf32> {logical.updates = "w"}) {
  func.return %x : tensor<5xf32>
}

// -----

// Two updates of one parameter.
// CHECK: error: @f: "w" is updated by two results; return its new value once
func.func @f(%w : tensor<4xf32> {logical.name = "w", logical.role = "param"}) -> (tensor<4xf32> {logical.updates = "w"}, tensor<4xf32> {logical.updates = "w"}) {
  func.return %w, %w : tensor<4xf32>, tensor<4xf32>
}

// -----

// A size that no argument has.
// CHECK: error: @f: no argument has a dimension of size M alone, so M is unknown at run time
func.func @f(%x : tensor<4xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<?x4xf32, #logical.dims<["M", ""]>> {logical.name = "y"}) {
  %0 = logical.broadcast %x {dimensions = [1]} : tensor<4xf32> -> tensor<?x4xf32, #logical.dims<["M", ""]>>
  func.return %0 : tensor<?x4xf32, #logical.dims<["M", ""]>>
}

// -----

// A size that cannot be solved for.
// CHECK: error: @f: no argument has a dimension of size N alone, so N is unknown at run time
func.func @f(%x : tensor<?xf32, #logical.dims<["2*N"]>> {logical.name = "x", logical.role = "input"}) -> (tensor<?xf32, #logical.dims<["2*N"]>> {logical.name = "y"}) {
  func.return %x : tensor<?xf32, #logical.dims<["2*N"]>>
}

// -----

// A dynamic size without a name.
// CHECK: error: @f: tensor<?xf32>: dimension 0 is dynamic but has no name; add #logical.dims with one
func.func @f(%x : tensor<?xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<?xf32> {logical.name = "y"}) {
  func.return %x : tensor<?xf32>
}

// -----

// An argument that is no tensor.
// CHECK: error: @f: f32 is not a ranked tensor type
func.func @f(%x : f32 {logical.name = "x", logical.role = "input"}) -> (f32 {logical.name = "y"}) {
  func.return %x : f32
}

// -----

// An argument of unrepresentable size.
// CHECK: error: @f: tensor<1000000x1000000x1000000xf32> takes 4000000000000000000 bytes; the largest tensor takes 140737488355328 (2^47)
func.func @f(%x : tensor<1000000x1000000x1000000xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<1000000x1000000x1000000xf32> {logical.name = "y"}) {
  func.return %x : tensor<1000000x1000000x1000000xf32>
}

// -----

// An op of another dialect.
// CHECK: error: arith.constant: is no logical op; a program is made of logical ops and func.return
func.func @f(%x : tensor<4xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<4xf32> {logical.name = "y"}) {
  %0 = arith.constant 1 : i32
  func.return %x : tensor<4xf32>
}

// -----

// A method on an op.
// CHECK: error: logical.exp: attribute my.tile_size mentions 'tile': logical IR says what, not how; leave that to a policy
func.func @f(%x : tensor<4xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<4xf32> {logical.name = "y"}) {
  %0 = logical.exp %x {my.tile_size = 4} : tensor<4xf32>
  func.return %0 : tensor<4xf32>
}

// -----

// A method on an argument.
// CHECK: error: func.func: attribute cuda.shared mentions 'shared': logical IR says what, not how; leave that to a policy
func.func @f(%x : tensor<4xf32> {logical.name = "x", logical.role = "input", cuda.shared}) -> (tensor<4xf32> {logical.name = "y"}) {
  func.return %x : tensor<4xf32>
}

// -----

// An id used twice.
// CHECK: error: logical.exp "a": another op has this id too; change one aicf.id or remove it
func.func @f(%x : tensor<4xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<4xf32> {logical.name = "y"}) {
  %0 = logical.exp %x {aicf.id = "a", aicf.src = ["a"]} : tensor<4xf32>
  %1 = logical.exp %0 {aicf.id = "a", aicf.src = ["a"]} : tensor<4xf32>
  func.return %1 : tensor<4xf32>
}

// -----

// An id without sources.
// CHECK: error: logical.exp "a": has an id but no aicf.src, the ids it stands for; remove both to let assign-ids set them
func.func @f(%x : tensor<4xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<4xf32> {logical.name = "y"}) {
  %0 = logical.exp %x {aicf.id = "a"} : tensor<4xf32>
  func.return %0 : tensor<4xf32>
}

// -----

// A declaration.
// CHECK: error: @f: a program is one block that ends in func.return
func.func private @f(tensor<4xf32>) -> tensor<4xf32>

// -----

// No function.
// CHECK: error: the module has no func.func; a program is at least one function
builtin.module {}

// -----

// A table of programs that are not there.
// CHECK: error: logical.dispatch: there is no @g in the module; define it or drop its row
logical.dispatch @pick dims ["N"] [[1] = @f, [2] = @g]
func.func @f(%x : tensor<4xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<4xf32> {logical.name = "y"}) {
  func.return %x : tensor<4xf32>
}

// -----

// What an executable computes is a meta.
// CHECK: error: @f: argument "x" has aicf.host, which is for metas; its role is input
func.func @f(%x : tensor<i64> {logical.name = "x", logical.role = "input", aicf.host = {next = "y"}}) -> (tensor<i64> {logical.name = "z"}) {
  func.return %x : tensor<i64>
}

// -----

// CHECK: error: @f: argument "x": aicf.start is a dense tensor, got 3 : i64
func.func @f(%x : tensor<i64> {logical.name = "x", logical.role = "meta", aicf.start = 3}) -> (tensor<i64> {logical.name = "z"}) {
  func.return %x : tensor<i64>
}

// -----

// CHECK: error: @f: argument "x": aicf.host is a dictionary, got "now"
func.func @f(%x : tensor<i64> {logical.name = "x", logical.role = "meta", aicf.host = "now"}) -> (tensor<i64> {logical.name = "z"}) {
  func.return %x : tensor<i64>
}

// -----

// CHECK: error: @f: argument "x": host: formula is "pow"; it is one of add, sub, mul
func.func @f(%x : tensor<i64> {logical.name = "x", logical.role = "meta", aicf.host = {formula = "pow", of = ["now", 2]}}) -> (tensor<i64> {logical.name = "z"}) {
  func.return %x : tensor<i64>
}

// -----

// How many slices of a result are there is one whole number.
// CHECK: error: @f: result 0 has aicf.counts; it is one i64, and aicf.counts a dictionary
func.func @f(%x : tensor<3xi64> {logical.name = "x", logical.role = "input"}) -> (tensor<3xi64> {logical.name = "y", aicf.counts = {y = 0}}) {
  func.return %x : tensor<3xi64>
}

// -----

// CHECK: error: @f: result 1 counts "y" along 1 : i64; no result has that dimension
func.func @f(%x : tensor<3xi64> {logical.name = "x", logical.role = "input"}, %n : tensor<i64> {logical.name = "n", logical.role = "input"})
    -> (tensor<3xi64> {logical.name = "y"}, tensor<i64> {logical.name = "c", aicf.counts = {y = 1}}) {
  func.return %x, %n : tensor<3xi64>, tensor<i64>
}

// -----

// Functions of a module share parameters and states by name.
// CHECK: error: @g: param 'w' is a tensor<6xf32>, and a tensor<4xf32> in @f: functions of a module share what has one name; give it another name
func.func @f(%w : tensor<4xf32> {logical.name = "w", logical.role = "param"}) -> (tensor<4xf32> {logical.name = "y"}) {
  func.return %w : tensor<4xf32>
}
func.func @g(%w : tensor<6xf32> {logical.name = "w", logical.role = "param"}) -> (tensor<6xf32> {logical.name = "z"}) {
  func.return %w : tensor<6xf32>
}
