// RUN: aicf-opt %s | aicf-opt | filecheck %s
// RUN: aicf-opt %s --print-op-generic | aicf-opt | filecheck %s

// One program per combination of sizes.
// CHECK: logical.dispatch @mlp dims ["N"] {{\[\[}}1] = @"mlp@N=1", [540] = @"mlp@N=540"]
logical.dispatch @mlp dims ["N"] [[1] = @"mlp@N=1", [540] = @"mlp@N=540"]
// CHECK: logical.dispatch @pair dims ["N", "M"] {{\[\[}}1, 2] = @p] attributes {note = "kept"}
logical.dispatch @pair dims ["N", "M"] [[1, 2] = @p] attributes {note = "kept"}
