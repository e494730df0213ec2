# shellcheck shell=bash
# To be sourced: what ranks of mpi_fault --watch reported after a fault, and tables of it.

# reports BEGIN LOG...: a line for each rank that reported: rank, milliseconds after BEGIN (seconds since 1970), what
reports() {
    local begin=$1
    shift
    cat "$@" | sed -n 's/.*: watch \([0-9]*\): \([A-Za-z_ ]*\) at \([0-9.]*\) .*/\1 \3 \2/p' |
        awk -v t="$begin" '{ printf "%d %.0f %s\n", $1, 1000 * ($2 - t), $3 }' | sort -n
}

# table FAULT FILE: "| fault | rank 0: REMOTE_ERROR | runs | p50 | p99 | worst |", milliseconds, a line for each rank, of all that reports said
table() {
    sort -k1,1n -k2,2n "$2" | awk -v fault="$1" '
        function flush() { if (n) printf "| %s | rank %d: %s | %d | %d | %d | %d |\n", fault, rank, what, n, t[int((n - 1) * 0.5) + 1], t[int((n - 1) * 0.99 + 0.999) + 1], t[n]; n = 0 }
        $1 != rank { flush(); rank = $1 }
        { t[++n] = $2; what = $3 }
        END { flush() }'
}
