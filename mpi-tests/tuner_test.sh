#!/bin/sh
# NCCL tuner plugins of every version are loaded and obeyed: the calls' traces show the algorithm, protocol,
# channels and chunk that the plugin (mpi-tests/tuner_check.c) asks for. rondo-explain shows what it changes.
set -eu
build=${BUILD_DIR:?} root=$(cd "$(dirname "$0")/.." && pwd)
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' HUP INT TERM
die() { echo "tuner_test: $*"; cat "$dir/log"; exit 1; }

# run VERSION WISH: an all_reduce of 64 KiB on 3 ranks
run() {
    rm -f "$dir"/t.*
    env RONDO_TUNER_PLUGIN="$build/.libs/libtunercheck$1.so" TUNER_CHECK="$2" RONDO_DEBUG=INFO \
        RONDO_DEBUG_SUBSYS=TUNING RONDO_PROFILER_PLUGIN="$build/.libs/libnccl-profiler-rondo.so" \
        RONDO_TRACE_FILE="$dir/t" RONDO_TRACE_LEVEL=steps "$root/scripts/mpi-run" --build "$build" -n 3 \
        "$build/all_reduce_perf" -b 64K -e 64K -n 2 -w 1 -c 1 >"$dir/log" 2>&1 || die "version $1: it failed"
}
# took ALGO PROTO CHANNELS STEPS: each all_reduce of 64 KiB took that, with at least so many steps on a conn
took() {
    python3 - "$dir" "$@" <<'PYTHON' || die "$wish: not obeyed"
import glob, json, sys
dir, algo, proto, channels, steps = sys.argv[1], *sys.argv[2:4], *map(int, sys.argv[4:6])
for path in glob.glob(dir + "/t.*.json"):
    events = json.load(open(path))["traceEvents"]
    calls = [e for e in events if e.get("cat") == "coll" and e["name"] == "AllReduce" and
             e["args"]["bytes"] == 65536]
    took = {(e["args"]["algo"], e["args"]["proto"], e["args"]["channels"]) for e in calls}
    most = max(e["args"]["steps"] for e in events if e.get("cat") == "conn")
    if took != {(algo, proto, channels)} or most < steps:
        sys.exit(f"{path}: {took}, {most} steps")
PYTHON
}
for version in 2 3 4 5 6; do
    wish="version $version, tree ll128 2"
    run $version "tree ll128 2"
    took TREE LL128 2 $([ $version = 6 ] && echo 8 || echo 1)
done
# The first rank is on one host, three are on another: NVLink domains of 1 and 3 ranks.
printf '#!/bin/sh\nRONDO_HOSTID=$((${OMPI_COMM_WORLD_RANK-$PMI_RANK} > 0)) exec "$@"\n' >"$dir/apart"
chmod +x "$dir/apart"
env RONDO_TUNER_PLUGIN="$build/.libs/libtunercheck5.so" TUNER_CHECK=none TUNER_DOMAINS="1 3" \
    RONDO_SOCKET_IFNAME==lo "$root/scripts/mpi-run" --build "$build" -n 4 "$dir/apart" \
    "$build/all_reduce_perf" -b 64K -e 64K -n 2 -w 1 -c 1 >"$dir/log" 2>&1 || die "uneven nodes"
wish="version 3, ring simple, any channels"
run 3 "ring simple 1"
took RING SIMPLE 1 1
run 4 init
grep -q 'init of the tuner plugin check (v4.*gave 2' "$dir/log" || die "an init that fails is not reported"
run 5 call
[ "$(grep -c 'tuner plugin check (v5.* gave 2 for all_reduce' "$dir/log")" = 3 ] ||
    die "questions that fail are not reported once a rank"
# Only the last rank's init fails, or only the first finds a library: no rank uses it, and one says so.
cat >"$dir/differs" <<'APART'
#!/bin/sh
rank=${OMPI_COMM_WORLD_RANK-$PMI_RANK}
case $DIFFERS in
init) [ "$rank" != 2 ] || export TUNER_CHECK=init ;;
library) [ "$rank" != 0 ] || export LD_LIBRARY_PATH="$TUNER_DIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" ;;
esac
exec "$@"
APART
chmod +x "$dir/differs"
mkdir "$dir/lib"
ln -s "$build/.libs/libtunercheck5.so" "$dir/lib/libnccl-tuner.so"
differs() {
    env TUNER_CHECK="tree ll128 2" TUNER_DIR="$dir/lib" RONDO_TIMEOUT=20 "$@" "$root/scripts/mpi-run" \
        --build "$build" -n 3 "$dir/differs" "$build/all_reduce_perf" -b 64K -e 64K -n 2 -w 1 -c 1 \
        >"$dir/log" 2>&1 || die "$*: it failed"
    [ "$(grep -c 'no rank uses a tuner plugin' "$dir/log")" = 1 ] || die "$*: not one warning"
}
differs DIFFERS=init RONDO_TUNER_PLUGIN="$build/.libs/libtunercheck4.so"
grep -q 'rank 0 on .* has check (v4.*rank 2 on .* has none' "$dir/log" || die "who has no plugin is not said"
differs DIFFERS=library
RONDO_TUNER_PLUGIN="$build/.libs/libtunercheck3.so" TUNER_CHECK="ring ll 1" \
    "$build/rondo-explain" --ranks n4 all_reduce 64K >"$dir/log" 2>&1 || die "rondo-explain"
grep -q 'tuner plugin check (v3.*changes.* ring ll x[0-9]* [0-9.]* -> x1 0.00 us,.* a call runs ring ll x1' \
    "$dir/log" || die "rondo-explain does not show the change"
echo ok
