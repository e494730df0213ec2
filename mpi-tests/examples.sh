#!/bin/sh
# Run an example of docs/examples on a build tree.
set -eu
usage="usage: BUILD_DIR=DIR mpi-tests/examples.sh parameter_server|weights"
case ${1-} in
--help) sed -n '2s/^# //p' "$0"; echo "$usage"; exit 0 ;;
parameter_server | weights) name=$1 ;;
*) echo "$usage" >&2; exit 2 ;;
esac
root=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD_DIR:-$root/build}
build=$(cd "$build" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' HUP INT TERM
make_value() { sed -n "s/^$1 = //p" "$build/Makefile"; }
skip() { echo "skipped: $1"; exit 77; }
lines() { # lines N TEXT: so many lines of the output have it
    [ "$(grep -c "$2" "$tmp/out")" = "$1" ] || { cat "$tmp/out"; echo "not $1 lines with: $2"; exit 1; }
}
sanitize=$(make_value RONDO_SANITIZE)
case $name in
parameter_server)
    # shellcheck disable=SC2046,SC2086
    $(make_value MPICC) -Wall $sanitize "$root/docs/examples/$name.c" "-I$build/src" "-I$root/src" "-I$root/src/mpi" \
        "-I$root/src/base" -o "$tmp/$name" "-L$build/.libs" "-Wl,-rpath,$build/.libs" \
        "-lrondo_$(make_value RONDO_MPI)" -lrondo $(make_value MPI_LIBS)
    timeout -k 5 60 "$root/scripts/mpi-run" --build "$build" -n 3 "$tmp/$name" >"$tmp/out" 2>&1 ||
        { cat "$tmp/out"; exit 1; }
    lines 3 'weight 7 is 10.500, expected 10.500'
    ;;
weights)
    [ -e "$build/bindings/stamp" ] || skip "the bindings are not made without python3"
    [ -z "$sanitize" ] || skip "Python is not built with the sanitizers"
    export PYTHONPATH="$build/bindings/python" LD_LIBRARY_PATH="$build/.libs" PYTHONDONTWRITEBYTECODE=1
    for python in "$(make_value PYTHON)" /usr/bin/python3; do
        ! "$python" -c 'import numpy' 2>/dev/null || break
        python=
    done
    [ -n "$python" ] || skip "numpy is not installed (Debian: python3-numpy)"
    timeout -k 5 60 "$python" "$root/docs/examples/weights.py" >"$tmp/out" 2>&1 || { cat "$tmp/out"; exit 1; }
    lines 1 '4 workers have the weights of 2 trainers'
    ;;
esac
cat "$tmp/out"
