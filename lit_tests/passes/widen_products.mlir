// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},assign-ids,widen-products' | filecheck %s --check-prefix=CPU
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},assign-ids,widen-products' | filecheck %s --check-prefix=CUDA
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3"}' | filecheck %s --check-prefix=FINAL
// RUN: aicf-opt %s -p 'aicf-inference{target="cuda:sm_90a"}' | filecheck %s --check-prefix=GPU

// A kernel of the cpu adds up products of two types in i32; a weight is packed in pairs of k, in its own type or wide.
// On cuda the operands are cast first, and the ledger says why. A product that does not widen stays as it is.
// CPU-NOT: emit.decision "widen-products"
// CPU: logical.matmul %x, %w {transpose_b, widening
// CUDA: emit.decision "widen-products" ["y"] choice "as a product of i32" because {{.*}}cuda.gemm_simt: its sums are i32, wider than a product of u8: cast the operands first
// CUDA: %y.lhs.wide = logical.cast %x
// CUDA-NEXT: %y.rhs.wide = logical.cast %w
// CUDA-NEXT: logical.matmul %y.lhs.wide, %y.rhs.wide {transpose_b
// CUDA: logical.matmul %x, %v {aicf.id = "z"
// FINAL: kernel("cpu.pack"{{.*}}pairs = 1 : i64
// FINAL: emit.resolved "gemm"{{.*}}name("y")
// FINAL: kernel("cpu.gemm_avx2"{{.*}}pairs_of_k = true
// GPU: kernel("cuda.gemm_simt"
func.func @f(%x : tensor<5x70xi8> {logical.name = "x", logical.role = "input"}, %w : tensor<9x70xui8> {logical.name = "w", logical.role = "param"}, %v : tensor<70x9xi8> {logical.name = "v", logical.role = "param"}) -> (tensor<5x9xi32> {logical.name = "y"}, tensor<5x9xi8> {logical.name = "z"}) {
  %y = logical.matmul %x, %w {widening, transpose_b} : (tensor<5x70xi8>, tensor<9x70xui8>) -> tensor<5x9xi32>
  %z = logical.matmul %x, %v : (tensor<5x70xi8>, tensor<70x9xi8>) -> tensor<5x9xi8>
  func.return %y, %z : tensor<5x9xi32>, tensor<5x9xi8>
}
