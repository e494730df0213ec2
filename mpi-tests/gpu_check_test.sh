#!/bin/sh
# usage: BUILD_DIR=DIR gpu_check_test.sh
# Use scripts/gpu-check as on a GPU machine: pack it, and run the smallest cases in an empty folder and with
# an empty environment over the tests' CUDA driver (fake_cuda.h). Also check what it says without a GPU.
set -u
[ "${1-}" != --help ] || { sed -n '2,4s/^# //p' "$0"; exit 0; }
root=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD_DIR:?the build tree}
fake=$build/.libs/libfakecuda.so
[ -e "$fake" ] || { echo "skipped: $fake does not exist (configure --with-cuda)"; exit 77; }
grep -q "RONDO_BUILD_MPI='openmpi'" "$build/scripts/mpi.env" ||
    { echo "skipped: gpu-check packs only Open MPI"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' HUP INT TERM
bad=0
wrong() { echo "$1"; sed 's/^/    | /' "$2"; bad=1; }

cd "$tmp" || exit 1
# Beside the rest, without a pack: processes as ranks, timed; and a library with NCCL's interface in the place
# of NCCL.
together() {
    env RONDO_CUDA_LIB="$fake" RONDO_KERNELS_LIB="$fake" RONDO_MAX_NCHANNELS=2 FAKE_CUDA_DEVICES=1 \
        RONDO_ALLOW_SHARED_GPU=1 RONDO_NCCL_MEMORY=gpu "$root/scripts/mpi-run" --build "$build" -n 2 \
        "$build/gpu_bench" --mpi --iters 2 --bytes 8 --rows "$tmp/rows.tsv" "$@"
}
oneshot() {
    env RONDO_CUDA_LIB="$fake" RONDO_KERNELS_LIB="$fake" RONDO_MAX_NCHANNELS=2 FAKE_CUDA_DEVICES=1 \
        "$build/gpu_bench" bandwidth --algo oneshot --iters 2 --bytes "$1"
}
without_pack() {
    bad=0
    together latency --proto ll >"$tmp/rows" 2>&1 || wrong "gpu_bench by processes failed" "$tmp/rows"
    grep -q '^| ring ll | 2 | 8 B |' "$tmp/rows" || wrong "no row of processes" "$tmp/rows"
    together latency --nccl "$build/.libs/libnccl.so.2" >"$tmp/rows" 2>&1 ||
        wrong "gpu_bench --nccl failed" "$tmp/rows"
    grep -q '^all_reduce, NCCL 2\.' "$tmp/rows.tsv" || wrong "no measurement of NCCL" "$tmp/rows"
    together latency --nccl /no/nccl >"$tmp/rows" 2>&1
    grep -q '^skipped: NCCL (/no/nccl) refuses 2 ranks: ' "$tmp/rows" ||
        wrong "no word of a missing NCCL" "$tmp/rows"
    # A size that the algorithm cannot run must not lose the rows of the others.
    oneshot 1M,4K >"$tmp/rows" 2>&1 || wrong "a skipped row made the table fail" "$tmp/rows"
    grep -q '^| oneshot | 2 | f32 | 4 KiB |' "$tmp/rows" && grep -q '^skipped: ' "$tmp/rows" ||
        wrong "no row of 4 KiB, or no skipped row" "$tmp/rows"
    oneshot 1M >"$tmp/rows" 2>&1
    [ $? = 77 ] || wrong "without a row, the exit status is not 77" "$tmp/rows"
    return $bad
}
without_pack >apart.out 2>&1 &
without_pack=$!

RONDO_CUDA_LIB=/no/driver "$root/scripts/gpu-check" --build "$build" >none 2>&1
[ $? = 77 ] || wrong "without a driver, the exit status is not 77" none
grep -q 'no GPU was used: no CUDA driver (/no/driver)' none ||
    wrong "without a driver, the output does not say so" none

"$root/scripts/gpu-check" --build "$build" --pack "$tmp/pack" >packed 2>&1 || wrong "packing failed" packed
cat packed
# Fake tools of a GPU machine: they record that they were called, and run the program.
mkdir tools away || exit 1
cat >tools/nvidia-cuda-mps-control <<STUB
#!/bin/sh
if [ "\${1-}" = -d ]; then echo "begun \$CUDA_MPS_PIPE_DIRECTORY" >>"$tmp/mps"; else cat >>"$tmp/mps"; fi
STUB
cat >tools/compute-sanitizer <<STUB
#!/bin/sh
echo "\$*" >>"$tmp/sanitizer"
shift 4
exec "\$@"
STUB
cat >tools/ncu <<STUB
#!/bin/sh
shift 4
echo "    dram__bytes_read.sum    Mbyte    1.5"
exec "\$@"
STUB
chmod +x tools/* && cd away || exit 1
# node OUTPUT SETTING... ARGUMENT...: the pack's run, as on that machine
node() {
    output=$1
    shift
    env -i PATH="$tmp/tools:/usr/bin:/bin" TMPDIR="$tmp" MPI_TEST_MARK="${MPI_TEST_MARK-}" \
        RONDO_CUDA_LIB="$fake" RONDO_KERNELS_LIB="$fake" RONDO_MAX_NCHANNELS=2 FAKE_CUDA_DEVICES=1 "$@" \
        >"$tmp/$output" 2>&1
}
run="$tmp/pack/run"
node ran FAKE_CUDA_LEAKS=1 "$run" --only smallest ||
    wrong "the packed run failed" "$tmp/ran"
cat "$tmp/ran"
for name in ranks direct slices mps graphs ring memcheck ncu bandwidth latency one_rank overlap torn; do
    grep -q "^ok ${name}_smallest " "$tmp/ran" || wrong "${name}_smallest did not pass" "$tmp/ran"
done
grep -q '^[0-9]* passed, 0 failed, [0-9]* skipped' "$tmp/ran" || wrong "no summary" "$tmp/ran"
grep -q '^| loading all kernels, ms | [0-9.]* |' "$tmp/ran" || wrong "no load time" "$tmp/ran"
! grep -q 'not held open' "$tmp/ran" || wrong "the device was not held open" "$tmp/ran"
grep -q '^begun .*/rondo-gpu' "$tmp/mps" && [ "$(tail -n 1 "$tmp/mps")" = quit ] ||
    wrong "MPS was not started and ended" "$tmp/mps"
grep -q '^--tool memcheck --error-exitcode 9 .*/gpu_ring ' "$tmp/sanitizer" ||
    wrong "memcheck was not used" "$tmp/sanitizer"
cmp "$tmp/ran" gpu-check.out/report.txt || bad=1
report=gpu-check.out/report.json
python3 - $report <<'CHECK' || wrong "report.json is not what it should be" $report
import json, sys
report = json.load(open(sys.argv[1]))
assert report["failed"] == 0 and report["passed"] >= 13 and report["gpu"]["compute capability"] == "9.0"
assert all(case["status"] in ("ok", "skipped") for case in report["cases"])
times = {time["what"]: time for time in report["times"]}
for what in "copy on the device", "launch of an empty kernel, waited for":
    assert times[what]["us"] > 0
for what in "all_reduce, ring simple", "all_reduce, ring ll", "all_reduce on two communicators at once":
    assert times[what]["us"] > 0 and times[what]["floor_us"] > 0 and times[what]["floor"], what
CHECK
# An error of MPS is a failure: a skipped case would hide that processes cannot share the GPU. Its logs are
# kept. The error comes in processes of a launcher alone.
node refused FAKE_CUDA_FAIL=cuModuleLoadData:1:805 FAKE_CUDA_FAIL_RANK=1 \
    "$run" --nccl /no/nccl --only smallest --out "$tmp/refused.out" &
refused=$!
# A run goes on where the last one has ended: what passed is not run again. Without time, groups are named.
# Only the first run looks for NCCL in the machine's files.
node again "$run" --nccl /no/nccl --only smallest,graphs --resume --minutes 0
grep -q '^skip group smallest (no time left of 0 minutes' "$tmp/again" &&
    grep -q '^skip group graphs (no time left' "$tmp/again" ||
    wrong "groups without time have no name" "$tmp/again"
node again "$run" --nccl /no/nccl --only smallest --resume || wrong "the second run failed" "$tmp/again"
grep -q '^0 passed, 0 failed, [0-9]* skipped in .* had passed before' "$tmp/again" ||
    wrong "a case that had passed was run again" "$tmp/again"
wait $refused
[ $? = 1 ] && grep -q '^not ok mps_smallest' "$tmp/refused" && grep -q CUDA_ERROR_MPS_ "$tmp/refused" ||
    wrong "an error of MPS was no failure" "$tmp/refused"
for log in mps_smallest.log mps_smallest.info.log; do
    tar -xOf "$tmp/refused.out/failures.tar" "./$log" | grep -q CUDA_ERROR_MPS_ ||
        { echo "failures.tar has no $log, or not all of it"; bad=1; }
done
wait $without_pack || { cat "$tmp/apart.out"; bad=1; }
[ -z "$(find "$tmp" -name 'rondo-gpu.*')" ] || { echo "a temporary folder is left"; bad=1; }
exit $bad
