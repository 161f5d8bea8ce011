// RUN: aicf-opt %s -p 'set-target{target="reference:typed" threads=2}' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},set-target{target="reference:typed"}' | filecheck %s --check-prefix=AGAIN
// RUN: not aicf-opt %s -p 'set-target{target="reference:exact"}' 2>&1 | filecheck %s --check-prefix=LEVEL
// RUN: not aicf-opt %s -p 'set-target{target="tpu:v5"}' 2>&1 | filecheck %s --check-prefix=BACKEND
// RUN: not aicf-opt %s -p 'set-target{target="cuda:sm_90a+unknown=1"}' 2>&1 | filecheck %s --check-prefix=LIBRARY
// RUN: not aicf-opt %s -p 'set-target{target="reference:typed+cublasLt=1"}' 2>&1 | filecheck %s --check-prefix=NONE
// RUN: not aicf-opt %s -p 'set-target{target="reference:typed" threads=0}' 2>&1 | filecheck %s --check-prefix=THREADS
// RUN: not aicf-opt %s -p 'set-target' 2>&1 | filecheck %s --check-prefix=OPTION

// The target becomes a module attribute, and the ledger says who asked for it.
// CHECK:       builtin.module attributes {aicf.target = #emit.target<"reference", "typed", {threads = 2 : i64}>} {
// CHECK:         emit.decision "set-target" ["module"] choice "reference:typed" because "option target, threads 2"

// The last one stands.
// AGAIN:       aicf.target = #emit.target<"reference", "typed", {threads = 1 : i64}>

// LEVEL: error: backend 'reference' has no level 'exact'; legal: typed
// BACKEND: error: unknown backend 'tpu'; registered: {{.*}}reference
// LIBRARY: error: target 'cuda:sm_90a+unknown=1': 'unknown' is no library of backend 'cuda'; legal: cublasLt, cudnn
// NONE: error: target 'reference:typed+cublasLt=1': 'cublasLt' is no library of backend 'reference'; it calls none
// THREADS: error: threads must be at least 1, got 0
// OPTION: error: pass 'set-target': {{.*}}target
func.func @f(%x: tensor<2xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<2xf32> {logical.name = "y"}) {
  %y = logical.relu %x : tensor<2xf32>
  func.return %y : tensor<2xf32>
}
