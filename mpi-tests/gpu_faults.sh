#!/bin/sh
# usage: BUILD_DIR=DIR gpu_faults.sh [CALL[:NTH]...]
# Let each CUDA driver call of the library fail once, in rank 1 of 2 on fake GPUs (fake_cuda.h). The job must
# end in time, with an error that names the rank and the driver's error. Default: all calls of
# src/base/cuda.def, and the fifth cuLaunchKernelEx.
set -u
[ "${1-}" != --help ] || { sed -n '2,5s/^# //p' "$0"; exit 0; }
root=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD_DIR:?the build tree}
fake=$build/.libs/libfakecuda.so
log=$build/logs/mpi/gpu_faults.run.log
[ -e "$fake" ] || { echo "skipped: $fake does not exist (configure --with-cuda)"; exit 77; }
# shellcheck disable=SC2046
[ $# -gt 0 ] ||
    set -- $(grep -o 'X(ctx, [A-Za-z0-9]*' "$root/src/base/cuda.def" | sed 's/.* /cu/' | grep -v '^cuName$') \
        cuLaunchKernelEx:5
mkdir -p "${log%/*}"
export RONDO_CUDA_LIB="$fake" RONDO_KERNELS_LIB="$fake" RONDO_MAX_NCHANNELS=1 FAKE_CUDA_FAIL_RANK=1
bad=0 refused=0
for call; do
    case $call in *:*) nth=$call ;; *) nth=$call:1 ;; esac
    FAKE_CUDA_FAIL=$nth:999 timeout -k 5 100 "$root/scripts/mpi-run" --build "$build" -n 2 \
        "$build/mpi_coll" --memory device --most 2000 --coll all_reduce --type f32 \
        >"$log" 2>&1 </dev/null
    status=$?
    case $status in
    0) continue ;; # not called here, or the library works without it
    124 | 137) echo "$nth: did not end in time"; bad=1 ;;
    *)
        refused=$((refused + 1))
        if ! grep -q 'rank 1' "$log" || ! grep -qE 'CUDA_ERROR_UNKNOWN|CUDA driver' "$log"; then
            echo "$nth: the output does not name rank 1 and the driver's error:"
            tail -n 5 "$log"
            bad=1
        fi
        ;;
    esac
done
echo "$# calls failed, $refused of them ended the job"
[ $refused -gt 0 ] || bad=1
exit $bad
