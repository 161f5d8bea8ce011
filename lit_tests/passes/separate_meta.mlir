// RUN: aicf-opt %s -p 'assign-ids,separate-meta{meta=host}' | filecheck %s
// RUN: aicf-opt %s -p 'assign-ids,separate-meta' > %t.device
// RUN: filecheck %s --check-prefix=DEVICE < %t.device

// By default all stays in the program; the ledger says which ops could be elsewhere.
// DEVICE: emit.decision "separate-meta" ["offset", "unused", "now", "rate", "correction", "again", "one"] choice "device: computed in the program" because "option meta=device" rejected {host =
// DEVICE-NOT: aicf.host
// DEVICE-LABEL: func.func @step(
// DEVICE: logical.step_inc
// DEVICE: return %{{.*}}, %{{.*}}, %{{.*}}, %now :

// What follows from metas and numbers alone becomes metas with formulas, each once; the counter is kept and no result.
// CHECK: emit.decision "separate-meta" ["offset"] choice "host: set before each run" because "mul of metas and numbers; option meta=host"
// CHECK: emit.decision "separate-meta" ["now"] choice "host: set before each run" because "step_inc of metas and numbers; option meta=host"
// CHECK: emit.decision "separate-meta" ["rate.meta"] choice "host
// CHECK: emit.decision "separate-meta" ["correction"] choice "host
// CHECK-NOT: "separate-meta" ["again"]
// CHECK: emit.decision "separate-meta" ["seen"] choice "device: computed in the program" because "its new value depends on data"
// CHECK-LABEL: func.func @step(
// CHECK-SAME: %seed: tensor<i64> {logical.name = "seed", logical.role = "meta"},
// CHECK-SAME: %seen: tensor<f32> {logical.name = "seen", logical.role = "meta"},
// CHECK-SAME: %step: tensor<i64> {logical.name = "step", logical.role = "meta", aicf.host = {next = "now"}},
// CHECK-SAME: %offset: tensor<i64> {logical.name = "offset", logical.role = "meta", aicf.host = {formula = "mul", of = ["step", 12 : i64]}},
// CHECK-SAME: aicf.host = {formula = "step_inc", of = ["step"]}},
// A name that a result has already.
// CHECK-SAME: {logical.name = "rate.meta", logical.role = "meta", aicf.host = {formula = "learning_rate", of = ["now"], schedule = "cosine", base = {{[^,]*}}, warmup = 3 : i64, total = 20 : i64, final = {{[^,]*}}}},
// CHECK-SAME: %correction: tensor<f32> {logical.name = "correction", logical.role = "meta", aicf.host = {formula = "bias_corr", of = ["now"], beta = 9.000000e-01 : f64}},
// CHECK-SAME: aicf.host = {formula = "mul", of = ["correction", "correction"]}}) ->
// CHECK-SAME: (tensor<f32> {logical.name = "rate"}, tensor<4xf32> {logical.updates = "w"}, tensor<f32> {logical.updates = "seen"}) {
// CHECK-NEXT: logical.constant dense<12>
// What nothing reads is no meta.
// CHECK-NEXT: logical.mul %seed
// CHECK-NEXT: [[NOISE:%.*]] = logical.philox %seed, %offset
// CHECK-NOT: logical.step_inc
// CHECK: return %rate.meta, {{%.*}}, {{%.*}} :
func.func @step(
    %w : tensor<4xf32> {logical.name = "w", logical.role = "param"},
    %seed : tensor<i64> {logical.name = "seed", logical.role = "meta"},
    %seen : tensor<f32> {logical.name = "seen", logical.role = "meta"},
    %step : tensor<i64> {logical.name = "step", logical.role = "meta"})
    -> (tensor<f32> {logical.name = "rate"},
        tensor<4xf32> {logical.updates = "w"},
        tensor<f32> {logical.updates = "seen"},
        tensor<i64> {logical.updates = "step"}) {
  %twelve = logical.constant dense<12> : tensor<i64>
  %offset = logical.mul %step, %twelve : tensor<i64>
  %unused = logical.mul %seed, %twelve : tensor<i64>
  %noise = logical.philox %seed, %offset {form = "uniform"} : (tensor<i64>, tensor<i64>) -> tensor<4xf32>
  %now = logical.step_inc %step : tensor<i64>
  %rate = logical.learning_rate %now {schedule = "cosine", base = 0.1, warmup = 3, total = 20} : tensor<i64> -> tensor<f32>
  %correction = logical.bias_corr %now {beta = 0.9} : tensor<i64> -> tensor<f32>
  %again = logical.bias_corr %now {beta = 0.9} : tensor<i64> -> tensor<f32>
  %one = logical.mul %correction, %again : tensor<f32>
  %w.new = logical.add %w, %noise : tensor<4xf32>
  %sum = logical.reduce_sum %w.new {axes = [0]} : tensor<4xf32> -> tensor<f32>
  %seen.new = logical.mul %sum, %one : tensor<f32>
  func.return %rate, %w.new, %seen.new, %now : tensor<f32>, tensor<4xf32>, tensor<f32>, tensor<i64>
}

// A counter that the flag of check-finite holds back stays a result, and is kept too: once the flag is set nothing that
// follows from it has an effect.
// CHECK-LABEL: func.func @checked(
// CHECK-SAME: {logical.name = "step", logical.role = "meta", aicf.host = {next = "now_1"}}
// CHECK-SAME: -> (tensor<4xf32> {logical.updates = "w"}, tensor<i64> {logical.updates = "step"}, tensor<i64> {logical.updates = "aicf.bad_step"}) {
// CHECK: %step.held = logical.select %fine, %now, %step {
// CHECK: return {{.*}}, %step.held, %bad
func.func @checked(
    %w : tensor<4xf32> {logical.name = "w", logical.role = "param"},
    %old : tensor<i64> {logical.name = "aicf.bad_step", logical.role = "meta"},
    %step : tensor<i64> {logical.name = "step", logical.role = "meta"})
    -> (tensor<4xf32> {logical.updates = "w"},
        tensor<i64> {logical.updates = "step"},
        tensor<i64> {logical.updates = "aicf.bad_step"}) {
  %now = logical.step_inc %step : tensor<i64>
  %zero = logical.constant dense<0> : tensor<i64>
  %doubled = logical.add %w, %w : tensor<4xf32>
  %nan = logical.is_nan %doubled : tensor<4xf32> -> tensor<4xi1>
  %any = logical.reduce_any %nan {axes = [0]} : tensor<4xi1> -> tensor<i1>
  %found = logical.select %any, %now, %zero : tensor<i1>, tensor<i64>
  %going = logical.compare "eq" %old, %zero : tensor<i64> -> tensor<i1>
  %bad = logical.select %going, %found, %old : tensor<i1>, tensor<i64>
  %fine = logical.compare "eq" %bad, %zero : tensor<i64> -> tensor<i1>
  %spread = logical.broadcast %fine {dimensions = []} : tensor<i1> -> tensor<4xi1>
  %w.held = logical.select %spread, %doubled, %w : tensor<4xi1>, tensor<4xf32>
  %step.held = logical.select %fine, %now, %step : tensor<i1>, tensor<i64>
  func.return %w.held, %step.held, %bad : tensor<4xf32>, tensor<i64>, tensor<i64>
}

// Where another flag holds back, or not all is held back, the counter depends on data for good.
// CHECK-LABEL: func.func @skipping(
// CHECK-NOT: aicf.host
// CHECK: %skipped = logical.step_inc %step
// CHECK: return {{.*}}, %step.kept :
func.func @skipping(
    %w : tensor<4xf32> {logical.name = "w", logical.role = "param"},
    %step : tensor<i64> {logical.name = "step", logical.role = "meta"})
    -> (tensor<4xf32> {logical.updates = "w"}, tensor<i64> {logical.updates = "step"}) {
  %skipped = logical.step_inc %step : tensor<i64>
  %nan = logical.is_nan %w : tensor<4xf32> -> tensor<4xi1>
  %any = logical.reduce_any %nan {axes = [0]} : tensor<4xi1> -> tensor<i1>
  %step.kept = logical.select %any, %skipped, %step : tensor<i1>, tensor<i64>
  %w.new = logical.add %w, %w : tensor<4xf32>
  func.return %w.new, %step.kept : tensor<4xf32>, tensor<i64>
}

// Nothing follows from metas: nothing is decided.
// CHECK-LABEL: func.func @forward(
// CHECK-NOT: aicf.host
func.func @forward(
    %x : tensor<f32> {logical.name = "x", logical.role = "input"},
    %rate : tensor<f32> {logical.name = "rate", logical.role = "meta"}) -> (tensor<f32> {logical.name = "y"}) {
  %y = logical.mul %x, %rate : tensor<f32>
  func.return %y : tensor<f32>
}
