#!/bin/sh
# How long after a fault rondo-doctor names it: the distribution over many runs of mpi_doctor, as a table of
# MEASURED.md.
set -eu
usage() {
    cat <<'USAGE'
usage: mpi-tests/doctor_times.sh [--build DIR] [--times N] [--hosts] [FAULT...]

  --build DIR  build tree (default: build beside mpi-tests/)
  --times N    runs of each fault (default: 50)
  --hosts      on two hosts of scripts/cluster-lab, 2 and 2 ranks (default: 4 ranks on one host, where no packet
               is lost)
  FAULT        those of mpi_doctor (default: all)
mpi_doctor asks rondo-doctor (--slow 0.3) again and again from before the fault on, so a time has in it what one
question takes. Milliseconds.
USAGE
}
top=$(cd "$(dirname "$0")/.." && pwd)
build=$top/build times=50 hosts=no
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$(cd "$2" && pwd); shift 2 ;;
    --times) times=$2; shift 2 ;;
    --hosts) hosts=yes; shift ;;
    --help) usage; exit 0 ;;
    -*) usage >&2; exit 2 ;;
    *) break ;;
    esac
done
play="$build/mpi_doctor --doctor $build/rondo-doctor --times $times"
said=$(mktemp)
pid=
# Whoever ends this script ends the ranks too, and gets a table of the runs so far.
trap '[ -z "$pid" ] || kill "$pid"' HUP INT TERM
trap 'rm -f "$said"' EXIT
if [ $hosts = yes ]; then
    agent=$build/doctor_agent
    printf '#!/bin/sh\nexec "%s" rsh "$@"\n' "$top/scripts/cluster-lab" >"$agent"
    chmod +x "$agent"
    "$top/scripts/cluster-lab" run 2 \
        "$top/scripts/mpi-run --build $build --hosts n1:2,n2:3 $play --hosts n1,n2 --agent $agent --link eth0 $*" \
        >"$said" 2>/dev/null &
else
    # shellcheck disable=SC2086
    "$top/scripts/mpi-run" --build "$build" -n 5 $play "$@" >"$said" 2>/dev/null &
fi
pid=$!
status=0
wait "$pid" || status=$?
wait "$pid" 2>/dev/null || true # the first one ends with a signal
pid=
sed -n 's/^\([a-z_]*\): \([a-zA-Z ]*\) after \([0-9]*\) ms: .*/\1 \3 \2/p' "$said" | sort -s -k1,1 -k2,2n |
    awk '
        function flush() {
            if (n) printf "| %s | %s | %d | %d | %d | %d |\n", fault, verdict, n, t[int((n - 1) * 0.5) + 1],
                t[int((n - 1) * 0.99 + 0.999) + 1], t[n]
            n = 0
        }
        BEGIN { print "| fault | verdict | runs | median | p99 | worst |"; print "|---|---|---|---|---|---|" }
        $1 != fault { flush(); fault = $1 }
        { t[++n] = $2; verdict = $3 }
        END { flush() }'
exit $status
