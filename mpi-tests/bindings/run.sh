#!/bin/sh
# Run the example of docs/bindings.md and the calls of this folder in one language, on a build tree.
set -eu
usage="usage: BUILD_DIR=DIR mpi-tests/bindings/run.sh cxx|fortran|python"
case ${1-} in
--help) sed -n '2s/^# //p' "$0"; echo "$usage"; exit 0 ;;
cxx | fortran | python) language=$1 ;;
*) echo "$usage" >&2; exit 2 ;;
esac
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
build=${BUILD_DIR:-$root/build}
build=$(cd "$build" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' HUP INT TERM
export RONDO_DEBUG=NONE # the calls provoke errors, and check their sentences
make_value() { sed -n "s/^$1 = //p" "$build/Makefile"; }
skip() { echo "skipped: $1"; exit 77; }
# example LANGUAGE OF THE BLOCK: its code in docs/bindings.md
example() { sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/{/^\`\`\`/!p}" "$root/docs/bindings.md"; }
# launch RANKS PROGRAM...: its output is $tmp/out
launch() {
    ranks=$1
    shift
    timeout -k 5 100 "$root/scripts/mpi-run" --build "$build" -n "$ranks" "$@" >"$tmp/out" 2>&1 ||
        { cat "$tmp/out"; echo "$* fails on $ranks ranks"; exit 1; }
}
# says RANKS TEXT: every rank prints it
says() {
    [ "$(grep -o "$2" "$tmp/out" | wc -l)" = "$1" ] || { cat "$tmp/out"; echo "not $1 lines with: $2"; exit 1; }
}

[ -e "$build/bindings/stamp" ] || skip "the bindings are not made without python3"
mpi=$(make_value RONDO_MPI)
libs="-L$build/.libs -Wl,-rpath,$build/.libs -lrondo_$mpi -lrondo"
sanitize=$(make_value RONDO_SANITIZE)
includes="-I$build/bindings/cxx -I$root/src/bindings/cxx -I$build/src -I$root/src -I$root/src/mpi -I$root/src/base"
case $language in
cxx)
    cxx=$(make_value CXX)
    printf '#include <thread>\n' | $cxx -x c++ -std=c++17 -fsyntax-only - 2>/dev/null ||
        skip "$cxx does not compile C++17"
    example cpp >"$tmp/hello.cpp"
    cp "$here/calls.cpp" "$here/tensors.cpp" "$tmp"
    mpi_flags=$(make_value MPI_CPPFLAGS | sed 's/\(^\| \)-I/\1-isystem /g')
    for program in hello calls tensors; do
        # shellcheck disable=SC2086
        $cxx -std=c++17 -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX -Wall -Wextra -Wshadow -Wpedantic -Wconversion -Werror \
            $sanitize $includes $mpi_flags "$tmp/$program.cpp" -o "$tmp/$program" $libs $(make_value MPI_LIBS) -pthread
    done
    ;;
fortran)
    [ -e "$build/bindings/fortran/rondo.mod" ] || skip "configure did not build the Fortran module"
    example fortran >"$tmp/hello.f90"
    cp "$here/calls.F90" "$here/tensors.F90" "$tmp"
    for program in hello.f90 calls.F90 tensors.F90; do
        # shellcheck disable=SC2086
        (cd "$tmp" && $(make_value MPIFC) -O2 -Wall -Werror $sanitize "-I$build/bindings/fortran" $program \
            -o "${program%.*}" "$build/bindings/fortran/librondo_fortran_$mpi.a" $libs)
    done
    ;;
python)
    [ -z "$sanitize" ] || skip "Python is not built with the sanitizers"
    export PYTHONPATH="$build/bindings/python" LD_LIBRARY_PATH="$build/.libs" PYTHONDONTWRITEBYTECODE=1
    python=$(make_value PYTHON)
    launch 2 "$python" "$here/calls.py" "$mpi"
    says 2 'all calls are right'
    launch 2 "$python" "$here/tensors.py" "$mpi"
    says 2 'all calls are right'
    fake=$build/.libs/libfakecuda.so
    if [ -e "$fake" ]; then # the library is built with CUDA
        launch 2 env RONDO_CUDA_LIB="$fake" RONDO_KERNELS_LIB="$fake" FAKE_CUDA_STRICT=1 "$python" \
            "$here/tensors.py" "$mpi"
        says 2 'all calls are right'
    fi
    # The example needs mpi4py for this MPI; Debian's is for Debian's python3 and Open MPI.
    for each in "$python" /usr/bin/python3; do
        why=$("$each" "$here/calls.py" --has "$mpi" 2>&1 | tail -n 1)
        [ -n "$why" ] || break
    done
    [ -z "$why" ] || skip "the calls are right; the example was not run: $why"
    example python >"$tmp/hello.py"
    launch 2 "$each" "$tmp/hello.py"
    says 2 'rank [01]: rondo_broadcast on rank'
    ;;
esac
if [ "$language" != python ]; then
    launch 2 "$tmp/hello"
fi
says 2 'of 2: sum 1, expected 1'
if [ "$language" != python ]; then
    for ranks in 2 3; do
        for program in calls tensors; do
            launch $ranks "$tmp/$program"
            says $ranks 'all calls are right'
        done
    done
fi
