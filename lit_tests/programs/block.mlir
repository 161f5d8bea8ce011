// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"streams\": 2, \"fusion\": {\"prologue\": false}}"},assign-ids' > %t.identified
// RUN: filecheck %s --check-prefix=IDENTIFIED < %t.identified
// RUN: aicf-opt %t.identified -p 'verify-logical,logical-canonicalize,logical-cse,logical-dce,fold-constants,specialize-shapes' > %t.specialized
// RUN: filecheck %s --check-prefix=SPECIALIZED < %t.specialized
// RUN: aicf-opt %t.specialized -p 'lower-logical,logical-canonicalize,logical-cse,logical-dce,fold-constants,fold-transposes,logical-dce,verify-logical' > %t.lowered
// RUN: filecheck %s --check-prefix=LOWERED < %t.lowered
// RUN: aicf-opt %t.lowered -p 'fuse-attention,materialize-views,fuse-gated,fuse-horizontal,fuse-prologues,fuse-norms,fuse-epilogues,fuse-elementwise,fuse-multi-output' > %t.grouped
// RUN: filecheck %s --check-prefix=GROUPED < %t.grouped
// RUN: aicf-opt %t.grouped -p 'select-kernels,generate-kernels' > %t.selected
// RUN: filecheck %s --check-prefix=SELECTED < %t.selected
// RUN: aicf-opt %t.selected -p 'lower-to-emit,verify-emit' > %t.emitted
// RUN: filecheck %s --check-prefix=EMITTED < %t.emitted
// RUN: aicf-opt %t.emitted -p 'schedule,verify-order' > %t.scheduled
// RUN: filecheck %s --check-prefix=SCHEDULED < %t.scheduled
// RUN: aicf-opt %t.scheduled -p 'decide-inplace' > %t.inplace
// RUN: filecheck %s --check-prefix=INPLACE < %t.inplace
// RUN: aicf-opt %t.inplace -p 'plan-memory' > %t.planned
// RUN: filecheck %s --check-prefix=PLANNED < %t.planned
// RUN: aicf-opt %t.planned -p 'plan-capture,verify-emit,verify-order,verify-capture-safe' > %t.final
// RUN: filecheck %s --check-prefix=FINAL < %t.final
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" policy="{\"streams\": 2, \"fusion\": {\"prologue\": false}}"}' > %t.whole
// RUN: diff %t.final %t.whole

// A pre-norm MLP block with a projected residual on two streams: the projection runs beside normalisation (which the
// policy keeps an instruction of its own) and the first product, and joins in the epilogue of the second.

// The text of every stage parses back, the later passes go on from there, and the end is byte for byte that of the whole
// pipeline at once.

// IDENTIFIED: logical.layer_norm %x, %scale, %shift {axis = 1, epsilon = {{.*}} : f64, aicf.id = "norm", aicf.src = ["norm"]}
// SPECIALIZED: func.func @block(

// LOWERED-LABEL: func.func @block
// LOWERED-NOT: logical.layer_norm
// LOWERED: logical.rsqrt {{.*}} {aicf.id = "norm.rsqrt", aicf.src = ["norm"]}
// LOWERED: logical.erf {{.*}} {aicf.id = "act.erf", aicf.src = ["act"]}
// LOWERED-NOT: logical.gelu
// LOWERED: func.return

// Four groups: the normalisation, the first product with bias and GELU, the projection, the second product with bias and
// residual.
// GROUPED-LABEL: func.func @block
// GROUPED: emit.group "norm" from ["norm"]
// GROUPED: emit.group "up" from ["up", "act"]
// GROUPED: logical.erf
// GROUPED: %skip.matmul = emit.group "skip" from ["skip"]
// GROUPED: emit.group "down" from ["down", "y"] ins({{.*}} = %skip.matmul : tensor<8x24xf32>)
// GROUPED-NOT: emit.group

// SELECTED: emit.decision "generate-kernels" ["norm"] choice "norm.code" because "3 phases over 8, reducing 16, 3 values kept between phases"
// SELECTED: emit.kernel @norm.code parallel [8] reduce [16]

// EMITTED-LABEL: emit.program @block attributes {phase = "bufferized"} {
// EMITTED: emit.resolved "layernorm_fwd" id(13) name("norm") src(["norm"])
// EMITTED: attrs {axis = 1 : i64, epsilon = {{.*}} : f64} schema("layernorm_fwd.v1")
// EMITTED: emit.resolved "gemm_epilogue" id(17) name("up") src(["up", "act"])
// EMITTED: attrs {{.*}}bias = true, residual = false, activation = "gelu"}
// EMITTED: emit.resolved "gemm" id(2) name("skip") src(["skip"])
// EMITTED: emit.resolved "gemm_epilogue" id(17) name("down") src(["down", "y"])
// EMITTED-NEXT: ins({{.*}}, %skip.matmul : {{.*}}) outs(%y :
// EMITTED-NEXT: attrs {{.*}}bias = true, residual = true, activation = "none"}

// The projection starts at once, on a stream of its own; the join waits for both, once.
// SCHEDULED: emit.decision "schedule" ["block"] choice "4 instructions in text order on 2 streams" because "3 edges order every conflicting pair; the policy allows 2 streams"
// SCHEDULED-LABEL: emit.program @block attributes {phase = "scheduled"} {
// SCHEDULED: name("norm")
// SCHEDULED: stream(0) after([])
// SCHEDULED: name("up")
// SCHEDULED: stream(0) after(["norm" full])
// SCHEDULED: name("skip")
// SCHEDULED: stream(1) after([])
// SCHEDULED: name("down")
// SCHEDULED: stream(0) after(["up" full, "skip" full])

// INPLACE-LABEL: emit.program @block attributes {phase = "inplace"} {
// INPLACE: emit.resolved

// The projection's value may be alive with both others, which are alive together too: three slots, apart.
// PLANNED: emit.decision "plan-memory" ["block"] choice "arena of 2304 bytes for 3 slots" because "equals the lower bound"
// PLANNED-LABEL: emit.program @block attributes {phase = "planned", arena_bytes = 2304 : i64} {

// FINAL-LABEL: emit.program @block attributes {phase = "final", arena_bytes = 2304 : i64, graphs = {{\[\[}}"norm", "up", "skip", "down"]]} {
func.func @block(
    %x : tensor<8x16xf32> {logical.name = "x", logical.role = "input"},
    %scale : tensor<16xf32> {logical.name = "norm.weight", logical.role = "param"},
    %shift : tensor<16xf32> {logical.name = "norm.bias", logical.role = "param"},
    %w1 : tensor<32x16xf32> {logical.name = "up.weight", logical.role = "param"},
    %b1 : tensor<32xf32> {logical.name = "up.bias", logical.role = "param"},
    %w2 : tensor<24x32xf32> {logical.name = "down.weight", logical.role = "param"},
    %b2 : tensor<24xf32> {logical.name = "down.bias", logical.role = "param"},
    %w3 : tensor<24x16xf32> {logical.name = "skip.weight", logical.role = "param"})
    -> (tensor<8x24xf32> {logical.name = "y"}) {
  %norm = logical.layer_norm %x, %scale, %shift {axis = 1, epsilon = 1.0e-5 : f64} : (tensor<8x16xf32>, tensor<16xf32>, tensor<16xf32>) -> tensor<8x16xf32>
  %up = logical.linear %norm, %w1, %b1 : (tensor<8x16xf32>, tensor<32x16xf32>, tensor<32xf32>) -> tensor<8x32xf32>
  %act = logical.gelu %up : tensor<8x32xf32>
  %down = logical.linear %act, %w2, %b2 : (tensor<8x32xf32>, tensor<24x32xf32>, tensor<24xf32>) -> tensor<8x24xf32>
  %skip = logical.linear %x, %w3 : (tensor<8x16xf32>, tensor<24x16xf32>) -> tensor<8x24xf32>
  %y = logical.add %down, %skip : tensor<8x24xf32>
  func.return %y : tensor<8x24xf32>
}
