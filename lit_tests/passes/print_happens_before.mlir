// RUN: aicf-opt %S/Inputs/two_streams.mlir -p print-happens-before | filecheck %s
// RUN: not aicf-opt %S/Inputs/other_shapes.mlir -p print-happens-before 2>&1 | filecheck %s --check-prefix=UNSCHEDULED

// Happens-before is the closure of the edges: text order adds nothing.
// CHECK:      name("sum")
// CHECK:      aicf.print.happens_before = {before = [], unordered = ["product"]}
// CHECK:      name("product")
// CHECK:      aicf.print.happens_before = {before = [], unordered = ["sum", "act", "row"]}
// CHECK:      name("act")
// CHECK:      aicf.print.happens_before = {before = ["sum"], unordered = ["product"]}
// CHECK:      name("row")
// CHECK:      aicf.print.happens_before = {before = ["sum", "act"], unordered = ["product"]}
// CHECK:      name("join")
// CHECK:      aicf.print.happens_before = {before = ["sum", "product", "act", "row"], unordered = []}

// UNSCHEDULED: error: program @hand has no order yet; run schedule first
