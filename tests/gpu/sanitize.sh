#!/usr/bin/env bash
# Runs the kernels of the GPU tests under compute-sanitizer: reads and writes out of bounds, then races in shared memory.
# usage: tests/gpu/sanitize.sh PYTHON [pytest options]    COMPUTE_SANITIZER names the tool if it is not on the path
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

python=$1
shift
failed=()
for tool in memcheck racecheck; do
  "${COMPUTE_SANITIZER:-compute-sanitizer}" --tool "$tool" --error-exitcode 1 --print-limit 20 \
    "$python" -m pytest -m gpu tests/gpu/test_cases.py -k "float64 and not random and not fused" -q "$@" || failed+=("$tool")
done
[[ ${#failed[@]} -eq 0 ]] || echo "failed: ${failed[*]}"
exit "${#failed[@]}"
