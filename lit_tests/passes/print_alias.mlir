// RUN: aicf-opt %S/Inputs/two_streams.mlir -p print-alias | filecheck %s
// RUN: aicf-opt %S/Inputs/two_streams.mlir -p decide-inplace,plan-memory,print-alias | filecheck %s --check-prefix=PLANNED

// A view with stride 0 touches what it repeats.
// CHECK:      name("sum")
// CHECK:      aicf.print.alias = ["ins 0: input 'x', bytes 0 to 128", "ins 1: param 'b', bytes 0 to 32", "outs 0: slot 0, bytes 0 to 128"]
// Two operands may be the same memory.
// CHECK:      name("product")
// CHECK:      aicf.print.alias = ["ins 0: input 'x', bytes 0 to 128", "ins 1: input 'x', bytes 0 to 128; the same elements as ins 0", "outs 0: slot 1, bytes 0 to 64"]
// In place.
// CHECK:      name("act")
// CHECK:      aicf.print.alias = ["ins 0: slot 0, bytes 0 to 128", "outs 0: slot 0, bytes 0 to 128; the same elements as ins 0"]
// A view of a part overlaps the whole.
// CHECK:      name("row")
// CHECK:      aicf.print.alias = ["ins 0: slot 0, bytes 96 to 128", "ins 1: slot 0, bytes 0 to 128; overlaps ins 0", "outs 0: slot 2, bytes 0 to 128"]

// Once memory is planned the place in the arena stands there too.
// PLANNED:    name("row")
// PLANNED:    "outs 0: slot 2 at {{[0-9]+}}, bytes 0 to 128"
