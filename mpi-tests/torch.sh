#!/bin/sh
# torch.distributed over the backend "rondo": every call, deaths and aborts, gradients beside gloo's. Ranks
# are plain processes that meet by torch's store, or are started by mpirun.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${BUILD_DIR:-$here/../build}
build=$(cd "$build" && pwd)
make_value() { sed -n "s/^$1 = //p" "$build/Makefile"; }
skip() { echo "skipped: $1"; exit 77; }
[ -e "$build/bindings/stamp" ] || skip "the bindings are not made without python3"
[ -z "$(make_value RONDO_SANITIZE)" ] || skip "Python is not built with the sanitizers"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' HUP INT TERM

export PYTHONPATH="$build/bindings/python" LD_LIBRARY_PATH="$build/.libs" PYTHONDONTWRITEBYTECODE=1
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$build/cache}"
export OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore RONDO_DEBUG=NONE
export CPPFLAGS="-I$build/src -I$here/../src -iquote$here/../src/base" LDFLAGS="-L$build/.libs"
CXX=$(make_value CXX)
export CXX

# A Python whose torch has gloo to compare with, and headers.
python=
for each in ${PYTHON-} "$(make_value PYTHON)" /usr/bin/python3; do
    if why=$("$each" -c 'import os, torch, torch.distributed as d
assert d.is_available() and hasattr(d, "ProcessGroupGloo"), "it has no torch.distributed with gloo"
folders = os.path.dirname(torch.__file__) + "/include", "/usr/include"
assert any(os.path.exists(f + "/torch/csrc/api/include/torch/python.h") for f in folders), \
    "it has no headers (Debian: libtorch-dev, pybind11-dev)"' 2>&1); then
        python=$each
        break
    fi
done
[ -n "$python" ] || skip "no PyTorch: $(echo "$why" | tail -n 1)"
"$python" -m rondo.torch >"$tmp/made" 2>&1 || { cat "$tmp/made"; exit 1; }

# ranks N PROGRAM...: plain processes, as torchrun starts them
port=$((20000 + $$ % 20000))
ranks() {
    n=$1 rank=0 bad=0 pids=''
    shift
    port=$((port + 1))
    while [ $rank -lt "$n" ]; do
        TMPDIR=$tmp RANK=$rank WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
            timeout -k 5 200 "$python" "$@" >"$tmp/out.$rank" 2>&1 &
        pids="$pids $!"
        rank=$((rank + 1))
    done
    for pid in $pids; do
        wait "$pid" || bad=$((bad + 1))
    done
    cat "$tmp"/out.*
    rm -f "$tmp"/out.*
    [ $bad = "${dead:-0}" ] || { echo "$bad of $n ranks failed in $*"; exit 1; }
}
for n in 1 2 4; do
    ranks $n "$here/torch_ops.py"
done
for n in 2 4; do
    ranks $n "$here/torch_ddp.py"
    dead=1 ranks $n "$here/torch_ops.py" env:// ends
done
"$here/../scripts/mpi-run" --build "$build" -n 2 "$python" "$here/torch_ddp.py" --init mpi://
