// RUN: not aicf-opt %s -p 'logical-canonicalise' 2>&1 | filecheck %s --check-prefix=PASS
// RUN: not aicf-opt %s -p 'set-target{tarjet="cpu:x86-64-v3"}' 2>&1 | filecheck %s --check-prefix=OPTION
// RUN: not aicf-opt %s -p 'set-target{target=cpu:x86-64-v3}' 2>&1 | filecheck %s --check-prefix=QUOTE
// RUN: not aicf-opt %s -p 'set-target{target=cpus}' 2>&1 | filecheck %s --check-prefix=BACKEND
// RUN: not aicf-opt %s.absent 2>&1 | filecheck %s --check-prefix=FILE

// PASS: aicf-opt: error: unknown pass 'logical-canonicalise'; did you mean {{.*}}'logical-canonicalize'
// OPTION: aicf-opt: error: pass 'set-target' has no option 'tarjet'; did you mean 'target'? legal: target, threads
// QUOTE: aicf-opt: error: malformed pipeline {{.*}}; write name{option=value},name and quote values that hold ':' or '/'
// BACKEND: aicf-opt: error: unknown backend 'cpus'; registered: {{.*}}cpu
// FILE: pipeline_errors.mlir.absent: error: cannot read the program: No such file or directory
func.func @fine() {
  func.return
}
