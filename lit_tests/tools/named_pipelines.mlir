// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" until=fuse-elementwise}' | filecheck %s --check-prefix=UNTIL
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" until=logical-dce}' | filecheck %s --check-prefix=LAST
// RUN: not aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" until=fuse-elementwyse}' 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: not aicf-opt %s -p 'aicf-training{target="cpu:x86-64-v3" until=narrow-products}' 2>&1 | filecheck %s --check-prefix=OTHER
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" until=lower-logical},logical-cse' --time-passes -o %t.out 2>&1 | filecheck %s --check-prefix=TIMES
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" until=lower-logical},logical-cse' --print-between-passes | filecheck %s --check-prefix=BETWEEN

// `until` names the pass to stop after.
// UNTIL: emit.decision "fuse-elementwise"
// UNTIL-NOT: emit.program
// UNTIL: emit.group

// Where a pass runs more than once, it is the last time.
// LAST: logical.reduce_max
// LAST-NOT: emit.group

// UNKNOWN: aicf-opt: error: until: aicf-inference has no pass 'fuse-elementwyse'; did you mean 'fuse-elementwise'
// OTHER: aicf-opt: error: until: aicf-training has no pass 'narrow-products'; did you mean 'narrow-moves'?

// Each pass inside has its own time, indented, then the pipeline its sum, then the next pass that was named.
// TIMES: {{^}}  Pass set-target took {{[0-9.]+}} seconds
// TIMES-NEXT: {{^}}  Pass assign-ids took
// TIMES: {{^}}  Pass lower-logical took
// TIMES-NEXT: {{^}}Pass aicf-inference took
// TIMES-NEXT: {{^}}Pass logical-cse took

// The program stands between each two passes, as a comment and its text; what changed nothing is a line.
// BETWEEN: // IR after set-target:
// BETWEEN-NEXT: builtin.module attributes {aicf.target
// BETWEEN: // IR after assign-ids:
// BETWEEN: aicf.id = "y"
// BETWEEN: // IR after verify-logical: the same
// BETWEEN-NEXT: // IR after to-evaluation: the same
// BETWEEN-NEXT: // IR after logical-canonicalize: the same
// BETWEEN: // IR after lower-logical:
// BETWEEN: logical.reduce_max
// BETWEEN-NOT: IR after
func.func @rows(%x : tensor<2x3xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<2x3xf32> {logical.name = "y"}) {
  %y = logical.softmax %x {axis = 1} : tensor<2x3xf32>
  func.return %y : tensor<2x3xf32>
}
