// RUN: aicf-opt %s | aicf-opt | filecheck %s
// RUN: aicf-opt %s --print-op-generic | aicf-opt | filecheck %s

// Counts of windows in place of the spatial sizes; the batch may be symbolic.
// CHECK-LABEL: func.func @largest
func.func @largest(%x : tensor<?x3x9x11xf32, #logical.dims<["N", "", "", ""]>>, %n : tensor<2x3x7xi8>) -> tensor<2x3x3xi8> {
  // CHECK-NEXT: %0 = logical.max_pool %x {sizes = [3, 3], strides = [2, 2], dilations = [1, 1], low = [1, 1], high = [1, 1]} : tensor<?x3x9x11xf32, #logical.dims<["N", "", "", ""]>> -> tensor<?x3x5x6xf32, #logical.dims<["N", "", "", ""]>>
  %0 = logical.max_pool %x {sizes = [3, 3], strides = [2, 2], dilations = [1, 1], low = [1, 1], high = [1, 1]} : tensor<?x3x9x11xf32, #logical.dims<["N", "", "", ""]>> -> tensor<?x3x5x6xf32, #logical.dims<["N", "", "", ""]>>
  // CHECK-NEXT: %1 = logical.max_pool %n {sizes = [3], strides = [2], dilations = [1], low = [0], high = [0]} : tensor<2x3x7xi8> -> tensor<2x3x3xi8>
  %1 = logical.max_pool %n {sizes = [3], strides = [2], dilations = [1], low = [0], high = [0]} : tensor<2x3x7xi8> -> tensor<2x3x3xi8>
  // CHECK-NEXT: %2 = logical.max_pool_indices %n {sizes = [2], strides = [2], dilations = [2], low = [0], high = [0], ceil_mode} : tensor<2x3x7xi8> -> tensor<2x3x3xi64>
  %2 = logical.max_pool_indices %n {ceil_mode = true, sizes = [2], strides = [2], dilations = [2], low = [0], high = [0]} : tensor<2x3x7xi8> -> tensor<2x3x3xi64>
  // CHECK-NEXT: %3 = logical.max_pool %n {sizes = [2], strides = [2], dilations = [1], low = [0], high = [0], ceil_mode} : tensor<2x3x7xi8> -> tensor<2x3x4xi8>
  %3 = logical.max_pool %n {sizes = [2], strides = [2], dilations = [1], low = [0], high = [0], ceil_mode} : tensor<2x3x7xi8> -> tensor<2x3x4xi8>
  func.return %1 : tensor<2x3x3xi8>
}

// Means, with or without the padding, and norms.
// CHECK-LABEL: func.func @means
func.func @means(%x : tensor<2x3x4x5x6xf32>) -> tensor<2x3x3x3x3xf32> {
  // CHECK-NEXT: %0 = logical.avg_pool %x {sizes = [2, 3, 4], strides = [1, 1, 1], dilations = [1, 1, 1], low = [0, 0, 0], high = [0, 0, 0]} : tensor<2x3x4x5x6xf32> -> tensor<2x3x3x3x3xf32>
  %0 = logical.avg_pool %x {sizes = [2, 3, 4], strides = [1, 1, 1], dilations = [1, 1, 1], low = [0, 0, 0], high = [0, 0, 0]} : tensor<2x3x4x5x6xf32> -> tensor<2x3x3x3x3xf32>
  // CHECK-NEXT: %1 = logical.avg_pool %x {count_include_pad, sizes = [2, 2, 2], strides = [2, 2, 2], dilations = [1, 1, 1], low = [0, 1, 0], high = [0, 0, 0]} : tensor<2x3x4x5x6xf32> -> tensor<2x3x2x3x3xf32>
  %1 = logical.avg_pool %x {sizes = [2, 2, 2], strides = [2, 2, 2], dilations = [1, 1, 1], low = [0, 1, 0], high = [0, 0, 0], count_include_pad} : tensor<2x3x4x5x6xf32> -> tensor<2x3x2x3x3xf32>
  // CHECK-NEXT: %2 = logical.lp_pool %x {p = 2, sizes = [2, 2, 2], strides = [2, 2, 2], dilations = [1, 1, 1], low = [0, 0, 0], high = [0, 0, 0]} : tensor<2x3x4x5x6xf32> -> tensor<2x3x2x2x3xf32>
  %2 = logical.lp_pool %x {p = 2, sizes = [2, 2, 2], strides = [2, 2, 2], dilations = [1, 1, 1], low = [0, 0, 0], high = [0, 0, 0]} : tensor<2x3x4x5x6xf32> -> tensor<2x3x2x2x3xf32>
  func.return %0 : tensor<2x3x3x3x3xf32>
}

// Which element of each window is the largest, and what is passed back to it.
// CHECK-LABEL: func.func @gradient
func.func @gradient(%x : tensor<2x3x9x11xbf16>, %g : tensor<2x3x5x6xbf16>) -> tensor<2x3x9x11xbf16> {
  // CHECK-NEXT: %0 = logical.max_pool_taps %x {sizes = [3, 3], strides = [2, 2], dilations = [1, 1], low = [1, 1], high = [1, 1]} : tensor<2x3x9x11xbf16> -> tensor<2x3x5x6xi8>
  %0 = logical.max_pool_taps %x {sizes = [3, 3], strides = [2, 2], dilations = [1, 1], low = [1, 1], high = [1, 1]} : tensor<2x3x9x11xbf16> -> tensor<2x3x5x6xi8>
  // CHECK-NEXT: %1 = logical.max_pool_grad %0, %g {whole = [9, 11], sizes = [3, 3], strides = [2, 2], dilations = [1, 1], low = [1, 1]} : (tensor<2x3x5x6xi8>, tensor<2x3x5x6xbf16>) -> tensor<2x3x9x11xbf16>
  %1 = logical.max_pool_grad %0, %g {whole = [9, 11], sizes = [3, 3], strides = [2, 2], dilations = [1, 1], low = [1, 1]} : (tensor<2x3x5x6xi8>, tensor<2x3x5x6xbf16>) -> tensor<2x3x9x11xbf16>
  func.return %1 : tensor<2x3x9x11xbf16>
}
