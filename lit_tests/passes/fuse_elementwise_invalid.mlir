// RUN: not aicf-opt %s --split-input-file -p 'set-target{target="cpu:x86-64-v3"},fuse-elementwise' 2>&1 | filecheck %s

// An op that no kernel of the target runs is an error that says which element types do.
// CHECK: error: no kernel of target cpu runs 'half.exp' (logical.exp): cpu.generated: element type f16 is not supported on cpu, only {{.*}}: cast to f32 first
func.func @half(%x : tensor<4xf16> {logical.name = "x", logical.role = "input"}) -> (tensor<4xf16> {logical.name = "y"}) {
  %e = logical.exp %x {aicf.id = "half.exp", aicf.src = ["half.exp"]} : tensor<4xf16>
  func.return %e : tensor<4xf16>
}
