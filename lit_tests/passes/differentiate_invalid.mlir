// RUN: aicf-opt %s -p 'assign-ids,differentiate' --split-input-file --verify-diagnostics | filecheck %s

// CHECK: differentiate_invalid.mlir:{{[0-9]+}}:3: error: logical.gradient "db": the loss does not depend on 'b'; leave it out, or declare it frozen
func.func @unused(
    %x : tensor<4xf32> {logical.name = "x", logical.role = "param"},
    %b : tensor<4xf32> {logical.name = "b", logical.role = "param"}) -> tensor<4xf32> {
  %loss = logical.reduce_sum %x {axes = [0]} : tensor<4xf32> -> tensor<f32>
  %db = logical.gradient %loss, %b : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %db : tensor<4xf32>
}

// -----

// A value computed of the same parameter, but beside the loss.
// CHECK: logical.gradient "dy": the loss does not depend on 'y'; leave it out, or declare it frozen
func.func @beside(%x : tensor<4xf32> {logical.name = "x", logical.role = "param"}) -> tensor<4xf32> {
  %y = logical.exp %x : tensor<4xf32>
  %loss = logical.reduce_sum %x {axes = [0]} : tensor<4xf32> -> tensor<f32>
  %dy = logical.gradient %loss, %y : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %dy : tensor<4xf32>
}

// -----

// CHECK: logical.gradient "dw": the loss depends on 'w' in steps alone: 'w' -> 'h' -> 'best' -> 'picked' -> 'loss'; logical.argmax 'best' passes nothing back; leave it out, or declare it frozen
func.func @steps(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %t : tensor<4x8xf32> {logical.name = "t", logical.role = "input"},
    %w : tensor<8x8xf32> {logical.name = "w", logical.role = "param"}) -> tensor<8x8xf32> {
  %h = logical.linear %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %best = logical.argmax %h {axis = 1, keepdims} : tensor<4x8xf32> -> tensor<4x1xi64>
  %picked = logical.gather_elements %t, %best {axis = 1} : (tensor<4x8xf32>, tensor<4x1xi64>) -> tensor<4x1xf32>
  %loss = logical.reduce_sum %picked {axes = [0, 1]} : tensor<4x1xf32> -> tensor<f32>
  %dw = logical.gradient %loss, %w : (tensor<f32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %dw : tensor<8x8xf32>
}

// -----

// CHECK: logical.gradient "dx": the loss depends on 'x' in steps alone: 'x' -> 'still' -> 'loss'; logical.detach 'still' passes nothing back; leave it out, or declare it frozen
func.func @detached(%x : tensor<4xf32> {logical.name = "x", logical.role = "param"}) -> tensor<4xf32> {
  %still = logical.detach %x : tensor<4xf32>
  %loss = logical.reduce_sum %still {axes = [0]} : tensor<4xf32> -> tensor<f32>
  %dx = logical.gradient %loss, %x : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %dx : tensor<4xf32>
}

// -----

// Integers between two casts.
// CHECK: logical.gradient "dx": the loss depends on 'x' in steps alone: 'x' -> 'whole' -> 'back' -> 'loss'; logical.cast 'back' passes nothing back;
func.func @integers(%x : tensor<4xf32> {logical.name = "x", logical.role = "param"}) -> tensor<4xf32> {
  %whole = logical.cast %x : tensor<4xf32> -> tensor<4xi64>
  %back = logical.cast %whole : tensor<4xi64> -> tensor<4xf32>
  %loss = logical.reduce_sum %back {axes = [0]} : tensor<4xf32> -> tensor<f32>
  %dx = logical.gradient %loss, %x : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %dx : tensor<4xf32>
}

// -----

// Of a long way only the ends and the neighbourhood of the obstacle are named.
// CHECK: in steps alone: 'x' -> 'a' -> 'b' -> ... -> 'd' -> 'e' -> 'f' -> 'g' -> 'h' -> ... -> 'j' -> 'k' -> 'loss'; logical.round 'f' passes nothing back;
func.func @long(%x : tensor<4xf32> {logical.name = "x", logical.role = "param"}) -> tensor<4xf32> {
  %a = logical.tanh %x : tensor<4xf32>
  %b = logical.tanh %a : tensor<4xf32>
  %c = logical.tanh %b : tensor<4xf32>
  %d = logical.tanh %c : tensor<4xf32>
  %e = logical.tanh %d : tensor<4xf32>
  %f = logical.round %e : tensor<4xf32>
  %g = logical.tanh %f : tensor<4xf32>
  %h = logical.tanh %g : tensor<4xf32>
  %i = logical.tanh %h : tensor<4xf32>
  %j = logical.tanh %i : tensor<4xf32>
  %k = logical.tanh %j : tensor<4xf32>
  %loss = logical.reduce_sum %k {axes = [0]} : tensor<4xf32> -> tensor<f32>
  %dx = logical.gradient %loss, %x : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %dx : tensor<4xf32>
}

// -----

// CHECK: logical.sgd 's' has no gradient; take the derivative by values computed after it
func.func @optimizer(
    %x : tensor<4xf32> {logical.name = "x", logical.role = "param"},
    %lr : tensor<f32> {logical.name = "lr", logical.role = "input"},
    %n : tensor<i64> {logical.name = "n", logical.role = "meta"}) -> tensor<4xf32> {
  %s = logical.sgd %x, %x, %lr, %n : (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<i64>) -> tensor<4xf32>
  %loss = logical.reduce_sum %s {axes = [0]} : tensor<4xf32> -> tensor<f32>
  %dx = logical.gradient %loss, %x : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %dx : tensor<4xf32>
}

// -----

// CHECK: a mean over symbolic size N has no count; run specialize-shapes first
func.func @symbolic(%x : tensor<?x4xf32, #logical.dims<["N", ""]>> {logical.name = "x", logical.role = "param"})
    -> tensor<?x4xf32, #logical.dims<["N", ""]>> {
  %loss = logical.reduce_mean %x {axes = [0, 1]} : tensor<?x4xf32, #logical.dims<["N", ""]>> -> tensor<f32>
  %dx = logical.gradient %loss, %x
      : (tensor<f32>, tensor<?x4xf32, #logical.dims<["N", ""]>>) -> tensor<?x4xf32, #logical.dims<["N", ""]>>
  func.return %dx : tensor<?x4xf32, #logical.dims<["N", ""]>>
}
