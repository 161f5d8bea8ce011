// RUN: aicf-opt %S/Inputs/two_streams.mlir -p print-cost | filecheck %s
// RUN: aicf-opt %s -p print-cost | filecheck %s --check-prefix=GROUP
// RUN: not aicf-opt %S/Inputs/unfilled.mlir -p print-cost 2>&1 | filecheck %s --check-prefix=BODY

// A row that a view repeats is read once: 32 additions read 32 + 8 elements.
// CHECK:      name("sum")
// CHECK:      aicf.print.cost = {operations = 32 : i64, bytes_read = 160 : i64, bytes_written = 128 : i64}
// 4 x 4 x 8 products, each with an addition.
// CHECK:      name("product")
// CHECK:      aicf.print.cost = {operations = 256 : i64, bytes_read = 256 : i64, bytes_written = 64 : i64}
// CHECK:      name("row")
// CHECK:      aicf.print.cost = {operations = 32 : i64, bytes_read = 160 : i64, bytes_written = 128 : i64}
// A reduction of 16 elements and 32 additions.
// CHECK:      name("join")
// CHECK:      aicf.print.cost = {operations = 48 : i64, bytes_read = 192 : i64, bytes_written = 128 : i64}

// GROUP:      emit.group "act" from ["act"] {{.*}} attributes {aicf.print.cost = {operations = 12 : i64, bytes_read = 24 : i64, bytes_written = 24 : i64}}
func.func @f(%x: tensor<6xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<6xf32> {logical.name = "y"}) {
  %y = emit.group "act" from ["act"] ins(%a = %x : tensor<6xf32>) -> (tensor<6xf32>) {
    %e = logical.exp %a : tensor<6xf32>
    %r = logical.mul %e, %a : tensor<6xf32>
    emit.yield %r : tensor<6xf32>
  }
  func.return %y : tensor<6xf32>
}

// BODY: error: instruction 'act' has no body that says what it computes; run select-kernels first
