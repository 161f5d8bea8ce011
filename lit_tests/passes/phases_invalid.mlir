// RUN: not aicf-opt %s -p 'decide-inplace' 2>&1 | filecheck %s --check-prefix=INPLACE
// RUN: not aicf-opt %s -p 'plan-memory' 2>&1 | filecheck %s --check-prefix=MEMORY
// RUN: not aicf-opt %s -p 'plan-capture' 2>&1 | filecheck %s --check-prefix=CAPTURE

// Each pass moves a program one phase on; a missing pass in between is an error that says where the program is.
// INPLACE: error: program @p is bufferized, and the pass that makes it inplace needs scheduled; run the passes in order
// MEMORY: error: program @p is bufferized, and the pass that makes it planned needs inplace; run the passes in order
// CAPTURE: error: program @p is bufferized, and the pass that makes it final needs planned; run the passes in order
emit.program @p attributes {phase = "bufferized"} {
}
