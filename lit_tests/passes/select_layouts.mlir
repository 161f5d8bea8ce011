// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},assign-ids,lower-logical,materialize-views,fuse-epilogues,fuse-elementwise,select-layouts' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{layouts: {\"*\": channels_last}}"},assign-ids,lower-logical,materialize-views,fuse-epilogues,fuse-elementwise,select-layouts' | filecheck %s --check-prefix=LAST
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{layouts: {\"*\": row_major, first: channels_last}}"},assign-ids,lower-logical,materialize-views,fuse-epilogues,fuse-elementwise,select-layouts' | filecheck %s --check-prefix=ONE
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{determinism: batch_invariant}"},assign-ids,lower-logical,materialize-views,fuse-epilogues,fuse-elementwise,select-layouts' | filecheck %s --check-prefix=INVARIANT
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" policy="{layouts: {\"*\": row_major, first: channels_last}}"}' | filecheck %s --check-prefix=EMIT
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" policy="{layouts: {\"*\": row_major, first: channels_last}}"},raise-emit,aicf-inference{start=lowered}' | filecheck %s --check-prefix=EMIT
// RUN: aicf-opt %s -p 'aicf-inference{target="cuda:sm_90a" policy="{layouts: {\"*\": channels_last}}"}' | filecheck %s --check-prefix=CUDA
// RUN: not aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" policy="{layouts: {second: channels_last}}"}' 2>&1 | filecheck %s --check-prefix=REFUSED
// RUN: not aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" policy="{layouts: {frist: channels_last}}"}' 2>&1 | filecheck %s --check-prefix=UNKNOWN

// CHECK: emit.decision "select-layouts" ["c", "y.copy"] choice "channels_last for 1 of 1 instruction" because "predicted {{.*}} us for all 2 that touch one, not {{.*}}; 1 transpose saved: 'y.copy'" rejected {row_major = "predicted {{.*}} us, not {{.*}}"} cost {{{.*}}transposes_saved = 1 : i64}
// CHECK: emit.decision "select-layouts" ["first", "second"] choice "row_major for 2 of 2 instructions" because "predicted {{.*}} us, and no other order saves 2 us" rejected {second = "'fc' cannot run there: strides cannot express the views through which it is read or written", channels_last = "predicted {{.*}} us where kernels take it"}
// LAST: emit.decision "select-layouts" ["first"] choice "channels_last for 1 of 2 instructions" because "the policy says so of all"
// LAST: emit.decision "select-layouts" ["second"] choice "row_major for 1 of 2 instructions" because "kernels do not take the other" rejected {second = "'fc' cannot run there: strides cannot express the views through which it is read or written"}
// ONE: emit.decision "select-layouts" ["c"] choice "row_major for 1 of 1 instruction" because "the policy says so of all"
// ONE: emit.decision "select-layouts" ["first"] choice "channels_last for 1 of 2 instructions" because "the policy says so of each"
// INVARIANT: emit.decision "select-layouts" ["c"] choice "row_major for 1 of 1 instruction" because "predicted times depend on the batch, the policy wants results that do not"
// REFUSED: error: layouts.second: 'fc' cannot run with it channels_last: strides cannot express the views through which it is read or written; say row_major, or leave it out
// UNKNOWN: error: layouts.frist: no group of that name has results that may lie either way; did you mean 'first'? these have: before, c, first, second
// CUDA: emit.decision "select-layouts" ["c", "y.copy"] choice "channels_last for 1 of 1 instruction" because "the policy says so of all; 1 transpose saved: 'y.copy'"

// What is given back in the other order is computed in that order: no copy is left.
// CHECK-LABEL: func.func @back
// CHECK: %c = emit.group "c" from ["c", "y"] ins({{.*}}) -> (tensor<1x32x32x64xf32>)
// CHECK: %[[C:.*]] = logical.conv
// CHECK-NEXT: %[[T:.*]] = logical.transpose %[[C]] {permutation = [0, 2, 3, 1]}
// CHECK-NEXT: emit.yield %[[T]]
// CHECK-NOT: emit.group
// CHECK: func.return %c
// ONE-LABEL: func.func @back
// ONE: emit.group "y.copy"
// INVARIANT-LABEL: func.func @back
// INVARIANT: emit.group "y.copy"
func.func @back(
    %x : tensor<1x8x32x32xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<64x8x1x1xf32> {logical.name = "w", logical.role = "param"}) -> (tensor<1x32x32x64xf32> {logical.name = "y"}) {
  %c = logical.conv %x, %w {strides = [1, 1], low = [0, 0], high = [0, 0], dilations = [1, 1], groups = 1} : (tensor<1x8x32x32xf32>, tensor<64x8x1x1xf32>) -> tensor<1x64x32x32xf32>
  %y = logical.transpose %c {permutation = [0, 2, 3, 1]} : tensor<1x64x32x32xf32> -> tensor<1x32x32x64xf32>
  func.return %y : tensor<1x32x32x64xf32>
}

// Where next to nothing is to be gained, all stays; a policy may ask for it, and both readers of the value follow. What
// a product reads as one row cannot lie otherwise.
// CHECK-LABEL: func.func @block
// CHECK-NOT: logical.transpose
// CHECK: func.return
// LAST-LABEL: func.func @block
// LAST: %r = emit.group "first" {{.*}} -> (tensor<1x6x6x8xf32>)
// LAST: emit.group "second" {{.*}} -> (tensor<1x8x6x6xf32>)
// ONE-LABEL: func.func @block
// ONE: %r = emit.group "first" {{.*}} -> (tensor<1x6x6x8xf32>)
// ONE: logical.transpose %{{.*}} {permutation = [0, 2, 3, 1]}
// ONE: emit.group "second" from ["second", "s"] ins(%[[R:.*]] = %r : tensor<1x6x6x8xf32>
// ONE-NEXT: %[[BACK:.*]] = logical.transpose %[[R]] {permutation = [0, 3, 1, 2]}
// ONE-NEXT: %second = logical.conv %[[BACK]]
// ONE-NEXT: logical.add %second, %[[BACK]]
// Strides are all that is left of it; the body says what is computed, as before.
// EMIT-LABEL: emit.body @first.body
// EMIT: logical.conv
// EMIT-NEXT: logical.relu
// EMIT-LABEL: emit.program @block
// EMIT: %r = emit.slot {{.*}} : !emit.buffer<1x6x6x8xf32, arena>
// EMIT: %[[SEEN:.*]] = emit.view %r offset(0) : !emit.buffer<1x6x6x8xf32, arena> to !emit.buffer<1x8x6x6xf32, arena, strides [288, 1, 48, 8]>
// EMIT: emit.resolved "conv" {{.*}} name("first")
// EMIT-NEXT: ins({{.*}} outs(%[[SEEN]] :
// EMIT: emit.resolved "conv" {{.*}} name("second")
func.func @block(
    %x : tensor<1x8x6x6xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<8x8x3x3xf32> {logical.name = "w3", logical.role = "param"},
    %v : tensor<8x8x3x3xf32> {logical.name = "v", logical.role = "param"},
    %m : tensor<288x4xf32> {logical.name = "m", logical.role = "param"}) -> (tensor<1x4xf32> {logical.name = "y"}) {
  %first = logical.conv %x, %w {strides = [1, 1], low = [1, 1], high = [1, 1], dilations = [1, 1], groups = 1} : (tensor<1x8x6x6xf32>, tensor<8x8x3x3xf32>) -> tensor<1x8x6x6xf32>
  %r = logical.relu %first : tensor<1x8x6x6xf32>
  %second = logical.conv %r, %v {strides = [1, 1], low = [1, 1], high = [1, 1], dilations = [1, 1], groups = 1} : (tensor<1x8x6x6xf32>, tensor<8x8x3x3xf32>) -> tensor<1x8x6x6xf32>
  %s = logical.add %second, %r : tensor<1x8x6x6xf32>
  %flat = logical.reshape %s : tensor<1x8x6x6xf32> -> tensor<1x288xf32>
  %fc = logical.matmul %flat, %m : (tensor<1x288xf32>, tensor<288x4xf32>) -> tensor<1x4xf32>
  func.return %fc : tensor<1x4xf32>
}

// Channels that are split into groups are innermost with their groups, so that who joins them again reads strides.
// LAST-LABEL: func.func @groups
// LAST: emit.group "before" {{.*}} -> (tensor<1x6x6x8xf32>)
// LAST: %e = emit.group "e" {{.*}} -> (tensor<1x6x6x4x2xf32>)
// LAST: logical.transpose %{{.*}} {permutation = [0, 3, 4, 1, 2]}
// LAST: emit.group "after" {{.*}} ins(%[[E:.*]] = %e : tensor<1x6x6x4x2xf32>
// LAST-NEXT: %[[BACK:.*]] = logical.transpose %[[E]] {permutation = [0, 3, 4, 1, 2]} : tensor<1x6x6x4x2xf32> -> tensor<1x4x2x6x6xf32>
// LAST-NEXT: %[[JOINED:.*]] = logical.reshape %[[BACK]]
// LAST-NEXT: logical.conv %[[JOINED]]
// LAST: func.return
func.func @groups(
    %x : tensor<1x8x8x8xf32> {logical.name = "split_x", logical.role = "input"},
    %w : tensor<8x8x3x3xf32> {logical.name = "split_w", logical.role = "param"}) -> (tensor<1x8x4x4xf32> {logical.name = "split_y"}) {
  %before = logical.conv %x, %w {strides = [1, 1], low = [0, 0], high = [0, 0], dilations = [1, 1], groups = 1} : (tensor<1x8x8x8xf32>, tensor<8x8x3x3xf32>) -> tensor<1x8x6x6xf32>
  %split = logical.reshape %before : tensor<1x8x6x6xf32> -> tensor<1x4x2x6x6xf32>
  %e = logical.exp %split : tensor<1x4x2x6x6xf32>
  %joined = logical.reshape %e : tensor<1x4x2x6x6xf32> -> tensor<1x8x6x6xf32>
  %after = logical.conv %joined, %w {strides = [1, 1], low = [0, 0], high = [0, 0], dilations = [1, 1], groups = 1} : (tensor<1x8x6x6xf32>, tensor<8x8x3x3xf32>) -> tensor<1x8x4x4xf32>
  func.return %after : tensor<1x8x4x4xf32>
}
