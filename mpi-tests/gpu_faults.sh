#!/bin/sh
# usage: BUILD_DIR=DIR gpu_faults.sh [CALL[:NTH]...]
# Let each CUDA driver call of the library fail once, in rank 1 of 2 on fake GPUs (fake_cuda.h). The job must
# end in time, with an error that names the rank and the driver's error. Default: all calls of
# src/base/cuda.def, and the fifth cuLaunchKernelEx. Jobs mostly start and end, so one more than there are
# cores run at once.
set -u
[ "${1-}" != --help ] || { sed -n '2,6s/^# //p' "$0"; exit 0; }
root=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD_DIR:?the build tree}
fake=$build/.libs/libfakecuda.so
logs=$build/logs/mpi
[ -e "$fake" ] || { echo "skipped: $fake does not exist (configure --with-cuda)"; exit 77; }

# one CALL[:NTH]: prints a line that begins with works, refused or wrong
one() {
    case $1 in *:*) nth=$1 ;; *) nth=$1:1 ;; esac
    log=$logs/gpu_faults.$(echo "$nth" | tr : .).log
    # Jobs of Open MPI share a folder, which one may remove while another one enters it.
    session=$(mktemp -d)
    OMPI_MCA_orte_tmpdir_base=$session FAKE_CUDA_FAIL=$nth:999 \
        timeout -k 5 100 "$root/scripts/mpi-run" --build "$build" -n 2 \
        "$build/mpi_coll" --memory device --most 2000 --coll all_reduce --type f32 \
        >"$log" 2>&1 </dev/null
    status=$?
    rm -rf "$session"
    case $status in
    0) echo "works $nth" ;; # not called here, or the library works without it
    124 | 137) echo "wrong $nth: did not end in time ($log)" ;;
    *)
        if grep -q 'rank 1' "$log" && grep -qE 'CUDA_ERROR_UNKNOWN|CUDA driver' "$log"; then
            echo "refused $nth"
        else
            echo "wrong $nth: the output does not name rank 1 and the driver's error:" \
                "$(tail -n 5 "$log" | tr '\n' '|')"
        fi
        ;;
    esac
}
if [ "${1-}" = --one ]; then one "$2"; exit; fi

# shellcheck disable=SC2046
[ $# -gt 0 ] ||
    set -- $(grep -o 'X(ctx, [A-Za-z0-9]*' "$root/src/base/cuda.def" | sed 's/.* /cu/' | grep -v '^cuName$') \
        cuLaunchKernelEx:5
mkdir -p "$logs"
export RONDO_CUDA_LIB="$fake" RONDO_KERNELS_LIB="$fake" RONDO_MAX_NCHANNELS=1 FAKE_CUDA_FAIL_RANK=1
printf '%s\n' "$@" | xargs -n 1 -P $(($(nproc) + 1)) "$0" --one >"$logs/gpu_faults.results"
grep '^wrong ' "$logs/gpu_faults.results"
refused=$(grep -c '^refused ' "$logs/gpu_faults.results") ran=$(wc -l <"$logs/gpu_faults.results")
echo "$ran of $# calls failed, $refused of them ended the job"
[ "$ran" = $# ] && [ "$refused" -gt 0 ] && ! grep -q '^wrong ' "$logs/gpu_faults.results"
