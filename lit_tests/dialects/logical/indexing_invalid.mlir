// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

func.func @iota_type(%x : tensor<4xf32>) {
  // CHECK: error: logical.iota: not defined for i1; count in an integer type and compare
  %0 = logical.iota {axis = 0} : tensor<4xi1>
  func.return
}

// -----

func.func @iota_axis(%x : tensor<4xf32>) {
  // CHECK: error: logical.iota: axis 1 is out of range for rank 1; write 0 to 0
  %0 = logical.iota {axis = 1} : tensor<4xi32>
  func.return
}

// -----

func.func @iota_missing(%x : tensor<4xf32>) {
  // CHECK: error: logical.iota: axis is missing; it is an integer
  %0 = logical.iota : tensor<4xi32>
  func.return
}

// -----

func.func @pad_negative(%x : tensor<4xf32>, %v : tensor<f32>) {
  // CHECK: error: logical.pad: low [-1] has a negative amount; take elements away by slice
  %0 = logical.pad %x, %v {low = [-1], high = [0]} : (tensor<4xf32>, tensor<f32>) -> tensor<3xf32>
  func.return
}

// -----

func.func @pad_count(%x : tensor<4xf32>, %v : tensor<f32>) {
  // CHECK: error: logical.pad: high [0, 1] has 2 values for the 1 dimension of 4
  %0 = logical.pad %x, %v {low = [1], high = [0, 1]} : (tensor<4xf32>, tensor<f32>) -> tensor<5xf32>
  func.return
}

// -----

func.func @pad_value(%x : tensor<4xf32>, %v : tensor<i32>) {
  // CHECK: error: logical.pad: the value is i32; it is one f32 of rank 0
  %0 = logical.pad %x, %v {low = [1], high = [0]} : (tensor<4xf32>, tensor<i32>) -> tensor<5xf32>
  func.return
}

// -----

func.func @pad_form(%x : tensor<4xf32>, %v : tensor<f32>) {
  // CHECK: error: logical.pad: low is 1 : i64; it is a list of integers, such as [0, 1]
  %0 = logical.pad %x, %v {low = 1, high = [0]} : (tensor<4xf32>, tensor<f32>) -> tensor<5xf32>
  func.return
}

// -----

func.func @gather_indices(%x : tensor<4xf32>, %i : tensor<2xf32>) {
  // CHECK: error: logical.gather: indices are f32; cast them to i32 or i64
  %0 = logical.gather %x, %i {axis = 0} : (tensor<4xf32>, tensor<2xf32>) -> tensor<2xf32>
  func.return
}

// -----

func.func @gather_axis(%x : tensor<4xf32>, %i : tensor<2xi32>) {
  // CHECK: error: logical.gather: axis 1 is out of range for rank 1; write 0 to 0
  %0 = logical.gather %x, %i {axis = 1} : (tensor<4xf32>, tensor<2xi32>) -> tensor<2xf32>
  func.return
}

// -----

func.func @gather_result(%x : tensor<4x3xf32>, %i : tensor<2xi32>) {
  // CHECK: error: logical.gather: result type is 2xf32, but the operands give 2x3xf32
  %0 = logical.gather %x, %i {axis = 0} : (tensor<4x3xf32>, tensor<2xi32>) -> tensor<2xf32>
  func.return
}

// -----

func.func @gather_elements_rank(%x : tensor<4x3xf32>, %i : tensor<2xi32>) {
  // CHECK: error: logical.gather_elements: indices have shape 2, the operand 4x3; ranks are equal
  %0 = logical.gather_elements %x, %i {axis = 0} : (tensor<4x3xf32>, tensor<2xi32>) -> tensor<2xf32>
  func.return
}

// -----

func.func @gather_elements_size(%x : tensor<4x3xf32>, %i : tensor<9x5xi32>) {
  // CHECK: error: logical.gather_elements: indices have 5 elements along dimension 1, the operand 3; only along axis 0 they may have more
  %0 = logical.gather_elements %x, %i {axis = 0} : (tensor<4x3xf32>, tensor<9x5xi32>) -> tensor<9x5xf32>
  func.return
}

// -----

func.func @flip_axes(%x : tensor<4x3xf32>) {
  // CHECK: error: logical.flip: axes [1, 0] name one dimension or more, each once, in rising order
  %0 = logical.flip %x {axes = [1, 0]} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// -----

func.func @flip_range(%x : tensor<4x3xf32>) {
  // CHECK: error: logical.flip: axis 2 is out of range for rank 2; write 0 to 1
  %0 = logical.flip %x {axes = [2]} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// -----

func.func @tile_count(%x : tensor<4x3xf32>) {
  // CHECK: error: logical.tile: repeats [2] has 1 value for the 2 dimensions of 4x3
  %0 = logical.tile %x {repeats = [2]} : (tensor<4x3xf32>) -> tensor<8x3xf32>
  func.return
}

// -----

func.func @tile_zero(%x : tensor<4xf32>) {
  // CHECK: error: logical.tile: repeats [0] has a value below 1
  %0 = logical.tile %x {repeats = [0]} : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// -----

func.func @one_hot_depth(%i : tensor<4xi32>, %v : tensor<f32>) {
  // CHECK: error: logical.one_hot: depth is 0; it is at least 1
  %0 = logical.one_hot %i, %v, %v {axis = 1, depth = 0} : (tensor<4xi32>, tensor<f32>, tensor<f32>) -> tensor<4x1xf32>
  func.return
}

// -----

func.func @one_hot_values(%i : tensor<4xi32>, %v : tensor<f32>, %w : tensor<2xf32>) {
  // CHECK: error: logical.one_hot: on is f32 and off 2xf32; both have rank 0 and one element type
  %0 = logical.one_hot %i, %v, %w {axis = 1, depth = 2} : (tensor<4xi32>, tensor<f32>, tensor<2xf32>) -> tensor<4x2xf32>
  func.return
}

// -----

func.func @one_hot_axis(%i : tensor<4xi32>, %v : tensor<f32>) {
  // CHECK: error: logical.one_hot: axis 2 is out of range for rank 2; write 0 to 1
  %0 = logical.one_hot %i, %v, %v {axis = 2, depth = 2} : (tensor<4xi32>, tensor<f32>, tensor<f32>) -> tensor<4x2xf32>
  func.return
}

// -----

func.func @scatter_mode(%x : tensor<4xf32>, %i : tensor<2xi32>, %u : tensor<2xf32>) {
  // CHECK: error: logical.scatter: mode is "div"; use one of set, add, max, min, mul
  %0 = logical.scatter %x, %i, %u {mode = "div"} : (tensor<4xf32>, tensor<2xi32>, tensor<2xf32>) -> tensor<4xf32>
  func.return
}

// -----

func.func @scatter_bool(%x : tensor<4xi1>, %i : tensor<2xi32>, %u : tensor<2xi1>) {
  // CHECK: error: logical.scatter: not defined for i1; scatter with mode set, or cast to an integer type first
  %0 = logical.scatter %x, %i, %u {mode = "add"} : (tensor<4xi1>, tensor<2xi32>, tensor<2xi1>) -> tensor<4xi1>
  func.return
}

// -----

func.func @scatter_element(%x : tensor<4xf32>, %i : tensor<2xi32>, %u : tensor<2xf16>) {
  // CHECK: error: logical.scatter: updates are f16, the operand is f32; cast one
  %0 = logical.scatter %x, %i, %u {mode = "set"} : (tensor<4xf32>, tensor<2xi32>, tensor<2xf16>) -> tensor<4xf32>
  func.return
}

// -----

func.func @scatter_rank(%x : tensor<4xf32>, %i : tensor<2x1xi32>, %u : tensor<2x1xf32>) {
  // CHECK: error: logical.scatter: the operand has shape 4 and the indices 2x1; the operand has rows and the indices rank 1
  %0 = logical.scatter %x, %i, %u {mode = "set"} : (tensor<4xf32>, tensor<2x1xi32>, tensor<2x1xf32>) -> tensor<4xf32>
  func.return
}

// -----

func.func @scatter_updates(%x : tensor<4x3xf32>, %i : tensor<2xi32>, %u : tensor<2xf32>) {
  // CHECK: error: logical.scatter: updates have shape 2, the indices ask for 2x3
  %0 = logical.scatter %x, %i, %u {mode = "set"} : (tensor<4x3xf32>, tensor<2xi32>, tensor<2xf32>) -> tensor<4x3xf32>
  func.return
}

// -----

func.func @scatter_nd_depth(%x : tensor<4xf32>, %i : tensor<2x2xi32>, %u : tensor<2xf32>) {
  // CHECK: error: logical.scatter_nd: indices have shape 2x2; the last dimension names 1 to 1 dimensions of 4
  %0 = logical.scatter_nd %x, %i, %u {mode = "set"} : (tensor<4xf32>, tensor<2x2xi32>, tensor<2xf32>) -> tensor<4xf32>
  func.return
}

// -----

func.func @topk_k(%x : tensor<4x3xf32>) {
  // CHECK: error: logical.topk_indices: k is 4; dimension 1 of 4x3 allows 1 to 3
  %0 = logical.topk_indices %x {axis = 1, k = 4} : (tensor<4x3xf32>) -> tensor<4x4xi64>
  func.return
}

// -----

func.func @topk_flag(%x : tensor<4x3xf32>) {
  // CHECK: error: logical.topk_indices: smallest is 1 : i64; it is a flag: write its name alone
  %0 = logical.topk_indices %x {axis = 1, k = 2, smallest = 1} : (tensor<4x3xf32>) -> tensor<4x2xi64>
  func.return
}

// -----

func.func @write_row_shape(%r : tensor<3xf32>, %i : tensor<i32>, %x : tensor<4x3xf32>) {
  // CHECK: error: logical.write_row: the row is 3xf32; it is a slice of 4x3xf32 along axis 0, 1x3xf32
  %0 = logical.write_row %r, %i, %x {axis = 0} : (tensor<3xf32>, tensor<i32>, tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// -----

func.func @write_row_type(%r : tensor<1x3xf16>, %i : tensor<i32>, %x : tensor<4x3xf32>) {
  // CHECK: error: logical.write_row: the row is 1x3xf16; it is a slice
  %0 = logical.write_row %r, %i, %x {axis = 0} : (tensor<1x3xf16>, tensor<i32>, tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// -----

func.func @write_row_index(%r : tensor<1x3xf32>, %i : tensor<1xi32>, %x : tensor<4x3xf32>) {
  // CHECK: error: logical.write_row: the index has shape 1; it is one number of rank 0, or one for each of leading dimensions of 4x3xf32 before axis 0
  %0 = logical.write_row %r, %i, %x {axis = 0} : (tensor<1x3xf32>, tensor<1xi32>, tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// -----

func.func @write_row_axis(%r : tensor<1x3xf32>, %i : tensor<i32>, %x : tensor<4x3xf32>) {
  // CHECK: error: logical.write_row: axis 2 is out of range for rank 2; write 0 to 1
  %0 = logical.write_row %r, %i, %x {axis = 2} : (tensor<1x3xf32>, tensor<i32>, tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// -----

func.func @write_row_float(%r : tensor<1x3xf32>, %i : tensor<f32>, %x : tensor<4x3xf32>) {
  // CHECK: error: logical.write_row: indices are f32; cast them to i32 or i64
  %0 = logical.write_row %r, %i, %x {axis = 0} : (tensor<1x3xf32>, tensor<f32>, tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// -----

func.func @last_update_rank(%i : tensor<2x3xi32>) {
  // CHECK: error: logical.last_update: indices have shape 2x3; they have rank 1
  %0 = logical.last_update %i {rows = 4} : (tensor<2x3xi32>) -> tensor<4xi32>
  func.return
}

// -----

func.func @last_update_rows(%i : tensor<3xi32>) {
  // CHECK: error: logical.last_update: rows is 0; it is at least 1
  %0 = logical.last_update %i {rows = 0} : (tensor<3xi32>) -> tensor<1xi32>
  func.return
}

// -----

func.func @last_update_missing(%i : tensor<3xi32>) {
  // CHECK: error: logical.last_update: rows is missing; it is an integer
  %0 = logical.last_update %i : (tensor<3xi32>) -> tensor<4xi32>
  func.return
}

// -----

func.func @last_update_indices(%i : tensor<3xf32>) {
  // CHECK: error: logical.last_update: indices are f32; cast them to i32 or i64
  %0 = logical.last_update %i {rows = 4} : (tensor<3xf32>) -> tensor<4xi32>
  func.return
}

// -----

func.func @last_update_result(%i : tensor<3xi32>) {
  // CHECK: error: logical.last_update: result type is 4xi64, but the operands give 4xi32
  %0 = logical.last_update %i {rows = 4} : (tensor<3xi32>) -> tensor<4xi64>
  func.return
}

// -----

func.func @scatter_combine_set(%x : tensor<4xf32>, %i : tensor<2xi32>, %u : tensor<2xf32>) {
  // CHECK: error: logical.scatter_combine: mode is set, which combines nothing; use logical.scatter
  %0 = logical.scatter_combine %x, %i, %u {mode = "set"} : (tensor<4xf32>, tensor<2xi32>, tensor<2xf32>) -> tensor<4xf32>
  func.return
}

// -----

func.func @scatter_combine_mode(%x : tensor<4xf32>, %i : tensor<2xi32>, %u : tensor<2xf32>) {
  // CHECK: error: logical.scatter_combine: mode is missing; it is a string
  %0 = logical.scatter_combine %x, %i, %u : (tensor<4xf32>, tensor<2xi32>, tensor<2xf32>) -> tensor<4xf32>
  func.return
}

// -----

func.func @scatter_combine_updates(%x : tensor<4x3xf32>, %i : tensor<2xi32>, %u : tensor<2xf32>) {
  // CHECK: error: logical.scatter_combine: updates have shape 2, the indices ask for 2x3
  %0 = logical.scatter_combine %x, %i, %u {mode = "add"} : (tensor<4x3xf32>, tensor<2xi32>, tensor<2xf32>) -> tensor<4x3xf32>
  func.return
}

// -----

func.func @scatter_elements_axis(%x : tensor<4x3xf32>, %i : tensor<2x3xi32>, %u : tensor<2x3xf32>) {
  // CHECK: error: logical.scatter_elements: axis 2 is out of range for rank 2; write 0 to 1
  %0 = logical.scatter_elements %x, %i, %u {axis = 2, mode = "set"} : (tensor<4x3xf32>, tensor<2x3xi32>, tensor<2x3xf32>) -> tensor<4x3xf32>
  func.return
}

// -----

func.func @one_hot_indices(%i : tensor<4xf32>, %v : tensor<f32>) {
  // CHECK: error: logical.one_hot: indices are f32; cast them to i32 or i64
  %0 = logical.one_hot %i, %v, %v {axis = 1, depth = 2} : (tensor<4xf32>, tensor<f32>, tensor<f32>) -> tensor<4x2xf32>
  func.return
}

// -----

func.func @one_hot_depth_kind(%i : tensor<4xi32>, %v : tensor<f32>) {
  // CHECK: error: logical.one_hot: depth is 2.000000e+00 : f64; it is an integer
  %0 = logical.one_hot %i, %v, %v {axis = 1, depth = 2.0} : (tensor<4xi32>, tensor<f32>, tensor<f32>) -> tensor<4x2xf32>
  func.return
}

// -----

func.func @tile_kind(%x : tensor<4xf32>) {
  // CHECK: error: logical.tile: repeats is 2 : i64; it is a list of integers, such as [0, 1]
  %0 = logical.tile %x {repeats = 2} : (tensor<4xf32>) -> tensor<8xf32>
  func.return
}

// -----

func.func @flip_missing(%x : tensor<4xf32>) {
  // CHECK: error: logical.flip: axes is missing; it is a list of integers, such as [0, 1]
  %0 = logical.flip %x : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// -----

func.func @topk_axis(%x : tensor<4x3xf32>) {
  // CHECK: error: logical.topk_indices: axis 2 is out of range for rank 2; write 0 to 1
  %0 = logical.topk_indices %x {axis = 2, k = 1} : (tensor<4x3xf32>) -> tensor<4x1xi64>
  func.return
}

// -----

func.func @topk_result(%x : tensor<4x3xf32>) {
  // CHECK: error: logical.topk_indices: result type is 4x1xi32, but the operands give 4x1xi64
  %0 = logical.topk_indices %x {axis = 1, k = 1} : (tensor<4x3xf32>) -> tensor<4x1xi32>
  func.return
}
