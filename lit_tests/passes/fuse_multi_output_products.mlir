// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},fuse-epilogues,fuse-elementwise,fuse-multi-output' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},fuse-epilogues,fuse-elementwise,fuse-multi-output,select-kernels,generate-kernels,lower-to-emit,schedule' | filecheck %s --check-prefix=EMIT
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},apply-policy{policy="{\"groups\": [[\"up\", \"up.act\"], [\"few\", \"few.act\"]]}"},fuse-epilogues,fuse-elementwise,fuse-multi-output' | filecheck %s --check-prefix=LISTED
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},apply-policy{policy="{\"groups\": [[\"up\"]]}"},fuse-epilogues,fuse-elementwise,fuse-multi-output' | filecheck %s --check-prefix=PINNED
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},apply-policy{policy="{\"kernels\": {\"gemm\": \"cuda.gemm_mma\"}}"},fuse-epilogues,fuse-elementwise,fuse-multi-output' | filecheck %s --check-prefix=KIND
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},apply-policy{policy="{\"fusion\": {\"multi_output\": false}}"},fuse-epilogues,fuse-elementwise,fuse-multi-output' | filecheck %s --check-prefix=OFF
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},fuse-epilogues,fuse-elementwise,fuse-multi-output' | filecheck %s --check-prefix=CPU

// CHECK: emit.decision "fuse-multi-output" ["up", "up.act"] choice "one kernel for 2 ops, 2 results" because "what is kept of earlier ops is in registers when later ops read it" cost {saved_bytes = 8388608 : i64, unfused_us = {{.*}}, fused_us = {{.*}}}
// CHECK: emit.decision "fuse-multi-output" ["few"] choice "not fused" because "no other instruction can be fused with it" rejected {few.act = "predicted {{.*}} us fused and {{.*}} us unfused; {{.*}}"}
// CHECK: emit.decision "fuse-multi-output" ["odd"] choice "not fused" {{.*}} cuda.gemm_wgmma: several results of a product are written here as lines of whole 16 bytes of f16 or bf16; {{.*}} cuda.gemm_mma: a product has several results;
// CHECK-NOT: emit.decision "fuse-multi-output" ["sums"
// PINNED: emit.decision "fuse-multi-output" ["up"] choice "not fused" {{.*}} rejected {up.act = "the policy's groups keep them in different instructions"}
// KIND: emit.decision "fuse-multi-output" ["up"] choice "not fused" {{.*}} rejected {up.act = "the policy pins kernel cuda.gemm_mma for products of its kind, and that cannot run them fused"}
// OFF: emit.decision "fuse-multi-output" ["up"] choice "not fused" {{.*}} rejected {up.act = "fusion into several results is off by policy (fusion: elementwise, multi_output, epilogue)"}
// CPU: emit.decision "fuse-multi-output" ["up"] choice "not fused" {{.*}}cpu.gemm_avx2: a product has several results

// A product that others read, and what is computed of each of its elements: one kernel that writes both.
// CHECK-LABEL: func.func @kept
// CHECK-NEXT: %h, %y = emit.group "up" from ["up", "up.act"]
// CHECK-NEXT: logical.matmul
// CHECK-NEXT: logical.tanh
// CHECK-NEXT: emit.yield
// CHECK-NEXT: }
// CHECK-NEXT: func.return %h, %y
// LISTED: emit.group "up" from ["up", "up.act"]
// OFF-LABEL: func.func @kept
// OFF: emit.group "up" from ["up"]
// OFF: emit.group "up.act" from ["up.act"]

// Its epilogue starts from the sums and stores them and what comes of them.
// EMIT: emit.kernel @up.code parallel [4096, 1024] reduce [] ins [{{.*}}] outs [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>]
// EMIT: emit.store %h, 0 : bf16
// EMIT: emit.store %{{.*}}, 1 : bf16
// EMIT: emit.resolved "gemm_epilogue" id(17) name("up")
// EMIT: activation = "generated"
// EMIT: kernel("cuda.gemm_wgmma"
func.func @kept(
    %x : tensor<4096x256xbf16> {logical.name = "x", logical.role = "input"},
    %w : tensor<256x1024xbf16> {logical.name = "w", logical.role = "param"})
    -> (tensor<4096x1024xbf16> {logical.name = "h"}, tensor<4096x1024xbf16> {logical.name = "y"}) {
  %h = logical.matmul %x, %w {aicf.id = "up", aicf.src = ["up"]} : (tensor<4096x256xbf16>, tensor<256x1024xbf16>) -> tensor<4096x1024xbf16>
  %y = logical.tanh %h {aicf.id = "up.act", aicf.src = ["up.act"]} : tensor<4096x1024xbf16>
  func.return %h, %y : tensor<4096x1024xbf16>, tensor<4096x1024xbf16>
}

// Rows that a kernel streams past the weights take less time apart; a policy that lists them together is followed.
// CHECK-LABEL: func.func @few_rows
// CHECK: emit.group "few" from ["few"]
// CHECK: emit.group "few.act" from ["few.act"]
// LISTED: emit.group "few" from ["few", "few.act"]
func.func @few_rows(
    %x : tensor<8x256xbf16> {logical.name = "x", logical.role = "input"},
    %w : tensor<256x1024xbf16> {logical.name = "w", logical.role = "param"})
    -> (tensor<8x1024xbf16> {logical.name = "h"}, tensor<8x1024xbf16> {logical.name = "y"}) {
  %h = logical.matmul %x, %w {aicf.id = "few", aicf.src = ["few"]} : (tensor<8x256xbf16>, tensor<256x1024xbf16>) -> tensor<8x1024xbf16>
  %y = logical.tanh %h {aicf.id = "few.act", aicf.src = ["few.act"]} : tensor<8x1024xbf16>
  func.return %h, %y : tensor<8x1024xbf16>, tensor<8x1024xbf16>
}

// Results that the kernel would not write as whole lines.
// CHECK-LABEL: func.func @odd_lines
// CHECK: emit.group "odd" from ["odd"]
func.func @odd_lines(
    %x : tensor<4096x256xbf16> {logical.name = "x", logical.role = "input"},
    %w : tensor<1022x256xbf16> {logical.name = "w", logical.role = "param"})
    -> (tensor<4096x1022xbf16> {logical.name = "h"}, tensor<4096x1022xbf16> {logical.name = "y"}) {
  %h = logical.matmul %x, %w {transpose_b, aicf.id = "odd", aicf.src = ["odd"]} : (tensor<4096x256xbf16>, tensor<1022x256xbf16>) -> tensor<4096x1022xbf16>
  %y = logical.tanh %h {aicf.id = "odd.act", aicf.src = ["odd.act"]} : tensor<4096x1022xbf16>
  func.return %h, %y : tensor<4096x1022xbf16>, tensor<4096x1022xbf16>
}

// A reduction is no activation: nothing to decide.
// CHECK-LABEL: func.func @summed
// CHECK: emit.group "sums" from ["sums"]
func.func @summed(
    %x : tensor<4096x256xbf16> {logical.name = "x", logical.role = "input"},
    %w : tensor<256x1024xbf16> {logical.name = "w", logical.role = "param"})
    -> (tensor<4096x1024xbf16> {logical.name = "h"}, tensor<4096xbf16> {logical.name = "y"}) {
  %h = logical.matmul %x, %w {aicf.id = "sums", aicf.src = ["sums"]} : (tensor<4096x256xbf16>, tensor<256x1024xbf16>) -> tensor<4096x1024xbf16>
  %s = logical.reduce_sum %h {axes = [1], aicf.id = "sums.total", aicf.src = ["sums.total"]} : tensor<4096x1024xbf16> -> tensor<4096xbf16>
  func.return %h, %s : tensor<4096x1024xbf16>, tensor<4096xbf16>
}

// A convolution takes in no cast to wider elements that its consumers can do: it writes half the bytes.
// CHECK-LABEL: func.func @widened
// CHECK: emit.group "taps" from ["taps"] {{.*}} -> (tensor<8x64x56x56xbf16>)
// CHECK: emit.group "taps.wide" from ["taps.wide", "taps.sum", "taps.scaled", "taps.squares"] ins(%{{.*}} = %c : tensor<8x64x56x56xbf16>)
func.func @widened(
    %x : tensor<8x64x56x56xbf16> {logical.name = "x", logical.role = "input"},
    %k : tensor<64x64x3x3xbf16> {logical.name = "k", logical.role = "param"})
    -> (tensor<64xf32> {logical.name = "sum"}, tensor<64xf32> {logical.name = "squares"}) {
  %c = logical.conv %x, %k {strides = [1, 1], low = [1, 1], high = [1, 1], dilations = [1, 1], groups = 1, aicf.id = "taps", aicf.src = ["taps"]} : (tensor<8x64x56x56xbf16>, tensor<64x64x3x3xbf16>) -> tensor<8x64x56x56xbf16>
  %w = logical.cast %c {aicf.id = "taps.wide", aicf.src = ["taps.wide"]} : tensor<8x64x56x56xbf16> -> tensor<8x64x56x56xf32>
  %a = logical.reduce_sum %w {axes = [0, 2, 3], aicf.id = "taps.sum", aicf.src = ["taps.sum"]} : tensor<8x64x56x56xf32> -> tensor<64xf32>
  %s = logical.broadcast %a {dimensions = [1], aicf.id = "taps.spread", aicf.src = ["taps.spread"]} : tensor<64xf32> -> tensor<8x64x56x56xf32>
  %m = logical.mul %w, %s {aicf.id = "taps.scaled", aicf.src = ["taps.scaled"]} : tensor<8x64x56x56xf32>
  %b = logical.reduce_sum %m {axes = [0, 2, 3], aicf.id = "taps.squares", aicf.src = ["taps.squares"]} : tensor<8x64x56x56xf32> -> tensor<64xf32>
  func.return %a, %b : tensor<64xf32>, tensor<64xf32>
}
