// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

func.func @count(%x : tensor<4x6xf32>) {
  // CHECK: error: logical.reshape: element counts differ: 4x6 has 24, 5x5 has 25
  %0 = logical.reshape %x : tensor<4x6xf32> -> tensor<5x5xf32>
  func.return
}

// -----

func.func @count_symbolic(%x : tensor<?x6xf32, #logical.dims<["N", ""]>>) {
  // CHECK: error: logical.reshape: element counts differ: Nx6 has 6*N, (N + 1)x6 has 6*N + 6
  %0 = logical.reshape %x : tensor<?x6xf32, #logical.dims<["N", ""]>> -> tensor<?x6xf32, #logical.dims<["N + 1", ""]>>
  func.return
}

// -----

func.func @reshape_element(%x : tensor<4xf32>) {
  // CHECK: error: logical.reshape: element type changes from f32 to i32; use logical.cast for that
  %0 = logical.reshape %x : tensor<4xf32> -> tensor<2x2xi32>
  func.return
}

// -----

func.func @permutation(%x : tensor<4x6xf32>) {
  // CHECK: error: logical.transpose: permutation [1, 1] does not name each of the 2 dimensions of 4x6 once
  %0 = logical.transpose %x {permutation = [1, 1]} : tensor<4x6xf32> -> tensor<6x6xf32>
  func.return
}

// -----

func.func @broadcast_size(%x : tensor<4x6xf32>) {
  // CHECK: error: logical.broadcast: dimension 0 of 4x6 has size 4, which fits neither 1 nor dimension 0 of 8x6
  %0 = logical.broadcast %x {dimensions = [0, 1]} : tensor<4x6xf32> -> tensor<8x6xf32>
  func.return
}

// -----

func.func @broadcast_order(%x : tensor<4x6xf32>) {
  // CHECK: error: logical.broadcast: dimensions [1, 0] must rise; transpose the operand first
  %0 = logical.broadcast %x {dimensions = [1, 0]} : tensor<4x6xf32> -> tensor<6x4xf32>
  func.return
}

// -----

func.func @broadcast_count(%x : tensor<4x6xf32>) {
  // CHECK: error: logical.broadcast: dimensions [1] has 1 value for the 2 dimensions of 4x6
  %0 = logical.broadcast %x {dimensions = [1]} : tensor<4x6xf32> -> tensor<4x6xf32>
  func.return
}

// -----

func.func @broadcast_range(%x : tensor<4xf32>) {
  // CHECK: error: logical.broadcast: result dimension 2 is out of range for rank 2; write 0 to 1
  %0 = logical.broadcast %x {dimensions = [2]} : tensor<4xf32> -> tensor<4x4xf32>
  func.return
}

// -----

func.func @broadcast_huge(%x : tensor<1000000xf32>) {
  // CHECK: error: logical.broadcast: tensor<1000000x1000000000xf32> takes 4000000000000000 bytes; the largest tensor takes 140737488355328 (2^47)
  %0 = logical.broadcast %x {dimensions = [0]} : tensor<1000000xf32> -> tensor<1000000x1000000000xf32>
  func.return
}

// -----

func.func @slice_end(%x : tensor<4x6xf32>) {
  // CHECK: error: logical.slice: dimension 1 of 4x6: the last element taken is 6, past the end
  %0 = logical.slice %x {starts = [0, 2], sizes = [4, 3], strides = [1, 2]} : tensor<4x6xf32> -> tensor<4x3xf32>
  func.return
}

// -----

func.func @slice_stride(%x : tensor<4xf32>) {
  // CHECK: error: logical.slice: dimension 0 of 4: start 3 and size 4 are at least 0, stride -1 at least 1
  %0 = logical.slice %x {starts = [3], sizes = [4], strides = [-1]} : tensor<4xf32> -> tensor<4xf32>
  func.return
}

// -----

func.func @slice_symbolic(%x : tensor<?xf32, #logical.dims<["N"]>>) {
  // CHECK: error: logical.slice: dimension 0 of N is symbolic; take it whole with size -1
  %0 = logical.slice %x {starts = [0], sizes = [4], strides = [1]} : tensor<?xf32, #logical.dims<["N"]>> -> tensor<4xf32>
  func.return
}

// -----

func.func @slice_whole(%x : tensor<4xf32>) {
  // CHECK: error: logical.slice: dimension 0 of 4 is taken whole (size -1), so its start is 0 and its stride 1
  %0 = logical.slice %x {starts = [1], sizes = [-1], strides = [1]} : tensor<4xf32> -> tensor<3xf32>
  func.return
}

// -----

func.func @slice_rank(%x : tensor<4x6xf32>) {
  // CHECK: error: logical.slice: sizes [4] has 1 value for the 2 dimensions of 4x6
  %0 = logical.slice %x {starts = [0, 0], sizes = [4], strides = [1, 1]} : tensor<4x6xf32> -> tensor<4xf32>
  func.return
}

// -----

func.func @concat_size(%x : tensor<4x6xf32>, %y : tensor<4x5xf32>) {
  // CHECK: error: logical.concat: sizes differ in dimension 1: operand 0 4x6, operand 1 4x5; only dimension 0 may
  %0 = logical.concat %x, %y {axis = 0} : (tensor<4x6xf32>, tensor<4x5xf32>) -> tensor<8x6xf32>
  func.return
}

// -----

func.func @concat_rank(%x : tensor<4x6xf32>, %y : tensor<6xf32>) {
  // CHECK: error: logical.concat: ranks differ: operand 0 4x6, operand 1 6
  %0 = logical.concat %x, %y {axis = 0} : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<5x6xf32>
  func.return
}

// -----

func.func @concat_element(%x : tensor<4xf32>, %y : tensor<4xf64>) {
  // CHECK: error: logical.concat: element types differ: operand 0 f32, operand 1 f64
  %0 = logical.concat %x, %y {axis = 0} : (tensor<4xf32>, tensor<4xf64>) -> tensor<8xf32>
  func.return
}

// -----

func.func @concat_axis(%x : tensor<4xf32>) {
  // CHECK: error: logical.concat: axis 1 is out of range for rank 1; write 0 to 0
  %0 = logical.concat %x, %x {axis = 1} : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
  func.return
}

// -----

// Symbolic sizes are named where the shape has a question mark, and nowhere else.
func.func @unnamed(%x : tensor<?xf32>) {
  // CHECK: error: logical.exp: tensor<?xf32>: dimension 0 is dynamic but has no name; add #logical.dims with one
  %0 = logical.exp %x : tensor<?xf32>
  func.return
}

// -----

func.func @named_static(%x : tensor<4x?xf32, #logical.dims<["N", "M"]>>) {
  // CHECK: error: logical.exp: {{.*}}: dimension 0 is static, its #logical.dims entry must be ""
  %0 = logical.exp %x : tensor<4x?xf32, #logical.dims<["N", "M"]>>
  func.return
}

// -----

func.func @entries(%x : tensor<?x4xf32, #logical.dims<["N"]>>) {
  // CHECK: error: logical.exp: {{.*}}: #logical.dims has 1 entries for 2 dimensions
  %0 = logical.exp %x : tensor<?x4xf32, #logical.dims<["N"]>>
  func.return
}

// -----

// CHECK: error: #logical.dims: 'N/2' is no dimension size: write sums of products, such as 4*N or N + M
func.func @quotient(%x : tensor<?xf32, #logical.dims<["N/2"]>>) {
  func.return
}

// -----

// CHECK: error: #logical.dims: 'N - N + 2' is the constant 2; write it in the shape and leave the entry empty
func.func @constant_size(%x : tensor<?xf32, #logical.dims<["N - N + 2"]>>) {
  func.return
}

// -----

func.func @empty(%x : tensor<0x4xf32>) {
  // CHECK: error: logical.exp: tensor<0x4xf32>: dimension 0 has size 0; empty tensors are not supported
  %0 = logical.exp %x : tensor<0x4xf32>
  func.return
}

// -----

func.func @window_lists(%x : tensor<4x6xf32>) {
  // CHECK: error: logical.window: strides [1] has 1 value, sizes [2, 2] has 2
  %0 = logical.window %x {sizes = [2, 2], strides = [1], dilations = [1, 1]} : tensor<4x6xf32> -> tensor<3x5x2x2xf32>
  func.return
}

// -----

func.func @window_values(%x : tensor<4x6xf32>) {
  // CHECK: error: logical.window: strides [1, 0] are at least 1 each
  %0 = logical.window %x {sizes = [2, 2], strides = [1, 0], dilations = [1, 1]} : tensor<4x6xf32> -> tensor<3x5x2x2xf32>
  func.return
}

// -----

func.func @window_rank(%x : tensor<6xf32>) {
  // CHECK: error: logical.window: sizes [2, 2] has 2 values for the last of 1 dimension of {{.*}}; give 1 to 1
  %0 = logical.window %x {sizes = [2, 2], strides = [1, 1], dilations = [1, 1]} : tensor<6xf32> -> tensor<5x2xf32>
  func.return
}

// -----

func.func @window_span(%x : tensor<4x6xf32>) {
  // CHECK: error: logical.window: dimension 1 of {{.*}}: a window spans 7 elements; pad it, or take smaller windows
  %0 = logical.window %x {sizes = [4], strides = [1], dilations = [2]} : tensor<4x6xf32> -> tensor<4x1x4xf32>
  func.return
}

// -----

func.func @window_symbolic(%x : tensor<?xf32, #logical.dims<["N"]>>) {
  // CHECK: error: logical.window: dimension 0 of {{.*}} is symbolic; windows slide along dimensions of known size
  %0 = logical.window %x {sizes = [2], strides = [1], dilations = [1]} : tensor<?xf32, #logical.dims<["N"]>> -> tensor<?x2xf32, #logical.dims<["N", ""]>>
  func.return
}

// -----

func.func @window_result(%x : tensor<6xf32>) {
  // CHECK: error: logical.window: result type is {{.*}}6x2{{.*}}, but the operands give {{.*}}5x2
  %0 = logical.window %x {sizes = [2], strides = [1], dilations = [1]} : tensor<6xf32> -> tensor<6x2xf32>
  func.return
}
