// RUN: aicf-opt %S/eliminate_saves.mlir -p 'aicf-training{target="cpu:x86-64-v3"},check-budget{bytes=2048}' | filecheck %s
// RUN: aicf-opt %S/eliminate_saves.mlir -p 'aicf-training{target="cpu:x86-64-v3" memory-budget=1536}' | filecheck %s --check-prefix=WITHIN
// RUN: not aicf-opt %S/eliminate_saves.mlir -p 'aicf-training{target="cpu:x86-64-v3"},check-budget{bytes=2047}' 2>&1 | filecheck %s --check-prefix=OVER
// RUN: not aicf-opt %S/eliminate_saves.mlir -p 'aicf-training{target="cpu:x86-64-v3" memory-budget=1535}' 2>&1 | filecheck %s --check-prefix=LEAST
// RUN: not aicf-opt %S/eliminate_saves.mlir -p 'aicf-training{target="cpu:x86-64-v3" memory-budget=-1}' 2>&1 | filecheck %s --check-prefix=NEGATIVE
// RUN: not aicf-opt %S/eliminate_saves.mlir -p 'eliminate-saves{less="deep=100,dep=4"}' 2>&1 | filecheck %s --check-prefix=FUNCTION

// Two programs, one of which is near the budget.
// CHECK: emit.decision "eliminate-saves" ["e0.save"] choice "keep"
// CHECK: emit.decision "check-budget" ["net"] choice "within the budget" because "1280 of 2048 bytes" cost {budget_bytes = 2048 : i64}
// CHECK-NEXT: emit.decision "check-budget" ["deep"] choice "within the budget" because "2048 of 2048 bytes"

// The pass alone says what is too much; the pipeline goes back, and frees as much in the program that takes too much.
// WITHIN: emit.decision "eliminate-saves" ["h.save"] choice "keep"
// WITHIN: emit.decision "eliminate-saves" ["e0.save"] choice "recompute" because "memory is to shrink by 512 bytes"
// WITHIN-NEXT: emit.decision "eliminate-saves" ["e1.save"] choice "keep"
// WITHIN: emit.decision "check-budget" ["net"] choice "within the budget" because "1280 of 1536 bytes"
// WITHIN-NEXT: emit.decision "check-budget" ["deep"] choice "within the budget" because "1536 of 1536 bytes"
// WITHIN: emit.program @deep attributes {phase = "final", arena_bytes = 1536 : i64

// OVER: error: {{.*}}the memory budget is 2047 bytes and @deep takes 2048; have more computed again with eliminate-saves{less=BYTES}, or give more
// LEAST: error: {{.*}}memory budget of 1535 bytes: @deep takes 1536 bytes with all computed again that helps; give as much, or make the batch smaller
// NEGATIVE: error: {{.*}}memory-budget: must be at least 0 bytes, got -1
// FUNCTION: error: {{.*}}less: 'dep=4' is no number of bytes of a function; did you mean 'deep'? it has: deep, net
