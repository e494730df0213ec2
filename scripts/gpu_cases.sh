# shellcheck shell=bash disable=SC2154
# Sourced by gpu-check: what it runs, in which order, and what it writes about it. The caller sets bin, a
# folder of programs; identity, a checksum of them; launch, a command that takes -n RANKS PROGRAM; work, a
# temporary folder; nccl_tests, a folder of them or nothing; out, only, resume, minutes, nccl and most.

# ---- groups ----

# name, function, what it is; in the order in which they are run
groups() {
    cat <<'GROUPS'
smallest smallest_cases the smallest case of each kind, with which every run begins
measure measure_cases times beside their lower bounds, ranks as threads
direct direct_cases one-shot and two-shot
graphs graph_cases replays of captured calls
mps mps_cases processes under MPS: tests, times
nccl nccl_cases the same times by NCCL, under MPS
nccl-tests nccl_tests_cases NVIDIA's nccl-tests on Rondo's NCCL face: ranks as processes, threads, in a group
slices slice_cases processes in time slices: tests, times
torn torn_cases LL128 between ranks of one GPU: are lines ever torn?
ranks rank_cases every algorithm and protocol, ranks as threads
bench bench_cases longer tables of times
tools tool_cases compute-sanitizer and ncu, if they are installed
GROUPS
}
is_group() { groups | grep -q "^$1 "; }
groups_text() {
    groups | while read -r name _ what; do printf '                   %-12s%s\n' "$name" "$what"; done
}
# Is the group asked for?
wanted() { [ -z "$only" ] || case ,$only, in *,"$1",*) ;; *) return 1 ;; esac; }

# ---- cases ----

passed=0 failed=0 skipped=0 before=0 phase=smallest
# Of a kind of case: why its other cases are not run; whether that was printed.
declare -A broken=() printed=()
say() { printf '%s\n' "$*"; printf '%s\n' "$*" >>"$out/report.txt"; }
# note STATUS NAME SECONDS WHY: a line of the state
note() { printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "${4//$'\t'/ }" >>"$out/state"; }
skip() {
    say "skip $1 ($2)"
    note skipped "$1" 0 "$2"
    skipped=$((skipped + 1))
}
left() { echo $((60 * minutes - SECONDS)); }
no_time() { echo "no time left of $minutes minutes; --resume goes on"; }

# The last thing that the state says of a case.
state_of() { awk -F '\t' -v name="$1" '$2 == name { last = $1 } END { print last }' "$out/state"; }

# try KIND NAME SECONDS COMMAND...: runs a case. With $wants its output must match that. The other cases of
# a kind are skipped once its smallest case has failed or one of its cases has timed out.
try() {
    local kind=$1 name=$2 limit=$3 begin=$SECONDS status why="" cut=no
    log=$work/$2.log
    shift 3
    if [ -n "${broken[$kind]-}" ]; then
        [ -n "${printed[$kind]-}" ] || skip "$name and others of $kind" "${broken[$kind]}"
        printed[$kind]=yes
        return 1
    fi
    if [ $resume = yes ] && [ "$(state_of "$name")" = ok ]; then
        before=$((before + 1))
        return 1
    fi
    if [ "$(left)" -lt 10 ]; then skip "$name" "$(no_time)"; return 1; fi
    if [ "$limit" -gt "$(left)" ]; then limit=$(left) cut=yes; fi
    run "$limit" "$@" >"$log" 2>&1
    status=$?
    if tool_refuses "$log" && [ $status -ne 0 ]; then status=77; fi
    if [ $status -eq 0 ] && [ -n "${wants-}" ] && ! grep -qE "$wants" "$log"; then
        status=1 why="its output does not match: $wants"
    fi
    case $status in
    0)
        say "ok $name ($((SECONDS - begin)) s; $(grep -E '^[a-z_]+: [0-9]+ cases' "$log" | tail -n 1))"
        note ok "$name" $((SECONDS - begin)) ""
        passed=$((passed + 1))
        return 0
        ;;
    77) skip "$name" "$(grep -E 'skipped|not supported|Failed|ERR' "$log" | tail -n 1)"; return 1 ;;
    124 | 137)
        if [ $cut = yes ]; then skip "$name" "$(no_time)"; return 1; fi
        why="still running after $limit s"
        ;;
    *) why=${why:-exit status $status} ;;
    esac
    say "not ok $name ($why)"
    note failed "$name" $((SECONDS - begin)) "$why"
    failed=$((failed + 1))
    # What the launcher says may come after what the ranks say, or before it.
    { grep -E 'FAIL|WARN|ERROR' "$log" | tail -n 4; tail -n 8 "$log"; } | awk '!seen[$0]++' | cut -c 1-400 |
        while read -r line; do say "    | $line"; done
    # Another timeout of the kind would cost too much time.
    if [ $phase = smallest ] || [ $status -eq 124 ] || [ $status -eq 137 ]; then
        broken[$kind]="$name: $why"
    fi
    again "$name" "$@"
    return 1
}

# run SECONDS COMMAND...: without the pipe that keeps the device open
run() {
    local limit=$1
    shift
    timeout -k 5 "$limit" "$@" </dev/null 8>&-
}

# again NAME COMMAND...: runs a failed case once more with more log, and keeps all of it.
again() {
    local name=$1 limit status
    shift
    limit=$(($(left) / 4))
    if [ $limit -gt 30 ]; then limit=30; fi
    { echo "+ $*"; cat "$log"; } >"$work/failures/$name.log"
    set -- env RONDO_DEBUG=INFO "$@"
    if [ $limit -gt 2 ]; then
        echo "+ $*" >"$work/failures/$name.info.log"
        run $limit "$@" >>"$work/failures/$name.info.log" 2>&1
        status=$?
        say "    | again with RONDO_DEBUG=INFO: exit status $status; both logs are in failures.tar"
    fi
    tar -C "$work/failures" -cf "$out/failures.tar" .
}

# measured NAME HOW: keeps the rows that a case has measured
measured() {
    local name=$1 how=$2 rows=$work/$1.rows
    [ -s "$rows" ] || return 0
    { awk -F '\t' -v name="$name" '$1 != name' "$out/measured.tsv" 2>/dev/null
        awk -v head="$name	$how	" '{ print head $0 }' "$rows"; } >"$work/measured.tsv"
    cp "$work/measured.tsv" "$out/measured.tsv"
}

# ---- the device ----

# A process that keeps the device open: otherwise the driver may start it anew for each case.
hold_begin() {
    mkfifo "$work/hold" || return 1
    "$bin/gpu_probe" --hold <"$work/hold" >"$work/held" 2>&1 &
    holder=$!
    exec 8>"$work/hold"
    for _ in $(seq 200); do
        ! grep -q '^held' "$work/held" || return 0
        kill -0 $holder 2>/dev/null || break
        sleep 0.05
    done
    say "the device is not held open: $(tail -n 1 "$work/held")"
}
hold_end() {
    [ -n "$holder" ] || return 0
    exec 8>&-
    for _ in $(seq 100); do
        kill -0 "$holder" 2>/dev/null || break
        sleep 0.05
    done
    kill "$holder" 2>/dev/null
    holder=""
}

query() { timeout 10 nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null; }
clocks() {
    local of=clocks.sm,clocks.mem,clocks.max.sm,temperature.gpu,power.draw,clocks_throttle_reasons.active
    say "clocks: $(query $of || echo 'no nvidia-smi')"
}

describe() {
    local line
    say "gpu-check: $(query name,driver_version,memory.total || echo 'no nvidia-smi'), $(nproc) cores"
    while read -r line; do say "$line"; done <"$work/probe.log"
    clocks
    show_gpu
    { run 10 nvidia-smi topo -m 2>/dev/null || echo 'no nvidia-smi topo'; run 20 "$bin/rondo-topo"; } \
        >"$work/topology" 2>&1
    while IFS= read -r line; do say "  $line"; done <"$work/topology"
    find_nccl
}

probed() { sed -n "s/^| $1 | \(.*\) |\$/\1/p" "$work/probe.log"; }

# A container may hide the GPU's place in the machine, without which rings and LL128 are not what they are on
# the bare machine. Then say where it is.
show_gpu() {
    local bus sm
    bus=$(probed 'PCI bus') sm=$(probed 'compute capability' | tr -d .)
    [ -z "${RONDO_TOPO_FILE-}" ] && [ -n "$bus" ] || return 0
    ! run 20 "$bin/rondo-topo" 2>/dev/null | head -n 1 | grep -qE ', [1-9][0-9]* GPU' || return 0
    cat >"$work/machine.xml" <<XML
<system version="1">
<cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="207">
<pci busid="$bus" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
<gpu dev="0" sm="$sm"/></pci></cpu></system>
XML
    export RONDO_TOPO_FILE=$work/machine.xml
    say "the machine hides its GPU: RONDO_TOPO_FILE puts one at $bus"
}

# The newest NCCL of this machine, unless --nccl names one.
find_nccl() {
    local file version best=0 number
    nccl_version=""
    for file in ${nccl:-$(timeout 10 find /usr /opt /root /home -name libnccl.so.2 2>/dev/null | head -n 8)}
    do
        version=$(run 20 "$bin/gpu_probe" --nccl "$file" 2>/dev/null | tail -n 1)
        say "NCCL: $file: ${version:-cannot be opened}"
        case $version in *[!0-9.]* | '') continue ;; esac
        number=$(echo "$version" | awk -F . '{ print 10000 * $1 + 100 * $2 + $3 }')
        if [ "$number" -gt "$best" ]; then best=$number nccl=$file nccl_version=$version; fi
    done
    [ -n "$nccl_version" ] || say "NCCL: none found"
}

# ---- ways to run a case ----

# bench KIND NAME SECONDS TITLE ARGUMENT...: gpu_bench with threads as ranks; without a title, its table is
# not kept
bench() {
    local kind=$1 name=$2 seconds=$3 title=$4
    shift 4
    try "$kind" "$name" "$seconds" "$bin/gpu_bench" --rows "$work/$name.rows" "$@" || return 0
    measured "$name" threads
    [ -z "$title" ] || table "$title" "$name"
}

# together KIND NAME SECONDS RANKS PROGRAM ARGUMENT...: processes as ranks
together() {
    local kind=$1 name=$2 seconds=$3 n=$4 without=()
    shift 4
    # The clients of MPS share its server's connections: each must ask for few.
    [ $mps = off ] || without=(-u CUDA_DEVICE_MAX_CONNECTIONS)
    try "$kind" "$name" "$seconds" env "${without[@]}" RONDO_ALLOW_SHARED_GPU=1 \
        RONDO_MAX_NCHANNELS="${RONDO_MAX_NCHANNELS:-8}" "${launch[@]}" -n "$n" "$@"
}
processes() { # processes KIND NAME SECONDS RANKS ARGUMENT...: mpi_coll
    local kind=$1 name=$2 seconds=$3 n=$4
    shift 4
    together "$kind" "$name" "$seconds" "$n" "$bin/mpi_coll" --memory device --timeout 60 "$@"
}
bench_together() { # bench_together KIND NAME SECONDS RANKS ARGUMENT...: gpu_bench
    local kind=$1 name=$2 seconds=$3 n=$4
    shift 4
    together "$kind" "$name" "$seconds" "$n" "$bin/gpu_bench" --mpi --rows "$work/$name.rows" "$@" || return 0
    measured "$name" "processes, $([ $mps = on ] && echo MPS || echo 'time slices')"
}

threads() { # threads NAME RANKS ENVIRONMENT ARGUMENT...: gpu_ranks
    local name=$1 n=$2 environment=$3
    shift 3
    # shellcheck disable=SC2086
    try ranks "$name" 60 env $environment "$bin/gpu_ranks" -n "$n" "$@"
}

direct() { # direct NAME RANKS ARGUMENT...: gpu_ranks with direct access, and checks that it was used
    local name=$1 n=$2 wants='[1-9][0-9]* works used direct access'
    shift 2
    try direct "$name" 60 env RONDO_ALGO=twoshot,oneshot RONDO_DIRECT_GPU=64K RONDO_DEBUG=INFO \
        RONDO_DEBUG_SUBSYS=DESTROY "$bin/gpu_ranks" -n "$n" "$@"
}

# tool_refuses LOG: a debugger or a profiler reports that it cannot run on this machine
tool_refuses() {
    grep -qE 'Device not supported|LibraryNotLoaded|ERR_NVGPUCTRPERM' "$1" ||
        grep -qE '==ERROR== .*(not supported|Unable to)' "$1"
}

# table TITLE NAME: keeps the table that the last case printed, and its lines about skipped rows
table() {
    printf '\n### %s\n' "$1" >"$out/tables/$2.md"
    awk '/^For comparison/ { print "\n" $0 }
        /^\|/ { if (!row || beside) print ""; row = 1; print }
        { beside = /^For comparison|^$/ }
        /^skipped:/ { missing = missing "\n" $0 "\n" }
        END { printf "%s", missing }' "$log" >>"$out/tables/$2.md"
}

# ---- MPS ----

mps_begin() {
    command -v nvidia-cuda-mps-control >/dev/null ||
        { mps_why="nvidia-cuda-mps-control is not installed"; return 1; }
    export CUDA_MPS_PIPE_DIRECTORY=$work/mps CUDA_MPS_LOG_DIRECTORY=$work/mps
    mkdir -p "$work/mps"
    if timeout -k 5 15 nvidia-cuda-mps-control -d >"$work/mps.out" 2>&1 </dev/null 8>&-; then
        mps=on
        return 0
    fi
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    mps_why="MPS does not start: $(tail -n 1 "$work/mps.out")"
    return 1
}
# End the MPS daemon that this script started: through its pipe, or by its pid if it does not answer.
mps_end() {
    local pid
    [ $mps = on ] || return 0
    pid=$(cat "$work/mps/nvidia-cuda-mps-control.pid" 2>/dev/null)
    echo quit | timeout -k 2 15 nvidia-cuda-mps-control >/dev/null 2>&1 ||
        { [ -z "$pid" ] || kill "$pid" 2>/dev/null; }
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    mps=off
}
under_mps() {
    [ -n "${broken[mps]-}" ] || mps_begin || broken[mps]=$mps_why
    "$@"
    mps_end
}

# ---- tools that run one kernel at a time ----

tool() { # tool NAME: prints its path, if it is installed
    command -v "$1" ||
        ls /usr/local/cuda/bin/"$1" /opt/nvidia/nsight-compute/*/"$1" 2>/dev/null | tail -n 1
}

sanitize() { # sanitize NAME TOOL ARGUMENT...
    local name=$1 kind=$2
    shift 2
    try sanitizer "$name" 60 "$sanitizer" --tool "$kind" --error-exitcode 9 "$bin/gpu_ring" --timeout 50 "$@"
}

metrics=gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum
metrics=$metrics,dram__throughput.avg.pct_of_peak_sustained_elapsed,lts__t_sector_hit_rate.pct
metrics=$metrics,sm__warps_active.avg.pct_of_peak_sustained_active
profile() { # profile NAME SECONDS ARGUMENT...
    local name=$1 seconds=$2
    shift 2
    try ncu "$name" "$seconds" "$ncu" --clock-control none --metrics $metrics \
        "$bin/gpu_ring" --timeout 50 "$@"
}

# ---- what is run ----

smallest_cases() {
    try ranks ranks_smallest 30 "$bin/gpu_ranks" -n 2 --coll all_reduce --type f32 --op sum --most 4096
    processes slices slices_smallest 40 2 --case all_reduce,f32,sum,100,0,out,0,stream
    under_mps processes mps mps_smallest 40 2 --case all_reduce,f32,sum,100,0,out,0,stream
    direct direct_smallest 3 --open --coll all_reduce --type f32 --op sum --most 4096
    try graphs graphs_smallest 30 "$bin/gpu_ranks" -n 2 --graphs 3
    try ring ring_smallest 20 "$bin/gpu_ring" --bytes 4K --slot 1K
    bench latency latency_smallest 20 "" latency --proto ll --bytes 8 --iters 3
    bench bandwidth bandwidth_smallest 20 "" bandwidth --proto simple --bytes 64K --iters 3
    bench one_rank one_rank_smallest 20 "" one-rank --bytes 64K --iters 3
    bench overlap overlap_smallest 20 "" overlap --bytes 4K --iters 3
    bench torn torn_smallest 20 "" torn --proto ll128 --bytes 8,1000 --seconds 1
    [ -z "$nccl_tests" ] || most=8 nccl_test smallest 1 all_reduce -t 2
    sanitizer=$(tool compute-sanitizer) ncu=$(tool ncu)
    [ -n "$sanitizer" ] || broken[sanitizer]="compute-sanitizer is not installed"
    [ -n "$ncu" ] || broken[ncu]="ncu is not installed"
    sanitize memcheck_smallest memcheck --bytes 4K --slot 1K
    profile ncu_smallest 40 --bytes 4K --slot 1K
}

# Each algorithm and protocol at the size that it is for.
measure_cases() {
    bench latency measure_ll 30 "Latency, ring, LL" latency -n 2,4 --proto ll --bytes 8,4K --iters 200
    bench latency measure_ll128 30 "Latency, ring, LL128" latency -n 2,4 --proto ll128 --bytes 64K --iters 200
    bench bandwidth measure_ring 60 "Ring, Simple" bandwidth -n 2,4 --proto simple --bytes 64M
    bench direct measure_oneshot 30 "One-shot" latency -n 2,4 --algo oneshot --bytes 8,64K --iters 200
    bench direct measure_twoshot 60 "Two-shot" bandwidth -n 2,4 --algo twoshot --bytes 64K,64M
    bench overlap measure_overlap 60 "Two communicators at once" overlap -n 2,4
    bench one_rank measure_one_rank 40 "One rank" one-rank
}

direct_cases() {
    local n
    for n in 2 4 8; do
        direct "ranks_${n}_direct" $n --open
        direct "ranks_${n}_staged" $n
    done
}

graph_cases() {
    local n
    for n in 2 4 8; do try graphs "graphs_$n" 60 "$bin/gpu_ranks" -n $n --graphs 1000; done
}

# times_of_processes KIND: the same calls as in measure_cases, by processes
times_of_processes() {
    local kind=$1 n
    for n in 2 4; do
        bench_together "$kind" "${kind}_${n}_ll" 30 $n latency --proto ll --bytes 8 --iters 200
        bench_together "$kind" "${kind}_${n}_ll128" 30 $n latency --proto ll128 --bytes 64K --iters 200
        bench_together "$kind" "${kind}_${n}_ring" 60 $n bandwidth --proto simple --bytes 64M
        bench_together "$kind" "${kind}_${n}_oneshot" 30 $n latency --algo oneshot --bytes 8,64K --iters 200
        bench_together "$kind" "${kind}_${n}_twoshot" 60 $n bandwidth --algo twoshot --bytes 64M
    done
}

mps_cases() { under_mps in_mps; }
in_mps() {
    processes mps mps_2 60 2 --most 100K
    times_of_processes mps
    processes mps mps_4 60 4 --coll all_reduce --most 100K
}

nccl_cases() {
    if [ -z "$nccl_version" ]; then
        skip nccl "no libnccl.so.2 on this machine; --nccl names one"
        return
    fi
    under_mps in_nccl
}
in_nccl() {
    local n
    [ $mps = on ] || broken[nccl]="NCCL with several ranks on a GPU needs MPS: ${broken[mps]-}"
    for n in 2 4; do
        bench_together nccl "nccl_${n}_latency" 60 $n latency --nccl "$nccl" --bytes 8,64K --iters 200
        bench_together nccl "nccl_${n}_bandwidth" 60 $n bandwidth --nccl "$nccl" --bytes 64M
    done
}

# nccl_test NAME PROCESSES ARGUMENT...: a program of nccl-tests, which checks its results
nccl_test() {
    local name=$1 n=$2 program=$3 wants='Out of bounds values : 0 OK'
    shift 3
    together nccl-tests "nccl_tests_${program}_$name" 60 "$n" \
        env RONDO_NCCL_MEMORY=gpu "$nccl_tests/${program}_perf" -b 8 -e "$most" -f 32 -w 1 -n 2 -c 1 "$@"
}
nccl_test_names() { ls "$nccl_tests" | sed -n 's/_perf$//p'; }
nccl_tests_cases() {
    local program
    if [ -z "$nccl_tests" ]; then
        skip nccl-tests "no programs; nccl-programs --compile-for makes them, --nccl-tests names them"
        return
    fi
    for program in $(nccl_test_names); do
        nccl_test group 1 "$program" -g 2
        nccl_test threads 1 "$program" -t 2
    done
    under_mps in_nccl_tests
}
in_nccl_tests() {
    local program n
    [ $mps = on ] || broken[nccl-tests]="processes of nccl-tests need MPS: ${broken[mps]-}"
    for program in $(nccl_test_names); do
        for n in 2 4; do nccl_test "$n" "$n" "$program"; done
    done
    for program in all_reduce all_gather alltoall sendrecv; do
        NCCL_TESTS_SPLIT=MOD2 nccl_test split 4 "$program"
    done
}

slice_cases() {
    processes slices slices_2 90 2 --coll all_reduce --type f32 --most 4K
    bench_together slices slices_2_ll 60 2 latency --proto ll --bytes 8 --iters 20
}

torn_cases() {
    local n
    for n in 2 4; do bench torn "torn_$n" 60 "" torn -n $n --proto ll128 --seconds 10; done
    under_mps in_torn
}
in_torn() {
    [ $mps = on ] || { skip torn_mps_2 "${broken[mps]-}"; return; }
    bench_together torn torn_mps_2 60 2 torn --proto ll128 --seconds 10
}

rank_cases() {
    local n proto
    for n in 1 2 4 8; do threads "ranks_$n" $n ""; done
    for proto in ll ll128 simple; do
        for n in 2 4 8; do
            threads "ranks_${n}_ring_$proto" $n "RONDO_ALGO=ring RONDO_PROTO=$proto"
            threads "ranks_${n}_tree_$proto" $n \
                "RONDO_ALGO=ring;all_reduce:tree;broadcast:tree;reduce:tree RONDO_PROTO=$proto"
        done
        threads "ranks_2_full_$proto" 2 "RONDO_PROTO=$proto" --full --coll all_reduce --most 64K
    done
}

bench_cases() {
    bench bandwidth bandwidth_ring 90 "Ring, Simple, large" \
        bandwidth -n 2,4,8 --proto simple --type f32,bf16
    bench bandwidth bandwidth_direct 90 "Direct (two-shot), large" \
        bandwidth -n 2,4,8 --algo twoshot --type f32,bf16
    bench bandwidth bandwidth_ring_cached 60 \
        "Ring, Simple, slots that stay in the cache (RONDO_BUFFSIZE=128K)" \
        bandwidth -n 2,4 --proto simple --buffsize 128K --cached
    bench latency latency_ll 40 "Latency, ring, LL, all sizes" latency -n 2,4,8 --proto ll --iters 200
    bench latency latency_tree 40 "Latency, tree, LL" latency -n 2,4,8 --algo tree --proto ll --iters 200
}

tool_cases() {
    local proto kind
    for proto in ll ll128 simple; do
        for kind in memcheck racecheck synccheck; do
            sanitize "${kind}_$proto" $kind -n 3 --proto $proto --bytes 64K --slot 4K
        done
    done
    sanitize memcheck_all_gather memcheck -n 4 --coll all_gather --bytes 64K --slot 4K
    if profile ncu_ring_simple 90 -n 2 --channels 32 --bytes 256M --slot 512K; then
        echo '| ncu | unit | value |' >"$log.table"
        echo '|---|---|---|' >>"$log.table"
        awk 'NF == 3 && $1 ~ /__/ { print "| " $1 " | " $2 " | " $3 " |" }' "$log" >>"$log.table"
        log=$log.table
        table "The ring Simple kernel: 2 ranks as 64 blocks of one launch, 256 MiB" ncu_ring_simple
    fi
}

# ---- reports ----

# The measurements, as a table: of copies and empty kernels only the first.
table_of_times() {
    awk -F '\t' '
        function size(n,   unit) {
            for (unit = 1; n >= 1024 && n % 1024 == 0 && unit < 4; unit++) n /= 1024
            return n " " substr("B  KiBMiBGiB", 3 * unit - 2, unit == 1 ? 1 : 3)
        }
        BEGIN {
            print "| what | ranks as | ranks | size | us | lower bound, us | bound / time | the lower bound |"
            print "|---|---|---|---|---|---|---|---|"
        }
        $1 !~ /_smallest$/ && !(($3 ~ /^(copy|launch)/) && seen[$2, $3, $5]++) {
            printf "| %s | %s | %s | %s | %.2f | %s | %s | %s |\n", $3, $2, $4, ($5 > 0 ? size($5) : ""), $6,
                ($7 > 0 ? sprintf("%.2f", $7) : ""), ($7 > 0 ? sprintf("%.2f", $7 / $6) : ""),
                ($7 > 0 ? $8 : "")
        }' "$out/measured.tsv"
    awk -F '\t' '
        $1 == "skipped" && $2 ~ /^(measure|mps|nccl|slices|group)/ { why[$2] = $4 }
        $1 == "ok" { delete why[$2] }
        END { for (name in why) print "\nNot measured: " name ": " why[name] }' "$out/state"
}

# A JSON object of what was found.
json() {
    awk -F '\t' -v passed=$passed -v failed=$failed -v skipped=$skipped -v before=$before \
        -v seconds=$SECONDS -v nccl="$nccl_version" '
        function quoted(text) {
            gsub(/\\/, "&&", text)
            gsub(/"/, "\\\"", text)
            gsub(/[\001-\037]/, " ", text)
            return "\"" text "\""
        }
        FILENAME ~ /probe\.log$/ {
            if (split($0, cell, " \\| ") == 2 && cell[1] !~ /^. GPU 0 of/) {
                sub(/^\| /, "", cell[1])
                sub(/ \|$/, "", cell[2])
                gpu = gpu (gpu != "" ? ",\n  " : "") quoted(cell[1]) ":" quoted(cell[2])
            }
        }
        FILENAME ~ /state$/ && NF == 4 {
            if (!($2 in status)) name[++n] = $2
            status[$2] = $1; took[$2] = $3; why[$2] = $4
        }
        FILENAME ~ /measured\.tsv$/ {
            times = times (times != "" ? ",\n  " : "") "{\"case\":" quoted($1) ",\"ranks_as\":" quoted($2) \
                ",\"what\":" quoted($3) ",\"ranks\":" $4 ",\"bytes\":" $5 ",\"us\":" $6 ",\"floor_us\":" \
                ($7 > 0 ? $7 : "null") ",\"floor\":" quoted($8) "}"
        }
        END {
            printf "{\"passed\":%d,\"failed\":%d,\"skipped\":%d,\"passed_before\":%d,", passed, failed,
                skipped, before
            printf "\"seconds\":%d,\n", seconds
            printf "\"nccl\":%s,\n\"gpu\":{%s},\n\"cases\":[", (nccl != "" ? quoted(nccl) : "null"), gpu
            for (i = 1; i <= n; i++)
                printf "%s{\"name\":%s,\"status\":%s,\"seconds\":%d,\"why\":%s}", (i > 1 ? ",\n  " : ""),
                    quoted(name[i]), quoted(status[name[i]]), took[name[i]], quoted(why[name[i]])
            printf "],\n\"times\":[%s]}\n", times
        }' "$work/probe.log" "$out/state" "$out/measured.tsv"
}

# After each group, so that a run that is cut off leaves what it has found.
report() {
    table_of_times >"$work/table.md" && cp "$work/table.md" "$out/table.md"
    json >"$work/report.json" && cp "$work/report.json" "$out/report.json"
}

# ---- all of it ----

# The state is of these programs only.
state_begin() {
    local id
    id="build $identity"
    if [ $resume = yes ] && [ "$(head -n 1 "$out/state" 2>/dev/null)" != "$id" ]; then
        say "--resume: $out has no state of this build; everything is run"
        resume=no
    fi
    if [ $resume = no ]; then
        rm -rf "$out/failures.tar" "$out/tables" "$out/measured.tsv"
        echo "$id" >"$out/state"
    fi
    mkdir -p "$out/tables" "$work/failures"
    touch "$out/measured.tsv"
    [ ! -e "$out/failures.tar" ] || tar -C "$work/failures" -xf "$out/failures.tar"
}

run_group() { # run_group NAME FUNCTION
    wanted "$1" || return 0
    if [ "$(left)" -lt 10 ]; then
        skip "group $1" "$(no_time)"
        return 0
    fi
    $2
    [ "$1" != smallest ] || phase=all
    report
}

run_all() {
    local status name function line all
    mkdir -p "$out" && : >"$out/report.txt" || die "cannot write to $out"
    out=$(cd "$out" && pwd)
    export RONDO_TIMEOUT=${RONDO_TIMEOUT-20s} RONDO_INIT_TIMEOUT=${RONDO_INIT_TIMEOUT-20s}
    export CUDA_DEVICE_MAX_CONNECTIONS=32
    run 60 "$bin/gpu_probe" >"$work/probe.log" 2>&1
    status=$?
    [ $status -ne 77 ] || no_gpu "$(sed -n 's/^skipped: //p' "$work/probe.log")"
    state_begin
    hold_begin
    describe
    if [ $status -ne 0 ]; then
        say "not ok probe (exit status $status)"
        note failed probe 0 "exit status $status"
        failed=1
    fi
    mapfile -t all < <(groups)
    for line in "${all[@]}"; do
        read -r name function _ <<<"$line"
        run_group "$name" "$function"
    done
    clocks
    say "$passed passed, $failed failed, $skipped skipped in $SECONDS s$(
        [ $before -eq 0 ] || echo "; $before had passed before")"
    report
    { cat "$out"/tables/*.md 2>/dev/null; printf '\n### All times\n\n'; cat "$out/table.md"; } >"$work/tables"
    tee -a "$out/report.txt" <"$work/tables"
    [ $failed -eq 0 ]
}
