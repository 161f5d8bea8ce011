// RUN: not aicf-opt %s -p specialize-shapes 2>&1 | filecheck %s --check-prefix=UNBOUND
// RUN: not aicf-opt %s -p 'specialize-shapes{dims="N=1"}' 2>&1 | filecheck %s --check-prefix=PARTLY
// RUN: not aicf-opt %s -p 'specialize-shapes{dims="N=1;M=2;K=3"}' 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: not aicf-opt %s -p 'specialize-shapes{dims="N=0;M=2"}' 2>&1 | filecheck %s --check-prefix=ZERO
// RUN: not aicf-opt %s -p 'specialize-shapes{dims="N:1"}' 2>&1 | filecheck %s --check-prefix=SYNTAX
// RUN: not aicf-opt %s -p 'specialize-shapes{dims="N=1,1;M=2"}' 2>&1 | filecheck %s --check-prefix=REPEATED
// RUN: not aicf-opt %s -p 'specialize-shapes{dims="N=1;M=2;N=3"}' 2>&1 | filecheck %s --check-prefix=TWICE
// RUN: not aicf-opt %s -p 'specialize-shapes{dims="N=1;M=1"}' 2>&1 | filecheck %s --check-prefix=EMPTY
// RUN: not aicf-opt %s -p 'specialize-shapes{dims="N=100000000;M=100000000"}' 2>&1 | filecheck %s --check-prefix=HUGE

// UNBOUND: unbound symbolic dimensions: N, M; give sizes for each, as in dims="N=1;M=1"
// PARTLY: unbound symbolic dimensions: M; give sizes for each, as in dims="M=1"
// UNKNOWN: dims: the program has no symbolic dimension K; its dimensions are: N, M
// ZERO: specialize_shapes_invalid.mlir:[[# @LINE + 6]]:1: error: func.func: size N is 0 for N=0, M=2; a dimension has at least 1 element
// SYNTAX: dims: cannot read 'N:1'; write sizes per name, as in N=1,32;M=4
// REPEATED: dims: 'N=1,1' repeats a name or a size; give each once
// TWICE: dims: 'N=3' repeats a name or a size; give each once
// EMPTY: specialize_shapes_invalid.mlir:[[# @LINE + 2]]:1: error: func.func: size M - 1 is 0 for N=1, M=1; a dimension has at least 1 element
// HUGE: specialize_shapes_invalid.mlir:[[# @LINE + 2]]:3: error: logical.broadcast: {{.*}} takes 40000000000000000 bytes; the largest tensor takes 140737488355328 (2^47)
func.func @f(%x : tensor<?xf32, #logical.dims<["N"]>>, %y : tensor<?xf32, #logical.dims<["M - 1"]>>, %z : tensor<?xf32, #logical.dims<["M"]>>) {
  %0 = logical.broadcast %x {dimensions = [0]} : tensor<?xf32, #logical.dims<["N"]>> -> tensor<?x?xf32, #logical.dims<["N", "M"]>>
  func.return
}
