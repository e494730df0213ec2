# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of the scripts that source it
# To be sourced by fault tests that run on the head of a lab of scripts/cluster-lab: what is done to the
# network.

# bad_cable OPTION...: put bad_link between n2 ($port) and the bridge, until mend_cable. It needs no netem,
# and handles unsegmented frames.
bad_cable() {
    [ -z "$cable" ] || return 0
    ip link set "$port" nomaster && ip link add cable type veth peer name plug &&
        ip link set cable master net0 up && ip link set plug up || return
    "$build/bad_link" "$@" plug "$port" >"$log.cable" 2>&1 &
    cable=$!
    until [ -s "$log.cable" ]; do kill -0 "$cable" 2>/dev/null || return; sleep 0.02; done
}

mend_cable() {
    [ -n "$cable" ] || return 0
    kill "$cable"
    wait "$cable" 2>/dev/null
    cat "$log.cable"
    ip link delete cable && ip link set "$port" master net0
    cable=""
}

# listening PROGRAM: print the ports of n1 and n2 on which its ranks listen for one another. MPI's own ports
# listen on all addresses.
listening() {
    local host
    for host in n1 n2; do "$lab" rsh $host ss -Hltnp; done |
        sed -n 's/.* \(10\.[0-9.]*\):\([0-9]*\) .*'"$1"'.*/\1 \2/p' | sort -u
}

# strange COUNT: open connections to $ports, one by one, that send nothing or random bytes
strange() {
    local LC_ALL=C i made=0 host_port line
    line=$(head -c 8192 /dev/urandom | tr -d '\0')
    mapfile -t host_port <<<"$ports"
    trap '' PIPE
    for ((i = 0; i < $1; i++)); do
        { printf '%s' "${line:RANDOM % 2048:RANDOM % 4096}" >&4; } \
            4<>"/dev/tcp/${host_port[i % ${#host_port[@]}]/ //}" && made=$((made + 1))
    done 2>/dev/null
    echo "$made" >>"$log.made"
}
