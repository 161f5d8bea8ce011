// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

func.func @rank(%x : tensor<2x6x9xf32>, %w : tensor<4x6x3x3xf32>, %b : tensor<4xf32>) {
  // CHECK: error: logical.conv: operand {{.*}} and weight {{.*}} have ranks 3 and 4; both are channels of as many dimensions: rank 3 for one, 4 for two
  %0 = logical.conv %x, %w, %b {strides = [1, 1], low = [0, 0], high = [0, 0], dilations = [1, 1], groups = 1} : (tensor<2x6x9xf32>, tensor<4x6x3x3xf32>, tensor<4xf32>) -> tensor<2x4x7xf32>
  func.return
}

// -----

func.func @channels(%x : tensor<2x6x9x9xf32>, %w : tensor<4x5x3x3xf32>, %b : tensor<4xf32>) {
  // CHECK: error: logical.conv: operand 2x6x9x9 has 6 channels (dim 1), the weight takes 5
  %0 = logical.conv %x, %w, %b {strides = [1, 1], low = [0, 0], high = [0, 0], dilations = [1, 1], groups = 1} : (tensor<2x6x9x9xf32>, tensor<4x5x3x3xf32>, tensor<4xf32>) -> tensor<2x4x7x7xf32>
  func.return
}

// -----

func.func @outputs(%x : tensor<2x6x9x9xf32>, %w : tensor<5x3x3x3xf32>, %b : tensor<5xf32>) {
  // CHECK: error: logical.conv: 5 output channels do not split into 2 groups
  %0 = logical.conv %x, %w, %b {strides = [1, 1], low = [0, 0], high = [0, 0], dilations = [1, 1], groups = 2} : (tensor<2x6x9x9xf32>, tensor<5x3x3x3xf32>, tensor<5xf32>) -> tensor<2x5x7x7xf32>
  func.return
}

// -----

func.func @bias(%x : tensor<2x6x9x9xf32>, %w : tensor<4x6x3x3xf32>, %b : tensor<3xf32>) {
  // CHECK: error: logical.conv: bias has shape 3, but there are 4 output channels
  %0 = logical.conv %x, %w, %b {strides = [1, 1], low = [0, 0], high = [0, 0], dilations = [1, 1], groups = 1} : (tensor<2x6x9x9xf32>, tensor<4x6x3x3xf32>, tensor<3xf32>) -> tensor<2x4x7x7xf32>
  func.return
}

// -----

func.func @groups(%x : tensor<2x6x9x9xf32>, %w : tensor<4x6x3x3xf32>, %b : tensor<4xf32>) {
  // CHECK: error: logical.conv: groups is 0; it is at least 1
  %0 = logical.conv %x, %w, %b {strides = [1, 1], low = [0, 0], high = [0, 0], dilations = [1, 1], groups = 0} : (tensor<2x6x9x9xf32>, tensor<4x6x3x3xf32>, tensor<4xf32>) -> tensor<2x4x7x7xf32>
  func.return
}

// -----

func.func @lists(%x : tensor<2x6x9x9xf32>, %w : tensor<4x6x3x3xf32>, %b : tensor<4xf32>) {
  // CHECK: error: logical.conv: strides [1] has 1 value for 2 spatial dimensions of 2x6x9x9
  %0 = logical.conv %x, %w, %b {strides = [1], low = [0, 0], high = [0, 0], dilations = [1, 1], groups = 1} : (tensor<2x6x9x9xf32>, tensor<4x6x3x3xf32>, tensor<4xf32>) -> tensor<2x4x7x7xf32>
  func.return
}

// -----

func.func @negative(%x : tensor<2x6x9x9xf32>, %w : tensor<4x6x3x3xf32>, %b : tensor<4xf32>) {
  // CHECK: error: logical.conv: low [0, -1] has a value below 0
  %0 = logical.conv %x, %w, %b {strides = [1, 1], low = [0, -1], high = [0, 0], dilations = [1, 1], groups = 1} : (tensor<2x6x9x9xf32>, tensor<4x6x3x3xf32>, tensor<4xf32>) -> tensor<2x4x7x6xf32>
  func.return
}

// -----

func.func @span(%x : tensor<2x6x2x9xf32>, %w : tensor<4x6x3x3xf32>, %b : tensor<4xf32>) {
  // CHECK: error: logical.conv: dimension 2 of 2x6x2x9: a window spans 5 elements of 3; pad it, or take smaller windows
  %0 = logical.conv %x, %w, %b {strides = [1, 1], low = [0, 0], high = [1, 0], dilations = [2, 1], groups = 1} : (tensor<2x6x2x9xf32>, tensor<4x6x3x3xf32>, tensor<4xf32>) -> tensor<2x4x1x7xf32>
  func.return
}

// -----

func.func @elements(%x : tensor<2x6x9x9xf32>, %w : tensor<4x6x3x3xf16>, %b : tensor<4xf32>) {
  // CHECK: error: logical.conv: element types differ: operand f32, weight f16
  %0 = logical.conv %x, %w, %b {strides = [1, 1], low = [0, 0], high = [0, 0], dilations = [1, 1], groups = 1} : (tensor<2x6x9x9xf32>, tensor<4x6x3x3xf16>, tensor<4xf32>) -> tensor<2x4x7x7xf32>
  func.return
}

// -----

func.func @truth(%x : tensor<2x6x9x9xi1>, %w : tensor<4x6x3x3xi1>, %b : tensor<4xf32>) {
  // CHECK: error: logical.conv: not defined for i1; cast to a number first
  %0 = logical.conv %x, %w, %b {strides = [1, 1], low = [0, 0], high = [0, 0], dilations = [1, 1], groups = 1} : (tensor<2x6x9x9xi1>, tensor<4x6x3x3xi1>, tensor<4xf32>) -> tensor<2x4x7x7xf32>
  func.return
}

// -----

func.func @list_of(%x : tensor<2x6x9x9xf32>, %w : tensor<4x6x3x3xf32>, %b : tensor<4xf32>) {
  // CHECK: error: logical.conv: dilations is 2 : i64; it is a list of integers, such as [0, 1]
  %0 = logical.conv %x, %w, %b {strides = [1, 1], low = [0, 0], high = [0, 0], dilations = 2, groups = 1} : (tensor<2x6x9x9xf32>, tensor<4x6x3x3xf32>, tensor<4xf32>) -> tensor<2x4x7x7xf32>
  func.return
}

// -----

func.func @back_channels(%x : tensor<2x6x9x9xf32>, %w : tensor<5x4x3x3xf32>, %b : tensor<4xf32>) {
  // CHECK: error: logical.conv_transpose: operand 2x6x9x9 has 6 channels (dim 1), the weight takes 5
  %0 = logical.conv_transpose %x, %w, %b {strides = [1, 1], low = [0, 0], high = [0, 0], extra = [0, 0], dilations = [1, 1], groups = 1} : (tensor<2x6x9x9xf32>, tensor<5x4x3x3xf32>, tensor<4xf32>) -> tensor<2x4x11x11xf32>
  func.return
}

// -----

func.func @back_groups(%x : tensor<2x6x9x9xf32>, %w : tensor<6x4x3x3xf32>, %b : tensor<4xf32>) {
  // CHECK: error: logical.conv_transpose: 6 input channels do not split into 4 groups
  %0 = logical.conv_transpose %x, %w, %b {strides = [1, 1], low = [0, 0], high = [0, 0], extra = [0, 0], dilations = [1, 1], groups = 4} : (tensor<2x6x9x9xf32>, tensor<6x4x3x3xf32>, tensor<4xf32>) -> tensor<2x16x11x11xf32>
  func.return
}

// -----

func.func @back_cut(%x : tensor<2x6x9x2xf32>, %w : tensor<6x4x3x3xf32>, %b : tensor<4xf32>) {
  // CHECK: error: logical.conv_transpose: dimension 3 of the result has 0 elements; cut off less
  %0 = logical.conv_transpose %x, %w, %b {strides = [1, 1], low = [0, 2], high = [0, 2], extra = [0, 0], dilations = [1, 1], groups = 1} : (tensor<2x6x9x2xf32>, tensor<6x4x3x3xf32>, tensor<4xf32>) -> tensor<2x4x11x1xf32>
  func.return
}

// -----

func.func @back_result(%x : tensor<2x6x9x2xf32>, %w : tensor<6x4x3x3xf32>, %b : tensor<4xf32>) {
  // CHECK: error: logical.conv_transpose: result type is {{.*}}2x4x11x5{{.*}}, but the operands give {{.*}}2x4x11x4
  %0 = logical.conv_transpose %x, %w, %b {strides = [1, 1], low = [0, 0], high = [0, 0], extra = [0, 0], dilations = [1, 1], groups = 1} : (tensor<2x6x9x2xf32>, tensor<6x4x3x3xf32>, tensor<4xf32>) -> tensor<2x4x11x5xf32>
  func.return
}

// -----

func.func @symbolic(%x : tensor<2x6x?xf32, #logical.dims<["", "", "L"]>>, %w : tensor<4x6x3xf32>) {
  // CHECK: error: logical.conv: operand {{.*}}: only the first size of the operand may be symbolic
  %0 = logical.conv %x, %w {strides = [1], low = [1], high = [1], dilations = [1], groups = 1} : (tensor<2x6x?xf32, #logical.dims<["", "", "L"]>>, tensor<4x6x3xf32>) -> tensor<2x4x?xf32, #logical.dims<["", "", "L"]>>
  func.return
}

// -----

// The bias of a widening convolution is added to sums of i32.
func.func @widening_bias(%x : tensor<2x6x9xui8>, %w : tensor<4x6x3xi8>, %b : tensor<4xi8>) {
  // CHECK: error: logical.conv: element types differ: sums i32, bias i8
  %0 = logical.conv %x, %w, %b {strides = [1], low = [0], high = [0], dilations = [1], groups = 1, widening} : (tensor<2x6x9xui8>, tensor<4x6x3xi8>, tensor<4xi8>) -> tensor<2x4x7xi32>
  func.return
}

// -----

func.func @widening_floats(%x : tensor<2x6x9xf32>, %w : tensor<4x6x3xi8>) {
  // CHECK: error: logical.conv: operand 2x6x9xf32 is of f32; a widening product is of i16, i8, u8
  %0 = logical.conv %x, %w {strides = [1], low = [0], high = [0], dilations = [1], groups = 1, widening} : (tensor<2x6x9xf32>, tensor<4x6x3xi8>) -> tensor<2x4x7xi32>
  func.return
}

// -----

func.func @padding_value_of_floats(%x : tensor<2x6x9xf32>, %w : tensor<4x6x3xf32>) {
  // CHECK: error: logical.conv: padding_value is of short integers; add widening, or pad the operand with logical.pad
  %0 = logical.conv %x, %w {strides = [1], low = [1], high = [1], dilations = [1], groups = 1, padding_value = 1} : (tensor<2x6x9xf32>, tensor<4x6x3xf32>) -> tensor<2x4x9xf32>
  func.return
}

// -----

func.func @padding_value_of_another_type(%x : tensor<2x6x9xui8>, %w : tensor<4x6x3xi8>) {
  // CHECK: error: logical.conv: padding_value is -1; u8 holds 0 to 255
  %0 = logical.conv %x, %w {strides = [1], low = [1], high = [1], dilations = [1], groups = 1, widening, padding_value = -1} : (tensor<2x6x9xui8>, tensor<4x6x3xi8>) -> tensor<2x4x9xi32>
  func.return
}

// -----

func.func @padding_value_is_an_integer(%x : tensor<2x6x9xui8>, %w : tensor<4x6x3xi8>) {
  // CHECK: error: logical.conv: padding_value is 1.000000e+00 : f64; it is an integer
  %0 = logical.conv %x, %w {strides = [1], low = [1], high = [1], dilations = [1], groups = 1, widening, padding_value = 1.0} : (tensor<2x6x9xui8>, tensor<4x6x3xi8>) -> tensor<2x4x9xi32>
  func.return
}
