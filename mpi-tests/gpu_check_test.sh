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
bad=0
wrong() { echo "$1"; sed 's/^/    | /' "$2"; bad=1; }

cd "$tmp" || exit 1
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
# The machine shows the GPU, as a real one does.
cat >machine.xml <<XML
<system version="1">
<cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="207">
<pci busid="0000:17:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
<gpu dev="0" sm="90"/></pci></cpu></system>
XML
chmod +x tools/* && cd away || exit 1
env -i PATH="$tmp/tools:/usr/bin:/bin" TMPDIR="$tmp" MPI_TEST_MARK="${MPI_TEST_MARK-}" RONDO_CUDA_LIB="$fake" \
    RONDO_KERNELS_LIB="$fake" RONDO_MAX_NCHANNELS=2 RONDO_TOPO_FILE="$tmp/machine.xml" \
    FAKE_CUDA_DEVICES=1 FAKE_CUDA_LEAKS=1 \
    "$tmp/pack/run" --smallest >"$tmp/ran" 2>&1 || wrong "the packed run failed" "$tmp/ran"
cat "$tmp/ran"
for name in ranks direct slices mps graphs ring memcheck ncu bandwidth latency one_rank; do
    grep -q "^ok ${name}_smallest " "$tmp/ran" || wrong "${name}_smallest did not pass" "$tmp/ran"
done
grep -q '^[0-9]* passed, 0 failed, [0-9]* skipped' "$tmp/ran" || wrong "no summary" "$tmp/ran"
grep -q '^| ring simple | 2 | f32 | 64 KiB |' "$tmp/ran" || wrong "no table" "$tmp/ran"
grep -q '^begun .*/rondo-gpu' "$tmp/mps" && [ "$(tail -n 1 "$tmp/mps")" = quit ] ||
    wrong "MPS was not started and ended" "$tmp/mps"
grep -q '^--tool memcheck --error-exitcode 9 .*/gpu_ring ' "$tmp/sanitizer" ||
    wrong "memcheck was not used" "$tmp/sanitizer"
cmp "$tmp/ran" gpu-check.txt || bad=1
# An error of MPS is a failure: a skipped case would hide that processes cannot share the GPU.
env -i PATH="$tmp/tools:/usr/bin:/bin" TMPDIR="$tmp" MPI_TEST_MARK="${MPI_TEST_MARK-}" RONDO_CUDA_LIB="$fake" \
    RONDO_KERNELS_LIB="$fake" FAKE_CUDA_DEVICES=1 FAKE_CUDA_FAIL=cuModuleLoadData:1:805 \
    "$tmp/pack/run" --smallest --results "$tmp/refused.txt" >"$tmp/refused" 2>&1
[ $? = 1 ] && grep -q '^not ok mps_smallest' "$tmp/refused" && grep -q CUDA_ERROR_MPS_ "$tmp/refused" ||
    wrong "an error of MPS was no failure" "$tmp/refused"
# A size that the algorithm cannot run must not lose the rows of the others.
oneshot() {
    env RONDO_CUDA_LIB="$fake" RONDO_KERNELS_LIB="$fake" RONDO_MAX_NCHANNELS=2 FAKE_CUDA_DEVICES=1 \
        "$build/gpu_bench" bandwidth --algo oneshot --iters 2 --bytes "$1"
}
oneshot 1M,4K >"$tmp/rows" 2>&1 || wrong "a skipped row made the table fail" "$tmp/rows"
grep -q '^| oneshot | 2 | f32 | 4 KiB |' "$tmp/rows" && grep -q '^skipped: ' "$tmp/rows" ||
    wrong "no row of 4 KiB, or no skipped row" "$tmp/rows"
oneshot 1M >"$tmp/rows" 2>&1
[ $? = 77 ] || wrong "without a row, the exit status is not 77" "$tmp/rows"
[ -z "$(find "$tmp" -name 'rondo-gpu.*')" ] || { echo "a temporary folder is left"; bad=1; }
exit $bad
