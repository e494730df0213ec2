#!/bin/sh
# The profiler plugin "rondo" and rondo-trace: ranks write traces and summaries, which agree with one another
# and with what was called; traces merge, also of hosts whose clocks differ.
set -eu
build=${BUILD_DIR:?} root=$(cd "$(dirname "$0")/.." && pwd)
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' HUP INT TERM
ranks=3 trace="$root/scripts/rondo-trace"

# run NAME VAR=value...: some all_reduces; the traces are $dir/NAME.*.json
run() {
    name=$1
    shift
    env RONDO_PROFILER_PLUGIN="$build/.libs/libnccl-profiler-rondo.so" RONDO_TRACE_FILE="$dir/$name" \
        RONDO_TRACE_SUMMARY=text,json,prometheus "$@" "$root/scripts/mpi-run" --build "$build" -n $ranks \
        ${wrap-} "$build/all_reduce_perf" -b 8 -e 256K -f 32 -n 4 -w 1 -c 1
    set -- "$dir/$name".*.json
    [ $# = $ranks ] || { echo "$# traces of $ranks ranks"; exit 1; }
    "$trace" check "$@"
}
run ring RONDO_TRACE_LEVEL=steps RONDO_ALGO=ring RONDO_MAX_NCHANNELS=1
run auto RONDO_TRACE_LEVEL=channels
run few RONDO_TRACE_LEVEL=steps RONDO_TRACE_MAX=10
cat >"$dir/apart" <<'SHELL'
#!/bin/sh
# The first rank is on one host, the others are on another.
rank=${OMPI_COMM_WORLD_RANK-$PMI_RANK}
RONDO_HOSTID=$((rank > 0)) exec "$@"
SHELL
chmod +x "$dir/apart"
wrap="$dir/apart" run apart RONDO_TRACE_LEVEL=steps RONDO_SOCKET_IFNAME==lo

python3 - "$dir" $ranks <<'PYTHON'
import glob, json, sys
dir, ranks = sys.argv[1], int(sys.argv[2])

def must(ok, what):
    if not ok:
        sys.exit("trace_test: " + what)

def traces(name):
    return [json.load(open(path)) for path in sorted(glob.glob(f"{dir}/{name}.*.json"))]

def of(trace, cat):
    return [e for e in trace["traceEvents"] if e.get("cat") == cat]

for t in traces("ring"):
    # a ring of n ranks: 2 conns, each with 2 (n - 1) steps or more, and one channel, for each call
    calls = [e for e in of(t, "coll") if e["name"] == "AllReduce"]
    must(len(of(t, "channel")) == len(of(t, "coll")), "a call on one channel has another number of them")
    must(len(of(t, "conn")) == 2 * len(of(t, "coll")), "conns of a ring")
    must(all(e["args"]["algo"] == "RING" for e in calls), "the algorithm is not the ring")
    announced = sum(e["args"]["steps"] for e in of(t, "conn"))
    must(len(of(t, "step")) == announced, "steps")
sequences = [[(e["name"], e["args"]["seq"], e["args"]["bytes"]) for e in of(t, "coll")]
             for t in traces("auto")]
must(len(sequences[0]) > 10 and all(s == sequences[0] for s in sequences), "ranks made different calls")
for t in traces("few"):
    kept = [e for e in t["traceEvents"] if e["ph"] == "X"]
    must(len(kept) <= 10 and t["otherData"]["lost"] > 0, "the limit")
for t in traces("auto"):
    base = f"{dir}/auto.{t['otherData']['comm']}.{t['otherData']['rank']}"
    rows = [json.loads(line) for line in open(base + ".jsonl")]
    must(sum(row["count"] for row in rows) == len(of(t, "coll")), "the summary counts other calls")
    must(all(sum(row["histogram_log2_ns"]) == row["count"] for row in rows), "the histogram")
    must(all(row["min_us"] <= row["p50_us"] <= row["p99_us"] <= row["max_us"] for row in rows), "quantiles")
    counts = [int(l.split()[-1]) for l in open(base + ".prom") if l.startswith("rondo_call_seconds_count")]
    must(sorted(counts) == sorted(row["count"] for row in rows), "Prometheus counts other calls")
    must(len(open(base + ".txt").readlines()) == 2 + len(rows), "the text")
# Steps between hosts overlap: those that do have threads of their own.
lanes = set()
for t in traces("apart"):
    last = {}
    for e in sorted(of(t, "step"), key=lambda e: e["ts"]):
        must(e["ts"] + 0.002 >= last.get(e["tid"], 0), f"steps overlap on thread {e['tid']}")
        last[e["tid"]] = e["ts"] + e["dur"]
        lanes.add(e["tid"] // 65000000)
must(lanes == set(range(len(lanes))) and 1 < len(lanes) <= 8, f"lanes of steps: {lanes}")
# Clocks are compared by the lowest rank of each host but the first one. Here both are one clock.
compared = [t["otherData"].get("clock") for t in traces("apart")]
must([c is not None for c in compared] == [False, True, False], f"who has compared clocks: {compared}")
must(compared[1]["rank"] == 0 and 0 < compared[1]["error_us"] < 1e5, f"the comparison {compared[1]}")
must(abs(compared[1]["offset_us"]) <= compared[1]["error_us"], f"one clock is two: {compared[1]}")
must(all("clock" not in t["otherData"] for t in traces("auto")), "a host has compared its clock with its own")
# Another host, whose clock is 5 s ahead: merge finds that from the calls, or from pings if there are none.
# A call of no elements waits for nobody and says nothing of clocks.
paths = sorted(glob.glob(f"{dir}/auto.*.json"))
for late, path in enumerate(paths):
    t = json.load(open(path))
    e = dict(of(t, "coll")[-1], name="AllReduce", ts=of(t, "coll")[-1]["ts"] + 1e6 * (1 + late), dur=1)
    t["traceEvents"].append(dict(e, args=dict(e["args"], seq=1 << 40, count=0)))
    json.dump(t, open(path, "w"))
t = json.load(open(paths[-1]))
ahead = t["otherData"]["monotonic_ns"] + 5 * 10**9
t["otherData"].update(boot_id="another", host="elsewhere", monotonic_ns=ahead)
for e in t["traceEvents"]:
    if e["ph"] == "X":
        e["ts"] += 5e6
json.dump(t, open(paths[-1], "w"))
t["otherData"]["clock"] = {"rank": 0, "offset_us": -5e6, "error_us": 0.5}
t["traceEvents"] = [e for e in t["traceEvents"] if e.get("cat") != "coll"]
json.dump(t, open(f"{dir}/pinged", "w"))
PYTHON
"$trace" merge -o "$dir/merged" "$dir"/auto.*.0.json "$dir/pinged" | tee "$dir/said"
grep -q '^elsewhere: clock -5000000.0 us, known to 0.5 us$' "$dir/said" ||
    { echo "merge ignores pings"; exit 1; }
"$trace" merge -o "$dir/merged" "$dir"/auto.*.json | tee "$dir/said"
python3 - "$dir" $ranks <<'PYTHON'
import json, re, sys
dir, ranks = sys.argv[1], int(sys.argv[2])
line = re.compile(r"elsewhere: clock ([-+.\d]+) us, known to ([.\d]+)")
offset, spread = map(float, line.search(open(dir + "/said").read()).groups())
if abs(offset + 5e6) > spread + 1:
    sys.exit(f"trace_test: the clock is off by {offset} us, known to {spread}")
merged = json.load(open(dir + "/merged"))
clocks = {clock["host"]: clock for clock in merged["otherData"]["clocks"]}
if abs(clocks["elsewhere"]["known_to_us"] - spread) > 0.1 or len(clocks) != 2:
    sys.exit(f"trace_test: the merged trace says of its clocks {clocks}")
if len({e["pid"] for e in merged["traceEvents"]}) != ranks:
    sys.exit("trace_test: the merged trace lacks ranks")
PYTHON
full=/dev/full
[ -c $full ] || full=
for path in "$dir/missing/merged" $full; do
    if said=$("$trace" merge -o "$path" "$dir"/auto.*.json 2>&1); then echo "rondo-trace writes $path"; exit 1; fi
    case $said in
    "rondo-trace: $path: "*) ;;
    *) echo "rondo-trace does not say why it cannot write $path: $said"; exit 1 ;;
    esac
done
if "$trace" merge /dev/null 2>/dev/null; then echo "rondo-trace merges nothing"; exit 1; fi
echo ok
