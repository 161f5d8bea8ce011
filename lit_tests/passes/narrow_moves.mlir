// RUN: aicf-opt %s -p 'narrow-moves' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},narrow-moves,logical-dce,fuse-elementwise,fuse-multi-output' | filecheck %s --check-prefix=ONE

// CHECK: emit.decision "narrow-moves" ["turned", "wide"] choice "moved before the cast" because "what is moved is read from memory, where narrow elements take less room and often are already"
// CHECK: emit.decision "narrow-moves" ["rows", "table"] choice "moved before the cast"
// CHECK: emit.decision "narrow-moves" ["picked", "table"] choice "moved before the cast"
// CHECK-NOT: emit.decision "narrow-moves"

// A rotation reads its operand as it lies and turned around: the wide elements are nowhere in memory.
// CHECK-LABEL: func.func @rotated
// CHECK: %w = logical.cast %x {aicf.id = "wide"
// CHECK: %turned.narrow = logical.flip %x {axes = [1], aicf.id = "turned.narrow", aicf.src = ["turned"]} : (tensor<512x2x64xbf16>) -> tensor<512x2x64xbf16>
// CHECK: logical.cast %turned.narrow {aicf.id = "turned", aicf.src = ["turned"]} : tensor<512x2x64xbf16> -> tensor<512x2x64xf32>
// ONE-LABEL: func.func @rotated
// ONE-NEXT: emit.group "turned" from ["turned", "wide", "y"] ins({{.*}} : tensor<512x2x64xbf16>) -> (tensor<512x2x64xf32>) {
// ONE-NOT: emit.group
// ONE: func.func @rows
func.func @rotated(%x : tensor<512x2x64xbf16> {logical.name = "x", logical.role = "input"})
    -> (tensor<512x2x64xf32> {logical.name = "y"}) {
  %w = logical.cast %x {aicf.id = "wide", aicf.src = ["wide"]} : tensor<512x2x64xbf16> -> tensor<512x2x64xf32>
  %t = logical.flip %w {axes = [1], aicf.id = "turned", aicf.src = ["turned"]} : (tensor<512x2x64xf32>) -> tensor<512x2x64xf32>
  %y = logical.sub %w, %t {aicf.id = "y", aicf.src = ["y"]} : tensor<512x2x64xf32>
  func.return %y : tensor<512x2x64xf32>
}

// What other ops move, and a cast that makes elements narrower, which stays before the move.
// CHECK-LABEL: func.func @rows
// CHECK: logical.gather %x, %i {axis = 0, aicf.id = "rows.narrow"
// CHECK: logical.gather_elements %x, %j {axis = 0, aicf.id = "picked.narrow"
// CHECK: %n = logical.cast %k {aicf.id = "narrower"
// CHECK: logical.flip %n {axes = [0], aicf.id = "kept"
func.func @rows(
    %x : tensor<64x32xf16> {logical.name = "x", logical.role = "input"},
    %k : tensor<8x8xf32> {logical.name = "k", logical.role = "input"},
    %i : tensor<5xi64> {logical.name = "i", logical.role = "input"},
    %j : tensor<3x32xi64> {logical.name = "j", logical.role = "input"})
    -> (tensor<5x32xf32> {logical.name = "a"}, tensor<3x32xf32> {logical.name = "b"},
        tensor<8x8xf16> {logical.name = "c"}) {
  %w = logical.cast %x {aicf.id = "table", aicf.src = ["table"]} : tensor<64x32xf16> -> tensor<64x32xf32>
  %a = logical.gather %w, %i {axis = 0, aicf.id = "rows", aicf.src = ["rows"]}
      : (tensor<64x32xf32>, tensor<5xi64>) -> tensor<5x32xf32>
  %b = logical.gather_elements %w, %j {axis = 0, aicf.id = "picked", aicf.src = ["picked"]}
      : (tensor<64x32xf32>, tensor<3x32xi64>) -> tensor<3x32xf32>
  %n = logical.cast %k {aicf.id = "narrower", aicf.src = ["narrower"]} : tensor<8x8xf32> -> tensor<8x8xf16>
  %c = logical.flip %n {axes = [0], aicf.id = "kept", aicf.src = ["kept"]} : (tensor<8x8xf16>) -> tensor<8x8xf16>
  func.return %a, %b, %c : tensor<5x32xf32>, tensor<3x32xf32>, tensor<8x8xf16>
}

// A group that is formed already is what its kernel was found for.
// CHECK-LABEL: func.func @formed
// CHECK: logical.cast %{{.*}} : tensor<64x32xf16> -> tensor<64x32xf32>
// CHECK-NEXT: logical.flip %{{.*}} : (tensor<64x32xf32>) -> tensor<64x32xf32>
func.func @formed(%x : tensor<64x32xf16> {logical.name = "x", logical.role = "input"})
    -> (tensor<64x32xf32> {logical.name = "y"}) {
  %y = emit.group "wide" from ["wide", "turned"] ins(%v = %x : tensor<64x32xf16>) -> (tensor<64x32xf32>) {
    %w = logical.cast %v {aicf.id = "w", aicf.src = ["wide"]} : tensor<64x32xf16> -> tensor<64x32xf32>
    %t = logical.flip %w {axes = [1], aicf.id = "t", aicf.src = ["turned"]} : (tensor<64x32xf32>) -> tensor<64x32xf32>
    emit.yield %t : tensor<64x32xf32>
  }
  func.return %y : tensor<64x32xf32>
}
