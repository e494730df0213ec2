# shellcheck shell=bash
# To be sourced by the fault tests: how to start ranks of which some die, and tables of what mpi_fault --watch
# reported. Some of them are scripts of sh.

# rank_wrapper FILE: write a script that starts a rank and appends its output to $FAULT_LOG. Ranks write to
# the log themselves, because MPICH's launcher loses what survivors print, and a launcher's output stops with
# a broken link. MPICH's launcher also ends all ranks when its child is killed, so there the child is this
# script.
rank_wrapper() {
    cat >"$1" <<'RANK'
#!/bin/sh
trap '' USR1 # MPICH's launcher reports a death with this signal; the rank inherits that it is ignored
[ "$FAULT_MPI" = mpich ] || exec "$@" >>"$FAULT_LOG" 2>&1
"$@" >>"$FAULT_LOG" 2>&1
status=$?
[ $status -ne 137 ] || exit 0
exit $status
RANK
}

# host_wrapper FILE: write a script that lets ranks believe, in turn, to be on $FAULT_HOSTS hosts
host_wrapper() {
    cat >"$1" <<'HOST'
#!/bin/sh
[ "$FAULT_HOSTS" -eq 1 ] || export RONDO_HOSTID=fault$((${OMPI_COMM_WORLD_RANK:-$PMI_RANK} % FAULT_HOSTS))
exec "$@"
HOST
}

# finalize_workaround TESTS DIR: print what ranks of MPICH on several hosts are to be started with. TESTS has
# host_finalize.c, which says why; the library goes to DIR. Sanitizers allow no preloaded library.
finalize_workaround() {
    if [ "$RONDO_BUILD_MPI" = mpich ] && [ "$RONDO_BUILD_SANITIZER" = no ] &&
        ${CC:-cc} -shared -fPIC -D_GNU_SOURCE -o "$2/host_finalize.so" "$1/host_finalize.c"; then
        echo "env LD_PRELOAD=$2/host_finalize.so"
    fi
}

# survive_options MPI: print the options of scripts/mpi-run that let survivors go on
survive_options() {
    case $1 in
    openmpi) echo "--mpirun --enable-recovery" ;;
    mpich) echo "--mpirun -disable-auto-cleanup" ;;
    esac
}

# reports BEGIN LOG...: print "rank, milliseconds after BEGIN (seconds since 1970), outcome" for each report
reports() {
    # shellcheck disable=SC3043
    local begin=$1
    shift
    cat "$@" | sed -n 's/.*: watch \([0-9]*\): \([A-Za-z_ ]*\) at \([0-9.]*\) .*/\1 \3 \2/p' |
        awk -v t="$begin" '{ printf "%d %.0f %s\n", $1, 1000 * ($2 - t), $3 }' | sort -n
}

# table FAULT FILE: print "| fault | rank 0: REMOTE_ERROR | runs | p50 | p99 | worst |" in milliseconds, a
# line per rank, for all output of reports in FILE
table() {
    sort -k1,1n -k2,2n "$2" | awk -v fault="$1" '
        function flush() {
            if (n) printf "| %s | rank %d: %s | %d | %d | %d | %d |\n", fault, rank, what, n,
                t[int((n - 1) * 0.5) + 1], t[int((n - 1) * 0.99 + 0.999) + 1], t[n]
            n = 0
        }
        $1 != rank { flush(); rank = $1 }
        { t[++n] = $2; what = $3 }
        END { flush() }'
}
