#!/bin/sh
# rondo-run --nccl puts Rondo's libnccl.so.2 in front of another one, by its soname or by its path.
set -eu
build=${BUILD_DIR:-build}
if nm -D "$build/.libs/libnccl.so.2" 2>/dev/null | grep -q -e __asan_ -e __tsan_; then
    echo "sanitizers must come first in a process"
    exit 77
fi
tmp=$(cd "$(mktemp -d)" && pwd -P)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' HUP INT TERM
: >"$tmp/libnccl.so.2" # a library that cannot be opened
open="$build/nccl_open"
export RONDO_NCCL_MEMORY=host

try() { # try WHAT EXPECTED COMMAND...
    what=$1 expected=$2
    shift 2
    got=$("$@" 2>&1) || :
    case $got in
    $expected) echo "ok $what" ;;
    *) echo "not ok $what: expected $expected, got $got"; exit 1 ;;
    esac
}
run="scripts/rondo-run --nccl"
try "the other library cannot be opened" "nccl_open: *" env LD_LIBRARY_PATH="$tmp" "$open" libnccl.so.2
try "by soname" 23007 env LD_LIBRARY_PATH="$tmp" $run "$open" libnccl.so.2
try "by path, not in front" "nccl_open: *" $run "$open" "$tmp/libnccl.so.2"
try "by path" 23007 $run=audit "$open" "$tmp/libnccl.so.2"
try "audit, by soname" 23007 env LD_LIBRARY_PATH="$tmp" $run=audit "$open" libnccl.so.2
try "version" 22707 env RONDO_NCCL_VERSION=22707 $run "$open" libnccl.so.2

# ld.so splits what is preloaded at spaces and colons, and what audits at colons: the program would run without Rondo.
for folder in "two words" "two:words"; do
    mkdir -p "$tmp/$folder/bin"
    cp scripts/rondo-run "$tmp/$folder/bin"
    ln -s "$(cd "$build/.libs" && pwd)" "$tmp/$folder/lib"
    run="$tmp/$folder/bin/rondo-run"
    try "refuses $folder, MPI" "rondo-run: LD_PRELOAD*$tmp/$folder/lib/*" "$run" echo ran
    try "refuses $folder, NCCL" "rondo-run: LD_PRELOAD*$tmp/$folder/lib/*" "$run" --nccl echo ran
done
try "refuses $folder, audit" "rondo-run: LD_AUDIT*$tmp/$folder/lib/*" "$run" --nccl=audit echo ran
try "audits from two words" 23007 "$tmp/two words/bin/rondo-run" --nccl=audit "$open" "$tmp/libnccl.so.2"
