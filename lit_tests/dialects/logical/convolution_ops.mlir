// RUN: aicf-opt %s | aicf-opt | filecheck %s
// RUN: aicf-opt %s --print-op-generic | aicf-opt | filecheck %s

// Windows of two dimensions over a batch of unknown size, padded on one side, with a bias.
// CHECK-LABEL: func.func @conv
func.func @conv(%x : tensor<?x6x9x8xf32, #logical.dims<["N", "", "", ""]>>, %w : tensor<4x6x3x3xf32>, %b : tensor<4xf32>) -> tensor<?x4x4x8xf32, #logical.dims<["N", "", "", ""]>> {
  // CHECK-NEXT: %0 = logical.conv %x, %w, %b {strides = [2, 1], low = [0, 1], high = [1, 1], dilations = [1, 1], groups = 1} : (tensor<?x6x9x8xf32, #logical.dims<["N", "", "", ""]>>, tensor<4x6x3x3xf32>, tensor<4xf32>) -> tensor<?x4x4x8xf32, #logical.dims<["N", "", "", ""]>>
  %0 = logical.conv %x, %w, %b {strides = [2, 1], low = [0, 1], high = [1, 1], dilations = [1, 1], groups = 1} : (tensor<?x6x9x8xf32, #logical.dims<["N", "", "", ""]>>, tensor<4x6x3x3xf32>, tensor<4xf32>) -> tensor<?x4x4x8xf32, #logical.dims<["N", "", "", ""]>>
  func.return %0 : tensor<?x4x4x8xf32, #logical.dims<["N", "", "", ""]>>
}

// One dimension, three groups of two channels, and the way back.
// CHECK-LABEL: func.func @groups
func.func @groups(%x : tensor<1x6x9xi8>, %w : tensor<3x2x2xi8>, %v : tensor<3x2x2xi8>) -> tensor<1x6x10xi8> {
  // CHECK-NEXT: %0 = logical.conv %x, %w {strides = [2], low = [0], high = [0], dilations = [3], groups = 3} : (tensor<1x6x9xi8>, tensor<3x2x2xi8>) -> tensor<1x3x3xi8>
  %0 = logical.conv %x, %w {strides = [2], low = [0], high = [0], dilations = [3], groups = 3} : (tensor<1x6x9xi8>, tensor<3x2x2xi8>) -> tensor<1x3x3xi8>
  // CHECK-NEXT: %1 = logical.conv_transpose %0, %v {strides = [3], low = [0], high = [0], extra = [2], dilations = [1], groups = 3} : (tensor<1x3x3xi8>, tensor<3x2x2xi8>) -> tensor<1x6x10xi8>
  %1 = logical.conv_transpose %0, %v {strides = [3], low = [0], high = [0], extra = [2], dilations = [1], groups = 3} : (tensor<1x3x3xi8>, tensor<3x2x2xi8>) -> tensor<1x6x10xi8>
  func.return %1 : tensor<1x6x10xi8>
}

// Integers of two types, whose sums are i32, as the bias is.
// CHECK-LABEL: func.func @widening
func.func @widening(%x : tensor<1x6x9xui8>, %w : tensor<3x6x2xi16>, %b : tensor<3xi32>) -> tensor<1x3x8xi32> {
  // CHECK-NEXT: %0 = logical.conv %x, %w, %b {strides = [1], low = [0], high = [0], dilations = [1], groups = 1, widening} : (tensor<1x6x9xui8>, tensor<3x6x2xi16>, tensor<3xi32>) -> tensor<1x3x8xi32>
  %0 = logical.conv %x, %w, %b {strides = [1], low = [0], high = [0], dilations = [1], groups = 1, widening} : (tensor<1x6x9xui8>, tensor<3x6x2xi16>, tensor<3xi32>) -> tensor<1x3x8xi32>
  func.return %0 : tensor<1x3x8xi32>
}

// What lies around short integers may be one of them.
// CHECK-LABEL: func.func @padding_value
func.func @padding_value(%x : tensor<1x6x9xui8>, %w : tensor<3x6x2xi8>) -> tensor<1x3x10xi32> {
  // CHECK-NEXT: %0 = logical.conv %x, %w {strides = [1], low = [1], high = [1], dilations = [1], groups = 1, widening, padding_value = 255} : (tensor<1x6x9xui8>, tensor<3x6x2xi8>) -> tensor<1x3x10xi32>
  %0 = logical.conv %x, %w {strides = [1], low = [1], high = [1], dilations = [1], groups = 1, widening, padding_value = 255} : (tensor<1x6x9xui8>, tensor<3x6x2xi8>) -> tensor<1x3x10xi32>
  func.return %0 : tensor<1x3x10xi32>
}
