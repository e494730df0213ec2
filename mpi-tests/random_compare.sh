#!/bin/bash
# Run the random MPI programs of mpi_random (mpi_random.h) under the MPI library alone and with the MPI face
# preloaded, and compare what each rank got in each program. A launch runs many programs.
set -u
usage() {
    cat <<'USAGE'
usage: mpi-tests/random_compare.sh [--build DIR] [--ranks LIST] [--count N] [--seed N] [--launch N]
                                   [--threads N]

  --build DIR   build tree (default: $BUILD_DIR, else build)
  --ranks LIST  numbers of ranks (2,3,4; default: 3)
  --count N     programs for each number of ranks (default: 40)
  --seed N      seed of the first (default: 1); programs have successive ones
  --launch N    programs in one launch (default: 1000)
  --threads N   so many programs at once, each in a thread of its own (default: 0, in turn)
RONDO_MPI_* hold for the run with the face; without them RONDO_MPI_TUNE=always and RONDO_MPI_AFTER=2, so
that Rondo carries what it can. Exits with 1 if a rank got something else, or a run failed.
USAGE
}
root=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD_DIR:-build} ranks=3 count=40 seed=1 launch=1000 threads=0
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$2 ;;
    --ranks) ranks=$2 ;;
    --count) count=$2 ;;
    --seed) seed=$2 ;;
    --launch) launch=$2 ;;
    --threads) threads=$2 ;;
    --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
    esac
    shift 2
done
build=$(cd "$build" && pwd) || exit 2
export BUILD_DIR=$build RONDO_MPI_TUNE=${RONDO_MPI_TUNE-always} RONDO_MPI_AFTER=${RONDO_MPI_AFTER-2}
[ -x "$build/mpi_random" ] || { echo "random_compare: $build has no mpi_random (make check-programs)" >&2; exit 2; }
# shellcheck source=/dev/null
. "$build/scripts/mpi.env"
sanitizer_options
# MPICH 4.0's own persistent collectives give wrong results. If another thread has completed one, only MPI
# knows of it, where ThreadSanitizer does not look.
persistent=(--persistent)
case $RONDO_BUILD_MPI,$RONDO_BUILD_SANITIZER,$threads in
mpich,* | *,thread,[1-9]*) persistent=() ;;
esac
# A sanitizer watches the face; a run without it must only give the results.
timeout=60
[ "$RONDO_BUILD_SANITIZER" = no ] || timeout=600
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' HUP INT TERM

# programs WHAT RANKS SEED COUNT [COMMAND...]: results are in $dir/WHAT.RANK
programs() {
    local what=$1 n=$2 first=$3 many=$4 how=()
    shift 4
    [ "$threads" = 0 ] || how=(--threads "$threads")
    rm -f "$dir/$what".*
    "$root/scripts/mpi-run" --build "$build" -n "$n" "$@" "$build/mpi_random" --seed "$first" --count "$many" \
        --timeout $timeout --digests "$dir/$what" "${how[@]}" "${persistent[@]}" >"$dir/log" 2>&1 || {
        echo "$n ranks, seeds $first to $((first + many - 1)): the run $what failed (exit status $?)"
        grep -a mpi_random "$dir/log" | head -n 20 || tail -n 20 "$dir/log"
        return 1
    }
}

# compare RANKS SEED COUNT: @return 1 if a run failed; adds to $differences
compare() {
    local n=$1 r bad
    programs "without Rondo" "$@" && programs "with Rondo" "$@" "$root/scripts/rondo-run" || return 1
    for ((r = 0; r < n; r++)); do
        [ "$(wc -l <"$dir/with Rondo.$r")" -ge "$3" ] || { echo "rank $r of $n wrote too few results"; return 1; }
        bad=$(comm -3 <(sort "$dir/without Rondo.$r") <(sort "$dir/with Rondo.$r") | awk '{ print $1 }' | sort -un)
        [ -n "$bad" ] || continue
        echo "rank $r of $n got other results in the programs of seeds" $bad
        differences=$((differences + $(wc -w <<<"$bad")))
    done
}

# runs_on_rondo RANKS: else MPI would be compared with itself. A run of its own, because without a report the face
# takes the shorter ways that users meet.
runs_on_rondo() {
    local few=4
    [ "$threads" = 0 ] || few=$((few * threads))
    [ "$RONDO_MPI_TUNE" = always ] || return 0
    RONDO_MPI_REPORT=$dir/report programs "with a report" "$1" "$seed" $few "$root/scripts/rondo-run" || return 1
    awk '$1 !~ /^#/ { n += $6 } END { exit n == 0 }' "$dir/report" ||
        { echo "$1 ranks, seeds from $seed: no call ran on Rondo"; return 1; }
}

failed=0
[ "$threads" = 0 ] || launch=$((launch / threads * threads)) count=$(((count + threads - 1) / threads * threads))
for n in ${ranks//,/ }; do
    differences=0 done=0
    runs_on_rondo "$n" || failed=1
    while [ $done -lt "$count" ]; do
        many=$((count - done < launch ? count - done : launch))
        compare "$n" $((seed + done)) $many || { failed=1; break; }
        done=$((done + many))
    done
    echo "$n ranks: $done programs of seeds from $seed compared, $differences differences"
    [ $differences = 0 ] || failed=1
done
exit $failed
