// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

// CHECK: error: %b has type tensor<5xf32>
