#!/usr/bin/env bash
# usage: host_faults.sh [--times N] FAULT; BUILD_DIR is the build tree
# Faults between hosts: links that go down, lost packets, ranks that die or stop, foreign connections. Runs on
# the head of a lab of scripts/cluster-lab, started by run-host-tests, while mpi_fault --watch runs on n1 and
# n2. Prints what each rank reported, and how long after the fault. Exit status 77, with the reason, if the
# kernel cannot do it.
# shellcheck disable=SC2317 # the table names the functions
set -u

# name | hosts:ranks | expected report | seconds the ranks run, or until $log.done exists | parameters | what the error texts name
faults() {
    cat <<'FAULTS'
link_1s     | n1:1,n2:1 | passed       |  4 |                                               |
silent_1s   | n1:1,n2:1 | passed       |  4 |                                               |
link_gone   | n1:2,n2:1 | REMOTE_ERROR | 30 | RONDO_SOCKET_TIMEOUT=2s RONDO_DEAD_AFTER=4s   | n2
silent_gone | n1:2,n2:1 | REMOTE_ERROR | 30 | RONDO_SOCKET_TIMEOUT=2s RONDO_DEAD_AFTER=4s   | n2
killed      | n1:2,n2:1 | REMOTE_ERROR | 30 |                                               | rank 2
stopped_3s  | n1:2,n2:1 | passed       |  6 |                                               |
stopped     | n1:2,n2:1 | REMOTE_ERROR | 30 | RONDO_DEAD_AFTER=2s                           | rank 2
garbage     | n1:1,n2:1 | passed       | 60 |                                               |
secret      | n1:1,n2:1 | passed       |  9 | RONDO_DEBUG=INFO RONDO_DEBUG_SUBSYS=INIT,CONTROL RONDO_DEBUG_FILE= |
loss_1      | n1:1,n2:1 | passed       |  4 |                                               |
loss_5      | n1:1,n2:1 | passed       |  4 |                                               |
reorder     | n1:1,n2:1 | passed       |  4 |                                               |
duplicate   | n1:1,n2:1 | passed       |  4 |                                               |
FAULTS
}

# ---- faults: each breaks something and returns at once; mend repairs it ----

port=port0.2 # the port of n2
link() { ip link set $port "$1"; }
# Drop all packets, but keep the carrier.
silence() { bridge link set dev $port state "$1"; }
link_1s() { link down; sleep 1; link up; }
silent_1s() { silence 0; sleep 1; silence 3; }
link_gone() { link down; }
silent_gone() { silence 0; }
killed() { kill -9 "${pid[-1]}"; }
stopped_3s() { kill -STOP "${pid[-1]}"; sleep 3; kill -CONT "${pid[-1]}"; }
stopped() { kill -STOP "${pid[-1]}"; }
# Faults of a cable start before the ranks do; see prepare.
loss_1() { :; }
loss_5() { :; }
reorder() { :; }
duplicate() { :; }

strangers=10000
garbage() {
    local i made senders=()
    for ((i = 0; i < 20; i++)); do strange $((strangers / 20)) & senders+=($!); done
    wait "${senders[@]}"
    made=$(awk '{ n += $1 } END { print n }' "$log.made")
    rm "$log.made"
    echo "strangers: $made connections to $(wc -l <<<"$ports") ports" >>"$log"
    grep -aq ': watch [0-9]*: ' "$log" && because "the ranks ended before all connections were made"
    : >"$log.done"
    [ "$made" -ge $((strangers * 9 / 10)) ] || because "only $made of $strangers connections could be made"
}

# Send greetings that are correct except for what strangers do not know, a third of them for each rank and for
# data. Data ports accept only while a peer has to connect.
greetings=9
secret() {
    local port hash
    hash=$(sed -n 's/.* communicator "[^"]*" \([0-9a-f]\{16\}\): rank .*/\1/p' "$log" | head -n 1)
    while read -r port; do
        # shellcheck disable=SC2086
        "$build/bad_hello" $greetings "$hash" $port >>"$log" 2>&1 ||
            because "a stranger's greeting was answered, or there was no connection to $port"
    done <<<"$ports"
}

# Start the faults that precede the ranks. The kernel may be unable to do it.
prepare() {
    case $fault in
    loss_1) bad_cable --loss 1 ;;
    loss_5) bad_cable --loss 5 ;;
    reorder) bad_cable --reorder 10 ;;
    duplicate) bad_cable --duplicate 5 ;;
    silent_*) silence 3 ;;
    esac 2>"$log.tool" || { echo "this kernel cannot do $fault: $(tail -n 1 "$log.tool")"; exit 77; }
}

mend() {
    case $fault in
    link_*) link up ;;
    silent_*) silence 3 ;;
    stopped*) kill -CONT "${pid[-1]}" 2>/dev/null ;;
    esac
}

# ---- one run ----

because() { why="${why:+$why; }$*"; }
# until_log PATTERN COUNT SECONDS
until_log() {
    local t
    for ((t = 0; t < $3 * 20; t++)); do
        [ "$(grep -ac "$1" "$log")" -lt "$2" ] || return 0
        kill -0 "$job" 2>/dev/null || return 1
        sleep 0.05
    done
    return 1
}

start_ranks() {
    : >"$log"
    rm -f "$log.done"
    # shellcheck disable=SC2086
    env $parameters FAULT_LOG="$log" FAULT_MPI="$RONDO_BUILD_MPI" timeout -k 5 $((seconds + 40)) \
        "$scripts/mpi-run" --build "$build" --hosts "$layout" $survive \
        sh "$log.rank" "$build/mpi_fault" --watch "$seconds" --until "$log.done" >>"$log.launcher" 2>&1 </dev/null &
    job=$!
    until_log ': watching ' "$nranks" 20 || { because "the ranks did not start"; return 1; }
    mapfile -t pid < <(sed -n 's/.*: watching \([0-9]*\): pid \([0-9]*\) .*/\1 \2/p' "$log" |
        sort -n | cut -d ' ' -f 2)
    ports=$(listening mpi_fault)
}

# Print the number of ranks that must report: a killed or stopped rank does not.
wanted() { case $fault in killed | stopped) echo $((nranks - 1)) ;; *) echo "$nranks" ;; esac; }

check_run() {
    local n found
    n=$(wanted)
    found=$(grep -ac ": watch [0-9]*: $outcome" "$log")
    [ "$found" -ge "$n" ] || because "$found of $n ranks said $outcome"
    ! grep -aq 'FAIL\|stuck' "$log" || because "$(grep -am1 'FAIL\|stuck' "$log" | cut -c1-160)"
    if [ -n "$named" ]; then
        found=$(grep -a ": watch [0-9]*: $outcome" "$log" | grep -ac ": .*: .*$named")
        [ "$found" -ge "$n" ] || because "$found of $n error texts name $named"
    fi
    case $fault in
    secret)
        # Each process has a listener of the control plane, which counts the greetings for its rank.
        found=$(sed -n 's/.*listens no longer; dropped connections: .*, \([0-9]*\) strangers.*/\1/p' "$log" |
            awk -v n=$((greetings / 3)) '$1 >= n' | wc -l)
        [ "$found" = "$nranks" ] || because "$found of $nranks ranks have counted $((greetings / 3)) strangers"
        ;;
    link_1s | silent_1s | stopped_3s)
        grep -aq 'longest took [0-9]\{3,\} ms' "$log" || because "no rank noticed the fault"
        ;;
    esac
}

# Does any rank still run? Zombies do not count.
ranks_run() {
    local each
    for each in "${pid[@]}"; do ! grep -qs '^State:.[^ZX]' "/proc/$each/status" || return 0; done
    return 1
}

# Wait for the ranks, not for the launcher, which may not end by itself after a fault.
end_job() {
    local t
    for ((t = 0; t < 300; t++)); do
        ranks_run || break
        sleep 0.05
    done
    ! ranks_run || { because "a rank still runs 15 s after the last report"; kill -9 "${pid[@]}"; }
    for ((t = 0; t < 20; t++)); do
        kill -0 "$job" 2>/dev/null || return 0
        sleep 0.05
    done
    kill "$job"
}

run_once() {
    local begin
    why=""
    prepare
    if start_ranks; then
        sleep 0.$((RANDOM % 4))
        begin=$EPOCHREALTIME
        $fault
        until_log ': watch [0-9]*: ' "$(wanted)" $((seconds + 10))
        check_run
        reports "$begin" "$log" >>"$log.times"
    fi
    mend
    end_job
    wait "$job" 2>/dev/null
    [ -z "$why" ] || {
        echo "$fault: $why"
        tail -n 12 "$log" | cut -c1-300
        tail -n 5 "$log.launcher" | cut -c1-300
        bad=1
    }
}

times=1
while [ $# -gt 1 ]; do
    case $1 in
    --times) times=$2; shift 2 ;;
    *) sed -n '2,6s/^# //p' "$0" >&2; exit 2 ;;
    esac
done
fault=${1-}
scripts=$(cd "$(dirname "$0")/../scripts" && pwd)
build=$(cd "${BUILD_DIR:-.}" && pwd)
lab=$scripts/cluster-lab
# shellcheck source=/dev/null
. "$scripts/../mpi-tests/fault_common.sh"
# shellcheck source=/dev/null
. "$scripts/../mpi-tests/fault_network.sh"
IFS='|' read -r _ layout outcome seconds parameters named < <(faults | grep "^$fault *|") ||
    { echo "unknown fault $fault"; exit 2; }
read -r named <<<"$named"
read -r layout <<<"$layout"
read -r outcome <<<"$outcome"
read -r seconds <<<"$seconds"
# shellcheck source=/dev/null
. "$build/scripts/mpi.env"
survive=$(survive_options "$RONDO_BUILD_MPI")
log=$build/logs/hosts/fault_$fault.ranks
mkdir -p "$build/logs/hosts"
rm -f "$log" "$log".*
rank_wrapper "$log.rank"
nranks=0
for each in ${layout//,/ }; do nranks=$((nranks + ${each##*:})); done
bad=0 why="" pid=() ports="" cable=""
for ((i = 0; i < times; i++)); do run_once; done
mend_cable
[ ! -s "$log.times" ] || table "$fault" "$log.times"
exit $bad
