#!/bin/sh
# usage: BUILD_DIR=DIR gpu_pxn.sh
# Two nodes with two fake GPUs each, of which one is near the NIC (far_gpus.xml). Results must be right, and
# the far GPU must send through the near one (PXN), but not with RONDO_PXN_DISABLE=1.
set -u
[ "${1-}" != --help ] || { sed -n '2,4s/^# //p' "$0"; exit 0; }
tests=$(cd "$(dirname "$0")" && pwd)
build=${BUILD_DIR:?the build tree}
fake=$build/.libs/libfakecuda.so
log=$build/logs/mpi/gpu_pxn.run.log
[ -e "$fake" ] || { echo "skipped: $fake does not exist (configure --with-cuda)"; exit 77; }
mkdir -p "${log%/*}"
export RONDO_CUDA_LIB="$fake" RONDO_KERNELS_LIB="$fake" RONDO_MAX_NCHANNELS=2 FAKE_CUDA_LEAKS=1
export RONDO_NET=socket RONDO_SOCKET_IFNAME=lo
export RONDO_TOPO_FILE="$tests/far_gpus.xml" RONDO_DEBUG=INFO RONDO_DEBUG_SUBSYS=NET,GRAPH
bad=0

# run DISABLE: run mpi_coll on four ranks, two per node
run() {
    # shellcheck disable=SC2016
    RONDO_PXN_DISABLE=$1 timeout -k 5 100 "$tests/../scripts/mpi-run" --build "$build" -n 4 \
        sh -c 'RONDO_HOSTID=node$((${OMPI_COMM_WORLD_RANK-$PMI_RANK} / 2)) exec "$@"' sh \
        "$build/mpi_coll" --memory device --most 3000 --type f32 --coll all_reduce >"$log" 2>&1 </dev/null && return
    echo "mpi_coll with RONDO_PXN_DISABLE=$1 failed:"
    tail -n 15 "$log"
    bad=1
}
# wants COUNT PATTERN WHAT: check the number of matching lines in the log
wants() {
    lines=$(grep -cE "$2" "$log")
    [ "$lines" -eq "$1" ] || { echo "$lines lines say that $3, expected $1"; bad=1; }
}

run 0
wants 4 '\[send\] via NET/socket/lo/PXN[02]$' "a connection goes through the GPU of rank 0 or 2"
wants 2 'rank [02]: its NIC sent [1-9][0-9]* slices of [0-9]* connections for other GPUs' \
    "the NIC of rank 0 or 2 sent for others"
wants 0 'not through the GPU' "a connection does not go through the near GPU"
run 1
wants 0 '/PXN|for other GPUs' "RONDO_PXN_DISABLE=1, but data was sent for other GPUs"
exit $bad
