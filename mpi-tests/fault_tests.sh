#!/bin/sh
# usage: fault_tests.sh [--quick] [--only PATTERN]; BUILD_DIR is the build tree (default: the current folder)
# Faults under a launcher: ranks that die or stop, interrupted jobs, little shared memory, few files. Prints
# "ok NAME", "not ok NAME (why)" or "skip NAME (reason)" for each, and ends with 1 if one is not ok. A fault
# must leave nothing in /dev/shm, and no process.
set -u

here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${BUILD_DIR:-.}" && pwd)
quick=no only="*"
while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=yes; shift ;;
    --only) only=$2; shift 2 ;;
    *) sed -n '2,5s/^# //p' "$0" >&2; exit 2 ;;
    esac
done
if [ ! -x "$build/mpi_fault" ] || [ ! -x "$build/mpi_comm" ] || [ ! -x "$build/mpi_tensor" ]; then
    echo "not ok programs (no mpi_fault, mpi_comm and mpi_tensor in $build)"
    exit 1
fi
# shellcheck source=/dev/null
. "$build/scripts/mpi.env"
# shellcheck source=/dev/null
. "$here/fault_common.sh"
# shellcheck source=/dev/null
. "$here/leftovers.sh"
survive=$(survive_options "$RONDO_BUILD_MPI")

tmp=$(mktemp -d)
bad=0 name="" log=$tmp/log
rank_wrapper "$tmp/rank"
host_wrapper "$tmp/host"
export FAULT_LOG="$log" FAULT_MPI="$RONDO_BUILD_MPI" FAULT_HOSTS=1 RONDO_INIT_TIMEOUT=30s RONDO_TIMEOUT=20s RONDO_DEBUG=NONE

# shellcheck disable=SC2317
clean_up() {
    for pid in $(marked "FAULT_MARK=$$.$name"); do kill -9 "$pid" 2>/dev/null; done
    rm -rf "$tmp"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# launch SECONDS RANKS COMMAND...: run a job, with its output in $log. $inside: command that runs the launcher
inside=""
launch() {
    seconds=$1 ranks=$2
    shift 2
    # shellcheck disable=SC2086
    FAULT_MARK=$$.$name timeout -k 5 "$seconds" $inside "$here/../scripts/mpi-run" --build "$build" \
        -n "$ranks" $survive sh "$tmp/rank" "$@" >>"$log" 2>&1 </dev/null
}

begin() {
    name=$1
    # shellcheck disable=SC2254
    case $name in $only) ;; *) return 1 ;; esac
    shared_memory >"$tmp/before"
    : >"$log"
    why=""
}

because() { why="${why:+$why; }$*"; }

# Wait for processes that are ending; any that stays is an error.
end() {
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
        left=$(marked "FAULT_MARK=$$.$name")
        [ -n "$left" ] || break
        sleep 0.2
    done
    [ -z "$left" ] || { because "processes are left"; for pid in $left; do kill -9 "$pid" 2>/dev/null; done; }
    shared_memory >"$tmp/after"
    LC_ALL=C comm -13 "$tmp/before" "$tmp/after" | unused >"$tmp/new"
    [ ! -s "$tmp/new" ] || because "left in /dev/shm: $(tr '\n' ' ' <"$tmp/new")"
    grep -aq 'mpi_[a-z]*: rank [-0-9]*: FAIL' "$log" && because "$(grep -am1 'FAIL' "$log" | cut -c1-200)"
    grep -aq 'no progress, stuck' "$log" && because "$(grep -am1 'stuck' "$log")"
    # MPICH's launcher combines the signals that ended its ranks: it calls 2 and 9 a segmentation fault.
    grep -av 'EXIT STRING' "$log" | grep -qi 'bus error\|segmentation fault' && because "a rank crashed"
    if [ -z "$why" ]; then
        echo "ok $name"
    else
        echo "not ok $name ($why)"
        tail -n 12 "$log" | cut -c1-300 | sed 's/^/    | /'
        bad=1
    fi
}

# lines PATTERN COUNT: check the number of matching lines in the log
lines() {
    found=$(grep -ac "$1" "$log")
    [ "$found" -eq "$2" ] || because "$found of $2 lines \"$1\""
}

ended() { case $1 in 124 | 137) because "did not end in time" ;; esac; }

# ---- a rank dies in a call ----

kill_test() { # NAME RANKS ARGUMENT...
    begin "$1" || return 0
    n=$2
    shift 2
    launch 60 "$n" "$build/mpi_fault" "$@"
    ended $?
    lines 'survivor [0-9]*: REMOTE_ERROR after' $((n - 1))
    case " $* " in *" --shrink "*) lines 'shrunk to' $((n - 1)) ;; esac
    end
}

kill_test kill_first_call 3 --kill 1 --after 0
kill_test kill_rank_0 3 --kill 0 --after 40
kill_test kill_last_rank 4 --kill 3 --after 60
kill_test kill_one_of_two 2 --kill 1 --after 30
seeds="1 2 3"
[ $quick = yes ] || seeds="1 2 3 4 5 6 7 8 9 10"
for seed in $seeds; do
    kill_test "kill_mid_$seed" 4 --kill $((seed % 4)) --mid --after $((seed * 13)) --seed "$seed"
done
kill_test kill_shrink 4 --kill 2 --after 50 --shrink
kill_test kill_shrink_mid 3 --kill 0 --mid --shrink --seed 5
for proto in simple ll ll128; do
    RONDO_ALGO=^oneshot RONDO_PROTO=$proto kill_test "kill_$proto" 3 --kill 1 --mid --seed 9
done

# A profiler plugin that crashes takes its rank along. The others' plugins get the end of every event, also of
# those of net devices.
for where in node net; do
    begin "plugin_crash_$where" || continue
    off=0 algo=""
    [ $where = node ] || off=1 algo=all_reduce:ring
    RONDO_SHM_DISABLE=$off RONDO_ALGO=$algo \
    RONDO_PROFILER_PLUGIN=$build/.libs/libprofcheck6.so PROF_CHECK_CRASH=1 PROF_CHECK_PARTIAL=1 PROF_CHECK_REPORT=1 \
        launch 60 3 "$build/mpi_fault" --victim 1
    ended $?
    lines 'survivor [0-9]*: REMOTE_ERROR after' 2
    lines 'prof_check v6: 0 open, 0 violations' 2
    end
done

tensor_kill() { # NAME TRANSPORT
    begin "$1" || return 0
    RONDO_TENSOR_TRANSPORT=$2 RONDO_NET=socket RONDO_SOCKET_IFNAME==lo launch 60 3 "$build/mpi_tensor" --kill 0
    ended $?
    lines 'was told of the death' 2
    end
}
tensor_kill kill_publisher shm
tensor_kill kill_publisher_net net

RONDO_DEAD_AFTER=1s
export RONDO_DEAD_AFTER
if begin stop; then
    launch 60 3 "$build/mpi_fault" --stop 1
    ended $?
    lines 'survivor [0-9]*: REMOTE_ERROR after' 2
    lines 'resumed: remote' 1
    end
fi
unset RONDO_DEAD_AFTER

# ---- a rank dies in a creation ----

init_test() { # NAME RANKS ARGUMENT...
    begin "$1" || return 0
    if [ -n "${RONDO_FAULT-}" ] && [ -z "$RONDO_BUILD_FAULTS" ]; then
        echo "skip $1 (no fault injection in this build: configure with --enable-devel)"
        return 0
    fi
    n=$2
    shift 2
    launch 60 "$n" env RONDO_INIT_TIMEOUT="${limit-3s}" sh "$tmp/host" "$build/mpi_fault" --init "$@"
    ended $?
    lines 'survivor [0-9]*: ' $((n - 1))
    # MPI itself may fail first (MPICH).
    lines 'survivor [0-9]*: .*, named: \|survivor .*MPI_[A-Za-z]* failed' $((n - 1))
    end
}

for phase in open hello peers graphs connections ready; do
    RONDO_FAULT=rank=1,phase=$phase,act=kill init_test "kill_init_$phase" 3 --victim 1
done
for phase in peers graphs connections ready; do # without a limit, a death is found all the same
    limit=0 RONDO_FAULT=rank=1,phase=$phase,act=kill init_test "kill_init_no_limit_$phase" 3 --victim 1
done
FAULT_HOSTS=3 RONDO_FAULT=rank=1,phase=graphs,act=kill init_test kill_init_no_limit_apart 3 --victim 1 --no-limit
for phase in connections ready; do
    RONDO_SHM_MODE=socket RONDO_FAULT=rank=0,phase=$phase,act=kill \
        init_test "kill_init_socket_$phase" 3 --victim 0
done
delays="0 2000 9000"
[ $quick = yes ] || delays="0 500 1000 2000 3000 5000 7000 9000 13000 20000"
for delay in $delays; do
    init_test "kill_init_after_${delay}us" 3 --kill 2 --delay "$delay"
done

# Only ranks of its host can see that a rank is stopped; the others are told before their own limit passes. It
# goes on when they have left.
if [ $quick = no ] && [ -n "$RONDO_BUILD_FAULTS" ] && begin stop_init_control; then
    (sleep 6; for pid in $(marked "FAULT_MARK=$$.$name"); do kill -CONT "$pid"; done) &
    FAULT_HOSTS=2 RONDO_DEAD_AFTER=500ms RONDO_FAULT=rank=1,phase=control,act=stop \
        launch 60 4 env RONDO_INIT_TIMEOUT=3s sh "$tmp/host" "$build/mpi_fault" --init --victim 1
    ended $?
    lines 'survivor [023]: remote process exited.*, named: ' 3
    wait $!
    end
fi

# ---- the job is interrupted ----

interrupt() { # SIGNAL
    begin "interrupt_$1" || return 0
    # A script's background jobs, and their children, ignore SIGINT unless it is reset.
    FAULT_MARK=$$.$name timeout -k 5 60 env --default-signal=INT "$here/../scripts/mpi-run" --build "$build" \
        -n 3 sh "$tmp/rank" "$build/mpi_fault" --forever >>"$log" 2>&1 </dev/null &
    timer=$!
    for _ in $(seq 100); do
        grep -aq running "$log" && break
        sleep 0.1
    done
    grep -aq running "$log" || because "the job did not start"
    launcher=$(pgrep -P "$timer" | head -n 1)
    kill -s "$1" "${launcher:-$timer}"
    for _ in $(seq 150); do
        kill -0 "$timer" 2>/dev/null || break
        sleep 0.1
    done
    kill -0 "$timer" 2>/dev/null && { because "mpirun still runs 15 s after the signal"; kill -9 "$timer"; }
    wait "$timer" 2>/dev/null
    end
}
interrupt INT
interrupt TERM

# ---- scarce resources ----

survive="" # with these options mpirun always exits with 0

if begin files_64; then
    # shellcheck disable=SC2016
    launch 60 4 sh -c 'ulimit -n 64 && exec "$0" "$@"' "$build/mpi_fault" --after 60
    status=$?
    ended $status
    [ "$status" -eq 0 ] || because "exit status $status with 64 open files"
    end
fi

# More communicators than files: either all work, or the error text says what is missing.
if begin files_64_many; then
    # shellcheck disable=SC2016
    launch 60 3 sh -c 'ulimit -n 64 && exec "$0" "$@"' "$build/mpi_comm" --only many --many 80
    status=$?
    ended $status
    if [ "$status" -ne 0 ]; then
        grep -aqi 'open files\|too many files\|file descriptors' "$log" ||
            because "exit status $status and no error text about open files"
        sed -i 's/: FAIL /: refused: /' "$log" # an error is expected here
    fi
    end
fi

# Communicators share segments: 80 of them live within 64 files.
if begin files_64_live; then
    # shellcheck disable=SC2016
    launch 60 3 sh -c 'ulimit -n 64 && exec "$0" "$@"' "$build/comm_perf" -n 0 --live 80
    status=$?
    ended $status
    [ "$status" -eq 0 ] || because "exit status $status"
    end
fi

# A /dev/shm of 1 MiB, as in containers. Open MPI's own shared memory is kept away from it.
small_shm() { # NAME MODE: exit status in $status
    begin "$1" || return 1
    if [ "$RONDO_BUILD_MPI" != openmpi ]; then
        echo "skip $1 ($RONDO_BUILD_MPI itself needs more shared memory)"
        return 1
    fi
    for how in "unshare -m" "unshare -rm"; do
        $how sh -c 'mount -t tmpfs -o size=1m tmpfs /dev/shm' 2>/dev/null && break
        how=""
    done
    if [ -z "$how" ]; then
        echo "skip $1 (this user may not mount in a namespace)"
        return 1
    fi
    cat >"$tmp/inside" <<'INSIDE'
#!/bin/sh
mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"
INSIDE
    inside="$how sh $tmp/inside"
    RONDO_SHM_MODE=$2 RONDO_BUFFSIZE=4M OMPI_MCA_btl=self,tcp launch 60 3 "$build/mpi_fault" --after 60
    status=$?
    inside=""
    ended $status
}

for mode in memfd socket auto; do
    if small_shm "shm_1m_$mode" $mode; then
        [ "$status" -eq 0 ] || because "exit status $status, although this mode does not need /dev/shm"
        end
    fi
done
if small_shm shm_1m_file file; then
    [ "$status" -ne 0 ] || because "4 MiB buffers fit in a /dev/shm of 1 MiB"
    grep -aq 'creation: .*/dev/shm' "$log" || because "no error text about /dev/shm"
    sed -i 's/: FAIL /: refused: /' "$log"
    end
fi

exit $bad
