#!/usr/bin/env bash
# Runs the kernels of the GPU tests under compute-sanitizer: reads and writes out of bounds, then races in shared memory.
# usage: tests/gpu/sanitize.sh PYTHON [pytest options, such as another -k]
# COMPUTE_SANITIZER names the tool if it is not on the path.
set -u
cd "$(dirname "$0")/../.." || exit 1

python=$1
shift
failed=()

# sanitize TOOL FILE CASES [pytest options]
sanitize() {
  "${COMPUTE_SANITIZER:-compute-sanitizer}" --tool "$1" --target-processes all --error-exitcode 1 --print-limit 20 \
    "$python" -m pytest -m gpu "tests/gpu/$2" -k "$3" -q "${@:4}"
}

for tool in memcheck racecheck; do
  echo "== $tool"
  sanitize "$tool" test_cases.py "float64 and not random and not fused and not many_blocks" "$@" || failed+=("$tool")
done

# The control: a kernel that reads where there is no memory must not go unnoticed.
echo "== memcheck of a kernel that goes astray"
sanitize memcheck test_runtime.py "kernel_that_faults" 2>&1 | grep -m 1 "Invalid __" || failed+=("control")

[[ ${#failed[@]} -eq 0 ]] || echo "failed: ${failed[*]}"
exit "${#failed[@]}"
