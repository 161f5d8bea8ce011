// RUN: not aicf-opt %s -p 'canonicalise' 2>&1 | filecheck %s --check-prefix=PASS
// RUN: not aicf-opt %s -p 'scf-parallel-loop-tiling{tile-sizes=4}' 2>&1 | filecheck %s --check-prefix=OPTION
// RUN: not aicf-opt %s -p 'set-target{target=cpu:x86-64-v3}' 2>&1 | filecheck %s --check-prefix=QUOTE
// RUN: not aicf-opt %s.absent 2>&1 | filecheck %s --check-prefix=FILE

// PASS: aicf-opt: error: unknown pass 'canonicalise'; did you mean {{.*}}'canonicalize'
// OPTION: aicf-opt: error: pass 'scf-parallel-loop-tiling' has no option 'tile-sizes'; {{.*}}legal: parallel-loop-tile-sizes
// QUOTE: aicf-opt: error: malformed pipeline {{.*}}; write name{option=value},name and quote values that hold ':' or '/'
// FILE: pipeline_errors.mlir.absent: error: cannot read the program: No such file or directory
func.func @fine() {
  func.return
}
