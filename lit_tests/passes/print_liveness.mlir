// RUN: aicf-opt %S/Inputs/two_streams.mlir -p print-liveness | filecheck %s
// RUN: aicf-opt %S/Inputs/two_streams.mlir -p print-liveness | aicf-opt -p print-liveness | filecheck %s
// RUN: not aicf-opt %S/Inputs/other_shapes.mlir -p print-liveness 2>&1 | filecheck %s --check-prefix=UNSCHEDULED

// Slots of unordered instructions are alive together, even where the text has one after the other.
// CHECK:      emit.program @two attributes {phase = "scheduled", aicf.print.liveness = {bytes = 320 : i64, lower_bound_bytes = 320 : i64}} {
// CHECK:        emit.slot : !emit.buffer<4x8xf32, arena> attributes {aicf.print.liveness = {slot = "slot 0", bytes = 128 : i64, first = "sum", last = "row", alive_with = ["slot 1", "slot 2"]}}
// CHECK-NEXT:   emit.slot : !emit.buffer<4x4xf32, arena> attributes {aicf.print.liveness = {slot = "slot 1", bytes = 64 : i64, first = "product", last = "join", alive_with = ["slot 0", "slot 2"]}}
// CHECK-NEXT:   emit.slot : !emit.buffer<4x8xf32, arena> attributes {aicf.print.liveness = {slot = "slot 2", bytes = 128 : i64, first = "row", last = "join", alive_with = ["slot 0", "slot 1"]}}

// UNSCHEDULED: error: program @hand has no order yet; run schedule first
