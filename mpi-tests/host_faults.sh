#!/usr/bin/env bash
# Faults between hosts: links that go down, packets that are lost, ranks that die or stop, strangers at the ports. Runs on head of a lab of scripts/cluster-lab
# (run-host-tests starts it there) while mpi_fault --watch runs on n1, n2. Says what each rank reported, and how long after the fault.
# usage: host_faults.sh [--times N] FAULT; BUILD_DIR is the build tree. Exit status 77, with the reason, when the kernel cannot do it.
# shellcheck disable=SC2317 # functions that are called by their name in the table
set -u

# name | hosts:ranks | what the ranks shall report | seconds they run | parameters | what their sentences name
faults() {
    cat <<'FAULTS'
link_1s     | n1:1,n2:1 | passed       |  4 |                                               |
silent_1s   | n1:1,n2:1 | passed       |  4 |                                               |
link_gone   | n1:2,n2:1 | REMOTE_ERROR | 30 | RONDO_SOCKET_TIMEOUT=2s RONDO_DEAD_AFTER=4s   | n2
silent_gone | n1:2,n2:1 | REMOTE_ERROR | 30 | RONDO_SOCKET_TIMEOUT=2s RONDO_DEAD_AFTER=4s   | n2
killed      | n1:2,n2:1 | REMOTE_ERROR | 30 |                                               | rank 2
stopped_3s  | n1:2,n2:1 | passed       |  6 |                                               |
stopped     | n1:2,n2:1 | REMOTE_ERROR | 30 | RONDO_DEAD_AFTER=2s                           | rank 2
garbage     | n1:1,n2:1 | passed       | 15 |                                               |
secret      | n1:1,n2:1 | passed       |  9 | RONDO_DEBUG=INFO RONDO_DEBUG_SUBSYS=INIT,CONTROL RONDO_DEBUG_FILE= |
loss_1      | n1:1,n2:1 | passed       |  4 |                                               |
loss_5      | n1:1,n2:1 | passed       |  4 |                                               |
reorder     | n1:1,n2:1 | passed       |  4 |                                               |
duplicate   | n1:1,n2:1 | passed       |  4 |                                               |
FAULTS
}

# ---- faults: each does its harm, then returns at once; mend undoes what has to be undone ----

port=port0.2 # of n2
link() { ip link set $port "$1"; }
# The carrier stays.
silence() { bridge link set dev $port state "$1"; }
link_1s() { link down; sleep 1; link up; }
silent_1s() { silence 0; sleep 1; silence 3; }
link_gone() { link down; }
silent_gone() { silence 0; }
killed() { kill -9 "${pid[-1]}"; }
stopped_3s() { kill -STOP "${pid[-1]}"; sleep 3; kill -CONT "${pid[-1]}"; }
stopped() { kill -STOP "${pid[-1]}"; }
# What a cable does is done before the ranks start.
loss_1() { :; }
loss_5() { :; }
reorder() { :; }
duplicate() { :; }

# bad_cable OPTION...: between n2 and the bridge; needs nothing of the kernel (netem), and works on frames as large as TCP makes them.
bad_cable() {
    [ ! -s "$log.cable" ] || return 0
    ip link set $port nomaster && ip link add cable type veth peer name plug && ip link set cable master net0 up && ip link set plug up || return
    "$build/bad_link" "$@" plug $port >"$log.cable" 2>&1 &
    cable=$!
    until [ -s "$log.cable" ]; do kill -0 $cable 2>/dev/null || return; sleep 0.02; done
}

# The ports on which ranks listen for each other; MPI's own are for all addresses.
listening() {
    local host
    for host in n1 n2; do "$lab" rsh $host ss -Hltnp; done | sed -n 's/.* \(10\.[0-9.]*\):\([0-9]*\) .*mpi_fault.*/\1 \2/p' | sort -u
}
# strange COUNT: connections that say nothing, or something random, one after the other
strange() {
    local LC_ALL=C i made=0 host_port line
    line=$(head -c 8192 /dev/urandom | tr -d '\0')
    mapfile -t host_port <<<"$ports"
    trap '' PIPE
    for ((i = 0; i < $1; i++)); do
        { printf '%s' "${line:RANDOM % 2048:RANDOM % 4096}" >&4; } 4<>"/dev/tcp/${host_port[i % ${#host_port[@]}]/ //}" && made=$((made + 1))
    done 2>/dev/null
    echo "$made" >>"$log.made"
}
strangers=10000
garbage() {
    local i made crowd=()
    for ((i = 0; i < 20; i++)); do strange $((strangers / 20)) & crowd+=($!); done
    wait "${crowd[@]}"
    made=$(awk '{ n += $1 } END { print n }' "$log.made")
    rm "$log.made"
    echo "strangers: $made connections to $(wc -l <<<"$ports") ports" >>"$log"
    grep -aq ': watch [0-9]*: ' "$log" && because "the ranks were done before all strangers had come"
    [ "$made" -ge $((strangers * 9 / 10)) ] || because "only $made of $strangers connections could be made"
}

# Greetings that are right but for the secret, a third of them for each rank and for the data, whose ports look only while somebody is to connect.
greetings=9
secret() {
    local port hash
    hash=$(sed -n 's/.* communicator "[^"]*" \([0-9a-f]\{16\}\): rank .*/\1/p' "$log" | head -n 1)
    while read -r port; do
        # shellcheck disable=SC2086
        "$build/bad_hello" $greetings "$hash" $port >>"$log" 2>&1 || because "a greeting with a wrong secret was answered, or there was no connection to $port"
    done <<<"$ports"
}

# What takes effect before the ranks start; may find that it cannot be done.
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
    # Ranks write to the log themselves: what goes through a launcher stops with the link. MPICH's launcher ends all when its child is killed.
    # shellcheck disable=SC2086
    env $parameters FAULT_LOG="$log" FAULT_MPI="$RONDO_BUILD_MPI" timeout -k 5 $((seconds + 40)) "$scripts/mpi-run" --build "$build" --hosts "$layout" $survive \
        sh "$log.rank" "$build/mpi_fault" --watch "$seconds" >>"$log.launcher" 2>&1 </dev/null &
    job=$!
    until_log ': watching ' "$nranks" 20 || { because "the ranks did not start"; return 1; }
    mapfile -t pid < <(sed -n 's/.*: watching \([0-9]*\): pid \([0-9]*\) .*/\1 \2/p' "$log" | sort -n | cut -d ' ' -f 2)
    ports=$(listening)
}

# Those of whom a report is wanted: a rank that was killed, or stands still, has none.
wanted() { case $fault in killed | stopped) echo $((nranks - 1)) ;; *) echo "$nranks" ;; esac; }

check_run() {
    local n found
    n=$(wanted)
    found=$(grep -ac ": watch [0-9]*: $outcome" "$log")
    [ "$found" -ge "$n" ] || because "$found of $n ranks said $outcome"
    ! grep -aq 'FAIL\|stuck' "$log" || because "$(grep -am1 'FAIL\|stuck' "$log" | cut -c1-160)"
    if [ -n "$named" ]; then
        found=$(grep -a ": watch [0-9]*: $outcome" "$log" | grep -ac ": .*: .*$named")
        [ "$found" -ge "$n" ] || because "$found of $n sentences name $named"
    fi
    case $fault in
    secret)
        # Each process has a listener of the control plane, which counts those that its rank is meant by.
        found=$(sed -n 's/.*listens no longer; dropped connections: .*, \([0-9]*\) strangers.*/\1/p' "$log" | awk -v n=$((greetings / 3)) '$1 >= n' | wc -l)
        [ "$found" = "$nranks" ] || because "$found of $nranks ranks have counted $((greetings / 3)) strangers"
        ;;
    link_1s | silent_1s | stopped_3s) grep -aq 'longest took [0-9]\{3,\} ms' "$log" || because "no rank noticed" ;;
    esac
}

# Is any of the ranks there, and not only its name in the table of processes?
ranks_run() {
    local each
    for each in "${pid[@]}"; do ! grep -qs '^State:.[^ZX]' "/proc/$each/status" || return 0; done
    return 1
}

# The launcher of survivors may not end by itself: what counts are the ranks.
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
    [ -z "$why" ] || { echo "$fault: $why"; tail -n 12 "$log" | cut -c1-300; tail -n 5 "$log.launcher" | cut -c1-300; bad=1; }
}

times=1
while [ $# -gt 1 ]; do
    case $1 in
    --times) times=$2; shift 2 ;;
    *) sed -n '2,5s/^# //p' "$0" >&2; exit 2 ;;
    esac
done
fault=${1-}
scripts=$(cd "$(dirname "$0")/../scripts" && pwd)
build=$(cd "${BUILD_DIR:-.}" && pwd)
lab=$scripts/cluster-lab
# shellcheck source=/dev/null
. "$scripts/../mpi-tests/fault_times.sh"
IFS='|' read -r _ layout outcome seconds parameters named < <(faults | grep "^$fault *|") || { echo "there is no fault $fault"; exit 2; }
read -r named <<<"$named"
read -r layout <<<"$layout"
read -r outcome <<<"$outcome"
read -r seconds <<<"$seconds"
# shellcheck source=/dev/null
. "$build/scripts/mpi.env"
survive=""
case $RONDO_BUILD_MPI in
openmpi) survive="--mpirun --enable-recovery" ;; # else mpirun ends the survivors
mpich) survive="--mpirun -disable-auto-cleanup" ;;
esac
log=$build/logs/hosts/fault_$fault.ranks
mkdir -p "$build/logs/hosts"
rm -f "$log" "$log".*
cat >"$log.rank" <<'RANK'
#!/bin/sh
trap '' USR1 # by which MPICH's launcher tells of a death; ignored by the rank too
[ "$FAULT_MPI" = mpich ] || exec "$@" >>"$FAULT_LOG" 2>&1
"$@" >>"$FAULT_LOG" 2>&1
status=$?
[ $status -ne 137 ] || exit 0
exit $status
RANK
nranks=0
for each in ${layout//,/ }; do nranks=$((nranks + ${each##*:})); done
bad=0 why="" pid=() ports="" cable=""
for ((i = 0; i < times; i++)); do run_once; done
[ -z "$cable" ] || { kill $cable; wait $cable; cat "$log.cable"; }
[ ! -s "$log.times" ] || table "$fault" "$log.times"
exit $bad
