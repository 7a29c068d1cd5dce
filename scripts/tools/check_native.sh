#!/usr/bin/env bash
# Builds the native tests and runs them with the address and undefined-behaviour sanitizers and with
# the thread sanitizer; by the name `plain` as released, too. Build trees stay in build/native-test for
# the next time. Kernels of several instruction sets are looked at where the package was built.
#
#   scripts/tools/check_native.sh [plain|address|thread ...]      address and thread by default
set -euo pipefail
cd "$(dirname "$0")/../.."

declare -A sanitizers=([plain]="" [address]="address,undefined" [thread]="thread")
export ASAN_OPTIONS=detect_stack_use_after_return=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1

generator=()
if command -v ninja >/dev/null; then generator=(-G Ninja); fi

# A function that the kernels of several instruction sets share would be linked in from any one of
# them, and the baseline would then not run on old machines.
check_nothing_shared() {
  local objects shared
  mapfile -t objects < <(find "$1" -path '*gnnscale_simd_*' -name '*.o')
  [[ ${#objects[@]} -gt 0 ]] || { echo "no kernels in $1" >&2; return 1; }
  shared=$(nm -C --defined-only "${objects[@]}" | grep -E ' [VWu] ' || true)
  [[ -z $shared ]] || { echo "shared between instruction sets:" "$shared" >&2; return 1; }
}

# What `pip install -e .` left, which is compiled as released.
for tree in build/cp*-*; do
  if [[ -d $tree ]]; then check_nothing_shared "$tree"; fi
done
for name in "${@:-address thread}"; do
  for build in $name; do
    [[ -v sanitizers[$build] ]] || { echo "$build: allowed are ${!sanitizers[*]}" >&2; exit 2; }
    echo "== native tests, $build =="
    tree=build/native-test/$build
    # What sanitizers look for does not depend on the level, and most of the time is the compiler's.
    level=$([[ $build == plain ]] && echo -O3 || echo -O1)
    cmake -S native -B "$tree" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_FLAGS_RELEASE=$level -DNDEBUG" \
      -DGNNSCALE_BUILD_TESTS=ON -DGNNSCALE_BUILD_EXTENSION=OFF -DGNNSCALE_WERROR=ON "-DGNNSCALE_SANITIZE=${sanitizers[$build]}" \
      >/dev/null
    cmake --build "$tree" --parallel "$(nproc)"
    if [[ $build == plain ]]; then check_nothing_shared "$tree"; fi
    ctest --test-dir "$tree" --output-on-failure --timeout 300 --parallel "$(nproc)"
  done
done
